"""Open the traces of jobs: group paths by job, and recognise the tool that wrote them by content, not by name."""

from __future__ import annotations

import math
import os
import shlex
import stat
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dliosim.analyze.read.darshan.job import make_trace
from dliosim.analyze.read.darshan.log import read_logs
from dliosim.analyze.read.dftracer.job import read_dftracer
from dliosim.analyze.read.dftracer.lines import GZIP
from dliosim.errors import DliosimError, TraceError, UsageError
from dliosim.readable import printable
from dliosim.trace.events import Trace
from dliosim.trace.file import FILE_NAME, read_trace

#: What is read of a file to recognise it; bytes.
_HEAD: Final = 4096
#: `wbits` of zlib for a member of gzip with its header.
_GZIP_BITS: Final = 31
#: Sums of a column, in bytes or ns, are below this: half of what an int64 holds.
_MOST: Final = float(1 << 62)

_ACCEPTED: Final = (
    "\n  = help: dliosim reads a results folder of `dliosim run --trace`, .darshan logs, and .pfw or .pfw.gz files "
    "of DFTracer, or a folder of them"
)

#: First bytes of other kinds of files, what they are, and the command that unpacks them.
_OTHERS: Final = (
    (b"PAR1", "a Parquet file, which is no trace", ""),
    (b"SQLite format 3", "a database of SQLite, which is no trace", ""),
    (b"PK\x03\x04", "a zip archive", "unzip"),
    (b"\xfd7zXZ", "compressed by xz", "xz -d"),
    (b"BZh", "compressed by bzip2", "bzip2 -d"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", "zstd -d"),
    (b"\x7fELF", "a program, and no trace", ""),
)


def open_trace(paths: Sequence[Path]) -> Trace:
    """Return the events of one job: one file, one folder, or several files of DFTracer or logs of Darshan.

    Raises UsageError if paths are no job or a package is missing, TraceError if a trace is damaged or unknown,
    ExecutionError if a trace of dliosim is.
    """
    try:
        if len(paths) > 1:
            trace = _open_files(paths)
        else:
            trace = _open_folder(paths[0]) if paths[0].is_dir() else _open_file(paths[0])
    except DliosimError:
        # An ExecutionError is an OSError too.
        raise
    except OSError as error:
        raise UsageError(f"{error.filename or paths[0]} cannot be read: {error.strerror or error}") from error
    # Figures are sums of whole numbers, which would be wrong without a word.
    for what, column in (("bytes", trace.events.moved), ("bytes asked for", trace.events.asked)):
        if column.sum(dtype=float) >= _MOST:
            raise TraceError(f"{trace.path} is damaged: its {what} add up to more than 4 EiB")
    if trace.events.duration.sum(dtype=float) >= _MOST:
        raise TraceError(f"{trace.path} is damaged: its times add up to more than 146 years")
    return trace


def _open_file(path: Path) -> Trace:
    kind = _recognise(path)
    if kind == "dftracer":
        return read_dftracer([path], path)
    if kind == "darshan":
        return make_trace(read_logs([path]), path)
    if kind == "hdf5":
        return read_trace(path)
    raise TraceError(f"{path} is {kind}{'' if 'help:' in kind else _ACCEPTED}")


def _open_files(paths: Sequence[Path]) -> Trace:
    """Return the job of several files of one tool; a file that is named twice counts once."""
    unique = list({path.resolve(): path for path in paths}.values())
    place = Path(os.path.commonpath([path.parent for path in unique]))
    if all(path.is_file() and _recognise(path) == "darshan" for path in unique):
        return make_trace(read_logs(unique), place)
    for path in unique:
        if path.is_dir() or (path.stat().st_size and _recognise(path) != "dftracer"):
            raise UsageError(
                f"{path} is no file of DFTracer, and only its files are one job together\n"
                f"  = help: one trace at a time: dliosim analyze {path}"
            )
    return read_dftracer(unique, place)


def _open_folder(folder: Path) -> Trace:
    names = list_names(folder)
    if FILE_NAME in names:
        return read_trace(folder / FILE_NAME)
    if "results.json" in names:
        raise UsageError(
            f"{folder} has results of a run that was not recorded: there is no {FILE_NAME}\n"
            "  = help: run it again with --trace, as in: mpiexec -n 4 dliosim run cosmoflow --trace"
        )
    if logs := list_logs(folder):
        if len(jobs := group_jobs([folder])) > 1:
            raise UsageError(
                f"{folder} has {len(logs):,} Darshan logs of {len(jobs):,} jobs\n"
                f"  = help: one job at a time: dliosim trace export {jobs[0][0]}"
            )
        return make_trace(read_logs(jobs[0]), folder)
    there = set(names)
    # A trace that was compressed later is there twice.
    if traces := [name for name in names if name.endswith(_OF_A_PROCESS) and f"{name}.gz" not in there]:
        return read_dftracer([folder / name for name in traces], folder)
    raise TraceError(f"{folder} has no trace that dliosim can read{_ACCEPTED}")


def _recognise(path: Path) -> str:
    """Return the kind of a file: a reader's name, or what it is instead."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        # Reading a pipe may wait for ever, and twice is not possible.
        return "no plain file\n  = help: save it first, as in: cat PIPE > trace.pfw"
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if not head:
        return "empty: its process was killed before it wrote, or is still running"
    if head.startswith(GZIP):
        try:
            head = zlib.decompressobj(_GZIP_BITS).decompress(head, _HEAD)
        except zlib.error:
            return "damaged: it cannot be inflated"
    # Darshan's header: the version of the format in 8 bytes, and a number, in the order of the machine that wrote it.
    if 6567223 in (int.from_bytes(head[8:16], "little"), int.from_bytes(head[8:16], "big")):
        return "darshan"
    if head.startswith(b"\x89HDF\r\n\x1a\n"):
        return "hdf5"
    if head.startswith(b"dlio "):
        record = f"mpiexec -n 4 dliosim run {shlex.quote(str(path))} --trace"
        return f"a pattern, and no trace\n  = help: record a run of it first: {record}"
    for begin, kind, command in _OTHERS:
        if head.startswith(begin):
            return f"{kind}\n  = help: unpack it first: {command} {path}" if command else kind
    if head[257:262] == b"ustar":
        return f"a tar archive\n  = help: unpack it first: mkdir traces && tar -C traces -xf {path}"
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text[:64].replace(b" ", b"").replace(b"\n", b"").startswith(b'{"traceEvents"'):
        return "a trace of another program: DFTracer's has one event a line"
    start = printable(head[:16].decode(errors="replace"))
    return "dftracer" if text.startswith((b"[", b"{")) else f"no trace: it begins with {start!r}"


#: Entries of a folder that are looked at.
_MOST_ENTRIES: Final = 1_000_000

#: Endings of the files of DFTracer, which writes one for each process of a job, and of Darshan's.
_OF_A_PROCESS: Final = (".pfw", ".pfw.gz")
_LOG: Final = ".darshan"


def group_jobs(paths: Sequence[Path]) -> list[tuple[Path, ...]]:
    """Return the paths of each job; a folder of Darshan logs has the jobs of its logs.

    Files of DFTracer together are one job, and so are logs of Darshan with one job id that ran at the same time; each
    other file or folder is one. Raises UsageError for a folder of several kinds of traces, and without PyDarshan.
    """
    jobs: dict[object, tuple[Path, ...]] = {}
    every = [each for path in paths for each in (list_logs(path) if path.is_dir() else ()) or [path]]
    logs = _group_logs([path for path in every if path.name.endswith(_LOG) and path.is_file()])
    for number, path in enumerate(every):
        is_process = path.name.endswith(_OF_A_PROCESS) and not path.is_dir()
        key = "processes" if is_process else logs.get(path, (path, number))
        jobs[key] = (*jobs.get(key, ()), path)
    return [logs.get(job[0], job) for job in jobs.values()]


def list_names(folder: Path) -> list[str]:
    """Return the names of the files of a folder in order."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry, _ in zip(entries, range(_MOST_ENTRIES), strict=False) if entry.is_file())


def list_logs(folder: Path) -> list[Path]:
    """Return the Darshan logs of a folder. Raises UsageError if it has traces of other tools, too."""
    names = list_names(folder)
    logs = [folder / name for name in names if name.endswith(_LOG)]
    if not logs or FILE_NAME in names or "results.json" in names:
        return []
    if any(name.endswith(_OF_A_PROCESS) for name in names):
        raise UsageError(
            f"{folder} has Darshan logs and traces of DFTracer, which may be of one job or of several\n"
            f"  = help: name those of one tool: dliosim analyze {folder}/*{_LOG}"
        )
    return logs


def _group_logs(paths: Sequence[Path]) -> Mapping[Path, tuple[Path, ...]]:
    """Return the logs of the job that each log belongs to, that of several ranks first."""
    jobs = _read_jobs(paths) if len(paths) > 1 else {}
    groups: list[list[Path]] = []
    latest: dict[object, tuple[list[Path], float]] = {}
    for path, job in sorted(jobs.items(), key=lambda pair: pair[1]["begin"]):
        group, end = latest.get(job["id"], ([], -math.inf))
        # A job id is that of an allocation, which may run one program after another.
        if job["begin"] >= end:
            groups.append(group := [])
        group.append(path)
        latest[job["id"]] = group, max(end, job["begin"] + job["seconds"])
    found: dict[Path, tuple[Path, ...]] = {}
    for group in groups:
        if len(group) > 1 and sum(jobs[path]["ranks"] > 1 for path in group) <= 1:
            whole = tuple(sorted(group, key=lambda path: -jobs[path]["ranks"]))
            found |= dict.fromkeys(group, whole)
    return found


def _read_jobs(paths: Sequence[Path]) -> dict[Path, Mapping[str, Any]]:
    """Return the job of each log that can be read; the others say so when they are analysed."""
    found: dict[Path, Mapping[str, Any]] = {}
    rest = list(paths)
    while rest:
        number = 0
        try:
            for frame in read_logs(rest, "jobs"):
                if frame.kind == "job":
                    found[rest[number]] = frame.fields
                number += frame.kind == "end"
        except TraceError:
            found.pop(rest[number], None)
        rest = rest[number + 1 :]
    return found


def name_jobs(jobs: Sequence[Sequence[Path]]) -> list[str]:
    """Return a name for each job: as much of its path's end as differs from the other jobs'."""
    parts = [paths[0].absolute().parts for paths in jobs]
    for length in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(one[-length:]) for one in parts]
        if len(set(names)) == len(names):
            return names
    return ["/".join(one) for one in parts]
