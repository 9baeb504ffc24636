"""Read HDF5 samples as an application does: by h5py, which finds, reads and decodes them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
from h5py import h5d, h5fd, h5p, h5s, h5t, h5z

from dliosim.errors import ExecutionError
from dliosim.formats.hdf5.filters import encode, filter_code
from dliosim.formats.hdf5.geometry import RecordPart, chunk_shape, group_size, record_parts
from dliosim.formats.hdf5.index import find_datasets
from dliosim.formats.header_scanner import data_error, file_to_read
from dliosim.formats.protocols import Bytes, Filter, cut_bytes
from dliosim.model import ELEMENTS, Compression, Dataset

PARALLEL_MISSING: Final = (
    f"this h5py ({h5py.version.version}, HDF5 {h5py.version.hdf5_version}) reads without MPI: write `through direct` "
    "(`-D train.through=direct` for a loop `train`), which needs no h5py, or build h5py against a parallel HDF5 of the "
    "same MPI as mpi4py's, see docs/running.md#parallel-hdf5"
)


def has_parallel_hdf5() -> bool:
    """Return True if h5py can open files by MPI-IO."""
    return bool(h5py.get_config().mpi)


@dataclass(frozen=True, slots=True)
class _OpenPart:
    """One data set of a record."""

    dset: Any  #: h5py.h5d.DatasetID
    kind: Any  #: type of its elements, h5py.h5t.TypeID
    extents: tuple[int, ...]  #: shape of one sample in it, elements
    begin: int  #: offset of its bytes in a sample, bytes
    row_bytes: int  #: bytes of one sample in it


@dataclass(frozen=True, slots=True)
class Hdf5Handle:
    """An open file of samples."""

    path: Path  #: path of the file
    file: Any  #: h5py.File
    parts: tuple[_OpenPart, ...]  #: data sets that hold a sample, in the order of its bytes
    transfer: Any  #: property list of the reads (h5py.h5p), collective or not
    samples: int  #: number of samples
    row_bytes: int  #: bytes of a sample over all parts

    def read(self, first: int, count: int, into: memoryview) -> int:
        """Read `count` samples from `first` to the front of `into`; return the number of bytes.

        A sample is its bytes in every part, one part after the other. HDF5 reads a single part directly into `into`,
        without a copy. With collective transfers every rank must make the same number of calls, with 0 samples if it
        has none. Raises ExecutionError [R401] if HDF5 cannot read.
        """
        length = count * self.row_bytes
        if first < 0 or count < 0 or first + count > self.samples or length > into.nbytes:
            text = f"{count} samples from {first} on, into {into.nbytes} bytes"
            raise data_error(f"{self.path} has {self.samples} samples of {self.row_bytes} bytes: not {text}")
        out = np.frombuffer(into, np.uint8)[:length]
        for part in self.parts:
            try:
                self._read_part(part, first, count, out)
            except (OSError, RuntimeError, ValueError) as error:
                text = f"{self.path}: HDF5 cannot read samples {first} to {first + count - 1}: {error}"
                raise data_error(text) from error
        return length

    def close(self) -> None:
        """Close the file; collective if several ranks opened it."""
        self.file.close()

    def _read_part(self, part: _OpenPart, first: int, count: int, out: Any) -> None:
        stored = part.dset.get_space()
        if count == 0:
            stored.select_none()
            memory = h5s.create_simple((1,))
            memory.select_none()
            part.dset.read(memory, stored, np.empty(part.kind.get_size(), np.uint8), part.kind, self.transfer)
            return
        stored.select_hyperslab((first, *[0] * len(part.extents)), (count, *part.extents))
        # The memory space has the shape of the selection: between spaces of different rank HDF5 copies one element at
        # a time, which takes 1.2 ms for 32 KiB instead of 20 us.
        memory = h5s.create_simple((count, *part.extents))
        if part.row_bytes == self.row_bytes:
            part.dset.read(memory, stored, out, part.kind, self.transfer)
            return
        rows = np.empty((count, part.row_bytes), np.uint8)
        part.dset.read(memory, stored, rows, part.kind, self.transfer)
        out.reshape(count, -1)[:, part.begin : part.begin + part.row_bytes] = rows


def _refuse_by_system(path: Path) -> None:
    """Raise the system's own error if it refuses the file: it is clearer than HDF5's."""
    with file_to_read(path):
        pass


def open_library(path: Path, dataset: Dataset, comm: object | None = None, collective: bool = False) -> Hdf5Handle:
    """Open a file as an application does, with an MPI communicator by all of its ranks together (driver "mpio").

    With `collective`, transfers are collective. Raises ExecutionError: [R403] if a communicator is given and this
    h5py is not parallel, [R401] if the file is no HDF5 file or has no such data sets; OSError as the calls do.
    """
    if comm is not None and not has_parallel_hdf5():
        raise ExecutionError(PARALLEL_MISSING, "R403")
    if not path.is_file():  # HDF5 would wait for a pipe
        _refuse_by_system(path)
    try:
        file = h5py.File(path, "r") if comm is None else h5py.File(path, "r", driver="mpio", comm=comm)
    except (OSError, RuntimeError) as error:
        _refuse_by_system(path)
        raise data_error(f"{path} is no whole HDF5 file: {error}") from error
    try:
        return _build_handle(path, file, dataset.names, comm is not None and collective)
    except Exception as error:  # h5py maps HDF5's errors to a dozen types
        file.close()
        if isinstance(error, ExecutionError):
            raise
        raise data_error(f"{path} is no whole HDF5 file: {error}") from error


def _build_handle(path: Path, file: Any, names: tuple[str, ...], collective: bool) -> Hdf5Handle:
    transfer = h5p.create(h5p.DATASET_XFER)
    if collective:
        transfer.set_dxpl_mpio(h5fd.MPIO_COLLECTIVE)
    found: list[_OpenPart] = []
    begin, samples = 0, set()
    for _, dset in find_datasets(file, path, names):
        kind = dset.get_type()
        extents = tuple(int(extent) for extent in dset.shape)
        row_bytes = prod(extents[1:]) * kind.get_size()
        found.append(_OpenPart(dset, kind, extents[1:], begin, row_bytes))
        begin += row_bytes
        samples.add(extents[0])
    if len(samples) > 1:
        raise data_error(f"{path}: data sets have different numbers of samples: {sorted(samples)}")
    return Hdf5Handle(path, file, tuple(found), transfer, samples.pop(), begin)


#: The oldest version of every structure that can hold the data: the default of HDF5 before 2.0.
_VERSIONS: Final = ("earliest", "latest")


def chunk_filters(compress: Compression | None) -> tuple[Filter, ...]:
    """Return the filters of a chunk. No shuffle before them: the contents have the same distribution in all bytes."""
    if compress is None:
        return ()
    return (Filter("deflate", (compress.level,)),) if compress.codec == "gzip" else (Filter("lzf"),)


def lay_out(dataset: Dataset, path: Path, count: int) -> None:
    """Create a file in its full length, in which every sample has its place but is not written yet."""
    with h5py.File(path, "w", libver=_VERSIONS) as file:
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
    with h5py.File(path, "w", libver=_VERSIONS) as file:
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
    """Yield the start of each chunk of `count` samples from `first`, in elements."""
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
        flat = data.reshape(-1)
        yield flat if len(flat) == unit_bytes else np.pad(flat, (0, unit_bytes - len(flat)))
        return
    for sample in data.reshape(-1, *part.extents, element_bytes):
        for start in _chunk_starts(part, chunk):
            piece = sample[tuple(slice(begin, begin + length) for begin, length in zip(start, chunk[1:], strict=True))]
            made = np.zeros((*chunk[1:], element_bytes), np.uint8)
            made[tuple(slice(held) for held in piece.shape)] = piece
            yield made.reshape(-1)


def _chunk_starts(part: RecordPart, chunk: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the start of each chunk of one sample in it, in elements."""
    lengths = chunk[1:]
    for place in np.ndindex(*[-(-extent // length) for extent, length in zip(part.extents, lengths, strict=True)]):
        yield tuple(index * length for index, length in zip(place, lengths, strict=True))


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
    elif chunk is not None:  # a file of no samples has nothing to filter
        for step in chunk_filters(dataset.compress):
            create.set_filter(filter_code(step.name), h5z.FLAG_OPTIONAL, step.parameters)
    space = h5s.create_simple((count, *part.extents))
    kind = h5t.py_create(np.dtype(part.element).newbyteorder("<"))
    return h5d.create(file.id, part.name.encode(), kind, space, create), chunk
