r"""Arrays as numpy writes them: the header before their bytes, and the number of samples that they hold.

The format is numpy's own, https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html: 6 bytes `\x93NUMPY`,
2 of version, 2 (version 1) or 4 of length, and a Python dictionary of type, order and shape, padded with spaces.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from io import BytesIO
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dliosim.formats.header_scanner import data_error, file_to_look_at, report_damage
from dliosim.formats.protocols import ENCODED, Bytes, Column, FileIndex, Filter, Framed, LibraryReadable
from dliosim.formats.unsupported import refuse_sizes, refuse_unused
from dliosim.lazy_numpy import np
from dliosim.model import ELEMENTS, Dataset, Shape

#: The largest header that is read, bytes; numpy itself refuses more than 10,000 characters
LARGEST_HEADER: Final = 1 << 16
#: The first bytes of an array, which say how long its header is
BEGINNING: Final = 12

_MOST_BYTES: Final = 1 << 63
#: The most dimensions of an array of numpy before 2.0.
_MOST_DIMENSIONS: Final = 32


@dataclass(frozen=True, slots=True)
class Array:
    """The contents of an array's header."""

    header: int  #: bytes of the header
    shape: tuple[int, ...]  #: extents, elements
    dtype: np.dtype[Any]  #: type of the elements
    fortran: bool  #: True for the order of Fortran, False for that of C

    @property
    def size(self) -> int:
        """Bytes of its elements."""
        return prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{str(self.dtype)[:60]} of shape {str(self.shape)[:60]}"


@dataclass(frozen=True, slots=True)
class SampleRows:
    """The samples of an array."""

    samples: int  #: number of samples
    size: int  #: bytes of each
    counted: bool  #: True if the first axis of the array counts the samples


def shape_of_samples(dataset: Dataset) -> Shape | None:
    """Return the shape of every sample: a row of bytes if none is given; None if sizes differ or are unknown.

    For existing files (`from`) only `shape` gives the shape of samples.
    """
    if dataset.shape is not None or dataset.source or dataset.constant_size is None:
        return dataset.shape
    return Shape((dataset.constant_size,), "uint8")


def refuse_arrays(dataset: Dataset, form: str, taken: tuple[str, ...]) -> tuple[str, str] | None:
    """Refuse a data set that arrays of `form` cannot hold: return the setting and why, as `Format.refuse`; or None."""
    refused = refuse_unused(dataset, form, ("shape", *taken))
    if refused is not None:
        return refused
    if dataset.shape is not None and len(dataset.shape.extents) >= _MOST_DIMENSIONS:
        return "shape", f"an array of samples has at most {_MOST_DIMENSIONS} dimensions"
    if dataset.source or dataset.constant_size is not None:
        return None
    if dataset.shape is not None:
        return "size", "samples of one shape have one size"
    return refuse_sizes(dataset, "rows of an array have one size")


@lru_cache(maxsize=64)
def array_header(dataset: Dataset, count: int, size: int) -> bytes:
    """Return the header, version 1.0, of the array in a file of `count` samples, `size` bytes in all.

    It has the same length in all files of the data set: numpy leaves room for all digits of the first extent.
    """
    shape = shape_of_samples(dataset)
    if shape is None:
        extents: tuple[int, ...] = (size,) if dataset.layout.kind == "file per sample" else (count, size // count)
    else:
        extents = shape.extents if dataset.layout.kind == "file per sample" else (count, *shape.extents)
    dtype = np.dtype(dataset.element).newbyteorder("<")
    stream = BytesIO()
    fields = {"descr": dtype.str, "fortran_order": False, "shape": extents}
    np.lib.format.write_array_header_1_0(stream, fields)
    return stream.getvalue()


def header_length(beginning: bytes | memoryview, where: str) -> int:
    """Return the bytes of a header by its beginning.

    ExecutionError [R401] if it is no header, of an unknown version, or longer than `LARGEST_HEADER`.
    """
    if len(beginning) < BEGINNING or beginning[:6] != np.lib.format.MAGIC_PREFIX:
        raise data_error(f"{where} does not begin as an array of numpy does")
    major, minor = beginning[6], beginning[7]
    if (major, minor) not in ((1, 0), (2, 0), (3, 0)):
        raise data_error(f"{where} has a header of version {major}.{minor}; known are 1.0, 2.0 and 3.0")
    before, digits = (10, "<H") if major == 1 else (12, "<I")
    length: int = before + struct.unpack_from(digits, beginning, 8)[0]
    if length > LARGEST_HEADER:
        raise data_error(f"{where} has a header of {length} bytes; more than {LARGEST_HEADER} are not read")
    return length


def parse_array_header(read: Callable[[int], bytes], where: str) -> Array:
    """Parse a header by numpy's own functions; `read(n)` returns the first n bytes, or all if there are fewer.

    Raises ExecutionError [R401] if the header is cut short or damaged, and if elements are objects.
    """
    length = header_length(read(BEGINNING), where)
    header = read(length)
    if len(header) < length:
        raise data_error(f"{where} ends within the header of its array, {length} bytes")
    stream = BytesIO(header[8:])
    # Versions 2 and 3 differ only in the encoding of field names, which has no effect here.
    parse = np.lib.format.read_array_header_1_0 if header[6] == 1 else np.lib.format.read_array_header_2_0
    try:
        try:
            shape, fortran, dtype = parse(stream)
        except SystemError:
            # Python 3.11 to 3.11.7 and 3.12.1 sometimes raise it for any text while another thread parses ("AST
            # constructor recursion depth mismatch").
            stream.seek(0)
            shape, fortran, dtype = parse(stream)
    except Exception as error:  # the parser of literals may raise nearly anything for hostile text, also MemoryError
        text = f"{where} has a header that numpy cannot read: {type(error).__name__}: {str(error)[:200]}"
        raise data_error(text) from error
    if dtype.hasobject:
        raise data_error(f"{where} holds objects: reading these would run code out of the file (pickle)")
    if any(extent < 0 for extent in shape):
        raise data_error(f"{where} has a negative extent in its shape {str(shape)[:60]}")
    array = Array(length, tuple(int(extent) for extent in shape), dtype, fortran)
    if array.size >= _MOST_BYTES:
        raise data_error(f"{where} holds {array}, by its header: more than any file does")
    return array


def sample_rows(array: Array, dataset: Dataset, where: str, first: SampleRows | None = None) -> SampleRows:
    """Return the samples of an array: 1 if it has a sample's shape, k if (k, *shape), 1 if no shape is known.

    An array next to `first` has as many, if that counts its samples.

    The rows of an array of dliosim are its samples where a size is drawn for each file.

    Raises ExecutionError [R401] for an array of another shape, and if the bytes of a sample are not contiguous.
    """
    if first is not None and first.counted:
        return _split_rows(array, first.samples, where)
    shape = shape_of_samples(dataset)
    if shape is None:
        is_alone = bool(dataset.source) or dataset.layout.kind == "file per sample" or not array.shape
        return _single_row(array, where) if is_alone else _split_rows(array, array.shape[0], where)
    plain = array.dtype.newbyteorder("=") == np.dtype(shape.element)
    if plain and array.shape == shape.extents:
        return _single_row(array, where)
    if not plain or array.shape[1:] != shape.extents or not array.shape:
        wanted = f"{shape.element} of shape {shape.extents}"
        raise data_error(f"{where} holds {array}: neither a sample, {wanted}, nor several of them")
    return _split_rows(array, array.shape[0], where)


def _split_rows(array: Array, samples: int, where: str) -> SampleRows:
    """Return the samples of an array whose first axis must count `samples`.

    Raises ExecutionError [R401] if it does not, and if the bytes of a sample are not contiguous.
    """
    if not array.shape or array.shape[0] != samples:
        raise data_error(f"{where} holds {array}, and not {samples} samples as the other arrays")
    if array.fortran and samples > 1 and len(array.shape) > 1:
        text = "has its elements in the order of Fortran: those of a sample are scattered over the whole array"
        raise data_error(f"{where} {text}")
    size = prod(array.shape[1:]) * array.dtype.itemsize
    if size == 0:
        raise data_error(f"{where} holds {array}: samples of no bytes")
    return SampleRows(samples, size, True)


def _single_row(array: Array, where: str) -> SampleRows:
    if array.size == 0:
        raise data_error(f"{where} holds {array}: a sample of no bytes")
    return SampleRows(1, array.size, False)


def shape_of_rows(array: Array, rows: SampleRows) -> Shape | None:
    """Return the shape of the samples of an array; None if patterns have no such elements."""
    element = array.dtype.newbyteorder("=").name
    extents = array.shape[1:] if rows.counted else array.shape
    return Shape(extents, element) if element in ELEMENTS and extents else None


def array_column(rows: SampleRows, offset: int, encoded: int | None = None, filters: tuple[Filter, ...] = ()) -> Column:
    """Return the column of an array at `offset` of its file: one unit, or none if it is empty.

    The unit is its elements, or with `filters` the whole array, encoded in `encoded` bytes.
    """
    content, units = rows.samples * rows.size, 1 if rows.samples else 0
    row_bytes, length = (rows.size, content) if encoded is None else (ENCODED, encoded)
    offsets, lengths = np.full(units, offset, np.int64), np.full(units, length, np.int64)
    return Column(max(1, rows.samples), 1, row_bytes, content, offsets, lengths, filters)


if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Name of the array of an archive where the data set has no `names`
MEMBER: Final = "x"


class ArrayFile:
    """A file that `numpy.load` has opened; its arrays are read with the first sample, and kept.

    Only numpy reads, as its way of reading a file is what is measured. So the arrays are checked after they were read.
    Files of other writers were checked by their index before the run.
    """

    def __init__(self, path: Path, dataset: Dataset) -> None:
        """Open the file. Raises ExecutionError [R401] if numpy cannot open it, OSError as the calls do."""
        self._path = path
        self._dataset = dataset
        self._samples = 0
        self._rows: list[Bytes] | None = None
        # numpy's parser may raise nearly anything for hostile headers, also MemoryError
        with report_damage(f"numpy cannot read {path}"):
            self._loaded: Any = np.load(path, allow_pickle=False)

    def read(self, first: int, count: int, into: memoryview) -> int:
        """Copy `count` samples from `first` to the front of `into`; return the bytes. ExecutionError [R401]."""
        if self._rows is None:
            with report_damage(f"numpy cannot read {self._path}"):
                self._rows = self._view_rows(self._load_arrays())
        rows = [array[first : first + count] for array in self._rows]
        each: int = sum(array.shape[1] for array in rows)
        if first < 0 or first + count > self._samples or count * each > len(into):
            text = f"samples {first} to {first + count - 1} into {len(into)} bytes"
            raise data_error(f"{self._path} has {self._samples} samples of {each} bytes: not {text}")
        out = np.frombuffer(into, np.uint8, count * each).reshape(count, each)
        np.concatenate(rows, axis=1, out=out)
        return count * each

    def close(self) -> None:
        """Close the archive and free the arrays."""
        self._rows = None
        if hasattr(self._loaded, "close"):
            self._loaded.close()

    def _load_arrays(self) -> dict[str, NDArray[Any]]:
        if isinstance(self._loaded, np.ndarray):
            return {str(self._path): self._loaded}
        names = self._dataset.names
        if not names:
            there = [name.removesuffix(".npy") for name in self._loaded.zip.namelist() if name.endswith(".npy")]
            names = tuple(there) if len(there) == 1 else (MEMBER,)
        return {f"`{name[:60]}` in {self._path}": self._loaded[name] for name in names}

    def _view_rows(self, arrays: dict[str, NDArray[Any]]) -> list[Bytes]:
        """Return the bytes of each array, (samples, bytes of a sample); the first array gives the number of samples."""
        found: list[Bytes] = []
        rows: SampleRows | None = None
        for where, data in arrays.items():
            array = Array(0, data.shape, data.dtype, data.flags.f_contiguous and not data.flags.c_contiguous)
            rows = sample_rows(array, self._dataset, where, rows)
            self._samples = rows.samples
            found.append(np.ascontiguousarray(data).view(np.uint8).reshape(self._samples, -1))
        return found


class Npy(LibraryReadable, Framed):
    """The format `npy`; see `protocols.Framed`."""

    name = "npy"

    def refuse(self) -> tuple[str, str] | None:
        """Refuse several data sets a record, compression, and sizes that vary within a file."""
        return refuse_arrays(self.dataset, self.name, ())

    def index(self, path: Path) -> FileIndex:
        """Return the places of the samples by the header of the array. ExecutionError [R401] if the size differs."""
        with file_to_look_at(path) as look:
            size = look.size
            array = parse_array_header(lambda most: look.read(most, 0), str(path))
        if array.header + array.size != size:
            raise data_error(f"{path} has {size} bytes, and by its header, {array}, it has {array.header + array.size}")
        rows = sample_rows(array, self.dataset, str(path))
        return FileIndex(rows.samples, size, (array_column(rows, array.header),), array.header, rows.size)

    def shape(self, path: Path) -> Shape | None:
        """Return the shape of the array, without the axis that counts samples."""
        with file_to_look_at(path) as look:
            array = parse_array_header(lambda most: look.read(most, 0), str(path))
        return shape_of_rows(array, sample_rows(array, self.dataset, str(path)))

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
