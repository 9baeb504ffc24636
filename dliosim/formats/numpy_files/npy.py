"""Files of numpy, `.npy`: one array a file, of a sample's shape, or (samples, *shape) where a file holds several."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from dliosim.errors import ExecutionError
from dliosim.formats.defaults import ContiguousFormat
from dliosim.formats.header_scanner import file_to_read, read_at
from dliosim.formats.numpy_files.library import ArrayFile
from dliosim.formats.numpy_files.npy_header import (
    array_column,
    array_header,
    parse_array_header,
    refuse_arrays,
    sample_rows,
)
from dliosim.formats.protocols import Bytes, Column, FileIndex, Framed
from dliosim.lazy_numpy import np
from dliosim.model import Dataset


class Npy(ContiguousFormat):
    """The format `npy`; see `protocols.Framed`."""

    name: str = "npy"

    def variant(self, dataset: Dataset) -> Npy:
        """Return the format itself."""
        return self

    def refuse(self, dataset: Dataset) -> tuple[str, str] | None:
        """Refuse several data sets a record, compression, and sizes that vary within a file."""
        return refuse_arrays(dataset, self.name, ())

    def needs(self, dataset: Dataset) -> tuple[str, str] | None:
        """Return None: no module is needed."""
        return None

    def index(self, path: Path, dataset: Dataset) -> FileIndex:
        """Return the places of the samples by the header of the array. ExecutionError [R401] where the size differs."""
        with file_to_read(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            array = parse_array_header(lambda most: read_at(stream.fileno(), most, 0), str(path))
        if array.header + array.size != size:
            text = f"{path} has {size} bytes, and by its header, {array}, it has {array.header + array.size}"
            raise ExecutionError(text, "R401")
        rows = sample_rows(array, dataset, str(path))
        return FileIndex(rows.samples, size, (array_column(rows, array.header),), array.header, rows.size)

    def decode(self, dataset: Dataset, column: Column | None, data: memoryview) -> Bytes | None:
        """Return the bytes as they are: they are the elements."""
        return np.frombuffer(data, np.uint8)

    def open_library(self, path: Path, dataset: Dataset, comm: object | None, collective: bool) -> ArrayFile:
        """Open a file by `numpy.load`, which does not use MPI."""
        return ArrayFile(path, dataset)

    def header(self, dataset: Dataset) -> int:
        """Return the length of the array's header, which is the same for any number of samples."""
        return len(array_header(dataset, 1, 1))

    def write_header(self, dataset: Dataset, count: int, end: int, checksum: int) -> bytes:
        """Return the header of the array."""
        return array_header(dataset, count, end - self.header(dataset))


NPY: Final[Framed] = Npy()
