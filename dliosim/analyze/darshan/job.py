"""The trace of a job from its logs of Darshan: counters of files, and the reads and writes of DXT as events."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dliosim.analyze.darshan.frames import Frame
from dliosim.analyze.darshan.missing import list_missing
from dliosim.errors import TraceError
from dliosim.readable import printable
from dliosim.trace.events import Events, FileCounters, Process, Trace, kind_number, layer_number, make_events

Array = NDArray[Any]

#: Rows of a table: 6.4 GB.
MAX_EVENTS: Final = 100_000_000
_MOST_RANKS: Final = 1 << 24
#: Times in s are below this: 100 years.
_LONGEST: Final = 3.2e9
#: Offsets and sizes are below this.
_MOST_BYTES: Final = 1 << 60
#: Counters that are added up: others, such as RENAMED_FROM, are ids; and what their sums are below.
_SUMMED: Final = re.compile(r"READ|WRIT|OPENS|STATS|SEEKS|SYNCS|FLUSHES|COUNT$|ALIGNED")
_MOST_TOTAL: Final = float(1 << 62)

#: Layers of DXT's modules.
_LAYERS: Final = {"DXT_POSIX": "posix", "DXT_MPIIO": "mpi-io"}
_NAMES: Final = ("write", "read", "MPI_File_write", "MPI_File_read")


@dataclass(slots=True)
class _Log:
    """Content of the logs of a job, as their frames arrive."""

    jobs: list[Mapping[str, Any]] = field(default_factory=list)  #: of each log
    processes: list[Process] = field(default_factory=list)
    first: int = 0  #: number of the first process of the log that is read now
    paths: dict[int, str] = field(default_factory=dict)  #: by id
    counters: dict[str, list[Frame]] = field(default_factory=dict)  #: by module
    operations: list[dict[str, Array]] = field(default_factory=list)  #: columns of each file and rank
    hosts: dict[int, str] = field(default_factory=dict)  #: by process
    ids: dict[int, int] = field(default_factory=dict)  #: numbers of files with operations, by id
    rows: int = 0  #: operations
    odd: int = 0  #: operations with times or places that are none


def make_trace(frames: Iterable[Frame], path: Path) -> Trace:
    """Return the trace of a job; TraceError where its logs have impossible values.

    The first log is that of the job's ranks. The others are those of single processes, as workers write them; where
    the first is such a log, too, no process has a rank.
    """
    log = _Log()
    for frame in frames:
        if frame.kind == "job":
            _begin_log(log, frame.fields, path)
        elif frame.kind == "names":
            log.paths.update({int(number): name for number, name in frame.fields.items()})
        elif frame.kind == "counters":
            _add_counters(log, frame, path)
        elif frame.kind == "operations":
            _add_operations(log, frame, path)
    counters = tuple(_file_counters(module, pieces, log.paths) for module, pieces in log.counters.items())
    for table in counters:
        _check_counts(table, path)
    events = _make_events(log)
    job = _join_jobs(log.jobs)
    duration = round(job["seconds"] * 1e9)
    incomplete, notes = list_missing(job, counters, events, log.odd)
    if len(log.jobs) > 1:
        notes = (f"{len(log.jobs)} logs of job {job['id']}, which ran at the same time", *notes)
    return Trace(
        source="Darshan DXT" if len(events) else "Darshan counters",
        path=str(path),
        events=events,
        duration=max(duration, int(events.end.max())) if len(events) else duration,
        left_out={"unreadable": log.odd} if log.odd else {},
        incomplete=incomplete,
        notes=notes,
        command=printable(job["command"]),
        counters=counters,
    )


def _begin_log(log: _Log, job: Mapping[str, Any], path: Path) -> None:
    """Add the job and the processes of a log."""
    _check_job(job, path)
    if len(log.jobs) == 1 and len(log.processes) == 1:
        log.processes = [Process(-1, -1)]
    log.first = len(log.processes)
    log.processes += [Process(-1 if log.jobs else rank, -1) for rank in range(job["ranks"])]
    log.jobs.append(job)


def _join_jobs(jobs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return what the logs of a job say about it together."""
    modules: dict[str, bool] = {}
    for one in jobs:
        for module, is_partial in one["modules"].items():
            modules[module] = modules.get(module, False) or is_partial
    end = max(one["begin"] + one["seconds"] for one in jobs)
    seconds = jobs[0]["seconds"] if len(jobs) == 1 else end - min(one["begin"] for one in jobs)
    return {**jobs[0], "modules": modules, "seconds": seconds}


def _add_counters(log: _Log, frame: Frame, path: Path) -> None:
    """Add counters of a log, with the numbers of its processes; those of a single one are its own."""
    ranks = frame.arrays["ranks"]
    many = log.jobs[-1]["ranks"]
    _check_ranks(ranks, many, path)
    numbers = np.where(ranks < 0, -1 if many > 1 else log.first, ranks + log.first)
    frame = Frame(frame.kind, frame.fields, {**frame.arrays, "ranks": numbers})
    log.counters.setdefault(frame.fields["module"], []).append(frame)


def _check_job(job: Mapping[str, Any], path: Path) -> None:
    if not 1 <= job["ranks"] <= _MOST_RANKS:
        raise TraceError(f"{path} is damaged: it names {job['ranks']} ranks")
    if not 0 <= job["seconds"] <= _LONGEST:
        raise TraceError(f"{path} is damaged: its job took {job['seconds']} s")


def _check_ranks(ranks: Array, most: int, path: Path) -> None:
    if ranks.size and not -1 <= ranks.min() <= ranks.max() < most:
        raise TraceError(f"{path} is damaged: it has a file of rank {ranks.max()} in a job of {most}")


def _check_counts(table: FileCounters, path: Path) -> None:
    """Check that sums of counters are whole numbers of 64 bits; TraceError otherwise."""
    for name, column in table.counts.items():
        if _SUMMED.search(name) and column.clip(0).sum(dtype=float) >= _MOST_TOTAL:
            raise TraceError(f"{path} is damaged: {table.module} {name} adds up to more than 4 EiB")


def _add_operations(log: _Log, frame: Frame, path: Path) -> None:
    """Add the operations of one file and rank to the log."""
    about, arrays = frame.fields, frame.arrays
    rows = len(arrays["offset"])
    _check_ranks(np.array([about["rank"]]), log.jobs[-1]["ranks"], path)
    process = log.first + about["rank"]
    log.rows += rows
    if log.rows > MAX_EVENTS:
        raise TraceError(f"{path} has more than {MAX_EVENTS:,} operations, which is more than dliosim reads")
    log.hosts.setdefault(process, about["host"])
    begin, end, offset, length = (arrays[name] for name in ("start_time", "end_time", "offset", "length"))
    with np.errstate(invalid="ignore"):
        is_time = (begin >= 0) & (end >= begin) & (end <= _LONGEST)
    is_good = is_time & (offset >= 0) & (offset < _MOST_BYTES) & (length >= 0) & (length < _MOST_BYTES)
    log.odd += rows - int(is_good.sum())
    begin, end = (times + (log.jobs[-1]["begin"] - log.jobs[0]["begin"]) for times in (begin, end))
    first = np.round(begin[is_good] * 1e9).astype(np.int64)
    is_read = np.arange(rows)[is_good] >= about["writes"]
    module = about["module"]
    kinds = np.array((kind_number("write"), kind_number("read")), np.int8)
    number = log.ids.setdefault(int(about["id"]), len(log.ids))
    log.operations.append(
        {
            "kind": kinds[is_read.astype(int)],
            "layer": np.full(len(first), layer_number(_LAYERS[module]), np.int8),
            "name": (is_read + 2 * (module == "DXT_MPIIO")).astype(np.int16),
            "process": np.full(len(first), process, np.int32),
            "begin": first,
            "duration": np.round(end[is_good] * 1e9).astype(np.int64) - first,
            "file": np.full(len(first), number, np.int32),
            "offset": offset[is_good],
            "moved": length[is_good],
        }
    )


def _make_events(log: _Log) -> Events:
    hosts = (printable(log.hosts.get(number, "")) for number in range(len(log.processes)))
    processes = tuple(Process(one.rank, -1, host) for one, host in zip(log.processes, hosts, strict=True))
    if not log.operations:
        return make_events({"kind": np.zeros(0, np.int8)}, processes=processes)
    columns = {name: np.concatenate([one.pop(name) for one in log.operations]) for name in tuple(log.operations[0])}
    earliest = min(one["begin"] for one in log.jobs)
    columns["begin"] += round((log.jobs[0]["begin"] - earliest) * 1e9)
    order = np.lexsort((-columns["duration"], columns["begin"], columns["process"]))
    for name in columns:
        columns[name] = columns[name][order]
    files = tuple(_path(log.paths, number) for number in log.ids)
    return make_events(columns, _NAMES, files, processes)


def _path(paths: Mapping[int, str], number: int) -> str:
    return paths.get(number) or f"(file {number:016x})"


def _file_counters(module: str, pieces: list[Frame], paths: Mapping[int, str]) -> FileCounters:
    """Return the counters of a module; names without the module's, which is `MPIIO_` for MPI-IO."""
    prefix = f"{module.replace('-', '')}_"
    columns = ("ids", "ranks", "counts", "seconds")
    whole = {name: np.concatenate([piece.arrays[name] for piece in pieces]) for name in columns}
    ids, numbers = np.unique(whole["ids"], return_inverse=True)
    fields = pieces[0].fields
    # Logs of older Darshan have negative times, too.
    with np.errstate(invalid="ignore"):
        is_time = (whole["seconds"] >= 0) & np.isfinite(whole["seconds"])
    seconds = np.where(is_time, whole["seconds"], math.nan)
    return FileCounters(
        module=module,
        file=numbers.astype(np.int32),
        rank=whole["ranks"].astype(np.int32),
        counts={name.removeprefix(prefix): whole["counts"][:, row] for row, name in enumerate(fields["counts"])},
        seconds={name.removeprefix(prefix): seconds[:, row] for row, name in enumerate(fields["seconds"])},
        files=tuple(_path(paths, int(number)) for number in ids),
    )
