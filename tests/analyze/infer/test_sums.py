"""Patterns out of logs with sums alone: as many calls as they count, and nothing of their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.analyze.figures.view import View
from dliosim.analyze.infer.facts import Fact, list_settings, write_lines
from dliosim.analyze.infer.pattern import explain_work, infer_pattern
from dliosim.analyze.infer.sums import spread_sums
from dliosim.analyze.read.darshan.counters import FileCounters, LogTrace
from dliosim.errors import TraceError
from dliosim.language.compile import compile_pattern
from dliosim.model import Job
from dliosim.plan.forecast.forecast import loops_of
from dliosim.trace.events import Process, make_events


def log_of(rows: Sequence[Mapping[str, object]], ranks: int, module: str = "POSIX") -> LogTrace:
    """Return a log of counters; each row has a `file`, a `rank`, and counters by their names."""
    names = {name for row in rows for name in row} - {"file", "rank"}
    files = tuple(dict.fromkeys(str(row["file"]) for row in rows))
    table = FileCounters(
        module,
        np.array([files.index(str(row["file"])) for row in rows], np.int32),
        np.array([row["rank"] for row in rows], np.int32),
        {name: np.array([row.get(name, 0) for row in rows], np.int64) for name in names if name[:2] != "F_"},
        {name: np.array([row.get(name, 0.0) for row in rows]) for name in names if name[:2] == "F_"},
        files,
    )
    events = make_events({"kind": np.zeros(0, np.int8)}, processes=tuple(Process(rank, -1) for rank in range(ranks)))
    return LogTrace("Darshan counters", "log", events, 10**9, counters=(table,))


def read_of(file: str, rank: int, size: int, calls: int, passes: int = 1) -> dict[str, object]:
    return {
        "file": file, "rank": rank, "OPENS": passes, "READS": calls * passes, "BYTES_READ": size * passes,
        "MAX_BYTE_READ": size - 1, "ACCESS1_ACCESS": size // calls, "ACCESS1_COUNT": calls * passes,
        "F_READ_START_TIMESTAMP": 1.0, "F_READ_END_TIMESTAMP": 9.0,
    }  # fmt: skip


def test_files_that_ranks_read_whole_three_times(tmp_path: Path) -> None:
    rows = [read_of(f"/d/{file:03d}.npz", file % 2, 40_000, 1, passes=3) for file in range(20)]
    made = infer_pattern(View(log_of(rows, ranks=2)))
    file = tmp_path / "made.dlio"
    file.write_text(write_lines(made.lines).replace("NAME", "made"))
    workload = compile_pattern(file, [], Job(2))[0]
    (data,), (loop,) = workload.datasets, loops_of(workload.verbs)
    assert (data.samples, data.constant_size, data.layout.kind) == (20, 40_000, "file per sample")
    assert loop.epochs == 3
    assert explain_work(made.work, workload) == {"bytes": 1.0, "calls": 1.0, "files": 1.0}
    unsure = {one.head for one in list_settings(made.lines) if not one.fact.is_sure}
    assert unsure >= {"batch", "shuffle", "readers", "compute", "sync"}


def test_a_file_that_all_ranks_read_together_in_calls_of_one_size(tmp_path: Path) -> None:
    made = infer_pattern(View(log_of([read_of("/d/all", -1, 6_000_000, 6000)], ranks=3)))
    file = tmp_path / "made.dlio"
    file.write_text(write_lines(made.lines).replace("NAME", "made"))
    (data,) = compile_pattern(file, [], Job(3))[0].datasets
    assert (data.samples, data.constant_size, data.layout.kind) == (6000, 1000, "shared file")
    assert made.ranks == 3


def facts_of(log: LogTrace) -> dict[str, Fact]:
    """Return the facts of the first block that has each."""
    found: dict[str, Fact] = {}
    for one in list_settings(infer_pattern(View(log)).lines):
        found.setdefault(one.head, one.fact)
    return found


def test_files_that_a_process_reads_whole_at_the_same_time_are_samples() -> None:
    facts = facts_of(log_of([read_of(f"/d/{file}.npz", 0, 9_000_000, 3, passes=5) for file in range(9)], ranks=1))
    assert facts["samples"] == Fact("9", "9 were read")
    assert (facts["size"].value, facts["layout"].value) == ("9 MB", "file per sample")
    assert (facts["epochs"].value, facts["epochs"].is_sure) == ("5", False)


def test_a_file_that_was_read_once_for_each_rank_was_read_once_by_each() -> None:
    facts = facts_of(log_of([read_of("/d/all", -1, 6_000, 6, passes=4)], ranks=4))
    assert [facts[head].value for head in ("samples", "epochs", "shard")] == ["6", "1", "off"]
    assert not facts["epochs"].is_sure and not facts["shard"].is_sure


def test_what_is_read_beyond_the_bytes_of_a_file_makes_it_no_longer() -> None:
    row = read_of("/d/all", 0, 8_000, 8) | {"BYTES_READ": 9_000, "READS": 9, "ACCESS1_COUNT": 9}
    assert facts_of(log_of([row], ranks=1))["samples"].value == "8"


@pytest.mark.parametrize(
    ("writes", "size", "is_sure"),
    [
        ({"ACCESS1_ACCESS": 250_000, "ACCESS1_COUNT": 32, "ACCESS2_ACCESS": 500, "ACCESS2_COUNT": 30}, "250 kB", True),
        ({"ACCESS1_ACCESS": 260_000, "ACCESS1_COUNT": 16, "ACCESS2_ACCESS": 250_000, "ACCESS2_COUNT": 16}, "", False),
        ({}, "250 kB", False),
    ],
)
def test_sizes_of_reads_among_writes_are_those_of_their_bin(
    writes: dict[str, object], size: str, is_sure: bool
) -> None:
    row = read_of("/d/all", -1, 4_000_000, 16) | {"ACCESS1_COUNT": 0, "ACCESS1_ACCESS": 0}
    row |= {"WRITES": 46, "BYTES_WRITTEN": 4_015_000, "SIZE_READ_100K_1M": 16}
    fact = facts_of(log_of([row | writes], ranks=2))["size"]
    assert fact.is_sure == is_sure
    assert not size or fact.value == size


def test_streams_of_a_process_are_no_files() -> None:
    printed = {"file": "<STDOUT>", "rank": 0, "WRITES": 1 << 30, "BYTES_WRITTEN": 1 << 34}
    made = infer_pattern(View(log_of([read_of("/d/all", 0, 9_000, 9), printed], ranks=1)))
    assert made.work.parts["other"] == (0, 0)
    assert made.work.files == 1


def test_opens_of_files_that_were_written_may_be_for_writes() -> None:
    row = read_of("/d/all", 0, 9_000, 9)
    assert facts_of(log_of([row], ranks=1))["open"].is_sure
    written = {"WRITES": 9, "BYTES_WRITTEN": 9_000, "MAX_BYTE_WRITTEN": 8_999}
    assert not facts_of(log_of([row | written], ranks=1))["open"].is_sure


def test_what_was_written_by_one_rank_is_a_checkpoint_of_it(tmp_path: Path) -> None:
    saved = {"file": "/d/ckpt/a.pt", "rank": 0, "OPENS": 1, "WRITES": 8, "BYTES_WRITTEN": 8_000_000, "FSYNCS": 1}
    made = infer_pattern(View(log_of([saved | {"MAX_BYTE_WRITTEN": 7_999_999}], ranks=4)))
    file = tmp_path / "made.dlio"
    file.write_text(write_lines(made.lines).replace("NAME", "made"))
    (kept,) = compile_pattern(file, [], Job(4))[0].checkpoints
    assert kept.writers.kind == "rank"
    assert made.work.parts["save"] == (8_000_000, 8)


def test_files_that_differ_in_numbers_are_saves_one_behind_the_other() -> None:
    rows = [
        {
            "file": f"/d/checkpoint-{number}.h5", "rank": 0, "OPENS": 1, "WRITES": 8, "BYTES_WRITTEN": 8_000,
            "MAX_BYTE_WRITTEN": 7_999, "F_WRITE_START_TIMESTAMP": number, "F_WRITE_END_TIMESTAMP": number + 0.5,
        }
        for number in range(5)
    ]  # fmt: skip
    part = facts_of(log_of(rows, ranks=4))["part"]
    assert part == Fact("state 8 kB whole", "5 saves of 40 kB in all", is_sure=False)


def test_a_log_that_counts_too_many_calls_is_refused() -> None:
    row = read_of("/d/all", -1, 1 << 40, 1 << 30)
    with pytest.raises(TraceError, match="1,073,741,825 calls"):
        spread_sums(log_of([row], ranks=2))


@given(st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(1, 9), min_size=1), st.integers(-1, 2)), min_size=1))
def test_no_call_and_no_byte_is_lost(rows: list[tuple[int, list[int], int]]) -> None:
    counters = []
    for file, sizes, rank in rows:
        named = {}
        for slot, (size, times) in enumerate(Counter(sizes).most_common(4), 1):
            named |= {f"ACCESS{slot}_ACCESS": size, f"ACCESS{slot}_COUNT": times}
        counters.append({"file": f"/d/{file}", "rank": rank, "READS": len(sizes), "BYTES_READ": sum(sizes), **named})
    events = spread_sums(log_of(counters, ranks=3))
    reads = events.select(events.is_kind("read"))
    for number, path in enumerate(events.files):
        sizes = [size for file, some, _ in rows for size in some if f"/d/{file}" == path]
        assert (reads.file == number).sum() == len(sizes)
        assert 0 <= sum(sizes) - reads.moved[reads.file == number].sum() < len(sizes)  # a mean is rounded
