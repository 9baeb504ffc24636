"""Read HDF5 samples as an application does: by h5py, which finds, reads and decodes them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
from h5py import h5fd, h5p, h5s

from dliosim.errors import ExecutionError
from dliosim.formats.hdf5.names import find_datasets
from dliosim.formats.header_scanner import file_to_read
from dliosim.model import Dataset

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
    element_bytes: int  #: bytes of an element
    extents: tuple[int, ...]  #: shape of one sample in it, elements
    begin: int  #: offset of its bytes in a sample, bytes

    @property
    def row_bytes(self) -> int:
        return prod(self.extents) * self.element_bytes


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
        without a copy. With collective transfers every rank must make the same number of calls, with 0 samples where it
        has none. Raises ExecutionError [R401] where HDF5 cannot read.
        """
        length = count * self.row_bytes
        if first < 0 or count < 0 or first + count > self.samples or length > into.nbytes:
            text = f"{count} samples from {first} on, into {into.nbytes} bytes"
            raise ExecutionError(
                f"{self.path} has {self.samples} samples of {self.row_bytes} bytes: not {text}", "R401"
            )
        out = np.frombuffer(into, np.uint8)[:length]
        for part in self.parts:
            try:
                self._read_part(part, first, count, out)
            except (OSError, RuntimeError, ValueError) as error:
                text = f"{self.path}: HDF5 cannot read samples {first} to {first + count - 1}: {error}"
                raise ExecutionError(text, "R401") from error
        return length

    def close(self) -> None:
        """Close the file; collective where several ranks opened it."""
        self.file.close()

    def _read_part(self, part: _OpenPart, first: int, count: int, out: Any) -> None:
        stored = part.dset.get_space()
        if count == 0:
            stored.select_none()
            memory = h5s.create_simple((1,))
            memory.select_none()
            part.dset.read(memory, stored, np.empty(part.element_bytes, np.uint8), part.kind, self.transfer)
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
    """Raise the system's own error where it refuses the file: it is clearer than HDF5's."""
    with file_to_read(path):
        pass


def open_library(path: Path, dataset: Dataset, comm: object | None = None, collective: bool = False) -> Hdf5Handle:
    """Open a file as an application does, with an MPI communicator by all of its ranks together (driver "mpio").

    With `collective`, transfers are collective. Raises ExecutionError: [R403] where a communicator is given and this
    h5py is not parallel, [R401] where the file is no HDF5 file or has no such data sets; OSError as the calls do.
    """
    if comm is not None and not has_parallel_hdf5():
        raise ExecutionError(PARALLEL_MISSING, "R403")
    if not path.is_file():  # HDF5 would wait for a pipe
        _refuse_by_system(path)
    try:
        file = h5py.File(path, "r") if comm is None else h5py.File(path, "r", driver="mpio", comm=comm)
    except (OSError, RuntimeError) as error:
        _refuse_by_system(path)
        raise ExecutionError(f"{path} is no whole HDF5 file: {error}", "R401") from error
    try:
        return _build_handle(path, file, dataset.names, comm is not None and collective)
    except ExecutionError:
        file.close()
        raise
    except Exception as error:  # h5py maps HDF5's errors to a dozen types
        file.close()
        raise ExecutionError(f"{path} is no whole HDF5 file: {error}", "R401") from error


def _build_handle(path: Path, file: Any, names: tuple[str, ...], collective: bool) -> Hdf5Handle:
    transfer = h5p.create(h5p.DATASET_XFER)
    if collective:
        transfer.set_dxpl_mpio(h5fd.MPIO_COLLECTIVE)
    found: list[_OpenPart] = []
    begin, samples = 0, set()
    for _, dset in find_datasets(file, path, names):
        kind = dset.get_type()
        extents = tuple(int(extent) for extent in dset.shape)
        part = _OpenPart(dset, kind, kind.get_size(), extents[1:], begin)
        begin += part.row_bytes
        samples.add(extents[0])
        found.append(part)
    if len(samples) > 1:
        raise ExecutionError(f"{path}: data sets have different numbers of samples: {sorted(samples)}", "R401")
    return Hdf5Handle(path, file, tuple(found), transfer, samples.pop(), begin)
