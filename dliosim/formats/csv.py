"""Text files of comma-separated numbers, `.csv`: a sample a line, its newline included, and no line of headings.

A number has six digits after the point, `0.123456,`, made of the sample's bytes. A line of any length holds such
numbers and at its end what room there is of one.
"""

from __future__ import annotations

from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dliosim.errors import ExecutionError
from dliosim.formats.defaults import ContiguousFormat, refuse_unused
from dliosim.formats.header_scanner import file_to_read
from dliosim.formats.protocols import ENCODED, LARGEST_INDEX, Bytes, Column, FileIndex, Framed, Ints
from dliosim.lazy_numpy import np
from dliosim.model import Dataset

if TYPE_CHECKING:
    from numpy.typing import NDArray

LONGEST_LINE: Final = 1 << 30
"""Bytes of a line; longer ones are refused."""

_BLOCK: Final = 4 << 20
#: An offset and a length a line, of 8 bytes each.
_MOST_LINES: Final = LARGEST_INDEX // 16

_NEWLINE: Final = ord("\n")
_RETURN: Final = ord("\r")
_ZERO: Final = ord("0")
_PERIOD: Final = 9
_FIXED: Final = ((0, _ZERO), (1, ord(".")), (_PERIOD - 1, ord(",")))


def _letter_table() -> NDArray[np.uint8]:
    """(places of a number, bytes): the letter that stands for a byte there."""
    digits = _ZERO + np.arange(256, dtype=np.uint16) * 10 // 256
    table = np.tile(digits.astype(np.uint8), (_PERIOD, 1))
    for place, letter in _FIXED:
        table[place] = letter
    return table


_LETTERS: Final = _letter_table()


class Csv(ContiguousFormat):
    """See `contract.Framed` and `contract.Dressed`."""

    name: str = "csv"

    def variant(self, dataset: Dataset) -> Csv:
        """Itself."""
        return self

    def refuse(self, dataset: Dataset) -> tuple[str, str] | None:
        """Whatever is not a line of text, and sizes below 2: a digit and a newline."""
        refused = refuse_unused(dataset, self.name)
        if refused is not None or dataset.source:
            return refused
        size = dataset.size
        smallest = size.parameters[0] if size.kind in ("constant", "uniform") else 0.0
        if size.low is not None:
            smallest = max(smallest, size.low)
        if smallest < 2:
            return "size", "a line has at least 2 bytes, one and a newline: sizes that vary are clipped to that or more"
        return None

    def needs(self, dataset: Dataset) -> tuple[str, str] | None:
        """Nothing."""
        return None

    def index(self, path: Path, dataset: Dataset) -> FileIndex:
        """A sample for each line that is not empty, the last one with or without a newline. Reads the whole file.

        Every newline ends a line: quotes mean nothing here. Raises ExecutionError [R401] for lines above 1 GiB, and for
        more of them than an index holds.
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
        column = Column(1, 1, longest if same else ENCODED, longest, begins, lengths)
        return FileIndex(len(begins), size, (column,), size)

    def decode(self, dataset: Dataset, column: Column | None, data: memoryview) -> Bytes | None:
        """Parse a line with numpy.loadtxt, in C; gives back its random part, or None for files that are not ours.

        Of what numpy and Python have it takes the least time above some 60 numbers a line, and half of the others' for
        1,000. It is handed the line in a list, since it goes over files line by line in Python.
        """
        text = str(data, "latin-1")
        if not text.strip():
            raise ExecutionError("the line is empty", "R401")
        try:
            np.loadtxt([text], delimiter=",", comments=None)
        except ValueError as error:
            reason = str(error).partition(";")[0][:200]
            raise ExecutionError(f"the line does not hold numbers, separated by commas: {reason}", "R401") from error
        if dataset.source:
            return None
        if data[-1] != _NEWLINE:
            raise ExecutionError("the line does not end in a newline", "R401")
        length = self.content(dataset, np.array([len(data)]))[1]
        return np.frombuffer(data, np.uint8)[: int(length[0])]

    def header(self, dataset: Dataset) -> int:
        """None."""
        return 0

    def write_header(self, dataset: Dataset, count: int, end: int, checksum: int) -> bytes:
        """Nothing."""
        return b""

    def content(self, dataset: Dataset, sizes: Ints) -> tuple[Ints, Ints]:
        """All but the newline, and but a comma before it: that would begin a number that is not there."""
        letters = sizes - 1
        return np.zeros_like(sizes), letters - (letters % _PERIOD == 0)

    def frame(self, dataset: Dataset, samples: Ints, sizes: Ints, starts: Ints, out: memoryview) -> None:
        """Put newlines, and one digit more where a comma would stand before them."""
        text = np.frombuffer(out, np.uint8)
        ends = starts + sizes
        text[ends - 1] = _NEWLINE
        text[ends[(sizes - 1) % _PERIOD == 0] - 2] = _ZERO

    def dress(self, dataset: Dataset, data: Bytes, place: Ints | int) -> Bytes:
        """Digits, points and commas."""
        if isinstance(place, np.ndarray):
            letters: Bytes = _LETTERS[place % _PERIOD, data]
            return letters
        # As in the table, a digit for each 256th part of a byte's range; in arithmetic, a quarter of a look-up's time.
        wide = np.multiply(data, 10, dtype=np.uint16)
        wide >>= 8
        text: Bytes = wide.astype(np.uint8)
        text += _ZERO
        for at, letter in _FIXED:
            text[(at - place) % _PERIOD :: _PERIOD] = letter
        return text


def _find_newlines(stream: FileIO, path: Path) -> tuple[Ints, Ints, int]:
    """Where newlines are, whether (1 or 0) a carriage return stands before each, and the bytes of the file."""
    found, after = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    block = np.zeros(_BLOCK + 1, np.uint8)  # and before it the last byte of the block before
    lines, size, begin = 0, 0, 0
    while count := stream.readinto(block[1:].data):
        places = np.flatnonzero(block[1 : count + 1] == _NEWLINE)
        lines += len(places)
        if lines > _MOST_LINES:
            raise ExecutionError(f"{path} has more than {_MOST_LINES} lines", "R401")
        longest = int(np.diff(places + size, prepend=begin - 1, append=size + count - 1).max())
        if longest > LONGEST_LINE:
            raise ExecutionError(f"{path} has a line longer than {LONGEST_LINE} bytes, at {begin} or after it", "R401")
        if len(places):
            found.append(places + size)
            after.append((block[places] == _RETURN).astype(np.int64))
            begin = size + int(places[-1]) + 1
        block[0] = block[count]
        size += count
    return np.concatenate(found), np.concatenate(after), size


CSV: Final[Framed] = Csv()
