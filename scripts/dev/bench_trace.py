"""The cost of a trace: of recording a call, of writing and reading a million, and of a run, as markdown rows.

    python scripts/dev/bench_trace.py [--repetitions 7] [--place /dev/shm]

Recording: the calls of batches are put into a log and collected as a run does, without any I/O: ns a call, beyond the
clock readings that a loop makes anyway. Storing: 1,000,000 calls of one rank, at random offsets with drawn times. A
run: the same loop with and without --trace by turns, and the time of its steps.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from itertools import islice
from pathlib import Path
from time import perf_counter_ns

import numpy as np
from harness import header, middle, mpiexec, orderly, row, run, scratch

from dliosim.measure.rank.meter import Meter
from dliosim.plan.samples.io_requests import Calls, Extents, plan_calls
from dliosim.trace.calls import NAMES, Call
from dliosim.trace.columns import CALL_COLUMNS, SPAN_COLUMNS, ColumnBuffer, SpillFile
from dliosim.trace.cut import TraceCut
from dliosim.trace.file import HEAD, chunk_rows, create_trace, group_columns, pack_names, read_trace
from dliosim.trace.recorder import Recorder

MILLION = 1_000_000

PATTERN = """\
dlio 1
workload traced
seed 1
dataset d {
    samples 262_144
    size    4 KiB
    layout  shared file
    path    "d"
}
prepare d
train loop {
    read    d
    batch   64 per rank
    epochs  2
    shuffle samples globally each epoch
}
"""


def make_recorder(place: Path) -> Recorder:
    spill = SpillFile(str(place))
    buffers = (ColumnBuffer(columns, 1 << 40, spill) for columns in (CALL_COLUMNS, SPAN_COLUMNS))
    return Recorder(TraceCut(), 0, *buffers)


def draw_calls(count: int, batch: int) -> Calls:
    row_ = np.arange(count)
    offset = np.random.default_rng(1).permutation(count) * 4096
    edges = np.append(np.arange(0, count, batch), count)
    return plan_calls(Extents(row_, row_ * 0, offset, row_ * 0 + 4096, edges), None)


def recording_ns(place: Path, batch: int) -> float:
    """Return the ns that a call takes to record, for calls of steps of `batch`."""
    one, calls, meter = make_recorder(place), draw_calls(1 << 17, batch), Meter()
    one.begin_epoch(1)
    stamps, spent = list(range(2, batch + 2)), []
    every = max(1, 16384 // batch)
    for log in None, one.open_log(str, Call.READ):
        meter.log = log
        begun = perf_counter_ns()
        for step in range(calls.steps):
            meter.add_run(1, stamps, calls.step(step))
            if step % every == every - 1:
                meter.take_intervals()
                one.collect()
        meter.take_intervals()
        one.collect()
        spent.append(perf_counter_ns() - begun)
    return (spent[1] - spent[0]) / one.calls.added


def store(place: Path) -> tuple[float, float, float, float]:
    """Return the seconds to compress a million calls, to write them, to read them, and the bytes."""
    one, drawn = make_recorder(place), np.random.default_rng(2)
    duration = drawn.gamma(3, 700, MILLION).astype(np.int64) + 800
    count = np.full(MILLION, 0)
    columns = {
        "call": count + Call.READ,
        "thread": count,
        "begin": np.cumsum(duration + drawn.integers(80, 400, MILLION)) - duration,
        "duration": duration,
        "file": count,
        "offset": drawn.permutation(MILLION) * 4096,
        "asked": count + 4096,
        "moved": count + 4096,
        "epoch": count + 1,
        "step": np.arange(MILLION) // 64 + 1,
    }
    rows = chunk_rows(MILLION)
    begun = perf_counter_ns()
    one.calls.add(columns)  # which compresses most of them: they are many
    groups = list(group_columns(one.calls.chunks(rows), len(CALL_COLUMNS)))
    packed = perf_counter_ns()
    of = {"calls": MILLION, "calls_made": MILLION}
    path = place / "trace.h5"
    path.unlink(missing_ok=True)
    writer = create_trace(path, np.array([[of.get(name, 0) for name in HEAD]], np.int64), {})
    for number, chunks in enumerate(groups):
        writer.write_chunks("calls", 0, number * rows, chunks)
    for what, names in ("files", ["/data/d/0001"]), ("names", NAMES), ("host", ["node"]):
        writer.write_names(0, what, pack_names(names))
    writer.close()
    written = perf_counter_ns()
    assert len(read_trace(path).events) == MILLION
    read = perf_counter_ns()
    return (packed - begun) * 1e-9, (written - packed) * 1e-9, (read - written) * 1e-9, path.stat().st_size


def step_seconds(place: Path, ranks: int, traced: bool) -> list[float]:
    """Return the seconds of the epochs of a run."""
    pattern, out = place / "traced.dlio", place / "out"
    pattern.write_text(PATTERN)
    for old in out.glob("*") if out.is_dir() else ():
        old.unlink()
    words = ["-m", "dliosim.cli", "run", str(pattern), "--dir", str(place / "data"), "--output", str(out)]
    run([mpiexec(), "-n", str(ranks), sys.executable, *words, *(["--trace"] if traced else [])], 300)
    results = json.loads((out / "results.json").read_text())
    (loop,) = (phase for phase in results["phases"] if phase["kind"] == "train")
    return [epoch["seconds"] for epoch in loop["epochs"]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--place", default="/dev/shm")
    parsed = parser.parse_args()
    times = range(parsed.repetitions)
    gc.disable()  # as in a loop
    with scratch(parsed.place) as place:
        header("what", "unit", "median (least to most)")
        for batch in 1, 4, 64, 1024:
            row(f"recording a call, batch {batch}", "ns", middle([recording_ns(place, batch) for _ in times], 0))
        stored = [store(place) for _ in times]
        names = ("compressing 1 M calls", "writing 1 M calls", "reading 1 M calls")
        for name, values in zip(names, islice(zip(*stored, strict=True), 3), strict=False):
            row(name, "s", middle(values))
        row("1 M calls", "MB", middle([size * 1e-6 for *_, size in stored]))
        for ranks in 1, 2:
            ratios = []
            for _ in times:
                plain, traced = (step_seconds(place, ranks, which) for which in (False, True))
                ratios += [after / before for before, after in zip(plain, traced, strict=True)]
            row(f"epochs of preads of 4 KiB with --trace, without = 1, {ranks} ranks", "ratio", middle(ratios))
    return 0


if __name__ == "__main__":
    orderly(main)
