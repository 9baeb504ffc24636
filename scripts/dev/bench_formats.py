"""Formats against raw files, and against their libraries, as markdown tables.

    python scripts/dev/bench_formats.py [--quick] [--only TEXT] [--rounds 5] [--place /dev/shm]

Contestants take turns in one process, in another order each round, on data in the page cache of --place (tmpfs for the
figures of the docs); compared are times of the same round, and the first round is dropped. Given are the median of the
ratios, the least and the greatest, and behind them the ratio of the least times of both.

hdf5: random samples of one file, all in one order: by h5py, `ds[i]` and `read_direct` into the rows of one batch, and
directly, by the posix backend alone (ranges planned before) and by the whole run loop with its checks and latencies.
reads: the samples of a format and raw samples that are as long as what reading one of them takes, in the same order.
decode: one-sample chunks deflated by gzip, read directly and decoded, and by h5py.
prepare: data made and written by the posix api in calls of 4 MiB, against a raw data set of the same samples, written
again each time, by 1 and 2 ranks; the slowest counts. On tmpfs that is work of a processor alone, so that the
ratio by processor time says the same, and is right on a machine that does other things, too. The encoder's share is
its time by the ranks' wall time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter_ns, process_time_ns
from typing import cast

import h5py
import numpy as np
from bench_run import KIB, MIB, Silence
from harness import header, middle, one_by_one, orderly, row, run_ranks, scratch
from mpi4py import MPI

from dliosim.execute.backends.contract import Files, allocate
from dliosim.execute.backends.registry import open_readers
from dliosim.execute.batches.decode_preprocess import SampleCache
from dliosim.execute.checkpoints.checkpoint_session import CheckpointSession
from dliosim.execute.datasets.open_dataset import open_dataset
from dliosim.execute.datasets.prepare import prepare
from dliosim.execute.loop.epoch_plan import EpochWork, plan_work
from dliosim.execute.loop.loop_runner import run_loop
from dliosim.execute.mpi.world import make_world, node_cores
from dliosim.execute.phases.context import Options, Phase, Session
from dliosim.formats.protocols import Framed
from dliosim.formats.registry import bind
from dliosim.model import Access, Chunk, Compression, Dataset, Job, Layout, Loop, Prepare, Shuffle, Workload, constant

SHARED = Layout("shared file", 1)
GZIP = Compression("gzip", 4)
#: Bytes of a sample, samples of a batch, steps of an epoch.
EPOCHS = ((4 * KIB, 256, 64), (64 * KIB, 64, 32), (MIB, 8, 16))
FRAMES = ("hdf5", "npy", "npz", "tfrecord", "indexed", "tar")
#: These have an encoder, and less is written of them.
ENCODERS = ("csv", "jpeg", "png", "parquet")

Timed = Callable[[], float]
Seconds = dict[str, list[float]]


def make_dataset(form: str, size: int, total: int, layout: Layout = SHARED) -> Dataset:
    """Return a data set of `total` bytes in samples of `size`."""
    samples = total // size
    if layout.kind == "file per sample":
        layout = Layout("file per sample", samples)
    return Dataset("d", 1, samples, constant(size), layout, "bench", format=form)


def run_rounds(contestants: Mapping[str, Timed], rounds: int) -> Seconds:
    """Return the seconds of each, a figure a round; the first of one round is the last of the next."""
    taken: Seconds = {name: [] for name in contestants}
    order = list(contestants)
    for number in range(rounds + 1):
        for name in order:
            spent = contestants[name]()
            if number:
                taken[name].append(spent)
        order = order[1:] + order[:1]
    return taken


def figure(taken: Seconds, upper: str, lower: str) -> str:
    """Return the median, least and greatest ratio, and that of the least times, which other work disturbs least."""
    return f"{middle(ratios(taken, upper, lower))}; {min(taken[upper]) / min(taken[lower]):.2f}"


def ratios(taken: Seconds, upper: str, lower: str) -> list[float]:
    return [one / other for one, other in zip(taken[upper], taken[lower], strict=True)]


class Ground:
    """The ranks of this job and a directory for their data."""

    def __init__(self, place: Path) -> None:
        self.comm = MPI.COMM_WORLD
        self._place, self._world = place, make_world(self.comm, node_cores, "bench")

    def session(self, dataset: Dataset, *verbs: Prepare | Loop) -> Session:
        workload = Workload("bench", "", 1, Job(self.comm.size), (dataset,), (), verbs)
        return Session(workload, self._world, {"data": self._place}, Options(), Silence())

    def directory(self, dataset: Dataset) -> Path:
        return self._place / dataset.path / dataset.digest()

    def path(self, dataset: Dataset) -> Path:
        """Return the path of its first file."""
        return self.directory(dataset) / dataset.file_name(0)

    def write(self, dataset: Dataset, fsync: bool = False) -> tuple[float, float, float]:
        """Prepare it; return the slowest rank's seconds, those of all processors, the encoder's share of the first."""
        self.remove(dataset)
        self.comm.Barrier()
        verb = Prepare("d", Access(transfer=4 * MIB), afresh=True, fsync=fsync)
        begun = process_time_ns()
        record, _ = prepare(self.session(dataset, verb), verb, dataset)
        mine = np.array([process_time_ns() - begun, record.encode_ns])
        of_all = self.comm.allreduce(mine, MPI.SUM) * 1e-9
        wall = float(self.comm.allreduce(record.wall_ns, MPI.MAX)) * 1e-9
        return wall, float(of_all[0]), float(of_all[1]) / self.comm.size / wall

    def remove(self, dataset: Dataset) -> None:
        self.comm.Barrier()
        if self.comm.rank == 0:
            shutil.rmtree(self.directory(dataset), ignore_errors=True)
        self.comm.Barrier()


def loop_of(batch: int, steps: int, decode: bool = False) -> Loop:
    """Return a loop of two epochs; the first allocates the memory of the second's batches."""
    return Loop(
        "train", "l", "d", Access(), batch=batch, shuffle=Shuffle("globally"), epochs=2, steps=steps, decode=decode
    )


def whole_loop(ground: Ground, dataset: Dataset, loop: Loop) -> Timed:
    """Return the wall time of the steps of an epoch of the run loop."""

    def run() -> float:
        session = ground.session(dataset, loop)
        with CheckpointSession(session, ()) as saves:
            (phase,) = (each for each in run_loop(session, saves, loop, 0, timed=True) if isinstance(each, Phase))
        return phase.summary.epochs[-1].loop_seconds

    return run


def plan_second_epoch(ground: Ground, dataset: Dataset, loop: Loop) -> EpochWork:
    """Return the plan of the second epoch of that loop."""
    session = ground.session(dataset, loop)
    return plan_work(session, loop, open_dataset(session, dataset), 1, loop.steps or 1, SampleCache())


def backend(ground: Ground, dataset: Dataset, loop: Loop) -> Timed:
    """Run the posix backend alone over the calls of an epoch, each batch into one buffer."""
    made = plan_second_epoch(ground, dataset, loop).calls
    into = allocate(made.buffer_size)
    files = Files(ground.directory(dataset), dataset.file_name, lambda file: 0, True, ground.comm)
    (reader,) = open_readers(loop.access, files)
    reader.begin_epoch()

    def run() -> float:
        begun = perf_counter_ns()
        for step in range(made.steps):
            reader.read(made.step(step), into)
        reader.meter.take_latencies()
        return (perf_counter_ns() - begun) * 1e-9

    return run


def h5py_loop(ground: Ground, dataset: Dataset, loop: Loop, into_rows: bool) -> Timed:
    """Read the samples of an epoch in its order by h5py, into new arrays or into the rows of one batch."""
    work = plan_second_epoch(ground, dataset, loop)
    batches = [work.extents.sample[first : first + loop.batch].tolist() for first in work.extents.step_start[:-1]]
    records = h5py.File(ground.path(dataset), "r")["records"]
    rows = np.empty((loop.batch, dataset.constant_size or 0), np.uint8)

    def read_new_arrays() -> None:
        for batch in batches:
            for sample in batch:
                records[sample]

    def read_into_batch() -> None:
        for batch in batches:
            for into, sample in zip(rows, batch):  # noqa: B905
                records.read_direct(into, np.s_[sample])

    def run() -> float:
        begun = perf_counter_ns()
        (read_into_batch if into_rows else read_new_arrays)()
        return (perf_counter_ns() - begun) * 1e-9

    return run


def compare_h5py(ground: Ground, dataset: Dataset, loop: Loop, rounds: int) -> Seconds:
    ground.write(dataset)
    contestants = {
        "ds[i]": h5py_loop(ground, dataset, loop, into_rows=False),
        "read_direct": h5py_loop(ground, dataset, loop, into_rows=True),
        "loop": whole_loop(ground, dataset, loop),
    }
    if not loop.decode:
        contestants["backend"] = backend(ground, dataset, loop)
    taken = run_rounds(contestants, rounds)
    ground.remove(dataset)
    return taken


def hdf5_table(ground: Ground, rounds: int, only: str) -> None:
    size, batch, steps = EPOCHS[0]
    usual = make_dataset("hdf5", size, 128 * MIB)
    cases = (
        ("contiguous", usual, 5.0),
        ("chunks of 1 sample", replace(usual, chunk=Chunk(1, "samples")), 2.0),
        ("chunks of 16 samples", replace(usual, chunk=Chunk(16, "samples")), 2.0),
    )
    header("hdf5, 4 KiB, direct", "to reach", "times as fast as ds[i]", "as read_direct", "run loop: as ds[i]",
           "as read_direct", "us a sample: ds[i]", "read_direct", "backend", "run loop")  # fmt: skip
    for title, dataset, limit in cases:
        if only in f"hdf5 {title}":
            taken = compare_h5py(ground, dataset, loop_of(batch, steps), rounds)
            pairs = [figure(taken, theirs, ours) for ours in ("backend", "loop") for theirs in ("ds[i]", "read_direct")]
            each = [microseconds(taken[name], batch * steps) for name in ("ds[i]", "read_direct", "backend", "loop")]
            row(title, limit, *pairs, *each)


def decode_table(ground: Ground, rounds: int, only: str) -> None:
    header("hdf5, gzip 4, chunks of 1 sample, decoded", "run loop: times as fast as ds[i]", "as read_direct",
           "us a sample: ds[i]", "read_direct", "run loop")  # fmt: skip
    for size, ratio in ((4 * KIB, 2.0), (64 * KIB, 2.0)):
        title = f"{size // KIB} KiB, compressible {ratio:.0f} : 1"
        if only in f"decode {title}":
            dataset = replace(make_dataset("hdf5", size, 32 * MIB), compress=GZIP, compressible=ratio)
            batch, steps = 32, 1024 * KIB // size
            taken = compare_h5py(ground, dataset, loop_of(batch, steps, decode=True), rounds)
            pairs = [figure(taken, theirs, "loop") for theirs in ("ds[i]", "read_direct")]
            each = [microseconds(taken[name], batch * steps) for name in ("ds[i]", "read_direct", "loop")]
            row(title, *pairs, *each)


def microseconds(seconds: Sequence[float], samples: int) -> str:
    return f"{statistics.median(seconds) / samples * 1e6:.2f}"


def reads_table(ground: Ground, rounds: int, only: str) -> None:
    header("reads, by those of as long raw samples", "to reach", "backend", "run loop", "us a sample, run loop", "raw")
    for form in ("tfrecord", "npz", "hdf5", "tar"):
        for size, batch, steps in EPOCHS:
            title = f"{form}, {size_text(size)}, batch {batch}"
            if only not in f"reads {title}":
                continue
            dataset, loop = make_dataset(form, size, 256 * MIB), loop_of(batch, steps)
            read = size if form == "hdf5" else int(cast(Framed, bind(dataset)).length(np.array([size]))[0])
            raw = make_dataset("raw", read, read * dataset.samples)
            for each in (dataset, raw):
                ground.write(each)
            taken = run_rounds(
                {
                    "backend": backend(ground, dataset, loop),
                    "raw backend": backend(ground, raw, loop),
                    "loop": whole_loop(ground, dataset, loop),
                    "raw loop": whole_loop(ground, raw, loop),
                },
                rounds,
            )
            for each in (dataset, raw):
                ground.remove(each)
            pairs = [figure(taken, ours, f"raw {ours}") for ours in ("backend", "loop")]
            each_us = [microseconds(taken[name], batch * steps) for name in ("loop", "raw loop")]
            row(title, 1.2, *pairs, *each_us)


def size_text(size: int) -> str:
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


@dataclass(frozen=True)
class Writing:
    """Samples of `size` bytes in `layout`, `total` bytes of them, prepared as each of `forms` by some ranks."""

    title: str
    forms: tuple[str, ...]
    ranks: int
    size: int
    layout: Layout
    total: int
    fsync: bool = False


def writings(total: int) -> Iterator[Writing]:
    """Yield the data sets to prepare; those with an encoder are a 32nd of the others, as they take as long."""
    few, each = Layout("files", 8), Layout("file per sample", 1)
    for ranks in (1, 2):
        for layout, title, size in (
            (SHARED, "shared file", 64 * KIB),
            (SHARED, "shared file", MIB),
            (few, "8 files", 64 * KIB),
            (few, "8 files", MIB),
            (each, "file per sample", MIB),
        ):
            yield Writing(
                f"{title} of {size_text(size)}, {ranks} rank{'s' * (ranks > 1)}", FRAMES, ranks, size, layout, total
            )
    yield Writing("shared file of 64 KiB, 1 rank, fsync on", FRAMES, 1, 64 * KIB, SHARED, total, fsync=True)
    yield Writing("file per sample of 4 KiB, 1 rank", FRAMES, 1, 4 * KIB, each, total // 64)
    for size in (64 * KIB, MIB):
        yield Writing(f"file per sample of {size_text(size)}, 1 rank", ENCODERS, 1, size, each, total // 32)


def measure_writing(ground: Ground, case: Writing, rounds: int) -> None:
    """Measure one case on the ranks of this job; rank 0 prints the times of each format as JSON."""
    busy: Seconds = {}
    shares: Seconds = {}

    def time_writing(form: str) -> float:
        dataset = make_dataset(form, case.size, case.total, case.layout)
        spent, of_processors, share = ground.write(dataset, case.fsync)
        busy.setdefault(form, []).append(of_processors)
        shares.setdefault(form, []).append(share)
        ground.remove(dataset)
        return spent

    taken = run_rounds({form: partial(time_writing, form) for form in ("raw", *case.forms)}, rounds)
    if ground.comm.rank == 0:
        print(json.dumps({form: [taken[form], busy[form][1:], statistics.median(shares[form])] for form in taken}))


def prepare_table(place: str, rounds: int, total: int, only: str) -> None:
    cases = list(enumerate(writings(total)))
    chosen = [(number, case) for number, case in cases if only in f"prepare {case.title} {' '.join(case.forms)}"]
    header("prepare: speed by raw's, %", "raw, MB/s", "format", "to reach", "measured", "by processor time", "MB/s",
           "encoder, % of wall")  # fmt: skip
    work = [(case.title, rounds * case.total * (4e-7 if case.forms == ENCODERS else 4e-9), (number, case))
            for number, case in chosen]  # fmt: skip
    for number, case in one_by_one(work):
        with scratch(place) as directory:
            options = ["--case", str(number), "--rounds", str(rounds), "--total", str(total), "--place", str(directory)]
            found = run_ranks(case.ranks, __file__, *options)
        raw, raw_busy, _ = found["raw"]
        rate = case.total * 1e-6
        for form in case.forms:
            seconds, busy, share = found[form]
            part = [100 * theirs / ours for theirs, ours in zip(raw, seconds, strict=True)]
            of_busy = [100 * theirs / ours for theirs, ours in zip(raw_busy, busy, strict=True)]
            limit = 70 if form in FRAMES and case.size >= 64 * KIB else ""
            rates = [f"{rate / statistics.median(each):.0f}" for each in (raw, seconds)]
            figures = (middle(part, 0), middle(of_busy, 0), rates[1], f"{100 * share:.0f}")
            row(case.title, rates[0], form, limit, *figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three rounds, 128 MiB prepared instead of 1 GiB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--place", default="/dev/shm", help="where the data go, on tmpfs for the figures of the docs")
    parser.add_argument("--only", default="", help="only rows whose table and title have this text")
    parser.add_argument("--total", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    rounds = 3 if arguments.quick else arguments.rounds
    total = arguments.total or (128 * MIB if arguments.quick else 1024 * MIB)
    if arguments.case is not None:
        case = list(writings(total))[arguments.case]
        measure_writing(Ground(Path(arguments.place)), case, rounds)
        return
    with scratch(arguments.place) as place:
        ground = Ground(place)
        for table in (hdf5_table, reads_table, decode_table):
            if _is_wanted(table.__name__, arguments.only):
                table(ground, rounds, arguments.only)
                print()
    if _is_wanted("prepare_table", arguments.only):
        prepare_table(arguments.place, rounds, total, arguments.only)
    print(f"\nload {os.getloadavg()[0]:.1f}", file=sys.stderr)


def _is_wanted(table: str, only: str) -> bool:
    """Return whether rows of a table may be meant: `--only reads` names it, `--only npz` may be in any."""
    tables = ("hdf5", "reads", "decode", "prepare")
    first = only.split(" ")[0]
    return first not in tables or table.startswith(first)


if __name__ == "__main__":
    orderly(main)
