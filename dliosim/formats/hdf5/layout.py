"""Write HDF5 files: preallocated for all ranks to write into, or built chunk by chunk through a filter.

Both have only structures that the oldest readers know (superblock 0, chunks in a version 1 B-tree) and no time stamps.
So the same data set always has the same bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
from h5py import h5d, h5p, h5s, h5t, h5z

from dliosim.formats.hdf5.filters import encode
from dliosim.formats.hdf5.geometry import RecordPart, chunk_shape, group_size, record_parts
from dliosim.formats.protocols import Bytes, Filter, cut_bytes
from dliosim.model import ELEMENTS, Compression, Dataset

#: The oldest version of every structure that can hold the data: the default of HDF5 before 2.0.
_VERSIONS: Final = ("earliest", "latest")


def chunk_filters(compress: Compression | None) -> tuple[Filter, ...]:
    """Return the filters of a chunk. No shuffle before them: the contents have the same distribution in all bytes."""
    if compress is None:
        return ()
    return (Filter("deflate", (compress.level,)),) if compress.codec == "gzip" else (Filter("lzf"),)


def lay_out(dataset: Dataset, path: Path, count: int) -> None:
    """Create a file in its full length, in which every sample has its place but is not written yet."""
    with _create_file(path) as file:
        for part in record_parts(dataset):
            _create_dataset(file, dataset, part, count)


def encode_group(dataset: Dataset, count: int, samples: Bytes) -> list[bytes]:
    """Return the chunks of one group, part by part: for each 4 bytes of its filter mask, then the stored bytes."""
    filters, begin, made = chunk_filters(dataset.compress), 0, []
    for part in record_parts(dataset):
        data = samples[:, begin : begin + part.row_bytes]
        begin += part.row_bytes
        chunk = chunk_shape(dataset, part, count)
        if chunk is None:
            continue
        for unit in _cut_chunks(part, chunk, data):
            mask, stored = _encode_chunk(filters, unit)
            made.append(b"".join([mask.to_bytes(4, "little"), *stored]))
    return made


def assemble(dataset: Dataset, path: Path, count: int, groups: Iterator[list[bytes]]) -> None:
    """Write a file of encoded groups, which come in order, by H5Dwrite_chunk, which encodes nothing itself."""
    rows = group_size(dataset, count)
    with _create_file(path) as file:
        made = [(part, *_create_dataset(file, dataset, part, count)) for part in record_parts(dataset)]
        for number, encoded in enumerate(groups):
            first = number * rows
            places = (
                (dset, place)
                for part, dset, chunk in made
                for place in _chunk_offsets(part, chunk, first, min(rows, count - first))
            )
            for (dset, place), unit in zip(places, encoded, strict=True):
                dset.write_direct_chunk(place, memoryview(unit)[4:], int.from_bytes(unit[:4], "little"))


def _encode_chunk(filters: tuple[Filter, ...], unit: Bytes) -> tuple[int, list[bytes | memoryview]]:
    """Return the filter mask of a chunk, and the stored bytes in pieces: a sample may be hundreds of MB."""
    data = np.ascontiguousarray(unit).reshape(-1).data
    if not filters:
        return 0, [data]
    if filters[0].name == "deflate":
        deflater = zlib.compressobj(filters[0].parameters[0])
        return 0, [*map(deflater.compress, cut_bytes(data)), deflater.flush()]
    mask, stored = encode(filters, np.frombuffer(data, np.uint8))
    return mask, [stored]


def _chunk_offsets(part: RecordPart, chunk: tuple[int, ...], first: int, count: int) -> Iterator[tuple[int, ...]]:
    """Yield the begin of each chunk of `count` samples from `first`, in elements."""
    if chunk[1:] == part.extents:
        yield (first, *[0] * len(part.extents))
        return
    for row in range(first, first + count):
        for start in _chunk_starts(part, chunk):
            yield (row, *start)


def _cut_chunks(part: RecordPart, chunk: tuple[int, ...], data: Bytes) -> Iterator[Bytes]:
    """Yield the chunks of `data`, the samples of one group, in the order of `_chunk_offsets`."""
    element_bytes = ELEMENTS[part.element]
    unit_bytes = prod(chunk) * element_bytes
    if chunk[1:] == part.extents:
        yield _pad_chunk(data.reshape(-1), unit_bytes)
        return
    for sample in data.reshape(-1, *part.extents, element_bytes):
        for start in _chunk_starts(part, chunk):
            piece = sample[tuple(slice(begin, begin + length) for begin, length in zip(start, chunk[1:], strict=True))]
            made = np.zeros((*chunk[1:], element_bytes), np.uint8)
            made[tuple(slice(held) for held in piece.shape)] = piece
            yield made.reshape(-1)


def _chunk_starts(part: RecordPart, chunk: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the begin of each chunk of one sample in it, in elements."""
    lengths = chunk[1:]
    for place in np.ndindex(*[-(-extent // length) for extent, length in zip(part.extents, lengths, strict=True)]):
        yield tuple(index * length for index, length in zip(place, lengths, strict=True))


def _pad_chunk(data: Bytes, length: int) -> Bytes:
    if len(data) == length:
        return np.ascontiguousarray(data)
    out = np.zeros(length, np.uint8)
    out[: len(data)] = data
    return out


@contextmanager
def _create_file(path: Path) -> Iterator[Any]:
    with h5py.File(path, "w", libver=_VERSIONS) as file:
        yield file


def _create_dataset(file: Any, dataset: Dataset, part: RecordPart, count: int) -> tuple[Any, Any]:
    """Create the data set of a part; return it and its chunk shape. Without a filter its space is allocated at once."""
    chunk = chunk_shape(dataset, part, count)
    create = h5p.create(h5p.DATASET_CREATE)
    create.set_obj_track_times(False)
    create.set_fill_time(h5d.FILL_TIME_NEVER)
    if chunk is not None:
        create.set_chunk(chunk)
    if dataset.compress is None:
        create.set_alloc_time(h5d.ALLOC_TIME_EARLY)
    elif chunk is None:
        pass  # a file of no samples: nothing to filter
    elif dataset.compress.codec == "gzip":
        create.set_deflate(dataset.compress.level)
    else:
        create.set_filter(h5z.FILTER_LZF, h5z.FLAG_OPTIONAL, ())
    space = h5s.create_simple((count, *part.extents))
    kind = h5t.py_create(np.dtype(part.element).newbyteorder("<"))
    return h5d.create(file.id, part.name.encode(), kind, space, create), chunk
