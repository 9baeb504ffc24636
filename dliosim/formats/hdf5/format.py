"""HDF5 files: a data set of samples, or several where a record has parts; contiguous, chunked or compressed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dliosim.formats import protocols
from dliosim.formats.hdf5 import geometry
from dliosim.formats.unsupported import refuse_excess_units, refuse_sizes
from dliosim.lazy_numpy import np
from dliosim.model import ELEMENTS, Dataset, Shape

#: Bytes; readers before HDF5 2.0 keep the size in 32 bits
_LARGEST_CHUNK: Final = (1 << 32) - 1

#: Bytes before the data of the first data set, measured
_HEADERS: Final = 2048
#: Bytes of a chunk in the B-tree, measured; 33 where the tree is full
_CHUNK_ENTRY: Final = 47


class Hdf5(protocols.Resolved, protocols.LibraryReadable):
    """The format `hdf5`, with the common part of both kinds; see `protocols.Resolved`."""

    name = "hdf5"
    libraries = ("dliosim.formats.hdf5.library",)
    modules = ("dliosim.formats.hdf5.index", "dliosim.formats.hdf5.library")

    def refuse(self) -> tuple[str, str] | None:
        """Refuse sizes that vary, settings of raw files, codecs without a filter in HDF5, and chunks from 4 GiB."""
        dataset = self.dataset
        size = dataset.constant_size
        if dataset.source:
            return None  # the layout of existing files is fixed
        if size is None:
            why = "all samples of an HDF5 data set have one size"
            return refuse_sizes(dataset, why) or type(self)(dataset.fix_size(dataset.largest_size)).refuse()
        if dataset.header:
            return "header", "HDF5 files have a header of their own"
        if dataset.align > 1:
            return "align", "HDF5 decides where samples are stored"
        if dataset.compress is not None and dataset.compress.codec not in ("gzip", "lzf"):
            return "compress", f"HDF5 files are compressed by gzip or lzf, not by {dataset.compress.codec}"
        if size % dataset.parts:
            return "size", f"{size} bytes cannot be divided equally among {dataset.parts} data sets"
        if dataset.shape is not None and dataset.shape.size * dataset.parts != size:
            return "shape", f"it makes {dataset.shape.size * dataset.parts} bytes of a sample, not {size}"
        if size == 0:
            return "size", "a sample needs a byte at least"
        refused = geometry.refuse_chunk(dataset)
        if refused is not None:
            return "chunk", refused
        part = geometry.record_parts(dataset)[0]
        chunk = geometry.chunk_shape(dataset, part, max(1, dataset.samples))
        if chunk is None:
            return None
        if geometry.chunk_grid(chunk, chunk, ELEMENTS[part.element]).unit_bytes > _LARGEST_CHUNK:
            return "chunk", "a chunk of an HDF5 file has less than 4 GiB"
        fullest = -(-dataset.samples // dataset.layout.files)
        units = geometry.chunk_grid((fullest, *part.extents), chunk, ELEMENTS[part.element]).units
        return refuse_excess_units(dataset, units * dataset.parts)

    def index(self, path: Path) -> protocols.FileIndex:
        """Return a column for each data set of `dataset.names`, or for those that hold the samples.

        ExecutionError [R401] if the file is damaged, or does not say where its samples are.
        """
        from dliosim.formats.hdf5.index import read_index

        return read_index(path, self.dataset.names)

    def shape(self, path: Path) -> Shape | None:
        """Return the shape of a sample in each data set."""
        from dliosim.formats.hdf5.index import read_shape

        return read_shape(path, self.dataset.names)

    def decode(self, column: protocols.Column | None, data: memoryview) -> protocols.Bytes | None:
        """Return a chunk as it was before its filters, padding included.

        None for a chunk that is not in the file, and for one that holds tiles of samples; the filters of a tiled chunk
        are run all the same.
        """
        from dliosim.formats.hdf5.filters import TILED, decode

        if column is None or column.row_bytes != protocols.ENCODED:
            return np.frombuffer(data, np.uint8)
        if len(data) == 0:
            return None
        found = decode(column.filters, column.unit_bytes, data)
        return None if column.filters and column.filters[0].name == TILED else found

    def open_library(self, path: Path, comm: object | None, collective: bool) -> protocols.LibraryFile:
        """Open a file by h5py; see `hdf5.library`."""
        from dliosim.formats.hdf5.library import open_library

        return open_library(path, self.dataset, comm, collective)

    def forecast(self, count: int) -> protocols.FileIndex:
        """Return the data sets one after the other behind their headers; `compressible` sets the size of chunks."""
        from dliosim.formats.hdf5.library import chunk_filters

        end, touched, columns = _HEADERS, _HEADERS, []
        filters = chunk_filters(self.dataset.compress)
        for part in geometry.record_parts(self.dataset):
            chunk = geometry.chunk_shape(self.dataset, part, count)
            if chunk is None:
                whole = count * part.row_bytes
                place, length = np.array([end], np.int64), np.array([whole], np.int64)
                columns.append(protocols.Column(max(1, count), 1, part.row_bytes, whole, place, length))
                end += whole
                continue
            found = geometry.chunk_grid(
                (chunk[0], *part.extents), chunk, ELEMENTS[part.element]
            )  # of the first samples
            units = -(-count // chunk[0]) * found.units
            stored = np.full(found.units, found.unit_bytes, np.int64)
            if filters:  # padding is zeros, which take next to nothing
                contents = geometry.content_elements(part, chunk) * ELEMENTS[part.element] / self.dataset.content_ratio
                stored = np.maximum(1, contents.round().astype(np.int64))
            touched += units * _CHUNK_ENTRY
            end += units * _CHUNK_ENTRY
            step = int(stored.sum())
            place = end + np.cumsum(stored) - stored
            length = stored if filters else found.run_bytes()
            row_bytes = protocols.ENCODED if filters else found.row_bytes
            columns.append(
                protocols.Column(
                    found.samples, found.pieces, row_bytes, found.unit_bytes, place, length, filters, None, step
                )
            )
            end += units // found.units * step
        return protocols.FileIndex(count, end, tuple(columns), touched)


class PlainHdf5(Hdf5, protocols.Preallocated):
    """Files without compression: every sample has its place before it is written; see `protocols.Preallocated`."""

    def encoder_bytes(self, made: int, sample: int) -> int:
        """Return the bytes that h5py takes for the layout of a file."""
        return 2 << 20

    def lay_out(self, path: Path, count: int) -> None:
        """Create a file with room for `count` samples."""
        from dliosim.formats.hdf5.library import lay_out

        lay_out(self.dataset, path, count)


class FilteredHdf5(Hdf5, protocols.GroupEncoder):
    """Files with a filter or tiles, one group of samples a chunk or a sample's; see `protocols.GroupEncoder`."""

    @property
    def batch(self) -> int:
        """Samples of a chunk."""
        return self.group_size(max(1, self.dataset.samples))

    def encoder_bytes(self, made: int, sample: int) -> int:
        """Return the bytes of the encoded group, in pieces and whole, and of HDF5's own copy of a chunk for lzf."""
        lzf = self.dataset.compress is not None and self.dataset.compress.codec == "lzf"
        return (2 + lzf) * made + (4 * made if made < protocols.FREED_LATE else 0) + (4 << 20)

    def group_size(self, count: int) -> int:
        """Return the samples of a chunk."""
        return geometry.group_size(self.dataset, count)

    def encode_group(self, count: int, samples: protocols.Bytes) -> list[bytes]:
        """Encode the chunks of a group by the filter, if there is one."""
        from dliosim.formats.hdf5.library import encode_group

        return encode_group(self.dataset, count, samples)

    def assemble(self, path: Path, count: int, groups: Iterator[list[bytes]]) -> None:
        """Write a file of encoded groups."""
        from dliosim.formats.hdf5.library import assemble

        assemble(self.dataset, path, count, groups)


def hdf5(dataset: Dataset) -> Hdf5:
    """Return the kind of files that a data set has."""
    return FilteredHdf5(dataset) if dataset.compress is not None or geometry.has_tiles(dataset) else PlainHdf5(dataset)
