from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dliosim.errors import ExecutionError
from dliosim.formats.contract_tests import random_contents, write_resolved
from dliosim.formats.parquet.format import Parquet, ParquetHandle
from dliosim.model import Dataset
from tests.examples import examples
from tests.formats.parquet.test_format import SOURCE, WAYS, dataset, images

pa = pytest.importorskip("pyarrow")


def bytes_of(described: Dataset, first: int, count: int) -> bytes:
    size = described.constant_size
    assert size is not None
    return b"".join(random_contents(described, row, size).tobytes() for row in range(first, first + count))


@pytest.mark.parametrize("way", WAYS)
def test_samples_come_back_in_order_and_nothing_else_is_written(way: str, tmp_path: Path) -> None:
    described = WAYS[way]
    size = described.constant_size
    assert size is not None
    write_resolved(Parquet(described), tmp_path / "a", 11)
    with ParquetHandle(tmp_path / "a", described) as handle:
        for first, count in [(0, 11), (0, 1), (3, 5), (10, 1), (4, 0)]:
            into = bytearray(b"\xee" * (count * size + 9))
            assert handle.read(first, count, memoryview(into)) == count * size
            assert into[: count * size] == bytes_of(described, first, count)
            assert into[count * size :] == b"\xee" * 9


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_any_range_is_what_was_written_however_little_is_decoded_at_a_time(
    data: st.DataObject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = WAYS["lists"]
    path = tmp_path / "a"
    if not path.exists():
        write_resolved(Parquet(described), path, 23)
    monkeypatch.setattr("dliosim.formats.parquet.format._BATCH", data.draw(st.sampled_from([1, 200, 1 << 20])))
    first = data.draw(st.integers(0, 22))
    count = data.draw(st.integers(0, 23 - first))
    into = bytearray(96 * count)
    with ParquetHandle(path, described) as handle:
        handle.read(first, count, memoryview(into))
    assert into == bytes_of(described, first, count)


def test_the_columns_of_the_data_set_are_read(tmp_path: Path) -> None:
    described = dataset(99, parts=3, names=("column_2", "column_0"))
    write_resolved(Parquet(described), tmp_path / "a", 5)
    with ParquetHandle(tmp_path / "a", described) as handle:
        into = bytearray(66)
        assert handle.read(2, 1, memoryview(into)) == 66
        whole = bytes_of(described, 2, 1)
        assert into == whole[:33] + whole[66:]


def test_row_groups_of_others_are_known_with_the_empty_ones(tmp_path: Path) -> None:
    path = tmp_path / "a"
    images(path, [3, 0, 5])
    with ParquetHandle(path, dataset(source="*", names=("image.bytes",))) as handle:
        assert handle.rows.tolist() == [3, 0, 5]


def test_rows_without_a_fixed_width_are_refused_as_bytes(tmp_path: Path) -> None:
    images(tmp_path / "a", [3])
    with (
        ParquetHandle(tmp_path / "a", SOURCE) as handle,
        pytest.raises(ExecutionError, match=r"column `image` \(struct.*have no fixed width"),
    ):
        handle.read(0, 1, memoryview(bytearray(1000)))


def test_rows_without_a_value_are_refused_as_bytes(tmp_path: Path) -> None:
    from pyarrow import parquet

    parquet.write_table(pa.table({"a": [1, None, 3]}), tmp_path / "a")
    with (
        ParquetHandle(tmp_path / "a", SOURCE) as handle,
        pytest.raises(ExecutionError, match="without a value"),
    ):
        handle.read(0, 3, memoryview(bytearray(100)))


@pytest.mark.parametrize(("first", "count", "room"), [(-1, 2, 999), (5, 7, 9999), (0, 2, 199)])
def test_rows_that_are_not_there_or_do_not_fit_are_refused(first: int, count: int, room: int, tmp_path: Path) -> None:
    write_resolved(Parquet(dataset()), tmp_path / "a", 11)
    with ParquetHandle(tmp_path / "a", dataset()) as handle, pytest.raises(ExecutionError):
        handle.read(first, count, memoryview(bytearray(room)))


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_damaged_pages_give_rows_or_an_error(data: st.DataObject, tmp_path: Path) -> None:
    described = WAYS[data.draw(st.sampled_from(["lists", "snappy", "zstd", "gzip", "one column"]))]
    size = described.constant_size
    assert size is not None
    path = tmp_path / "a"
    write_resolved(Parquet(described), path, 11)
    whole = bytearray(path.read_bytes())
    end = len(whole) - Parquet(described).index(path).touched
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(4, min(end - 1, 40)))] = data.draw(st.integers(0, 255))
    path.write_bytes(whole)
    with ParquetHandle(path, described) as handle:
        try:
            assert handle.read(0, 11, memoryview(np.empty(11 * size, np.uint8))) == 11 * size
        except ExecutionError as error:
            assert error.code == "R401"
