"""The page cache of every node: drop or read the files of a workload, and measure how much of them it holds."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import compress
from pathlib import Path
from time import perf_counter_ns

from dliosim.errors import ExecutionError
from dliosim.execute.datasets.cold_pages import MOST_DROPPED, drop_dataset, drop_files
from dliosim.execute.datasets.open_dataset import report_damage, resident_dataset_share
from dliosim.execute.io_errors import wrap_call
from dliosim.execute.node.page_cache import count_resident_bytes, warm_page_cache
from dliosim.execute.phases.context import DatasetFiles, ReadFiles, Session
from dliosim.execute.phases.residency import add_pairs, measure_residency, resident_share, share_first_reason
from dliosim.execute.store import locking
from dliosim.execute.store.checkpoint_store import list_data_files
from dliosim.execute.store.manifest import NAME, find_dataset_fault
from dliosim.measure.rank.records import VerbRecord
from dliosim.model import Dataset, Restore
from dliosim.model.verbs import flatten_verbs

#: Bytes of a read that warms the cache.
_SCRATCH = 1 << 20


def drop_caches(session: Session) -> tuple[VerbRecord, tuple[str, ...]]:
    """Drop the pages of every file of the workload on every node, and measure what stays. Collective.

    Returns the record and notes. Raises DliosimError on every rank.
    """
    world, record, refused = session.world, VerbRecord(), ""
    if session.options.null:
        return record, ()
    begun = perf_counter_ns()
    datasets = _list_complete_datasets(session)
    checkpoints = _list_checkpoint_files(session)
    copied = world.run_on_all(lambda: list_copied_files(session))

    def drop_own() -> None:
        nonlocal refused
        with session.progress.track_bytes("drop caches", lambda: 0):
            dropped = [drop_dataset(session, files) for files in datasets]
            for paths in (checkpoints, copied):
                dropped.append(drop_files(session, paths[world.node.rank :: world.node.size]))
        record.files = sum(files for files, _ in dropped)
        refused = next((why for _, why in dropped if why), "")

    def measure_share() -> tuple[int, int]:
        found = [resident_dataset_share(session, files, MOST_DROPPED) for files in datasets]
        for paths in (checkpoints, copied):
            found.append(resident_share(session, len(paths), MOST_DROPPED, paths.__getitem__))
        return add_pairs(found)

    world.run_on_all(drop_own)
    record.resident_bytes, record.examined_bytes, notes = measure_residency(session, measure_share)
    record.wall_ns = perf_counter_ns() - begun
    return record, (*share_first_reason(world, "caches not dropped", refused), *notes)


def warm_caches(session: Session, dataset: Dataset) -> None:
    """Read each file of a complete data set that is not wholly in the page cache of every node. Collective."""
    world = session.world
    files: ReadFiles = session.copies.get(dataset.name) or session.files(dataset)

    def warm_own() -> None:
        with report_damage(files):
            _warm_files(session, map(files.path, range(world.node.rank, files.count, world.node.size)))

    if not session.options.null:
        world.run_on_all(warm_own)


def warm_checkpoints(session: Session) -> None:
    """Read each file of the saved checkpoints that is not wholly in the page cache of every node. Collective."""
    node, paths = session.world.node, _list_checkpoint_files(session)
    session.world.run_on_all(lambda: _warm_files(session, paths[node.rank :: node.size]))


def _warm_files(session: Session, paths: Iterable[Path]) -> None:
    scratch = bytearray(_SCRATCH)
    with session.progress.track_bytes("warm caches", lambda: 0):
        for path in paths:
            found, size = 0, 0
            # (0, 0) also means that the kernel does not say. Any other fault of a file is raised when it is read.
            with suppress(ExecutionError):
                found, size = count_resident_bytes(path, whole=True)
            if found < size or not size:
                warm_page_cache(path, scratch)
            session.progress.tick(perf_counter_ns(), 0, 0)


def _list_complete_datasets(session: Session) -> list[DatasetFiles]:
    """Return the data sets that can be read: others have no pages to drop, and the verb that reads them raises."""
    files = list(map(session.files, session.workload.datasets))

    def find_complete() -> list[bool]:
        return [bool(one.dataset.source) or not find_dataset_fault(one.dataset, one.directory) for one in files]

    return list(compress(files, session.world.run_on_rank_0("read the manifests of data sets", find_complete)))


def list_copied_files(session: Session) -> list[Path]:
    """Return the files in the directories of the copies on this node, complete or not. Raises ExecutionError."""
    found = []
    for place in dict.fromkeys(map(session.copy_directory, session.workload.stages())):
        with wrap_call("scandir", place):
            found += sorted(
                path
                for path in place.rglob("*")
                if path.name not in (NAME, f"{NAME}.partial", locking.NAME) and path.is_file() and not path.is_symlink()
            )
    return found


def _list_checkpoint_files(session: Session) -> list[Path]:
    """Return the files of all checkpoints that this job writes or restores; listed by rank 0 alone. Collective."""
    workload, ranks = session.workload, session.world.size
    described = [(checkpoint, checkpoint.split(ranks)) for checkpoint in workload.checkpoints]
    restores = (verb for verb, _ in flatten_verbs(workload.verbs) if isinstance(verb, Restore))
    described += [(workload.checkpoint(verb.checkpoint), verb.written_by) for verb in restores if verb.written_by]
    bases = dict.fromkeys(base for found, by in described for base in session.checkpoint_directories(found, by))
    if not bases:
        return []
    return session.world.run_on_rank_0(
        "list checkpoints", lambda: [path for base in bases for path in list_data_files(base)]
    )
