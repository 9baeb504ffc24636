"""Open the trace of one job, whatever wrote it: recognised by content, not by name."""

from __future__ import annotations

import os
import shlex
import stat
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dliosim.analyze.darshan.job import make_trace
from dliosim.analyze.darshan.log import read_logs
from dliosim.analyze.dftracer.job import read_dftracer
from dliosim.analyze.jobs import group_jobs, list_logs, list_names
from dliosim.errors import DliosimError, TraceError, UsageError
from dliosim.readable import printable
from dliosim.trace.events import Trace
from dliosim.trace.file import FILE_NAME, read_trace

#: What is read of a file to recognise it; bytes.
_HEAD: Final = 4096
_GZIP: Final = b"\x1f\x8b"
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

    Raises UsageError where paths are no job or a package is missing, TraceError where a trace is damaged or unknown,
    ExecutionError where a trace of dliosim is.
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
    traces = [name for name in names if name.endswith((".pfw", ".pfw.gz"))]
    # A trace that was compressed later is there twice.
    compressed = set(traces)
    traces = [name for name in traces if f"{name}.gz" not in compressed]
    if traces:
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
    if head.startswith(_GZIP):
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
    return "dftracer" if text.startswith((b"[", b"{")) else f"no trace: it begins with {_begin(head)}"


def _begin(head: bytes) -> str:
    return repr(printable(head[:16].decode(errors="replace")))
