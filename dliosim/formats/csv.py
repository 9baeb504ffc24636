"""Text files of comma-separated numbers, `.csv`: one line a sample, its newline included, without a line of headings.

A number has six digits after the point, `0.123456,`, made of the sample's bytes. A line holds as many such numbers as
fit; the last one may be cut.
"""

from __future__ import annotations

from io import FileIO
from pathlib import Path
from typing import Final

from dliosim.formats.header_scanner import data_error, file_to_read
from dliosim.formats.protocols import ENCODED, LARGEST_INDEX, Bytes, Column, Dressed, FileIndex, Ints, index_ranges
from dliosim.formats.unsupported import smallest_size
from dliosim.lazy_numpy import np

#: The longest line, bytes; longer ones are refused
LONGEST_LINE: Final = 1 << 30

_BLOCK: Final = 4 << 20
#: The index keeps an offset and a length of 8 bytes each for a line.
_MOST_LINES: Final = LARGEST_INDEX // 16

_NEWLINE: Final = ord("\n")
_RETURN: Final = ord("\r")
_ZERO: Final = ord("0")
_PERIOD: Final = 9
_FIXED: Final = ((0, _ZERO), (1, ord(".")), (_PERIOD - 1, ord(",")))


#: Letters that stand for a byte at a place; (places of a number, bytes).
_LETTERS: Final = np.tile((_ZERO + np.arange(256, dtype=np.uint16) * 10 // 256).astype(np.uint8), (_PERIOD, 1))
for _place, _letter in _FIXED:
    _LETTERS[_place] = _letter


class Csv(Dressed):
    """The format `csv`; see `protocols.Dressed`."""

    name = "csv"

    def refuse(self) -> tuple[str, str] | None:
        """Refuse settings that a line of text does not use, and sizes below 2: a digit and a newline."""
        refused = super().refuse()
        if refused is not None or self.dataset.source:
            return refused
        if smallest_size(self.dataset.size) < 2:
            return "size", "a line has at least 2 bytes, one and a newline: sizes that vary are clipped to that or more"
        return None

    def index(self, path: Path) -> FileIndex:
        """Return one sample for each line that is not empty; the last newline may be missing. Reads the whole file.

        Every newline ends a line: quotes have no meaning. Raises ExecutionError [R401] for a line above 1 GiB, and for
        more lines than an index holds.
        """
        with file_to_read(path) as stream:
            newlines, returns, size = _find_newlines(stream, path)
        ends = newlines + 1
        lengths = np.diff(ends, prepend=0)
        filled = lengths > 1 + returns
        begins, lengths = (ends - lengths)[filled], lengths[filled]
        last = int(ends[-1]) if len(ends) else 0
        if last < size:  # a last line without its newline
            begins, lengths = np.append(begins, last), np.append(lengths, size - last)
        longest = int(lengths.max(initial=0))
        same = len(lengths) > 0 and int(lengths.min()) == longest
        return index_ranges(size, begins, lengths, size, longest if same else ENCODED)

    def decode(self, column: Column | None, data: memoryview) -> Bytes | None:
        """Parse a line with numpy.loadtxt, in C; return its random part, or None for files that dliosim did not write.

        Above some 60 numbers a line it is the fastest parser of numpy and Python: for 1,000 numbers it takes half the
        time of the others. It gets the line in a list, as it reads files line by line in Python.
        """
        text = str(data, "latin-1")
        if not text.strip():
            raise data_error("the line is empty")
        try:
            np.loadtxt([text], delimiter=",", comments=None)
        except ValueError as error:
            reason = str(error).partition(";")[0][:200]
            raise data_error(f"the line does not hold numbers, separated by commas: {reason}") from error
        if self.dataset.source:
            return None
        if data[-1] != _NEWLINE:
            raise data_error("the line does not end in a newline")
        length = self.content(np.array([len(data)]))[1]
        return np.frombuffer(data, np.uint8)[: int(length[0])]

    def encoder_bytes(self, made: int, sample: int) -> int:
        """Return the bytes of `dress`, which gets a MiB at a time."""
        return 4 << 20

    def content(self, sizes: Ints) -> tuple[Ints, Ints]:
        """Return the range without the newline, and without a comma before it: no number follows that comma."""
        letters = sizes - 1
        return np.zeros_like(sizes), letters - (letters % _PERIOD == 0)

    def frame(self, samples: Ints, sizes: Ints, starts: Ints, out: memoryview) -> None:
        """Write the newlines, and a digit instead of a comma before a newline."""
        text = np.frombuffer(out, np.uint8)
        ends = starts + sizes
        text[ends - 1] = _NEWLINE
        text[ends[(sizes - 1) % _PERIOD == 0] - 2] = _ZERO

    def dress(self, data: Bytes, place: Ints | int) -> Bytes:
        """Return digits, points and commas for random bytes."""
        if isinstance(place, np.ndarray):
            return _LETTERS[place % _PERIOD, data]
        # The same digits as in the table, byte * 10 // 256; arithmetic takes a quarter of the time of a look-up.
        wide = np.multiply(data, 10, dtype=np.uint16)
        wide >>= 8
        text: Bytes = wide.astype(np.uint8)
        text += _ZERO
        for at, letter in _FIXED:
            text[(at - place) % _PERIOD :: _PERIOD] = letter
        return text


def _find_newlines(stream: FileIO, path: Path) -> tuple[Ints, Ints, int]:
    """Return the newlines' offsets, 1 or 0 for a carriage return before each, and the bytes of the file."""
    found, after = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    block = np.zeros(_BLOCK + 1, np.uint8)  # its first byte is the last byte of the block before
    lines, size, begin = 0, 0, 0
    while count := stream.readinto(block[1:].data):
        places = np.flatnonzero(block[1 : count + 1] == _NEWLINE)
        lines += len(places)
        if lines > _MOST_LINES:
            raise data_error(f"{path} has more than {_MOST_LINES} lines")
        longest = int(np.diff(places + size, prepend=begin - 1, append=size + count - 1).max())
        if longest > LONGEST_LINE:
            raise data_error(f"{path} has a line longer than {LONGEST_LINE} bytes, at {begin} or after it")
        if len(places):
            found.append(places + size)
            after.append((block[places] == _RETURN).astype(np.int64))
            begin = size + int(places[-1]) + 1
        block[0] = block[count]
        size += count
    return np.concatenate(found), np.concatenate(after), size
