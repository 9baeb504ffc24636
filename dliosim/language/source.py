"""Text of a pattern and places in it; files are read with limits, so that hostile input costs little."""

from __future__ import annotations

import os
import shlex
import stat
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dliosim import PATTERNS
from dliosim.dlio import ENDINGS

MAX_BYTES: Final = 1 << 18  # bytes of a pattern with all its includes; the densest ones take seconds to parse
MAX_LINE_LENGTH: Final = 4096
COMMAND_LINE: Final = "<command line>"
_IMPORTED: Final = " as a pattern"  # ends the name of a workload file of DLIO, whose lines are those of its import


class UnreadableFile(Exception):
    """A file that cannot be a pattern; the text says why, `place` says where in the file (`:line:column`)."""

    def __init__(self, text: str, place: str = "") -> None:
        super().__init__(text)
        self.place = place


@dataclass(frozen=True, slots=True)
class SourceText:
    """The text of one file or override, and its name."""

    #: name to show: a path as the user wrote it, or `<command line>`
    name: str
    #: the whole text
    text: str
    #: line to type that writes the text to a file; empty if it is in one, or on the command line
    writing: str = ""
    _starts: list[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        starts = [0]
        starts.extend(position + 1 for position, letter in enumerate(self.text) if letter == "\n")
        object.__setattr__(self, "_starts", starts)

    @property
    def file(self) -> str:
        """Return the name of the file, as a command takes it."""
        return self.name.removesuffix(_IMPORTED)

    def position(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset, both counted from 1."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def line(self, number: int) -> str:
        """Return the text of a line, counted from 1, without its line end."""
        end = self._starts[number] - 1 if number < len(self._starts) else len(self.text)
        return self.text[self._starts[number - 1] : end]

    def span(self, start: int, end: int) -> Span:
        """Return the place [start, end); both are offsets in characters."""
        return Span(self, start, end)


@dataclass(frozen=True, slots=True)
class Span:
    """A place in a source; it never crosses the end of a line."""

    #: the source
    source: SourceText
    #: offset of the first character
    start: int
    #: offset after the last character
    end: int

    @property
    def text(self) -> str:
        """Return the text at the place."""
        return self.source.text[self.start : self.end]

    @property
    def location(self) -> str:
        """Return `file:line`, or `<command line>`."""
        if self.source.name == COMMAND_LINE:
            return COMMAND_LINE
        return f"{self.source.name}:{self.source.position(self.start)[0]}"

    def trim(self) -> Span:
        """Return the place without white space around it."""
        text = self.text
        start = self.start + len(text) - len(text.lstrip())
        return Span(self.source, start, max(start, self.start + len(text.rstrip())))

    def end_span(self) -> Span:
        """Return the empty place after this one."""
        return Span(self.source, self.end, self.end)


def find_source(folder: Path, name: str) -> Path:
    """Return the file that a pattern in `folder` names: one there, else one that comes with dliosim, by its name."""
    own, shipped = folder / name, PATTERNS / f"{name.removesuffix('.dlio')}.dlio"
    return shipped if not os.path.lexists(own) and shipped in PATTERNS.rglob("*.dlio") else own


def read_source(path: Path, name: str, room: int = MAX_BYTES, keys: Sequence[str] = ()) -> SourceText:
    r"""Return the text of a file, with line ends as `\n`; of a workload file of DLIO the pattern that it becomes.

    `keys` are overrides of such a file, as `++train.epochs=7`.
    UnreadableFile if the file is missing, not a regular file, larger than `room` bytes, or not UTF-8. UsageError for
    a workload file that becomes no pattern.
    """
    try:
        # O_NONBLOCK: opening a named pipe would otherwise wait for a writer forever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UnreadableFile("it is not a regular file")
            data = file.read(room + 1)
    except IsADirectoryError:
        raise UnreadableFile("it is a directory") from None
    except (OSError, ValueError) as error:
        raise UnreadableFile(getattr(error, "strerror", None) or "its name cannot be opened") from None
    if len(data) > room:
        others = "" if room == MAX_BYTES else " together with the files before it"
        raise UnreadableFile(f"it is larger than 256 KiB ({MAX_BYTES} bytes){others}, which no pattern is")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, start = data.count(b"\n", 0, error.start) + 1, data.rfind(b"\n", 0, error.start) + 1
        byte, column = error.start - start + 1, len(data[start : error.start].decode(errors="replace")) + 1
        text = f"it is not UTF-8 text: 0x{data[error.start]:02x} in line {line}, byte {byte} of it"
        raise UnreadableFile(text, f":{line}:{column}") from None
    if path.suffix in ENDINGS:
        from dliosim.dlio.convert import import_pattern

        writing = shlex.join(["dliosim", "import", name, *keys, "-o", f"{path.stem}.dlio"])
        return SourceText(f"{name}{_IMPORTED}", import_pattern(path, keys).text, writing)
    return SourceText(name, text.replace("\r\n", "\n").replace("\r", "\n"))
