#!/usr/bin/env python
"""Storage-limited utilization next to arithmetic: what slow reads, the tool, other programs and `--null` make of it.

    python scripts/dev/storage_alone.py [--place /dev/shm] [--only CASE ...] [--epochs 4]

Reads are delayed by fidelity/slow_reads.c, which also counts what they took in all: the witness. A row gives
what arithmetic says with that, and the least, the median and the greatest of the epochs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from fidelity.latency import build_library, delay_variables
from harness import ROOT, header, mpiexec, orderly, row, run, scratch

PATTERN = """dlio 1
workload alone
dataset d {{
    samples {samples}
    size    {size} B
    layout  shared file
    path    "d"
}}
prepare d
train {{
    read     d
    epochs   {epochs}
    batch    1 per rank
    compute  {compute} ms
    readers  {readers}
}}
"""

#: Runs dliosim with a sleep (s) planted in the tool's own work after each step.
PLANTED = """
import sys, time
from dliosim.execute.phases.context import Progress
seconds, tick = float(sys.argv.pop(1)), Progress.tick
def slow_tick(self, *values):
    time.sleep(seconds)
    return tick(self, *values)
Progress.tick = slow_tick
from dliosim.cli import main
sys.exit(main())
"""


@dataclass(frozen=True)
class Loop:
    """A loop of one sample a step, and what holds its steps."""

    #: ranks
    ranks: int = 1
    #: readers of a rank; 0: the step reads by itself
    readers: int = 0
    #: compute of a step, ms
    compute: float = 10.0
    #: bytes of a sample
    size: int = 65536
    #: added to each read, ms
    delay: float = 0.0
    #: added to each step by the tool, ms
    tool: float = 0.0
    #: True for a run with --null
    null: bool = False
    #: steps of an epoch
    steps: int = 200


@dataclass(frozen=True)
class Found:
    """Result of a run."""

    #: storage-limited utilization of each epoch
    alone: tuple[float, ...]
    #: ms of a read, as the library saw it; 0 without one
    call: float


def measure(loop: Loop, library: Path, place: Path, epochs: int) -> Found:
    """Run a loop and return its epochs after the first, which has what only a first epoch has."""
    readers = f"{loop.readers} by batch" if loop.readers else "0"
    values = {"samples": loop.steps * loop.ranks, "size": loop.size, "compute": loop.compute, "readers": readers}
    pattern, output = place / "alone.dlio", place / "results"
    pattern.write_text(PATTERN.format(epochs=epochs + 1, **values))
    program = ["-m", "dliosim.cli"]
    if loop.tool:
        planted = place / "planted.py"
        planted.write_text(PLANTED)
        program = [str(planted), str(loop.tool / 1000)]
    command = [
        mpiexec(),
        "-n",
        str(loop.ranks),
        sys.executable,
        *program,
        "run",
        str(pattern),
        "--dir",
        str(place / "data"),
    ]
    command += ["--output", str(output), *(["--null"] if loop.null else [])]
    ledger = place / "ledger"
    slow = delay_variables(library, place / "data", max(loop.delay / 1000, 1e-6)) | {"SLOW_READS_LEDGER": str(ledger)}
    run(command, 300, {} if loop.null else slow)
    calls = (
        [[int(word) for word in line.split()] for line in ledger.read_text().splitlines()] if ledger.exists() else []
    )
    ledger.unlink(missing_ok=True)
    results = json.loads((output / "results.json").read_text())
    shutil.rmtree(output)
    (train,) = [phase for phase in results["phases"] if phase["kind"] == "train"]
    later = train["epochs"][1:]
    return Found(
        tuple(epoch["storage_utilization"] for epoch in later),
        sum(ns for _, ns in calls) / sum(count for count, _ in calls) / 1e6 if calls else 0.0,
    )


def report(name: str, expected: float, found: Found) -> None:
    """Print a row; utilizations are in %."""
    middle = statistics.median(found.alone)
    row(
        name,
        f"{expected:.2%}",
        *(f"{one:.2%}" for one in (min(found.alone), middle, max(found.alone))),
        f"{100 * (middle - expected):+.2f}",
    )


def add_delay(loop: Loop, share: float) -> Loop:
    """Return the loop with a delay in its reads that makes this utilization, without the calls' own time."""
    step = loop.compute / share
    return replace(loop, delay=(step - loop.compute) if not loop.readers else step * loop.readers)


def expect_of(loop: Loop, call: float) -> float:
    """Return the utilization of a loop whose reads take `call` ms each, by arithmetic."""
    step = max(loop.compute, call / loop.readers) if loop.readers else loop.compute + call
    return loop.compute / step


def slow_reads(library: Path, place: Path, epochs: int) -> None:
    """Compare with delays in reads that make 90, 70 and 50 %."""
    for ranks in (1, 2):
        for readers in (0, 1, 2):
            for share in (0.9, 0.7, 0.5):
                loop = add_delay(Loop(ranks, readers), share)
                found = measure(loop, library, place, epochs)
                report(
                    f"reads of {loop.delay:.2f} ms, {ranks} ranks, {readers} readers",
                    expect_of(loop, found.call),
                    found,
                )


def sleep_in_tool(library: Path, place: Path, epochs: int) -> None:
    """Compare with a sleep of 5 % of a step, in the tool and in the reads."""
    for readers in (0, 1):
        loop = replace(add_delay(Loop(1, readers), 0.7), tool=0.5)
        found = measure(loop, library, place, epochs)
        report(f"0.5 ms in the tool, {readers} readers", expect_of(loop, found.call), found)
    loop = Loop(1, 0, delay=0.5)
    found = measure(loop, library, place, epochs)
    report("0.5 ms in the reads, 0 readers", expect_of(loop, found.call), found)


@contextmanager
def busy_core() -> Iterator[None]:
    """Keep the first core that this process may use busy with another program."""
    core = min(os.sched_getaffinity(0))
    other = subprocess.Popen(
        [sys.executable, "-c", f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"]
    )
    try:
        yield
    finally:
        other.kill()
        other.wait()


def other_program(library: Path, place: Path, epochs: int) -> None:
    """Compare with another program on one core."""
    for readers in (0, 1):
        loop = add_delay(Loop(1, readers), 0.7)
        alone = statistics.median(measure(loop, library, place, epochs).alone)
        with busy_core():
            report(f"another program, {readers} readers", alone, measure(loop, library, place, epochs))


def null_loops(library: Path, place: Path, epochs: int) -> None:
    """Read nothing, in steps as short as dlrm's."""
    for ranks in (1, 2, 4):
        for readers in (0, 2):
            report(
                f"dlrm, --null, {ranks} ranks, {readers} readers",
                1.0,
                measure(Loop(ranks, readers, 0.375, null=True, steps=2000), library, place, epochs),
            )


def null_patterns(library: Path, place: Path, epochs: int) -> None:
    """Read nothing in the loops with compute of every shipped pattern, with the values of its line `# small:`."""
    for path in sorted((ROOT / "patterns").glob("*.dlio")):
        small = re.search(r"^# small: (.+)$", path.read_text(), re.MULTILINE)
        assert small, path
        for ranks in (1, 2, 4):
            output = place / "results"
            command = [mpiexec(), "-n", str(ranks), sys.executable, "-m", "dliosim.cli", "run", str(path)]
            command += ["--null", "--dir", str(place / "data"), "--output", str(output), *shlex.split(small[1])]
            run(command, 600)
            results = json.loads((output / "results.json").read_text())
            shutil.rmtree(output)
            shares = tuple(
                epoch["storage_utilization"]
                for phase in results["phases"]
                for epoch in phase.get("epochs", [])
                if epoch["storage_utilization"] is not None
            )
            if shares:
                report(f"{path.stem}, --null, {ranks} ranks", 1.0, Found(shares, 0.0))


CASES = {
    "delays": slow_reads,
    "planted": sleep_in_tool,
    "other": other_program,
    "dlrm": null_loops,
    "patterns": null_patterns,
}


def main() -> None:
    """Measure the cases that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--place", default="/dev/shm", help="where data are put (default /dev/shm)")
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), help="some of the cases")
    parser.add_argument("--epochs", type=int, default=4, help="epochs of a row (default 4)")
    parsed = parser.parse_args()
    header("case", "by arithmetic", "least", "median", "greatest", "difference, points")
    with scratch(parsed.place) as place:
        library = build_library(place)
        for name in parsed.only:
            CASES[name](library, place, parsed.epochs)


if __name__ == "__main__":
    orderly(main)
