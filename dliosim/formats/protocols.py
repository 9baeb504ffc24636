"""What a format answers: where samples lie in its files, how a file is written, and what else a reader touches.

Two kinds of formats. In a `Framed` one every byte has its place before any is written: headers, samples with something
around them, trailers. So files are planned, and written by all ranks, without looking at any. In a `Resolved` one
(compression, layouts that a library decides) only the file knows: its own index is read before it is planned with.

Formats know numpy and their library, no MPI. They are given contents (`execute.payload.sample_bytes`), and never make
their own.
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
"""Bytes of an index or header that is believed; more is refused before it is read into memory."""


@dataclass(frozen=True, slots=True)
class Filter:
    """One step of a column's encoding, in the order of writing: `name` as the format calls it, and its parameters."""

    name: str
    parameters: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Column:
    """Units of one file: extents that hold samples, in the order of the samples. Bytes.

    Either a unit holds `samples` samples, one after the other, `row_bytes` each (or ENCODED: it is read whole, and
    decoded); or (`samples` 1) a sample is made of `pieces` units, one after the other. Unit u lies at offset[u] and has
    length[u] bytes; the last may hold fewer samples. A unit that takes no room in the file (HDF5 fills it in) has
    length 0. `unit_bytes` is what each unit holds when decoded.

    Where units hold different numbers of samples (row groups as their writer left them), `first[u]` is the first sample
    of unit u, `samples` the most that one holds, and `unit_bytes` the most that one decodes to.

    Where `step` is not 0, `offset` and `length` are those of the first `pieces` units alone. Later ones are as long,
    and each `pieces` of them lie `step` bytes behind those before: so a forecast of a large file takes a few numbers.
    """

    samples: int
    pieces: int
    row_bytes: int
    unit_bytes: int
    offset: Ints
    length: Ints
    filters: tuple[Filter, ...] = ()
    first: Ints | None = None
    step: int = 0


@dataclass(frozen=True, slots=True)
class FileIndex:
    """Where the samples of one file lie: a sample is a range in each of the columns (one, mostly).

    `size` is the bytes of the file, `touched` the bytes of it that had to be read to know all this. `sample_bytes` is
    what the format's library gives for each sample, 0 without a library, or where samples differ in that.
    """

    samples: int
    size: int
    columns: tuple[Column, ...]
    touched: int = 0
    sample_bytes: int = 0


@runtime_checkable
class Format(Protocol):
    """What every format has: a name, its checks, its index, its decoder."""

    @property
    def name(self) -> str:
        """What a pattern calls it."""
        ...

    def variant(self, dataset: Dataset) -> Format:
        """The format that serves this data set: itself, unless it is `Framed` for some and `Resolved` for others.

        Asked of every data set before anything else, `refuse` included, and never fails.
        """
        ...

    def refuse(self, dataset: Dataset) -> tuple[str, str] | None:
        """What of a description this format cannot hold: the setting and why, to be said in a sentence; or None."""
        ...

    def needs(self, dataset: Dataset) -> tuple[str, str] | None:
        """A module that is not installed and the extra that brings it (`parquet`: dliosim[parquet]); or None."""
        ...

    def index(self, path: Path, dataset: Dataset) -> FileIndex:
        """Read where the samples of a file lie, from the file alone, whoever wrote it.

        Of `dataset` nothing is used but what the file cannot say: the size of raw samples, the names of data sets or
        columns. Raises ExecutionError [R401], naming file and sample or offset, where the file is not whole, is no such
        file, or points outside itself; OSError as the calls do. Never allocates by what a file says before it is
        checked against the file's size.
        """
        ...

    def decode(self, dataset: Dataset, column: Column | None, data: memoryview) -> Bytes | None:
        """Run the format's real decoder on what a read gave: a sample, or a whole unit of an encoded column.

        Returns the contents of the samples in it (uint8, flat), or None where decoding gives something else (pixels).
        Raises ExecutionError [R401], saying what is wrong, where the data are damaged.
        """
        ...


@runtime_checkable
class Framed(Format, Protocol):
    """A format in whose files every byte has its place before it is written.

    A file is a header, its samples, each at the next multiple of `align` after the one before, and a trailer. All
    methods with arrays give one entry for each of theirs. `counts` are samples of files.
    """

    @property
    def checksum(self) -> Callable[[memoryview, int], int] | None:
        """CRC over a file's samples (header and trailer need it): such a file is written by one rank, front to back.

        It is called with what is there so far, `start_checksum` at first.
        """
        ...

    def header(self, dataset: Dataset) -> int:
        """Bytes before sample 0 in every file (files differ by one in their number of samples)."""
        ...

    def align(self, dataset: Dataset) -> int:
        """Bytes to multiples of which samples begin."""
        ...

    def stride(self, dataset: Dataset, sizes: Ints) -> Ints:
        """Bytes from where a sample of that size begins to where the next may begin."""
        ...

    def length(self, dataset: Dataset, sizes: Ints) -> Ints:
        """Bytes that reading a sample takes, from where it begins."""
        ...

    def content(self, dataset: Dataset, sizes: Ints) -> tuple[Ints, Ints]:
        """Where in these the sample's own bytes begin, and how many of them: those made of (seed, sample)."""
        ...

    def trailer(self, dataset: Dataset, counts: Ints, ends: Ints) -> Ints:
        """Bytes after the last sample of files of that many samples; `ends` is where their last samples end."""
        ...

    def frame(self, dataset: Dataset, samples: Ints, sizes: Ints, starts: Ints, out: memoryview) -> None:
        """Put what surrounds samples around them: sample i begins at out[starts[i]], its own bytes are there already.

        Writes out[start:start + stride] but for the contents, which only a text format may change in place (`dress`).
        """
        ...

    def start_checksum(self, dataset: Dataset, count: int, end: int) -> int:
        """What `checksum` goes on from at the first sample: 0, or the CRC of what of the header it takes in, too."""
        ...

    def write_header(self, dataset: Dataset, count: int, end: int, checksum: int) -> bytes:
        """The header of a file of `count` samples that end at `end`; `header(dataset)` bytes."""
        ...

    def write_trailer(self, dataset: Dataset, count: int, end: int, checksum: int) -> bytes:
        """The trailer of such a file."""
        ...

    def sidecars(self, dataset: Dataset) -> tuple[str, ...]:
        """Suffixes of files that stand beside each file (`idx`) and hold no contents, but what a reader needs."""
        ...

    def write_sidecar(self, dataset: Dataset, suffix: str, first: int, sizes: Ints) -> Iterator[bytes]:
        """The sidecar of a file, in pieces: its samples are `first` and those after it, of `sizes`."""
        ...


@dataclass(slots=True)
class EncodeTime:
    """What building a file took: time in the format's encoder apart from all else."""

    encode_ns: int = 0


@runtime_checkable
class Resolved(Format, Protocol):
    """A format whose files alone know where samples lie. All samples have one size, `dataset.fixed_size`."""

    def is_preallocated(self, dataset: Dataset) -> bool:
        """Whether `lay_out` gives every sample its place, so that all ranks can write; else `build` writes a file."""
        ...

    def lay_out(self, dataset: Dataset, path: Path, count: int) -> None:
        """Make a file with room for `count` samples, none written yet; `index` then says where they lie."""
        ...

    def build(self, dataset: Dataset, path: Path, count: int, batches: Iterator[Bytes], encoding: EncodeTime) -> None:
        """Write a file of `count` samples; `batches` gives their contents in order, (n, size) each, n as it likes."""
        ...

    def batch(self, dataset: Dataset) -> int:
        """Samples that `build` wants at a time, at most: a chunk, a row group."""
        ...

    def forecast(self, dataset: Dataset, count: int) -> FileIndex:
        """What `index` will roughly say of a file of `count` samples that nobody has written yet; no `Column.first`."""
        ...


@runtime_checkable
class GroupEncoder(Resolved, Protocol):
    """A format whose files are built of groups of samples that can be encoded apart, so that many ranks can."""

    def group_size(self, dataset: Dataset, count: int) -> int:
        """Samples that are encoded together in a file of `count`; the last group may have fewer."""
        ...

    def encode_group(self, dataset: Dataset, count: int, samples: Bytes) -> list[bytes]:
        """What a group, (n, size) of contents, becomes; for `assemble` alone to read."""
        ...

    def assemble(self, dataset: Dataset, path: Path, count: int, groups: Iterator[list[bytes]]) -> None:
        """Write a file of what `encode_group` gave, in the order of the groups."""
        ...


@runtime_checkable
class LibraryPreload(Format, Protocol):
    """A format that reads or decodes by modules which take long to import: that is not to fall into a measured step."""

    @property
    def libraries(self) -> tuple[str, ...]:
        """Names of these modules."""
        ...


class LibraryFile(Protocol):
    """A file that the format's library has open; used by one thread."""

    def read(self, first: int, count: int, into: memoryview) -> int:
        """Read so many samples from `first` (of the file) on into the beginning of `into`, one after the other.

        Returns the bytes of their contents. Raises ExecutionError. With a communicator collective, `count` may be 0.
        """
        ...

    def close(self) -> None:
        """Close; safe to call twice. Collective where opening was."""
        ...


@runtime_checkable
class LibraryReadable(Format, Protocol):
    """A format whose samples can also be read as an application would, by its library (`through library`)."""

    def open_library(self, path: Path, dataset: Dataset, comm: object | None, collective: bool) -> LibraryFile:
        """Open a file by the library: alone, or (`comm`, an mpi4py communicator) with others, reading collectively.

        Raises ExecutionError [R401] for a file that is no such file, [R403] where the library cannot do what is asked.
        """
        ...


@runtime_checkable
class Dressed(Protocol):
    """A format whose contents are not arbitrary bytes: each is made of the random one and its place in the sample."""

    def dress(self, dataset: Dataset, data: Bytes, place: Ints | int) -> Bytes:
        """The bytes that stand for random ones: `place` is where in the sample each (or the first of all) lies.

        A function of (byte, place, size) alone, so that any part of a sample can be made and checked by itself.
        """
        ...
