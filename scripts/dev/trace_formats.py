#!/usr/bin/env python
"""Measure the exports of a trace that is made in memory: time, memory and size of each form.

    scripts/dev/trace_formats.py                   1 million events of 16 ranks
    scripts/dev/trace_formats.py --events 1e7      10 million

Prints a markdown row for each form, and one for reading the export for Perfetto again. Each is made in a process of
its own; memory is the largest resident set, the table of events among it.
"""

from __future__ import annotations

import argparse
import os
import sys
from multiprocessing import get_context
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from time import perf_counter, process_time

from bench_analyze import make_trace
from harness import header, orderly, row, scratch

from dliosim.analyze.commands.trace import FORMATS
from dliosim.analyze.read.open_trace import open_trace


def export(name: str, path: str, events: int, ranks: int) -> tuple[float, float, float]:
    """Return seconds, and of them the processor's, and the GB of memory to write an export."""
    trace = make_trace(events, ranks)
    began, spent = perf_counter(), process_time()
    FORMATS[name].write(trace, path)
    return perf_counter() - began, process_time() - spent, _peak()


def read(path: str) -> tuple[float, float, float]:
    """Return the same of reading an export for Perfetto."""
    began, spent = perf_counter(), process_time()
    open_trace([Path(path)])
    return perf_counter() - began, process_time() - spent, _peak()


def _peak() -> float:
    return getrusage(RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=float, default=1e6)
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--place", default="/dev/shm")
    parsed = parser.parse_args()
    context = get_context("spawn")
    with scratch(parsed.place) as place:
        print(f"load of the machine before: {os.getloadavg()[0]:.1f}", file=sys.stderr)
        header(f"{int(parsed.events):,} events, {parsed.ranks} ranks", "size", "time", "of the processor", "memory")
        for name, form in FORMATS.items():
            path = f"{place}/{name}{form.ending}"
            with context.Pool(1) as pool:
                figures = pool.apply(export, (name, path, int(parsed.events), parsed.ranks))
            show(name, Path(path).stat().st_size, figures)
            if name == "perfetto":
                with context.Pool(1) as pool:
                    show("reading it again", Path(path).stat().st_size, pool.apply(read, (path,)))
            Path(path).unlink()
    return 0


def show(name: str, size: int, figures: tuple[float, float, float]) -> None:
    """Print a row."""
    wall, processor, memory = figures
    row(name, f"{size / 1e6:.1f} MB", f"{wall:.1f} s", f"{processor:.1f} s", f"{memory:.2f} GB")


if __name__ == "__main__":
    orderly(main)
