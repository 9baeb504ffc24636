"""Settings of one block, evaluated one at a time.

Mistakes are collected, and the default replaces a setting that has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any, Final, TypeVar

from dliosim.language import diagnostics
from dliosim.language.settings.phrases import read_phrase
from dliosim.language.source import SourceText, Span
from dliosim.language.syntax import declarations
from dliosim.language.syntax.ast import Document, PatternBlock, Setting
from dliosim.language.syntax.declarations import list_settings
from dliosim.language.syntax.parser import SyntaxNode
from dliosim.language.values.evaluator import Scope
from dliosim.model import Checkpoint, Dataset, Distribution

T = TypeVar("T")

#: The share of a distribution's draws that limits may clip; above it, a limit is beyond the median.
MOST_CLAMPED: Final = 0.5


@dataclass(slots=True)
class CompileContext:
    """The document, the scope, and the findings of one compilation."""

    #: the parsed pattern
    document: Document
    #: evaluates phrases
    scope: Scope
    #: all findings so far, warnings included
    found: list[diagnostics.Diagnostic] = field(default_factory=list)
    #: names of the nouns that a line refers to
    used: set[str] = field(default_factory=set)

    def report(self, error: diagnostics.Mistake, at: Span | None = None) -> None:
        """Collect a mistake; if its place is outside the statement `at`, show that statement too.

        A name that is missing because a file could not be read is not reported.
        """
        finding = error.diagnostic
        if finding.code in ("E101", "E104", "E105") and self.document.incomplete:
            return
        if isinstance(error, diagnostics.ReportedMistake):
            return
        if at is not None and finding.labels:
            here = finding.labels[0].span
            if here.source is not at.source or not at.start <= here.start <= at.end:
                labels = (*finding.labels, diagnostics.Label(at, "used here"))
                finding = replace(finding, labels=labels)
        diagnostics.collect(self.found, finding)

    @contextmanager
    def reporting(self, at: Span | None = None, attempt: diagnostics.Attempt | None = None) -> Iterator[None]:
        """Collect, as `report` does, a mistake raised in the `with` block; the code after it still runs.

        `attempt` is what the user tried to write there.
        """
        try:
            yield
        except diagnostics.Mistake as error:
            self.report(error.note_attempt(attempt) if attempt else error, at)

    def has_errors(self, before: int) -> bool:
        """Return whether there are errors behind the first `before` findings."""
        return any(found.is_error for found in self.found[before:])

    def example_read(self) -> str:
        """Return a `read` line of this pattern."""
        return f"read {next((noun.name for noun in self.document.nouns.values() if noun.kind == 'dataset'), 'DATASET')}"

    def find_noun(self, name: SyntaxNode, kind: str) -> PatternBlock:
        """Return the data set, model, checkpoint or access of a name; E101 or E105 if there is none."""
        nouns = self.document.nouns
        block = nouns.get(name.text)
        if block is not None and block.kind == kind:
            self.used.add(name.text)
            return block
        same = [noun for noun in nouns.values() if noun.kind == kind]
        plural = "access methods" if kind == "access" else f"{kind_name(kind)}s"
        listed = f"{plural} here: {', '.join(sorted(noun.name for noun in same)) or 'none'}"
        if block is not None:
            other, needed = _kind_with_article(block.kind), _kind_with_article(kind)
            message, more = f"`{name.text}` is {other}, not {needed}", [diagnostics.Label(block.place, other)]
            raise diagnostics.mistake("E105", message, name.span, f"{needed} is needed here", more=more, hint=listed)
        if not same:
            listed = f"{listed}; `{kind} {name.text} {{` above begins the block that defines it"
        hint = diagnostics.join_hints(diagnostics.suggest_word(name.text, (noun.name for noun in same)), listed)
        raise diagnostics.mistake(
            "E101", f"unknown {kind_name(kind)} `{name.text}`", name.span, "not defined", hint=hint
        )


@dataclass(slots=True)
class Settings:
    """The lines that count for one block: its own, and those inherited from other blocks."""

    #: the compilation
    context: CompileContext
    #: the block
    block: PatternBlock
    #: lines that count, in order
    lines: list[Setting]

    def find_line(self, head: str) -> Setting | None:
        """Return the first line of a setting, or None."""
        return next((line for line in self.lines if line.head == head), None)

    def all_lines(self, head: str) -> list[Setting]:
        """Return the lines of a repeated setting; none if it is `off`."""
        return [line for line in self.lines if line.head == head and not line.is_off]

    def check_off(self, head: str) -> None:
        """Report E102 if a repeated setting is `off` and has other lines, too."""
        off = [diagnostics.Label(line.phrase, "off") for line in self.lines if line.head == head and line.is_off]
        others = [diagnostics.Label(line.phrase, "but this is not") for line in self.all_lines(head)]
        if off and others:
            self.report("E102", f"`{head} off` with another `{head}` line", "", [off[0], others[0]])

    def read(self, head: str, convert: Callable[[SyntaxNode], T], default: T) -> T:
        """Return the value of a setting, or the default if it is not given or has a mistake."""
        line = self.find_line(head)
        return default if line is None else self.convert(line, convert, default)

    def read_fields(self, owner: type, **special: Callable[[SyntaxNode], Any] | None) -> dict[str, Any]:
        """Return the fields of the model's dataclass `owner` that lines of the block give, by name.

        `special` has functions for fields whose value needs more than the phrase (they may return several fields), and
        None for fields that are not read. Fields with mistakes, and fields of dataclasses within `owner`, are left out.
        """
        found: dict[str, Any] = {}
        for setting in list_settings(owner, self.block.kind):
            line = self.find_line(setting.keyword)
            usual = None if setting.phrase.rule else partial(read_phrase, setting, self.context.scope)
            convert = special.get(setting.field, usual)
            if line is not None and convert is not None and not setting.inside:
                value = self.convert(line, convert, MISSING)
                found |= value if isinstance(value, dict) else {setting.field: value}
        return {field: value for field, value in found.items() if value is not MISSING}

    def convert(self, line: Setting, convert: Callable[[SyntaxNode], T], default: T) -> T:
        """Return the value of one line, or the default if it has a mistake, which is reported."""
        accepts = partial(self._is_readable, line, convert)
        with self.context.reporting(line.phrase, diagnostics.Attempt(line.head, self.block.kind, line.phrase, accepts)):
            return convert(self.parse_line(line))
        return default

    def _is_readable(self, line: Setting, convert: Callable[[SyntaxNode], T], text: str) -> bool:
        """Return whether a line could be read with another phrase; nothing is reported."""
        found = self.context.found
        before = len(found)
        made = replace(line, phrase=SourceText("", text).span(0, len(text)), sub=(text,))
        try:
            if not made.is_off:
                convert(self.parse_line(made))
            return len(found) == before
        except (diagnostics.Mistake, diagnostics.TooManyMistakes):
            return False
        finally:
            del found[before:]

    def parse_line(self, line: Setting) -> SyntaxNode:
        """Return the phrase of a line, parsed by the rule of its setting."""
        return self.context.scope.phrase(declarations.SETTINGS[self.block.kind][line.head], line.phrase)

    def require(self, *needed: tuple[str, ...]) -> None:
        """Report E003 for missing settings that have no default; one setting of each tuple is enough."""
        for heads in needed:
            if not any(self.find_line(head) for head in heads) and not self.block.broken:
                missing = " and no ".join(f"`{head}`" for head in heads)
                lines = " or ".join(f"`{head} …`" for head in heads)
                message, place = f"`{self.block.title}` has no {missing}", self.block.place
                line = diagnostics.Attempt(
                    heads[0], self.block.kind, place, missing="add `{}`, with the value that you need"
                )
                self.context.report(diagnostics.mistake("E003", message, place, f"needs a line {lines}", attempt=line))

    def setting_span(self, head: str) -> Span:
        """Return the place of a setting, or of the block where the default counts."""
        line = self.find_line(head)
        return self.block.place if line is None else line.phrase

    def report(self, code: str, message: str, hint: str, *places: tuple[str, ...] | list[diagnostics.Label]) -> None:
        """Collect a finding; a place is labels, or the arguments of `labels`. The first one is the wrong place."""
        labels = [label for place in places for label in (self.labels(*place) if isinstance(place, tuple) else place)]
        self.context.found.append(diagnostics.Diagnostic(code, message, tuple(labels), (hint,) if hint else ()))

    def refuse(self, phrase: str, own: tuple[str, str], *others: tuple[bool, str, str, str]) -> None:
        """Report E211 for a phrase, whose place is `own`, with each setting next to which it does not work.

        Each of these is whether it is there, its keyword, why, and what to do.
        """
        for is_there, head, reason, hint in others:
            if is_there:
                self.report("E211", f"`{phrase}` does not work with this `{head}`", hint, own, (head, reason))

    def layout_labels(self, text: str, by_default: str = "") -> list[diagnostics.Label]:
        """Return labels for the layout of a data set, or for the files that exist already."""
        return self.labels("layout" if self.find_line("from files") is None else "from files", text, by_default)

    def labels(self, head: str, text: str, by_default: str = "") -> list[diagnostics.Label]:
        """Return labels for a setting: at its phrase, and at the parameter that gives the phrase.

        If the default counts, the label is at the block, with the text `by_default`.
        """
        line = self.find_line(head)
        if line is None:
            return [diagnostics.Label(self.block.place, by_default or text)]
        labels = [diagnostics.Label(line.phrase, text)]
        param = self.context.document.params.get(line.phrase.text[1:]) if line.phrase.text.startswith("$") else None
        if param is not None:
            labels.append(diagnostics.Label(param.value, f"the value of `{line.phrase.text}`"))
        return labels


def warn_about_draws(settings: Settings, head: str, drawn: Distribution) -> None:
    """Report W301 for a distribution with unclipped draws of 0 or less, or with most draws clipped."""
    if drawn.is_constant:
        return
    share = drawn.nonpositive_share()
    if share >= 1e-9 and (drawn.low is None or drawn.low < 0):
        message = f"{_percent(share)} of the draws of this distribution are 0 or less"
        label, hint = "nothing keeps them above 0", "add `clipped to LOW and HIGH`"
        settings.report("W301", message, hint, (head, label))
    below, above = drawn.shares_clamped()
    if below + above > MOST_CLAMPED:
        message = f"{_percent(below + above)} of the draws of this distribution are outside its limits"
        label = f"{below * 100:.0f} % become the lower limit, {above * 100:.0f} % the upper one"
        hint = "put the limits around the mean, or write the one value that is meant"
        settings.report("W301", message, hint, (head, label))


def _percent(share: float) -> str:
    """Return a share as a percentage with two digits, without an exponent."""
    return f"{Decimal(f'{share * 100:.2g}'):f} %"


def kind_name(kind: str) -> str:
    """Return the word that messages use for a kind of noun."""
    return "data set" if kind == "dataset" else kind


def _kind_with_article(kind: str) -> str:
    return f"an {kind}" if kind == "access" else f"a {kind_name(kind)}"


@dataclass(slots=True)
class CompiledNouns:
    """The compiled nouns that verbs refer to."""

    #: by name; None if the block has a mistake
    datasets: dict[str, Dataset | None]
    #: by name; None if the block has a mistake
    checkpoints: Mapping[str, Checkpoint | None]
    #: settings of each data set, model and checkpoint, by name
    settings: Mapping[str, Settings]
    #: names that a verb refers to
    used: set[str] = field(default_factory=set)
