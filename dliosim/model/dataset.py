"""A data set: how many samples of which size, and the files that hold them."""

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
    """Samples of each file, in order: unsigned little-endian integers of `width` bytes, as few as the largest needs.

    Every rank has a copy, so they are compact: a million files of less than 65536 samples take 2 MB.
    """

    width: int
    data: bytes

    @property
    def array(self) -> NDArray[np.int64]:
        """One entry a file."""
        return np.frombuffer(self.data, f"<u{self.width}").astype(np.int64)


def pack_counts(counts: NDArray[np.int64]) -> FileCounts | None:
    """The counts, or None where sample i of N lies in file i * F // N, so that closed forms give them."""
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
    """Samples of each rank where rank r has the files r, r + ranks, r + 2 ranks, ..."""
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
"""That of samples of which nothing is known, so that no constant may stand for it."""

#: Names of files end in the format's name, or in what readers of it expect.
_SUFFIXES: Final = {"indexed": "bin"}


@dataclass(frozen=True, slots=True)
class Layout:
    """Sample i of N lies in file i * files // N; files are dealt round robin over `folders`.

    `files` is resolved: the samples with a file per sample, the ranks that prepared it with a file per rank, 1 with a
    shared file.
    """

    kind: Literal["file per sample", "files", "file per rank", "shared file"]
    files: int
    folders: int = 1


@dataclass(frozen=True, slots=True)
class Stripe:
    """Striping asked of the file system: bytes of one stripe, and the number of targets."""

    size: int
    targets: int


@dataclass(frozen=True, slots=True)
class Shape:
    """Elements of a sample in each dimension, in the order of C, and their type, one of `ELEMENTS`."""

    extents: tuple[int, ...]
    element: str

    @property
    def size(self) -> int:
        """Bytes."""
        return prod(self.extents) * ELEMENTS[self.element]


@dataclass(frozen=True, slots=True)
class Chunk:
    """How much of a data set is stored, and compressed, as one: so many samples, or bytes."""

    number: int
    unit: Literal["samples", "bytes"]


@dataclass(frozen=True, slots=True)
class Compression:
    """A codec and its level (0 where it has none)."""

    codec: Literal["gzip", "lzf", "snappy", "zstd"]
    level: int = 0


@dataclass(frozen=True, slots=True)
class FileSurvey:
    """What was found where the pattern of names of a data set leads: so many samples in so many files.

    `digest` is one of what was asked for, and of the names, sizes and numbers of samples of these files. `size` is that
    of samples in bytes: a constant only where all are alike. `counts` are the samples of each file, unless closed forms
    give them.
    """

    samples: int
    files: int
    digest: str
    size: Distribution = UNKNOWN_SIZE
    counts: FileCounts | None = None


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set with nothing left to default; sizes in bytes.

    `size` is that of a sample's own bytes; what a format puts around them comes on top. Where `shape` is given it has
    that of a sample, or with `parts` above 1 (data sets a record) that of each of its parts, which are alike; `size`
    is what they add up to. `compressible` 2.0 means contents that a compressor can halve. `header` bytes stand before
    sample 0 of every raw file, and the offset of every sample is rounded up to `align`. A `source` is a pattern of
    names, relative to `root`, of files that are there already: then `samples` is how many these hold, `found` is
    `Found.digest`, `counts` is `Found.counts`, and `names` says which data sets or columns of them.
    """

    name: str
    seed: int
    samples: int
    size: Distribution
    layout: Layout
    path: str
    root: str = "data"
    format: str = "raw"
    header: int = 0
    align: int = 1
    stripe: Stripe | None = None
    shape: Shape | None = None
    chunk: Chunk | None = None
    compress: Compression | None = None
    compressible: float = 1.0
    parts: int = 1
    names: tuple[str, ...] = ()
    source: str = ""
    found: str = ""
    counts: FileCounts | None = None

    @property
    def element(self) -> str:
        """The type of the elements of a sample; bytes where no shape says otherwise."""
        return self.shape.element if self.shape is not None else "uint8"

    @property
    def constant_size(self) -> int | None:
        """Bytes of every sample, or None where sizes vary."""
        return int(self.size.parameters[0]) if self.size.is_constant else None

    def digest(self) -> str:
        """16 hexadecimal digits of everything that decides the files' bytes and striping (not where they lie)."""
        described: dict[str, Any] = asdict(self)
        del described["path"], described["root"], described["counts"]  # `found` stands for these
        for name, usual in _NEVER_BEFORE.items():  # data keep their name though descriptions have learnt more
            if described[name] == usual:
                del described[name]
        text = json.dumps(described, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def folder_name(self, folder: int) -> str:
        """Path of one folder of files, relative to the data set's own directory; '.' where there is one only."""
        return "." if self.layout.folders == 1 else f"{folder:04d}"

    def file_name(self, file: int) -> str:
        """Path of one file, relative to the data set's own directory; names are computed, never listed."""
        name = f"{file:09d}.{_SUFFIXES.get(self.format, self.format)}"
        return name if self.layout.folders == 1 else f"{file % self.layout.folders:04d}/{name}"


Finder: TypeAlias = Callable[[Dataset], FileSurvey]
"""Looks at the files that the `source` of a data set leads to; DliosimError where there are none, or damaged ones."""

_NEVER_BEFORE: Final[dict[str, Any]] = {
    "shape": None, "chunk": None, "compress": None, "compressible": 1.0, "parts": 1, "names": (), "source": "",
    "found": "",
}  # fmt: skip
