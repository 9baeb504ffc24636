"""Values that a word chooses: `param compute = by $accelerator: a100 636 ms, h100 323 ms`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from dliosim.language.diagnostics import Label, mistake, suggest_word
from dliosim.language.source import Span
from dliosim.language.syntax.ast import MAX_CHAIN, Param, follow_reference
from dliosim.language.values.evaluator import Scope

_HEAD = re.compile(r"by\s+(\$\w+)\s*:", re.ASCII)
#: A row: its word, and a value in which commas stand in parentheses alone.
_ROW = re.compile(r"\s*([\w.-]*)((?:[^,()]|\((?:[^()]|\([^()]*\))*\)|[()])*)(,|$)", re.ASCII)


@dataclass(slots=True)
class Choices:
    """Replaces each parameter's table by its matching row, once all overrides are known."""

    #: the parameters
    scope: Scope
    _active: list[str] = field(default_factory=list)

    def choose(self, param: Param) -> None:
        """Give a parameter the value of its table's matching row; a parameter without a table keeps its value.

        Raises Mistake: E003 for a table that cannot be read, E101 for an unknown parameter, E111 for values of several
        dimensions, E113 for a word without a value.
        """
        table = _read_table(param.value)
        if table is None:
            own = _read_table(param.default)
            param.default = next(iter(own[1].values())) if own else param.default
            return
        if param.name in self._active or len(self._active) >= MAX_CHAIN:
            text = f"`${param.name}` needs its own value"
            raise mistake("E101", text, param.value, "goes round in a circle", hint="write a value in place of `by`")
        reference, rows = table
        self._active.append(param.name)
        try:
            selector = self.scope.find_param(reference)
            self.choose(selector)
        finally:
            self._active.pop()
        word = follow_reference(self.scope.params, selector.value)
        if word.text not in rows:
            listed, more = _list_words(list(rows)), [Label(param.value, "the values that there are")]
            text = f"`{selector.name}` is {listed}, and not `{word.text}`"
            hint = suggest_word(word.text, rows) or f"write `-D {selector.name}={next(iter(rows))}`"
            raise mistake("E113", text, word, f"expected {listed}", more=more, hint=hint)
        self._check_kinds(rows)
        is_own = param.value is param.default
        param.value = rows[word.text]
        if is_own:
            param.default = param.value

    def _check_kinds(self, rows: dict[str, Span]) -> None:
        """Raise E111 if one value is a quantity of another dimension than the first, or none."""
        first, *others = rows.items()
        kind = self.scope.kind_of(first[1])
        for word, value in others:
            other = self.scope.kind_of(value)
            if other != kind:
                text = f"`{word}` has another kind of value than `{first[0]}`"
                more = [Label(first[1], f"this is {kind or 'no quantity'}")]
                raise mistake("E111", text, value, f"this is {other or 'no quantity'}", more=more)


def _read_table(span: Span) -> tuple[Span, dict[str, Span]] | None:
    """Return the parameter that chooses and the values by word; None for another phrase, E003 for a broken one."""
    head = _HEAD.match(span.text)
    if head is None:
        return None

    def place(start: int, end: int) -> Span:
        return Span(span.source, span.start + start, span.start + end)

    rows: dict[str, Span] = {}
    at = head.end()
    while at < len(span.text):
        found = _ROW.match(span.text, at)
        value = place(*found.span(2)).trim() if found else place(at, len(span.text))
        if found is None or not found[1] or not value.text:
            here = place(at, found.end(2) if found else len(span.text)).trim()
            raise mistake("E003", "a word and its value are needed", here, "expected as in `h100 323 ms`")
        if found[1] in rows:
            raise mistake("E003", f"`{found[1]}` has two values", place(*found.span(1)), "again here")
        rows[found[1]] = value
        at = found.end()
    if not rows:
        raise mistake("E003", "`by` without values", span, "expected as in `by $accelerator: a100 636 ms, h100 323 ms`")
    return place(*head.span(1)), rows


def _list_words(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
