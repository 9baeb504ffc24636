"""Calls that the sums of a log stand for: as many as it counts, of the sizes that it names, one behind the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dliosim.analyze.arrays import Bools, Ints
from dliosim.analyze.figures.access import BIN_ENDS
from dliosim.analyze.read.darshan.counters import BINS, SIDES, FileCounters, LogTrace
from dliosim.errors import HELP, TraceError
from dliosim.trace.events import Events, kind_number, layer_number, make_events

#: Calls of a log, at most.
_MOST_CALLS: Final = 20_000_000
#: The layers of modules that count reads and writes.
_LAYERS: Final = {"POSIX": "posix", "STDIO": "stdio", "DFS": "posix", "MPI-IO": "mpi-io"}
#: Darshan's names of what a process has open from its start, which is no storage.
_STREAMS: Final = frozenset(("<STDIN>", "<STDOUT>", "<STDERR>"))
#: The names of calls whose size the log says, and of those that have the mean size of several.
_NAMES: Final = ("", "mean of several")


def spread_sums(trace: LogTrace) -> Events:
    """Return a table of calls for a log that has sums alone; TraceError if it counts too many.

    Each file is read from its start to the last byte that was read, as often as its bytes need: each time is an epoch.
    What all ranks have done together is done by them in turn; if there are as many passes for each, all do all.
    """
    used = [table for table in trace.counters if table.module in _LAYERS]
    tables = [table.select(~table.is_of(_STREAMS)) for table in used]
    each = [
        *(table.calls(side) for table in tables for side in SIDES),
        *(table.count(*_OPENS, *_SYNCS) for table in tables),
    ]
    calls = sum(float(one.sum(dtype=float)) for one in each)
    if calls > _MOST_CALLS:
        raise TraceError(
            f"{trace.path} counts {calls:,.0f} calls on files: a pattern is made of {_MOST_CALLS:,} at most"
            f"{HELP}use the log of a shorter run of the job, such as one of fewer epochs"
        )
    files = {path: number for number, path in enumerate(dict.fromkeys(path for one in tables for path in one.files))}
    pieces = [piece for table in tables for piece in _list_pieces(table, files, len(trace.events.processes))]
    if not pieces:
        return trace.events
    columns = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
    order = np.lexsort((columns["begin"], columns["process"]))
    columns = {name: column[order] for name, column in columns.items()}
    return make_events(columns, _NAMES, tuple(files), trace.events.processes)


def find_means(events: Events) -> Bools:
    """Return which events are calls that have the mean size of several; (n,)."""
    found: Bools = events.name == (events.names.index(_NAMES[1]) if _NAMES[1] in events.names else -2)
    return found


def _list_pieces(table: FileCounters, files: dict[str, int], ranks: int) -> Iterator[dict[str, NDArray[Any]]]:
    """Yield the columns of the opens, the reads, the writes and the fsyncs of a module."""
    numbers = np.array([files[path] for path in table.files], np.int32)
    is_collective = table.count("COLL_READS", "COLL_WRITES") > 0
    layers = np.array([layer_number(name) for name in (_LAYERS[table.module], "mpi-io collective")], np.int8)
    layer = layers[is_collective.astype(np.int8)]

    def place(kind: str, row: Ints, share: NDArray[np.float64], **more: Ints) -> dict[str, NDArray[Any]]:
        times = [table.seconds.get(f"F_{kind.upper()}_{end}_TIMESTAMP", np.zeros(len(table))) for end in _ENDS]
        begin, end = (np.clip(np.nan_to_num(one), 0, _LONGEST)[row] * 1e9 for one in times)
        absent = np.full(len(row), -1, np.int32)
        in_turn = more.get("in_turn", np.arange(len(row))) % max(ranks, 1)
        return {
            "kind": np.full(len(row), kind_number(kind), np.int8),
            "layer": layer[row],
            "name": more.get("name", np.zeros(len(row), np.int8)),
            "process": np.where(table.rank[row] < 0, in_turn, table.rank[row]).astype(np.int32),
            "begin": (begin + share * np.maximum(end - begin, 0)).astype(np.int64),
            "file": numbers[table.file[row]],
            "offset": more.get("offset", absent),
            "moved": more.get("moved", absent),
            "epoch": more.get("epoch", absent),
        }

    for kind, many in ("open", table.count(*_OPENS)), ("fsync", table.count(*_SYNCS)):
        row = np.repeat(np.arange(len(table)), many)
        yield place(kind, row, np.zeros(len(row)))
    for side, (_, moved, last, _) in SIDES.items():
        calls, total = table.calls(side), table.count(moved)
        extent = np.maximum(table.count(last) + 1, 1) if last in table.counts else np.maximum(total, 1)
        passes = np.clip(np.rint(total / extent).astype(np.int64), 1, np.maximum(calls, 1))
        row, size, name = _list_sizes(table, side)
        number = np.arange(len(row)) - (np.cumsum(calls) - calls)[row]
        one = number * passes[row] // np.maximum(calls[row], 1)  # the pass of each call
        before = np.cumsum(size) - size
        is_first = np.append(True, (np.diff(row) != 0) | (np.diff(one) != 0))[: len(row)]
        offset = before - before[np.flatnonzero(is_first)][np.cumsum(is_first) - 1]
        offset = np.clip(offset, 0, np.maximum(extent[row] - size, 0))  # the rest was read twice
        by_all = (table.rank < 0) & (ranks > 1) & (passes % max(ranks, 1) == 0)
        yield place(
            side,
            row,
            one / passes[row],  # calls of one pass are next to each other
            offset=offset,
            moved=size,
            name=name,
            in_turn=np.where(by_all[row], one, number),
            epoch=(np.where(by_all[row], one // max(ranks, 1), one) + 1).astype(np.int32),
        )


#: Darshan's names of opens, and of the ends of a time.
_OPENS: Final = ("OPENS", "INDEP_OPENS", "COLL_OPENS", "GLOBAL_OPENS", "LOOKUPS")
_SYNCS: Final = ("FSYNCS", "FDSYNCS", "SYNCS")
_ENDS: Final = ("START", "END")
#: Times of a log are within this; s.
_LONGEST: Final = 3.2e9


def _list_sizes(table: FileCounters, side: str) -> tuple[Ints, Ints, Ints]:
    """Return the row, the bytes and the name of each read or write, those of one row mixed evenly; (calls,) each.

    A row names its four commonest sizes, of reads and writes together, and counts the reads in some bins of sizes; what
    is left has the mean size.
    """
    calls, rest = table.calls(side), table.count(SIDES[side][1])
    left, rows = calls.copy(), np.arange(len(table))
    is_alone = table.calls("write" if side == "read" else "read") == 0
    bins = np.stack([table.count(*(f"SIZE_{side.upper()}_{way}{name}" for way in ("", "AGG_"))) for name in BINS])
    named = table.common_sizes()
    places = [np.searchsorted(BIN_ENDS, size) for size, _ in named]
    found, names = [], []
    for (size, times), place in zip(named, places, strict=True):
        many: Ints = np.minimum(times, left)
        many = np.minimum(many, np.where(is_alone, many, bins[place, rows]))
        many = np.minimum(many, rest // np.maximum(size, 1))
        left, rest = left - many, rest - many * size
        bins[place, rows] -= np.minimum(many, bins[place, rows])
        found.append((size, many))
        # Of two sizes in a bin nothing says which one was read.
        rivals = sum((other == place) & (number > 0) for other, (_, number) in zip(places, named, strict=True))
        names.append((~is_alone & (rivals > 1)).astype(np.int8))
    found.append((rest // np.maximum(left, 1), left))  # what is left
    names.append((left > 1).astype(np.int8))
    row = np.concatenate([np.repeat(rows.astype(np.int32), many) for _, many in found])
    size = np.concatenate([np.repeat(size, many) for size, many in found])
    name = np.concatenate([np.repeat(one, many) for one, (_, many) in zip(names, found, strict=True)])
    within = np.concatenate([np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many) for _, many in found])
    times = np.concatenate([np.repeat(many, many) for _, many in found])
    order: Ints = np.lexsort(((within + 0.5) / np.maximum(times, 1), row))
    return row[order], size[order], name[order]
