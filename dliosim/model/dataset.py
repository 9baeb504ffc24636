"""Data sets: the number and size of samples, and the files that hold them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from dliosim.lazy_numpy import np
from dliosim.model.distributions import Distribution

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class FileCounts:
    """Samples of each file, in the order of the files, as unsigned little-endian integers.

    Every rank has a copy, so they are compact: a million files of less than 65536 samples take 2 MB.
    """

    width: int  #: bytes of an integer, as few as the largest count needs
    data: bytes  #: the integers, one for each file

    @property
    def array(self) -> NDArray[np.int64]:
        """Samples of each file, int64 (files,)."""
        return np.frombuffer(self.data, f"<u{self.width}").astype(np.int64)


def pack_counts(counts: NDArray[np.int64]) -> FileCounts | None:
    """Return the counts in compact form; None where file i * F // N holds sample i of N, as closed forms give these."""
    files = len(counts)
    whole, rest = divmod(int(counts.sum()), files)
    file = np.arange(files + 1)
    # file * N // F without the product, which may not fit: N is whole * F + rest.
    if (counts == whole + np.diff(-(-file * rest // files))).all():
        return None
    width = next(width for width in (1, 2, 4, 8) if int(counts.max()) < 1 << 8 * width)
    return FileCounts(width, counts.astype(f"<u{width}").tobytes())


@lru_cache(maxsize=16)
def rank_sample_counts(counts: FileCounts, ranks: int) -> tuple[int, ...]:
    """Return the samples of each rank where rank r has the files r, r + ranks, r + 2 ranks, ..."""
    table = counts.array
    rows = np.zeros(-(-len(table) // ranks) * ranks, np.int64)
    rows[: len(table)] = table
    return tuple(rows.reshape(-1, ranks).sum(axis=0).tolist())


ELEMENTS: Final = {
    "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
    "float16": 2, "float32": 4, "float64": 8,
}  # fmt: skip
"""Element types of samples, by numpy's names, and their bytes."""

MAX_TOTAL: Final = 2**62
"""Bytes of a data set or checkpoint, at most: offsets have 63 bits."""

UNKNOWN_SIZE: Final = Distribution("uniform", (1.0, 1.0))
"""Size of samples whose sizes are not known. It is not constant, so that no closed form is used for them."""

#: Endings of file names that differ from the format's name, as readers of the format expect them.
_SUFFIXES: Final = {"indexed": "bin"}


@dataclass(frozen=True, slots=True)
class Layout:
    """The assignment of samples to files: sample i of N is in file i * files // N."""

    kind: Literal["file per sample", "files", "file per rank", "shared file"]  #: as the pattern says it
    #: number of files: the samples with a file per sample, the ranks that prepared it with a file per rank, 1 with a
    #: shared file
    files: int
    folders: int = 1  #: folders over which files are dealt round robin


@dataclass(frozen=True, slots=True)
class Stripe:
    """Striping that the file system is asked for."""

    size: int  #: bytes of one stripe
    targets: int  #: number of storage targets


@dataclass(frozen=True, slots=True)
class Shape:
    """The dimensions of a sample."""

    extents: tuple[int, ...]  #: elements in each dimension, in C order
    element: str  #: type of an element, a key of `ELEMENTS`

    @property
    def size(self) -> int:
        """Bytes of a sample."""
        return prod(self.extents) * ELEMENTS[self.element]


@dataclass(frozen=True, slots=True)
class Chunk:
    """The amount of a data set that is stored, and compressed, as one."""

    number: int  #: samples or bytes
    unit: Literal["samples", "bytes"]  #: unit of `number`


@dataclass(frozen=True, slots=True)
class Compression:
    """A codec and its level."""

    codec: Literal["gzip", "lzf", "snappy", "zstd"]  #: name of the codec
    level: int = 0  #: 0 where the codec has no levels


@dataclass(frozen=True, slots=True)
class FileSurvey:
    """The files that match the pattern of names of a data set that exists already."""

    samples: int  #: samples of all files
    files: int  #: number of files
    digest: str  #: hash of what was asked for, and of the names, sizes and numbers of samples of the files
    size: Distribution = UNKNOWN_SIZE  #: bytes of a sample; constant only where all samples have the same size
    counts: FileCounts | None = None  #: samples of each file; None where closed forms give them


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set without any default left open."""

    name: str  #: name in the pattern
    seed: int  #: of sizes, orders and contents
    samples: int  #: number of samples; of a `source`, those that its files hold
    size: Distribution  #: bytes of a sample's contents; the format's own bytes around them are not included
    layout: Layout  #: samples in files
    path: str  #: directory below the root
    root: str = "data"  #: tier where it is stored
    format: str = "raw"  #: name of the format
    header: int = 0  #: bytes before sample 0 of every raw file
    align: int = 1  #: bytes; the offset of every sample is rounded up to a multiple of it
    stripe: Stripe | None = None  #: striping of the files; None: as the file system has it
    shape: Shape | None = None  #: shape of a sample, or of each of its `parts`; None: a sample is bytes
    chunk: Chunk | None = None  #: amount that is stored as one; None: the format's default
    compress: Compression | None = None  #: codec; None without
    compressible: float = 1.0  #: factor by which a compressor can shrink the contents; 2.0: to half
    parts: int = 1  #: arrays of equal size in a record; `size` is their sum
    names: tuple[str, ...] = ()  #: data sets or columns that are read from the files of a `source`
    source: str = ""  #: pattern of names, relative to `root`, of files that exist already; empty without
    found: str = ""  #: `FileSurvey.digest` of a `source`
    counts: FileCounts | None = None  #: `FileSurvey.counts` of a `source`

    @property
    def element(self) -> str:
        """Element type of a sample; bytes where there is no shape."""
        return self.shape.element if self.shape is not None else "uint8"

    @property
    def constant_size(self) -> int | None:
        """Bytes of every sample, or None where sizes vary."""
        return int(self.size.parameters[0]) if self.size.is_constant else None

    def digest(self) -> str:
        """Return 16 hexadecimal digits of all that decides the files' bytes and striping, but not their directory."""
        described: dict[str, Any] = asdict(self)
        del described["path"], described["root"], described["counts"]  # `found` stands for these
        for name, usual in _NEVER_BEFORE.items():  # a new field with its default does not change the digest of old data
            if described[name] == usual:
                del described[name]
        text = json.dumps(described, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def folder_name(self, folder: int) -> str:
        """Return the path of one folder of files, relative to the data set's directory; '.' where there is one only."""
        return "." if self.layout.folders == 1 else f"{folder:04d}"

    def file_name(self, file: int) -> str:
        """Return the path of one file, relative to the data set's directory; names are computed, never listed."""
        name = f"{file:09d}.{_SUFFIXES.get(self.format, self.format)}"
        return name if self.layout.folders == 1 else f"{file % self.layout.folders:04d}/{name}"


Finder: TypeAlias = Callable[[Dataset], FileSurvey]
"""Function that surveys the files of a data set's `source`; DliosimError where there are none, or damaged ones."""

_NEVER_BEFORE: Final[dict[str, Any]] = {
    "shape": None, "chunk": None, "compress": None, "compressible": 1.0, "parts": 1, "names": (), "source": "",
    "found": "",
}  # fmt: skip
