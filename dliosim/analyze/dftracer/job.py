"""The trace of a job: all its files of DFTracer, one for each process, as one table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dliosim.analyze.dftracer.lines import FileFaults, read_blocks
from dliosim.analyze.dftracer.missing import list_missing, no_events
from dliosim.analyze.dftracer.naming import (
    HashNames,
    number_files,
    number_names,
    number_processes,
    number_threads,
    split_threads,
)
from dliosim.analyze.dftracer.parse import FileReading, Tables, parse_lines
from dliosim.analyze.dftracer.positions import fill_offsets
from dliosim.analyze.dftracer.steps import number_epochs_and_steps
from dliosim.errors import TraceError
from dliosim.readable import printable
from dliosim.trace.events import COLUMNS, Events, Trace

Columns = dict[str, NDArray[Any]]

#: Rows of a table: 6.4 GB.
MAX_EVENTS: Final = 100_000_000
#: Lines that cannot be read, in a file with fewer events, that end its reading.
_MOST_UNREADABLE: Final = 10_000

#: Types of columns while files are read: some differ from the table's.
_TYPES: Final = {**COLUMNS, "thread": np.dtype(np.int64), "call": np.dtype(np.int32)}


def read_dftracer(paths: Sequence[Path], place: Path) -> Trace:
    """Return the events of a job from its trace files; `place` is what the user named.

    Raises TraceError where no file has an event, or one is no trace.
    """
    tables, chunks, rows = Tables(), [], 0
    readings = [FileReading(number) for number in range(len(paths))]
    faults = [FileFaults() for _ in paths]
    for path, reading, fault in zip(paths, readings, faults, strict=True):
        before = rows
        for block in read_blocks(path, fault):
            unreadable = reading.unreadable.copy()
            for columns in parse_lines(block.lines, reading, tables):
                rows += len(columns["begin"])
                chunks.append({name: column.astype(_TYPES.get(name, column.dtype)) for name, column in columns.items()})
            if not block.is_whole and reading.unreadable != unreadable:
                reading.unreadable, fault.cut = unreadable, True
            _check(path, reading, rows - before, rows)
    if not rows:
        raise TraceError(no_events(place, readings, faults))
    # Each column's pieces are freed before the next is joined.
    columns = {name: np.concatenate([chunk.pop(name) for chunk in chunks]) for name in tuple(chunks[0])}
    return _make_trace(place, paths, tables, readings, faults, columns)


def _check(path: Path, reading: FileReading, own_rows: int, rows: int) -> None:
    """Check that a file is a trace, and that the job's fits memory; TraceError otherwise."""
    unreadable = sum(reading.unreadable.values())
    if unreadable > _MOST_UNREADABLE and unreadable > own_rows:
        why = reading.unreadable.most_common(1)[0][0]
        raise TraceError(
            f"{path} is no trace of DFTracer: {unreadable:,} of its first {reading.documents + unreadable:,} lines "
            f"cannot be read ({why}); the first begins with {printable(reading.example)}"
        )
    if rows > MAX_EVENTS:
        raise TraceError(
            f"the trace has more than {MAX_EVENTS:,} events\n  = help: name the files of some of its processes only"
        )


def _make_trace(
    place: Path,
    paths: Sequence[Path],
    tables: Tables,
    readings: Sequence[FileReading],
    faults: Sequence[FileFaults],
    columns: Columns,
) -> Trace:
    hashes = HashNames(readings)
    exports = [one.exported for one in readings if one.exported is not None]
    keys, own = split_threads(tables.processes, columns["process"], columns["thread"], exports)
    processes, numbers = number_processes(keys, hashes, paths, readings)
    columns["process"] = numbers[own]
    del own
    files, numbers, nameless = number_files(tables.files, hashes)
    without_name = int(nameless[columns["file"]].sum())
    columns["file"] = numbers[columns["file"]]
    call = columns.pop("call")
    names, columns["name"] = number_names(tables.calls, call)
    columns["kind"] = np.array(tables.calls.kinds, np.int8)[call]
    columns["layer"] = np.array(tables.calls.layers, np.int8)[call]
    del call
    columns["thread"] = number_threads(columns["process"], columns["thread"])
    is_export = len(exports) == len(readings)
    if not is_export:
        columns["begin"] -= columns["begin"].min()
    # What encloses another event comes before it.
    order = np.lexsort((-columns["duration"], columns["begin"], columns["process"]))
    for name in tuple(columns):
        columns[name] = columns[name][order]
    del order
    is_copy = np.zeros(len(columns["begin"]), bool) if is_export else _find_copies(columns)
    copies = int(is_copy.sum())
    for name in tuple(columns) if copies else ():
        columns[name] = columns[name][~is_copy]
    del is_copy, columns["line"]
    failed, appends = columns.pop("failed"), columns.pop("appends")
    events = Events(
        **{name: columns.pop(name).astype(kind, copy=False) for name, kind in COLUMNS.items()},
        names=names,
        files=files,
        processes=processes,
    )
    if not is_export:
        events = number_epochs_and_steps(fill_offsets(events, failed, appends))
    left_out, incomplete, notes = list_missing(paths, readings, faults, events, without_name, copies)
    command = next((hashes.find("SH", one.number, one.command) for one in readings if one.command is not None), None)
    return Trace(
        source="dliosim" if is_export and all(one.is_own for one in exports) else "DFTracer",
        path=str(place),
        events=events,
        duration=max(int(events.end.max()), *(one.duration for one in exports), 0),
        left_out=left_out,
        incomplete=(*incomplete, *(each for one in exports for each in one.incomplete)),
        notes=(*notes, *_failures(failed), *(each for one in exports for each in one.notes)),
        command=exports[0].command if exports else (command or "").replace(";", " "),
    )


def _find_copies(columns: Columns) -> NDArray[np.bool_]:
    """Return which events have the line of an earlier one of their process; the rows are in order of time; (n,)."""
    # Copies begin and end at the same time, which few other events do.
    is_tie = np.ones(len(columns["begin"]), bool)
    is_tie[0] = False
    for name in ("process", "begin", "duration"):
        is_tie[1:] &= columns[name][1:] == columns[name][:-1]
    rows = np.flatnonzero(is_tie | np.append(is_tie[1:], False))
    group, line = np.cumsum(~is_tie[rows]), columns["line"][rows]
    order = np.lexsort((line, group))
    is_same = (group[order][1:] == group[order][:-1]) & (line[order][1:] == line[order][:-1])
    is_copy = np.zeros(len(is_tie), bool)
    is_copy[rows[order[1:][is_same]]] = True
    return is_copy


def _failures(failed: NDArray[np.bool_]) -> tuple[str, ...]:
    many = int(failed.sum())
    return (f"calls that failed: {many:,}",) if many else ()
