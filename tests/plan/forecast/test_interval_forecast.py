"""The cost of failures for checkpoints that are not saved yet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dliosim.language.compile import compile_pattern
from dliosim.model import (
    Access,
    Background,
    Cadence,
    Checkpoint,
    Compute,
    Dataset,
    Job,
    Layout,
    Loop,
    Pace,
    Part,
    Restore,
    Save,
    Split,
    Transformer,
    Workload,
    Writers,
    constant,
)
from dliosim.plan.checkpoints.layout import state_files
from dliosim.plan.forecast.checkpoint_footprint import restore_bytes
from dliosim.plan.forecast.checkpoint_interval import Costs, best_interval, compute_waste, daly_interval
from dliosim.plan.forecast.forecast import forecast
from dliosim.plan.forecast.interval_forecast import BANDWIDTHS, FailureModel, StateRisks, forecast_risks

GB = 10**9
CHECKPOINT = Checkpoint("c", 1, (Part("w", 40 * GB, "total"),), Writers("file per rank"), Access(transfer=GB), "c")
DATASET = Dataset("d", 1, 1000, constant(4096), Layout("shared file", 1), "data")
LOOP = Loop("train", "l", "d", Access(), batch=5, epochs=3, compute=Compute(constant(0.25)))


def found(failures: FailureModel, checkpoint: Checkpoint = CHECKPOINT, *verbs: Loop | Save | Restore) -> StateRisks:
    workload = Workload("w", "", 1, Job(4), (DATASET,), (checkpoint,), verbs or (Save("c"),))
    (one,) = forecast_risks(workload, forecast(workload), failures)
    return one


def test_a_save_takes_its_bytes_by_the_bandwidth_and_so_does_a_restart() -> None:
    one = found(FailureModel(3600, bandwidth=2e9))
    assert [risk.costs for risk in one.risks] == [Costs(3600, 20, 20)]
    assert one.own == ()


def test_where_nothing_is_given_bandwidths_stand_below_each_other() -> None:
    assert [(risk.bandwidth, risk.costs.stall) for risk in found(FailureModel(3600)).risks] == [
        (rate, 40e9 / rate) for rate in BANDWIDTHS
    ]


def test_a_save_time_is_the_stall_and_the_restart_unless_that_is_said() -> None:
    assert found(FailureModel(3600, save_time=30)).risks[0].costs == Costs(3600, 30, 30)
    assert found(FailureModel(3600, save_time=30, restart_time=300)).risks[0].costs == Costs(3600, 30, 300)
    assert found(FailureModel(3600, save_time=30, bandwidth=4e9)).risks[0].costs == Costs(3600, 30, 10)


def test_a_restart_reads_what_all_ranks_restore_and_not_what_was_saved() -> None:
    """40 GB that 4 ranks share, and 10 GB that each of them has: 50 GB saved, 80 GB read; 50 GB once for all."""
    copied = replace(CHECKPOINT, parts=(*CHECKPOINT.parts, Part("v", 10 * GB, "whole")))
    assert found(FailureModel(3600, bandwidth=1e9), copied).risks[0].costs == Costs(3600, 50, 80)
    assert found(FailureModel(3600, save_time=25), copied).risks[0].costs == Costs(3600, 25, 40)
    everything = (Save("c"), Restore("c", everything=True), Restore("c"))
    assert found(FailureModel(3600, bandwidth=1e9), copied, *everything).risks[0].costs == Costs(3600, 50, 200)
    once = (Save("c"), Restore("c", everything=True, written_by=Split(1, 1, 2)), Restore("c", once=True))
    assert found(FailureModel(3600, bandwidth=1e9), copied, *once).risks[0].costs == Costs(3600, 50, 50)


def test_a_restart_of_65_536_ranks_reads_the_weights_of_each_data_parallel_rank() -> None:
    """5.7 TB saved; of T x P x D = 8 x 32 x 256 ranks every one reads its weights, and its share of all else."""
    path = Path(__file__).parents[3] / "patterns/llama3_405b.dlio"
    workload = compile_pattern(path, [("scale", "1")], Job(65536, 8192))[0]
    checkpoint = workload.checkpoints[0]
    split = checkpoint.split(65536)
    assert (split.tensor, split.pipeline, split.data) == (8, 32, 256)
    files = state_files(checkpoint, split)
    sizes = dict(zip(("weights", "optimizer"), (0, 0), strict=True))
    for part in files.parts:
        copies = 256 if part.scope in ("rows", "columns") else 8 * 256 if part.scope == "whole" else 1
        sizes["optimizer" if part.file == "optimizer" else "weights"] += part.size * copies
    assert restore_bytes(files, split, once=False) == sum(sizes.values())
    assert sizes["weights"] == pytest.approx(256 * 811.8e9, rel=1e-3)


def test_of_a_part_the_interval_is_that_of_all_of_it() -> None:
    model = Transformer("m", 2, 64, 64, 4, 4, 100, scale=10)
    scaled = replace(CHECKPOINT, parts=(), model=model)
    one, whole = (
        found(FailureModel(3600, bandwidth=1e9), replace(scaled, model=replace(model, scale=scale)))
        for scale in (10, 1)
    )
    assert (one.part_of, one.state.part_of, one.ranks) == ("1/10 of the bytes of m", "", 4)
    assert one.state.bytes == whole.state.bytes and one.risks == whole.risks
    # 40 GB that 8 ranks share; 4 of them take part.
    some = found(FailureModel(3600, bandwidth=1e9), replace(CHECKPOINT, parallel=Split(1, 1, 8, played=4)))
    assert (some.part_of, some.ranks) == ("the first 4 of its 8 ranks alone", 8)
    assert some.risks[0].costs == Costs(3600, 40, 40)


def test_the_rate_is_named_with_which_a_twentieth_is_lost() -> None:
    one = found(FailureModel(3600))
    assert one.needed is not None
    costs = found(FailureModel(3600, bandwidth=one.needed)).risks[0].costs
    assert compute_waste(best_interval(costs), costs).total == pytest.approx(0.05, rel=1e-2)
    assert found(FailureModel(3600, bandwidth=1e9)).needed == pytest.approx(one.needed)
    assert found(FailureModel(3600, save_time=3.0)).needed is None
    assert found(FailureModel(3600, restart_time=600.0)).needed is None  # restarts alone lose more
    unknown = replace(CHECKPOINT, background=Background())
    assert found(FailureModel(3600), unknown).needed is None
    # The save time of one in the background is that of its copy: the flush takes what the bandwidth makes it.
    copied = found(FailureModel(3600, save_time=3.0), unknown)
    assert [risk.costs.flush for risk in copied.risks] == [40e9 / rate for rate in BANDWIDTHS]


def test_the_rate_is_that_of_the_loss_that_is_given() -> None:
    one = found(FailureModel(3600, loss=0.2))
    costs = found(FailureModel(3600, bandwidth=one.needed)).risks[0].costs
    assert compute_waste(best_interval(costs), costs).total == pytest.approx(0.2, rel=1e-2)


def test_a_flush_that_has_its_rate_ends_with_the_best_interval() -> None:
    paced = replace(CHECKPOINT, background=Background(Pace(bytes_per_second=5e9)), serialize=Pace(seconds=4.0))
    one = found(FailureModel(3600), paced)
    assert one.flush_rate is not None
    costs = found(FailureModel(3600, bandwidth=one.flush_rate), paced).risks[0].costs
    assert costs.flush == pytest.approx(best_interval(costs)) == pytest.approx(daly_interval(costs.stall, 3600))
    assert found(FailureModel(3600)).flush_rate is None  # it blocks
    assert found(FailureModel(3600), replace(paced, serialize=Pace(seconds=900.0))).flush_rate is None
    assert found(FailureModel(3600), replace(CHECKPOINT, background=Background())).flush_rate is None


def test_a_save_time_stands_for_the_bandwidth_of_a_checkpoint_that_blocks_next_to_one_in_the_background() -> None:
    both = (CHECKPOINT, replace(CHECKPOINT, name="d", path="d", background=Background()))
    workload = Workload("w", "", 1, Job(4), (DATASET,), both, (Save("c"), Save("d")))
    blocking, other = forecast_risks(workload, forecast(workload), FailureModel(3600, save_time=30.0))
    assert [risk.costs for risk in blocking.risks] == [Costs(3600, 30, 30)]
    assert len(other.risks) == len(BANDWIDTHS)


def test_loops_that_save_a_part_have_no_interval_of_their_own() -> None:
    loop = replace(LOOP, checkpoints=(Cadence("c", "steps", 10),))
    part = replace(CHECKPOINT, parallel=Split(1, 1, 8, played=4))
    assert found(FailureModel(3600), CHECKPOINT, loop).own
    assert not found(FailureModel(3600), part, loop).own


def test_what_the_processor_does_first_is_part_of_a_save() -> None:
    # 10 GB of each of 4 ranks.
    slow = replace(CHECKPOINT, serialize=Pace(bytes_per_second=1e9))
    assert found(FailureModel(3600, bandwidth=4e9), slow).risks[0].costs == Costs(3600, 20, 10)


def test_of_a_save_in_the_background_the_stall_is_the_copy_and_the_rest_its_flush() -> None:
    paced = replace(CHECKPOINT, background=Background(Pace(bytes_per_second=5e9)))
    one = found(FailureModel(3600, bandwidth=2e9), paced)
    assert one.risks[0].costs == Costs(3600, 2, 20, flush=20)
    assert one.knows_stall
    unknown = replace(CHECKPOINT, background=Background())
    assert found(FailureModel(3600, bandwidth=2e9), unknown).risks[0].costs == Costs(3600, 0, 20, flush=20)
    assert not found(FailureModel(3600, bandwidth=2e9), unknown).knows_stall
    assert found(FailureModel(3600, bandwidth=2e9, save_time=3), unknown).risks[0].costs == Costs(3600, 3, 20, flush=20)
    assert found(FailureModel(3600, bandwidth=2e9, save_time=3), unknown).knows_stall


@pytest.mark.parametrize(
    ("cadence", "own"),
    [
        (Cadence("c", "steps", 10), (("10 steps", 2.5),)),
        (Cadence("c", "epochs", 2), (("2 epochs", 2 * 50 * 0.25),)),
        (Cadence("c", "seconds", seconds=7.0), (("", 7.0),)),
        (Cadence("c", "end"), ()),
    ],
)
def test_a_loops_own_interval_is_its_compute(cadence: Cadence, own: tuple[tuple[str, float], ...]) -> None:
    assert found(FailureModel(3600), CHECKPOINT, replace(LOOP, checkpoints=(cadence,))).own == own


def test_without_compute_steps_have_no_time() -> None:
    idle = replace(LOOP, compute=Compute(constant(0.0)), checkpoints=(Cadence("c", "steps", 10),))
    assert found(FailureModel(3600), CHECKPOINT, idle).own == ()
