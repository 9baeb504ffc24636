"""Parquet by pyarrow: rows are samples, in `parts` columns; a row group is read and decoded at a time.

The types of columns are those that training readers store and get back without a copy. Samples without a `shape` are
fixed-size binary (encoded images, tensors as bytes: as petastorm and Ray write). With a `shape` a row holds its
elements: a single one is a plain column, as in tables of features (Criteo), more are a fixed-size list. Integers of 8
and 16 bits are the exception, fixed-size binary with any shape: Parquet stores them as 32 bits each, so a file would
not have the size asked for.

Values are stored plain, without dictionaries and statistics, so that sizes are as described. With the same version of
pyarrow, files differ from each other only in their values.

The index is the footer alone. Each leaf of the columns in `names` (of all, without `names`) is a `Column`: `image`
chooses `image.bytes` and `image.path`, `image.bytes` only that. Its units are whole column chunks. A chunk does not say
how to decode it; only the file's footer does. So `decode` returns None and does nothing, and `ParquetHandle` decodes.

`through library` reads as training does: pyarrow opens a file, reads the requested column chunks and decodes them. It
runs on the calling thread alone, so that its CPU time is counted as the rank's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from io import BufferedWriter, FileIO
from itertools import accumulate
from math import prod
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from dliosim.errors import ExecutionError
from dliosim.formats import protocols
from dliosim.formats.header_scanner import data_error, report_damage
from dliosim.formats.parquet.footer import MAGIC, MOST_DECODED, footer_index, read_footer
from dliosim.formats.unsupported import quote_names, refuse_excess_units, refuse_sizes
from dliosim.lazy_numpy import np
from dliosim.model import ELEMENTS, Dataset

if TYPE_CHECKING:
    import pyarrow as pa


#: Bytes of the samples in a row group without `chunk`; a writer or reader holds one row group in memory
ROW_GROUP: Final = 64 << 20


_LARGEST_VALUE = 1 << 30  # a page, and so a value, has less than 2^31 bytes
_PAGE, _VALUES = 1 << 20, 1024  # pyarrow's default size of a page, and the values between two checks of that size
_PAGE_HEADER, _FOOTER, _FOOTER_CHUNK = 25, 280, 60  # bytes, about


class Parquet(protocols.Built, protocols.LibraryReadable):
    """The format `parquet`; see `protocols.Built`."""

    name = "parquet"
    libraries = ("pyarrow.parquet",)

    def refuse(self) -> tuple[str, str] | None:
        """Refuse sizes that vary or do not divide, settings of raw files, and codecs that Parquet does not have."""
        dataset = self.dataset
        if dataset.header:
            return "header", "a Parquet file has its own"
        if dataset.align != 1:
            return "align", "pyarrow places the pages of a Parquet file"
        if dataset.compress is not None and dataset.compress.codec == "lzf":
            return "compress", "Parquet has no lzf, use `snappy`, `gzip N` or `zstd N`"
        if dataset.chunk is not None and dataset.chunk.extents:
            return "chunk", "a row group holds whole samples"
        if dataset.source:
            return None
        size = dataset.constant_size
        if size is None:
            why = "the rows of a Parquet file have one size here"
            return refuse_sizes(dataset, why) or type(self)(dataset.fix_size(dataset.largest_size)).refuse()
        if size % dataset.parts and not dataset.columns:
            return "parts", f"{size} bytes are no {dataset.parts} columns of one size"
        if max(dataset.column_widths) > _LARGEST_VALUE:
            return "size", f"a value of a Parquet column has at most {_LARGEST_VALUE} bytes"
        group = min(self.batch, dataset.samples) * size
        if dataset.chunk is not None and group > MOST_DECODED:
            return "chunk", f"row groups of {group} bytes are over {MOST_DECODED}, and each is made in memory"
        columns = _column_names(dataset)
        for name in dataset.names:
            if name not in columns:
                return "names", f"`{name}` is no column: these are {quote_names(columns)}"
        fullest = -(-dataset.samples // dataset.layout.files)
        return refuse_excess_units(dataset, -(-fullest // self.batch) * dataset.parts)

    def needs(self) -> tuple[str, str] | None:
        """Return pyarrow and its extra, unless it is installed."""
        return None if find_spec("pyarrow") is not None else ("pyarrow", "parquet")

    def index(self, path: Path) -> protocols.FileIndex:
        """Return the column chunks of the chosen leaves; reads only the footer. ExecutionError [R401]."""
        if not self.dataset.source or self.needs() is not None:
            return footer_index(path, read_footer(path), self.dataset)
        with ParquetHandle(path, self.dataset) as handle:
            try:
                return replace(handle.index, sample_bytes=sum(handle.row_widths()))
            except ExecutionError:  # sizes differ
                return handle.index

    def decode(self, column: protocols.Column | None, data: memoryview) -> protocols.Bytes | None:
        """Return None: a column chunk alone cannot be decoded, see `ParquetHandle`."""
        return None

    def open_library(self, path: Path, comm: object | None, collective: bool) -> protocols.LibraryFile:
        """Open a file by pyarrow, which does not use MPI; see `ParquetHandle`."""
        return ParquetHandle(path, self.dataset)

    def build(self, path: Path, count: int, batches: Iterator[protocols.Bytes], encoding: protocols.EncodeTime) -> None:
        """Write row groups of `batch` samples; the last may have fewer. OSError if the file cannot be written."""
        from pyarrow import parquet

        schema, compress = table_schema(self.dataset), self.dataset.compress
        widest = max(_split_list(kind)[0].bit_width // 8 for kind in schema.types)
        with _Sink(FileIO(path, "w")) as sink:
            begin = perf_counter_ns()
            with parquet.ParquetWriter(
                sink,
                schema,
                compression="none" if compress is None else compress.codec,
                compression_level=None if compress is None else compress.level or None,
                use_dictionary=False,
                write_statistics=False,
                write_batch_size=max(1, min(_VALUES, _PAGE // widest)),
            ) as writer:
                spent = perf_counter_ns() - begin
                for rows in protocols.regroup_rows(batches, self.batch):
                    begin = perf_counter_ns()
                    writer.write_table(_arrow_table(schema, self.dataset.column_widths, rows), row_group_size=len(rows))
                    spent += perf_counter_ns() - begin
                begin = perf_counter_ns()
            encoding.encode_ns += spent + perf_counter_ns() - begin - sink.write_ns

    @property
    def batch(self) -> int:
        """Samples of a row group: by `chunk`, or as many as 64 MiB hold."""
        chunk, size = self.dataset.chunk, max(1, self.dataset.constant_size or 1)
        if chunk is None:
            return max(1, ROW_GROUP // size)
        return max(1, chunk.number // (size if chunk.unit == "bytes" else 1))

    def encoder_bytes(self, made: int, sample: int) -> int:
        """Return the bytes that pyarrow takes: pages of the row group, and copies of a value that is a whole page."""
        value = max(self.dataset.column_widths, default=sample)
        copies = 1.05 * (1 + (self.dataset.compress is not None)) + (2.3 if value < protocols.FREED_LATE else 0)
        return int(2.1 * made + copies * value) + (8 << 20)

    def forecast(self, count: int) -> protocols.FileIndex:
        """Return row groups of the encoded size of the columns; with a codec divided by `compressible`."""
        dataset, most = self.dataset, self.batch
        rows = np.full(-(-count // most), most, np.int64)
        rows[-1:] = count - most * (len(rows) - 1)
        shrink = dataset.content_ratio if dataset.compress is not None else 1.0
        widths = np.array(dataset.column_widths)[:, np.newaxis]
        levels = np.array([_level_bytes(one, rows) for one in _column_types(dataset)])
        plain = rows * widths + levels + _PAGE_HEADER * -(-rows * widths // _PAGE)  # (columns, row groups)
        length = np.ceil(plain / shrink).astype(np.int64)
        ends = np.cumsum(length.T).reshape(len(rows), dataset.parts).T  # one column chunk after the other
        begin = len(MAGIC) + ends - length
        filters = () if dataset.compress is None else (protocols.Filter(dataset.compress.codec),)
        columns = tuple(
            protocols.Column(
                most, 1, protocols.ENCODED, int(plain[part].max(initial=0)), begin[part], length[part], filters
            )
            for part, name in enumerate(_column_names(dataset))
            if name in (dataset.names or (name,))
        )
        touched = _FOOTER + len(rows) * dataset.parts * _FOOTER_CHUNK
        return protocols.FileIndex(count, len(MAGIC) + int(length.sum()) + touched, columns, touched)


def table_schema(dataset: Dataset) -> pa.Schema:
    """Return the columns of the files that are written."""
    import pyarrow as pa

    def find_type(element: str, count: int, width: int) -> pa.DataType:
        if not element or not _has_native_type(element):
            return pa.binary(width)
        kind = pa.from_numpy_dtype(np.dtype(element))
        return kind if count == 1 else pa.list_(pa.field("element", kind, nullable=False), count)

    types = zip(_column_names(dataset), _column_types(dataset), dataset.column_widths, strict=True)
    return pa.schema([pa.field(name, find_type(*kind, width), nullable=False) for name, kind, width in types])


class _Sink(BufferedWriter):
    """A file for pyarrow that measures the time of its writes, ns."""

    write_ns = 0

    def write(self, data: Any) -> int:
        begin = perf_counter_ns()
        written = super().write(data)
        self.write_ns += perf_counter_ns() - begin
        return written


def _column_names(dataset: Dataset) -> tuple[str, ...]:
    return tuple(f"column_{part}" for part in range(dataset.parts))


def _column_types(dataset: Dataset) -> list[tuple[str, int]]:
    """Return element type and elements of a row of each column; no type for bytes."""
    if dataset.columns:
        return [(one.element, one.length) for one in dataset.columns for _ in range(one.number)]
    shape = dataset.shape
    return [(shape.element, prod(shape.extents)) if shape is not None else ("", 1)] * dataset.parts


def _has_native_type(element: str) -> bool:
    """Return True if Parquet stores elements of that type in their own number of bytes."""
    return element == "float16" or ELEMENTS[element] >= 4


def _level_bytes(kind: tuple[str, int], rows: protocols.Ints) -> protocols.Ints:
    """Return the approximate bytes that mark the start of each list of a column: a bit an element, or a run a row."""
    element, count = kind
    if not element or not _has_native_type(element) or count == 1:
        return np.zeros_like(rows)
    return rows * min(32, count) // 8


def _split_list(kind: pa.DataType) -> tuple[pa.DataType, int]:
    """Return the type of one value of a leaf, and the values of a row."""
    import pyarrow as pa

    return (kind.value_type, kind.list_size) if pa.types.is_fixed_size_list(kind) else (kind, 1)


def _arrow_table(schema: pa.Schema, widths: Sequence[int], rows: protocols.Bytes) -> pa.Table:
    """Return rows of samples as columns of `widths` bytes a row; a single column is not copied."""
    import pyarrow as pa

    edges, columns = [0, *accumulate(widths)], []
    for field, begin, end in zip(schema, edges, edges[1:], strict=False):
        data = pa.py_buffer(np.ascontiguousarray(rows[:, begin:end]))
        if pa.types.is_fixed_size_list(field.type):
            values = pa.Array.from_buffers(field.type.value_type, len(rows) * field.type.list_size, [None, data])
            columns.append(pa.Array.from_buffers(field.type, len(rows), [None], children=[values]))
        else:
            columns.append(pa.Array.from_buffers(field.type, len(rows), [None, data]))
    return pa.table(columns, schema=schema)


_BATCH = 16 << 20  # bytes that `read` decodes at a time, approximately


class ParquetHandle:
    """An open file. `index` is that of `Parquet.index`.

    `rows` are the rows of each row group, also of empty ones. Methods raise ExecutionError [R401], with file and row
    group, if data are damaged, and OSError if a call fails.
    """

    def __init__(self, path: Path, dataset: Dataset) -> None:
        from pyarrow import parquet

        self._path, self._footer = path, read_footer(path)
        self.index: protocols.FileIndex = footer_index(path, self._footer, dataset)
        self.rows: protocols.Ints = self._footer.rows
        leaves = self._footer.select_leaves(path, dataset.names)
        self._names = [self._footer.leaves[leaf] for leaf in leaves] if dataset.names else None  # in the file's order
        with report_damage(f"{path} cannot be decoded"):
            self._file = parquet.ParquetFile(path)

    def __enter__(self) -> ParquetHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read(self, first: int, count: int, into: memoryview) -> int:
        """Decode samples [first, first + count) and put their bytes into a buffer; return the number of bytes.

        A sample is its chosen columns, one after the other. All rows before it in its row group are decoded, too, some
        MiB at a time. ExecutionError [R401] for columns without a fixed width, or with nulls, and if the buffer is
        too small.
        """
        if first < 0 or count < 0 or first + count > self.index.samples:
            raise data_error(f"{self._path} has {self.index.samples} rows, none {first + count - 1}")
        widths = self.row_widths()
        row = sum(widths)
        if len(into) < count * row:
            raise data_error(f"{self._path}: {count} rows of {row} bytes do not fit into a buffer of {len(into)}")
        out = np.frombuffer(into, np.uint8, count * row).reshape(count, row)
        before = 0
        for group, rows in enumerate(self.rows.tolist()):
            begin, end = max(first - before, 0), min(first + count - before, rows)
            if begin < end:
                at = before + begin - first
                self._copy_rows(group, begin, end, widths, out[at : at + end - begin])
            before += rows
        return count * row

    def row_widths(self) -> list[int]:
        """Return the bytes of a row in each column. ExecutionError [R401] for a column without a fixed width."""
        fields = self._file.schema_arrow
        if self._names is not None:
            chosen = {*self._names, *(name.split(".")[0] for name in self._names)}
            fields = [field for field in fields if field.name in chosen]
        return [_row_bytes(self._path, field) for field in fields]

    def _copy_rows(self, group: int, begin: int, end: int, widths: list[int], out: protocols.Bytes) -> None:
        """Copy rows [begin, end) of a group to `out`, (end - begin, bytes of a row)."""
        at_once = max(1, _BATCH // max(1, sum(widths)))
        at = 0  # first row of the next batch in the group
        with report_damage(f"{self._path}: row group {group} cannot be decoded"):
            for batch in self._file.iter_batches(at_once, [group], self._names, use_threads=False):
                rows = batch[max(0, begin - at) : end - at]
                if len(rows):
                    row, edge = max(at, begin) - begin, 0
                    for array, width in zip(rows.columns, widths, strict=True):
                        out[row : row + len(rows), edge : edge + width] = _array_bytes(array, width)
                        edge += width
                at += len(batch)
                if at >= end:
                    return
        raise data_error(f"{self._path}: row group {group} ends after {at} of {end} rows")


def _row_bytes(path: Path, field: pa.Field) -> int:
    """Return the bytes of a row in a column."""
    import pyarrow as pa

    kind, count = _split_list(field.type)
    if not (pa.types.is_fixed_size_binary(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise data_error(f"{path}: rows of column `{field.name}` ({field.type}) have no fixed width")
    return int(kind.bit_width) // 8 * count


def _array_bytes(array: pa.Array, width: int) -> protocols.Bytes:
    """Return the bytes of an array's rows, (rows, width), not copied."""
    import pyarrow as pa

    rows = len(array)
    values = array.flatten() if pa.types.is_fixed_size_list(array.type) else array
    if array.null_count or values.null_count:
        raise data_error("rows without a value have no bytes")
    begin = values.offset * (values.type.bit_width // 8)
    return np.frombuffer(values.buffers()[1], np.uint8)[begin : begin + rows * width].reshape(rows, width)
