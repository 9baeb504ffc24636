#!/usr/bin/env python
"""Measure time and peak memory of the figures and insights of a trace that is made in memory.

    scripts/dev/bench_analyze.py              10 million events of 16 ranks
    scripts/dev/bench_analyze.py 1e6 1024     1 million events of 1024 ranks

Then writes the same events as the trace of a run, and measures `dliosim analyze` of it, with reading the file.
Prints a line for each part. Times are of the processor, on one core. Memory is the largest resident set of the
process, the table of events among it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from tempfile import TemporaryDirectory

import numpy as np
from harness import orderly

from dliosim.analyze.figures import job as parts
from dliosim.analyze.figures.view import View
from dliosim.analyze.insights.rules import judge
from dliosim.trace.calls import NAMES, Call
from dliosim.trace.columns import CALL_COLUMNS, SPAN_COLUMNS, deflate_chunk
from dliosim.trace.events import Events, Process, Trace, kind_number, layer_number, make_events
from dliosim.trace.file import FILE_NAME, HEAD, chunk_rows, create_trace, pack_names

FILES = 4000


def make_trace(events: int, ranks: int) -> Trace:
    """Return a trace: on each rank, reads at random offsets of 4000 files, and a compute after each nine of them."""
    random = np.random.default_rng(1)
    of_a_rank = max(events // ranks, 1)
    count = of_a_rank * ranks
    gap = random.integers(1000, 200_000, (ranks, of_a_rank))
    begin = np.cumsum(gap, axis=1).reshape(-1)
    is_compute = np.arange(count) % 10 == 9
    sizes = random.integers(1, 1 << 18, count)
    columns = {
        "kind": np.where(is_compute, kind_number("compute"), kind_number("read")),
        "layer": np.where(is_compute, layer_number("application"), layer_number("posix")),
        "name": is_compute.astype(np.int16),
        "process": np.repeat(np.arange(ranks), of_a_rank),
        "begin": begin,
        "duration": gap.reshape(-1) * 7 // 10,
        "file": np.where(is_compute, -1, random.integers(0, FILES, count)),
        "offset": np.where(is_compute, -1, random.integers(0, 1 << 20, count)),
        "asked": np.where(is_compute, -1, sizes),
        "moved": np.where(is_compute, -1, sizes),
        "epoch": np.ones(count, np.int32),
        "step": np.tile(np.arange(of_a_rank) // 10 + 1, ranks),
    }
    files = tuple(f"/data/train/{number}.npz" for number in range(FILES))
    processes = tuple(Process(rank, 100 + rank, f"node{rank // 8}") for rank in range(ranks))
    return Trace("made", "", make_events(columns, ("pread64", "compute"), files, processes), int(begin.max()))


def write_trace(trace: Trace, path: Path) -> None:
    """Write the operations of a trace as calls of a run, and its computes as spans."""
    events = trace.events
    is_span = events.is_kind("compute")
    tables = {"calls": (CALL_COLUMNS, ~is_span), "spans": (SPAN_COLUMNS, is_span)}
    counts = [
        [int((events.process[rows] == rank).sum()) for _, rows in tables.values()]
        for rank in range(len(events.processes))
    ]
    heads = np.zeros((len(counts), len(HEAD)), np.int64)
    heads[:, 0] = np.arange(len(counts))
    made = [HEAD.index(name) for name in ("calls", "calls_made", "spans", "spans_made")]
    heads[:, made] = np.repeat(counts, 2, axis=1)
    writer = create_trace(path, heads, {})
    for place, (table, (columns, rows)) in enumerate(tables.items()):
        size = chunk_rows(max(one[place] for one in counts))
        for rank in range(len(counts)):
            own = np.flatnonzero(rows & (events.process == rank))
            for first in range(0, len(own), size):
                some = own[first : first + size]
                chunks = [
                    deflate_chunk(_column(name, events, some).astype(kind), size) for name, kind in columns.items()
                ]
                writer.write_chunks(table, rank, first, chunks)
    for rank in range(len(counts)):
        for what, names in (("files", events.files), ("names", (*NAMES, "compute")), ("host", ("node",))):
            writer.write_names(rank, what, pack_names(names))
    writer.close()


def _column(name: str, events: Events, rows: np.ndarray) -> np.ndarray:
    if name == "call":
        return np.full(len(rows), int(Call.READ))
    return np.full(len(rows), len(NAMES)) if name == "name" else getattr(events, name)[rows]


def main() -> None:
    """Print what each part takes, then all together."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("events", nargs="?", type=float, default=1e7)
    parser.add_argument("ranks", nargs="?", type=int, default=16)
    parsed = parser.parse_args()
    events, ranks = int(parsed.events), parsed.ranks
    view = View(make_trace(events, ranks))
    print(f"{len(view.events)} events of {ranks} ranks: the table is made with {_peak():.2f} GB")
    names = ("list_ranks", "split_time", "list_functions", "list_layers", "describe_access", "list_files")
    for name in (*names, "measure_bandwidth"):
        begin = time.process_time()
        getattr(parts, name)(view)
        print(f"{name:<18} {time.process_time() - begin:6.2f} s, peak {_peak():.2f} GB")
    begin = time.process_time()
    judge(parts.measure_figures(View(view.trace)))
    print(f"{'all together':<18} {time.process_time() - begin:6.2f} s, peak {_peak():.2f} GB")
    with TemporaryDirectory() as folder:
        write_trace(view.trace, Path(folder) / FILE_NAME)
        subprocess.run([sys.executable, "-m", "dliosim.cli", "analyze", folder], check=True, stdout=subprocess.DEVNULL)
    used = getrusage(RUSAGE_CHILDREN)
    print(f"dliosim analyze    {used.ru_utime + used.ru_stime:6.2f} s, peak {used.ru_maxrss * 1024 / 1e9:.2f} GB")


def _peak() -> float:
    return getrusage(RUSAGE_SELF).ru_maxrss * 1024 / 1e9


if __name__ == "__main__":
    orderly(main)
