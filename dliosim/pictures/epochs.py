"""Recorded epochs one after the other on one axis of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter

from dliosim.pictures.style import FAINT, faint_text, time_axis
from dliosim.readable import seconds
from dliosim.report.reader.arrays import Floats
from dliosim.report.reader.loops import RecordedEpoch


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


def mark_epochs(axes: Axes, places: Sequence[EpochSpan]) -> float:
    """Label the axis of time and mark the begins of epochs; return the factor from seconds to the axis's unit."""
    whole = places[-1].end
    unit = time_axis(axes.xaxis, whole, "time in the epochs shown, one after the other")
    axes.set_xlim(0, whole * unit)
    for place in places:
        if place.begin:
            axes.axvline(place.begin * unit, color=FAINT, linewidth=1.0, linestyle=(0, (4, 2)))
        share = (place.end - place.begin) / whole
        name = f"epoch {place.epoch.epoch}" if share > 0.08 else f"{place.epoch.epoch}"
        faint_text(axes, (place.begin + place.end) / 2 * unit, 1.01, name, "x", "center")
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
