"""Data sets of HDF5 samples, and their bytes by HDF5 itself and by the ranges of the index."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import h5py

from dliosim.formats.contract_tests import sample_ranges
from dliosim.formats.hdf5.format import hdf5
from dliosim.formats.hdf5.library import open_library
from dliosim.formats.protocols import FileIndex
from dliosim.model import Chunk, Compression, Dataset, Distribution, Layout, Shape


def described(
    size: int | None = None,
    shape: tuple[int, ...] | None = None,
    element: str = "uint8",
    chunk: tuple[Any, ...] | None = None,
    codec: Any = None,
    parts: int = 1,
    names: tuple[str, ...] = (),
    samples: int = 10,
) -> Dataset:
    """A data set of one file; the size follows from the shape."""
    whole = None if shape is None else Shape(shape, element)
    total = whole.size * parts if whole is not None else size or 0
    return Dataset(
        "d", 7, samples, Distribution("constant", (total,)), Layout("files", 1), "d", format="hdf5", shape=whole,
        chunk=None if chunk is None else Chunk(*chunk), compress=None if codec is None else Compression(codec, 4),
        parts=parts, names=names,
    )  # fmt: skip


ANY = described(size=1)
"""A data set of existing files, which says nothing that the index may use."""


def by_application(path: Path, names: list[str]) -> list[bytes]:
    """Each sample's bytes as h5py's own slices give them."""
    with h5py.File(path, "r") as file:
        whole = [file[name][()] for name in names]
    return [b"".join(one[row : row + 1].tobytes() for one in whole) for row in range(len(whole[0]))]


def by_library(path: Path, dataset: Dataset, at_once: int = 3) -> list[bytes]:
    """Each sample's bytes as `hdf5.library` reads them, in groups."""
    handle = open_library(path, dataset)
    try:
        found = bytearray(handle.samples * handle.row_bytes)
        for first in range(0, handle.samples, at_once):
            count = min(at_once, handle.samples - first)
            into = memoryview(found)[first * handle.row_bytes :]
            assert handle.read(first, count, into) == count * handle.row_bytes
        each = handle.row_bytes
        return [bytes(found[row * each : (row + 1) * each]) for row in range(handle.samples)]
    finally:
        handle.close()


def by_index(path: Path, dataset: Dataset, row_bytes: list[int]) -> list[bytes | None]:
    """Each sample's bytes from the ranges of the index and the decoder; None where a part is not in the file."""
    index, whole = hdf5(dataset).index(path), path.read_bytes()
    assert index.size == len(whole)
    return [_sample(index, whole, row, dataset, row_bytes) for row in range(index.samples)]


def _sample(index: FileIndex, whole: bytes, row: int, dataset: Dataset, row_bytes: list[int]) -> bytes | None:
    found = b""
    for column, each in zip(index.columns, row_bytes, strict=True):
        units = [row // column.samples] if column.pieces == 1 else range(row * column.pieces, (row + 1) * column.pieces)
        if not all(column.length[unit] for unit in units):
            return None
        stored = [whole[at : at + length] for at, length in sample_ranges(FileIndex(1, 0, (column,)), row)]
        if column.row_bytes:
            assert column.row_bytes == each
            found += b"".join(stored)
            continue
        decoded = [hdf5(dataset).decode(column, memoryview(unit)) for unit in stored]
        if any(unit is None for unit in decoded):
            return None
        begin = row % column.samples * each if column.pieces == 1 else 0
        found += b"".join(unit.tobytes() for unit in decoded if unit is not None)[begin : begin + each]
    return found


def row_bytes(path: Path, names: list[str]) -> list[int]:
    """Bytes of a sample in each of these data sets."""
    with h5py.File(path, "r") as file:
        return [prod(file[name].shape[1:]) * file[name].dtype.itemsize for name in names]
