"""Storage's part of a step: how long steps would take with no wait but those inside calls, and with none at all."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: A column of nanoseconds, one entry a step.
Column = NDArray[np.int64]


def split_waits(waited: Column, called: Column, decoded: Column, extra: Column | None) -> tuple[Column, Column]:
    """Return the waits of steps for storage, and those for readers that decode, (steps,) each.

    `waited` are the waits for data as they were, `called` and `decoded` what readers took for the same batch. Readers
    also read in the `extra` time of a step, in which the tool, a sync or a late wake-up held it. Without that, a step
    that waited for its batch would have waited so much longer, but no longer than its batch took. A step that did not
    wait had its batch early, and has no wait. `extra` is None where the steps read by themselves.

    What is waited for with storage that takes no time is the wait for decoding; storage has the rest.
    """
    if extra is None:
        return waited, np.zeros_like(waited)
    needed = np.where(waited > 0, np.minimum(waited + np.maximum(extra, 0), called + decoded), 0)
    storage = np.minimum(needed, called)
    return storage, needed - storage


def align_syncs(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return rows of `EpochRecord.storage_ns` whose third column, minus clock readings, is from an origin of all ranks.

    Clocks of nodes differ. So the origin is where the first sync would have ended if this rank had left each as early,
    next to the others, as it ever did: a rank that left the first one late does not count from then.
    """
    left = -rows[:-1, 2]
    if len(left) > 1:
        even = (left[-1] - left[0]) * np.arange(len(left)) // (len(left) - 1)
        rows[:-1, 2] = (left - even).min() - left
    else:
        rows[:-1, 2] = 0
    return rows


def limit_steps(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first two columns of `EpochRecord.storage_ns` over all ranks, (syncs + 1, 2), from all three.

    Ranks leave a sync at different times, some of them late for lack of a core. So the longest step of any rank may be
    longer than the step of all: from the first rank that left the sync before to the first one that left its own.
    """
    times = rows[:, :2].copy()
    lasted = -np.diff(rows[:-1, 2])
    times[1:-1, 1] = np.maximum(np.minimum(times[1:-1, 1], lasted), times[1:-1, 0])
    return np.asarray(times)
