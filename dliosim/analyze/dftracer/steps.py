"""Epochs and steps of events, by time: the arguments of DLIO's own events name some of them, and some wrongly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dliosim.trace.events import UNKNOWN, Events, kind_number


def number_epochs_and_steps(events: Events) -> Events:
    """Return the events with the epoch in which each began, and the step of each wait for data and computation.

    Processes that record epochs are numbered by these, from 1 in order; other processes, such as readers, keep the
    numbers of their arguments, where they have any. A step is the number of a wait in its epoch, and so it is of a
    computation where an epoch has as many, or one more: the last wait is not recorded where a loop ends by `break`.
    """
    epoch_rows = np.flatnonzero(events.is_kind("epoch"))
    process = events.process
    # Epochs of one process that overlap are those of several, which an old trace gives one number.
    overlaps = process[epoch_rows[1:]] == process[epoch_rows[:-1]]
    overlaps &= events.begin[epoch_rows[1:]] < events.end[epoch_rows[:-1]]
    epoch_rows = epoch_rows[~np.isin(process[epoch_rows], process[epoch_rows[1:][overlaps]])]
    if not len(epoch_rows):
        return events
    last = np.searchsorted(epoch_rows, np.arange(len(events)), "right") - 1
    row = epoch_rows[np.maximum(last, 0)]
    has_epochs = np.isin(process, process[epoch_rows])
    is_inside = (last >= 0) & (process[row] == process) & (events.begin <= events.end[row])
    first = np.searchsorted(process[epoch_rows], process[row])
    epoch = np.where(has_epochs, np.where(is_inside, last - first + 1, UNKNOWN), events.epoch).astype(np.int32)
    step = np.where(has_epochs, _steps(events, epoch, is_inside), events.step)
    return replace(events, epoch=epoch, step=step.astype(np.int32))


def _steps(events: Events, epoch: NDArray[np.int32], is_inside: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the number of each wait and computation among those of its name in its process's epoch; (n,)."""
    steps = np.full(len(events), UNKNOWN, np.int64)
    rows = np.flatnonzero(is_inside & events.is_kind("data wait", "compute"))
    if not len(rows):
        return steps
    kind, name = events.kind[rows].astype(np.int64), events.name[rows].astype(np.int64)
    passes = events.process[rows] * (np.int64(epoch.max()) + 1) + epoch[rows]
    order = np.lexsort((rows, name, passes))
    rows, kind, name, passes = rows[order], kind[order], name[order], passes[order]
    is_first = np.concatenate(([True], (name[1:] != name[:-1]) | (passes[1:] != passes[:-1])))
    group = np.cumsum(is_first) - 1
    starts = np.flatnonzero(is_first)
    sizes = np.diff(np.append(starts, len(rows)))
    is_wait = kind[starts] == kind_number("data wait")
    all_passes, pass_of_group = np.unique(passes[starts], return_inverse=True)
    # A name is numbered where a pass has as many of it as waits.
    waits = np.zeros(len(all_passes), np.int64)
    np.maximum.at(waits, pass_of_group[is_wait], sizes[is_wait])
    extra = sizes - waits[pass_of_group]
    counts = (is_wait | ((extra >= 0) & (extra <= 1)))[group]
    steps[rows[counts]] = (np.arange(len(rows)) - starts[group] + 1)[counts]
    return steps
