"""The process that reads a log: PyDarshan calls a library in C, which a damaged log may crash or keep busy.

Run as ``python -m dliosim.analyze.darshan.child WHAT LOG ...``, where WHAT is `logs`, or `jobs` for the job of each log
alone; frames go to the standard output, messages to the other.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Container, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

import numpy as np

from dliosim.analyze.darshan.frames import write_frame

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
    """Write the frames of the logs that the command line names; return 1 with a message where one cannot be read."""
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
    fields = {
        "ranks": job["nprocs"],
        "id": job["jobid"],
        "begin": job["start_time_sec"] + job["start_time_nsec"] / 1e9,
        "seconds": job["run_time"],
        "version": job["log_ver"],
        "command": _text(backend, _command(backend, log)),
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


def _command(backend: Any, log: Any) -> Any:
    text = backend.ffi.new("char[]", 4096)
    backend.libdutil.darshan_log_get_exe(log["handle"], text)
    return text


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

    def rows() -> Iterator[_Row]:
        for pointer in _records(backend, log, module):
            record = backend.ffi.cast(f"struct {COUNTER_MODULES[module]} *", pointer)
            counts = np.frombuffer(backend.ffi.buffer(record.counters), np.int64).copy()
            seconds = np.frombuffer(backend.ffi.buffer(record.fcounters), np.float64).copy()
            yield record.base_rec.id, record.base_rec.rank, counts, seconds

    _write_rows(module, names, rows(), out)


def _write_layouts(backend: Any, log: Any, out: BinaryIO) -> None:
    """Write the stripe count of each file on Lustre: the largest of its components, and older logs have one."""
    column = backend.counter_names("LUSTRE_COMP").index("LUSTRE_COMP_STRIPE_COUNT")

    def rows() -> Iterator[_Row]:
        for pointer in _records(backend, log, LAYOUTS):
            record = backend.ffi.cast("struct darshan_lustre_record *", pointer)
            stripes = [record.comps[number].counters[column] for number in range(record.num_comps)]
            yield record.base_rec.id, record.base_rec.rank, [max(stripes, default=0)], []

    _write_rows(LAYOUTS, {"counts": ["LUSTRE_STRIPE_COUNT"], "seconds": []}, rows(), out)


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


if __name__ == "__main__":
    sys.exit(main())
