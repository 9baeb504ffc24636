"""The page cache of every node: asked to forget the files of a workload, and how much of them it still holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter_ns

import numpy as np

from dliosim.execute.caches import drop, resident
from dliosim.execute.manifest import read_manifest
from dliosim.execute.session import Session
from dliosim.execute.versions import numbers
from dliosim.measure.records import VerbRecord
from dliosim.model import Checkpoint, Dataset

#: Files that a node looks at to say how much of a data set is resident, spread evenly; one rank takes a share of them.
_LOOKED_AT = 1024


def drop_caches(session: Session) -> VerbRecord:
    """Drop the pages of every file of the workload on every node, and measure what stays. Collective."""
    world, record = session.world, VerbRecord()
    if session.options.null:
        return record
    begun = perf_counter_ns()

    def drop_own() -> None:
        with session.progress.during("drop caches", lambda: 0):
            for path in _files_of_node_rank(session):
                drop([path])
                record.files += 1
                session.progress.tick(perf_counter_ns(), 0, 0)

    world.together(drop_own)
    for dataset in session.workload.datasets:
        found, examined = resident_bytes(session, dataset)
        record.resident_bytes += found
        record.examined_bytes += examined
    record.wall_ns = perf_counter_ns() - begun
    return record


def resident_bytes(session: Session, dataset: Dataset) -> tuple[int, int]:
    """Bytes in this node's page cache, and bytes looked at, in this rank's share of up to 1024 files of a data set.

    Collective, because every rank hears of a file that is not there.
    """
    if session.options.null:
        return 0, 0
    return session.world.together(lambda: _look(session, dataset))


def _look(session: Session, dataset: Dataset) -> tuple[int, int]:
    directory = session.directory(dataset.root, dataset.path, dataset.digest())
    if read_manifest(directory) is None:
        return 0, 0
    node = session.world.node
    count = min(dataset.layout.files, _LOOKED_AT)
    chosen = np.arange(node.rank, count, node.size, dtype=np.int64) * dataset.layout.files // count
    pairs = [resident(directory / dataset.file_name(file)) for file in chosen.tolist()]
    return sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)


def _files_of_node_rank(session: Session) -> Iterator[Path]:
    """This rank's share of all files: each node drops all of them, its ranks by turns."""
    node = session.world.node
    for dataset in session.workload.datasets:
        directory = session.directory(dataset.root, dataset.path, dataset.digest())
        if read_manifest(directory) is None:
            continue  # nothing complete to forget; whoever reads it will say so
        for file in range(node.rank, dataset.layout.files, node.size):
            yield directory / dataset.file_name(file)
    if node.rank == 0:
        for checkpoint in session.workload.checkpoints:
            yield from _checkpoint_files(session, checkpoint)


def _checkpoint_files(session: Session, checkpoint: Checkpoint) -> Iterator[Path]:
    base = session.directory(checkpoint.root, checkpoint.path, checkpoint.digest(session.world.size))
    for number in numbers(base):
        directory = base / f"{number:06d}"
        yield from directory.iterdir()
