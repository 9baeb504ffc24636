"""Recorded epochs one after the other on one axis of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter

from dliosim.pictures.style import FAINT, INK, faint_text, time_axis
from dliosim.readable import seconds
from dliosim.report.phase_titles import name_epochs
from dliosim.report.reader.arrays import Floats
from dliosim.report.reader.loops import RecordedEpoch

# Shares of the axis that an epoch needs for its number, and for its name.
_ROOM_FOR_NUMBER, _ROOM_FOR_NAME = 0.02, 0.08

# The mark of a break.
_BREAK: dict[str, Any] = {
    "color": INK,
    "weight": "bold",
    "zorder": 5,
    "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.5},
}


@dataclass(frozen=True, slots=True)
class EpochSpan:
    """The place of an epoch on the common axis of time."""

    epoch: RecordedEpoch  #: the recorded epoch
    begin: float  #: begin on the common axis; s
    edges: Floats  #: edges of its bins on the common axis; s; (bins + 1,)

    @property
    def end(self) -> float:
        """End of its last bin; s."""
        return float(self.edges[-1])


def align_epochs(epochs: Sequence[RecordedEpoch]) -> list[EpochSpan]:
    """Return the places of epochs with events, one after the other."""
    places: list[EpochSpan] = []
    begin = 0.0
    for epoch in epochs:
        if epoch.bin_count and len(epoch.ranks):
            places.append(EpochSpan(epoch, begin, begin + np.arange(epoch.bin_count + 1) * (epoch.bin_ns * 1e-9)))
            begin = places[-1].end
    return places


def bin_text(epochs: Sequence[RecordedEpoch]) -> str:
    """Return a sentence with the length of bins."""
    lengths = dict.fromkeys(seconds(epoch.bin_ns * 1e-9, 3) for epoch in epochs)
    return f"A bin is {' or '.join(lengths)} long."


def gap_text(epochs: Sequence[RecordedEpoch], count: int) -> str:
    """Return a sentence with the epochs of a loop of `count` epochs that are not recorded, else an empty text."""
    recorded = {epoch.epoch for epoch in epochs}
    missing = [number for number in range(1, count + 1) if number not in recorded]
    return f"The mark // stands for {name_epochs(missing)}, left out here and in timeline.h5." if missing else ""


def mark_epochs(axes: Axes, places: Sequence[EpochSpan], longest: float = 0.0) -> float:
    """Label the axis of time and mark the begins of epochs; return the factor from seconds to the axis's unit.

    The axis is `longest` seconds long if the epochs are shorter. Where epochs are left out, it has a mark, `//`.
    """
    whole = max(places[-1].end, longest)
    unit = time_axis(axes.xaxis, whole, "time in the epochs shown, one after the other")
    axes.set_xlim(0, whole * unit)
    before = places[0].epoch.epoch - 1
    for place in places:
        number, begin, share = place.epoch.epoch, place.begin * unit, (place.end - place.begin) / whole
        if place.begin:
            axes.axvline(begin, color=FAINT, linewidth=1.0, linestyle=(0, (4, 2)))
        if number > before + 1:
            for end in (0, 1):
                axes.text(begin, end, "//", transform=axes.get_xaxis_transform(), ha="center", va="center", **_BREAK)
        if share > _ROOM_FOR_NUMBER:
            name = f"epoch {number}" if share > _ROOM_FOR_NAME else f"{number}"
            faint_text(axes, (place.begin + place.end) / 2 * unit, 1.02, name, "x", "center")
        before = number
    return unit


def name_rows(axis: Axis, epoch: RecordedEpoch) -> None:
    """Label rows with their ranks."""

    def name(value: float, _: object) -> str:
        row = round(value)
        return str(epoch.ranks[row]) if value == row and 0 <= row < len(epoch.ranks) else ""

    axis.set_major_formatter(FuncFormatter(name))


def rank_text(epoch: RecordedEpoch, ranks: int) -> str:
    """Return `4 ranks`, or `4 of 8 ranks` where only some have rows."""
    rows = len(epoch.ranks)
    if rows == ranks:
        return f"{ranks} rank{'s' if ranks != 1 else ''}"
    return f"{rows} of {ranks} ranks"
