"""Lines of numbers: every line parses whatever its length, and every line of a file is found."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.errors import ExecutionError
from dliosim.formats import csv as module
from dliosim.formats.contract_tests import (
    build_framed,
    check_damage,
    check_framed,
    random_contents,
    sample_ranges,
    write_framed,
)
from dliosim.formats.csv import Csv
from dliosim.formats.protocols import Dressed
from dliosim.formats.registry import bind
from dliosim.model import Chunk, Compression, Dataset, Distribution
from tests.formats.described import VARYING, described, shaped


def lines_found(path: Path, dataset: Dataset) -> list[bytes]:
    """Each sample by the file's index, from the file's bytes."""
    index, whole = Csv(dataset).index(path), path.read_bytes()
    return [
        b"".join(whole[at : at + length] for at, length in sample_ranges(index, row)) for row in range(index.samples)
    ]


def test_csv_is_framed_and_dressed() -> None:
    assert isinstance(bind(described("csv", 5)), Dressed)


@pytest.mark.parametrize("size", range(2, 61))
def test_every_field_of_a_line_of_any_length_is_a_number(size: int) -> None:
    line = build_framed(Csv(described("csv", size)), np.array([size])).decode("ascii")
    assert len(line) == size
    assert line.endswith("\n")
    fields = line.removesuffix("\n").split(",")
    assert all(0 <= float(field) < 1 for field in fields)
    assert len(fields) == max(1, (size - 1) // 9 + ((size - 1) % 9 > 0))
    assert all(len(field) == 8 for field in fields[:-1])


@given(st.lists(st.integers(2, 400), min_size=1, max_size=9))
def test_lines_of_any_sizes_are_where_they_are_planned(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    path = tmp_path_factory.mktemp("csv") / "f.csv"
    check_framed(Csv(described("csv", VARYING)), np.array(sizes), path)


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("size", [2, 9, 10, 11, 999])
def test_lines_of_one_size_are_where_they_are_planned(tmp_path: Path, size: int, count: int) -> None:
    path = tmp_path / "f.csv"
    check_framed(Csv(described("csv", size)), np.full(count, size), path)
    assert Csv(described("csv", size)).index(path).columns[0].row_bytes == size


def test_readers_of_csv_give_a_row_a_sample(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    write_framed(Csv(described("csv", 95)), path, np.full(7, 95))
    with path.open(newline="") as stream:
        rows = [[float(field) for field in row] for row in csv.reader(stream)]
    assert [len(row) for row in rows] == [11] * 7
    assert np.loadtxt(path, delimiter=",").tolist() == rows


def test_pandas_gives_a_row_a_sample(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    path = tmp_path / "f.csv"
    write_framed(Csv(described("csv", 95)), path, np.full(7, 95))
    frame = pandas.read_csv(path, header=None)
    assert frame.shape == (7, 11)
    assert frame.to_numpy() == pytest.approx(np.loadtxt(path, delimiter=","))


def test_digits_are_made_of_the_random_bytes_and_are_evenly_spread() -> None:
    dataset = described("csv", 9000)
    every = np.repeat(np.arange(256, dtype=np.uint8), 2)
    for place in range(2, 8):
        counted = np.bincount(dressed(dataset, every, np.full(512, place)) - ord("0"))
        assert len(counted) == 10
        assert counted.min() >= 50
    assert dressed(dataset, np.zeros(20, np.uint8), 0).tobytes() == b"0.000000,0.000000,0."


@given(st.integers(1, 200), st.data())
def test_any_part_of_a_line_can_be_made_by_itself(size: int, data: st.DataObject) -> None:
    dataset = described("csv", size + 1)
    random = random_contents(dataset, 3, size)
    whole = dressed(dataset, random, 0)
    begin = data.draw(st.integers(0, size - 1))
    end = data.draw(st.integers(begin, size))
    assert dressed(dataset, random[begin:end], begin).tobytes() == whole[begin:end].tobytes()
    places = np.array(data.draw(st.lists(st.integers(0, size - 1))), np.int64)
    assert dressed(dataset, random[places], places).tobytes() == whole[places].tobytes()


def dressed(dataset: Dataset, data: np.ndarray, place: np.ndarray | int) -> np.ndarray:
    return Csv(dataset).dress(data, place)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (b"", []),
        (b"\n\n\r\n", []),
        (b"1,2\n3\n", [b"1,2\n", b"3\n"]),
        (b"1,2\n3", [b"1,2\n", b"3"]),
        (b"\n\n1\n\n2\n\n", [b"1\n", b"2\n"]),
        (b"1\r\n\r\n2\r\n", [b"1\r\n", b"2\r\n"]),
        (b"7", [b"7"]),
        (b"\n7", [b"7"]),
    ],
)
@pytest.mark.parametrize("block", [1, 2, 3, 1 << 20])
def test_lines_are_found_whatever_block_they_end_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes, lines: list[bytes], block: int
) -> None:
    monkeypatch.setattr(module, "_BLOCK", block)
    path = tmp_path / "f.csv"
    path.write_bytes(text)
    assert lines_found(path, described("csv", VARYING, source="*.csv")) == lines
    assert Csv(described("csv", VARYING)).index(path).touched == len(text)


@given(st.binary(max_size=60), st.integers(1, 9))
def test_the_index_of_any_bytes_is_that_of_lines_that_are_not_empty(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, block: int
) -> None:
    path = tmp_path_factory.mktemp("csv") / "f.csv"
    text = text.replace(b"\x01", b"\n").replace(b"\x00", b"\r")
    path.write_bytes(text)
    lines = [line + b"\n" for line in text.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK", block)
        found = lines_found(path, described("csv", VARYING, source="*.csv"))
    assert found == [line for line in lines if line not in (b"", b"\n", b"\r\n")]


@pytest.mark.parametrize("block", [3, 16, 64])
@pytest.mark.parametrize("ended", [False, True])
def test_longer_lines_than_the_limit_are_refused_and_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, ended: bool
) -> None:
    monkeypatch.setattr(module, "_BLOCK", block)
    monkeypatch.setattr(module, "LONGEST_LINE", 20)
    path = tmp_path / "f.csv"
    end = b"\n" if ended else b""
    path.write_bytes(b"1\n" * 30 + b"5" * (20 - ended) + end)
    assert Csv(described("csv", VARYING)).index(path).samples == 31
    path.write_bytes(b"1\n" * 30 + b"5" * (21 - ended) + end)
    with pytest.raises(ExecutionError, match=r"f.csv has a line longer than 20 bytes") as caught:
        Csv(described("csv", VARYING)).index(path)
    assert caught.value.code == "R401"


def test_more_lines_than_an_index_holds_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_LINES", 10)
    path = tmp_path / "f.csv"
    path.write_bytes(b"1\n" * 11)
    with pytest.raises(ExecutionError, match="more than 10 lines"):
        Csv(described("csv", VARYING)).index(path)


@pytest.mark.parametrize(
    "line",
    [b"0.1,,0.2\n", b"0.1,\n", b"0.1,abc\n", b"\0\0\0\n", b"\n", b"", b"0.1\n0.2\n", b"0.1;0.2\n", b"\xff\xfe\n"],
)
def test_damaged_text_is_refused_when_it_is_parsed(line: bytes) -> None:
    with pytest.raises(ExecutionError) as caught:
        Csv(described("csv", VARYING)).decode(None, memoryview(line))
    assert caught.value.code == "R401"


def test_a_line_of_ours_without_its_newline_is_refused_and_one_of_others_is_not() -> None:
    with pytest.raises(ExecutionError, match="newline"):
        Csv(described("csv", VARYING)).decode(None, memoryview(b"0.123456,0.1"))
    assert Csv(described("csv", VARYING, source="*.csv")).decode(None, memoryview(b"-1e5, nan ,7")) is None


@pytest.mark.parametrize(
    ("dataset", "setting"),
    [
        (described("csv", 10, header=1), "header"),
        (described("csv", 10, align=2), "align"),
        (described("csv", 10, compress=Compression("gzip", 1)), "compress"),
        (described("csv", 10, chunk=Chunk(3, "samples")), "chunk"),
        (described("csv", 10, parts=2), "parts"),
        (described("csv", 10, names=("x",)), "names"),
        (shaped("csv", (4,), "float32"), "shape"),
        (described("csv", 1), "size"),
        (described("csv", Distribution("uniform", (1.0, 50.0))), "size"),
        (described("csv", Distribution("normal", (500.0, 1.0))), "size"),
    ],
)
def test_what_lines_cannot_hold_is_refused_by_its_setting(dataset: Dataset, setting: str) -> None:
    refused = Csv(dataset).refuse()
    assert refused is not None
    assert refused[0] == setting


@pytest.mark.parametrize("size", [2, Distribution("normal", (500.0, 100.0), 2.0), Distribution("uniform", (2.0, 50.0))])
def test_sizes_from_2_are_not_refused(size: int | Distribution) -> None:
    assert Csv(described("csv", size)).refuse() is None
    assert Csv(described("csv", Distribution("uniform", (1.0, 1.0)), source="*.csv")).refuse() is None


def test_cut_files_are_refused_or_answered_within_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    write_framed(Csv(described("csv", 33)), path, np.full(7, 33))
    check_damage(Csv(described("csv", 33)), path)
