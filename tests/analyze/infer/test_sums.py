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
from dliosim.analyze.infer.facts import Setting
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
    file.write_text(made.text.replace("NAME", "made"))
    workload = compile_pattern(file, [], Job(2))[0]
    (data,), (loop,) = workload.datasets, loops_of(workload.verbs)
    assert (data.samples, data.constant_size, data.layout.kind) == (20, 40_000, "file per sample")
    assert loop.epochs == 3
    assert explain_work(made.work, workload) == {"bytes": 1.0, "calls": 1.0, "files": 1.0}
    unsure = {line.head for line in made.lines if isinstance(line, Setting) and not line.fact.is_sure}
    assert unsure >= {"batch", "shuffle", "readers", "compute", "sync"}


def test_a_file_that_all_ranks_read_together_in_calls_of_one_size(tmp_path: Path) -> None:
    made = infer_pattern(View(log_of([read_of("/d/all", -1, 6_000_000, 6000)], ranks=3)))
    file = tmp_path / "made.dlio"
    file.write_text(made.text.replace("NAME", "made"))
    (data,) = compile_pattern(file, [], Job(3))[0].datasets
    assert (data.samples, data.constant_size, data.layout.kind) == (6000, 1000, "shared file")
    assert made.ranks == 3


def test_what_was_written_by_one_rank_is_a_checkpoint_of_it(tmp_path: Path) -> None:
    saved = {"file": "/d/ckpt/a.pt", "rank": 0, "OPENS": 1, "WRITES": 8, "BYTES_WRITTEN": 8_000_000, "FSYNCS": 1}
    made = infer_pattern(View(log_of([saved | {"MAX_BYTE_WRITTEN": 7_999_999}], ranks=4)))
    file = tmp_path / "made.dlio"
    file.write_text(made.text.replace("NAME", "made"))
    (kept,) = compile_pattern(file, [], Job(4))[0].checkpoints
    assert kept.writers.kind == "rank"
    assert made.work.parts["save"] == (8_000_000, 8)


def test_a_log_that_counts_too_many_calls_is_refused() -> None:
    row = read_of("/d/all", -1, 1 << 40, 1 << 30)
    with pytest.raises(TraceError, match="1,073,741,824 calls"):
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
