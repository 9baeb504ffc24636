"""The cost of training by dlio-benchmark and by dliosim, seen from outside, by the same means for both.

Reads are seen by inotify: it says that a file was read, not how much. Processor time is that of all processes of the
job, as the kernel gives it to who waits for them. Memory, system calls and offsets have runs of their own, as looking
at them takes time. No run has to generate data.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import resource
import shutil
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from select import select
from statistics import fmean
from threading import Event, Thread
from time import monotonic
from typing import Final

from harness import mpiexec, run
from watch_memory import descendants, kilobytes

from fidelity.dlio_runs import data_files, dlio_program, generate_by_dlio
from fidelity.tracing import READS, Record, parse, strace

#: Seconds of a run under strace, the longest.
_LONGEST: Final = 600
#: Seconds from one look at the memory to the next.
_LOOK: Final = 0.05
_IN_ACCESS: Final = 0x1
_INOTIFY: Final = struct.Struct("iIII")


@dataclass(frozen=True, slots=True)
class Trained:
    """Training that can run again and again: a command, with data below `place` and output in `place`/out."""

    place: Path
    command: Sequence[str]
    #: variables of its environment
    extra: Mapping[str, str]
    #: samples/s by the output, mean of the epochs
    rate: Callable[[Path], float]

    def run(self, *before: str) -> None:
        """Run it, below the command `before`."""
        shutil.rmtree(self.place / "out", ignore_errors=True)
        run([*before, *self.command], _LONGEST, dict(self.extra))


def train_by_dlio(python: Path, workload: Path, ranks: int, place: Path) -> Trained:
    """Generate a workload's data by dlio-benchmark; return its training."""
    place.mkdir()
    generate_by_dlio(python, workload, ranks, place)
    words, extra = dlio_program(python, workload, place)
    command = [str(python.with_name("mpiexec")), "-n", str(ranks), *words, "++workload.workflow.generate_data=False"]
    return Trained(place, command, extra, _dlio_rate)


def _dlio_rate(out: Path) -> float:
    return float(json.loads((out / "summary.json").read_text())["metric"]["train_throughput_mean_samples_per_second"])


def train_by_dliosim(pattern: Path, ranks: int, place: Path) -> Trained:
    """Generate a pattern's data by dliosim; return its training."""
    words = [sys.executable, "-m", "dliosim.cli", "run", str(pattern), "--dir", str(place)]
    trained = Trained(place, [mpiexec(), "-n", str(ranks), *words, "--output", str(place / "out")], {}, _dliosim_rate)
    place.mkdir()
    trained.run()
    return trained


def _dliosim_rate(out: Path) -> float:
    phases = json.loads((out / "results.json").read_text())["phases"]
    return fmean(e["samples_per_second"] for phase in phases if phase["kind"] == "train" for e in phase["epochs"])


def time_training(trained: Trained, samples: int) -> dict[str, float]:
    """Run it; return the times of a training that reads `samples` in all epochs together."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), monotonic()
    with reads_seen(data_files(trained.place)) as reads:
        trained.run()
        whole = monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "launch to first read, s": reads[0] - began,
        "whole run, s": whole,
        "processor time, s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "samples/s, its own figure": trained.rate(trained.place / "out"),
        "samples/s, first to last read": samples / (reads[-1] - reads[0]),
    }


def greatest_memory(trained: Trained) -> float:
    """Run it; return the greatest MiB that all processes of the job had together, pages that they share once (PSS)."""
    sums: list[int] = []

    def look(over: Event) -> None:
        while not over.wait(_LOOK):
            pids = [*descendants(os.getpid())]
            sums.append(sum(kilobytes(f"/proc/{pid}/smaps_rollup").get("Pss", 0) for pid in pids))

    with _meanwhile(look):
        trained.run()
    return max(sums) / 1024


def count_calls(trained: Trained) -> int:
    """Run it under strace; return the system calls of all processes, the launcher's as well."""
    table = trained.place / "calls"
    trained.run("strace", "-f", "-c", "-o", str(table))
    (calls,) = re.findall(r"(\d+) +(?:\d+ +)?total$", table.read_text(), re.MULTILINE)
    return int(calls)


@dataclass(frozen=True, slots=True)
class Read:
    """The reads of the data files."""

    #: that calls returned
    bytes: int
    #: how often each sample was read
    times: Sequence[int]


def follow_reads(trained: Trained, samples: int) -> Read:
    """Run it under strace; return what it read of data files with `samples` each."""
    log, files = trained.place / "log", data_files(trained.place)
    trained.run(*strace([], log))
    with log.open(errors="replace") as lines:
        calls = [one for one in parse(lines, trained.place) if one.call in READS and one.returned > 0]
    by_file: dict[Path, list[Record]] = {file: [] for file in files}
    for call in calls:
        by_file.get(trained.place / call.file, []).append(call)
    times = [n for file, reads in by_file.items() for n in times_read(reads, file.stat().st_size, samples)]
    return Read(sum(call.returned for reads in by_file.values() for call in reads), times)


def times_read(reads: Iterable[Record], size: int, samples: int) -> list[int]:
    """Return how often each of the equal samples of a file was read: the byte in the middle of its part of the file.

    What a format adds to them is much smaller than half a sample.
    """
    times = [0] * samples
    for read in reads:
        first, end = (ceil(at * samples / size - 0.5) for at in (read.offset, read.offset + read.returned))
        for sample in range(max(first, 0), min(end, samples)):
            times[sample] += 1
    return times


@contextmanager
def _meanwhile(work: Callable[[Event], None]) -> Iterator[None]:
    """Run `work` in a thread next to the block; its event is set where the block ends."""
    over = Event()
    thread = Thread(target=work, args=(over,))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def reads_seen(files: Sequence[Path]) -> Iterator[list[float]]:
    """Yield a list of the times (`monotonic`) at which any of the files was read; some reads in a row are only one."""
    libc, names = ctypes.CDLL(None, use_errno=True), {os.fsencode(file.name) for file in files}
    times: list[float] = []
    queue = libc.inotify_init()
    for folder in {file.parent for file in files}:
        if libc.inotify_add_watch(queue, os.fsencode(folder), _IN_ACCESS) < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch", str(folder))

    def look(over: Event) -> None:
        while (ready := select([queue], [], [], _LOOK)[0]) or not over.is_set():
            now, events, at = monotonic(), os.read(queue, 1 << 16) if ready else b"", 0
            while at < len(events):
                *_, length = _INOTIFY.unpack_from(events, at)
                at += _INOTIFY.size + length
                if events[at - length : at].rstrip(b"\0") in names:
                    times.append(now)

    try:
        with _meanwhile(look):
            yield times
    finally:
        os.close(queue)
