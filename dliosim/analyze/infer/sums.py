"""Calls that the sums of a log stand for: as many as it counts, of the sizes that it names, one behind the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dliosim.analyze.arrays import Ints
from dliosim.analyze.read.darshan.counters import SIDES, FileCounters, LogTrace
from dliosim.errors import TraceError
from dliosim.trace.events import Events, kind_number, layer_number, make_events

#: Calls of a log, at most.
_MOST_CALLS: Final = 20_000_000
#: The layers of modules that count reads and writes.
_LAYERS: Final = {"POSIX": "posix", "STDIO": "stdio", "DFS": "posix", "MPI-IO": "mpi-io"}
#: Sizes of calls that a record of a file names.
_NAMED: Final = 4


def spread_sums(trace: LogTrace) -> Events:
    """Return a table of calls for a log that has sums alone; TraceError if it counts too many.

    Each file is read from its begin to the last byte that was read, as often as its bytes need. What all ranks have
    done together is done by them in turn.
    """
    tables = [table for table in trace.counters if table.module in _LAYERS]
    calls = sum(int(table.calls(side).sum()) for table in tables for side in SIDES)
    if calls > _MOST_CALLS:
        raise TraceError(f"{trace.path} counts {calls:,} calls: a pattern is made of {_MOST_CALLS:,} at most")
    files = {path: number for number, path in enumerate(dict.fromkeys(path for one in tables for path in one.files))}
    pieces = [piece for table in tables for piece in _list_pieces(table, files, len(trace.events.processes))]
    if not pieces:
        return trace.events
    columns = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
    order = np.lexsort((columns["begin"], columns["process"]))
    columns = {name: column[order] for name, column in columns.items()}
    return make_events(columns, ("",), tuple(files), trace.events.processes)


def _list_pieces(table: FileCounters, files: dict[str, int], ranks: int) -> Iterator[dict[str, NDArray[Any]]]:
    """Yield the columns of the opens, the reads, the writes and the fsyncs of a module."""
    numbers = np.array([files[path] for path in table.files], np.int32)
    is_collective = table.count("COLL_READS", "COLL_WRITES") > 0
    layer = np.where(is_collective, layer_number("mpi-io collective"), layer_number(_LAYERS[table.module]))

    def place(kind: str, row: Ints, share: NDArray[np.float64], **more: Ints) -> dict[str, NDArray[Any]]:
        times = [table.seconds.get(f"F_{kind.upper()}_{end}_TIMESTAMP", np.zeros(len(table))) for end in _ENDS]
        begin, end = (np.nan_to_num(one)[row] * 1e9 for one in times)
        in_turn = np.arange(len(row)) % max(ranks, 1)
        absent = np.full(len(row), -1)
        return {
            "kind": np.full(len(row), kind_number(kind)),
            "layer": layer[row],
            "process": np.where(table.rank[row] < 0, in_turn, table.rank[row]),
            "begin": (begin + share * np.maximum(end - begin, 0)).astype(np.int64),
            "file": numbers[table.file[row]],
            "offset": more.get("offset", absent),
            "moved": more.get("moved", absent),
        }

    for kind, many in ("open", table.count(*_OPENS)), ("fsync", table.count("FSYNCS", "FDSYNCS", "SYNCS")):
        row = np.repeat(np.arange(len(table)), many)
        yield place(kind, row, np.zeros(len(row)))
    for side, (_, moved, last, _) in SIDES.items():
        calls, total = table.calls(side), table.count(moved)
        extent = np.maximum(table.count(last) + 1, 1) if last in table.counts else np.maximum(total, 1)
        passes = np.clip(np.rint(total / extent).astype(np.int64), 1, np.maximum(calls, 1))
        row, size = _list_sizes(table, side)
        number = np.arange(len(row)) - (np.cumsum(calls) - calls)[row]
        begins = number * passes[row] // np.maximum(calls[row], 1)  # the pass of each call
        before = np.cumsum(size) - size
        is_first = np.append(True, (np.diff(row) != 0) | (np.diff(begins) != 0))[: len(row)]
        offset = before - before[np.flatnonzero(is_first)][np.cumsum(is_first) - 1]
        yield place(side, row, number / np.maximum(calls[row], 1), offset=offset, moved=size)


#: Darshan's names of opens, and of the ends of a time.
_OPENS: Final = ("OPENS", "INDEP_OPENS", "COLL_OPENS", "GLOBAL_OPENS", "LOOKUPS")
_ENDS: Final = ("START", "END")


def _list_sizes(table: FileCounters, side: str) -> tuple[Ints, Ints]:
    """Return the row and the bytes of each read or write, those of one row mixed evenly; (calls,) each.

    A row names its four commonest sizes, of reads and writes together; what is left has the mean size.
    """
    calls, rest = table.calls(side), table.count(SIDES[side][1])
    left, rows = calls.copy(), np.arange(len(table))
    is_alone = table.calls("write" if side == "read" else "read") == 0
    found = []
    for slot in range(1, _NAMED + 1):
        size = table.count(f"ACCESS{slot}_ACCESS")
        many: Ints = np.where(is_alone, np.minimum(table.count(f"ACCESS{slot}_COUNT"), left), 0)
        many = np.minimum(many, rest // np.maximum(size, 1))
        left, rest = left - many, rest - many * size
        found.append((size, many))
    found.append((rest // np.maximum(left, 1), left))  # what is left
    row = np.concatenate([np.repeat(rows, many) for _, many in found])
    size = np.concatenate([np.repeat(size, many) for size, many in found])
    within = np.concatenate([np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many) for _, many in found])
    times = np.concatenate([np.repeat(many, many) for _, many in found])
    order: Ints = np.lexsort(((within + 0.5) / np.maximum(times, 1), row))
    return row[order], size[order]
