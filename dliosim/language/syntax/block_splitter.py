"""Split text into nested statements: the words of one line, and the lines between its braces.

A new line ends a statement, `{` opens its block and `}` closes it. These three do not count inside quoted text and
comments. The words of a statement are not parsed here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from dliosim.language.diagnostics import Label, mistake
from dliosim.language.source import MAX_LINE_LENGTH, SourceText, Span

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
            hint = mended[0] if mended else _HEAD_HINT
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
                raise mistake("E003", "`}` closes nothing", here, "no block is open here")
            levels.pop()
            line.closed = True
        elif text == '"':
            newline = source.text.find("\n", here.start)
            rest = source.span(here.start, len(source.text) if newline < 0 else newline)
            raise mistake("E003", "quoted text never closed", rest, 'expected a closing `"` on this line')
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
            end = source.span(len(source.text.rstrip()), len(source.text.rstrip()))
            raise mistake(
                "E004",
                "a block is never closed",
                brace,
                "opened here",
                more=[Label(end, "expected `}` before the end of the file")],
                hint="add `}` on a line of its own",
            )
    return levels[0].statements


_HEAD_HINT: Final = "a block begins as `dataset NAME {` or `train {`, on one line"
