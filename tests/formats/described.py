"""Data sets for tests of formats of arrays and lines."""

from __future__ import annotations

from pathlib import Path

from dliosim.formats.contract_tests import sample_ranges
from dliosim.formats.numpy_files.npz import npz
from dliosim.model import Compression, Dataset, Distribution, Layout, Shape, constant

GZIP = Compression("gzip", 6)
VARYING = Distribution("uniform", (2.0, 400.0))


def described(
    form: str,
    size: int | Distribution,
    *,
    each: bool = False,
    shape: Shape | None = None,
    **rest: object,
) -> Dataset:
    """Nine samples of a size, in one file or (`each`) a file for each; nothing else that is not said."""
    layout = Layout("file per sample", 9) if each else Layout("shared file", 1)
    sizes = constant(float(size)) if isinstance(size, int) else size
    return Dataset("d", 7, 9, sizes, layout, "d", format=form, shape=shape, **rest)  # type: ignore[arg-type]


def shaped(form: str, extents: tuple[int, ...], element: str, **rest: object) -> Dataset:
    """Data sets of samples of one shape."""
    shape = Shape(extents, element)
    return described(form, shape.size, shape=shape, **rest)  # type: ignore[arg-type]


def archived_rows(path: Path, dataset: Dataset) -> list[bytes]:
    """Each sample of an archive by its index and the decoder: its parts one after the other."""
    index, whole = npz(dataset).index(path), memoryview(path.read_bytes())
    rows = []
    for row in range(index.samples):
        found = b""
        for column, (at, length) in zip(index.columns, sample_ranges(index, row), strict=True):
            part = npz(dataset).decode(column, whole[at : at + length])
            assert part is not None
            each = column.unit_bytes // column.samples
            begin = 0 if column.row_bytes else row % column.samples * each
            found += part.tobytes()[begin : begin + each]
        rows.append(found)
    return rows
