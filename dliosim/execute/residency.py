"""The page cache of every node: asked to forget the files of a workload, and how much of them it still holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter_ns

import numpy as np

from dliosim.errors import ExecutionError
from dliosim.execute.caches import drop, read_through, resident
from dliosim.execute.prepared import damaged, what_is_wrong
from dliosim.execute.session import Session
from dliosim.execute.versions import saved_files
from dliosim.measure.records import VerbRecord
from dliosim.model import Dataset, Restore
from dliosim.plan.saves import flat

#: Files that a node looks at after it has dropped all of them, to say how much is still resident.
_MOST_DROPPED = 1024

#: Files that a node looks at before they are read: one in so many, and no more than so many. To look at a file opens
#: it, and what was opened once (inodes, layouts, locks) is opened faster the next time.
_ONE_IN, _MOST_READ = 16, 64

#: Bytes that warming a cache reads at a time.
_SCRATCH = 1 << 20


def drop_caches(session: Session) -> VerbRecord:
    """Drop the pages of every file of the workload on every node, and measure what stays. Collective."""
    world, record = session.world, VerbRecord()
    if session.options.null:
        return record
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

    def look() -> None:
        found = [_look(session, dataset, _MOST_DROPPED) for dataset in datasets]
        found.append(_share(session, len(checkpoints), _MOST_DROPPED, checkpoints.__getitem__))
        record.resident_bytes, record.examined_bytes = _sums(found)

    world.together(drop_own)
    world.together(look)
    record.wall_ns = perf_counter_ns() - begun
    return record


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
            found, size = resident(path)
            # (0, 0) is also what a kernel says that does not tell.
            if found < size or not size:
                read_through(path, scratch)
            session.progress.tick(perf_counter_ns(), 0, 0)


def resident_bytes(session: Session, dataset: Dataset) -> tuple[int, int]:
    """As `resident_before_reading`, of a complete data set; (0, 0) without I/O.

    Collective, because every rank hears of a file that is not there.
    """
    if session.options.null:
        return 0, 0
    return session.world.together(lambda: _look(session, dataset, _few(dataset.layout.files)))


def resident_before_reading(session: Session, files: int, path: Callable[[int], Path]) -> tuple[int, int]:
    """Bytes in this node's page cache, and bytes looked at, in this rank's share of some of so many files.

    Raises ExecutionError [R401] for one that is not there.
    """
    return _share(session, files, _few(files), path)


def _few(files: int) -> int:
    return min(-(-files // _ONE_IN), _MOST_READ)


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
