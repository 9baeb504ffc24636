"""Tar archives as shards of WebDataset (github.com/webdataset/webdataset, "The WebDataset Format").

A sample is two members, as in the data sets that people publish: `000000012.bin` with its contents, and
`000000012.cls` with its label, the sample's number modulo 1000, in decimal digits. Each member is a header of 512
bytes, its data, and zeros up to a multiple of 512; a sample is read whole, with its headers and padding, as WebDataset
does. An archive ends in two blocks of zeros and fills up records of 10240 bytes.
"""

from __future__ import annotations

import io
import os
import tarfile
from array import array
from pathlib import Path
from typing import Final

import numpy as np

from dliosim.errors import ExecutionError
from dliosim.formats.defaults import Simple
from dliosim.formats.header_scanner import Scanner, file_to_read
from dliosim.formats.protocols import ENCODED, Bytes, Column, FileIndex, Ints
from dliosim.formats.refusals import without_use
from dliosim.formats.tarheaders import UNIT, members, padded, write_headers
from dliosim.model import Dataset

CLASSES: Final = 1000
"""Labels are below this, as those of ImageNet."""

_RECORD: Final = 20 * UNIT
_LABEL: Final = 2 * UNIT


class Tar(Simple):
    """See `contract.Framed`."""

    name: Final = "tar"

    def variant(self, dataset: Dataset) -> Tar:
        """There is one kind of these files."""
        return self

    def refuse(self, dataset: Dataset) -> tuple[str, str] | None:
        """What members have no use for."""
        return without_use(dataset, self.name, ("shape",))

    def needs(self, dataset: Dataset) -> tuple[str, str] | None:
        """Nothing."""
        return None

    def index(self, path: Path, dataset: Dataset) -> FileIndex:
        """By the members' headers. Members that follow each other with one name up to its first dot are a sample.

        That is WebDataset's rule. As there, what is no regular file, what has no dot in the last part of its name and
        what is called `__so__`, or lies in such a folder, belongs to no sample. A sample lies from the first header of
        its first member, a pax header or a long name included, to the end of its last one's padding. No name is
        refused: nothing is extracted. Raises ExecutionError [R401] where an archive does not end as archives do.
        """
        begins, ends = array("q"), array("q")
        with file_to_read(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            scanner = Scanner(stream.fileno())
            current, suffixes = "", set[str]()
            for member in members(scanner.take, size, str(path), whole=True):
                key, suffix = _key(member.name)
                if not member.regular or not key:
                    continue
                if key != current:
                    begins.append(member.begin)
                    ends.append(member.end)
                    current, suffixes = key, set()
                elif suffix in suffixes:
                    text = f"{path}: sample {len(begins) - 1} has two members `{suffix}`, the second at {member.begin}"
                    raise ExecutionError(text, "R401")
                suffixes.add(suffix)
                ends[-1] = member.end
        if not size:
            raise ExecutionError(f"{path} is empty, and no tar archive", "R401")
        offset = np.array(begins, np.int64)
        length = np.array(ends, np.int64) - offset
        largest = int(length.max(initial=0))
        column = Column(1, 1, ENCODED, largest, offset, length)
        return FileIndex(len(offset), size, (column,), scanner.touched)

    def decode(self, dataset: Dataset, column: Column | None, data: memoryview) -> Bytes | None:
        """The contents of a sample's first member, as tarfile finds it in memory, after a check of all its headers."""
        # First our own walk: tarfile stops without a word at a damaged header, and may hang on a negative size.
        found = list(members(lambda offset, count: data[offset : offset + count], len(data), "a sample of tar", False))
        last = found[-1].end if found else 0
        if last != len(data) or last % UNIT:
            raise ExecutionError(f"a sample of tar has members up to byte {last}, and {len(data)} bytes", "R401")
        try:
            with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
                first = next((member for member in archive if member.isreg() and _key(member.name)[0]), None)
        except (tarfile.TarError, ValueError, EOFError, OverflowError) as error:
            raise ExecutionError(f"a sample of tar cannot be read: {error}", "R401") from error
        if first is None:
            raise ExecutionError("a sample of tar has no member with contents", "R401")
        return np.frombuffer(data, np.uint8)[first.offset_data : first.offset_data + first.size]

    def header(self, dataset: Dataset) -> int:
        """None."""
        return 0

    def align(self, dataset: Dataset) -> int:
        """Blocks of tar."""
        return UNIT

    def stride(self, dataset: Dataset, sizes: Ints) -> Ints:
        """Both members, with their padding."""
        return UNIT + padded(sizes) + _LABEL

    def length(self, dataset: Dataset, sizes: Ints) -> Ints:
        """All of it, as WebDataset reads it."""
        return self.stride(dataset, sizes)

    def content(self, dataset: Dataset, sizes: Ints) -> tuple[Ints, Ints]:
        """The data of the first member."""
        return np.full_like(sizes, UNIT), sizes

    def trailer(self, dataset: Dataset, counts: Ints, ends: Ints) -> Ints:
        """Two blocks of zeros, and more of them up to a whole record."""
        return -(-(ends + 2 * UNIT) // _RECORD) * _RECORD - ends

    def frame(self, dataset: Dataset, samples: Ints, sizes: Ints, starts: Ints, out: memoryview) -> None:
        """Put headers before the contents, padding and the label's member after them."""
        numbers = samples.tolist()
        heads = write_headers([b"%09d.bin" % number for number in numbers], sizes)
        labels = np.array([b"%d" % (number % CLASSES) for number in numbers], dtype="S3")
        tails = np.zeros((len(numbers), _LABEL), np.uint8)
        tails[:, :UNIT] = write_headers([b"%09d.cls" % number for number in numbers], np.char.str_len(labels))
        tails[:, UNIT : UNIT + 3] = labels[:, None].view(np.uint8)
        before, after, zeros = heads.reshape(-1).data, tails.reshape(-1).data, bytes(UNIT)
        begins, fills = (starts + UNIT + sizes).tolist(), (padded(sizes) - sizes).tolist()
        for row, (start, begin, fill) in enumerate(zip(starts.tolist(), begins, fills, strict=True)):
            out[start : start + UNIT] = before[row * UNIT : (row + 1) * UNIT]
            out[begin : begin + fill] = zeros[:fill]
            out[begin + fill : begin + fill + _LABEL] = after[row * _LABEL : (row + 1) * _LABEL]

    def write_header(self, dataset: Dataset, count: int, end: int, checksum: int) -> bytes:
        """Nothing."""
        return b""

    def write_trailer(self, dataset: Dataset, count: int, end: int, checksum: int) -> bytes:
        """Zeros."""
        return bytes(int(self.trailer(dataset, np.array([count]), np.array([end]))[0]))


def _key(name: str) -> tuple[str, str]:
    """(name up to the first dot of its last part, all after it in small letters); empty for what is no sample's."""
    folder, slash, last = name.rpartition("/")
    stem, dot, suffix = last.partition(".")
    top = name.partition("/")[0]
    special = len(top) >= 4 and top.startswith("__") and top.endswith("__")
    return ("", "") if special or not stem or not dot else (folder + slash + stem, suffix.lower())


TAR = Tar()
