"""A run whose every figure is fixed, for golden files."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

from dliosim.measure.answers.answer import answer_run, evaluate
from dliosim.measure.figures.declaration import BoundShares, TimeSpread
from dliosim.measure.figures.epoch_summaries import EpochSummary, VerbSummary
from dliosim.measure.rank.histogram import Histogram
from dliosim.measure.results.machine import Environment, FileSystem
from dliosim.measure.results.phase import LoopPhase
from dliosim.measure.results.run_summary import FilePhase, RunSummary, SavePhase
from dliosim.model import Expectation
from dliosim.report.phase_titles import group_phases

S = TypeVar("S")


def spread(mean: float) -> TimeSpread:
    return TimeSpread(mean, mean * 0.9, mean * 1.1)


#: A value of each type of a figure: nothing was measured.
NOTHING = {
    "int": 0,
    "float": 0.0,
    "bool": False,
    "Hash": 0,
    "TimeSpread": spread(0.0),
    "Part": spread(0.0),
    "Histogram": Histogram(),
    "Times": {},
    "SourceSummaries": (),
}


def blank_summary(kind: type[S], **known: Any) -> S:
    """A summary without any figures but the known ones."""
    return kind(**{one.name: NOTHING.get(str(one.type)) for one in fields(kind)} | known)  # type: ignore[arg-type]


#: Ratios to the bytes asked, with the figures that they follow from.
_RATIOS = {"amplification": "read_call_bytes", "storage_amplification": "device_bytes"}


def epoch(index: int = 0, factor: float = 1.0, **changed: object) -> EpochSummary:
    """An epoch of four ranks, 32 steps of one sample; the first takes `factor` times as long to read."""
    wait = 4.1e-3 * factor
    wall = 32 * (wait + 10.2e-3)
    summary = blank_summary(
        EpochSummary,
        epoch=index + 1,
        ranks=4,
        steps=32,
        fewest_steps=32,
        samples=128,
        bytes=128 * 2_828_486,
        bytes_moved=128 * 2_831_360,
        calls=128,
        opens=128,
        seconds=wall,
        loop_seconds=wall,
        steady_samples_per_second=124 / (wall * 31 / 32),
        steady_bytes=124 * 2_828_486,
        storage_utilization=0.32 / (0.32 + 32 * wait),
        storage_utilization_error=0.004 if factor > 2 else None,
        storage_step_seconds=31 * (10e-3 + wait),
        utilization=0.32 / wall,
        utilization_min=0.31 / wall,
        utilization_max=0.33 / wall,
        data_wait_seconds=spread(32 * wait),
        clear_steps=124,
        clear_data_wait_seconds=wait * 32 / 31,
        io_busy_seconds=spread(32 * wait * 1.4),
        open_seconds=spread(0.0123),
        compute_seconds=spread(0.3204),
        sync_wait_seconds=spread(0.0021),
        tool_seconds=spread(0.00035),
        batch_latency=Histogram([int(wait * 1e9) + 1000 * i for i in range(128)]),
        call_latency=Histogram([int(wait * 0.7e9) + 1000 * i for i in range(128)]),
        bound_by=BoundShares(0.75, 0.1875, 0.0625, 0.0, 0.0),
        slowest_rank=3,
        slowest_rank_share=0.4375,
        least_sync_wait_seconds=0.0004,
        oversleep_share=0.00125,
        depth=1.0,
        dlio_au=0.32 / wall * 1.01,
        dlio_samples_per_second=4 * 30 / wall,
        order_hash=0x1111_2222_3333_4444 * (index + 1) % 2**64,
        extent_hash=0xAAAA_BBBB_CCCC_DDDD * (index + 1) % 2**64,
        core_wait_seconds=spread(0.0013),
    )
    return change(summary, **({"amplification": 1.001, "storage_amplification": 1.0} | changed))


def change(one: EpochSummary, **changed: object) -> EpochSummary:
    """The epoch with other figures; those of `_RATIOS` change the bytes that they are ratios of."""
    ratios = {_RATIOS[name]: changed.pop(name) for name in tuple(changed) if name in _RATIOS}
    changed_epoch = replace(one, **changed)  # type: ignore[arg-type]
    asked = changed_epoch.bytes
    known = {name: None if ratio is None else round(ratio * asked) for name, ratio in ratios.items()}
    return replace(changed_epoch, **known)


def times_of(summary: VerbSummary) -> dict[str, TimeSpread]:
    """The times over ranks of a verb."""
    known = {one.name: getattr(summary, one.name) for one in fields(summary)}
    return {name: value for name, value in known.items() if isinstance(value, TimeSpread)}


def verb(seconds: float, **changed: object) -> VerbSummary:
    summary = blank_summary(
        VerbSummary,
        ranks=4,
        bytes=181_023_104,
        bytes_moved=181_023_104,
        files=64,
        calls=64,
        opens=64,
        seconds=seconds,
        call_seconds=spread(seconds * 0.6),
        content_seconds=spread(seconds * 0.2),
        open_seconds=spread(seconds * 0.05),
        file_sync_seconds=spread(seconds * 0.1),
        rename_seconds=spread(0.00031),
        call_latency=Histogram([1_500_000 + 1000 * i for i in range(64)]),
    )
    changed_verb = replace(summary, **changed)  # type: ignore[arg-type]
    slowest = {name: one.mean for name, one in times_of(changed_verb).items()}
    return replace(changed_verb, slowest_rank_seconds=slowest)


#: What an epoch reads that another one has read before.
IN_MEMORY: dict[str, object] = {"storage_amplification": 0.0}

#: The `expect` lines of the run.
EXPECTED = (
    Expectation("utilization", "train", "at least", 0.75, "ratio", "utilization of train at least 75 %"),
    Expectation("p99", "train", "at most", 0.04, "s", "p99 of train at most 40 ms"),
)

#: A fourth of the steps of an epoch ran during a save.
FLUSHING = {
    "flush_steps": 31,
    "flush_step_seconds": 0.0163,
    "flush_data_wait_seconds": 0.0058,
    "clear_steps": 93,
    "clear_step_seconds": 0.0143,
    "clear_data_wait_seconds": 0.0041,
}


def saved(seconds: float, **changed: object) -> VerbSummary:
    """A save of 100 MB that held its slowest rank for so long."""
    held = TimeSpread(seconds * 0.9, seconds * 0.8, seconds)
    return replace(verb(seconds, files=1, bytes=100_000_000, stall_seconds=held), **changed)  # type: ignore[arg-type]


def flushed(stall: float, flush: float, **changed: object) -> VerbSummary:
    """A save of 100 MB in the background, whose slowest rank was held for `stall`."""
    times = {"stall_seconds": TimeSpread(stall, stall, stall), "stage_seconds": TimeSpread(stall, stall, stall)}
    with_flush = saved(stall + flush, **times, flush_seconds=TimeSpread(flush * 0.9, flush * 0.8, flush))
    return replace(with_flush, **changed)  # type: ignore[arg-type]


def run(**changed: object) -> RunSummary:
    """Prepare, drop caches, train five epochs with two kinds of checkpoints, and one evaluation."""
    train = LoopPhase(
        name="train",
        kind="train",
        seconds=2.6,
        epochs=(
            epoch(0, 2.5, null_seconds=0.34),
            *(epoch(i, 1 + i / 100, null_seconds=0.336, **IN_MEMORY) for i in range(1, 4)),
            epoch(4, 1.05, null_seconds=0.338, checkpoint_seconds=spread(0.24), **FLUSHING, **IN_MEMORY),
        ),
        resident_share=0.003,
        null_seconds=1.7,
        api="posix",
        cache="page",
        prefetch=2,
    )
    evaluation = LoopPhase(
        name="universe",
        kind="evaluate",
        seconds=1.8,
        epochs=(epoch(0, 1.1, bound_by=None, slowest_rank=None, slowest_rank_share=None, **IN_MEMORY),),
        api="mpi-independent",
        cache="page",
        hints_asked=(("romio_ds_read", "disable"), ("cb_nodes", "4")),
        hints_granted=(("romio_ds_read", "disable"), ("cb_nodes", "1"), ("romio_cb_read", "automatic")),
    )
    whole = RunSummary(
        name="cosmoflow",
        title="CosmoFlow training, one sample per file",
        pattern='dlio 1\nworkload cosmoflow "CosmoFlow training, one sample per file"\n',
        overrides=(("epochs", "5"),),
        digest="0123456789abcdef",
        ranks=4,
        nodes=1,
        environment=Environment(
            mpi_library="MPICH 4.1.3",
            cores_per_node=8,
            ranks_per_node=4,
            memory_per_node=24 * 2**30,
            load_average=0.25,
            mpi_io="ROMIO, driver ufs",
            file_systems=(FileSystem("data", "/scratch/dliosim-data", "ext4", "rw,relatime"),),
            details=(("versions", "dliosim 0.1.0, Python 3.11.7, numpy 2.4.6, mpi4py 4.1.2"),),
        ),
        started="2025-01-02T03:04:05+00:00",
        arguments=("run", "cosmoflow"),
        seconds=5.21,
        phases=(
            FilePhase("universe", "prepare", 0.42, verb=verb(0.42), notes=("made afresh",)),
            SavePhase("model", "save", 0.24, verb=saved(0.24), within="train"),
            SavePhase("model", "save", 0.26, verb=saved(0.26), within="train"),
            FilePhase(
                "", "drop caches", 0.011, verb=verb(0.011, bytes=0, call_latency=Histogram()), resident_share=0.003
            ),
            train,
            evaluation,
            SavePhase("state", "save", 0.9, verb=flushed(0.02, 0.88), within="train"),
        ),
        mtbf=4 * 3600.0,
    )
    changed_run = replace(whole, **changed)  # type: ignore[arg-type]
    answers = answer_run(changed_run, group_phases(changed_run.loops), {}, lambda override: ())
    answered = replace(changed_run, answers=answers)
    return answered if "expectations" in changed else replace(answered, expectations=evaluate(EXPECTED, answered))
