"""Names behind DFTracer's hashes: files, hosts, processes, threads and calls."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dliosim.analyze.arrays import Bools, Ints
from dliosim.analyze.read.dftracer.parse import Exported, FileReading, Numbering, whole_or_unknown
from dliosim.trace.events import UNKNOWN, Process

Int32s = NDArray[np.int32]

#: Numbers of names that the column `name` has room for.
_MOST_NAMES: Final = int(np.iinfo(np.int16).max)
#: Name of all names above these.
_OTHER_NAMES: Final = "(other names)"

#: DLIO names the trace of each rank so; version 2 adds a hash and how it began.
_RANK: Final = re.compile(r"-(\d{1,7})-of-\d{1,7}(-[0-9a-z-]+)?\.pfw(\.gz)?$")
#: Generations between a rank and a process that it has started.
_MOST_GENERATIONS: Final = 4


class HashNames:
    """Names by hash: those of the same trace file first, then those on which all other files agree.

    A forked process does not repeat what its parent has written, so its file may lack names.
    """

    def __init__(self, readings: Sequence[FileReading]) -> None:
        self._readings = readings
        self._anywhere: dict[tuple[str, Hashable], str | None] = {}
        for reading in readings:
            for key, name in reading.names.items():
                if self._anywhere.setdefault(key, name) != name:
                    self._anywhere[key] = None

    def find(self, kind: str, number: int, value: Hashable) -> str | None:
        """Return the name of a hash that is used in a trace file, or None; `kind` is FH, HH or SH."""
        return self._readings[number].names.get((kind, value), self._anywhere.get((kind, value)))

    def host(self, number: int, value: Hashable, name: Any) -> str:
        """Return the host of an event: by its hash, by its name, or the only one that its trace file names."""
        if found := self.find("HH", number, value):
            return found
        if isinstance(name, str):
            return name
        hosts = {found for (kind, _), found in self._readings[number].names.items() if kind == "HH"}
        # Hosts whose hashes differ are different ones, also without names.
        return hosts.pop() if len(hosts) == 1 else "" if value is None else f"(host {value})"


class _ProcessKey(NamedTuple):
    """Identity of a process: containers on one host, and hosts without names, have the same ids."""

    host: str  #: its node; empty if it is not known
    pid: int  #: its id
    file_rank: int  #: rank in the name of its trace file, or `UNKNOWN`


def split_threads(
    keys: Iterable[Any], process: Int32s, thread: Ints, exports: Sequence[Exported]
) -> tuple[list[tuple[Any, ...]], Int32s]:
    """Return the keys of processes, each with the rank that it gives, and the key of each event; (n,).

    No process has the id 0: if one does, programs gave their ranks as ids, as DLIO does, and workers that they
    forked differ by their threads alone. Each thread is a process then.
    """
    known = list(keys)
    if exports or not any(whole_or_unknown(pid) == 0 for *_, pid in known):
        return [(*key, UNKNOWN) for key in known], process
    owner, ids, of_row = _pair_threads(process, thread)
    names = [(*known[number], tid) for number, tid in zip(owner.tolist(), ids.tolist(), strict=True)]
    return [(*key, tid, whole_or_unknown(rank)) for *key, rank, tid in names], of_row.astype(np.int32)


def number_processes(
    keys: Iterable[Any], hashes: HashNames, readings: Sequence[FileReading]
) -> tuple[tuple[Process, ...], Int32s]:
    """Return the processes in order of rank, host and pid, and the number of each key's.

    The rank is that of the file's name, for the first process in the file, or that of the process's parent.
    """
    found: list[_ProcessKey] = []
    ranks: dict[_ProcessKey, int] = {}
    parents: dict[_ProcessKey, _ProcessKey] = {}
    host_of = cache(hashes.host)
    pids: dict[_ProcessKey, int] = {}
    first: set[int] = set()
    file_ranks = [int(match[1]) if (match := _RANK.search(one.path.name)) else UNKNOWN for one in readings]
    for number, value, name, pid, rank in keys:
        file_rank = file_ranks[number] if rank == UNKNOWN else rank
        process = _ProcessKey(host_of(number, value, name), whole_or_unknown(pid), file_rank)
        found.append(process)
        if rank != UNKNOWN:
            ranks[process] = rank
        if (parent := readings[number].parents.get(process.pid, UNKNOWN)) != UNKNOWN:
            parents[process] = process._replace(pid=parent)
        if (exported := readings[number].exported) is not None:
            rank, pids[process] = exported.processes.get(process.pid, (UNKNOWN, UNKNOWN))
            if rank != UNKNOWN:
                ranks[process] = rank
        if number not in first:
            first.add(number)
            if process.file_rank != UNKNOWN:
                ranks.setdefault(process, process.file_rank)
    known, forks = set(found), sum("-fork." in one.path.name for one in readings)
    same_pid: dict[tuple[str, int], list[_ProcessKey]] = {}
    for process in known:
        same_pid.setdefault((process.host, process.pid), []).append(process)
    for process, parent in parents.items():
        others = same_pid.get((parent.host, parent.pid), ())
        if parent not in known and len(others) == 1:
            parents[process] = others[0]
    roots = {_find_root(process, parents) for process in known}
    if not ranks and len(roots) == 1 and forks >= len(readings) - 1:
        ranks[roots.pop()] = 0  # a job of one process, with workers that it forked
    all_ranks = {process: _rank(process, ranks, parents) for process in known}
    order = sorted(all_ranks, key=lambda process: (all_ranks[process] < 0, all_ranks[process], process))
    numbers = {process: number for number, process in enumerate(order)}
    processes = tuple(Process(all_ranks[one], pids.get(one, one.pid), one.host) for one in order)
    return processes, np.array([numbers[process] for process in found], np.int32)


def _rank(process: _ProcessKey, ranks: Mapping[_ProcessKey, int], parents: Mapping[_ProcessKey, _ProcessKey]) -> int:
    """Return the rank of a process, or of its nearest parent that has one, or `UNKNOWN`."""
    for _ in range(_MOST_GENERATIONS):
        if process in ranks:
            return ranks[process]
        process = parents.get(process, process)
    return UNKNOWN


def _find_root(process: _ProcessKey, parents: Mapping[_ProcessKey, _ProcessKey]) -> _ProcessKey:
    """Return the farthest parent of a process that is known."""
    for _ in range(_MOST_GENERATIONS):
        process = parents.get(process, process)
    return process


def number_files(keys: Iterable[Any], hashes: HashNames) -> tuple[tuple[str, ...], Int32s, Bools]:
    """Return the paths, the number of each key's, and which keys are hashes that no line names."""
    paths = Numbering()
    numbers, nameless = [], []
    for number, value in keys:
        path = value if number is None else hashes.find("FH", number, value)
        # The hash 0 and the empty name stand for no file.
        is_nameless = path is None and value not in (0, "0", "", None)
        nameless.append(is_nameless)
        if is_nameless:
            path = f"(file {value})"
        numbers.append(paths[path] if isinstance(path, str) and path else UNKNOWN)
    return tuple(map(str, paths)), np.array(numbers, np.int32), np.array(nameless, bool)


def number_names(keys: Iterable[Any], call: Int32s) -> tuple[tuple[str, ...], NDArray[np.int16]]:
    """Return the names of calls by (category, name), and the number of each event's; `call` is its key, (n,)."""
    names = Numbering()
    numbers = [names[name if len(names) < _MOST_NAMES or name in names else _OTHER_NAMES] for _, name in keys]
    return tuple(map(str, names)), np.array(numbers, np.int16)[call]


def number_threads(process: Int32s, thread: Ints) -> Int32s:
    """Return the number of each thread in its process, in order of their ids; the main thread has the lowest; (n,)."""
    owner, _, of_row = _pair_threads(process, thread)
    return (np.arange(len(owner)) - np.searchsorted(owner, owner)).astype(np.int32)[of_row]


def _pair_threads(process: Int32s, thread: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the process and the id of each thread, in order of both, and the number of each event's; (n,)."""
    ids, of_row = np.unique(thread, return_inverse=True)
    pairs, of_row = np.unique(process * np.int64(len(ids)) + of_row, return_inverse=True)
    return pairs // len(ids), ids[pairs % len(ids)], of_row
