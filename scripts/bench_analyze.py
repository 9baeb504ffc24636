#!/usr/bin/env python
"""Measure time and peak memory of the figures and insights of a trace that is made in memory.

    scripts/bench_analyze.py              10 million events of 16 ranks
    scripts/bench_analyze.py 1e6 1024     1 million events of 1024 ranks

Prints a line for each part. Times are of the processor, on one core. Memory is the largest resident set of the
process, the table of events among it.
"""

from __future__ import annotations

import sys
import time
from resource import RUSAGE_SELF, getrusage

import numpy as np

from dliosim.analyze import figures as parts
from dliosim.analyze.insights import judge
from dliosim.analyze.view import View
from dliosim.trace.events import Process, Trace, kind_number, layer_number, make_events

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


def main(arguments: list[str]) -> None:
    """Print what each part takes, then all together."""
    events, ranks = int(float(arguments[0])) if arguments else 10_000_000, int(arguments[1]) if arguments[1:] else 16
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


def _peak() -> float:
    return getrusage(RUSAGE_SELF).ru_maxrss * 1024 / 1e9


if __name__ == "__main__":
    main(sys.argv[1:])
