"""Names of what DFTracer numbers by hashes: files, hosts, processes, threads and calls."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dliosim.analyze.dftracer.parse import FileReading, Numbering
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

    def parent(self, number: int, pid: int) -> int:
        """Return the pid of the parent of a process in a trace file, or `UNKNOWN`."""
        return self._readings[number].parents.get(pid, UNKNOWN)

    def host(self, number: int, value: Hashable, name: Any) -> str:
        """Return the host of an event: by its hash, by its name, or the only one that its trace file names."""
        if found := self.find("HH", number, value):
            return found
        if isinstance(name, str):
            return name
        hosts = {found for (kind, _), found in self._readings[number].names.items() if kind == "HH"}
        return hosts.pop() if len(hosts) == 1 else ""


def number_processes(
    keys: Iterable[Any], hashes: HashNames, paths: Sequence[Path], readings: Sequence[FileReading]
) -> tuple[tuple[Process, ...], Int32s]:
    """Return the processes in order of rank, host and pid, and the number of each key's.

    The rank is that of the file's name, for the first process in the file, or that of the process's parent.
    """
    found: list[tuple[str, int]] = []
    ranks: dict[tuple[str, int], int] = {}
    parents: dict[tuple[str, int], tuple[str, int]] = {}
    hosts: dict[tuple[Hashable, ...], str] = {}
    pids: dict[tuple[str, int], int] = {}
    first: set[int] = set()
    for number, value, name, pid in keys:
        if (number, value, name) not in hosts:
            hosts[number, value, name] = hashes.host(number, value, name)
        host, own_pid = process = hosts[number, value, name], _whole_or_unknown(pid)
        found.append(process)
        if (parent := hashes.parent(number, own_pid)) != UNKNOWN:
            parents[process] = host, parent
        exported = readings[number].exported
        if exported is not None:
            rank, pids[process] = exported.processes.get(own_pid, (UNKNOWN, UNKNOWN))
            if rank != UNKNOWN:
                ranks[process] = rank
        if number not in first:
            first.add(number)
            if match := _RANK.search(paths[number].name):
                ranks.setdefault(process, int(match[1]))
    all_ranks = {process: _rank(process, ranks, parents) for process in found}
    order = sorted(all_ranks, key=lambda process: (all_ranks[process] < 0, all_ranks[process], process))
    numbers = {process: number for number, process in enumerate(order)}
    processes = tuple(Process(all_ranks[one], pids.get(one, one[1]), one[0]) for one in order)
    return processes, np.array([numbers[process] for process in found], np.int32)


def _rank(
    process: tuple[str, int], ranks: Mapping[tuple[str, int], int], parents: Mapping[tuple[str, int], tuple[str, int]]
) -> int:
    """Return the rank of a process, or of its nearest parent that has one, or `UNKNOWN`."""
    for _ in range(_MOST_GENERATIONS):
        if process in ranks:
            return ranks[process]
        process = parents.get(process, process)
    return UNKNOWN


def _whole_or_unknown(value: Any) -> int:
    try:
        return int(value)
    except (ValueError, TypeError, OverflowError):
        return UNKNOWN


def number_files(keys: Iterable[Any], hashes: HashNames) -> tuple[tuple[str, ...], Int32s, NDArray[np.bool_]]:
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


def number_threads(process: Int32s, thread: NDArray[np.int64]) -> Int32s:
    """Return the number of each thread in its process, in order of their ids; the main thread has the lowest; (n,)."""
    ids, of_row = np.unique(thread, return_inverse=True)
    pairs, of_row = np.unique(process * np.int64(len(ids)) + of_row, return_inverse=True)
    owner = pairs // len(ids)
    first = np.searchsorted(owner, owner)
    return (np.arange(len(pairs)) - first).astype(np.int32)[of_row]
