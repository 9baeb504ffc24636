"""How much of some files is in the page caches of their readers' nodes, before they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dliosim.errors import ExecutionError
from dliosim.execute.context import Session
from dliosim.execute.node.page_cache import count_resident_bytes

#: Files that a node looks at before they are read. To look at a file opens it, and what was opened once (inodes,
#: layouts, locks) is opened faster the next time: of many files these are few, and of few files all tell the truth.
MOST_READ = 64


class Residency(NamedTuple):
    """Bytes in this node's page cache, and bytes looked at, in this rank's share of some files.

    (0, 0) on every rank where one of them could not look, which `notes` then tell all.
    """

    resident: int = 0
    examined: int = 0
    notes: tuple[str, ...] = ()


def measure_file_residency(session: Session, files: int, path: Callable[[int], Path]) -> Residency:
    """How much of some of so many files is in the page cache. Collective.

    Raises ExecutionError [R401] on every rank for one that is not there. What else fails is no reason to end a run.
    """
    return measure_residency(session, lambda: resident_share(session, files, MOST_READ, path))


def measure_residency(session: Session, look: Callable[[], tuple[int, int]]) -> Residency:
    """Look on each rank by `look`, which gives bytes that are cached and bytes looked at. Collective."""
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
    first = int(world.allreduce(np.array([world.rank if why else world.size], np.int64), "min")[0])
    if first == world.size:
        return Residency(*found)
    return Residency(notes=(world.broadcast_object(f"residency unknown: rank {first}: {why}", first),))


def resident_share(session: Session, files: int, most: int, path: Callable[[int], Path]) -> tuple[int, int]:
    """Look at this rank's of at most `most` files of a node, spread evenly: bytes that are cached, bytes looked at."""
    node, count = session.world.node, min(files, most)
    chosen = np.arange(node.rank, count, node.size, dtype=np.int64) * files // max(count, 1)
    return add_pairs(count_resident_bytes(path(file)) for file in chosen.tolist())


def add_pairs(pairs: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Add up first and second numbers."""
    listed = list(pairs)
    return sum(found for found, _ in listed), sum(size for _, size in listed)
