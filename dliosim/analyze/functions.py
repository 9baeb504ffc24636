"""Figures of each function: calls, bytes, sizes and latencies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dliosim.analyze.view import View
from dliosim.trace.events import KINDS, LAYERS


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes that a call moved; quantiles are of the calls that say how much."""

    min: float  #: smallest
    p25: float  #: a quarter of the calls moved at most this
    mean: float  #: mean
    median: float  #: half of the calls moved at most this
    p75: float  #: three quarters of the calls moved at most this
    max: float  #: largest


@dataclass(frozen=True, slots=True)
class Function:
    """All calls of one name in one layer."""

    name: str  #: what the source calls it
    layer: str  #: application, loader, reader, checkpoint, library, mpi-io collective, mpi-io, stdio or posix
    kind: str  #: what its first call is: open, close, read, write, fsync, seek, metadata, compute, ...
    count: int  #: calls
    seconds: float  #: sum of the durations of all calls on all ranks
    bytes: int  #: bytes that all calls moved
    sizes: Sizes | None  #: None where no call moves bytes
    p50: float  #: median of durations, s
    p99: float  #: 99 % of the calls took at most this, s
    max: float  #: longest, s


def list_functions(view: View) -> tuple[Function, ...]:
    """Return all functions, those that took longest first."""
    events = view.events
    key = events.name.astype(np.int32) * len(LAYERS) + events.layer
    order, starts = sort_groups(key)
    found = []
    for rows in np.split(order, starts[1:]) if len(order) else ():
        first = rows[0]
        durations, moved = events.duration[rows], events.moved[rows]
        p50, p99, longest = quantiles(durations, 0.5, 0.99, 1.0)
        kind = KINDS[events.kind[first]]
        moved = moved[moved >= 0] if kind in ("read", "write") else moved[:0]
        name = events.names[events.name[first]] if len(events.names) > events.name[first] >= 0 else kind
        found.append(
            Function(
                name,
                LAYERS[events.layer[first]],
                kind,
                len(rows),
                int(durations.sum()) / 1e9,
                int(moved.sum()),
                _sizes(moved) if len(moved) else None,
                p50 / 1e9,
                p99 / 1e9,
                longest / 1e9,
            )
        )
    return tuple(sorted(found, key=lambda one: (-one.seconds, one.name)))


def sort_groups(keys: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return rows in order of their key, equal keys in their own order, and the place where each key begins."""
    if len(keys) and keys.min() >= 0 and keys.max() < 1 << 16:
        keys = keys.astype(np.uint16)  # sorted by radix, in a tenth of the time
    order = np.argsort(keys, kind="stable")
    changes = np.flatnonzero(np.diff(keys[order])) + 1
    return order, np.concatenate([np.zeros(min(len(keys), 1), np.int64), changes])


def quantiles(values: NDArray[np.int64], *shares: float) -> list[float]:
    """Return the value that each share of the values does not exceed: the ceil(share * n)-th smallest."""
    places = [max(int(np.ceil(share * len(values))) - 1, 0) for share in shares]
    found = np.partition(values, sorted(set(places)))
    return [float(found[place]) for place in places]


def _sizes(moved: NDArray[np.int64]) -> Sizes:
    low, quarter, half, most, high = quantiles(moved, 0.0, 0.25, 0.5, 0.75, 1.0)
    return Sizes(low, quarter, float(moved.sum() / len(moved)), half, most, high)
