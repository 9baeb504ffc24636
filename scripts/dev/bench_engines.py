"""The engines of api posix against fio, in pairs taken in turn, as markdown rows.

    python scripts/dev/bench_engines.py [--pairs 5] [--place /dev/shm] [--disk /var/tmp] [--only TEXT]

A pair is a run of `dliosim run` on one rank, whose epochs after the first count, with all that the tool does in a step,
and a second of fio over the very file that it prepared: both read all of it in a random order, no place twice before
all others. They take turns at going first. fio measures latencies, as is its default. In --place, on tmpfs, `engine
preadv` is compared with fio's psync. In --disk, which must offer O_DIRECT, `engine queued` is compared with its libaio
at the same depth. `engine mmap` is compared with `engine preadv`, both through the backend alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from bench_backends import NAME, compare, random_calls, read_loop, reader_of
from harness import header, middle, orderly, row, run, scratch
from mpi4py import MPI

from dliosim.execute.backends.contract import allocate
from dliosim.execute.payload.sample_bytes import fill_range
from dliosim.model import Access

KIB, MIB = 1 << 10, 1 << 20

PATTERN = """\
dlio 1
workload bench
dataset d {{
    samples {samples}
    size    {size} B
    layout  shared file
    align   4 KiB
    path    "bench"
}}
prepare d
train {{
    read    d
    epochs  {epochs}
    batch   {batch} per rank
    shuffle samples globally each epoch
    engine  {engine}
    {more}
}}
"""


@dataclass(frozen=True)
class Case:
    """A row: `limit` is how many times fio's time an operation may be reached, `fio` its arguments."""

    title: str
    size: int
    batch: int
    epochs: int
    engine: str
    limit: float
    fio: tuple[str, ...]
    more: str = ""
    file_bytes: int = 256 * MIB

    @property
    def direct(self) -> bool:
        """Return whether it reads past the page cache, in --disk."""
        return "cache off" in self.more


def direct_case(depth: int, batch: int, limit: float, more: str = "", title: str = "") -> Case:
    """Return a row of reads of 4 KiB past the page cache."""
    return Case(
        f"queued depth {depth}, 4 KiB, O_DIRECT, batch {batch}{title}, by libaio",
        4 * KIB,
        batch,
        3,
        f"queued depth {depth}",
        limit,
        ("--ioengine=libaio", f"--iodepth={depth}", "--direct=1"),
        f"cache off\n    sync off\n    {more}",
        512 * MIB,
    )


PSYNC = ("--ioengine=psync", "--direct=0")
AHEAD = "readers 1\n    prefetch 2 batches"
CASES = (
    # fio does not wait for other processes after a number of reads, so the tool does not either.
    Case("preadv, 4 KiB, tmpfs, batch 256, by psync", 4 * KIB, 256, 12, "preadv", 1.0, PSYNC, "sync off"),
    Case("preadv, 64 KiB, tmpfs, batch 64, by psync", 64 * KIB, 64, 25, "preadv", 1.0, PSYNC, "sync off"),
    Case("preadv, 1 MiB, tmpfs, batch 8, by psync", MIB, 8, 25, "preadv", 1.0, PSYNC, "sync off"),
    direct_case(256, 1024, 1 / 0.95),
    direct_case(256, 256, 1 / 0.95, AHEAD, ", read ahead"),
    direct_case(32, 1024, 1 / 0.85),
    direct_case(32, 32, 1 / 0.85, AHEAD, ", read ahead"),
)


def tool_us(case: Case, place: Path) -> list[float]:
    """Run the case once; return the microseconds a sample of each epoch but the first."""
    pattern, results = place / "bench.dlio", place / "results"
    samples = case.file_bytes // case.size
    pattern.write_text(
        PATTERN.format(
            samples=samples, size=case.size, epochs=case.epochs, batch=case.batch, engine=case.engine, more=case.more
        )
    )
    run([sys.executable, "-m", "dliosim.cli", "run", str(pattern), "--dir", str(place), "--output", str(results)], 300)
    phases = json.loads((results / "results.json").read_text())["phases"]
    shutil.rmtree(results)
    loop = next(phase for phase in phases if phase["kind"] == "train")
    return [epoch["loop_seconds"] / epoch["samples"] * 1e6 for epoch in loop["epochs"][1:]]


def fio_us(case: Case, file: Path) -> float:
    """Run fio for a second; return its microseconds an operation."""
    command = ["fio", "--name=bench", f"--filename={file}", "--rw=randread", f"--bs={case.size}", *case.fio]
    command += [f"--size={case.file_bytes}", "--readonly", "--invalidate=0", "--time_based", "--runtime=1"]
    job = json.loads(run([*command, "--output-format=json"], 60))["jobs"][0]
    if job["error"]:
        sys.exit(f"fio: error {job['error']}")
    return float(job["read"]["runtime"] / job["read"]["total_ios"] * 1e3)


def measure(case: Case, place: Path, pairs: int) -> None:
    """Print the row of one case."""
    tool_us(case, place)  # prepares
    [file] = place.glob("bench/**/*.raw")
    ours: list[float] = []
    theirs: list[float] = []
    for pair in range(pairs):
        for tool in (True, False) if pair % 2 else (False, True):
            if tool:
                found = sorted(tool_us(case, place))
                ours.append(found[len(found) // 2])
            else:
                theirs.append(fio_us(case, file))
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    row(case.title, f"{case.limit:.2f}", middle(ratios), middle(ours), middle(theirs))


def mmap_row(place: Path, pairs: int) -> None:
    """Print the row of `engine mmap` against `engine preadv`."""
    data = allocate(256 * MIB)
    fill_range(1, 0, data)
    (place / NAME).write_bytes(data)
    made = random_calls(4 * KIB, 256, 100, len(data), 1)
    into = allocate(made.buffer_size)
    comm = MPI.COMM_SELF
    readers = [reader_of(Access(engine=engine), place, comm) for engine in ("preadv", "mmap")]
    bare, ours = (read_loop(reader, made, into) for reader in readers)
    compare("mmap, 4 KiB, tmpfs, batch 256, by preadv (to reach: 0.5)", bare, ours, len(made.offset), comm, pairs)
    for reader in readers:
        reader.close()


def offers_direct(place: Path) -> bool:
    """Return whether files there can be opened with O_DIRECT."""
    path = place / "direct"
    path.write_bytes(bytes(4096))
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    finally:
        path.unlink()
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--place", default="/dev/shm", help="on tmpfs, for 256 MiB (default: %(default)s)")
    parser.add_argument("--disk", default="/var/tmp", help="on a disk, for 512 MiB (default: %(default)s)")
    parser.add_argument("--only", default="", help="only rows whose title has this text")
    options = parser.parse_args()
    if shutil.which("fio") is None:
        sys.exit("no fio on the path")
    if options.only in "mmap":
        header("what", "bare, us", "times as long")
        with scratch(options.place) as place:
            mmap_row(place, max(9, options.pairs))
        print(flush=True)
    header("time a sample by fio's an operation", "to reach", "times as long", "us", "fio, us")
    for direct, where in ((False, options.place), (True, options.disk)):
        with scratch(where) as place:
            if direct and not offers_direct(place):
                print(f"\n{where} offers no O_DIRECT: no rows of `engine queued`")
                continue
            for case in CASES:
                if case.direct == direct and options.only in case.title:
                    measure(case, place, options.pairs)
                    shutil.rmtree(place / "bench")


if __name__ == "__main__":
    orderly(main)
