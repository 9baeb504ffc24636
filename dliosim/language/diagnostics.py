"""Mistakes of a user, as values: collected, then shown together, each with the user's own line and a caret."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from dliosim.errors import DliosimError, UsageError
from dliosim.language.source import COMMAND_LINE, SourceText, Span
from dliosim.readable import printable

MAX_SHOWN: Final = 100  # diagnostics of one pattern
_MAX_WIDTH: Final = 160  # columns of a shown line; longer ones are cut around the caret
_RED, _YELLOW, _BLUE, _BOLD, _PLAIN = "\x1b[1;31m", "\x1b[1;33m", "\x1b[1;34m", "\x1b[1m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Label:
    """A place in a source and a text about it."""

    #: the place
    span: Span
    #: shown after the caret; may be empty
    text: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A line that a user tried to write, from which `suggest/` makes what to type instead."""

    #: setting or statement; empty if the line begins with no word of its place, and `-D` for a name of an override
    head: str
    #: kind of the block around the line; empty outside of blocks
    kind: str
    #: what stands behind the head; the line, if it has no head
    phrase: Span
    #: returns whether another phrase could be read in place of this one; None: the grammar of the statement says so
    accepts: Callable[[str], bool] | None = None
    #: phrases as they may be; empty for those that the setting declares
    forms: tuple[str, ...] = ()
    #: help for a line that is missing, with `{}` for that line
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding; codes that begin with E or R are errors, codes that begin with W are warnings."""

    #: E001 to E219, W301 to W307, R401 to R405
    code: str
    #: one line, without the code
    message: str
    #: places; the first one is wrong, the others explain why
    labels: tuple[Label, ...] = ()
    #: help lines, below the labels
    help: tuple[str, ...] = ()
    #: shown if there is no place because the file could not be read
    file: str = ""
    #: what the user tried to write, until `suggest/` has made the help from it; None if nothing can be suggested
    attempt: Attempt | None = field(default=None, compare=False)

    @property
    def is_error(self) -> bool:
        """Return True if the finding stops the run."""
        return not self.code.startswith("W")


class PatternError(DliosimError, ValueError):
    """A pattern with mistakes; `diagnostics` has all findings, warnings included.

    `exit_code` is 2. It is 1 if the pattern is right and only files that it reads are damaged (R401).
    """

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        first = next((found for found in self.diagnostics if found.is_error), self.diagnostics[0])
        super().__init__(first.message, first.code)
        self.exit_code = 1 if all(found.code == "R401" for found in self.diagnostics if found.is_error) else 2

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.diagnostics,))

    def __str__(self) -> str:
        return render(self.diagnostics, colour=False)


class Mistake(Exception):
    """One diagnostic, raised inside the compiler and caught at the next statement."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic

    def note_attempt(self, attempt: Attempt) -> Mistake:
        """Return the same mistake with what the user tried to write; itself if that is known already."""
        return self if self.diagnostic.attempt else type(self)(replace(self.diagnostic, attempt=attempt))


class ReportedMistake(Mistake):
    """A mistake that follows from one that is reported already; it adds no diagnostic of its own."""


class TooManyMistakes(Exception):
    """More mistakes than are shown, so that looking for others is useless."""


def collect(found: list[Diagnostic], finding: Diagnostic) -> None:
    """Add a finding; raise TooManyMistakes once there are more than MAX_SHOWN."""
    found.append(finding)
    if len(found) > MAX_SHOWN:
        raise TooManyMistakes


def mistake(
    code: str,
    message: str,
    span: Span,
    label: str = "",
    *,
    more: Sequence[Label] = (),
    hint: str = "",
    attempt: Attempt | None = None,
) -> Mistake:
    """Return a Mistake at `span`, with further places, a help line, and what the user tried to write."""
    return Mistake(Diagnostic(code, message, (Label(span, label), *more), (hint,) if hint else (), attempt=attempt))


def suggest_word(word: str, known: Iterable[str]) -> str:
    """Return `did you mean `x`?`, or an empty text if no known word is similar."""
    near = difflib.get_close_matches(word[:64], list(known), n=1, cutoff=0.7 if len(word) > 3 else 0.6)
    return f"did you mean `{near[0]}`?" if near else ""


def join_hints(*texts: str) -> str:
    """Return the texts that are not empty, joined to one help line."""
    return " ".join(text for text in texts if text)


def render(diagnostics: Iterable[Diagnostic], colour: bool) -> str:
    """Return the first MAX_SHOWN diagnostics as a terminal shows them; an empty line separates two."""
    every = list(diagnostics)
    wrong = next((one for one in every if one.labels and one.labels[0].span.source.writing), None)
    if wrong is not None:  # lines that no file has yet
        line = wrong.labels[0].span.source.writing
        advice = f"`{line}` writes this pattern, with a comment at each line that names its key; change it there"
        every[every.index(wrong)] = replace(wrong, help=(*wrong.help, advice))
    shown = [_render(found, colour) for found in every[:MAX_SHOWN]]
    return "\n\n".join([*shown, "\u2026 and more"] if len(every) > MAX_SHOWN else shown)


def _render(found: Diagnostic, colour: bool) -> str:
    def paint(style: str, text: str) -> str:
        return f"{style}{text}{_PLAIN}" if colour and text else text

    strong = _RED if found.is_error else _YELLOW
    word = "error" if found.is_error else "warning"
    lines = [paint(strong, f"{word}[{found.code}]") + paint(_BOLD, f": {_printable(found.message)}")]
    numbers = [
        label.span.source.position(label.span.start)[0] for label in found.labels if _has_lines(label.span.source)
    ]
    gutter = len(str(max(numbers, default=1)))
    bar = paint(_BLUE, f"{' ' * gutter} |")
    if not found.labels and found.file:
        lines.append(f"{' ' * gutter}{paint(_BLUE, '-->')} {_printable(found.file)}")
    for number, labels in enumerate(_group_by_source(found.labels)):
        source = labels[0].span.source
        arrow = "-->" if number == 0 else ":::"
        lines.append(f"{' ' * gutter}{paint(_BLUE, arrow)} {_location(labels[0].span)}")
        lines.append(bar)
        shown = 0
        for label in sorted(labels, key=lambda label: label.span.start):
            line, column = source.position(label.span.start)
            text, column = _cut_line(source.line(line), column)
            if line != shown:
                head = f"{line:>{gutter}} |" if _has_lines(source) else f"{' ' * gutter} |"
                lines.append(f"{paint(_BLUE, head)} {text}".rstrip())
                shown = line
            primary = label is found.labels[0]
            width = max(1, min(label.span.end - label.span.start, len(text) - column + 1))
            mark = ("^" if primary else "-") * width + (f" {_printable(label.text)}" if label.text else "")
            lines.append(f"{bar} {' ' * (column - 1)}{paint(strong if primary else _BLUE, mark)}")
        lines.append(bar)
    for text in found.help:
        lines.append(f"{' ' * gutter} {paint(_BLUE, '=')} help: {_printable(text)}")
    return "\n".join(lines)


def _has_lines(source: SourceText) -> bool:
    return source.name != COMMAND_LINE


def _group_by_source(labels: Sequence[Label]) -> Iterable[list[Label]]:
    groups: dict[int, list[Label]] = {}
    for label in labels:
        groups.setdefault(id(label.span.source), []).append(label)
    return groups.values()


def _location(span: Span) -> str:
    if not _has_lines(span.source):
        return COMMAND_LINE
    line, column = span.source.position(span.start)
    return f"{_printable(span.source.name)}:{line}:{column}"


def _printable(text: str) -> str:
    return printable(text.replace("\t", " "))


def _cut_line(text: str, column: int) -> tuple[str, int]:
    if len(text) > _MAX_WIDTH:
        start = max(0, column - _MAX_WIDTH // 2)
        cut = "\u2026" if start else ""
        text, column = cut + text[start : start + _MAX_WIDTH], column - start + len(cut)
    return _printable(text), column


# ---- what codes mean ----------------------------------------------------------------------------------------------


def explain_code(code: str) -> str:
    """Return the entry of a code: meaning, example, remedy; raise UsageError for an unknown code."""
    entries = catalogue()
    entry = entries.get(code.upper())
    if entry is None:
        raise UsageError(f"unknown code `{code}`; codes are {', '.join(entries)}")
    return entry


def is_code(text: str) -> bool:
    """Return True if the catalogue has an entry for the text, in upper or lower case."""
    return text.upper() in catalogue()


@lru_cache(maxsize=1)
def catalogue() -> dict[str, str]:
    """Return the entry of every code, by code."""
    text = Path(__file__).with_name("errors.md").read_text(encoding="utf-8")
    entries = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    return {entry.partition(":")[0]: entry.strip() for entry in entries}
