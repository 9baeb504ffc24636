"""The trace of a job from its files of DFTracer: one table, with what its events lack, and what the files lack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dliosim.analyze.arrays import Bools, Ints, find_starts
from dliosim.analyze.read.dftracer import naming
from dliosim.analyze.read.dftracer.lines import MAX_LINE, read_blocks
from dliosim.analyze.read.dftracer.parse import FileReading, Tables, parse_lines
from dliosim.errors import TraceError
from dliosim.readable import count, printable
from dliosim.trace.events import COLUMNS, OPERATIONS, UNKNOWN, Events, Trace, kind_number

Columns = dict[str, NDArray[Any]]

#: Rows of a table: 6.4 GB.
MAX_EVENTS: Final = 100_000_000
#: Lines that cannot be read, in a file with fewer events, that end its reading.
_MOST_UNREADABLE: Final = 10_000

#: Types of columns while files are read: some differ from the table's.
_TYPES: Final = {**COLUMNS, "thread": np.dtype(np.int64), "call": np.dtype(np.int32)}


def read_dftracer(paths: Sequence[Path], place: Path) -> Trace:
    """Return the events of a job from its trace files; `place` is what the user named.

    Raises TraceError if no file has an event, or one is no trace.
    """
    tables, chunks, rows = Tables(), [], 0
    readings = [FileReading(number, path) for number, path in enumerate(paths)]
    for reading in readings:
        before = rows
        for lines, is_whole in read_blocks(reading.path, reading.faults):
            unreadable = reading.unreadable.copy()
            for columns in parse_lines(lines, reading, tables):
                rows += len(columns["begin"])
                chunks.append({name: column.astype(_TYPES.get(name, column.dtype)) for name, column in columns.items()})
            if not is_whole and reading.unreadable != unreadable:
                reading.unreadable, reading.faults.cut = unreadable, True
            _check(reading, rows - before, rows)
    if not rows:
        raise TraceError(_no_events(place, readings))
    # Each column's pieces are freed before the next is joined.
    columns = {name: np.concatenate([chunk.pop(name) for chunk in chunks]) for name in tuple(chunks[0])}
    return _make_trace(place, tables, readings, columns)


def _check(reading: FileReading, own_rows: int, rows: int) -> None:
    """Check that a file is a trace, and that the job's fits memory; TraceError otherwise."""
    unreadable = sum(reading.unreadable.values())
    if unreadable > _MOST_UNREADABLE and unreadable > own_rows:
        why = reading.unreadable.most_common(1)[0][0]
        raise TraceError(
            f"{reading.path} is no trace of DFTracer: {unreadable:,} of its first {reading.documents + unreadable:,} "
            f"lines cannot be read ({why}); the first begins with {printable(reading.example)}"
        )
    if rows > MAX_EVENTS:
        raise TraceError(
            f"the trace has more than {MAX_EVENTS:,} events\n  = help: name the files of some of its processes only"
        )


def _make_trace(place: Path, tables: Tables, readings: Sequence[FileReading], columns: Columns) -> Trace:
    hashes = naming.HashNames(readings)
    exports = [one.exported for one in readings if one.exported is not None]
    keys, own = naming.split_threads(tables.processes, columns["process"], columns["thread"], exports)
    processes, numbers = naming.number_processes(keys, hashes, readings)
    columns["process"] = numbers[own]
    del own
    files, numbers, nameless = naming.number_files(tables.files, hashes)
    without_name = int(nameless[columns["file"]].sum())
    columns["file"] = numbers[columns["file"]]
    call = columns.pop("call")
    names, columns["name"] = naming.number_names(tables.calls, call)
    columns["kind"] = np.array(tables.calls.kinds, np.int8)[call]
    columns["layer"] = np.array(tables.calls.layers, np.int8)[call]
    del call
    columns["thread"] = naming.number_threads(columns["process"], columns["thread"])
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
        events = _number_epochs_and_steps(_fill_offsets(events, failed, appends))
    left_out, incomplete, notes = _list_missing(readings, events, without_name, copies)
    if many := int(failed.sum()):
        notes = (*notes, f"calls that failed: {many:,}")
    command = next((hashes.find("SH", one.number, one.command) for one in readings if one.command is not None), None)
    return Trace(
        source="dliosim" if is_export and all(one.is_own for one in exports) else "DFTracer",
        path=str(place),
        events=events,
        duration=max(int(events.end.max()), *(one.duration for one in exports), 0),
        left_out=left_out,
        incomplete=(*incomplete, *(each for one in exports for each in one.incomplete)),
        notes=(*notes, *(each for one in exports for each in one.notes)),
        command=exports[0].command if exports else (command or "").replace(";", " "),
    )


def _find_copies(columns: Columns) -> Bools:
    """Return which events have the line of an earlier one of their process; the rows are in order of time; (n,)."""
    # Copies begin and end at the same time, which few other events do.
    is_tie = ~find_starts(*(columns[name] for name in ("process", "begin", "duration")))
    rows = np.flatnonzero(is_tie | np.append(is_tie[1:], False))
    group, line = np.cumsum(~is_tie[rows]), columns["line"][rows]
    order = np.lexsort((line, group))
    is_same = (group[order][1:] == group[order][:-1]) & (line[order][1:] == line[order][:-1])
    is_copy = np.zeros(len(is_tie), bool)
    is_copy[rows[order[1:][is_same]]] = True
    return is_copy


def _fill_offsets(events: Events, failed: Bools, appends: Bools) -> Events:
    """Return the events with the offsets of reads and writes at the position of their file, if it is certain.

    A process has a position for each time that it has opened a file. Traces name the file, not the descriptor, so the
    position is certain only while the process has the file open once, not for appending, and from its opening or a
    seek on. `failed` marks calls that failed, `appends` opens for appending; both (n,).
    """
    is_call = events.is_layer("posix", "stdio") & events.is_kind("open", "close", "read", "write", "seek")
    rows = np.flatnonzero(is_call & (events.file >= 0) & ~failed)
    filled = events.offset.copy()
    # A process at a time, so that temporary columns are those of one.
    for part in np.split(rows, np.flatnonzero(np.diff(events.process[rows])) + 1):
        certain, position = _positions(events, part[np.lexsort((part, events.layer[part], events.file[part]))], appends)
        filled[certain] = position
    return replace(events, offset=filled)


def _positions(events: Events, rows: Ints, appends: Bools) -> tuple[Ints, Ints]:
    """Return the moves at a position that is certain, and the positions; `rows` are in order of file and layer."""
    kind, offset, moved = events.kind[rows], events.offset[rows], events.moved[rows]
    opens, closes, seeks = (kind == kind_number(name) for name in ("open", "close", "seek"))
    is_first = find_starts(events.file[rows], events.layer[rows])
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


def _open_files(opens: Bools, closes: Bools, is_first: Bools) -> Ints:
    """Return how often the file is open after each call, counted from the first call of each group; (n,)."""
    change = opens.astype(np.int64) - closes
    total = np.cumsum(change)
    start = np.flatnonzero(is_first)
    before: Ints = (total - change)[start][np.cumsum(is_first) - 1]
    return total - before


def _number_epochs_and_steps(events: Events) -> Events:
    """Return the events with the epoch in which each began, and the step of each wait for data and computation.

    Processes that record epochs are numbered by these, from 1 in order; other processes, such as readers, keep the
    numbers of their arguments, if they have any. A step is the number of a wait in its epoch, and so it is of a
    computation where an epoch has as many, or one more: the last wait is not recorded if a loop ends by `break`.
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


def _steps(events: Events, epoch: NDArray[np.int32], is_inside: Bools) -> Ints:
    """Return the number of each wait and computation among those of its name in its process's epoch; (n,)."""
    steps = np.full(len(events), UNKNOWN, np.int64)
    rows = np.flatnonzero(is_inside & events.is_kind("data wait", "compute"))
    if not len(rows):
        return steps
    kind, name = events.kind[rows].astype(np.int64), events.name[rows].astype(np.int64)
    passes = events.process[rows] * (np.int64(epoch.max()) + 1) + epoch[rows]
    order = np.lexsort((rows, name, passes))
    rows, kind, name, passes = rows[order], kind[order], name[order], passes[order]
    is_first = find_starts(name, passes)
    group = np.cumsum(is_first) - 1
    starts = np.flatnonzero(is_first)
    sizes = np.diff(np.append(starts, len(rows)))
    is_wait = kind[starts] == kind_number("data wait")
    all_passes, pass_of_group = np.unique(passes[starts], return_inverse=True)
    # A name is numbered if a pass has as many of it as waits.
    waits = np.zeros(len(all_passes), np.int64)
    np.maximum.at(waits, pass_of_group[is_wait], sizes[is_wait])
    extra = sizes - waits[pass_of_group]
    counts = (is_wait | ((extra >= 0) & (extra <= 1)))[group]
    steps[rows[counts]] = (np.arange(len(rows)) - starts[group] + 1)[counts]
    return steps


def _no_events(place: Path, readings: Sequence[FileReading]) -> str:
    """Return the message about traces without a single event."""
    lines = sum(reading.documents for reading in readings)
    found = [f"lines without an event: {lines:,}"] if lines else []
    unreadable = _unreadable(readings)
    found += [f"lines that cannot be read: {many:,} ({why})" for why, many in unreadable.most_common(3)]
    if any(one.faults.damaged or one.faults.cut for one in readings):
        found.append("data that are cut or damaged")
    content = "; ".join(found) if found else "nothing: the process was killed before it wrote, or is still running"
    return f"{place} has no event of DFTracer; it has {content}"


def _list_missing(
    readings: Sequence[FileReading], events: Events, without_name: int, copies: int
) -> tuple[dict[str, int], tuple[str, ...], tuple[str, ...]]:
    """Return lines that are no events by what they are, and sentences: what is missing, and what else to know.

    `without_name` is the number of events on files that no line names, `copies` that of events that were dropped.
    """
    phases = sum((reading.phases for reading in readings), Counter[str]())
    unreadable = _unreadable(readings)
    cut = [one.path for one in readings if one.faults.cut]
    left_out = {**phases, "unreadable": sum(unreadable.values()), "cut": len(cut), "copies": copies}
    left_out = {what: many for what, many in left_out.items() if many}
    damaged = [one.path for one in readings if one.faults.damaged]
    endless = [one.path for one in readings if len(one.starts) > one.ends]
    lost = sum(max(one.events_at_end - one.documents, 0) for one in readings)
    is_system = events.is_layer("posix", "stdio")
    sizeless = int((events.is_kind("read", "write") & is_system & (events.moved < 0)).sum())
    sums = phases["sums over time"]
    is_training = events.is_kind("compute", "data wait", "epoch", "load").any()
    lacks_calls = is_training and not events.is_kind(*OPERATIONS).any() and not any(one.exported for one in readings)
    reasons = ", ".join(f"{many:,} {why}" for why, many in unreadable.most_common(4))
    example = next((one.example for one in readings if one.example), "")
    sentences = (
        (cut, f"the last line of {_files(cut)} is cut: the process was killed or is still running"),
        (damaged, f"{_files(damaged)} cannot be inflated to the end: what follows the damage is missing"),
        (endless, f"{_files(endless)} has no end event: the process was killed or is still running"),
        (lost, f"lines lost: {lost:,}; DFTracer wrote more than are here"),
        (
            unreadable,
            f"lines that cannot be read: {sum(unreadable.values()):,} ({reasons}); "
            f"the first begins with {printable(example)}",
        ),
        (sizeless, f"reads and writes without a size: {sizeless:,}; run the job with DFTRACER_INC_METADATA=1"),
        (without_name, f"events on files that no line names: {without_name:,}"),
        (
            lacks_calls,
            "no call on a file was recorded; run the job with LD_PRELOAD=libdftracer_preload.so, and with "
            "DFTRACER_DATA_DIR=all where its paths are relative",
        ),
        (sums, f"lines that are sums over time: {sums:,}; run the job without DFTRACER_ENABLE_AGGREGATION"),
    )
    incomplete = tuple(sentence for is_so, sentence in sentences if is_so)
    return left_out, incomplete, _notes(readings, events, left_out)


def _notes(readings: Sequence[FileReading], events: Events, left_out: dict[str, int]) -> tuple[str, ...]:
    lines = len(events) + sum(left_out.values())
    others = ", ".join(f"{many:,} {what}" for what, many in left_out.items())
    notes = [f"{len(events):,} of {lines:,} lines are events" + (f"; {others}" if others else "")]
    if copies := left_out.get("copies"):
        notes.append(
            f"{copies:,} events are exact copies of others and were dropped: forked workers wrote their parent's "
            "buffer again"
        )
    empty = [one.path for one in readings if not one.documents and not one.unreadable]
    if empty:
        notes.append(f"{_files(empty)} has no line: its process was killed or became another program before it wrote")
    hosts = {process.host for process in events.processes} - {""}
    if len(hosts) > 1:
        notes.append(f"the clocks of {len(hosts)} nodes are taken to be the same")
    if clashes := sum(one.clashes for one in readings):
        notes.append(f"{count(clashes, 'hash', 'hashes')} of files stand for two names: files may be mixed up")
    maps = [number for number, name in enumerate(events.names) if name.startswith("mmap")]
    if maps and np.isin(events.name, maps).any():
        notes.append("files were mapped to memory: no trace has what is read or written through a map")
    return tuple(notes)


def _unreadable(readings: Sequence[FileReading]) -> Counter[str]:
    unreadable = sum((reading.unreadable for reading in readings), Counter[str]())
    unreadable[f"longer than {MAX_LINE:,} bytes"] = sum(one.faults.long_lines for one in readings)
    return +unreadable


def _files(paths: Sequence[Path]) -> str:
    """Return the name of the first file, and the number of the others."""
    if not paths:
        return ""
    others = f" and {count(len(paths) - 1, 'other file')}" if len(paths) > 1 else ""
    return f"{printable(paths[0].name)}{others}"
