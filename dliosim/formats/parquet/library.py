"""Read Parquet as training does: pyarrow opens a file, reads the requested column chunks and decodes them.

It runs on the calling thread alone, so that its CPU time is counted as the rank's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dliosim.errors import ExecutionError
from dliosim.formats.parquet.footer import footer_index, read_footer
from dliosim.formats.protocols import Bytes, FileIndex, Ints
from dliosim.lazy_numpy import np
from dliosim.model import Dataset

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH = 16 << 20  # bytes that `read` decodes at a time, approximately


class ParquetHandle:
    """An open file. `index` is that of `Parquet.index`.

    `rows` are the rows of each row group, also of empty ones. Methods raise ExecutionError [R401], with file and row
    group, where data are damaged, and OSError where a call fails.
    """

    def __init__(self, path: Path, dataset: Dataset) -> None:
        from pyarrow import parquet

        self._path, self._footer = path, read_footer(path)
        self.index: FileIndex = footer_index(path, self._footer, dataset)
        self.rows: Ints = self._footer.rows
        leaves = self._footer.select_leaves(path, dataset.names)
        self._names = [self._footer.leaves[leaf] for leaf in leaves] if dataset.names else None  # in the file's order
        with _report_damage(str(path)):
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
        MiB at a time. ExecutionError [R401] for columns without a fixed width, or with nulls, and where the buffer is
        too small.
        """
        if first < 0 or count < 0 or first + count > self.index.samples:
            raise ExecutionError(f"{self._path} has {self.index.samples} rows, none {first + count - 1}", "R401")
        widths = self.row_widths()
        row = sum(widths)
        if len(into) < count * row:
            text = f"{self._path}: {count} rows of {row} bytes do not fit into a buffer of {len(into)}"
            raise ExecutionError(text, "R401")
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
        return [_row_bytes(self._path, field) for field in self._fields()]

    def _fields(self) -> list[pa.Field]:
        schema = self._file.schema_arrow
        tops = None if self._names is None else {name.split(".")[0] for name in self._names}
        return [field for field in schema if tops is None or field.name in tops or field.name in (self._names or ())]

    def _copy_rows(self, group: int, begin: int, end: int, widths: list[int], out: Bytes) -> None:
        """Copy rows [begin, end) of a group to `out`, (end - begin, bytes of a row)."""
        at_once = max(1, _BATCH // max(1, sum(widths)))
        at = 0  # first row of the next batch in the group
        with _report_damage(f"{self._path}: row group {group}"):
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
        raise ExecutionError(f"{self._path}: row group {group} ends after {at} of {end} rows", "R401")


def sample_bytes(path: Path, dataset: Dataset) -> int:
    """Return the bytes that `ParquetHandle.read` gives for each sample; 0 where they differ. Errors as there."""
    with ParquetHandle(path, dataset) as handle:
        try:
            return sum(handle.row_widths())
        except ExecutionError:
            return 0


@contextmanager
def _report_damage(place: str) -> Iterator[None]:
    """Raise pyarrow's errors about data as ExecutionError [R401]; errors of failed calls stay as they are."""
    try:
        yield
    except ExecutionError:
        raise
    except (OSError, ValueError, ArithmeticError, LookupError, TypeError, MemoryError, NotImplementedError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ExecutionError(f"{place} cannot be decoded: {type(error).__name__}: {error}", "R401") from error


def _row_bytes(path: Path, field: pa.Field) -> int:
    """Return the bytes of a row in a column."""
    import pyarrow as pa

    kind, count = field.type, 1
    if pa.types.is_fixed_size_list(kind):
        kind, count = kind.value_type, kind.list_size
    if not (pa.types.is_fixed_size_binary(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise ExecutionError(f"{path}: rows of column `{field.name}` ({field.type}) have no fixed width", "R401")
    return int(kind.bit_width) // 8 * count


def _array_bytes(array: pa.Array, width: int) -> Bytes:
    """Return the bytes of an array's rows, (rows, width), not copied."""
    import pyarrow as pa

    rows = len(array)
    values = array.flatten() if pa.types.is_fixed_size_list(array.type) else array
    if array.null_count or values.null_count:
        raise ExecutionError("rows without a value have no bytes", "R401")
    begin = values.offset * (values.type.bit_width // 8)
    return np.frombuffer(values.buffers()[1], np.uint8)[begin : begin + rows * width].reshape(rows, width)
