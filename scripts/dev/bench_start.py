"""The time from launch to the first read of a data file, and processor time and memory of a rank, as markdown rows.

    python scripts/dev/bench_start.py [--repetitions 7] [--ranks 32] [--place /dev/shm]

The pattern prepares 64 files of 64 KiB, which are there already, and reads them. Launch is the moment before the
command starts, the first read that of the first os.preadv: the interpreter is started on a few lines that wrap
os.preadv and then run the command line as the installed script does; both times are CLOCK_MONOTONIC. The same once
more by strace, which stops the process at execve and preadv alone (--seccomp-bpf) and needs nothing in the process.
It is compared with an interpreter that only imports mpi4py and numpy, starts MPI and reads: no tool of this kind can be
faster. They take turns, so that a busy machine slows all of them.

Processor time is user and system of a whole process as the kernel counts it when it ends, of 2 ranks and of `--ranks`;
it is compared with the same number of interpreters which only import mpi4py and numpy and start MPI. MPICH spins while
ranks wait for each other; this time is included.

Memory is VmHWM and VmRSS of /proc/self/status at the end of the command, and VmHWM at the first read: of rank 0, which
compiles the pattern and writes the results, and of rank 1, which is like all the others. PSS counts pages that several
ranks share once in all. At the first read its sum over the ranks of jobs of 1, 4, 16 and `--ranks` is a straight line:
what each rank adds, and what a node has once. `dliosim plan` takes both from `plan/forecast/rank_memory.py`.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import sys
import time
from pathlib import Path

from harness import header, middle, mpiexec, orderly, row, run, scratch

PATTERN = """\
dlio 1
workload start
seed 1
dataset d {
    samples 64
    size    64 KiB
    layout  file per sample
    path    "d"
}
prepare d
train {
    read    d
    epochs  1
    batch   2 per rank
    shuffle samples globally each epoch
}
"""

#: Runs the command line with os.preadv wrapped; writes what was seen to the file named first, with the rank appended.
RANK = """\
import json, os, sys, time
def status(*names):
    lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return {name: int(lines[name].split()[0]) / 1024 for name in names}
def pss():
    return int(next(line for line in open("/proc/self/smaps_rollup") if line.startswith("Pss:")).split()[1]) / 1024
seen = {}
real = os.preadv
def first(*arguments):
    seen["first"] = time.monotonic()
    os.preadv = real
    got = real(*arguments)
    seen["VmHWM at the first read"] = status("VmHWM")["VmHWM"]
    seen["PSS at the first read"] = pss()
    return got
os.preadv = first
target = sys.argv.pop(1)
from dliosim.cli import main
code = main()
seen.update(status("VmHWM", "VmRSS"))
rank = os.environ.get("PMI_RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("SLURM_PROCID") or "0"
with open(target + rank, "w") as file:
    json.dump(seen, file)
sys.exit(code)
"""

#: Runs the command that comes after the file named first; writes its processor time there, with the rank appended.
COUNTED = """\
import os, sys
pid = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, used = os.wait4(pid, 0)
with open(sys.argv[1] + os.environ["PMI_RANK"], "w") as file:
    file.write(str(used.ru_utime + used.ru_stime))
sys.exit(os.waitstatus_to_exitcode(status))
"""

BARE = "import numpy; from mpi4py import MPI"
COMMAND = "import sys; from dliosim.cli import main; sys.exit(main())"

FLOOR = """\
import json, os, sys, time
import numpy
from mpi4py import MPI
descriptor = os.open(sys.argv[2], os.O_RDONLY)
os.preadv(descriptor, [bytearray(4096)], 0)
with open(sys.argv[1] + "0", "w") as file:
    json.dump({"first": time.monotonic()}, file)
"""


def launch(ranks: int, place: Path, code: str, *arguments: str, launcher: bool = True) -> list[dict[str, float]]:
    """Return what each rank saw; `first` becomes seconds since the launch."""
    target = place / "seen-"
    command = [mpiexec(), "-n", str(ranks)] if launcher else []
    shutil.rmtree(place / "out", ignore_errors=True)
    started = time.monotonic()
    run([*command, sys.executable, "-c", code, str(target), *arguments], 60)
    found = [json.loads(Path(f"{target}{rank}").read_text()) for rank in range(ranks)]
    return [{**seen, "first": seen["first"] - started} for seen in found]


def processor_times(ranks: int, place: Path, code: str, *arguments: str) -> list[float]:
    """Return the processor seconds that each rank of a job takes from its start to its end."""
    target = place / "used-"
    shutil.rmtree(place / "out", ignore_errors=True)
    counted = [mpiexec(), "-n", str(ranks), sys.executable, "-Ic", COUNTED, str(target)]
    run([*counted, sys.executable, "-c", code, *arguments], 300)
    return [float(Path(f"{target}{rank}").read_text()) for rank in range(ranks)]


def strace_seconds(place: Path, arguments: list[str]) -> float:
    """Return the seconds from the execve of the interpreter to the first preadv of a data file, as strace sees them."""
    out = place / "trace"
    shutil.rmtree(place / "out", ignore_errors=True)
    options = ["-f", "--seccomp-bpf", "-ttt", "-y", "-e", "trace=execve,preadv,preadv2", "-o", str(out)]
    command = ["strace", *options, sys.executable, "-m", "dliosim.cli", *arguments]
    run(command, 60)
    calls = re.findall(r"^\d+ +(\d+\.\d+) (execve|preadv)", out.read_text(), re.MULTILINE)
    first_read = next(float(at) for at, call in calls if call == "preadv")
    return first_read - float(calls[0][0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--ranks", type=int, default=32, help="of the large job, 32 at most (default 32)")
    parser.add_argument("--place", default="/dev/shm")
    options = parser.parse_args()
    times: dict[str, list[float]] = {name: [] for name in ("mpiexec", "alone", "strace", "floor")}
    memory: dict[str, list[float]] = {}
    used: dict[str, list[float]] = {}
    with scratch(options.place) as place:
        pattern = place / "start.dlio"
        pattern.write_text(PATTERN)
        command = ["run", str(pattern), "--dir", str(place / "data"), "--output", str(place / "out")]
        launch(1, place, RANK, *command)
        data = next((place / "data").rglob("*.raw"))
        for _ in range(options.repetitions):
            (alone,) = launch(1, place, RANK, *command)
            times["mpiexec"].append(alone["first"])
            times["alone"].append(launch(1, place, RANK, *command, launcher=False)[0]["first"])
            times["floor"].append(launch(1, place, FLOOR, str(data))[0]["first"])
            if shutil.which("strace"):
                times["strace"].append(strace_seconds(place, command))
            for what, code, given in (("bare", BARE, []), ("run", COMMAND, command)):
                pair = processor_times(2, place, code, *given)
                used.setdefault(f"rank 0 of 2, {what}", []).append(pair[0])
                used.setdefault(f"rank 1 of 2, {what}", []).append(pair[1])
                many = processor_times(options.ranks, place, code, *given)
                used.setdefault(f"all of {options.ranks} ranks together, {what}", []).append(sum(many))
            second = launch(2, place, RANK, *command)[1]
            sizes = sorted({1, 4, 16, options.ranks})
            together = [
                sum(seen["PSS at the first read"] for seen in launch(size, place, RANK, *command)) for size in sizes
            ]
            each, once = statistics.linear_regression(sizes, together)
            memory.setdefault("PSS that each rank adds", []).append(each)
            memory.setdefault("PSS that a node has once", []).append(once)
            for rank, seen in (("the only rank", alone), ("rank 1 of 2", second)):
                for name in ("VmHWM at the first read", "VmHWM", "VmRSS", "PSS at the first read"):
                    memory.setdefault(f"{rank}: {name}", []).append(seen[name])
    header("what", "to reach", "median (min to max)")
    row("launch to first read, `mpiexec -n 1 dliosim run`, s", 0.6, middle(times["mpiexec"], 3))
    row("the same without mpiexec, s", 0.6, middle(times["alone"], 3))
    if times["strace"]:
        row("the same without mpiexec, by strace, s", 0.6, middle(times["strace"], 3))
    row("mpi4py and numpy imported, MPI started, one read, under mpiexec, s", "", middle(times["floor"], 3))
    for name, values in sorted(used.items()):
        row(f"processor time of {name}, s", "", middle(values, 3))
    for name, values in memory.items():
        limit = 80 if name.endswith(("VmHWM", "VmRSS")) else ""
        row(f"{name}, MiB", limit, middle(values, 1))
    if statistics.median(times["strace"] or times["alone"]) > 1.5 * statistics.median(times["alone"]):
        print("\nstrace and the rank itself disagree: the machine was too busy")


if __name__ == "__main__":
    orderly(main)
