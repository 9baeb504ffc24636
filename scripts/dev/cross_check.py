"""dliosim against fio and IOR on the same files, in pairs, as markdown tables.

    python scripts/dev/cross_check.py --place /scratch/me [--ranks 1 2] [--batches 1 16] [--pairs 7]
        [--cache warm|cold|direct] [--json FILE]

Reads: dliosim prepares one shared file; then each tool reads it in calls of the same size, on as many processes, the
same number of calls. Compared is the time of one call through the whole run loop: the loop's time (the slowest rank's)
by the calls of a rank, dliosim's by the other's. dliosim's loop has in it what the others do not do: an order that is a
true permutation, a check of each sample, a barrier after each step; with several ranks a row without the barrier tells
what waiting for each other costs. Its compute is 0. fio reads by psync, its latencies on, at random offsets that may
come again. IOR reads each transfer of the file once. Both read into one buffer of the size of a call, which stays in
the processor's cache; a step of dliosim reads into as many as its batch has, as training does. So there is a third
program: a bare loop in Python (bare_reads.py) with the same number of calls into the same amount of memory, which
records, checks and waits for nothing. Against fio and IOR the tool and its memory count, against the bare loop the tool
alone.

Writes: `prepare` into one shared file, and into files of 1 MiB, against fio's sequential writes of as many bytes into
as many new files in calls of the same size, each file synced at its end. Files of dliosim can be verified, and are
verified once; fio's buffers are either filled once, which costs it nothing, or filled or signed for each call.

Caches: `warm` has all of the file in the page cache, read before; `cold` asks the kernel of this node to forget it
before each run (posix_fadvise; not the caches of servers), and reads it once; `direct` goes past the cache by O_DIRECT.
What dliosim found in the cache stands in the table. On tmpfs everything is warm. Written files are new each time.

The tools take turns, and at going first; medians have the least and the greatest behind them. The first pair is
dropped. A row is `undecided` if its pairs' ratios reach from below 1/1.05 to above 1.05: they do not even tell which
tool is faster. Before the first row stands how many there are and roughly how long they take; standard error has a
line for each that begins. --json is written again after each row. Ctrl-C and SIGTERM leave nothing else behind. fio
reports whole milliseconds: let runs take some hundred of them (--size, --passes).

A tool that is not installed is left out. The lines for IOR follow the documented options and the printed table of
IOR 4, and have been tried with a stand-in only. IOR refuses random offsets with collective MPI-IO, so that collective
reads are compared in the order of the file, each call with one transfer of each rank.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cross_rows import KIB, MIB, ReadRow, Setting, WriteRow, plan, read_rows, write_rows
from harness import header, middle, mpiexec, one_by_one, orderly, row, run, scratch, write_whole
from peers import IOR_WAYS, fio_reads, fio_seconds, fio_writes, ior_reads, ior_seconds

LIMIT = 600.0
BARE = str(Path(__file__).with_name("bare_reads.py"))
#: A ratio up to this, or from its inverse, counts as equal.
EQUAL = 1.05

PATTERN = """\
dlio 1
workload cross_check
seed 1
dataset d {{
    samples {samples}
    size    {size} B
    layout  {layout}
    align   4 KiB
    path    "d"
}}
prepare d
train {{
    read    d
    epochs  {epochs}
    batch   {batch} per rank
    {order}
    api     {api}
    cache   {cache}
}}
"""
ORDERS = {
    "random": "shuffle samples globally each epoch",
    "random, sync off": "shuffle samples globally each epoch\n    sync    off",
    "in order": "shard   by block\n    sync    off",  # a collective call is where ranks meet
}


@dataclass(frozen=True)
class Found:
    """Seconds of one pair after another."""

    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    def ratios(self) -> list[float]:
        return [ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True)]

    def is_undecided(self) -> bool:
        """Return whether some pairs have one tool clearly faster, and some the other."""
        return min(self.ratios()) < 1 / EQUAL and max(self.ratios()) > EQUAL

    def verdict(self) -> str:
        """Return the text after the ratio in a table."""
        return ", undecided" if self.is_undecided() else ""


def dliosim(setting: Setting, ranks: int, text: str, *options: str) -> dict[str, Any]:
    """Return results.json of a run of this pattern; data are below `place`/data."""
    pattern, output = setting.place / "cross_check.dlio", setting.place / "results"
    pattern.write_text(text)
    command = [*setting.launcher, "-n", str(ranks), sys.executable, "-m", "dliosim.cli", "run", str(pattern)]
    run([*command, "--dir", str(setting.place / "data"), "--output", str(output), *options], LIMIT)
    results: dict[str, Any] = json.loads((output / "results.json").read_text())
    shutil.rmtree(output)
    return results


def phase(results: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(phase for phase in results["phases"] if phase["kind"] == kind)


def data_file(setting: Setting) -> Path:
    """Return the one shared file that dliosim has prepared."""
    (file,) = (path for path in (setting.place / "data" / "d").rglob("*") if path.stat().st_size == setting.size)
    return file


def evict(file: Path) -> None:
    """Ask the kernel to forget a file's pages."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def warm(file: Path) -> None:
    with file.open("rb") as opened:
        while opened.read(MIB):
            pass


def run_pairs(pairs: int, ours: Callable[[], float], theirs: Callable[[], float]) -> Found:
    """Measure both one after the other, each of them first in every other pair; the first pair is dropped."""
    found = Found()
    for pair in range(pairs + 1):
        order = (ours, theirs) if pair % 2 else (theirs, ours)
        seconds = {measure: measure() for measure in order}
        if pair:
            found.ours.append(seconds[ours])
            found.theirs.append(seconds[theirs])
    return found


def compare(setting: Setting, rows: Sequence[ReadRow | WriteRow]) -> Iterator[dict[str, Any]]:
    """Yield the result of each row, under the heads of the two tables."""
    before: ReadRow | WriteRow | None = None
    for compared in one_by_one([(str(one), one.seconds(setting), one) for one in rows]):
        if isinstance(compared, ReadRow):
            if before is None:
                ratio = "dliosim's time a call by the other's"
                header("reads", "ranks", "against", ratio, "dliosim, us", "the other, us", "cached")
            elif before.size != compared.size:
                shutil.rmtree(setting.place / "data")
            yield compare_read(setting, compared)
        else:
            if not isinstance(before, WriteRow):
                if before is not None:
                    print()
                header("writes", "ranks", "fio's buffers", "dliosim's rate by fio's, %", "dliosim, GB/s", "fio, GB/s")
            yield compare_write(setting, compared)
        before = compared


def compare_read(setting: Setting, compared: ReadRow) -> dict[str, Any]:
    """Return the result of one row: a rank reads its part of the file `setting.passes` times, or once if it is cold."""
    size, ranks, api, order, tool, name, batch = compared
    direct, cold = setting.cache == "direct", setting.cache == "cold"
    passes = 1 if cold else setting.passes
    dropped = 0 if cold else 1  # epochs before those that count
    layout, how = "shared file", ORDERS[order]
    one_epoch, text = (
        PATTERN.format(
            samples=setting.size // size,
            size=size,
            layout=layout,
            epochs=epochs,
            batch=batch,
            order=how,
            api=api,
            cache="off" if direct else "page",
        )
        for epochs in (1, passes + dropped)
    )
    if not (setting.place / "data").exists():  # else the row before has prepared it
        dliosim(setting, ranks, one_epoch)
    file = data_file(setting)
    warm(file)
    cached: list[float] = []

    def ours() -> float:
        if cold:
            evict(file)
        loop = phase(dliosim(setting, ranks, text), "train")
        if loop["resident_share"] is not None:  # unknown
            cached.append(loop["resident_share"])
        epochs = loop["epochs"][dropped:]
        if sum(epoch["bytes"] for epoch in epochs) != setting.size * passes:
            sys.exit(f"dliosim read {sum(epoch['bytes'] for epoch in epochs)} bytes, not {setting.size * passes}")
        return float(sum(epoch["loop_seconds"] for epoch in epochs)) / calls

    def theirs() -> float:
        if cold:
            evict(file)
        if tool == "fio":
            printed = run(fio_reads(file, setting.size, size, ranks, passes, direct), LIMIT)
            return fio_seconds(printed, "read", setting.size // ranks * passes * ranks) / calls
        if tool == "bare":
            given = map(str, (BARE, file, setting.size, size, batch, passes, int(direct)))
            return float(run([*setting.launcher, "-n", str(ranks), sys.executable, *given], LIMIT)) / calls
        arguments = ior_reads(file, setting.size, size, ranks, IOR_WAYS[api], direct)
        command = [*setting.launcher, "-n", str(ranks), *arguments]
        return sum(ior_seconds(run(command, LIMIT)) for _ in range(passes)) / calls

    calls = setting.size // size // ranks * passes
    found = run_pairs(setting.pairs, ours, theirs)
    share = "past it" if direct else middle(cached, 0, 100) + " %" if cached else "unknown"
    row(
        compared.title(),
        ranks,
        name,
        middle(found.ratios()) + found.verdict(),
        middle(found.ours, 2, 1e6),
        middle(found.theirs, 2, 1e6),
        share,
    )
    return {
        "what": "reads",
        "size": size,
        "ranks": ranks,
        "api": api,
        "order": order,
        "batch": batch,
        "against": name,
        "cache": setting.cache,
        "calls_of_a_rank": calls,
        "ratios": found.ratios(),
        "undecided": found.is_undecided(),
        "seconds_a_call": found.ours,
        "seconds_a_call_of_the_other": found.theirs,
        "resident_share": cached,
    }


def compare_write(setting: Setting, compared: WriteRow) -> dict[str, Any]:
    """Return the result of one row: `prepare` of samples of 1 MiB against fio; both make new files."""
    layout, size, ranks, buffers = compared
    shared = layout == "shared file"
    order = ORDERS["random"]
    text = PATTERN.format(
        samples=size // MIB, size=MIB, layout=layout, epochs=1, batch=1, order=order, api="posix", cache="page"
    )

    def ours() -> float:
        with fresh_directory(setting.place / "data"):
            return float(phase(dliosim(setting, ranks, text), "prepare")["seconds"])

    def theirs() -> float:
        with fresh_directory(setting.place / "fio") as directory:
            # 4 MiB is what `prepare` writes at once.
            command = fio_writes(directory, size, size if shared else MIB, 4 * MIB if shared else MIB, ranks, buffers)
            return fio_seconds(run(command, LIMIT), "write", size)

    found = run_pairs(setting.pairs, ours, theirs)
    with fresh_directory(setting.place / "data"):
        verified = dliosim(setting, ranks, text, "--verify")
    if verified["verified_bytes"] != size:
        sys.exit(f"{verified['verified_bytes']} bytes of {size} were verified")
    rates = [size / seconds * 1e-9 for seconds in found.ours]
    others = [size / seconds * 1e-9 for seconds in found.theirs]
    percents = middle([1 / each for each in found.ratios()], 0, 100) + found.verdict()
    row(compared.title(), ranks, buffers, percents, middle(rates), middle(others))
    return {
        "what": "writes",
        "layout": layout,
        "bytes": size,
        "ranks": ranks,
        "buffers": buffers,
        "ratios": found.ratios(),
        "undecided": found.is_undecided(),
        "seconds": found.ours,
        "seconds_of_the_other": found.theirs,
    }


@contextmanager
def fresh_directory(directory: Path) -> Iterator[Path]:
    """Yield the directory, new, and removed after the block."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--place", required=True, type=Path, help="a directory on the file system to measure")
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--sizes", nargs="+", type=int, default=[4, 64, 1024], help="of calls, KiB, multiples of 4")
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 16], help="calls of a step")
    parser.add_argument("--size", type=int, default=256, help="of the file, MiB; what is written is 4 times as much")
    parser.add_argument("--passes", type=int, default=8, help="over the file in each run; a cold file is read once")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--cache", choices=["warm", "cold", "direct"], default="warm", help="of reads")
    parser.add_argument("--only", choices=["reads", "writes"], help="the other table is left out")
    parser.add_argument("--launcher", default="", help="starts dliosim and IOR (default: mpiexec next to this Python)")
    parser.add_argument("--json", type=Path, help="a file for all that was measured")
    parsed = parser.parse_args()
    if not parsed.place.is_dir():
        parser.error(f"--place {parsed.place}: there is no such directory")
    tools = {tool for tool in ("fio", "ior") if shutil.which(tool)}
    for tool in sorted({"fio", "ior"} - tools):
        print(f"{tool} is not installed: it is left out", file=sys.stderr)
    if not tools:
        sys.exit("nothing to compare with: neither fio nor ior is installed")
    if any(size % 4 for size in parsed.sizes) or any(parsed.size % ranks for ranks in parsed.ranks):
        parser.error("--sizes are multiples of 4 KiB, and --size one of each number of ranks")
    if parsed.json is not None and (parsed.json.is_dir() or not parsed.json.absolute().parent.is_dir()):
        parser.error(f"--json {parsed.json}: no file can be there")
    launcher = parsed.launcher.split() or [mpiexec()]
    sizes = [size * KIB for size in parsed.sizes]
    rows: list[ReadRow | WriteRow] = []
    if parsed.only != "writes":
        rows += read_rows(parsed.cache, sizes, parsed.ranks, parsed.batches, tools)
    if parsed.only != "reads" and "fio" in tools:
        rows += write_rows(4 * parsed.size * MIB, parsed.ranks)
    found: list[dict[str, Any]] = []
    with scratch(str(parsed.place)) as place:
        setting = Setting(place, parsed.size * MIB, parsed.pairs, parsed.passes, parsed.cache, launcher)
        print(plan(setting, rows), file=sys.stderr)
        try:
            for one in compare(setting, rows):
                found.append({**one, "median_ratio": statistics.median(one["ratios"])})
                if parsed.json is not None:
                    write_whole(parsed.json, json.dumps(found, indent=1) + "\n")
        except ValueError as unlike:
            sys.exit(str(unlike))


if __name__ == "__main__":
    orderly(main)
