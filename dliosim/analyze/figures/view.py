"""A trace as an analysis sees it: its ranks, its file operations, and the operations that count."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dliosim.analyze.arrays import Bools, Intervals, Ints, merge_intervals, split_processes, unite_intervals
from dliosim.trace.calls import Call
from dliosim.trace.events import LAYERS, OPERATIONS, Events, Trace, kind_number, layer_number

#: Operations on files that move no bytes.
METADATA: Final = ("open", "close", "fsync", "seek", "metadata")

#: The first layer whose calls move bytes themselves; those above it are a program's own names for what it does.
_SYSTEM: Final = layer_number("library")

#: What a file is for.
PURPOSES: Final = ("data set", "checkpoint", "other")

_CHECKPOINT = re.compile(r"ckpt|checkpoint|\.(pt|pth|safetensors|distcp)$|_optim|/global_step", re.IGNORECASE)
_OTHER = re.compile(
    r"^/(proc|sys|dev(?!/shm/)|etc|lib|lib64|bin|run)/|^/usr/(lib|share|tce|bin)|/site-packages/|/__pycache__/|/venv/|/\.venv/"
    r"|/lib/python|\.(py|pyc|so|pfw|log|yaml|yml|cfg|darshan|md|txt)(\.[\d.]+|\.gz)?$|^(pipe|socket|anon_inode):|<STD"
)


#: Names of files that are none: those of the kernel, and of pipes and sockets as programs call them.
_PIPE: Final = re.compile(
    r"^(pipe|socket|anon_inode):|(^|/)(pipe|fifo)[-_.]?[-_\d]*$|\.(pipe|fifo|sock|socket)$", re.IGNORECASE
)


def find_pipes(paths: Sequence[str]) -> Bools:
    """Return which paths are pipes or sockets: a call on one waits for another process, and not for storage."""
    return np.array([_PIPE.search(path) is not None for path in paths], np.bool_)


def find_purpose(path: str) -> int:
    """Return what a file is for by its path, as an index into `PURPOSES`."""
    return 1 if _CHECKPOINT.search(path) else 2 if _OTHER.search(path) else 0


@dataclass(frozen=True)
class View:
    """A trace prepared for all figures. Groups are ranks; a process of unknown rank is a group of its own."""

    trace: Trace  #: the trace

    @property
    def events(self) -> Events:
        """The table of events."""
        return self.trace.events

    @cached_property
    def group_of(self) -> Ints:
        """The group of each process; (processes,)."""
        ids = [one.rank if one.rank >= 0 else (1 << 32) + index for index, one in enumerate(self.events.processes)]
        return np.unique(np.array(ids, np.int64), return_inverse=True)[1]

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups: `rank 3`, or `process 4711` if no rank is known."""
        names: dict[int, str] = {}
        for group, one in zip(self.group_of.tolist(), self.events.processes, strict=True):
            number = one.pid if one.pid >= 0 else group
            names.setdefault(group, f"rank {one.rank}" if one.rank >= 0 else f"process {number}")
        return tuple(names[group] for group in sorted(names))

    @property
    def ranks(self) -> int:
        """The number of ranks; of processes, if no rank is known."""
        return len({one.rank for one in self.events.processes if one.rank >= 0}) or len(self.groups)

    @cached_property
    def slices_of(self) -> list[list[slice]]:
        """The rows of each process of each group."""
        found: list[list[slice]] = [[] for _ in self.groups]
        for group, part in zip(self.group_of.tolist(), split_processes(self.events), strict=True):
            found[group].append(part)
        return found

    @cached_property
    def operations(self) -> Bools:
        """The operations on files, of every layer that moves bytes: all of their time is I/O; (n,)."""
        return self._calls & ~self._is_on_pipe

    @cached_property
    def pipes(self) -> tuple[set[str], float]:
        """The pipes and sockets with calls, and the sum of the durations of these, s."""
        rows = self._calls & self._is_on_pipe
        numbers = np.unique(self.events.file[rows]).tolist()
        return {self.events.files[number] for number in numbers}, int(self.events.duration[rows].sum()) / 1e9

    @property
    def _calls(self) -> Bools:
        return self.events.is_kind(*OPERATIONS) & (self.events.layer >= _SYSTEM)

    @property
    def _is_on_pipe(self) -> Bools:
        return np.append(find_pipes(self.events.files), False)[self.events.file]

    @cached_property
    def basic(self) -> Bools:
        """The operations of the lowest layer that a file has, so that no byte counts twice; (n,).

        A file may be written by one layer and read by another: reads are those of the lowest layer that reads, writes
        those of the lowest that writes it.
        """
        rows = np.flatnonzero(self.operations)
        layers, kinds = len(LAYERS), 3
        files = self.events.file[rows].astype(np.int64) + 1  # the first is that of events without a file
        kind = self.events.kind[rows]
        files = files * kinds + (kind == kind_number("read")) + 2 * (kind == kind_number("write"))
        layer = self.events.layer[rows]
        size = (len(self.events.files) + 1) * kinds * layers
        seen = np.bincount(files * layers + layer, minlength=size).reshape(-1, layers)
        lowest = layers - 1 - np.argmax(seen[:, ::-1] > 0, axis=1)
        found = np.zeros(len(self.events), np.bool_)
        found[rows[layer == lowest[files]]] = True
        return found

    @cached_property
    def copies(self) -> Bools:
        """The copies from mapped files: a row may be of several samples, and has the lowest offset of these; (n,)."""
        names = self.events.names
        number = names.index(Call.COPY.label) if Call.COPY.label in names else -1
        found: Bools = self.events.name == number
        return found

    @cached_property
    def sizes(self) -> Ints:
        """Bytes that each event moved; those asked for, if the trace has no other. -1 is not known; (n,)."""
        events, rows = self.events, self.basic & self.events.is_kind("read", "write")
        return events.moved if (events.moved[rows] >= 0).any() else events.asked

    @cached_property
    def bytes(self) -> Ints:
        """Bytes that each counted read or write moved, 0 for all else; (n,)."""
        rows = self.basic & self.events.is_kind("read", "write")
        return np.where(rows & (self.sizes > 0), self.sizes, 0)

    @cached_property
    def purpose_of(self) -> NDArray[np.int8]:
        """The purpose of each file, as an index into `PURPOSES`: by its path, or if it is used most within saves."""
        found = np.array([find_purpose(path) for path in self.events.files], np.int8)
        saves = self.events.is_kind("save", "restore")
        if saves.any() and len(found):
            rows = np.flatnonzero(self.basic & (self.events.file >= 0))
            inside = np.zeros(len(self.events), np.bool_)
            for group, intervals in enumerate(self.unite(saves)):
                for part in self.slices_of[group]:
                    inside[part] = intervals.contains(self.events.begin[part])
            files = self.events.file[rows]
            uses = np.bincount(files, minlength=len(found))
            in_saves = np.bincount(files, inside[rows], len(found))
            found[(in_saves * 2 > uses) & (found == 0)] = 1
        return found

    def purpose(self, name: str) -> Bools:
        """Return which operations are on files of a purpose; (n,)."""
        known = self.purpose_of == PURPOSES.index(name)
        is_known = np.append(known, name == "other")  # an event without a file has -1, the last
        found: Bools = self.operations & is_known[self.events.file]
        return found

    def unite(self, rows: Bools) -> list[Intervals]:
        """Return the union of the intervals of some rows, of each group."""
        return [unite_intervals(*(self._merge_rows(part, rows) for part in parts)) for parts in self.slices_of]

    def groups_of(self, rows: Ints) -> Ints:
        """Return the group of some rows."""
        return self.group_of[self.events.process[rows]]

    def _merge_rows(self, part: slice, rows: Bools) -> Intervals:
        some = rows[part]
        begin = self.events.begin[part][some]
        return merge_intervals(begin, begin + self.events.duration[part][some])
