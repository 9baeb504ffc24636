"""Data sets: the number and size of samples, and the files that hold them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from dliosim.hashes import sha256
from dliosim.lazy_numpy import np
from dliosim.model.distributions import Distribution, constant
from dliosim.model.phrase import PathBelow, Phrase, Root

if TYPE_CHECKING:
    from numpy.typing import NDArray


#: Draws of a size above this are lowered to it, bytes
LARGEST_SAMPLE: Final = float(1 << 53)


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
    """Return the counts in compact form; None if file i * F // N holds sample i of N, as closed forms give these."""
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


#: Element types of samples, by numpy's names, and their bytes
ELEMENTS: Final = {
    "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
    "float16": 2, "float32": 4, "float64": 8,
}  # fmt: skip

#: Bytes of a data set or checkpoint, at most: offsets have 63 bits
MAX_TOTAL: Final = 2**62

#: Size of samples whose sizes are not known. It is not constant, so that no closed form is used for them.
UNKNOWN_SIZE: Final = Distribution("uniform", (1.0, 1.0))

#: Contents compress because in every period of this many bytes of a sample only the first are random, others are zero.
#: A run of zeros costs Deflate some 3 bytes: longer periods come closer to the ratio, but need larger samples.
CONTENT_PERIOD: Final = 256

#: Endings of file names that differ from the format's name, as readers of the format expect them.
_SUFFIXES: Final = {"indexed": "bin"}


@dataclass(frozen=True, slots=True)
class Layout:
    """The assignment of samples to files: sample i of N is in file i * files // N."""

    kind: Literal["file per sample", "files", "file per rank", "shared file"]  #: as the pattern says it
    #: with `layout file per rank`: number of ranks that prepared it. Default: the ranks of the job
    files: Annotated[int, Phrase("COUNT rank(s)", "prepared by", fixed="they exist already")]
    folders: int = 1  #: folders over which files are dealt round robin


@dataclass(frozen=True, slots=True)
class Stripe:
    """Striping that the file system is asked for."""

    size: int  #: bytes of one stripe
    targets: int  #: number of storage targets


STRIPE: Final = f"SIZE>=1 over COUNT<={1 << 20} target(s)"
WRITTEN: Final = "they are written already"


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
class Columns:
    """Columns of one type in a table."""

    number: int  #: columns
    element: str  #: type of an element, a key of `ELEMENTS`
    length: int = 1  #: elements of a row

    @property
    def width(self) -> int:
        """Bytes of a row in each column."""
        return self.length * ELEMENTS[self.element]


@dataclass(frozen=True, slots=True)
class Chunk:
    """The amount of a data set that is stored and compressed as a unit."""

    number: int  #: samples, bytes or elements
    unit: Literal["samples", "bytes", "elements"]  #: unit of `number`
    extents: tuple[int, ...] = ()  #: of elements: the shape of a chunk within one sample


@dataclass(frozen=True, slots=True)
class Compression:
    """A codec and its level."""

    codec: Literal["gzip", "lzf", "snappy", "zstd"]  #: name of the codec
    level: int = 0  #: 0 if the codec has no levels


@dataclass(frozen=True, slots=True)
class FileSurvey:
    """The files that match the name pattern of an existing data set."""

    samples: int  #: samples of all files
    files: int  #: number of files
    digest: str  #: hash of what was asked for, and of the names, sizes and numbers of samples of the files
    size: Distribution = UNKNOWN_SIZE  #: bytes of a sample; constant only if all samples have the same size
    counts: FileCounts | None = None  #: samples of each file; None if closed forms give them


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set without any default left open."""

    name: str  #: name in the pattern
    seed: int  #: of sizes, orders and contents
    #: number of samples; for existing files, the number they contain
    samples: Annotated[int, Phrase("COUNT", fixed="they are counted")]
    #: bytes of a sample's contents, at least 1 B, without the format's own bytes; may be a distribution: `normal(1 MB,
    #: 100 kB) clipped to 1 kB and 2 MB`. Default: required, or a `shape`
    size: Annotated[Distribution, Phrase("SIZES")]
    #: files that hold the samples. `file per sample`; `8 files`: sample i is in file i * 8 // samples; `file per rank`:
    #: as `N files` for the N ranks that prepare it; `shared file`. `... in 4 folders` deals files round robin to
    #: folders (not with `shared file`). Default: `file per sample`, without folders
    layout: Annotated[Layout, Phrase(rule="layout", fixed="their layout is fixed")]
    #: directory under the root. Files are in a subdirectory named by a digest of everything that decides their bytes,
    #: so two layouts or sizes never collide
    path: PathBelow
    #: storage tier: `data` is `--dir`, any other name needs `--root NAME=DIR`. A `--root` that the pattern does not use
    #: is refused
    root: Root = "data"
    format: Annotated[str, Phrase(rule="format")] = "raw"  #: container of the samples, see [formats.md](formats.md)
    #: bytes before the first sample of each file
    header: Annotated[int, Phrase("SIZE", fixed=WRITTEN)] = 0
    #: offsets of samples are rounded up to multiples of this
    align: Annotated[int, Phrase(f"SIZE>=1<={1 << 30}", fixed=WRITTEN)] = 1
    #: striping requested from Lustre (`lfs setstripe`, before files are made) and from MPI-IO (hints `striping_factor`,
    #: `striping_unit`). The report shows what was granted, notes of `prepare` what was refused. Default: the file
    #: system's
    stripe: Annotated[Stripe | None, Phrase(STRIPE, fixed=WRITTEN)] = None
    #: array that is a sample, which gives its size: `128 x 128 x 128 x 4 of int16`. Up to 32 dimensions, which may be
    #: expressions, with spaces around each `x`; `int8` to `int64`, `uint8` to `uint64`, `float16`, `float32`,
    #: `float64`. Default: none
    shape: Annotated[Shape | None, Phrase(rule="shape")] = None
    #: unit of storage and compression: `off`, `N samples`, a size, or `128 x 128`, the shape of a chunk of one sample,
    #: with as many dimensions as its `shape` (hdf5). Default: the format's
    chunk: Annotated[Chunk | None, Phrase(rule="chunk", fixed=WRITTEN)] = None
    #: codec: `gzip` 1 to 9 (default 4), `lzf`, `snappy`, `zstd` 1 to 22 (default 3), `off`. Default: `off`
    compress: Annotated[Compression | None, Phrase(rule="compress", fixed=WRITTEN)] = None
    #: `2 : 1` makes contents that compress to half, for `compress` or for storage that compresses; up to 1000 : 1.
    #: Default: `off`, random bytes
    compressible: Annotated[float, Phrase(rule="compressible", fixed=WRITTEN)] = 1.0
    #: unit of a draw of `size`: a sample, or a file, whose samples then all have that size. With several samples per
    #: file `npz`, `npy`, `hdf5` and `parquet` vary only `by file`; in chunks or compressed they need a `clipped to`
    sizes: Annotated[Literal["by sample", "by file"], Phrase(fixed=WRITTEN)] = "by sample"
    #: number of data sets (arrays of equal size) that hold a record, if the format has them: `shape` is that of each,
    #: `size` that of all together. Names are for `from files`
    parts: Annotated[int, Phrase(keyword="datasets", rule="datasets")] = 1
    names: tuple[str, ...] = ()  #: data sets or columns that are read from the files of a `source`
    #: columns of a table's row (parquet), which give its size: `40 of float32, 160 of int64`, or `26 of 3 x int32` for
    #: lists of three; types as in `shape`. Default: none
    columns: Annotated[tuple[Columns, ...], Phrase(rule="columns", fixed="the files have their own")] = ()
    #: names of existing files, as a pattern relative to `root`, see [existing files](language.md#existing-files)
    source: Annotated[str, Phrase("PATH", "from files", rule="source")] = ""
    found: str = ""  #: `FileSurvey.digest` of a `source`
    counts: FileCounts | None = None  #: `FileSurvey.counts` of a `source`

    @property
    def element(self) -> str:
        """Element type of a sample; bytes if there is no shape."""
        return self.shape.element if self.shape is not None else "uint8"

    @property
    def members(self) -> tuple[Dataset, ...]:
        """The data sets of several that are read as one; else this one."""
        return (self,)

    @property
    def rows(self) -> int:
        """Samples of data sets that make a sample of a loop that reads this one."""
        return 1

    @property
    def constant_size(self) -> int | None:
        """Bytes of every sample, or None if sizes vary."""
        return int(self.size.parameters[0]) if self.size.is_constant else None

    @property
    def largest_size(self) -> float:
        """Bytes of the largest sample that can be drawn: `LARGEST_SAMPLE` if nothing limits it."""
        drawn = self.size.parameters[-1] if self.size.kind in ("constant", "uniform") else LARGEST_SAMPLE
        return max(1.0, min(drawn, LARGEST_SAMPLE if self.size.high is None else self.size.high))

    def fix_size(self, size: float) -> Dataset:
        """Return the data set with one size for all samples, as in one file when sizes are drawn by file."""
        return replace(self, size=constant(float(size)), sizes="by sample")

    @property
    def content_ratio(self) -> float:
        """Return how far contents compress at most: samples begin with random bytes, so small ones compress less."""
        size, random = self.constant_size, round(CONTENT_PERIOD / self.compressible)
        return self.compressible if size is None or size >= CONTENT_PERIOD else size / max(min(size, random), 1)

    @property
    def column_widths(self) -> tuple[int, ...]:
        """Bytes of a row in each part of a sample of constant size."""
        if self.columns:
            return tuple(one.width for one in self.columns for _ in range(one.number))
        return (((self.constant_size or 0) // self.parts),) * self.parts

    def first_columns(self, count: int) -> Dataset:
        """Return the table of its first columns alone, in the same files."""
        left, kept = count, []
        for one in self.columns:
            if left > 0:
                kept.append(replace(one, number=min(one.number, left)))
                left -= one.number
        size = float(sum(self.column_widths[:count]))
        names = tuple(f"column_{part}" for part in range(count))
        return replace(self, size=constant(size), columns=tuple(kept), parts=count, names=names)

    def chunks_of_sample(self, size: float) -> float:
        """Return how many chunks a sample of `size` bytes is cut into: at least 1, perhaps a fraction more."""
        chunk = self.chunk
        if chunk is None or chunk.unit == "samples":
            return 1.0
        if self.shape is not None and len(chunk.extents) == len(self.shape.extents):
            return float(prod(-(-whole // cut) for whole, cut in zip(self.shape.extents, chunk.extents, strict=True)))
        return max(1.0, size / chunk.number)

    def samples_of_unit(self, size: float) -> float:
        """Return how many samples of `size` bytes share an encoded chunk or row group; 1 if its size is a default."""
        chunk = self.chunk
        if chunk is None or chunk.extents or (self.compress is None and self.format != "parquet"):
            return 1.0
        return max(1.0, chunk.number / (1.0 if chunk.unit == "samples" else size))

    def digest(self) -> str:
        """Return 16 hexadecimal digits of everything that determines the files' bytes and striping."""
        described: dict[str, Any] = asdict(self)
        del described["path"], described["root"], described["counts"]  # `found` stands for these
        for name, usual in _NEVER_BEFORE.items():  # a new field with its default does not change the digest of old data
            if described[name] == usual:
                del described[name]
        if self.chunk is not None and not self.chunk.extents:
            del described["chunk"]["extents"]
        text = json.dumps(described, sort_keys=True)
        return sha256(text.encode()).hexdigest()[:16]

    def folder_name(self, folder: int) -> str:
        """Return the path of a folder of files, relative to the data set's directory; '.' if there is only one."""
        return "." if self.layout.folders == 1 else f"{folder:04d}"

    def file_name(self, file: int) -> str:
        """Return the path of one file, relative to the data set's directory; names are computed, never listed."""
        name = f"{file:09d}.{_SUFFIXES.get(self.format, self.format)}"
        return name if self.layout.folders == 1 else f"{file % self.layout.folders:04d}/{name}"


#: Function that surveys the files of a data set's `source`; DliosimError where there are none, or damaged ones
Finder: TypeAlias = Callable[[Dataset], FileSurvey]

_NEVER_BEFORE: Final[dict[str, Any]] = {
    "shape": None, "chunk": None, "compress": None, "compressible": 1.0, "parts": 1, "names": (), "source": "",
    "found": "", "sizes": "by sample", "columns": (),
}  # fmt: skip


#: What else the field calls these settings: `language/suggest/synonyms.py` says how it is read.
OTHER_WORDS: Final = """
samples
    num_samples, n_samples, total_samples, records
    num_samples_per_file, samples_per_file, maxcount -> FILES * {}
size
    record_length, record_length_bytes -> {} B
    record_length_stdev, record_length_bytes_stdev -> normal(1 MB, {} B)
    record_size, sample_size, item_size, file_size, block_size, segment_size
layout: file per sample | 8 files | file per rank | shared file
    num_files_train, num_files_eval, num_files, nrfiles, files, num_shards, shards -> {} files
    file_access
    file_per_process -> file per rank | shared file
    num_subfolders_train, num_subfolders, num_folders, folders, subfolders -> file per sample in {} folders
format: raw | tfrecord | npz | hdf5
    file_format, data_format, file_type, record_format
header
    header_size
align
    alignment, blockalign
stripe
    stripe_count, striping_factor -> 1 MiB over {} targets
    stripe_size, striping_unit -> {} over 4 targets
    striping
shape: 224 x 224 x 3 of uint8
    dims, dimensions, record_dims
    dtype, element_type -> SHAPE of {}
chunk: 4 samples | 4 MiB | 128 x 128
    chunk_size, chunks, chunking, row_group_size
columns: 40 of float32, 160 of int64
    fields, features
compress: off | gzip 4 | zstd 3 | lzf | snappy
    compression, codec, compressor
    gzip -> gzip 4 | off
    compression_level -> gzip {}
compressible: off | 2 : 1
    compression_ratio -> {} : 1
    buffer_compress_percentage -> 2 : 1
datasets: 2 | "image", "label"
    num_dset_per_record, num_datasets, columns
    field, key, variable, dset, h5_key, dataset_name, array -> {}
from files
    existing_files, glob, urls, url, data_files, file_pattern
path
    data_folder, data_dir, data_path, dir, directory, folder, filename, file, output
    checkpoint_folder, checkpoint_dir, save_dir
root
    tier, mount, file_system
"""
