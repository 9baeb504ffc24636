"""Places of reads and writes that have no offset of their own: the file's position, followed from its opening."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dliosim.trace.events import Events, kind_number, layer_number


def fill_offsets(events: Events, failed: NDArray[np.bool_], appends: NDArray[np.bool_]) -> Events:
    """Return the events with the offsets of reads and writes at the position of their file, where it is certain.

    A process has a position for each time that it has opened a file. Traces name the file, not the descriptor, so the
    position is certain only while the process has the file open once, not for appending, and from its opening or a
    seek on. `failed` marks calls that failed, `appends` opens for appending; both (n,).
    """
    is_call = (events.layer == layer_number("posix")) | (events.layer == layer_number("stdio"))
    is_call &= events.is_kind("open", "close", "read", "write", "seek")
    rows = np.flatnonzero(is_call & (events.file >= 0) & ~failed)
    filled = events.offset.copy()
    # A process at a time, so that temporary columns are those of one.
    for part in np.split(rows, np.flatnonzero(np.diff(events.process[rows])) + 1):
        certain, position = _positions(events, part[np.lexsort((part, events.layer[part], events.file[part]))], appends)
        filled[certain] = position
    return replace(events, offset=filled)


def _positions(
    events: Events, rows: NDArray[np.int64], appends: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the moves at a position that is certain, and the positions; `rows` are in order of file and layer."""
    kind, offset, moved = events.kind[rows], events.offset[rows], events.moved[rows]
    file, layer = events.file[rows], events.layer[rows]
    opens, closes, seeks = (kind == kind_number(name) for name in ("open", "close", "seek"))
    is_first = np.ones(len(rows), bool)
    is_first[1:] = (file[1:] != file[:-1]) | (layer[1:] != layer[:-1])
    moves = ~(opens | closes | seeks) & (offset < 0)
    # An opening and a seek set the position; a move by an unknown length loses it, and so does a second opening.
    level = _open_files(opens, closes, is_first)
    is_known = (opens & ~appends[rows]) | (seeks & (offset >= 0))
    is_lost = is_first | closes | (opens & ~is_known) | (seeks & (offset < 0)) | (moves & (moved < 0)) | (level != 1)
    number = np.arange(len(rows))
    last_set = np.maximum.accumulate(np.where(is_known, number, -1))
    last_lost = np.maximum.accumulate(np.where(is_lost & ~is_known, number, -1))
    length = np.where(moves, np.maximum(moved, 0), 0)
    travel = np.cumsum(length) - length
    position = np.where(seeks, offset, 0)[last_set] + travel - travel[last_set]
    is_certain = moves & (last_set > last_lost)
    return rows[is_certain], position[is_certain]


def _open_files(opens: NDArray[np.bool_], closes: NDArray[np.bool_], is_first: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return how often the file is open after each call, counted from the first call of each group; (n,)."""
    change = opens.astype(np.int64) - closes
    total = np.cumsum(change)
    start = np.flatnonzero(is_first)
    before: NDArray[np.int64] = (total - change)[start][np.cumsum(is_first) - 1]
    return total - before
