"""The run loop against bare loops over the same calls, in pairs, as markdown rows.

    python scripts/dev/bench_run.py [--pairs 15] [--place /dev/shm] [--only TEXT]

Each case prepares one shared file on tmpfs and runs `execute.loop.loop_runner.run_loop` over it: a random order, new
each epoch, batch and call latencies recorded, every sample's first and last word checked, a barrier after each step.
For every epoch, in the same processes and over the offsets that the plan gives for this epoch, in its order, a bare
loop reads into the rows of one batch buffer; the two take turns at going first. The wall time of an epoch's steps is
compared (the slowest rank's where there are two), the tool's share included. Not included, and printed separately: the
tool's work between two epochs, mostly planning the next one. The bare loops record nothing, check nothing, and do not
wait for each other unless the title says so. The first pair is dropped.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns

import numpy as np
from harness import header, middle, orderly, row, run_ranks, scratch
from mpi4py import MPI

from dliosim.execute.backends.contract import allocate
from dliosim.execute.checkpoints.checkpoint_session import CheckpointSession
from dliosim.execute.datasets.open_dataset import open_dataset
from dliosim.execute.datasets.prepare import prepare
from dliosim.execute.loop.loop_runner import run_loop
from dliosim.execute.mpi.world import make_world, node_cores
from dliosim.execute.phases.context import Options, Phase, Session
from dliosim.language.compile import compile_pattern
from dliosim.model import Job, Loop, Prepare
from dliosim.plan.samples.sampler import plan_epoch

KIB, MIB = 1 << 10, 1 << 20

PATTERN = """\
dlio 1
workload bench
seed 1
dataset d {{
    samples {samples}
    size    {size} B
    layout  shared file
    path    "bench"
}}
prepare d
train {{
    read    d
    epochs  {epochs}
    batch   {batch} per rank
    shuffle samples globally each epoch
    steps   {steps}
    api     {api}
    {hints}
    sync    barrier
}}
"""

BOTH_OFF = {"romio_cb_read": "disable", "romio_ds_read": "disable"}


@dataclass(frozen=True)
class Case:
    title: str
    api: str
    ranks: int
    size: int
    batch: int
    steps: int
    limit: float
    hints: tuple[tuple[str, str], ...] = ()
    meeting: bool = False
    file_bytes: int = 256 * MIB

    def pattern(self, pairs: int) -> str:
        hints = "\n    ".join(f'hint "{key}" = "{value}"' for key, value in self.hints)
        samples = self.file_bytes // self.size
        return PATTERN.format(
            samples=samples,
            size=self.size,
            epochs=pairs + 1,
            batch=self.batch,
            steps=self.steps,
            api=self.api,
            hints=hints,
        )


OFF = tuple(BOTH_OFF.items())
CASES = (
    Case("posix, 1 rank, 4 KiB, batch 256", "posix", 1, 4 * KIB, 256, 64, 1.3),
    Case("posix, 1 rank, 64 KiB, batch 64", "posix", 1, 64 * KIB, 64, 32, 1.15),
    Case("posix, 1 rank, 1 MiB, batch 8", "posix", 1, MIB, 8, 16, 1.1),
    Case("mpi-independent, 1 rank, 4 KiB, batch 256", "mpi-independent", 1, 4 * KIB, 256, 64, 1.2),
    Case("mpi-independent, 2 ranks, 4 KiB, batch 256", "mpi-independent", 2, 4 * KIB, 256, 64, 1.2),
    Case(
        "the same, the bare loop with a barrier a step too", "mpi-independent", 2, 4 * KIB, 256, 64, 1.2, meeting=True
    ),
    Case("mpi-collective, 2 ranks, 4 KiB, batch 256, default hints", "mpi-collective", 2, 4 * KIB, 256, 3, 1.2),
    Case(
        "mpi-collective, 2 ranks, 4 KiB, batch 256, collective buffering and sieving off",
        "mpi-collective",
        2,
        4 * KIB,
        256,
        64,
        1.2,
        OFF,
    ),
)

Steps = list[list[int]]


def bare_posix(case: Case, path: Path, comm: MPI.Intracomm) -> Callable[[Steps], None]:
    """Return a bare loop of os.preadv, a call a sample, into the rows of one batch buffer."""
    descriptor = os.open(path, os.O_RDONLY)
    buffer = allocate(case.size * case.batch)
    rows = [[buffer[first : first + case.size]] for first in range(0, len(buffer), case.size)]

    def read(steps: Steps) -> None:
        preadv = os.preadv
        for offsets in steps:
            for into, offset in zip(rows, offsets):  # noqa: B905
                preadv(descriptor, into, offset)

    return read


def bare_independent(case: Case, path: Path, comm: MPI.Intracomm) -> Callable[[Steps], None]:
    """Return a bare loop of Read_at, a call a sample, with buffers described beforehand."""
    handle = open_file(case, path, comm)
    buffer = allocate(case.size * case.batch)
    rows = [(buffer[first : first + case.size], case.size, MPI.BYTE) for first in range(0, len(buffer), case.size)]

    def read(steps: Steps) -> None:
        read_at = handle.Read_at
        for offsets in steps:
            for into, offset in zip(rows, offsets):  # noqa: B905
                read_at(offset, into)
            if case.meeting:
                comm.Barrier()

    return read


def bare_collective(case: Case, path: Path, comm: MPI.Intracomm) -> Callable[[Steps], None]:
    """Return a bare loop with a view of each batch, its offsets sorted as MPI needs them, and one Read_at_all."""
    handle = open_file(case, path, comm)
    buffer = allocate(case.size * case.batch)
    into = (buffer, len(buffer), MPI.BYTE)

    def read(steps: Steps) -> None:
        for offsets in steps:
            view = MPI.BYTE.Create_hindexed_block(case.size, offsets).Commit()
            handle.Set_view(0, MPI.BYTE, view)
            handle.Read_at_all(0, into)
            view.Free()

    return read


def open_file(case: Case, path: Path, comm: MPI.Intracomm) -> MPI.File:
    info = MPI.Info.Create()
    for key, value in case.hints:
        info.Set(key, value)
    return MPI.File.Open(comm, str(path), MPI.MODE_RDONLY, info)


BARE = {"posix": bare_posix, "mpi-independent": bare_independent, "mpi-collective": bare_collective}


class Duel:
    """Runs the bare loop for every epoch of the run loop, which calls this to report its progress."""

    def __init__(self, case: Case, plan: Callable[[int], Steps], bare: Callable[[Steps], None], comm: MPI.Intracomm):
        self.bare_ns: list[int] = []
        self.between_ns: list[int] = []
        self._plan, self._bare, self._comm = plan, bare, comm
        self._left, self._first, self._open = 0, False, False

    def track_bytes(self, phase: str, total: Callable[[], int]) -> AbstractContextManager[None]:
        return nullcontext()

    def start(self, phase: str, epoch: int, epochs: int, steps: int) -> None:
        if self._left:
            self.between_ns.append(perf_counter_ns() - self._left)
        self._first, self._open = epoch % 2 == 0, True
        self._epoch = epoch - 1
        if self._first:
            self._run()

    def tick(self, now_ns: int, step: int, done_bytes: int) -> None:
        pass

    def end(self) -> None:
        if not self._open:
            return  # the loop says so once more when it is over
        self._open = False
        if not self._first:
            self._run()
        self._left = perf_counter_ns()

    def _run(self) -> None:
        steps = self._plan(self._epoch)
        self._comm.Barrier()
        begun = perf_counter_ns()
        self._bare(steps)
        self.bare_ns.append(self._comm.allreduce(perf_counter_ns() - begun, MPI.MAX))


def measure(case: Case, pairs: int, place: Path) -> None:
    """Measure one case on the ranks of this job; rank 0 prints the results as JSON."""
    comm = MPI.COMM_WORLD
    world = make_world(comm, node_cores, "bench")
    pattern = place / "bench.dlio"
    if comm.rank == 0:
        pattern.write_text(case.pattern(pairs))
    comm.Barrier()
    workload, _ = compile_pattern(pattern, [], Job(comm.size))
    dataset = workload.dataset("d")
    loop = next(verb for verb in workload.verbs if isinstance(verb, Loop))
    verb = next(verb for verb in workload.verbs if isinstance(verb, Prepare))

    def plan(epoch: int) -> Steps:
        extents = plan_epoch(loop, open_dataset(silent, dataset).places, workload.job, comm.rank, epoch)
        offsets = [extents.offset[first : first + case.batch] for first in extents.step_start[: case.steps].tolist()]
        return [(np.sort(some) if case.api == "mpi-collective" else some).tolist() for some in offsets]

    directory = place / dataset.path / dataset.digest()
    own = comm.Dup()
    silent = Session(workload, world, {"data": place}, Options(), Silence())
    prepare(silent, verb, dataset)
    duel = Duel(case, plan, BARE[case.api](case, directory / dataset.file_name(0), own), own)
    session = Session(workload, world, silent.roots, Options(), duel, silent.opened)
    with CheckpointSession(session, ()) as saves:
        phases = [each for each in run_loop(session, saves, loop, 0, timed=True) if isinstance(each, Phase)]
    if comm.rank:
        return
    epochs = phases[0].summary.epochs
    calls = case.batch * case.steps
    if any(epoch.samples != calls * comm.size for epoch in epochs):
        raise SystemExit(f"{case.title}: epochs of {[epoch.samples for epoch in epochs]} samples, not {calls} a rank")
    tool, bare = [epoch.loop_seconds for epoch in epochs][1:], [each * 1e-9 for each in duel.bare_ns][1:]
    result = {
        "ratios": [ours / theirs for ours, theirs in zip(tool, bare, strict=True)],
        "tool_us": [each / calls * 1e6 for each in tool],
        "bare_us": [each / calls * 1e6 for each in bare],
        "between_us": [each / calls * 1e-3 for each in duel.between_ns],
    }
    print(json.dumps(result))


class Silence:
    """No progress to show."""

    def start(self, phase: str, epoch: int, epochs: int, steps: int) -> None:
        pass

    def track_bytes(self, phase: str, total: Callable[[], int]) -> AbstractContextManager[None]:
        return nullcontext()

    def tick(self, now_ns: int, step: int, done_bytes: int) -> None:
        pass

    def end(self) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=31)
    parser.add_argument("--place", default="/dev/shm", help="where the file goes, on tmpfs for the figures of the docs")
    parser.add_argument("--only", default="", help="only cases whose title has this text")
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case is not None:
        measure(CASES[arguments.case], arguments.pairs, Path(arguments.place))
        return
    header("wall time of the steps by a bare loop's", "to reach", "ratio", "us a sample", "bare", "between epochs")
    for number, case in enumerate(CASES):
        if arguments.only not in case.title:
            continue
        with scratch(arguments.place) as place:
            options = ["--case", str(number), "--pairs", str(arguments.pairs), "--place", str(place)]
            found = run_ranks(case.ranks, __file__, *options)
        ratio, tool, bare = (middle(found[name]) for name in ("ratios", "tool_us", "bare_us"))
        row(case.title, case.limit, ratio, tool, bare, middle(found["between_us"]))


if __name__ == "__main__":
    orderly(main)
