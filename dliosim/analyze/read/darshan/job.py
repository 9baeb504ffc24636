"""The trace of a job from its logs of Darshan: counters, the operations of DXT, and what the logs have not seen."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dliosim.analyze.read.darshan.counters import TIMES, FileCounters, LogTrace
from dliosim.analyze.read.darshan.log import COUNTER_MODULES, DXT_MODULES, LAYOUTS, Frame
from dliosim.errors import TraceError
from dliosim.readable import count, printable, size
from dliosim.trace.events import Events, Process, kind_number, layer_number, make_events

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


def make_trace(frames: Iterable[Frame], path: Path) -> LogTrace:
    """Return the trace of a job; TraceError if its logs have impossible values.

    The first log is that of the job's ranks. The others are those of single processes, as workers write them; if
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
        for name, column in table.counts.items():
            # A sum is a whole number of 64 bits.
            if _SUMMED.search(name) and column.clip(0).sum(dtype=float) >= _MOST_TOTAL:
                raise TraceError(f"{path} is damaged: {table.module} {name} adds up to more than 4 EiB")
    events = _make_events(log)
    job = _join_jobs(log.jobs)
    duration = round(job["seconds"] * 1e9)
    incomplete, notes = list_missing(job, counters, events, log.odd)
    if len(log.jobs) > 1:
        notes = (f"{len(log.jobs)} logs of job {job['id']}, which ran at the same time", *notes)
    return LogTrace(
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
    if not 1 <= job["ranks"] <= _MOST_RANKS:
        raise TraceError(f"{path} is damaged: it names {job['ranks']} ranks")
    if not 0 <= job["seconds"] <= _LONGEST:
        raise TraceError(f"{path} is damaged: its job took {job['seconds']} s")
    if len(log.jobs) == 1 and len(log.processes) == 1:
        log.processes = [Process(-1, -1)]
    log.first = len(log.processes)
    log.processes += [Process(-1 if log.jobs else rank, -1) for rank in range(job["ranks"])]
    log.jobs.append(job)


def _join_jobs(jobs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return what the logs of a job say about it together."""
    names = dict.fromkeys(module for one in jobs for module in one["modules"])
    modules = {module: any(one["modules"].get(module) for one in jobs) for module in names}
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


def _check_ranks(ranks: Array, most: int, path: Path) -> None:
    if ranks.size and not -1 <= ranks.min() <= ranks.max() < most:
        raise TraceError(f"{path} is damaged: it has a file of rank {ranks.max()} in a job of {most}")


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
    hosts = log.hosts
    processes = tuple(Process(one.rank, -1, printable(hosts.get(at, ""))) for at, one in enumerate(log.processes))
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


#: Endings of names of files that hold samples.
_DATA: Final = frozenset(
    (
        *(".npz", ".npy", ".h5", ".hdf5", ".tfrecord", ".tfrecords", ".tar", ".csv", ".parquet", ".arrow", ".jsonl"),
        *(".jpg", ".jpeg", ".png", ".tif", ".tiff", ".dcm", ".nii", ".wav", ".flac", ".mp4"),
        *(".bin", ".idx", ".nc", ".pb", ".record", ".lmdb", ".zarr"),
    )
)
#: Endings of names of files that are parts of Python's programs.
_PROGRAMS: Final = frozenset((".py", ".pyc", ".so", ".pyi", ".pth"))
#: DLIO names the files of a data set so: the number of each, and how many there are.
_NUMBERED: Final = re.compile(r"_of_(\d{1,12})\.\w+$")
#: Settings of programs that ask for processes that read.
_WORKERS: Final = re.compile(r"\b(read_threads|num_workers|workers)[= ](\d{1,6})\b")

#: Share of the bytes read from which on they are called Python's own.
_MOSTLY: Final = 0.9

#: Modules whose content is used.
_USED: Final = frozenset((*COUNTER_MODULES, *DXT_MODULES, LAYOUTS))

#: Share of the larger one from which on bytes of POSIX and of DFS may be the same ones.
_TWICE: Final = 0.1

_CURE: Final = (
    "processes that a rank of an MPI job forks, such as workers of PyTorch, are in no Darshan log "
    "(darshan-hpc/darshan#872); trace the job with DFTracer, or with 0 workers"
)


def list_missing(
    job: Mapping[str, Any], counters: Sequence[FileCounters], events: Events, odd: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return sentences on what is missing, and on what else to know; `odd` is the number of impossible operations."""
    partial = [module for module, is_partial in job["modules"].items() if is_partial]
    sentences = [_unread_data(counters, job["command"])]
    if partial:
        sentences.append(
            f"the counters of {', '.join(map(printable, partial))} are not complete: Darshan ran out of memory or of "
            "records; run the job with a larger DARSHAN_MODMEM (MiB)"
        )
    sentences.append(_twice_counted({table.module: table for table in counters}))
    sentences += [_missing_operations(table, events) for table in counters if table.module in _LAYER_OF]
    if odd:
        sentences.append(f"{count(odd, 'operation')} of DXT have impossible times or places: the log is damaged")
    notes = []
    times = [table.seconds[name] for table in counters for name in TIMES if name in table.seconds]
    if wrong := sum(int(np.isnan(column).sum()) for column in times):
        notes.append(
            f"times of counters that are negative or no number: {wrong:,}; Darshan measured them wrong, they count as 0"
        )
    if not len(events):
        notes.append(
            "the log has counters and no operations: there is no order and no overlap; "
            "run the job with DXT_ENABLE_IO_TRACE=1 for these"
        )
    if unused := [printable(module) for module in job["modules"] if module not in _USED]:
        notes.append(f"also in the log, and not used: {', '.join(unused)}")
    if (workers := _workers(job["command"])) and not sentences[0]:
        notes.append(f"the command line has {workers}: {_CURE}")
    return tuple(filter(None, sentences)), tuple(notes)


#: Layers of operations by the module that counts them.
_LAYER_OF: Final = {"POSIX": "posix", "MPI-IO": "mpi-io"}


def _missing_operations(table: FileCounters, events: Events) -> str:
    """Return the sentence about operations that a module counts and DXT does not have, or an empty text."""
    recorded = int(events.is_layer(_LAYER_OF[table.module]).sum())
    names = [name for name in table.counts if re.fullmatch(r"((INDEP|COLL|SPLIT|NB)_)?(READS|WRITES)", name)]
    counted = sum(int(table.counts[name].clip(0).sum()) for name in names)
    if not recorded or recorded >= counted:
        return ""
    return f"DXT has {recorded:,} of the {counted:,} reads and writes that {table.module} counts: its memory was full"


def _twice_counted(tables: Mapping[str, FileCounters]) -> str:
    """Return the sentence about calls of POSIX that DAOS's interception library may have turned into those of DFS."""
    if not {"POSIX", "DFS"} <= set(tables):
        return ""
    moved = [int(tables[name].count("BYTES_READ", "BYTES_WRITTEN").sum()) for name in ("POSIX", "DFS")]
    if min(moved) <= _TWICE * max(moved):
        return ""
    return (
        f"POSIX moved {size(moved[0], 3)} and DFS {size(moved[1], 3)}: calls that libpil4dfs or libioil took are "
        "counted in both, so totals may be up to twice those of the job"
    )


def _unread_data(counters: Sequence[FileCounters], command: str) -> str:
    """Return the sentence about a job that looked at files of samples and read none of them, or an empty text."""
    seen, used, looks, read, of_programs = set(), set(), 0, 0, 0
    for table in counters:
        if table.module not in ("POSIX", "STDIO", "MPI-IO", "DFS"):
            continue
        endings = [PurePosixPath(path).suffix.lower() for path in table.files]
        is_data = np.array([ending in _DATA for ending in endings], bool)[table.file]
        is_program = np.array([ending in _PROGRAMS for ending in endings], bool)[table.file]
        bytes_read = table.count("BYTES_READ")
        busy = bytes_read + table.count("READS", "WRITES", "BYTES_WRITTEN", "MMAPS", "INDEP_READS", "COLL_READS") > 0
        seen |= _paths(table, is_data)
        used |= _paths(table, is_data & busy)
        looks += int(table.count("STATS", "OPENS")[is_data].sum())
        if table.module != "MPI-IO":  # POSIX has these bytes too
            read += int(bytes_read.sum())
            of_programs += int(bytes_read[is_program].sum())
    workers = _workers(command)
    is_python = read > 0 and of_programs >= _MOSTLY * read
    # Programs look at files without reading them for other reasons, so one of the two must point to workers.
    if not seen or used or not (is_python or workers):
        return ""
    example = min(seen)
    name = printable(PurePosixPath(example).name)
    numbered = _NUMBERED.search(example)
    files = f"{name} was" if len(seen) == 1 else f"{len(seen):,} files such as {name} were"
    named = f", and by its name there are {int(numbered[1]):,}" if numbered else ""
    asked = f"; the command line has {workers}" if workers else ""
    return (
        f"no file of samples was read: {files} looked at {looks:,} times and never read{named}; {size(of_programs)} of "
        f"the {size(read)} that were read are Python's own files{asked}; {_CURE}"
    )


def _workers(command: str) -> str:
    """Return what in a command line asks for processes that read, or an empty text."""
    found = _WORKERS.search(command)
    return found[0] if found and int(found[2]) else ""


def _paths(table: FileCounters, rows: NDArray[np.bool_]) -> set[str]:
    return {table.files[number] for number in np.unique(table.file[rows])}
