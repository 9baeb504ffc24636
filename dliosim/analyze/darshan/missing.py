"""Sentences about what a log of Darshan has not seen, found in the log itself."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dliosim.analyze.darshan.child import COUNTER_MODULES, DXT_MODULES, LAYOUTS
from dliosim.analyze.darshan.module_counters import ModuleCounters
from dliosim.readable import count, printable, size
from dliosim.trace.events import Events, FileCounters, layer_number

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
    if wrong := _count_wrong_times(counters):
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
    recorded = int((events.layer == layer_number(_LAYER_OF[table.module])).sum())
    names = [name for name in table.counts if re.fullmatch(r"((INDEP|COLL|SPLIT|NB)_)?(READS|WRITES)", name)]
    counted = sum(int(table.counts[name].clip(0).sum()) for name in names)
    if not recorded or recorded >= counted:
        return ""
    return f"DXT has {recorded:,} of the {counted:,} reads and writes that {table.module} counts: its memory was full"


def _twice_counted(tables: Mapping[str, FileCounters]) -> str:
    """Return the sentence about calls of POSIX that DAOS's interception library may have turned into those of DFS."""
    if not {"POSIX", "DFS"} <= set(tables):
        return ""
    moved = [int(ModuleCounters(tables[name]).count("BYTES_READ", "BYTES_WRITTEN").sum()) for name in ("POSIX", "DFS")]
    if min(moved) <= _TWICE * max(moved):
        return ""
    return (
        f"POSIX moved {size(moved[0], 3)} and DFS {size(moved[1], 3)}: calls that libpil4dfs or libioil took are "
        "counted in both, so totals may be up to twice those of the job"
    )


def _count_wrong_times(counters: Sequence[FileCounters]) -> int:
    """Return how many times of calls the log has wrong, which are no number here."""
    names = ("F_READ_TIME", "F_WRITE_TIME", "F_META_TIME")
    return sum(
        int(np.isnan(table.seconds[name]).sum()) for table in counters for name in names if name in table.seconds
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
        bytes_read = ModuleCounters(table).count("BYTES_READ")
        busy = (
            bytes_read
            + ModuleCounters(table).count("READS", "WRITES", "BYTES_WRITTEN", "MMAPS", "INDEP_READS", "COLL_READS")
            > 0
        )
        seen |= _paths(table, is_data)
        used |= _paths(table, is_data & busy)
        looks += int(ModuleCounters(table).count("STATS", "OPENS")[is_data].sum())
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
