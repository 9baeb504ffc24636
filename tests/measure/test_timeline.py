"""Series of ranks that took different times and did different numbers of steps, as one timeline on rank 0."""

from __future__ import annotations

import numpy as np
import pytest

from dliosim.measure.figures.timeline import (
    MOST_RANKS,
    Timeline,
    gather_timeline,
    has_offsets,
    keep_epoch,
    select_ranks,
)
from dliosim.measure.rank.time_series import BINS, OFFSETS, READS, EpochSeries
from tests.measure.ranks import Together, on_ranks

ORIGIN = 10**12


def made(rank: int, steps: int) -> EpochSeries:
    """Steps that each take (rank + 1) times 1000 ns, the first half of it waiting for 10 bytes."""
    series = EpochSeries(ORIGIN + rank)
    unit = 500 * (rank + 1)
    marks = [[2 * step * unit, *[(2 * step + 1) * unit] * 5, (2 * step + 2) * unit] for step in range(steps)]
    if steps:
        clock = np.array(marks) + ORIGIN + rank
        series.add_steps(np.column_stack([clock, 10 * np.arange(1, steps + 1)]), np.empty((0, 2), np.int64))
        reads = np.arange(READS + 9) + ORIGIN + rank
        series.add_reads(rank, np.stack([reads, reads + 5]))
    series.offsets = np.stack([np.arange(OFFSETS)] * 3, axis=1)
    return series


def gathered(kept: list[dict[int, EpochSeries]]) -> Timeline:
    def gather(mine: dict[int, EpochSeries], together: Together) -> Timeline | None:
        return gather_timeline(mine, together.rank, len(kept), together)

    whole, *others = on_ranks(gather, kept)
    assert whole is not None and others == [None] * len(others)
    return whole


def test_bins_are_as_wide_as_those_of_the_slowest_rank_and_keep_their_sums() -> None:
    own = [made(rank, 100 - rank) for rank in range(5)]
    timeline = gathered([{0: series} for series in own])
    epoch = timeline.epochs[0]
    assert timeline.ranks.tolist() == [0, 1, 2, 3, 4]
    assert epoch.bin_ns == max(1 << series.shift for series in own) > 1 << own[0].shift
    bins = epoch.bins["data_wait_ns"].shape[1]
    assert BINS // 2 < bins <= BINS
    assert all(values.shape == (5, bins) for values in epoch.bins.values())
    assert epoch.bins["data_wait_ns"].sum(axis=1).tolist() == [(100 - rank) * 500 * (rank + 1) for rank in range(5)]
    ends = [(100 - rank) * 1000 * (rank + 1) // epoch.bin_ns for rank in range(5)]
    assert [int(np.flatnonzero(steps)[-1]) for steps in epoch.bins["steps"]] == ends
    assert epoch.bins["bytes"].sum(axis=1).tolist() == [10 * (100 - rank) for rank in range(5)]
    assert epoch.bins["batch_latency_max_ns"].max(axis=1).tolist() == [500 * (rank + 1) for rank in range(5)]


def test_single_reads_and_offsets_are_those_of_the_first_ranks() -> None:
    epoch = gathered([{0: made(rank, 100)} for rank in range(5)]).epochs[0]
    assert np.unique(epoch.reads[:, 0], return_counts=True)[1].tolist() == [READS] * 5
    assert (epoch.reads[:, 0] == epoch.reads[:, 1]).all()
    assert (epoch.reads[:, 3] - epoch.reads[:, 2] == 5).all()
    assert np.unique(epoch.offsets[:, 0], return_counts=True)[1].tolist() == [OFFSETS] * 4
    assert [has_offsets(rank, 5) for rank in range(5)] == [True] * 4 + [False]


def test_ranks_that_did_fewer_steps_have_none_in_their_place() -> None:
    epoch = gathered([{0: made(0, 3)}, {0: made(1, 1)}, {0: made(2, 0)}]).epochs[0]
    assert epoch.steps == 3
    assert epoch.window.shape == (3, 3, 6)
    assert (epoch.window >= 0).all(axis=2).tolist() == [[True] * 3, [True, False, False], [False] * 3]


def test_an_epoch_without_steps_has_a_bin_and_nothing_in_it() -> None:
    epoch = gathered([{0: EpochSeries()}, {0: EpochSeries()}]).epochs[0]
    assert (epoch.steps, epoch.window.shape, epoch.reads.shape) == (0, (2, 0, 6), (0, 4))
    assert all(values.tolist() == [[0], [0]] for values in epoch.bins.values())


@pytest.mark.parametrize("epochs", [1, 3, 4, 9])
def test_the_first_epochs_and_the_last_are_kept(epochs: int) -> None:
    kept: dict[int, EpochSeries] = {}
    for epoch in range(epochs):
        keep_epoch(kept, epoch, made(0, epoch + 1))
    assert [*kept] == sorted({*range(min(epochs, 3)), epochs - 1})
    assert {epoch: one.steps for epoch, one in gathered([kept]).epochs.items()} == {epoch: epoch + 1 for epoch in kept}


@pytest.mark.parametrize("size", [1, 511, 512, 513, 5000])
def test_ranks_are_all_or_evenly_chosen(size: int) -> None:
    ranks = select_ranks(size)
    assert len(ranks) == min(size, MOST_RANKS)
    assert ranks[0] == 0 and ranks[-1] < size
    assert np.ptp(np.diff(ranks, append=size)) <= 1
