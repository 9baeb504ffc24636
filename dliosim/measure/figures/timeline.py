"""Timeline of some epochs of a loop: rank 0 gathers the series of chosen ranks, in limited memory for any number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dliosim.measure.rank.time_series import BINS, OFFSETS, QUANTITIES, READS, WINDOW_STEPS, EpochSeries, widen_bins
from dliosim.measure.reducer import Ints, Reducer

#: Number of first epochs of a loop that are kept; the last epoch is kept, too.
FIRST_EPOCHS = 3

#: Limits of ranks that keep time bins and windows, single reads, and offsets.
MOST_RANKS, READING_RANKS, OFFSET_RANKS = 512, 64, 4

# Head of what a rank sends for an epoch: steps, shift, number of reads, number of offsets; bins and window follow.
_HEAD = 4
_BINS, _WINDOW = EpochSeries().bins.size, EpochSeries().window.size


@dataclass(frozen=True, slots=True)
class EpochTimeline:
    """One epoch over the chosen ranks; times are ns since each rank's own start of the epoch."""

    #: most steps of any rank
    steps: int
    #: width of a bin, in ns
    bin_ns: int
    #: for each quantity (ranks, bins)
    bins: dict[str, Ints]
    #: (ranks, steps, marks), in ns; -1 if a rank did not do a step
    window: Ints
    #: (n, 4): rank, reader, begin, end
    reads: Ints
    #: (n, 4): rank, step, file, offset in bytes
    offsets: Ints


@dataclass(frozen=True, slots=True)
class Timeline:
    """The epochs of a loop that were kept."""

    #: the chosen ranks
    ranks: Ints
    #: by number of the epoch, from 1
    epochs: dict[int, EpochTimeline]


def keep_epoch(kept: dict[int, EpochSeries], epoch: int, series: EpochSeries) -> None:
    """Add an epoch's series to the first ones; it replaces the last epoch, if that is not one of the first."""
    while len(kept) > FIRST_EPOCHS:
        kept.popitem()
    kept[epoch] = series


def select_ranks(size: int) -> Ints:
    """Return the ranks whose rows are kept: all, or `MOST_RANKS` evenly chosen; the first ones keep the most."""
    count = min(size, MOST_RANKS)
    return np.arange(count) * size // count


def has_offsets(rank: int, size: int) -> bool:
    """Return True if offsets of this rank are kept."""
    return rank in select_ranks(size)[:OFFSET_RANKS]


def gather_timeline(kept: Mapping[int, EpochSeries], rank: int, size: int, reducer: Reducer) -> Timeline | None:
    """Return the kept epochs of all chosen ranks at the root, None elsewhere. Collective.

    All ranks get bins as wide as the widest.
    """
    ranks = select_ranks(size)
    # How many int64 each chosen rank sends for one epoch.
    place, lengths = np.arange(len(ranks)), np.zeros(size, np.int64)
    sizes = _HEAD + _BINS + _WINDOW + 3 * (READS * (place < READING_RANKS) + OFFSETS * (place < OFFSET_RANKS))
    lengths[ranks] = sizes * len(kept)
    room = int(lengths[rank]) // len(kept)
    part = np.concatenate([_pack_series(series, room) for series in kept.values()])
    parts = reducer.gather_parts(part, lengths.tolist())
    if parts is None:
        return None
    rows = [parts[one].reshape(len(kept), -1) for one in ranks.tolist()]
    return Timeline(ranks, {epoch: _unpack_epoch(ranks, [row[at] for row in rows]) for at, epoch in enumerate(kept)})


def _pack_series(series: EpochSeries, room: int) -> Ints:
    """Return the series as `room` int64; what is not kept of this rank is left out."""
    packed = np.zeros(room, np.int64)
    if room:
        reads, offsets = series.early_reads(), series.offsets
        head = np.array([series.steps, series.shift, len(reads), len(offsets)])
        rows = [np.pad(some, ((0, most - len(some)), (0, 0))) for some, most in ((reads, READS), (offsets, OFFSETS))]
        packed[:] = np.concatenate([each.ravel() for each in (head, series.bins, series.window, *rows)])[:room]
    return packed


def _unpack_epoch(ranks: Ints, packed: list[Ints]) -> EpochTimeline:
    heads = np.stack([each[:_HEAD] for each in packed])
    steps, shift = (int(heads[:, column].max()) for column in (0, 1))
    binned = [(each[_HEAD : _HEAD + _BINS].reshape(-1, BINS), int(each[1])) for each in packed]
    bins = np.stack([widen_bins(narrow, shift - own) for narrow, own in binned])
    used = int(np.flatnonzero(bins.any(axis=(0, 1)))[-1]) + 1 if bins.any() else 1
    first = _HEAD + _BINS + _WINDOW
    window = np.stack([each[_HEAD + _BINS : first].reshape(WINDOW_STEPS, -1) for each in packed])
    return EpochTimeline(
        steps,
        1 << shift,
        {name: bins[:, row, :used].copy() for row, name in enumerate(QUANTITIES)},
        window[:, : min(steps, WINDOW_STEPS)].copy(),
        _unpack_rows(ranks[:READING_RANKS], packed, first, heads[:, 2]),
        _unpack_rows(ranks[:OFFSET_RANKS], packed, first + 3 * READS, heads[:, 3]),
    )


def _unpack_rows(ranks: Ints, packed: list[Ints], first: int, counts: Ints) -> Ints:
    """Return the rows of each rank, three int64 each from `first` on, with the rank in front of each row."""
    found = [
        np.column_stack([np.full(count, rank), each[first : first + 3 * count].reshape(count, 3)])
        for rank, each, count in zip(ranks.tolist(), packed, counts.tolist())  # noqa: B905
    ]
    return np.concatenate(found)
