"""Jobs that are killed, or get SIGTERM, while their ranks wait for each other: how soon, and how, they end."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Literal

from tests.mpi.jobs import CHECKPOINT, DATASET, PREPARE, TRAIN, Place
from tests.mpi.launch import Job, running, start_ranks

#: Ranks of a job: as many as there may be cores, and more.
RANKS = (2, 5)

_ENDLESS = TRAIN.replace("epochs   2", "compute  1 ms\n    epochs   100_000")
_LARGE = DATASET.replace("samples  41", "samples  600_000").replace("shared file", "60000 files")
_STAGED = DATASET.replace("samples  41", "samples  3000").replace("shared file", "3000 files")
_SAVING = CHECKPOINT.replace("300 kB total", "3 MB total\n    transfer 20 kB\n    keep 2")
_SAVE = "repeat 100_000 {\n    save c\n}\n"

_READ, _COPIED = "d/*/manifest.json", "../local/**/*.raw"

#: What jobs do when they are killed: their patterns, and the file that says that they do it by now.
WORK: dict[str, tuple[Sequence[str], str]] = {
    "barrier": ((DATASET, PREPARE, _ENDLESS.replace("epochs ", "sync barrier\n    epochs ")), "d/*/manifest.json"),
    "allreduce": (
        (DATASET, PREPARE, _ENDLESS.replace("epochs ", "sync allreduce 1 MB\n    epochs ")),
        "d/*/manifest.json",
    ),
    "save by rank 0": ((_SAVING.replace("}", "    writers rank 0\n}"), _SAVE), "c/*/lock"),
    "save, a file a rank": ((_SAVING, _SAVE), "c/*/lock"),
    "save async": ((_SAVING.replace("}", "    async on\n}"), _SAVE), "c/*/lock"),
    "prepare": ((_LARGE, PREPARE), "d/*/*.raw"),
    "reader processes": ((DATASET, PREPARE, _ENDLESS.replace("epochs ", "readers 2 processes\n    epochs ")), _READ),
    "stage": ((_STAGED, PREPARE, "stage d to local\n", _ENDLESS), _COPIED),
    "stage in the background": ((_STAGED, PREPARE, "stage d to local in the background\n", _ENDLESS), _COPIED),
}

#: Part of the command line of a reader process.
_READER = "batches.reader_process"

#: Whom a signal is sent to: a rank, the launcher alone, its process group, or a reader process.
Whom = Literal["rank", "mpiexec", "group", "reader"]

#: The status of a job that a signal ends, and its message.
ANSWERS = {signal.SIGINT: (130, "interrupted"), signal.SIGTERM: (143, "ended by SIGTERM")}

#: Seconds within which a job ends that is killed, and the most for which it works before.
SOON = 2.0
_WORKING = 0.5

_SHARED = Path("/dev/shm")


@dataclass(frozen=True)
class Kill:
    """The work of a job, its ranks, the process that gets a signal, and the seconds of work before it."""

    work: str
    ranks: int
    whom: Whom
    number: signal.Signals = signal.SIGKILL
    rank: int = 0
    seconds: float = 0.1


@dataclass(frozen=True)
class Ended:
    """The end of a job: after how many seconds, what it said and left (processes, files in shared memory)."""

    seconds: float
    status: int
    said: str
    processes: int
    files: frozenset[str]


def draws(seed: int) -> Iterator[Kill]:
    """Kills without end, the same for the same seed: all work on all numbers of ranks by turns, the rest at random."""
    source = random.Random(seed)
    while True:
        for ranks in RANKS:
            for work in WORK:
                whoms: list[Whom] = ["rank", "rank", "mpiexec", "group"]
                whom = source.choice([*whoms, "reader", "reader"] if work == "reader processes" else whoms)
                yield Kill(work, ranks, whom, signal.SIGKILL, source.randrange(ranks), source.uniform(0, _WORKING))


def end(kill: Kill, directory: Path, longest: float = 30.0) -> Ended:
    """Start a job in a directory of its own and send it the signal; what is left after `longest` is killed."""
    place, (pattern, begun) = Place(directory), WORK[kill.work]
    place.write(*pattern)
    root = ["--root", f"local={directory / 'local'}"] * ("local" in "".join(pattern))
    before = _files()
    with running(start_ranks(kill.ranks, *place.arguments(*root), cwd=directory)) as job:
        job.wait_until(lambda: bool(place.files(begun)), 60)
        if kill.whom == "reader":
            job.wait_until(lambda: len(job.processes(_READER)) > kill.rank)
        sleep(kill.seconds)
        begin = monotonic()
        _send(kill, job)
        while (left := job.processes() or job.launcher.poll() is None) and monotonic() - begin < longest:
            sleep(0.02)
        seconds = monotonic() - begin
        processes = len(job.processes()) if left else 0
        job.kill()
        out, errors = job.launcher.communicate()
    new = _files() - before
    if new:  # what another job has just made and not mapped yet is not ours
        sleep(0.5)
        new &= _files()
    return Ended(seconds, job.launcher.returncode, out + errors, processes, new)


def wrong(kill: Kill, ended: Ended) -> Iterator[str]:
    """Return the faults that do not depend on the load of the machine."""
    if ended.processes:
        yield f"{ended.processes} processes were left"
    if ended.files:
        yield f"left in {_SHARED}: {sorted(ended.files)}"
    if "Traceback" in ended.said:
        yield "a traceback"
    if kill.whom == "reader" and "was killed by signal 9" not in ended.said:
        yield "no word of the reader process"
    if kill.number == signal.SIGKILL:
        return
    status, words = ANSWERS[kill.number]
    if ended.status != status:
        yield f"status {ended.status}"
    if ended.said.count(words) != 1:
        yield f"{ended.said.count(words)} messages"


def _send(kill: Kill, job: Job) -> None:
    with suppress(ProcessLookupError):
        if kill.whom == "group":
            os.killpg(job.launcher.pid, kill.number)
        elif kill.whom == "reader":
            os.kill(sorted(job.processes(_READER))[kill.rank], kill.number)
        else:
            os.kill(job.launcher.pid if kill.whom == "mpiexec" else job.ranks()[kill.rank], kill.number)


def _files() -> frozenset[str]:
    """The files in shared memory that no process has mapped, by name."""
    mapped: set[str] = set()
    # What any program leaves whose ranks are killed under Open MPI is not counted.
    found = {f"{path}" for path in _SHARED.iterdir() if path.is_file() and not path.name.startswith("sm_segment.")}
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            mapped |= {line.split(maxsplit=5)[-1] for line in maps.read_text().splitlines() if f"{_SHARED}" in line}
    return frozenset(found - mapped)
