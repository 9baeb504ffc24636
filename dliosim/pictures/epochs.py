"""Recorded epochs, one after the other on one time axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from dliosim.pictures.style import FAINT, INK, PARTS, time_axis
from dliosim.readable import count, seconds
from dliosim.report.phase_titles import name_epochs
from dliosim.report.reader.arrays import Floats, Ints, RecordedEpoch

# Shares of the axis that an epoch needs for its number, for its name, and for a note below the name.
_ROOM_FOR_NUMBER, _ROOM_FOR_NAME, _ROOM_FOR_NOTE = 0.02, 0.08, 0.09

# A bin without reads in which saves held the ranks for a larger share of the time is left out.
_IN_A_SAVE = 0.5

# The mark of a break.
_BLANK = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
_BREAK: dict[str, Any] = {"color": INK, "weight": "bold", "zorder": 5, "bbox": _BLANK}


@dataclass(frozen=True, slots=True)
class EpochSpan:
    """The place of an epoch on the common time axis."""

    epoch: RecordedEpoch  #: the recorded epoch
    begin: float  #: begin on the common axis; s
    bins: Ints  #: first bin of each column: one bin, and those of a save after it, which have no width; (columns,)
    edges: Floats  #: edges of its columns on the common axis; s; (columns + 1,)
    saves: tuple[tuple[float, float], ...]  #: place on the common axis, and length, of each save left out; s

    @property
    def end(self) -> float:
        """End of its last column; s."""
        return float(self.edges[-1])

    def reduce(self, combine: np.ufunc, rows: Ints) -> Ints:
        """Return figures of bins, (R, bins), combined to columns, (R, columns)."""
        return combine.reduceat(rows[:, : self.epoch.bin_count], self.bins, axis=1)


def align_epochs(epochs: Sequence[RecordedEpoch]) -> list[EpochSpan]:
    """Return the places of epochs with events, one after the other; saves during which nothing was read are left out.

    They would fill most of the axis and show nothing.
    """
    places: list[EpochSpan] = []
    begin = 0.0
    for epoch in epochs:
        if epoch.bin_count and len(epoch.ranks):
            places.append(_align_epoch(epoch, begin))
            begin = places[-1].end
    return places


def _align_epoch(epoch: RecordedEpoch, begin: float) -> EpochSpan:
    bins, length = epoch.bin_count, epoch.bin_ns * 1e-9
    held = epoch.checkpoint_ns[:, :bins].mean(axis=0)
    kept = (held <= _IN_A_SAVE * epoch.bin_ns) | epoch.bytes[:, :bins].any(axis=0)
    kept[0] = True
    columns = np.flatnonzero(kept)
    edges = begin + np.arange(len(columns) + 1) * length
    gaps = np.diff(np.append(columns, bins)) - 1
    saves = tuple((float(edges[one + 1]), float(gaps[one]) * length) for one in np.flatnonzero(gaps))
    return EpochSpan(epoch, begin, columns, edges, saves)


def bin_text(epochs: Sequence[RecordedEpoch]) -> str:
    """Return a sentence with the length of bins."""
    lengths = dict.fromkeys(seconds(epoch.bin_ns * 1e-9, 3) for epoch in epochs)
    return f"A bin is {' or '.join(lengths)} long."


def gap_text(epochs: Sequence[RecordedEpoch], count: int) -> str:
    """Return a sentence with the epochs of a loop of `count` epochs that are not recorded, else an empty text."""
    recorded = {epoch.epoch for epoch in epochs}
    missing = [number for number in range(1, count + 1) if number not in recorded]
    return f"The mark // stands for {name_epochs(missing)}, left out here and in timeline.h5." if missing else ""


def saves_text(epochs: Sequence[RecordedEpoch]) -> str:
    """Return a sentence on saves that have no room on the axis, else an empty text."""
    some = any(place.saves for place in align_epochs(epochs))
    return "Saves without reads have no room on the axis: an upright pink line stands for each." if some else ""


def mark_epochs(
    axes: Axes, places: Sequence[EpochSpan], longest: float = 0.0, notes: Mapping[int, str] | None = None
) -> float:
    """Label the time axis, and mark saves and the begins of epochs; return the factor from seconds to the axis's unit.

    The axis is `longest` seconds long if the epochs are shorter. If epochs are left out, it has a mark, `//`.
    `notes` stand below the names of epochs, by their numbers.
    """
    whole = max(places[-1].end, longest)
    without = " without saves" if any(place.saves for place in places) else ""
    unit = time_axis(axes.xaxis, whole, f"time in the epochs shown{without}, one after the other")
    axes.set_xlim(0, whole * unit)
    along, before = axes.get_xaxis_transform(), places[0].epoch.epoch - 1
    for place in places:
        number, begin, share = place.epoch.epoch, place.begin * unit, (place.end - place.begin) / whole
        if place.begin:
            axes.axvline(begin, color=FAINT, linewidth=1.0, linestyle=(0, (4, 2)))
        if number > before + 1:
            for end in (0, 1):
                axes.text(begin, end, "//", transform=along, ha="center", va="center", **_BREAK)
        if share > _ROOM_FOR_NUMBER:
            name = f"epoch {number}" if share > _ROOM_FOR_NAME else f"{number}"
            if notes and share > _ROOM_FOR_NOTE:
                name += f"\n{notes.get(number, '')}"
            middle = (place.begin + place.end) / 2 * unit
            axes.text(middle, 1.02, name, transform=along, ha="center", va="bottom", color=FAINT, fontsize=8.5)
        for save, _ in place.saves:
            axes.axvline(save * unit, color=PARTS["checkpoint"], linewidth=2.0, zorder=4)
        before = number
    return unit


def save_handles(places: Sequence[EpochSpan]) -> list[Line2D]:
    """Return the entry of a legend for saves, with the time that they took; none without saves."""
    lengths = [length for place in places for _, length in place.saves]
    if not lengths:
        return []
    label = f"{count(len(lengths), 'save')}, {seconds(sum(lengths), 2)} left out of the axis"
    return [Line2D([], [], color=PARTS["checkpoint"], linewidth=2.0, label=label)]


def name_rows(axis: Axis, epoch: RecordedEpoch) -> None:
    """Label rows with their ranks."""

    def name(value: float, _: object) -> str:
        row = round(value)
        return str(epoch.ranks[row]) if value == row and 0 <= row < len(epoch.ranks) else ""

    axis.set_major_formatter(FuncFormatter(name))


def rank_text(epoch: RecordedEpoch, ranks: int) -> str:
    """Return `4 ranks`, or `4 of 8 ranks` where only some have rows."""
    rows = len(epoch.ranks)
    return count(ranks, "rank") if rows == ranks else f"{rows} of {ranks} ranks"
