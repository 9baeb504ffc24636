"""Measure, before files are read, how much of them is in page caches, and whether the kernel counts their reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dliosim.errors import ExecutionError
from dliosim.execute.mpi.world import World
from dliosim.execute.node.environment import find_mount
from dliosim.execute.node.page_cache import count_resident_bytes, counts_reads
from dliosim.execute.phases.context import Session

#: The most files that a node examines before they are read. This opens them, and the next open of a file is faster
#: (inodes, layouts and locks are cached): of many files that are few ones, and of few files all are examined.
MOST_READ = 64


class Residency(NamedTuple):
    """The residency of this rank's share of some files on its node.

    (0, 0) bytes on every rank if one rank could not examine a file; `notes` then say why, on every rank.
    """

    #: bytes in this node's page cache
    resident: int = 0
    #: bytes examined
    examined: int = 0
    #: notes for the report
    notes: tuple[str, ...] = ()


def measure_file_residency(session: Session, files: int, path: Callable[[int], Path]) -> Residency:
    """Measure how much of some of `files` files is in the page cache. Collective.

    Raises ExecutionError [R401] on every rank for a missing file. Any other failure does not end the run: it becomes a
    note.
    """
    return measure_residency(session, lambda: resident_share(session, files, MOST_READ, path))


def measure_residency(session: Session, look: Callable[[], tuple[int, int]]) -> Residency:
    """Measure residency on each rank by `look`, which returns cached bytes and examined bytes. Collective.

    Raises as `measure_file_residency` does.
    """
    world, why = session.world, ""

    def measure_own() -> tuple[int, int]:
        nonlocal why
        try:
            return look()
        except ExecutionError as error:
            if error.code == "R401":
                raise
            why = error.message
            return 0, 0

    found = world.run_on_all(measure_own)
    unknown = share_first_reason(world, "residency unknown", why)
    return Residency(notes=unknown) if unknown else Residency(*found)


def share_first_reason(world: World, what: str, why: str) -> tuple[str, ...]:
    """Return, on every rank, a note with the reason of the first rank that has one; none without. Collective."""
    note = world.broadcast_first(f"{what}: rank {world.rank}: {why}" if why else None)
    return () if note is None else (note,)


def find_uncounted_reads(session: Session, path: Path | None) -> str:
    """Return why the bytes from the device are not known of a file and of others like it; empty if they are counted.

    The first rank of each node reads a page of the file; without a path its node reads nothing. Collective; no failure
    ends the run.
    """
    answers = {True: 1, None: 0, False: -1}
    found: bool | None = True
    if session.world.node.rank == 0 and path is not None:
        try:
            found = find_mount(path).is_memory_backed or counts_reads(path)  # no device gives what is in memory
        except (ExecutionError, ValueError):  # ValueError: the file was cut short meanwhile
            found = None
    least = session.world.allreduce_number(answers[found], "min")
    if least > 0:
        return ""
    why = "the kernel does not count" if least < 0 else "it could not be found whether the kernel counts"
    return f"bytes from the device unknown: {why} what is read from this file system"


def resident_share(session: Session, files: int, most: int, path: Callable[[int], Path]) -> tuple[int, int]:
    """Return cached bytes and examined bytes of this rank's share of at most `most` files of a node, spread evenly."""
    node, count = session.world.node, min(files, most)
    chosen = np.arange(node.rank, count, node.size, dtype=np.int64) * files // max(count, 1)
    return add_pairs(count_resident_bytes(path(file)) for file in chosen.tolist())


def add_pairs(pairs: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Return the sum of the first numbers, and of the second numbers."""
    listed = list(pairs)
    return sum(found for found, _ in listed), sum(size for _, size in listed)
