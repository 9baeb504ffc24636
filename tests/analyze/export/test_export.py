"""Exports of a trace: all events, in the form of each program, and nothing half written."""

from __future__ import annotations

import csv
import gzip
import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dliosim.analyze.commands.trace import FORMATS
from dliosim.analyze.export import tables
from dliosim.analyze.export.perfetto import assign_lanes, write_perfetto
from dliosim.analyze.export.tables import select_part
from dliosim.analyze.read.open_trace import open_trace
from dliosim.cli import main
from dliosim.errors import DliosimError, ExecutionError
from dliosim.trace.cut import parse_part
from dliosim.trace.events import COLUMNS, KINDS, LAYERS, Events, Trace
from tests.analyze.export.exports import complete_events, find_crossing, read_documents
from tests.analyze.rows import Row, compute, read, trace, write
from tests.examples import examples
from tests.trace.test_file import write as write_h5

HOSTILE = '/d/a,"b"\n100%d%s \udcff{x}\\'
RETURNS = "/d/a\rb\r\n"

_MAYBE = st.integers(-1, 1 << 40)
ROWS = st.lists(
    st.builds(
        Row,
        kind=st.sampled_from(KINDS),
        begin=st.integers(0, 3000),
        duration=st.integers(0, 900),
        process=st.integers(0, 2),
        layer=st.sampled_from(LAYERS),
        name=st.sampled_from(["pread64", "preadv", "write", "queued read", "train", '"100%"', "MPI_File_open"]),
        file=st.sampled_from(["", "/d/a", HOSTILE]),
        offset=_MAYBE,
        moved=_MAYBE,
        epoch=st.integers(1, 3) | st.just(-1),
        step=st.integers(1, 9) | st.just(-1),
        thread=st.integers(0, 3),
    ),
    min_size=1,
    max_size=40,
)


def make(rows: list[Row]) -> Trace:
    return trace(rows, source="dliosim")


def describe(events: Events) -> Counter[tuple[object, ...]]:
    """Each event in words, and how often it is there."""
    return Counter(
        (
            KINDS[kind],
            LAYERS[layer],
            events.names[name],
            events.processes[process],
            "" if file < 0 else events.files[file],
            *others,
        )
        for kind, layer, name, process, file, *others in zip(
            *(
                getattr(events, each).tolist()
                for each in ("kind", "layer", "name", "process", "file", "begin", "duration", "epoch", "step")
            ),
            strict=True,
        )
    )


@given(rows=ROWS)
@settings(max_examples=examples(60), deadline=None)
def test_analyze_reads_the_export_for_perfetto_as_the_trace(
    rows: list[Row], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("export") / "a.pfw.gz"
    before = replace(make(rows), command="dliosim run x; y", incomplete=("3 of 4",), notes=("recorded: all",))
    write_perfetto(before, str(path))
    after = open_trace([path])
    assert (after.source, after.duration) == ("dliosim", before.duration)
    assert (after.incomplete, after.command, after.notes[-1]) == (before.incomplete, before.command, before.notes[-1])
    used = set(before.events.process.tolist())
    assert [one.rank for one in after.events.processes] == sorted(used)
    assert describe(after.events) == describe(before.events)
    for kind in "read", "write":
        for column in "moved", "offset":
            both = [getattr(one, column)[one.is_kind(kind)] for one in (before.events, after.events)]
            assert sorted(both[0].tolist()) == sorted(both[1].tolist())


@given(rows=ROWS)
@settings(max_examples=examples(100), deadline=None)
def test_events_of_a_lane_are_within_each_other_or_do_not_overlap(
    rows: list[Row], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("export") / "a.pfw"
    write_perfetto(make(rows), str(path))
    documents = read_documents(path)
    assert len(complete_events(documents)) == len(rows)
    assert find_crossing(documents) is None
    # Perfetto takes lane 0 for that of the process's own number, and may join lanes of equal numbers.
    lanes = {(one["pid"], one["tid"]) for one in documents}
    assert len({lane for _, lane in lanes}) == len(lanes) and all(lane >= process > 0 for process, lane in lanes)


def test_calls_under_way_together_have_a_lane_each_and_the_first_that_is_free() -> None:
    rows = [read(0, 50), read(10, 50), read(20, 100), read(55, 10), read(60, 10), compute(0, 100)]
    events = make(rows).events
    lane, names = assign_lanes(events, has_readers=True)
    of_reads = lane[events.is_kind("read")].tolist()
    assert of_reads == [1, 3, 4, 1, 3]
    assert names[3] == ("I/O, 2 under way", 0)
    assert lane[events.is_kind("compute")].tolist() == [0]


def test_a_call_is_within_the_call_of_a_library_that_made_it() -> None:
    rows = [read(0, 100, layer="library", thread=1), read(10, 20, thread=1), read(30, 20, thread=1)]
    assert assign_lanes(make(rows).events, has_readers=True)[0].tolist() == [3, 3, 3]


def test_counters_add_up_to_the_bytes(tmp_path: Path) -> None:
    rows = [read(0, 10**9, moved=3 << 20), read(5 * 10**8, 10**9, moved=5 << 20), compute(0, 4 * 10**9)]
    write_perfetto(make(rows), str(tmp_path / "a.pfw"))
    points = [one for one in read_documents(tmp_path / "a.pfw") if one["ph"] == "C"]
    assert points[-1]["args"] == {"read": 0.0, "write": 0.0}
    times, rates = [one["ts"] for one in points], [one["args"]["read"] for one in points]
    assert sum(np.diff(times) * 1e-6 * rates[:-1]) == pytest.approx(8, rel=1e-2)


@pytest.mark.skipif(shutil.which("dftracer_event_count") is None, reason="dftracer-utils is not installed")
def test_dftracer_counts_the_events(tmp_path: Path) -> None:
    write_perfetto(make([read(at * 10, 5) for at in range(100)]), str(tmp_path / "a.pfw.gz"))
    expected = sum(one["ph"] != "M" for one in read_documents(tmp_path / "a.pfw.gz"))
    done = subprocess.run(["dftracer_event_count", "-d", tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == str(expected)


def test_a_name_that_ends_in_gz_has_members_that_a_reader_may_begin_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_MEMBER", 1000)
    write_perfetto(make([read(at * 10, 5) for at in range(40)]), str(tmp_path / "a.pfw.gz"))
    data = (tmp_path / "a.pfw.gz").read_bytes()
    second = data.index(b"\x1f\x8b\x08", 1)
    rest = gzip.decompress(data[second:])
    assert rest.startswith(b"{") and gzip.decompress(data).endswith(rest)


def test_more_than_a_browser_holds_is_said_with_the_part_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dliosim.analyze.export.perfetto._MOST_IN_BROWSER", 2000)
    rows = [read(at * 10, 5, process=rank, step=at + 1) for at in range(10) for rank in range(4)]
    (note,) = write_perfetto(make(rows), str(tmp_path / "a.pfw"))
    assert '--part "ranks 0 to 0"' in note
    assert write_perfetto(make(rows[:1]), str(tmp_path / "b.pfw")) == []


ALL = [
    read(1, 5, HOSTILE, 10, 20, process=1, epoch=1, step=2),
    write(2, 5, "/d/b", 0, 7, process=0),
    Row("epoch", 0, 50, layer="application", name="train", epoch=1),
    read(3, 4, "/d/b", 100, 1, layer="mpi-io", name="MPI_File_read_at"),
    read(9, 4, "/d/b", -1, 1, layer="library", name="read by the library"),
    read(2, 6, "/d/b", 40, 9),
    Row("open", 4, 1, file=RETURNS),
]


def test_csv_has_a_row_for_each_event_in_words(tmp_path: Path) -> None:
    FORMATS["csv"].write(make(ALL), str(tmp_path / "a.csv"))
    with (tmp_path / "a.csv").open(newline="", errors="surrogateescape") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(ALL)
    assert rows[-1] == {
        "rank": "1", "host": "node", "operation": "read", "layer": "posix", "call": "read", "path": HOSTILE,
        "thread": "0", "begin_ns": "1", "duration_ns": "5", "offset": "10", "asked_bytes": "20", "moved_bytes": "20",
        "epoch": "1", "step": "2",
    }  # fmt: skip
    assert RETURNS in {row["path"] for row in rows}
    epoch = next(row for row in rows if row["operation"] == "epoch")
    assert (epoch["path"], epoch["offset"], epoch["step"], epoch["epoch"]) == ("", "", "", "1")


def test_parquet_has_what_csv_has(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    for name in "csv", "parquet":
        FORMATS[name].write(make(ALL), str(tmp_path / name))
    table = parquet.read_table(tmp_path / "parquet").to_pylist()
    with (tmp_path / "csv").open(newline="", errors="replace") as file:
        rows = list(csv.DictReader(file))
    found = [{name: "" if value is None else str(value) for name, value in row.items()} for row in table]
    assert found == [{name: row[name] for name in found[0]} for row in rows]


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    write_h5(tmp_path / "trace.h5", [3])
    assert main(["trace", "export", str(tmp_path), "--format", "parquet", "-o", str(tmp_path / "x")]) == 2
    assert "pip install '.[parquet]'" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == ["trace.h5"]


def test_dxt_has_a_block_for_each_file_and_rank_and_says_what_it_has_not(tmp_path: Path) -> None:
    (note,) = FORMATS["dxt"].write(make(ALL), str(tmp_path / "a"))
    assert note.startswith("1 of 5 reads and writes are left out")
    text = (tmp_path / "a").read_text()
    blocks = text.split("\n# DXT, file_id: ")[1:]
    assert [block.split("file_name: ")[1].splitlines()[0] for block in blocks[:1]] == ["/d/b"]
    assert "# DXT, rank: 0, hostname: node\n# DXT, write_count: 1, read_count: 1\n" in blocks[0]
    rows = [line.split() for block in blocks for line in block.splitlines() if line.startswith(" X_")]
    assert rows == [
        ["X_POSIX", "0", "write", "0", "0", "7", "0.000000002", "0.000000007"],
        ["X_POSIX", "0", "read", "0", "40", "9", "0.000000002", "0.000000008"],
        ["X_POSIX", "1", "read", "0", "10", "20", "0.000000001", "0.000000006"],
        ["X_MPIIO", "0", "read", "0", "100", "1", "0.000000003", "0.000000007"],
    ]
    assert text.index("# DXT_POSIX module data") < text.index("# DXT_MPIIO module data")


def test_segments_of_a_block_are_numbered_on_over_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dliosim.analyze.export.tables._BLOCK", 3)
    rows = [*(write(at * 10, 1) for at in range(5)), *(read(at * 10, 1) for at in range(7))]
    FORMATS["dxt"].write(make(rows), str(tmp_path / "a"))
    found = [line.split()[2:4] for line in (tmp_path / "a").read_text().splitlines() if line.startswith(" X_")]
    assert found == [*(["write", str(at)] for at in range(5)), *(["read", str(at)] for at in range(7))]


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_that_is_there_is_kept_and_a_failure_leaves_none(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kept"
    path.write_text("kept")
    with pytest.raises(ExecutionError, match="it is there already"):
        FORMATS[name].write(make(ALL), str(path))
    assert path.read_text() == "kept"

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ExecutionError, match="No space left"):
        FORMATS[name].write(make(ALL), str(tmp_path / "new"))
    assert [one.name for one in tmp_path.iterdir()] == ["kept"]


PARTS: dict[str, Callable[[Events], object]] = {
    "": lambda e: e.step > -2,
    "steps 2 to 3": lambda e: (e.step == -1) | (e.step >= 2) & (e.step <= 3),
    "Ranks 1": lambda e: e.process == 1,
    "epoch 2, steps 1": lambda e: ((e.epoch == -1) | (e.epoch == 2)) & ((e.step == -1) | (e.step == 1)),
    "from 1 us to 2 us": lambda e: (e.begin < 2000) & ((e.begin >= 1000) | (e.end > 1000)),
}


@given(rows=ROWS, part=st.sampled_from(sorted(PARTS)))
@settings(max_examples=examples(40), deadline=None)
def test_a_part_has_the_events_that_it_names(rows: list[Row], part: str) -> None:
    events = make(rows).events
    expected = events.select(np.asarray(PARTS[part](events)))
    found = select_part(events, parse_part(part))
    assert all((getattr(found, name) == getattr(expected, name)).all() for name in COLUMNS)
    assert len(found) == len(expected)


def test_parts_that_touch_have_each_event_that_is_within_one_of_them_once() -> None:
    events = make([read(0, 1000), read(1000, 500), read(1000, 0), read(1500, 500), read(500, 1000)]).events
    parts = [select_part(events, parse_part(text)) for text in ("from 0 s to 1 us", "from 1 us to 2 us")]
    found = [sorted(zip(part.begin.tolist(), part.duration.tolist(), strict=True)) for part in parts]
    assert found == [[(0, 1000), (500, 1000)], [(500, 1000), (1000, 0), (1000, 500), (1500, 500)]]


@pytest.mark.parametrize(
    "text",
    [
        "from 0 s to 1 s, from 2 s to 3 s",
        "at most 1 GB",
        "steps 5 to 2",
        "from 2 s to 1 s",
        "from here to there",
        "all",
    ],
)
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_part(text)


def test_the_command_writes_next_to_where_it_is_called_and_analyze_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    write_h5(tmp_path / "mine" / "trace.h5", [300, 20])
    monkeypatch.chdir(tmp_path)
    assert main(["trace", "export", "mine"]) == 0
    assert capsys.readouterr().out.startswith("mine.pfw.gz: 322 events, ")
    answers = []
    for source in "mine", "mine.pfw.gz":
        assert main(["analyze", source, "--json"]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    for answer in answers:
        # Its place, and what else than events is in it.
        for name in "path", "left_out", "notes":
            del answer["job"][name]
    assert answers[0] == answers[1]


def test_csv_to_standard_output_has_the_rows_alone(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    write_h5(tmp_path / "trace.h5", [5])
    assert main(["trace", "export", str(tmp_path), "--format", "csv", "-o", "-"]) == 0
    assert len(capfdbinary.readouterr().out.splitlines()) == 1 + 6
    assert [one.name for one in tmp_path.iterdir()] == ["trace.h5"]


def test_a_part_without_events_says_what_there_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_h5(tmp_path / "trace.h5", [5])
    assert main(["trace", "export", str(tmp_path), "--part", "ranks 7", "-o", str(tmp_path / "x")]) == 2
    assert "it has ranks 0 to 0, steps to 20" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        (["trace"], "write `dliosim trace export my-results"),
        (["trace", "my-results"], "(choose from 'export')"),
        (["trace", "export", "my-results", "--format", "json"], "written as `--format perfetto`"),
    ],
)
def test_a_mistake_ends_with_what_to_type(words: list[str], cure: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert cure in capsys.readouterr().err


def test_errors_of_the_command_are_those_of_dliosim(tmp_path: Path) -> None:
    with pytest.raises(DliosimError, match="No such file"):
        write_perfetto(make(ALL), str(tmp_path / "absent" / "a.pfw"))
