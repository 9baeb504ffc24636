"""The file of a trace: what is written comes back, what is damaged is refused."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dliosim.analyze.read.open_trace import open_trace
from dliosim.errors import TraceError, UsageError
from dliosim.trace.calls import NAMES, Call
from dliosim.trace.columns import CALL_COLUMNS, CHUNK_ROWS, SPAN_COLUMNS, ColumnBuffer, SpillFile
from dliosim.trace.events import KINDS, Trace, kind_number
from dliosim.trace.file import (
    HEAD,
    _to_job_clock,
    chunk_rows,
    create_trace,
    group_columns,
    pack_names,
    read_trace,
)
from tests.examples import examples
from tests.trace.full_disk import largest_file


def rank_columns(rank: int, count: int) -> dict[str, np.ndarray]:
    row = np.arange(count)
    return {
        "call": np.full(count, Call.READ),
        "thread": row % 3,
        "begin": row * 10,
        "duration": row % 7,
        "file": row % 2,
        "offset": row * 4096 + rank,
        "asked": np.full(count, 4096),
        "moved": np.full(count, 4096),
        "epoch": np.full(count, 1),
        "step": row + 1,
    }


def write(path: Path, counts: list[int], ahead: int = 0, command: str = "dliosim run x") -> None:
    """Write a trace of ranks with these numbers of calls, and one span each."""
    buffers, heads = [], []
    for rank, count in enumerate(counts):
        spill = SpillFile(str(path.parent))
        calls, spans = ColumnBuffer(CALL_COLUMNS, 1 << 30, spill), ColumnBuffer(SPAN_COLUMNS, 1 << 30, spill)
        calls.add(rank_columns(rank, count))
        spans.add({name: np.array([kind_number("compute") if name == "kind" else 20]) for name in SPAN_COLUMNS})
        calls.compress()
        buffers.append((calls, spans))
        of = {
            "rank": rank,
            "calls": count,
            "calls_made": count,
            "spans": 1,
            "spans_made": 1,
            "origin": 5 + ahead * rank,
        }
        of |= {"ahead_first": ahead * rank, "ahead_last": ahead * rank, "clock_last": 1000}
        heads.append([of.get(name, 0) for name in HEAD])
    table = np.array(heads, np.int64)
    writer = create_trace(path, table, {"command": command})
    try:
        rows = [chunk_rows(max(counts)), chunk_rows(1)]
        for rank, both in enumerate(buffers):
            for name, buffer, each in zip(("calls", "spans"), both, rows, strict=True):
                for number, chunks in enumerate(group_columns(buffer.chunks(each), len(buffer.types))):
                    writer.write_chunks(name, rank, number * each, chunks)
            writer.write_names(rank, "files", pack_names([f"own {rank}", "shared"]))
            writer.write_names(rank, "names", pack_names([*NAMES, "compute"]))
            writer.write_names(rank, "host", pack_names([f"node{rank}"]))
    finally:  # HDF5 ends the process by SIGSEGV if a file that could not be written is open at its exit
        writer.close()


@given(counts=st.lists(st.integers(0, 700), min_size=1, max_size=4))
@settings(max_examples=examples(15), deadline=None)
def test_what_ranks_write_comes_back(counts: list[int], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("trace") / "trace.h5"
    write(path, counts)
    events = read_trace(path).events
    for rank, count in enumerate(counts):
        own = events.select((events.process == rank) & events.is_kind("read"))
        assert own.offset.tolist() == rank_columns(rank, count)["offset"].tolist()
        paths = [events.files[file] for file in own.file.tolist()]
        assert paths == [(f"own {rank}", "shared")[row % 2] for row in range(count)]
        assert events.processes[rank].host == f"node{rank}"
    assert events.is_kind("compute").sum() == len(counts)
    assert {KINDS[kind] for kind in events.kind.tolist()} <= {"read", "compute"}


def test_a_command_line_of_any_bytes_comes_back_as_text(tmp_path: Path) -> None:
    write(tmp_path / "trace.h5", [3], command=os.fsdecode(b"dliosim run x --dir /d\xc3\xb6/\xff"))
    assert read_trace(tmp_path / "trace.h5").command == "dliosim run x --dir /d\u00f6/\\udcff"


def test_more_rows_than_a_chunk_come_back(tmp_path: Path) -> None:
    write(tmp_path / "trace.h5", [CHUNK_ROWS + 10, 3])
    events = read_trace(tmp_path / "trace.h5").events
    found = events.select((events.process == 0) & events.is_kind("read"))
    assert found.offset.tolist() == rank_columns(0, CHUNK_ROWS + 10)["offset"].tolist()
    assert (events.process == 1).sum() == 3 + 1


def test_clocks_of_nodes_are_set_to_that_of_the_first(tmp_path: Path) -> None:
    write(tmp_path / "trace.h5", [4, 4], ahead=1_000_000)
    events = read_trace(tmp_path / "trace.h5").events
    both = [events.select((events.process == rank) & events.is_kind("read")).begin.tolist() for rank in (0, 1)]
    assert both[0] == both[1] == [0, 10, 20, 30]


@given(
    offset=st.integers(-(10**17), 10**17),
    per_million=st.integers(-1000, 1000),
    waits=st.tuples(st.integers(0, 10**10), st.integers(10**9, 10**14)),
    times=st.lists(st.integers(0, 10**14), min_size=1, max_size=20),
)
def test_times_of_a_clock_that_drifts_are_those_of_rank_0(
    offset: int, per_million: int, waits: tuple[int, int], times: list[int]
) -> None:
    # The clock of the rank, by that of rank 0; it is compared after the first wait, and again after the second.
    def clock(time: int) -> int:
        return offset + time + time * per_million // 1_000_000

    start, first, last = 12_345, waits[0], sum(waits)
    of = {"origin": clock(0), "clock_first": clock(first), "ahead_first": clock(first) - first}
    of |= {"clock_last": clock(last), "ahead_last": clock(last) - last}
    inside = [time % last for time in times]
    found = _to_job_clock(np.array([clock(time) - of["origin"] for time in inside]), of, start)
    wrong = np.abs(found + start - np.array(inside))
    # A reading is wrong by 1 ns at most; before the first one, by as much more often as the wait was longer.
    assert wrong.max() <= 3 + 2 * waits[0] // waits[1]


def test_chunks_that_memory_has_no_room_for_come_back_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dliosim.trace.columns._KEPT", 100_000)
    write(tmp_path / "trace.h5", [2 * CHUNK_ROWS + 5])
    events = read_trace(tmp_path / "trace.h5").events
    assert events.select(events.is_kind("read")).step.tolist() == list(range(1, 2 * CHUNK_ROWS + 6))
    assert [each.name for each in tmp_path.iterdir()] == ["trace.h5"]


@pytest.mark.parametrize("size", [0, 600, 3_000, 6_000, 50_000])
def test_a_disk_that_becomes_full_is_an_error_and_not_the_end_of_the_process(size: int, tmp_path: Path) -> None:
    path = tmp_path / "trace.h5"
    with largest_file(size), pytest.raises(OSError, match="File too large"):
        write(path, [300, 20])
    path.unlink()
    write(path, [300, 20])
    assert len(read_trace(path).events) == 322


def damage_heads(path: Path, column: str, value: int) -> None:
    with h5py.File(path, "r+") as file:
        file["ranks"][0, HEAD.index(column)] = value


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("calls", 1 << 40), ("calls", -1), ("calls", 600), ("spans", 1 << 33), ("calls_made", 299), ("rank", 1)),
        *((clock, value) for clock in HEAD[HEAD.index("origin") :] for value in (-(1 << 63), (1 << 63) - 1)),
    ],
)
def test_numbers_that_do_not_fit_are_refused(column: str, value: int, tmp_path: Path) -> None:
    path = tmp_path / "trace.h5"
    write(path, [300])
    damage_heads(path, column, value)
    with pytest.raises(TraceError, match=r"trace\.h5 cannot be read as a trace of dliosim"):
        read_trace(path)


@pytest.mark.parametrize("cut", [0, 100, 5000])
def test_a_file_that_is_cut_is_refused(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "trace.h5"
    write(path, [300])
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(TraceError, match="cannot be read as a trace"):
        read_trace(path)


@pytest.mark.parametrize("what", ["calls/file", "calls/call", "spans/name", "spans/kind"])
def test_indices_beyond_their_tables_are_refused(what: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.h5"
    write(path, [3])
    with h5py.File(path, "r+") as file:
        file[what][0] = 100
    with pytest.raises(TraceError, match=r"not listed|does not know"):
        read_trace(path)


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("calls/duration", -1),
        ("calls/thread", -1),
        ("calls/moved", -2),
        ("spans/step", -2),
        ("spans/begin", -(1 << 61)),
    ],
)
def test_numbers_that_no_run_has_are_refused(what: str, value: int, tmp_path: Path) -> None:
    path = tmp_path / "trace.h5"
    write(path, [3])
    with h5py.File(path, "r+") as file:
        file[what][0] = value
    with pytest.raises(TraceError, match="out of range"):
        read_trace(path)


def test_rows_that_are_not_stored_are_refused_before_they_take_memory(tmp_path: Path) -> None:
    path, rows = tmp_path / "trace.h5", 1 << 30
    write(path, [300])
    with h5py.File(path, "r+") as file:
        each = int(file["calls"].attrs["chunk_rows"])
        for name, kind in CALL_COLUMNS.items():
            del file["calls"][name]
            file["calls"].create_dataset(name, (rows,), kind, chunks=(each,), maxshape=(None,))
    damage_heads(path, "calls_made", rows)
    damage_heads(path, "calls", rows)
    with pytest.raises(TraceError, match="has not all of its rows"):
        read_trace(path)


def test_columns_of_another_file_are_refused(tmp_path: Path) -> None:
    path, other = tmp_path / "trace.h5", tmp_path / "other.h5"
    write(path, [300])
    write(other, [300])
    with h5py.File(path, "r+") as file:
        del file["calls/offset"]
        file["calls/offset"] = h5py.ExternalLink(str(other), "/calls/offset")
    with pytest.raises(TraceError, match="offset is no data set of this file"):
        read_trace(path)


@pytest.mark.parametrize("text", ["[1]", '{"train": 3}', "{", "NaN"])
def test_settings_of_another_form_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.h5"
    write(path, [3])
    with h5py.File(path, "r+") as file:
        file.attrs["settings"] = text
    with pytest.raises(TraceError, match="cannot be read as a trace"):
        read_trace(path)


def test_rows_beyond_the_limit_make_a_trace_incomplete(tmp_path: Path) -> None:
    path = tmp_path / "trace.h5"
    write(path, [3])
    damage_heads(path, "calls_made", 10)
    found: Trace = read_trace(path)
    assert found.incomplete == ("3 of 10 calls were recorded: the trace had reached its limit of bytes",)


def test_a_folder_of_results_is_opened_by_its_trace_or_says_that_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(UsageError, match="was not recorded") as refused:
        open_trace([tmp_path])
    assert "dliosim run cosmoflow --trace" in str(refused.value)
    write(tmp_path / "trace.h5", [3])
    assert len(open_trace([tmp_path]).events) == len(open_trace([tmp_path / "trace.h5"]).events) == 4
