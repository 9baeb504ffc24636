"""The protocols of a format: where samples are in its files, how a file is written, and what else a reader touches.

There are two kinds of formats. In a `Framed` format the place of every byte is known before any byte is written:
headers, samples with a frame around them, trailers. So all ranks can plan and write such files without reading any. In
a `Resolved` format (compression, or a layout that a library decides) only the file knows its layout: the index of the
file is read before the plan is made.

Formats know numpy and their library, but no MPI. The caller gives them the contents (`execute.payload.sample_bytes`); a
format never makes contents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, runtime_checkable

from dliosim.lazy_numpy import np
from dliosim.model import Dataset

if TYPE_CHECKING:
    from numpy.typing import NDArray

Ints: TypeAlias = "NDArray[np.int64]"
Bytes: TypeAlias = "NDArray[np.uint8]"

ENCODED: Final = 0
"""`Column.row_bytes` of units that can only be read whole."""

LARGEST_INDEX: Final = 1 << 31
"""The largest index or header that is accepted, bytes; a larger one is refused before it is read into memory."""


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

    #: samples of one unit; the largest number where units differ (see `first`)
    samples: int
    #: units of one sample; 1 where a unit holds whole samples
    pieces: int
    #: bytes of one sample in a unit; ENCODED where a unit is read whole and decoded
    row_bytes: int
    #: bytes of a unit after decoding; the largest number where units differ
    unit_bytes: int
    #: first byte of each unit in the file; (units,)
    offset: Ints
    #: bytes of each unit in the file; (units,); 0 for a unit that is not in the file (HDF5 fills it in)
    length: Ints
    #: steps of the encoding, in the order of writing
    filters: tuple[Filter, ...] = ()
    #: first sample of each unit; (units,); only where units hold different numbers of samples (row groups)
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
    #: bytes that the format's library returns for each sample; 0 without a library, or where samples differ
    sample_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ExistingFiles:
    """Existing files: their paths, in order, and what their own indexes say."""

    #: path of each file below the root
    names: list[str]
    #: whether that path leads to its file by symbolic links; one a file
    linked: list[bool]
    #: the index of each file
    indexes: list[FileIndex]


@runtime_checkable
class Format(Protocol):
    """The protocol of every format: a name, checks, an index and a decoder."""

    @property
    def name(self) -> str:
        """Name of the format in a pattern."""
        ...

    def variant(self, dataset: Dataset) -> Format:
        """Return the format that serves this data set: itself, or another one where it is `Framed` only for some.

        It is called before all other methods, also before `refuse`, and never fails.
        """
        ...

    def refuse(self, dataset: Dataset) -> tuple[str, str] | None:
        """Return the setting that this format cannot serve, and why (the end of a sentence); or None."""
        ...

    def needs(self, dataset: Dataset) -> tuple[str, str] | None:
        """Return a missing module and the extra that installs it (`parquet`: dliosim[parquet]); or None."""
        ...

    def index(self, path: Path, dataset: Dataset) -> FileIndex:
        """Read where the samples of a file are, from the file alone, by any writer.

        `dataset` only gives what the file cannot say: the size of raw samples, the names of data sets or columns.
        Raises ExecutionError [R401], with file and sample or offset, where the file is cut short, has another format or
        points outside itself; OSError as the calls do. Checks each number of the file against the file's size before it
        allocates memory by it.
        """
        ...

    def decode(self, dataset: Dataset, column: Column | None, data: memoryview) -> Bytes | None:
        """Run the format's real decoder on the bytes of a read: a sample, or a whole unit of an encoded column.

        Returns the contents of its samples (uint8, flat), or None where decoding gives something else (pixels). Raises
        ExecutionError [R401], with the reason, where the data are damaged.
        """
        ...


@runtime_checkable
class Framed(Format, Protocol):
    """A format whose files have a fixed place for every byte before it is written.

    A file is a header, its samples, each at the next multiple of `align` after the one before, and a trailer. A method
    that takes arrays returns one entry for each of their entries. `counts` are numbers of samples of files.
    """

    @property
    def checksum(self) -> Callable[[memoryview, int], int] | None:
        """CRC over the samples of a file, or None; a file with one is written by one rank, from front to back.

        Header and trailer need it. It is called with the bytes and the CRC so far, at first `start_checksum`.
        """
        ...

    def header(self, dataset: Dataset) -> int:
        """Return the bytes before sample 0; the same for every file (numbers of samples differ by at most one)."""
        ...

    def align(self, dataset: Dataset) -> int:
        """Return the number of bytes that the begin of every sample is a multiple of."""
        ...

    def stride(self, dataset: Dataset, sizes: Ints) -> Ints:
        """Return the bytes from the begin of a sample of that size to where the next sample may begin."""
        ...

    def length(self, dataset: Dataset, sizes: Ints) -> Ints:
        """Return the bytes that a read of a sample takes, from the begin of the sample."""
        ...

    def content(self, dataset: Dataset, sizes: Ints) -> tuple[Ints, Ints]:
        """Return (begin, length) of the sample's own bytes, those made of (seed, sample), within its range."""
        ...

    def trailer(self, dataset: Dataset, counts: Ints, ends: Ints) -> Ints:
        """Return the bytes after the last sample for files of `counts` samples; `ends` are the ends of those."""
        ...

    def frame(self, dataset: Dataset, samples: Ints, sizes: Ints, starts: Ints, out: memoryview) -> None:
        """Write the frame around samples: sample i begins at out[starts[i]], its own bytes are there already.

        Writes out[start:start + stride] except the contents. Only a text format may change these in place (`dress`).
        """
        ...

    def start_checksum(self, dataset: Dataset, count: int, end: int) -> int:
        """Return the value that `checksum` starts with: 0, or the CRC of the part of the header that it also covers."""
        ...

    def write_header(self, dataset: Dataset, count: int, end: int, checksum: int) -> bytes:
        """Return the header of a file of `count` samples that end at `end`; `header(dataset)` bytes."""
        ...

    def write_trailer(self, dataset: Dataset, count: int, end: int, checksum: int) -> bytes:
        """Return the trailer of a file of `count` samples that end at `end`."""
        ...

    def sidecars(self, dataset: Dataset) -> tuple[str, ...]:
        """Return the suffixes of the files (`idx`) next to each file that hold no contents but that readers need."""
        ...

    def write_sidecar(self, dataset: Dataset, suffix: str, first: int, sizes: Ints) -> Iterator[bytes]:
        """Yield the sidecar of a file in pieces; the file's samples are `first` and those after it, of `sizes`."""
        ...


@dataclass(slots=True)
class EncodeTime:
    """The time in the format's encoder while a file is built, without all other work."""

    encode_ns: int = 0  #: ns


@runtime_checkable
class Resolved(Format, Protocol):
    """A format whose files alone know where samples are. All samples have one size, `dataset.constant_size`."""

    def is_preallocated(self, dataset: Dataset) -> bool:
        """Return True if `lay_out` gives every sample its place, so all ranks write; else `build` writes a file."""
        ...

    def lay_out(self, dataset: Dataset, path: Path, count: int) -> None:
        """Create a file with room for `count` samples, none written yet; `index` then says where they are."""
        ...

    def build(self, dataset: Dataset, path: Path, count: int, batches: Iterator[Bytes], encoding: EncodeTime) -> None:
        """Write a file of `count` samples; `batches` gives their contents in order, (n, size) each, with any n."""
        ...

    def batch(self, dataset: Dataset) -> int:
        """Return the largest number of samples that `build` takes at a time: a chunk, a row group."""
        ...

    def forecast(self, dataset: Dataset, count: int) -> FileIndex:
        """Return what `index` will roughly say about a file of `count` samples not yet written; no `Column.first`."""
        ...


@runtime_checkable
class GroupEncoder(Resolved, Protocol):
    """A format that encodes groups of samples independently, so that many ranks can work on one file."""

    def group_size(self, dataset: Dataset, count: int) -> int:
        """Return the samples that are encoded together in a file of `count`; the last group may have fewer."""
        ...

    def encode_group(self, dataset: Dataset, count: int, samples: Bytes) -> list[bytes]:
        """Encode a group, (n, size) of contents; only `assemble` reads the result."""
        ...

    def assemble(self, dataset: Dataset, path: Path, count: int, groups: Iterator[list[bytes]]) -> None:
        """Write a file from the results of `encode_group`, in the order of the groups."""
        ...


@runtime_checkable
class LibraryPreload(Format, Protocol):
    """A format that uses modules with a long import time, which must not be part of a measured step."""

    @property
    def libraries(self) -> tuple[str, ...]:
        """Names of these modules."""
        ...


@runtime_checkable
class LateModules(Format, Protocol):
    """A format with modules of its own that only reading and writing need.

    `check` does not import them; a run imports them before any clock starts.
    """

    @property
    def modules(self) -> tuple[str, ...]:
        """Names of these modules."""
        ...


class LibraryFile(Protocol):
    """A file that the format's library has open; used by one thread."""

    def read(self, first: int, count: int, into: memoryview) -> int:
        """Read `count` samples from `first` (in the file) to the beginning of `into`, one after the other.

        Returns the bytes of their contents. Raises ExecutionError. Collective where the file was opened with a
        communicator; `count` may then be 0.
        """
        ...

    def close(self) -> None:
        """Close the file; safe to call twice. Collective where opening was."""
        ...


@runtime_checkable
class LibraryReadable(Format, Protocol):
    """A format whose samples can also be read by its library, as an application does (`through library`)."""

    def open_library(self, path: Path, dataset: Dataset, comm: object | None, collective: bool) -> LibraryFile:
        """Open a file by the library: alone, or with others (`comm`, an mpi4py communicator) for collective reads.

        Raises ExecutionError [R401] for a file of another format, [R403] where the library cannot do what is asked.
        """
        ...


@runtime_checkable
class Dressed(Protocol):
    """A format whose contents are no arbitrary bytes: each is made of a random byte and its place in the sample."""

    def dress(self, dataset: Dataset, data: Bytes, place: Ints | int) -> Bytes:
        """Return the bytes that stand for random ones; `place` is the position of each in the sample, or of the first.

        A function of (byte, place, size) alone, so that any part of a sample can be made and checked without the rest.
        """
        ...
