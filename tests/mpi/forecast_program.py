"""Run by every rank of a job: random small workloads, which must do what their forecasts say.

Rank 0 prints, as JSON, how many figures it compared and those that differ.
"""

from __future__ import annotations

import gc
import json
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from mpi4py import MPI

from dliosim.execute.mpi.world import make_world, node_cores
from dliosim.execute.phases.context import Options, Phase, Session
from dliosim.execute.run.workload_runner import run_workload
from dliosim.execute.store.checkpoint_store import CheckpointStores
from dliosim.measure.figures.summary import RANK_COLUMNS
from dliosim.measure.results.phase import LoopPhase
from dliosim.measure.results.run_summary import FilePhase
from dliosim.model import (
    Access,
    Arrivals,
    Cadence,
    Checkpoint,
    Dataset,
    Distribution,
    Evaluation,
    Job,
    Layout,
    Loop,
    Part,
    Prepare,
    Restore,
    Shuffle,
    Sync,
    Workload,
    Writers,
    constant,
)
from dliosim.plan.forecast.forecast import forecast
from dliosim.plan.forecast.forecast_types import PhaseForecast, RankSpread, uniform_spread
from dliosim.report.progress.progress_line import ProgressLine
from tests.examples import ALL

APIS = ("posix", "mpi-independent", "mpi-collective")
ENGINES = ("preadv", "mmap", "queued")
OPENS = ("once", "each epoch", "each sample")
WORKLOADS = 12
FEW = (3, 4, 8)
# Large enough for several samples of a batch to be one call, small enough to cut some.
TRANSFERS = (None, 700, 2500)
MEMORY = (0, 6000)
COMMUNICATORS = ("world", 2, "node")
ORDERS = ("by offset", "as planned")
READERS = ((0, "batch"), (0, "batch"), (1, "batch"), (2, "batch"), (2, "sample"))
# Samples kept in memory are bytes of a run, and not asked of storage.
COLUMNS = {"bytes": "bytes_moved"}


def random_workload(number: int, ranks: int) -> Workload:
    """Each api, lifetime, transfer and memory in turn, and the rest at random.

    Few steps on several ranks: they outnumber cores, and whatever they do together takes milliseconds.
    """
    random = np.random.default_rng(number)

    def one_of(*values):
        return values[random.integers(len(values))]

    collective = APIS[number % 3] == "mpi-collective"
    samples = int(random.integers(50, 90))
    files = 1 if collective or number % 5 == 0 else one_of(samples, 9)
    layout = Layout({1: "shared file", samples: "file per sample"}.get(files, "files"), files)
    size = one_of(constant(400), Distribution("uniform", (200.0, 900.0)))
    dataset = Dataset("d", number, samples, size, layout, f"d{number}", header=one_of(0, 30))

    def access(turn: int) -> Access:
        lifetime = OPENS[turn // 3 % (2 if collective else 3)]
        # The shares of readers by sample may cut what would have been read through one handle.
        readers, by = one_of((0, "batch"), (2, "sample")) if lifetime == "each sample" else one_of(*READERS)
        memory = MEMORY[turn // 2 % 2]
        transfer = TRANSFERS[(turn // 3 + turn) % 3]
        engine = ENGINES[turn // 3 % 3] if not collective else "preadv"
        mapped = engine == "mmap" and APIS[number % 3] == "posix" and transfer is None
        engine = "preadv" if engine == "mmap" and not mapped else engine
        return Access(
            APIS[number % 3],
            transfer,
            readers,
            by,
            one_of(1, 2) if readers else 0,
            lifetime,
            "memory" if memory else "page",
            memory,
            order=ORDERS[turn // 2 % 2],
            communicator=COMMUNICATORS[turn // 3 % 3],
            engine=engine,
            depth=4 if engine == "queued" else 0,
        )

    def shuffle() -> Shuffle:
        kinds = one_of("off", "globally", "globally", "within shard", "within buffer")
        return Shuffle(kinds, one_of(True, False, False), 7, one_of("off", "globally"), one_of(True, False))

    def loop(kind: str, name: str, turn: int) -> Loop:
        how = access(turn)
        if kind != "infer" and not collective and not how.readers:
            how = replace(how, scatter=bool(turn // 3 % 2))
        # In the order of the file, calls continue where those before them ended.
        order = Shuffle() if how.open == "each sample" else shuffle()
        shard = one_of("by sample", "by block", "off", "by file" if files >= ranks else "by block")
        return Loop(
            kind,
            name,
            "d",
            how,
            batch=int(random.integers(3, 7)),
            shard=shard,
            shuffle=order,
            # A collective call reads the bytes that `pad` repeats once, and they are planned as asked.
            last_batch=one_of("drop", "keep", "keep" if collective else "pad"),
            epochs=int(random.integers(1, 5)),
            steps=one_of(None, None, 3) if ranks == 1 else 3,
            sync=one_of(Sync(), Sync("off")) if not collective else Sync(),
        )

    parts = (Part("w", 5000, "total"), Part("o", 70, "per rank"))
    saves = Checkpoint("c", number, parts, writers(number), Access(), "c")
    test = replace(loop("evaluate", "e", number + 1), epochs=one_of(1, 2))
    train = replace(
        loop("train", "t", number),
        epochs=4 if ranks == 1 else 2,
        evaluations=(Evaluation(one_of(1, 2), test),),
        checkpoints=(Cadence("c", "epochs", 2),),
    )
    serve = loop("infer", "i", number + 2)
    serve = replace(serve, arrivals=Arrivals(40 if ranks == 1 else 13, constant(0)), epochs=1, last_batch="drop")
    restores = (
        Restore("c"),
        Restore("c", everything=bool(number % 2), once=True),
        Restore("c", once=True, sent=False, each=1),
    )
    unread = Loop("train", "u", "", Access(), epochs=2, steps=3, checkpoints=(Cadence("c", "steps", 2),))
    verbs = (Prepare("d", Access(APIS[number % 3], one_of(None, 1000))), train, unread, serve, *restores)
    return Workload(f"w{number}", "", number, Job(ranks), (dataset,), (saves,), verbs)


def writers(number: int) -> Writers:
    return (Writers("file per rank"), Writers("shared file"), Writers("one per", 2), Writers("rank", 0))[number % 4]


@dataclass
class Compared:
    """Figures that were exact in the forecast and as many in the run, and those that were not."""

    marked: int = 0
    same: int = 0
    differ: list[str] = field(default_factory=list)

    def add(self, what: str, planned: RankSpread, found: list[int]) -> None:
        """Compare a figure of all ranks, or its sum alone."""
        if planned.estimated:
            self.marked += 1
            return
        wanted = [planned.total] if len(found) == 1 else [planned.minimum, planned.maximum, planned.total]
        got = found if len(found) == 1 else [min(found), max(found), sum(found)]
        if np.allclose(wanted, got, rtol=1e-12, atol=0):
            self.same += 1
        else:
            self.differ.append(f"{what}: planned {wanted}, found {got}")


def _how(plan: PhaseForecast) -> str:
    return plan.when if plan.verb == "restore" else ""


def of_ranks(phase: Phase, epoch: int, name: str) -> list[int]:
    """A figure of every rank in one epoch."""
    return phase.rank_rows[:, epoch, RANK_COLUMNS.index(name)].tolist()


def compare(planned: list[PhaseForecast], phase: Phase, compared: Compared, where: str) -> None:
    """A phase that was run, and all that was planned of it."""
    if isinstance(phase.summary, FilePhase):
        found = phase.summary.verb
        plan = planned[0]
        # Elsewhere each rank's share of a file that all make together counts as a file in plans.
        for name in ("bytes", "calls", "opens", *["files"] * (plan.verb == "restore")):
            compared.add(f"{where}: {name}", getattr(plan, name), [getattr(found, name)])
        return
    if planned[0].first_epoch is None:  # requests: one epoch of many passes
        compare_sums(planned, phase, compared, where)
        return
    plans = [plan for plan in planned for _ in range(plan.times)]
    assert isinstance(phase.summary, LoopPhase) and len(plans) == len(phase.summary.epochs), where
    for epoch, plan in enumerate(plans):
        here = f"{where}, epoch {epoch + 1}"
        compared.add(
            f"{here}: steps", uniform_spread(plan.steps, len(phase.rank_rows)), of_ranks(phase, epoch, "steps")
        )
        for name in ("samples", "bytes", "calls", "opens"):
            compared.add(f"{here}: {name}", getattr(plan, name), of_ranks(phase, epoch, COLUMNS.get(name, name)))


def compare_sums(planned: list[PhaseForecast], phase: Phase, compared: Compared, where: str) -> None:
    """Return the sums of all passes over the ranks."""
    for name in ("samples", "bytes", "calls", "opens"):
        spreads = [getattr(plan, name) for plan in planned]
        total = sum(plan.times * spread.total for plan, spread in zip(planned, spreads, strict=True))
        whole = RankSpread(0, 0, 0, total, any(spread.estimated for spread in spreads))
        compared.add(f"{where}: {name}", whole, [sum(of_ranks(phase, 0, COLUMNS.get(name, name)))])


def main(comm: MPI.Intracomm, where: str) -> None:
    directory = Path(where)
    gc.freeze()  # each loop looks for garbage, and would look through all modules
    world = make_world(comm, node_cores, "forecasts")
    directory.mkdir(exist_ok=True)
    compared = Compared()
    for number in range(WORKLOADS) if comm.size == 1 or ALL else FEW:
        workload = random_workload(number, comm.size)
        with CheckpointStores() as stores:
            session = Session(workload, world, {"data": directory}, Options(), ProgressLine(None), stores=stores)
            phases = run_workload(session)
        if comm.rank == 0:
            planned = forecast(workload).phases
            for phase in phases:
                how = getattr(phase.summary, "how", "")
                name = f"{phase.summary.kind} {phase.summary.name} {how}".rstrip()
                plans = [plan for plan in planned if f"{plan.verb} {plan.name} {_how(plan)}".rstrip() == name]
                compare(plans, phase, compared, f"workload {number}, {name}")
    world.close()
    if comm.rank == 0:
        print(json.dumps({"marked": compared.marked, "same": compared.same, "differ": compared.differ}))


if __name__ == "__main__":
    main(MPI.COMM_WORLD, sys.argv[1])
