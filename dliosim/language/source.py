"""Text of a pattern and places in it; files are read with limits, so that hostile input stays cheap."""

from __future__ import annotations

import os
import stat
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 1 << 18  # of a pattern and all that it includes; seconds of processor, however dense they are
MAX_LINE_LENGTH: Final = 4096
COMMAND_LINE: Final = "<command line>"


class UnreadableFile(Exception):
    """A file that cannot be a pattern; the text says why, and `place` where in it that is (`:line:column`)."""

    def __init__(self, text: str, place: str = "") -> None:
        super().__init__(text)
        self.place = place


@dataclass(frozen=True, slots=True)
class SourceText:
    """A text and the name to show for it: a path as the user wrote it, or `<command line>`."""

    name: str
    text: str
    _starts: list[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        starts = [0]
        starts.extend(position + 1 for position, letter in enumerate(self.text) if letter == "\n")
        object.__setattr__(self, "_starts", starts)

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset, both from 1."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def line(self, number: int) -> str:
        """The text of a line, from 1, without its end."""
        end = self._starts[number] - 1 if number < len(self._starts) else len(self.text)
        return self.text[self._starts[number - 1] : end]

    def span(self, start: int, end: int) -> Span:
        """The place [start, end)."""
        return Span(self, start, end)


@dataclass(frozen=True, slots=True)
class Span:
    """A place in a source; never crosses a line's end."""

    source: SourceText
    start: int
    end: int

    @property
    def text(self) -> str:
        """The text at the place."""
        return self.source.text[self.start : self.end]

    @property
    def location(self) -> str:
        """`file:line`, or `<command line>`."""
        if self.source.name == COMMAND_LINE:
            return COMMAND_LINE
        return f"{self.source.name}:{self.source.position(self.start)[0]}"

    def trim(self) -> Span:
        """The place without white space around it."""
        text = self.text
        start = self.start + len(text) - len(text.lstrip())
        return Span(self.source, start, max(start, self.start + len(text.rstrip())))

    def end_span(self) -> Span:
        """The empty place behind this one."""
        return Span(self.source, self.end, self.end)


def read_source(path: Path, name: str, room: int = MAX_BYTES) -> SourceText:
    """The text of a file; Unreadable where it is missing, no regular file, over `room` bytes, or not UTF-8."""
    try:
        # Not blocking, or a named pipe would wait for a writer for ever.
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
    return SourceText(name, text.replace("\r\n", "\n").replace("\r", "\n"))
