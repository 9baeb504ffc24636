"""Drop the pages of files on every node, and make sure of it before an epoch that must begin cold."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from time import perf_counter_ns, sleep

import numpy as np
from mpi4py import MPI

from dliosim.errors import HELP, ExecutionError
from dliosim.execute.datasets.open_dataset import report_damage, resident_dataset_share
from dliosim.execute.node.environment import find_mount
from dliosim.execute.node.page_cache import drop_pages
from dliosim.execute.phases.context import ReadFiles, Session
from dliosim.execute.phases.residency import Residency, measure_residency
from dliosim.model import Dataset
from dliosim.readable import percent, seconds

#: The most files that a node examines after it has dropped all, to measure how much is still resident.
MOST_DROPPED = 1024

#: One of this many bytes may still be in the page cache of a node that counts as cold.
_COLD = 100

#: Seconds after which a node drops its pages again: another process may read or write the files meanwhile.
_AGAIN = 0.1

#: A time of perf_counter_ns that does not come.
_FOREVER = 1 << 62


def drop_dataset(session: Session, files: ReadFiles, until: int = _FOREVER) -> tuple[int, str]:
    """Drop the pages of this rank's share of the files that its node reads, as `drop_files` does."""
    node = session.world.node
    with report_damage(files):
        return drop_files(session, map(files.path, range(node.rank, files.count, node.size)), until)


def drop_files(session: Session, paths: Iterable[Path], until: int = _FOREVER) -> tuple[int, str]:
    """Drop the pages of files; return their number, and why pages may be left, empty without a reason.

    It ends at `until`, of perf_counter_ns. Raises ExecutionError.
    """
    dropped, why = 0, ""
    for path in paths:
        if perf_counter_ns() > until:
            return dropped, "not all of its files were reached"
        if not drop_pages(path):
            why = why or f"posix_fadvise is refused on {path}"
        dropped += 1
        session.progress.tick(perf_counter_ns(), 0, 0)
    return dropped, why


def begin_cold(session: Session, files: ReadFiles, within: float) -> Residency:
    """Drop the pages of the files that each node reads, again and again until they are gone; return what is left.

    Collective. Raises ExecutionError on every rank if a node has 1 % of the bytes or more after `within` seconds, or
    cannot drop them. A residency that the kernel does not know does not end the run: it becomes a note.
    """
    world, last = session.world, perf_counter_ns() + round(within * 1e9)
    own, until = len(range(world.node.rank, files.count, world.node.size)), last
    mount = find_mount(files.path(0)) if files.count else None
    in_memory = f"{mount.kind} keeps files in memory" if mount is not None and mount.is_memory_backed else ""
    while True:
        with session.progress.track_bytes(f"drop caches of {files.dataset.name}", lambda: 0):
            dropped, why = world.run_on_all(partial(drop_dataset, session, files, last))
            left = measure_residency(session, lambda: resident_dataset_share(session, files, MOST_DROPPED))
        here = np.array(left[:2], np.int64)
        world.allreduce_on_node(here, "sum")
        kept, examined = here.tolist()
        is_warm = kept * _COLD >= max(examined, 1) or dropped < own
        why = in_memory or why
        is_over = bool(why) or perf_counter_ns() > until
        some_warm, some_over = world.allreduce(np.array([is_warm, is_warm and is_over], np.int64), "max").tolist()
        if not some_warm:
            return left
        if some_over:
            share = percent(kept / max(examined, 1), 3)
            world.agree_on_error(_still_warm(files.dataset, share, within, why) if is_warm else None)
        sleep(_AGAIN)
        last = _FOREVER  # all files were reached once


def _still_warm(dataset: Dataset, share: str, within: float, why: str) -> ExecutionError:
    place = (
        f"node {MPI.Get_processor_name()}: {share} of `{dataset.name}` is in the page cache{f' ({why})' if why else ''}"
    )
    limit = f"`caches cold each epoch within {seconds(within)}` allows less than 1 %"
    cure = (
        "end what else uses its files, give more time, or use `cache off`; of files in memory change the place, `--dir`"
    )
    return ExecutionError(f"{place}; {limit}{HELP}{cure}")
