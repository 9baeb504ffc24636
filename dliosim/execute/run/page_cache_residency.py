"""The page cache of every node: asked to forget the files of a workload, and how much of them it still holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter_ns
from typing import NamedTuple

import numpy as np

from dliosim.errors import ExecutionError
from dliosim.execute.checkpoints.checkpoint_store import saved_files
from dliosim.execute.context import Session
from dliosim.execute.datasets.dataset_manifest import damaged, what_is_wrong
from dliosim.execute.node.page_cache import drop, read_through, resident
from dliosim.measure.records import VerbRecord
from dliosim.model import Dataset, Restore
from dliosim.plan.forecast.checkpoint_counts import flat

#: Files that a node looks at after it has dropped all of them, to say how much is still resident.
_MOST_DROPPED = 1024

#: Files that a node looks at before they are read. To look at a file opens it, and what was opened once (inodes,
#: layouts, locks) is opened faster the next time: of many files these are few, and of few files all tell the truth.
_MOST_READ = 64

#: Bytes that warming a cache reads at a time.
_SCRATCH = 1 << 20


class Residency(NamedTuple):
    """Bytes in this node's page cache, and bytes looked at, in this rank's share of some files.

    (0, 0) on every rank where one of them could not look, which `notes` then tell all.
    """

    resident: int = 0
    examined: int = 0
    notes: tuple[str, ...] = ()


def drop_caches(session: Session) -> tuple[VerbRecord, tuple[str, ...]]:
    """Drop the pages of every file of the workload on every node, and measure what stays; notes. Collective."""
    world, record = session.world, VerbRecord()
    if session.options.null:
        return record, ()
    begun = perf_counter_ns()
    datasets = _complete_datasets(session)
    checkpoints = _checkpoint_files(session)

    def drop_own() -> None:
        with session.progress.during("drop caches", lambda: 0):
            for dataset in datasets:
                path_of = _path(session, dataset)
                with _damage_named(dataset):
                    for file in range(world.node.rank, dataset.layout.files, world.node.size):
                        drop_one(path_of(file))
            for path in checkpoints[world.node.rank :: world.node.size]:
                drop_one(path)

    def drop_one(path: Path) -> None:
        drop([path])
        record.files += 1
        session.progress.tick(perf_counter_ns(), 0, 0)

    def look() -> tuple[int, int]:
        found = [_look(session, dataset, _MOST_DROPPED) for dataset in datasets]
        return _sums([*found, _share(session, len(checkpoints), _MOST_DROPPED, checkpoints.__getitem__)])

    world.together(drop_own)
    record.resident_bytes, record.examined_bytes, notes = _measure(session, look)
    record.wall_ns = perf_counter_ns() - begun
    return record, notes


def warm_caches(session: Session, dataset: Dataset) -> None:
    """Read what of a complete data set is not in the page cache of every node. Collective."""
    world, path_of = session.world, _path(session, dataset)

    def warm_own() -> None:
        with _damage_named(dataset):
            _warm(session, map(path_of, range(world.node.rank, dataset.layout.files, world.node.size)))

    if not session.options.null:
        world.together(warm_own)


def warm_checkpoints(session: Session) -> None:
    """Read what of the saved checkpoints is not in the page cache of every node. Collective."""
    node, paths = session.world.node, _checkpoint_files(session)
    session.world.together(lambda: _warm(session, paths[node.rank :: node.size]))


def _warm(session: Session, paths: Iterable[Path]) -> None:
    scratch = bytearray(_SCRATCH)
    with session.progress.during("warm caches", lambda: 0):
        for path in paths:
            found, size = 0, 0
            # (0, 0) is also what a kernel says that does not tell. What else is wrong with a file, reading it says.
            with suppress(ExecutionError):
                found, size = resident(path, whole=True)
            if found < size or not size:
                read_through(path, scratch)
            session.progress.tick(perf_counter_ns(), 0, 0)


def resident_bytes(session: Session, dataset: Dataset) -> Residency:
    """As `resident_before_reading`, of a complete data set; nothing without I/O."""
    if session.options.null:
        return Residency()
    return _measure(session, lambda: _look(session, dataset, _MOST_READ))


def resident_before_reading(session: Session, files: int, path: Callable[[int], Path]) -> Residency:
    """How much of some of so many files is in the page cache. Collective.

    Raises ExecutionError [R401] on every rank for one that is not there. What else fails is no reason to end a run.
    """
    return _measure(session, lambda: _share(session, files, _MOST_READ, path))


def _measure(session: Session, look: Callable[[], tuple[int, int]]) -> Residency:
    """What `look` finds on each rank. Collective."""
    world, why = session.world, ""

    def own() -> tuple[int, int]:
        nonlocal why
        try:
            return look()
        except ExecutionError as error:
            if error.code == "R401":
                raise
            why = error.message
            return 0, 0

    found = world.together(own)
    first = int(world.allreduce(np.array([world.rank if why else world.size], np.int64), "min")[0])
    if first == world.size:
        return Residency(*found)
    return Residency(notes=(world.share(f"residency unknown: rank {first}: {why}", first),))


def _look(session: Session, dataset: Dataset, most: int) -> tuple[int, int]:
    with _damage_named(dataset):
        return _share(session, dataset.layout.files, most, _path(session, dataset))


def _share(session: Session, files: int, most: int, path: Callable[[int], Path]) -> tuple[int, int]:
    """Of at most `most` files of a node, spread evenly, those of this rank."""
    node, count = session.world.node, min(files, most)
    chosen = np.arange(node.rank, count, node.size, dtype=np.int64) * files // max(count, 1)
    return _sums(resident(path(file)) for file in chosen.tolist())


def _path(session: Session, dataset: Dataset) -> Callable[[int], Path]:
    directory, name = session.files(dataset)
    return lambda file: directory / name(file)


@contextmanager
def _damage_named(dataset: Dataset) -> Iterator[None]:
    """A block in which a file that is not there is said to be damage of the data set, with the remedy."""
    try:
        yield
    except ExecutionError as error:
        if error.code == "R401":
            raise damaged(dataset, error.message) from error
        raise


def _sums(pairs: Iterable[tuple[int, int]]) -> tuple[int, int]:
    listed = list(pairs)
    return sum(found for found, _ in listed), sum(size for _, size in listed)


def _complete_datasets(session: Session) -> list[Dataset]:
    """The data sets that can be read; of others there is nothing to forget, and whoever reads them will say so."""
    datasets = session.workload.datasets

    def complete() -> list[int]:
        places = [session.files(dataset)[0] for dataset in datasets]
        return [i for i, place in enumerate(places) if datasets[i].source or what_is_wrong(datasets[i], place) is None]

    return [datasets[i] for i in session.world.on_rank_0("read the manifests of data sets", complete)]


def _checkpoint_files(session: Session) -> list[Path]:
    """Files of all checkpoints that this job writes, or restores whoever wrote them; listed by rank 0 alone."""
    workload, ranks = session.workload, session.world.size
    described = [(checkpoint, checkpoint.split(ranks)) for checkpoint in workload.checkpoints]
    restores = (verb for verb, _ in flat(workload.verbs) if isinstance(verb, Restore))
    described += [(workload.checkpoint(verb.checkpoint), verb.written_by) for verb in restores if verb.written_by]
    places = (
        place for found, by in described for place in (session.saved_at(found, by), session.drained_to(found, by))
    )
    bases = list(dict.fromkeys(place for place in places if place is not None))
    if not bases:
        return []
    return session.world.on_rank_0("list checkpoints", lambda: [path for base in bases for path in saved_files(base)])
