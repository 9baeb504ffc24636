"""Files of numpy, `.npy`: one array a file, of a sample's shape, or (samples, *shape) where a file holds several."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from dliosim.errors import ExecutionError
from dliosim.formats.header_scanner import file_to_look_at
from dliosim.formats.numpy_files.library import ArrayFile
from dliosim.formats.numpy_files.npy_header import (
    array_column,
    array_header,
    parse_array_header,
    refuse_arrays,
    sample_rows,
)
from dliosim.formats.protocols import FileIndex, Framed, LibraryReadable


class Npy(LibraryReadable, Framed):
    """The format `npy`; see `protocols.Framed`."""

    name = "npy"

    def refuse(self) -> tuple[str, str] | None:
        """Refuse several data sets a record, compression, and sizes that vary within a file."""
        return refuse_arrays(self.dataset, self.name, ())

    def index(self, path: Path) -> FileIndex:
        """Return the places of the samples by the header of the array. ExecutionError [R401] where the size differs."""
        with file_to_look_at(path) as look:
            size = look.size
            array = parse_array_header(lambda most: look.read(most, 0), str(path))
        if array.header + array.size != size:
            text = f"{path} has {size} bytes, and by its header, {array}, it has {array.header + array.size}"
            raise ExecutionError(text, "R401")
        rows = sample_rows(array, self.dataset, str(path))
        return FileIndex(rows.samples, size, (array_column(rows, array.header),), array.header, rows.size)

    def open_library(self, path: Path, comm: object | None, collective: bool) -> ArrayFile:
        """Open a file by `numpy.load`, which does not use MPI."""
        return ArrayFile(path, self.dataset)

    @cached_property
    def header(self) -> int:
        """Length of the array's header, which is the same for any number of samples."""
        return len(array_header(self.dataset, 1, 1))

    def write_header(self, count: int, end: int, checksum: int) -> bytes:
        """Return the header of the array."""
        return array_header(self.dataset, count, end - self.header)
