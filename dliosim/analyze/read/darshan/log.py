"""Logs, read by PyDarshan in a process of its own: a damaged log may crash its library in C, or keep it busy.

The process is ``python -m dliosim.analyze.read.darshan.log WHAT LOG ...``, where WHAT is `logs`, or `jobs` for the job
of each log alone; frames go to the standard output, messages to the other. Whatever happens to it becomes one message.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import IO, Any, BinaryIO, Final, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import HELP, TraceError, UsageError, install_hint
from dliosim.readable import printable

#: Bytes of a frame's line.
_LONGEST_LINE: Final = 8 << 20
#: Bytes of a frame's arrays.
_MOST_BYTES: Final = 1 << 33
_TYPES: Final = ("<i8", "<u8", "<f8")


@dataclass(frozen=True, slots=True)
class Frame:
    """One piece of a log."""

    kind: str  #: what it is
    fields: Mapping[str, Any]  #: values of JSON
    arrays: Mapping[str, NDArray[Any]]  #: numbers


def write_frame(out: BinaryIO, kind: str, fields: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a frame."""
    shapes = {name: (array.dtype.str, array.shape) for name, array in arrays.items()}
    out.write(json.dumps({"kind": kind, "fields": fields, "arrays": shapes}).encode() + b"\n")
    for array in arrays.values():
        out.write(np.ascontiguousarray(array).tobytes())


def read_frames(source: BinaryIO) -> Iterator[Frame]:
    """Yield all frames; raises ValueError if one is cut or is none."""
    while line := source.readline(_LONGEST_LINE):
        if not line.endswith(b"\n"):
            raise ValueError("a frame is cut")
        header = json.loads(line)
        arrays = {name: _read_array(source, *shape) for name, shape in header["arrays"].items()}
        yield Frame(header["kind"], header["fields"], arrays)


def _read_array(source: BinaryIO, kind: str, shape: list[int]) -> NDArray[Any]:
    if kind not in _TYPES or not all(type(length) is int and length >= 0 for length in shape):
        raise ValueError("an array of an unknown type")
    size = 8 * math.prod(shape)
    if size > _MOST_BYTES:
        raise ValueError("an array is too large")
    data = source.read(size)
    if len(data) < size:
        raise ValueError("a frame is cut")
    return np.frombuffer(data, kind).reshape(shape)


#: Id of a file, its rank, counters, and times in s.
_Row: TypeAlias = "tuple[int, int, Any, Any]"

#: Limits: seconds for each log, and bytes of memory of the process.
LONGEST: Final = 900
MOST_MEMORY: Final = 8 << 30

#: Modules with counters, and the names of their records in C.
COUNTER_MODULES: Final = {
    "POSIX": "darshan_posix_file",
    "MPI-IO": "darshan_mpiio_file",
    "STDIO": "darshan_stdio_file",
    "H5F": "darshan_hdf5_file",
    "H5D": "darshan_hdf5_dataset",
    "DFS": "darshan_dfs_file",
    "DAOS": "darshan_daos_object",
}
#: The module with the striping of files, whose records are of another form.
LAYOUTS: Final = "LUSTRE"
#: Modules with operations.
DXT_MODULES: Final = ("DXT_POSIX", "DXT_MPIIO")

#: Records of counters, and bytes of names, in a frame.
_MOST_RECORDS: Final = 10_000
_MOST_NAMES: Final = 1 << 19


def main() -> int:
    """Write the frames of the logs that the command line names; return 1 with a message if one cannot be read."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # The library writes its messages to the standard output, too.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        with out:
            for path in sys.argv[2:]:
                signal.alarm(LONGEST)
                _write_log(path, out, sys.argv[1] == "logs")
    except AttributeError:
        sys.stderr.write("Error: PyDarshan 3.5 or later is needed: pip install 'darshan>=3.5'\n")
        return 1
    except (ValueError, RuntimeError, MemoryError) as error:
        sys.stderr.write(f"Error: {str(error) or 'not enough memory'}\n")
        return 1
    return 0


def _write_log(path: str, out: BinaryIO, is_whole: bool) -> None:
    from darshan.backend import cffi_backend as backend

    log = backend.log_open(path)
    if not log["handle"]:
        raise ValueError("it is no log")
    job = backend.log_get_job(log)
    modules = backend.log_get_modules(log)
    size, content = Path(path).stat().st_size, sum(module["len"] for module in modules.values())
    if size < content:
        raise ValueError(f"it is cut: its modules have {content:,} bytes, and the file {size:,}")
    command = backend.ffi.new("char[]", 4096)
    backend.libdutil.darshan_log_get_exe(log["handle"], command)
    fields = {
        "ranks": job["nprocs"],
        "id": job["jobid"],
        "begin": job["start_time_sec"] + job["start_time_nsec"] / 1e9,
        "seconds": job["run_time"],
        "version": job["log_ver"],
        "command": _text(backend, command),
        "modules": {name: module["partial_flag"] for name, module in modules.items()},
    }
    write_frame(out, "job", fields, {})
    if is_whole:
        _write_modules(backend, log, modules, out)
    write_frame(out, "end", {}, {})
    out.flush()  # the next log may crash the process
    backend.log_close(log)


def _write_modules(backend: Any, log: Any, modules: Container[str], out: BinaryIO) -> None:
    for names in _names(backend, log):
        write_frame(out, "names", names, {})
    for module in COUNTER_MODULES:
        if module in modules:
            _write_counters(backend, log, module, out)
    if LAYOUTS in modules:
        _write_layouts(backend, log, out)
    for module in DXT_MODULES:
        if module in modules:
            _write_operations(backend, log, module, out)


def _text(backend: Any, text: Any) -> str:
    """Return a text of C; bytes that are no UTF-8 become surrogates."""
    if text == backend.ffi.NULL:
        raise ValueError("it is damaged: a name in it is missing")
    found: bytes = backend.ffi.string(text)
    return found.decode(errors="surrogateescape")


def _names(backend: Any, log: Any) -> Iterator[dict[str, str]]:
    """Yield the paths of files by their ids, some at a time."""
    records, number = backend.ffi.new("struct darshan_name_record **"), backend.ffi.new("int *")
    backend.libdutil.darshan_log_get_name_records(log["handle"], records, number)
    names, size = {}, 0
    for row in range(number[0]):
        name = names[str(records[0][row].id)] = _text(backend, records[0][row].name)
        size += len(name) + 24
        if size > _MOST_NAMES:
            yield names
            names, size = {}, 0
    yield names


def _records(backend: Any, log: Any, module: str) -> Iterator[Any]:
    """Yield the records of a module as pointers of C, valid until the next."""
    index = backend.log_get_modules(log)[module]["idx"]
    for number in count():
        buffer = backend.ffi.new("void **")
        found = backend.libdutil.darshan_log_get_record(log["handle"], index, buffer)
        if found < 0 or (found == 0 and number == 0):
            # A module without a record is in no log; PyDarshan finds none behind the end of a file.
            raise ValueError(f"the records of module {module} are cut or damaged")
        if found == 0:
            return
        yield buffer[0]
        backend.libdutil.darshan_free(buffer[0])


def _write_counters(backend: Any, log: Any, module: str, out: BinaryIO) -> None:
    names = {"counts": backend.counter_names(module), "seconds": backend.fcounter_names(module)}

    def read(pointer: Any) -> _Row:
        record = backend.ffi.cast(f"struct {COUNTER_MODULES[module]} *", pointer)
        counts = np.frombuffer(backend.ffi.buffer(record.counters), np.int64).copy()
        seconds = np.frombuffer(backend.ffi.buffer(record.fcounters), np.float64).copy()
        return record.base_rec.id, record.base_rec.rank, counts, seconds

    _write_rows(module, names, map(read, _records(backend, log, module)), out)


def _write_layouts(backend: Any, log: Any, out: BinaryIO) -> None:
    """Write the stripe count of each file on Lustre: the largest of its components, and older logs have one."""
    column = backend.counter_names("LUSTRE_COMP").index("LUSTRE_COMP_STRIPE_COUNT")

    def read(pointer: Any) -> _Row:
        record = backend.ffi.cast("struct darshan_lustre_record *", pointer)
        stripes = [record.comps[number].counters[column] for number in range(record.num_comps)]
        return record.base_rec.id, record.base_rec.rank, [max(stripes, default=0)], []

    names = {"counts": ["LUSTRE_STRIPE_COUNT"], "seconds": list[str]()}
    _write_rows(LAYOUTS, names, map(read, _records(backend, log, LAYOUTS)), out)


def _write_rows(module: str, names: dict[str, list[str]], rows: Iterator[_Row], out: BinaryIO) -> None:
    while some := list(islice(rows, _MOST_RECORDS)):
        ids, ranks, counts, seconds = zip(*some, strict=True)
        arrays = {
            "ids": np.array(ids, np.uint64),
            "ranks": np.array(ranks, np.int64),
            "counts": np.array(counts, np.int64),
            "seconds": np.array(seconds, np.float64),
        }
        write_frame(out, "counters", {"module": module, **names}, arrays)


def _write_operations(backend: Any, log: Any, module: str, out: BinaryIO) -> None:
    """Write the reads and writes of DXT: a frame for each file and rank, writes first."""
    ffi = backend.ffi
    fields = {"offset": np.int64, "length": np.int64, "start_time": np.float64, "end_time": np.float64}
    operation = np.dtype(
        {
            "names": list(fields),
            "formats": list(fields.values()),
            "offsets": [ffi.offsetof("struct segment_info", name) for name in fields],
            "itemsize": ffi.sizeof("struct segment_info"),
        }
    )
    for pointer in _records(backend, log, module):
        record = ffi.cast("struct dxt_file_record *", pointer)
        writes, reads = record.write_count, record.read_count
        if writes < 0 or reads < 0:
            raise ValueError(f"a record of module {module} has a negative number of operations")
        first = ffi.cast("char *", pointer) + ffi.sizeof("struct dxt_file_record")
        rows = np.frombuffer(ffi.buffer(first, (writes + reads) * operation.itemsize), operation)
        about = {
            "module": module,
            "id": str(record.base_rec.id),
            "rank": record.base_rec.rank,
            "host": _text(backend, record.hostname),
            "writes": writes,
        }
        write_frame(out, "operations", about, {name: rows[name] for name in fields})


#: Seconds that the process may take to end.
_PATIENCE = 10

#: Endings of the process by a signal, in words.
_SIGNALS = {
    signal.SIGALRM: f"reading it took longer than {LONGEST} s",
    signal.SIGKILL: "its reader was killed, perhaps for want of memory",
}


def read_logs(paths: Sequence[Path], what: str = "logs") -> Iterator[Frame]:
    """Yield the frames of logs, or with `what` as `jobs` those of their jobs; each log's last is `end`.

    Raises UsageError without PyDarshan, TraceError if a log is cut or damaged.
    """
    if importlib.util.find_spec("darshan") is None:
        raise UsageError(f"{paths[0]} is a Darshan log, which needs PyDarshan{HELP}{install_hint('darshan')}")
    # Many threads of numerical libraries would need more memory than a log.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    module = "dliosim.analyze.read.darshan.log"
    command = [sys.executable, "-m", module, what, *(str(path.absolute()) for path in paths)]
    with (
        tempfile.TemporaryFile() as messages,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=messages, env=environment
        ) as child,
    ):
        ended, frames = 0, cast(BinaryIO, child.stdout)
        try:
            for frame in read_frames(frames):
                ended += frame.kind == "end"
                yield frame
        except ValueError:
            pass  # the last frame is cut: its log has no end
        finally:
            # Now it can write no more, and ends.
            frames.close()
            try:
                status = child.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                child.kill()
                status = child.wait()
        if ended < len(paths):
            raise TraceError(f"{paths[ended]} cannot be read: {_reason(status, messages)}")


def _reason(status: int, messages: IO[bytes]) -> str:
    """Return in words why the process that reads a log ended early."""
    messages.seek(0)
    lines = messages.read(1 << 16).decode(errors="replace").splitlines()
    said = [line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")]
    if status < 0:
        return _SIGNALS.get(signal.Signals(-status), f"PyDarshan crashed on it: {signal.Signals(-status).name}")
    if any("MemoryError" in line or "not enough memory" in line for line in lines):
        return f"it needs more than {MOST_MEMORY >> 30} GiB of memory"
    return printable(said[0]) if said else printable(lines[-1]) if lines else f"its reader ended with {status}"


if __name__ == "__main__":
    sys.exit(main())
