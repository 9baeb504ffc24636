"""DLIO's figures by the formulas of each version, from times that are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.dlio.known_keys import VERSIONS
from dliosim.measure.figures.summary import dlio_samples_per_second, dlio_utilization
from dliosim.measure.rank.records import LoggedCheckpoint, LoggedEpoch, StepBlock, StepLog
from dliosim.report.files.dlio_ranks import (
    Block,
    block_throughput,
    block_utilization,
    epoch_stats,
    list_epochs,
    rank_output,
    split_blocks,
)

S = 1_000_000_000


def make_epoch(
    started: int, loads: list[int], compute: int, *, kind: str = "train", save_after: int = 0
) -> LoggedEpoch:
    """An epoch whose steps wait `loads` ns and compute, with a sync of 5 ns, and a save of 1000 ns after one step."""
    rows, now = [], started
    for number, load in enumerate(loads, 1):
        fetched = now + load
        synced = fetched + compute + 5
        saved = synced + (1000 if number == save_after else 0)
        rows.append((now, fetched, fetched, fetched + compute, synced, saved))
        now = saved
    return LoggedEpoch(kind, 4, started, np.array(rows, np.int64), np.full(len(loads), compute // 2))


def test_a_save_after_a_step_ends_a_block_and_is_in_none() -> None:
    first, second = split_blocks(make_epoch(100, [10, 20, 30], 50, save_after=2))
    assert (first.begun, first.ended) == (100, 100 + 10 + 20 + 2 * 55)
    assert second.begun == first.ended + 1000
    assert second.load.tolist() == pytest.approx([30e-9])


def test_each_version_has_its_own_formula() -> None:
    # Three steps in 10 s: the first takes 3 s, the others compute 2 s each. 1 s was asked.
    load, compute = np.array([1.0, 0.5, 0.5]), np.array([2.0, 2.0, 2.0])
    block = Block(0, 10 * S, load, compute, compute / 2)
    shares = {name: block_utilization(block, VERSIONS[name]) for name in ("2.0.0", "mlperf-v2", "mlperf-v3")}
    rates = {name: block_throughput(block, VERSIONS[name], 4) for name in ("2.0.0", "mlperf-v2", "mlperf-v3")}
    assert shares == pytest.approx({"2.0.0": 200 / 7, "mlperf-v2": 400 / 7, "mlperf-v3": 400 / 7})
    assert rates == pytest.approx({"2.0.0": 12 / 10, "mlperf-v2": 4 / 7, "mlperf-v3": 8 / 7})


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=30), st.integers(1, 10**9), st.integers(0, 31))
def test_figures_are_those_of_results(loads: list[int], compute: int, save_after: int) -> None:
    epoch = make_epoch(7, loads, compute, save_after=save_after)
    blocks = list(split_blocks(epoch))
    known = [
        StepBlock(len(one.load), one.ended - one.begun, round(one.proc[0] * S), round(one.compute[1:].sum() * S))
        for one in blocks
    ]
    (mine,) = list_epochs(StepLog([epoch], []))
    share, rate = mine.training(VERSIONS["mlperf-v2"])
    assert share == pytest.approx(100 * (dlio_utilization(known) or 0.0), rel=1e-6)
    assert max(rate, 0.0) == pytest.approx(dlio_samples_per_second(known, 4) or 0.0, rel=1e-6)


def test_an_evaluation_and_a_checkpoint_belong_to_the_epoch_before_them() -> None:
    log = StepLog(
        [make_epoch(0, [1] * 3, 9), make_epoch(500, [1] * 2, 9, kind="evaluate"), make_epoch(1000, [1] * 3, 9)],
        [LoggedCheckpoint("save", 400, 450, 1 << 30), LoggedCheckpoint("restore", 2000, 2100, 1 << 30)],
    )
    stats = epoch_stats(list_epochs(log), VERSIONS["mlperf-v2"], 0)
    assert [sorted(stats[number]) for number in "12"] == [
        ["block1", "duration", "end", "eval", "save_ckpt1", "start"],
        ["block1", "duration", "end", "load_ckpt1", "start"],
    ]
    assert stats["1"]["save_ckpt1"]["throughput"] == pytest.approx(1 / 50e-9)
    assert "ckpt1" in epoch_stats(list_epochs(log), VERSIONS["2.0.0"], 0)["1"]
    assert rank_output(list_epochs(log), VERSIONS["mlperf-v2"], 0)["1"]["load"]["eval"] == pytest.approx([1e-9, 1e-9])


def test_a_run_that_only_saves_has_one_epoch_without_steps() -> None:
    log = StepLog([], [LoggedCheckpoint("save", at, at + 10, 1) for at in (100, 200)])
    (only,) = list_epochs(log)
    assert (len(only.checkpoints), only.blocks, only.training(VERSIONS["mlperf-v3"])) == (2, (), (0.0, 0.0))
