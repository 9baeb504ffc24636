"""A data set that looks like existing files: what `prepare` has to write so that reading it costs what they cost."""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dliosim.execute.payload.payload_format import dress_function, fill_part
from dliosim.formats.protocols import ENCODED, Column, ExistingFiles, FileIndex, Filter, Framed
from dliosim.formats.registry import bind
from dliosim.model import Chunk, Compression, Dataset, Layout, Shape, constant
from dliosim.model.counter_rng import key
from dliosim.model.dataset import CONTENT_PERIOD
from dliosim.model.fitted_sizes import fit_sizes
from dliosim.readable import count

Ints = NDArray[np.int64]
Sizes = NDArray[np.float64]

#: What a filter of HDF5, zip or Parquet is as a codec that formats write.
_CODECS: Final = {"deflate": "gzip", "gzip": "gzip", "lzf": "lzf", "zstd": "zstd", "snappy": "snappy"}
#: The level that deflate and zstd have by default, where files do not say theirs.
_USUAL_LEVEL: Final = {"gzip": 6, "zstd": 3}
#: The codec that replaces those that no format writes.
_INSTEAD: Final = Compression("gzip", 4)
#: Steps of an encoding that compress nothing.
_NO_CODEC: Final = ("shuffle", "fletcher32", "elements", "skipped", "tiled")

#: Contents that are looked at for how far they compress: pieces, and bytes of each.
_PIECES: Final = 32
_PIECE: Final = 256 << 10
#: Ratios below this are those of random bytes.
_RANDOM: Final = 1.02


@dataclass(frozen=True, slots=True)
class Lookalike:
    """A data set that looks like existing files, and where it does not."""

    dataset: Dataset  #: what `prepare` writes
    described: float  #: share of the files' bytes that samples and indexes are
    ratio: float  #: bytes of contents for each byte that they take compressed: by the files' codec, else by gzip 1
    size_error: float  #: greatest difference between the shares of samples up to a size, here and there
    notes: tuple[str, ...]  #: what differs, in sentences


def describe_files(found: Dataset, files: ExistingFiles, root: Path, path: str) -> Lookalike:
    """Return a data set like the existing files of `found`, to be prepared in `path` below its root."""
    pairs = [(root / name, one) for name, one in zip(files.names, files.indexes, strict=True) if one.samples]
    names, indexes, notes = [name for name, _ in pairs], [one for _, one in pairs], list[str]()
    first = indexes[0].columns[0]
    layout = _find_layout(found, names, indexes, notes)
    base = replace(found, source="", found="", counts=None, names=(), path=path, layout=layout, parts=1)
    base = replace(base, compress=_find_codec(first, notes), chunk=_find_chunk(first))
    sizes, are_by_file = _sample_sizes(base, indexes)
    # Sizes of files count by their samples: exactly up to as many as are drawn to compare them.
    each = np.array([one.samples for one in indexes]) if are_by_file else np.ones(len(sizes), np.int64)
    size, error = fit_sizes(np.repeat(sizes, np.maximum(each // max(each.sum() >> 14, 1), 1)))
    base = replace(base, size=size)
    if are_by_file and not size.is_constant and layout.kind != "file per sample":
        base = replace(base, sizes="by file")
    base = _split_arrays(base, bind(found).shape(names[0]), len(indexes[0].columns), notes)
    stored = sum(int(column.length.sum()) for one in indexes for column in one.columns)
    if base.compress is not None:
        ratio, unit = float(np.dot(sizes, each)) / max(stored, 1), first.unit_bytes
    else:
        ratio, unit = _measure_ratio(names, indexes), _PIECE
    # Text and images are made by rules of their own.
    if bind(replace(base, compressible=2.0)).refuse() is None:
        base = replace(base, compressible=_fit_ratio(base, ratio, unit))
    if len({tuple(step.name for step in one.columns[0].filters) for one in indexes}) > 1:
        notes.append("files are not compressed in one way: here as the first one is")
    known = (stored + sum(one.touched for one in files.indexes)) / max(sum(one.size for one in files.indexes), 1)
    return Lookalike(base, min(known, 1.0), ratio, error, tuple(notes))


def _split_arrays(base: Dataset, shape: Shape | None, arrays: int, notes: list[str]) -> Dataset:
    """Return the data set with the arrays of each sample, which have a shape or are equally large."""
    size = base.constant_size
    if shape is not None and size is not None and size % shape.size == 0:
        return replace(base, shape=shape, parts=size // shape.size)
    if arrays == 1:
        return base
    split = replace(base, parts=arrays)
    made = base if size is None or size % arrays or bind(split).refuse() is not None else split
    notes.append(f"a sample has {arrays} arrays of different sizes, and here {count(made.parts, 'array')} of one size")
    return made


def _find_layout(found: Dataset, paths: list[Path], indexes: list[FileIndex], notes: list[str]) -> Layout:
    counts = {one.samples for one in indexes}
    if len(counts) > 1 and max(counts) - min(counts) > 1:
        notes.append(f"files have {min(counts)} to {max(counts)} samples, and as many each here")
    folders = len({path.parent for path in paths})
    is_shared = found.layout.kind == "shared file"
    return found.layout if is_shared else replace(found.layout, files=len(paths), folders=folders)


def _find_codec(column: Column, notes: list[str]) -> Compression | None:
    """Return the codec of a column; gzip, with a note, in place of one that no format writes."""
    step = next((step for step in column.filters if step.name not in _NO_CODEC), None)
    if step is None:
        return None
    codec = _CODECS.get(step.name)
    if codec is None:
        notes.append(f"`{step.name}` is not written: gzip compresses as far here")
        return _INSTEAD
    is_level = step.name == "deflate" and len(step.parameters) == 1 and step.parameters[0] > 0
    return Compression(codec, step.parameters[0] if is_level else _USUAL_LEVEL.get(codec, 0))  # type: ignore[arg-type]


def _find_chunk(column: Column) -> Chunk | None:
    """Return the chunk of a column with units that are read or written whole."""
    tiled = next((step.parameters[1:] for step in column.filters if step.name == "tiled"), ())
    if tiled:
        return Chunk(int(np.prod(tiled)), "elements", tiled)
    if column.pieces > 1:
        return Chunk(column.unit_bytes, "bytes")
    has_units = column.filters and len(column.offset) > 1
    return Chunk(column.samples, "samples") if has_units else None


def _sample_sizes(base: Dataset, indexes: list[FileIndex]) -> tuple[Sizes, bool]:
    """Return the bytes of contents of samples, or of one of each file if those of a file are equal, and if so True."""
    known = all(one.sample_bytes or one.columns[0].row_bytes != ENCODED for one in indexes)
    if known:
        each = [one.sample_bytes or sum(column.row_bytes for column in one.columns) for one in indexes]
        return np.array(each, np.float64), True
    if base.compress is not None:  # values of varying length: a row has the mean of its group
        whole = [sum(column.unit_bytes * len(column.length) for column in one.columns) / one.samples for one in indexes]
        return np.rint(np.array(whole)), True
    lengths = np.concatenate([one.columns[0].length for one in indexes])
    return _strip_frames(base, lengths), False


def _strip_frames(base: Dataset, lengths: Ints) -> Sizes:
    """Return the bytes of contents of samples that have these lengths with the frames of their format."""
    form = bind(replace(base, size=constant(1.0)))
    if not isinstance(form, Framed):
        return lengths.astype(np.float64)
    frames = form.length(lengths) - lengths
    return np.maximum(lengths - frames, 1).astype(np.float64)


def _measure_ratio(paths: list[Path], indexes: list[FileIndex]) -> float:
    """Return how far gzip 1 compresses contents: pieces of samples of all files, evenly spaced."""
    given = taken = 0
    for piece in _read_pieces(paths, indexes):
        given, taken = given + len(piece), taken + len(zlib.compress(piece, 1))
    return given / max(taken, 1)


def _read_pieces(paths: list[Path], indexes: list[FileIndex]) -> Iterator[bytes]:
    number = len(paths)
    each = -(-_PIECES // number)
    for file in np.unique(np.linspace(0, number - 1, min(number, _PIECES)).astype(int)).tolist():
        column = max(indexes[file].columns, key=lambda one: int(one.length.sum()))
        first, last = int(column.offset.min()), int((column.offset + column.length).max())
        descriptor = os.open(paths[file], os.O_RDONLY)
        try:
            for place in np.linspace(first, max(last - _PIECE, first), each).astype(int).tolist():
                yield os.pread(descriptor, min(_PIECE, last - place), place)
        finally:
            os.close(descriptor)


def _fit_ratio(base: Dataset, ratio: float, unit: int) -> float:
    """Return the `compressible` with which contents compress to a ratio, in units of some bytes, by the codec.

    Samples begin with random bytes, so small ones compress less than large ones.
    """
    if ratio < _RANDOM:
        return 1.0
    encode, sample = _encoder(base.compress), max(round(base.size.nonnegative_mean()), 1)
    length = min(sample, _PIECE) // base.parts * base.parts
    rows = max(min(unit * base.parts, _PIECE) // length, 1)

    def reach(random: int) -> float:
        dress = dress_function(bind(replace(base, compressible=CONTENT_PERIOD / random)))
        made = np.empty((rows, length), np.uint8)
        for row in range(rows):
            fill_part(dress, key(base.seed, "ratio", row), 0, made[row].data)
        arrays = made.reshape(rows, base.parts, -1).transpose(1, 0, 2)
        return made.size / sum(encode(array.tobytes()) for array in arrays)

    low, high = 1, CONTENT_PERIOD  # random bytes of a period: the most that compress as far, and the fewest that do not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if reach(middle) >= ratio else (low, middle)
    nearest = min(low, high, key=lambda random: abs(math.log(reach(random) / ratio)))
    return float(f"{CONTENT_PERIOD / nearest:.5g}")


def _encoder(codec: Compression | None) -> Callable[[bytes], int]:
    """Return the function of data to the bytes that they take, compressed by a codec; gzip 1 if there is none."""
    used = codec or Compression("gzip", 1)
    if used.codec == "gzip":
        return lambda data: len(zlib.compress(data, used.level))
    if used.codec == "lzf":
        from dliosim.formats.hdf5.filters import encode

        return lambda data: len(encode((Filter("lzf"),), np.frombuffer(data, np.uint8))[1])
    import pyarrow as pa

    compressor = pa.Codec(used.codec, used.level or None)
    return lambda data: len(compressor.compress(data))
