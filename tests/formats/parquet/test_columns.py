"""Tables of columns of several types: each has its bytes in the file, and the first ones alone can be read."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.formats.protocols import EncodeTime
from dliosim.formats.registry import bind
from dliosim.model import Chunk, Columns, Dataset, Layout, constant
from dliosim.plan.samples.places import IndexedPlaces
from dliosim.plan.samples.sample_index import concat_indexes, locate_ranges

pq = pytest.importorskip("pyarrow.parquet")

types = st.sampled_from(["uint8", "int16", "int32", "float32", "int64", "float16"])
kinds = st.builds(Columns, st.integers(1, 5), types, st.integers(1, 4))
tables = st.lists(kinds, min_size=1, max_size=4).map(tuple)


FOLDER = tempfile.TemporaryDirectory()


def table(columns: tuple[Columns, ...], samples: int, rows: int) -> Dataset:
    parts, size = sum(one.number for one in columns), sum(one.number * one.width for one in columns)
    layout = Layout("shared file", 1)
    described = {"parts": parts, "format": "parquet", "chunk": Chunk(rows, "samples"), "columns": columns}
    return Dataset("d", 5, samples, constant(size), layout, "d", **described)  # type: ignore[arg-type]


def write(dataset: Dataset, path: Path) -> np.ndarray:
    contents = np.random.default_rng(3).integers(0, 256, (dataset.samples, dataset.constant_size), np.uint8)

    def batches() -> Iterator[np.ndarray]:
        yield contents

    bind(dataset).build(path, dataset.samples, batches(), EncodeTime())  # type: ignore[attr-defined]
    return contents


@given(tables, st.integers(1, 40), st.integers(1, 17), st.data())
def test_the_first_columns_take_what_the_footer_says_of_them(
    columns: tuple[Columns, ...], samples: int, rows: int, data: st.DataObject
) -> None:
    dataset = table(columns, samples, rows)
    path = Path(tempfile.mkdtemp(dir=FOLDER.name)) / "0.parquet"
    contents = write(dataset, path)
    count = data.draw(st.integers(1, dataset.parts))
    places = IndexedPlaces(bind(dataset), concat_indexes([bind(dataset).index(path)])).first_columns(count)
    found = locate_ranges(places.index, np.arange(samples))
    chunks = dict(zip(found.offset.tolist(), found.length.tolist(), strict=True))
    groups = [pq.ParquetFile(path).metadata.row_group(number) for number in range(-(-samples // rows))]
    read = [group.column(number) for group in groups for number in range(count)]
    assert chunks == {one.data_page_offset: one.total_compressed_size for one in read}
    with bind(places.dataset).open_library(path, None, False) as handle:  # type: ignore[attr-defined]
        out = bytearray(samples * places.dataset.constant_size)
        handle.read(0, samples, memoryview(out))
    assert bytes(out) == contents[:, : places.dataset.constant_size].tobytes()


@given(tables, st.integers(1, 200), st.integers(1, 64))
def test_the_forecast_is_near_what_is_written(columns: tuple[Columns, ...], samples: int, rows: int) -> None:
    dataset = table(columns, samples, rows)
    path = Path(tempfile.mkdtemp(dir=FOLDER.name)) / "0.parquet"
    write(dataset, path)
    planned, made = bind(dataset).forecast(samples), bind(dataset).index(path)  # type: ignore[attr-defined]
    for one, other in zip(planned.columns, made.columns, strict=True):
        assert len(one.length) == len(other.length)
        assert np.abs(one.length - other.length).max() <= 24 + other.length.max() // 8
