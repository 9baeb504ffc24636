"""Recorded epochs laid one after the other on one axis of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter

from dliosim.pictures.style import FAINT, time_axis
from dliosim.readable import seconds
from dliosim.report.reader.arrays import Floats
from dliosim.report.reader.loops import RecordedEpoch


@dataclass(frozen=True, slots=True)
class EpochSpan:
    """Where an epoch lies on the common axis: from `begin` on, its bins' `edges`, all in seconds."""

    epoch: RecordedEpoch
    begin: float
    edges: Floats

    @property
    def end(self) -> float:
        """Where its last bin ends."""
        return float(self.edges[-1])


def align_epochs(epochs: Sequence[RecordedEpoch]) -> list[EpochSpan]:
    """The epochs that have anything, one after the other."""
    places: list[EpochSpan] = []
    begin = 0.0
    for epoch in epochs:
        if epoch.bin_count and len(epoch.ranks):
            places.append(EpochSpan(epoch, begin, begin + np.arange(epoch.bin_count + 1) * (epoch.bin_ns * 1e-9)))
            begin = places[-1].end
    return places


def bin_text(epochs: Sequence[RecordedEpoch]) -> str:
    """How long bins are."""
    lengths = dict.fromkeys(seconds(epoch.bin_ns * 1e-9, 3) for epoch in epochs)
    return f"A bin is {' or '.join(lengths)} long."


def mark_epochs(axes: Axes, places: Sequence[EpochSpan]) -> float:
    """Label the axis of time, and mark where epochs begin; what to multiply seconds with."""
    whole = places[-1].end
    unit = time_axis(axes.xaxis, whole, "time in the epochs shown, one after the other")
    axes.set_xlim(0, whole * unit)
    for place in places:
        if place.begin:
            axes.axvline(place.begin * unit, color=FAINT, linewidth=1.0, linestyle=(0, (4, 2)))
        share = (place.end - place.begin) / whole
        name = f"epoch {place.epoch.epoch + 1}" if share > 0.08 else f"{place.epoch.epoch + 1}"
        middle = (place.begin + place.end) / 2 * unit
        axes.text(
            middle,
            1.01,
            name,
            transform=axes.get_xaxis_transform(),
            ha="center",
            va="bottom",
            color=FAINT,
            fontsize=8.5,
        )
    return unit


def name_rows(axis: Axis, epoch: RecordedEpoch) -> None:
    """Label whole positions with the ranks that have these rows."""

    def name(value: float, _: object) -> str:
        row = round(value)
        return str(epoch.ranks[row]) if value == row and 0 <= row < len(epoch.ranks) else ""

    axis.set_major_formatter(FuncFormatter(name))


def rank_text(epoch: RecordedEpoch, ranks: int) -> str:
    """`4 ranks`, or of how many the ranks with rows are."""
    rows = len(epoch.ranks)
    if rows == ranks:
        return f"{ranks} rank{'s' if ranks != 1 else ''}"
    return f"{rows} of {ranks} ranks"
