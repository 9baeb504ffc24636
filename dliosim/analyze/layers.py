"""The layers of a training job, as DFAnalyzer has them, and how far each is within the one that it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from dliosim.analyze.view import View
from dliosim.trace.events import layer_number
from dliosim.trace.intervals import Bools, overlap_length, unite_intervals


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of a job. Of one that the trace does not have all figures are 0."""

    name: str  #: what DFAnalyzer calls it
    parent: str  #: the layer that it belongs to; empty for the first one
    events: int  #: events
    seconds: float  #: union of the intervals of a rank, mean over ranks
    per_second: float | None  #: events / union of all ranks' intervals; None where that is 0
    bytes: int  #: bytes that its calls moved; 0 where it moves none itself
    bytes_per_second: float | None  #: bytes / union of all ranks' intervals; None where that is 0
    overlap: float | None  #: share of its time within its parent's, on the same rank; None where one of them is absent


_READER = layer_number("reader")


def _select_reader(view: View) -> Bools:
    events = view.events
    found: Bools = (events.layer == _READER) | events.is_kind("decode", "preprocess")
    return found


def _select_kinds(*kinds: str) -> Callable[[View], Bools]:
    return lambda view: view.events.is_kind(*kinds)


def _select_files(purpose: str) -> Callable[[View], Bools]:
    return lambda view: view.purpose(purpose) & view.basic


#: Each layer with its parent and its events. A file's purpose is known by its path: `View.purpose_of`.
LAYERS: Final[dict[str, tuple[str, Callable[[View], Bools]]]] = {
    "app": ("", _select_kinds("phase")),
    "training": ("app", _select_kinds("epoch")),
    "compute": ("training", _select_kinds("compute")),
    "fetch data": ("training", _select_kinds("data wait")),
    "data loader": ("fetch data", _select_kinds("load")),
    "reader": ("data loader", _select_reader),
    "reader I/O": ("reader", _select_files("data set")),
    "checkpoint": ("training", _select_kinds("save", "restore")),
    "checkpoint I/O": ("checkpoint", _select_files("checkpoint")),
    "other I/O": ("", _select_files("other")),
}


def list_layers(view: View) -> tuple[Layer, ...]:
    """Return all layers, also those that the trace does not have."""
    found, times = [], {}
    for name, (parent, select) in LAYERS.items():
        rows = select(view)
        times[name] = view.unite(rows)
        own = [one.length for one in times[name]]
        all_ranks = unite_intervals(*times[name]).length / 1e9
        moved = int(view.bytes[rows].sum())
        overlap = None
        if parent and sum(own) and sum(one.length for one in times[parent]):
            overlap = sum(map(overlap_length, times[name], times[parent])) / sum(own)
        events = int(np.count_nonzero(rows))
        found.append(
            Layer(
                name,
                parent,
                events,
                sum(own) / max(len(own), 1) / 1e9,
                events / all_ranks if all_ranks else None,
                moved,
                moved / all_ranks if all_ranks and moved else None,
                overlap,
            )
        )
    return tuple(found)
