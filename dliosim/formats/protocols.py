"""The base classes of formats: where samples are in files, how a file is written, and what else a reader touches.

A format is bound to one data set (`registry.bind`), and is one of three kinds. In a `Framed` format the place of every
byte is known before any byte is written: headers, samples with a frame around them, trailers. So all ranks can plan and
write such files without reading any. In a `Resolved` format only the file knows its layout, and the index of the file
is read before the plan is made: its library makes a file with space for all samples, which all ranks then write
(`Preallocated`), or writes the whole file (`Built`).

Formats know numpy and their library, but no MPI. The caller gives them the contents (`execute.payload.sample_bytes`); a
format never makes contents.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, TypeAlias

from dliosim.formats.unsupported import refuse_unused
from dliosim.lazy_numpy import np
from dliosim.model import Dataset, Shape

if TYPE_CHECKING:
    from numpy.typing import NDArray

Ints: TypeAlias = "NDArray[np.int64]"
Bytes: TypeAlias = "NDArray[np.uint8]"

#: `Column.row_bytes` of units that can only be read whole
ENCODED: Final = 0

#: The largest index or header that is accepted, bytes; a larger one is refused before it is read into memory
LARGEST_INDEX: Final = 1 << 31

#: Pieces of memory below this size stay with a process for a while after it has freed them (glibc's malloc)
FREED_LATE: Final = 32 << 20

#: Labels of samples are smaller than this, as those of ImageNet
CLASSES: Final = 1000


@dataclass(frozen=True, slots=True)
class Filter:
    """One step of a column's encoding; steps are listed in the order of writing."""

    name: str  #: the name that the format uses
    parameters: tuple[int, ...] = ()  #: parameters of the step, as the format numbers them


@dataclass(frozen=True, slots=True)
class Column:
    """The units of one file that hold samples, in the order of the samples.

    There are two cases. (1) A unit holds `samples` whole samples, one after the other. (2) A sample is made of `pieces`
    units, one after the other; then `samples` is 1. The last unit may hold fewer samples. All numbers are bytes, except
    counts.
    """

    #: samples of one unit; the largest number if units differ (see `first`)
    samples: int
    #: units of one sample; 1 if a unit holds whole samples
    pieces: int
    #: bytes of one sample in a unit; ENCODED where a unit is read whole and decoded
    row_bytes: int
    #: bytes of a unit after decoding; the largest number if units differ
    unit_bytes: int
    #: first byte of each unit in the file; (units,)
    offset: Ints
    #: bytes of each unit in the file; (units,); 0 for a unit that is not in the file (HDF5 fills it in)
    length: Ints
    #: steps of the encoding, in the order of writing
    filters: tuple[Filter, ...] = ()
    #: first sample of each unit; (units,); only if units hold different numbers of samples (row groups)
    first: Ints | None = None
    #: 0, or the distance in bytes from each `pieces` units to the next; then `offset` and `length` are only those of
    #: the first `pieces` units, and all later ones are as long; a forecast of a large file so takes few numbers
    step: int = 0


@dataclass(frozen=True, slots=True)
class FileIndex:
    """The places of the samples of one file: a sample is a range in each of the columns (mostly one)."""

    #: number of samples in the file
    samples: int
    #: bytes of the file
    size: int
    #: one for each part of a sample
    columns: tuple[Column, ...]
    #: bytes of the file that had to be read to build this index
    touched: int = 0
    #: bytes that the format's library returns for each sample; 0 without a library, or if samples differ
    sample_bytes: int = 0


def index_ranges(size: int, offset: Ints, length: Ints, touched: int, row_bytes: int = ENCODED) -> FileIndex:
    """Return the index of a file of `size` bytes whose samples are a range each; `row_bytes` as in `Column`."""
    column = Column(1, 1, row_bytes, int(length.max(initial=0)), offset, length)
    return FileIndex(len(offset), size, (column,), touched)


@dataclass(frozen=True, slots=True)
class ExistingFiles:
    """Existing files: their paths, in order, and what their own indexes say."""

    #: path of each file below the root
    names: list[str]
    #: whether that path leads to its file by symbolic links; one a file
    linked: list[bool]
    #: the index of each file
    indexes: list[FileIndex]


@dataclass(frozen=True, eq=False)
class Format(ABC):
    """A format, bound to a data set: checks, an index and a decoder."""

    #: the data set that it serves
    dataset: Dataset

    #: name of the format in a pattern
    name: ClassVar[str]
    #: settings of `unsupported.refuse_unused` that the format does use
    uses: ClassVar[tuple[str, ...]] = ()
    #: modules of libraries with a long import time, which must not be part of a measured step; they may be missing
    libraries: ClassVar[tuple[str, ...]] = ()
    #: modules that only reading and writing need: `check` does not import them, a run does before any clock
    modules: ClassVar[tuple[str, ...]] = ()
    #: suffixes of the files (`idx`) next to each file that hold no contents but that readers need
    sidecars: ClassVar[tuple[str, ...]] = ()
    #: opens of a file by the rank that makes it and writes its samples
    opens: ClassVar[int] = 1
    #: True if several ranks can open a file together to write it
    shares_open: ClassVar[bool] = True

    @property
    def needs_index(self) -> bool:
        """True if only the files know where samples are: files that a library makes, and existing ones."""
        return True

    def refuse(self) -> tuple[str, str] | None:
        """Return the setting that this format cannot serve, and why (the end of a sentence); or None."""
        return refuse_unused(self.dataset, self.name, self.uses)

    def needs(self) -> tuple[str, str] | None:
        """Return a missing module and the extra that installs it (`parquet`); or None."""
        return None

    @abstractmethod
    def index(self, path: Path) -> FileIndex:
        """Read where the samples of a file are, from the file alone, by any writer.

        The data set only gives what the file cannot say: the size of raw samples, the names of data sets or columns.
        Raises ExecutionError [R401], with file and sample or offset, where the file is cut short, has another format or
        points outside itself; OSError as the calls do. Checks each number of the file against the file's size before it
        allocates memory by it.
        """

    def shape(self, path: Path) -> Shape | None:
        """Return the array that each sample of a file is, if the file says so and its arrays have one shape."""
        return None

    def write_sidecar(self, suffix: str, first: int, sizes: Ints) -> Iterator[bytes]:
        """Yield the sidecar of a file in pieces; the file's samples are `first` and those after it, of `sizes`."""
        raise NotImplementedError(f"{self.name} has no sidecar .{suffix}")

    def encoder_bytes(self, made: int, sample: int) -> int:
        """Return the bytes of memory that writing takes in addition to `made`, those of the samples made at a time.

        `sample` is the bytes of the largest sample. Measured: no less than a run takes, and no more than 15 % above it.
        """
        return 0

    def library_reader(self) -> LibraryReadable | None:
        """Return what reads single samples by the format's library (`LibraryReadable`); None if nothing does."""
        return None

    def decode(self, column: Column | None, data: memoryview) -> Bytes | None:
        """Run the format's real decoder on the bytes of a read: a sample, or a whole unit of an encoded column.

        Returns the contents of its samples (uint8, flat), or None if decoding gives something else (pixels). Raises
        ExecutionError [R401], with the reason, if the data are damaged. By default the bytes are the contents.
        """
        return np.frombuffer(data, np.uint8)


class Framed(Format):
    """A format whose files have a fixed place for every byte before it is written.

    A file is a header, its samples, each at the next multiple of `align` after the one before, and a trailer. A method
    that takes arrays returns one entry for each of their entries. `counts` are numbers of samples of files. By default
    a file is its samples, one directly after the other, and no more.
    """

    #: True if all but contents are zeros, so that bytes of a file can be made without the whole sample
    bare: ClassVar[bool] = False

    @property
    def needs_index(self) -> bool:
        """True of existing files, by any writer."""
        return bool(self.dataset.source)

    @property
    def checksum(self) -> Callable[[memoryview, int], int] | None:
        """CRC over the samples of a file, or None; a file with one is written by one rank, from front to back.

        Header and trailer need it. It is called with the bytes and the CRC so far, at first `start_checksum`.
        """
        return None

    @property
    def header(self) -> int:
        """Bytes before sample 0; the same for every file (numbers of samples differ by at most one)."""
        return 0

    @property
    def align(self) -> int:
        """Number of bytes that the start of every sample is a multiple of."""
        return 1

    def stride(self, sizes: Ints) -> Ints:
        """Return the bytes from the start of a sample of that size to where the next sample may begin."""
        return sizes

    def length(self, sizes: Ints) -> Ints:
        """Return the bytes that a read of a sample takes, from the start of the sample."""
        return self.stride(sizes)

    def content(self, sizes: Ints) -> tuple[Ints, Ints]:
        """Return (begin, length) of the sample's own bytes, those made of (seed, sample), within its range."""
        return np.zeros_like(sizes), sizes

    def trailer(self, counts: Ints, ends: Ints) -> Ints:
        """Return the bytes after the last sample for files of `counts` samples; `ends` are the ends of those."""
        return np.zeros_like(counts)

    def frame(self, samples: Ints, sizes: Ints, starts: Ints, out: memoryview) -> None:
        """Write the frame around samples: sample i begins at out[starts[i]], its own bytes are there already.

        Writes out[start:start + stride] except the contents. Only a text format may change these in place (`dress`).
        """

    def start_checksum(self, count: int, end: int) -> int:
        """Return the value that `checksum` starts with: 0, or the CRC of the part of the header that it also covers."""
        return 0

    def write_header(self, count: int, end: int, checksum: int) -> bytes:
        """Return the header of a file of `count` samples that end at `end`: `header` bytes, by default zeros."""
        return bytes(self.header)

    def write_trailer(self, count: int, end: int, checksum: int) -> bytes:
        """Return the trailer of a file of `count` samples that end at `end`; by default zeros."""
        return bytes(int(self.trailer(np.array([count]), np.array([end]))[0]))


class Dressed(Framed):
    """A format whose contents are no arbitrary bytes: each is made of a random byte and its place in the sample."""

    @abstractmethod
    def dress(self, data: Bytes, place: Ints | int) -> Bytes:
        """Return the bytes that stand for random ones; `place` is the position of each in the sample, or of the first.

        A function of (byte, place, size) alone, so that any part of a sample can be made and checked without the rest.
        """


@dataclass(slots=True)
class EncodeTime:
    """The time in the format's encoder while a file is built, without all other work."""

    encode_ns: int = 0  #: ns


class Resolved(Format):
    """A format whose files alone know where samples are. All samples have one size, `size`."""

    @property
    def size(self) -> int:
        """Bytes of each sample that is written."""
        size = self.dataset.constant_size
        assert size is not None, "refused before"
        return size

    @abstractmethod
    def forecast(self, count: int) -> FileIndex:
        """Return what `index` will roughly say about a file of `count` samples not yet written; no `Column.first`."""


class Preallocated(Resolved):
    """A format whose library gives every sample its place in a file, so that all ranks can write it."""

    opens = 2  # by the library, and to write samples

    @abstractmethod
    def lay_out(self, path: Path, count: int) -> None:
        """Create a file with room for `count` samples, none written yet; `index` then says where they are."""


class Built(Resolved):
    """A format whose library writes a file whole."""

    shares_open = False

    @property
    @abstractmethod
    def batch(self) -> int:
        """Largest number of samples that `build` takes at a time: a chunk, a row group."""

    @abstractmethod
    def build(self, path: Path, count: int, batches: Iterator[Bytes], encoding: EncodeTime) -> None:
        """Write a file of `count` samples; `batches` gives their contents in order, (n, size) each, with any n."""


def cut_bytes(data: memoryview) -> Iterator[memoryview]:
    """Yield 1 MiB at a time: a codec takes a copy of what it makes of each, and samples may have hundreds of MB."""
    return (data[at : at + (1 << 20)] for at in range(0, len(data), 1 << 20))


def regroup_rows(batches: Iterator[Bytes], most: int) -> Iterator[Bytes]:
    """Yield the same rows, `most` at a time. Rows that wait are copied, as their batch may be used again."""
    held: list[Bytes] = []
    for batch in batches:
        left = batch
        while len(left):
            rows = left[: most - sum(map(len, held))]
            left = left[len(rows) :]
            if len(rows) == most:
                yield rows
                continue
            held.append(rows.copy())
            if sum(map(len, held)) == most:
                yield np.concatenate(held)
                held = []
    if held:
        yield np.concatenate(held)


class GroupEncoder(Built):
    """A format that encodes groups of samples independently, so that many ranks can work on one file."""

    @abstractmethod
    def group_size(self, count: int) -> int:
        """Return the samples that are encoded together in a file of `count`; the last group may have fewer."""

    @abstractmethod
    def encode_group(self, count: int, samples: Bytes) -> list[bytes]:
        """Encode a group, (n, size) of contents; only `assemble` reads the result."""

    def build(self, path: Path, count: int, batches: Iterator[Bytes], encoding: EncodeTime) -> None:
        """Write a file of groups that are encoded one by one; one group and one batch are in memory."""

        def encode_groups() -> Iterator[list[bytes]]:
            for samples in regroup_rows(batches, self.group_size(count)):
                begun = perf_counter_ns()
                encoded = self.encode_group(count, samples)
                encoding.encode_ns += perf_counter_ns() - begun
                yield encoded

        self.assemble(path, count, encode_groups())

    @abstractmethod
    def assemble(self, path: Path, count: int, groups: Iterator[list[bytes]]) -> None:
        """Write a file from the results of `encode_group`, in the order of the groups."""


class LibraryFile(Protocol):
    """A file that the format's library has open; used by one thread."""

    def read(self, first: int, count: int, into: memoryview) -> int:
        """Read `count` samples from `first` (in the file) to the beginning of `into`, one after the other.

        Returns the bytes of their contents. Raises ExecutionError. Collective if the file was opened with a
        communicator; `count` may then be 0.
        """
        ...

    def close(self) -> None:
        """Close the file; safe to call twice. Collective if opening was."""
        ...


class LibraryReadable(Format):
    """A format whose samples can also be read by its library, as an application does (`through library`)."""

    def library_reader(self) -> LibraryReadable:
        """Return the format itself."""
        return self

    @abstractmethod
    def open_library(self, path: Path, comm: object | None, collective: bool) -> LibraryFile:
        """Open a file by the library: alone, or with others (`comm`, an mpi4py communicator) for collective reads.

        Raises ExecutionError [R401] for a file of another format, [R403] if the library cannot do what is asked.
        """
