"""The samples of files that a trace names: read if they are here, regular, few and those of the trace."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dliosim.analyze.infer import contents
from dliosim.analyze.infer.contents import read_contents
from dliosim.model import Chunk
from tests.analyze.infer.test_infer import compiled, first_loop, infer, line_of
from tests.analyze.rows import MS, Row, read


def write_rows(folder: Path, files: int = 2, rows: int = 50, wide: int = 9) -> list[str]:
    """Write files of lines, of `wide` bytes each with their ends."""
    paths = [folder / f"{file}.csv" for file in range(files)]
    for path in paths:
        path.write_text(("a" * (wide - 1) + "\n") * rows)
    return [str(path) for path in paths]


def test_the_places_of_samples_in_files(tmp_path: Path) -> None:
    found = read_contents(write_rows(tmp_path))
    assert found is not None
    assert (found.dataset.format, found.samples, found.ends.tolist()) == ("csv", 100, [450, 450])
    assert found.offset[:3].tolist() == [0, 9, 18]
    assert found.file.tolist() == [0] * 50 + [1] * 50


@pytest.mark.parametrize("kind", ["gone", "fifo", "folder", "long name", "other bytes", "relative", "closed folder"])
def test_what_cannot_be_read_says_nothing(kind: str, tmp_path: Path) -> None:
    paths = write_rows(tmp_path)
    (tmp_path / "0.csv").unlink()
    if kind == "fifo":
        os.mkfifo(tmp_path / "0.csv")
    elif kind == "folder":
        (tmp_path / "0.csv").mkdir()
    elif kind == "other bytes":
        shutil.move(tmp_path / "1.csv", tmp_path / "0.h5")
        paths = [str(tmp_path / "0.h5")]
    elif kind == "long name":
        paths = [str(tmp_path / ("n" * 300 + ".csv"))]
    elif kind == "closed folder":
        paths = [str(tmp_path / "1.csv" / "inside.csv")]  # a file in place of the folder
    elif kind == "relative":
        paths = ["0.csv"]
    assert read_contents(paths) is None


def test_more_samples_than_can_be_placed_are_only_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "_MOST_SAMPLES", 99)
    found = read_contents(write_rows(tmp_path))
    assert found is not None and (found.samples, len(found.file)) == (100, 0)


def test_calls_of_several_samples_are_counted_by_the_files(tmp_path: Path) -> None:
    paths = write_rows(tmp_path, rows=48)
    places = [(path, half * 9 * 8) for path in paths for half in range(6)]
    order = np.random.default_rng(5).permutation(len(places)).tolist()
    rows = [read(at * MS, MS // 9, *places[place], 72, epoch=1, step=at + 1) for at, place in enumerate(order)]
    made = infer([*rows])
    assert line_of(made, "samples").split()[1] == "96"
    assert line_of(made, "format").split()[1] == "csv"
    assert line_of(made, "batch").split()[1] == "8" and "# ?" not in line_of(made, "batch")


@pytest.mark.parametrize(("many", "are_even"), [([96, 96], True), ([10, 90], True), ([24, 10, 10, 24], False)])
def test_rows_of_a_row_group_are_the_chunk(many: list[int], are_even: bool, tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    tables = [pa.table({"number": np.arange(rows)}) for rows in many]
    paths = [str(tmp_path / f"{file}.parquet") for file in range(2)]
    for path, some in zip(paths, (tables[:1], tables[1:]), strict=True):
        with pq.ParquetWriter(path, some[0].schema) as file:
            for table in some:
                file.write_table(table, row_group_size=24)
    found = read_contents(paths)
    assert found is not None
    assert (found.samples, found.dataset.chunk, found.are_even) == (sum(many), Chunk(24, "samples"), are_even)


def read_columns(folder: Path, tables: Sequence[Any], chosen: Sequence[int]) -> list[Row]:
    """Write Parquet files; return reads of their footers, and of columns of each row group, which is a step."""
    pq = pytest.importorskip("pyarrow.parquet")
    rows: list[Row] = []
    step = 0
    for number, table in enumerate(tables):
        path = folder / f"{number}.parquet"
        pq.write_table(table, path, 2400, use_dictionary=False, compression="none", write_statistics=False)
        footer, last = pq.ParquetFile(path).metadata, min(path.stat().st_size, 65_536)
        rows.append(read(step * 100 * MS, MS // 9, str(path), path.stat().st_size - last, last, epoch=1, step=step + 1))
        for group in range(footer.num_row_groups):
            for column in chosen:
                chunk, begin = footer.row_group(group).column(column), (100 * step + column + 1) * MS
                place = str(path), chunk.data_page_offset, chunk.total_compressed_size
                rows.append(read(begin, MS // 9, *place, epoch=1, step=step + 1))
            step += 1
    return rows


def make_table(names: str, rows: int = 9600) -> Any:
    pa = pytest.importorskip("pyarrow")
    four, eight, bits = np.arange(rows, dtype=np.int32), np.arange(rows, dtype=np.int64), np.zeros(rows, np.bool_)
    kinds = {"i": four, "t": pa.array([b"x" * 96] * rows), "l": eight, "b": bits}
    return pa.table({f"{name}{at}": kinds[name] for at, name in enumerate(names)})


@pytest.mark.parametrize(
    ("chosen", "columns", "many"),
    [
        ([0, 1, 2, 3, 4], "2 of int32, 1 of 100 x int8, 2 of int64", None),
        ([0, 1], "2 of int32, 1 of 116 x int8", 2),
        ([1, 4], "1 of int32, 1 of int64, 1 of 112 x int8", 2),
        ([4], "1 of int64, 1 of 116 x int8", 1),
    ],
)
def test_columns_that_were_read_are_the_first_of_the_pattern(
    chosen: list[int], columns: str, many: int | None, tmp_path: Path
) -> None:
    made = infer(read_columns(tmp_path, [make_table("iitll", 24_000)] * 2, chosen))
    workload, line = compiled(made, tmp_path), line_of(made, "columns")
    (data,) = workload.datasets
    assert (data.format, data.samples, data.chunk) == ("parquet", 48_000, Chunk(2400, "samples"))
    assert " ".join(line.partition("#")[0].split()) == f"columns {columns}"
    assert f"# {len(chosen)} of 5 columns were read" in line
    assert first_loop(made, tmp_path).columns == many
    assert line_of(made, "batch").split()[1] == "2400"


def test_many_columns_of_different_widths_are_one_statement(tmp_path: Path) -> None:
    made = infer(read_columns(tmp_path, [make_table("il" * 300, 4800)] * 2, range(600)))
    assert "300 of int32, 300 of int64" in line_of(made, "columns")
    assert compiled(made, tmp_path).datasets[0].parts == 600


@pytest.mark.parametrize("tables", [("bbbb", "bbbb"), ("itl", "lti"), ("iil", "ii")])
def test_columns_of_bits_and_those_that_differ_between_files_are_no_table(
    tables: tuple[str, str], tmp_path: Path
) -> None:
    made = infer(read_columns(tmp_path, [make_table(names) for names in tables], [0, 1]))
    assert compiled(made, tmp_path).datasets[0].columns == ()


@pytest.mark.parametrize(("chunks", "chunk"), [((4, 64), Chunk(4, "samples")), (None, None)])
def test_an_array_that_is_not_cut_has_no_chunk(
    chunks: tuple[int, int] | None, chunk: Chunk | None, tmp_path: Path
) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "0.h5", "w") as file:
        file.create_dataset("x", data=np.ones((32, 64)), chunks=chunks)
    found = read_contents([str(tmp_path / "0.h5")])
    assert found is not None
    assert found.dataset.chunk == chunk


def test_other_files_at_the_paths_of_a_trace_are_not_its_files(tmp_path: Path) -> None:
    paths = write_rows(tmp_path, rows=10)
    rows = [read(at * MS, MS // 9, paths[at % 2], at // 2 * 72, 72, epoch=1, step=at + 1) for at in range(12)]
    assert "# ?" in line_of(infer(rows), "format")


def test_a_copy_of_several_samples_from_a_mapping_does_not_say_where_a_file_ends(tmp_path: Path) -> None:
    paths, name = write_rows(tmp_path, files=1), "copies from a mapping"
    copies = [(sample, 9) for sample in range(48)] + [(49, 18)]  # of the samples 49 and 3
    rows = [read(at * MS, MS // 9, paths[0], one * 9, moved, name=name) for at, (one, moved) in enumerate(copies)]
    assert line_of(infer(rows), "format").split()[1] == "csv"


def test_reads_of_all_of_large_files_are_not_taken_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dliosim.analyze.infer.data_files._MOST_SAMPLES", 200)
    paths = write_rows(tmp_path)
    rows = [read(at * MS, MS // 9, paths[at % 2], 0, 450, epoch=1, step=at + 1) for at in range(12)]
    assert "# ?" in line_of(infer(rows), "format")


@pytest.mark.parametrize(("read_bytes", "is_sure"), [(64, False), (728, True)])
def test_a_size_that_is_less_than_files_hold_is_a_guess(read_bytes: int, is_sure: bool, tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{file}.npy") for file in range(8)]
    for path in paths:
        np.save(path, np.zeros(600, np.uint8))
    rows = [read(at * MS, MS // 9, path, 0, read_bytes, epoch=1, step=at // 2 + 1) for at, path in enumerate(paths)]
    line = line_of(infer(rows), "size")
    assert ("# ?" not in line) == is_sure
    assert is_sure or "11 % of what the files have" in line
