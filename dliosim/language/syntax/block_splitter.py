"""Split text into nested statements: the words of one line, and the lines between its braces.

A new line ends a statement, `{` opens its block and `}` closes it. These three do not count inside quoted text and
comments. The words of a statement are not parsed here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from dliosim.language.diagnostics import Label, Mistake, mistake
from dliosim.language.source import MAX_LINE_LENGTH, SourceText, Span
from dliosim.language.syntax.declarations import MUST_OPEN, NOUNS, SETTINGS, STATEMENTS

MAX_BLOCK_DEPTH: Final = 16
_PIECE = re.compile(r'"[^"\n]*"|"|#[^\n]*|[{}\n]|[^"#{}\n]+')


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement, without comment and brace."""

    #: place of its words
    span: Span
    #: statements of its block; None without a block
    body: list[Statement] | None = None
    #: place of its `{`
    opened: Span | None = None


@dataclass(slots=True)
class _OpenBlock:
    statements: list[Statement]
    brace: Span | None = None


@dataclass(slots=True)
class _LineState:
    start: int = -1
    end: int = -1
    closed: bool = False


def split_statements(source: SourceText) -> list[Statement]:
    """Return the statements of a source; raise Mistake (E003, E004) at the first broken place."""
    levels = [_OpenBlock([])]
    line = _LineState()

    def finish(brace: Span | None) -> None:
        nonlocal line
        if line.start >= 0:
            span = source.span(line.start, line.end).trim()
            body: list[Statement] | None = [] if brace else None
            levels[-1].statements.append(Statement(span, body, brace))
            if body is not None:
                levels.append(_OpenBlock(body, brace))
        elif brace:
            before = levels[-1].statements[-1:]
            mended = [f"write `{one.span.text} {{`, on one line" for one in before if one.body is None]
            line_text = source.line(source.position(brace.start)[0])
            hint = mended[0] if mended else mend_braces(line_text) or _HEAD_HINT
            raise mistake("E003", "a block without a head", brace, "what does this belong to?", hint=hint)
        line = _LineState()

    for piece in _PIECE.finditer(source.text):
        text, here = piece[0], source.span(piece.start(), piece.end())
        if text == "\n":
            finish(None)
        elif text[0] == "#" or (line.start < 0 and text.isspace()):
            continue
        elif line.closed:
            raise mistake("E003", "more on the line after `}`", here.trim(), "expected a new line")
        elif text == "{":
            finish(here)
            if len(levels) > MAX_BLOCK_DEPTH:
                raise mistake("E003", f"blocks nested more than {MAX_BLOCK_DEPTH} deep", here)
        elif text == "}":
            finish(None)
            if len(levels) == 1:
                for one in levels[0].statements:
                    word = re.match(r"\w+", one.span.text)
                    if one.body is None and word and word[0] in MUST_OPEN:
                        raise block_needed(one.span, word[0])
                hint = "leave it out, or open its block above"
                raise mistake("E003", "`}` closes nothing", here, "no block is open here", hint=hint)
            levels.pop()
            line.closed = True
        elif text == '"':
            newline = source.text.find("\n", here.start)
            rest = source.span(here.start, len(source.text) if newline < 0 else newline)
            written = source.text[source.text.rfind("\n", 0, here.start) + 1 : rest.end].split()
            hint = f'write `{" ".join(written)}"`'
            raise mistake("E003", "quoted text never closed", rest, 'expected a closing `"` on this line', hint=hint)
        else:
            line.start = here.start if line.start < 0 else line.start
            line.end = here.end
            if line.end - line.start > MAX_LINE_LENGTH:
                first = source.span(line.start, line.start + 1)
                raise mistake("E003", f"a statement of more than {MAX_LINE_LENGTH} characters", first)
    finish(None)
    if len(levels) > 1:
        brace = levels[-1].brace
        if brace is not None:
            inside = _find_outer(levels[-2].statements[-1])
            end = source.span(len(source.text.rstrip()), len(source.text.rstrip()))
            expected = Label(inside, "expected `}` above this line") if inside else None
            raise mistake(
                "E004",
                "a block is never closed",
                brace,
                "opened here",
                more=[expected or Label(end, "expected `}` before the end of the file")],
                hint=f"add `}}` on a line of its own above `{inside.text}`" if inside else _CLOSING_HINT,
            )
    return levels[0].statements


_CLOSING_HINT: Final = "add `}` on a line of its own"


def _find_outer(block: Statement) -> Span | None:
    """Return the place of the first statement in a block that stands outside of blocks; None if there is none."""
    head = re.match(r"\w+", block.span.text)
    if head is None or head[0] == "repeat":
        return None
    known = SETTINGS.get(head[0], {})
    for one in block.body or ():
        word = re.match(r"(drop caches|\w+)\b", one.span.text)
        if word is None or word[0] not in STATEMENTS or (head[0], word[0]) == ("checkpoint", "model"):
            continue
        # `checkpoint` is a setting of a loop, and a statement if it opens a block.
        if word[0] not in known or (one.body is not None and word[0] in NOUNS):
            return one.span
    return None


def block_needed(head: Span, name: str) -> Mistake:
    """Return the E003 for the head of a block that no brace opens."""
    written = " ".join(re.sub(r"\W+(True|yes)?$", "", head.text).split())
    hint = f"write `{written} {{`, its settings below, and `}}` on a line of its own"
    return mistake("E003", f"`{name}` needs a block", head.end_span(), "expected `{`", hint=hint)


def mend_braces(line: str) -> str:
    """Return the line to write in place of a parameter in braces, as shells have it; empty for other lines."""
    mended = re.sub(r"\$?\{\{?\s*(\w+)\s*\}\}?", r"$\1", line)
    return f"write `{' '.join(mended.split())}`" if mended != line else ""


_HEAD_HINT: Final = "a block begins as `dataset NAME {` or `train {`, on one line"
