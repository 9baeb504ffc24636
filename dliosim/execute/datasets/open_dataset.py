"""Open data sets: all ranks learn where samples are, once for each data set; a node keeps one copy of large tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dliosim import readable
from dliosim.errors import ExecutionError
from dliosim.execute.datasets.dataset_manifest import damage_error
from dliosim.execute.datasets.index_build import build_index, complete_table, join_indexes, shared_memory
from dliosim.execute.mpi.world import World
from dliosim.execute.phases.context import DatasetFiles, OpenDataset, Session
from dliosim.execute.phases.residency import MOST_READ, Residency, measure_residency, resident_share
from dliosim.execute.safe_open import follow_to_file
from dliosim.formats.protocols import FileIndex, Format, Framed
from dliosim.formats.registry import bind, import_modules
from dliosim.model import Dataset
from dliosim.plan.forecast.layout_forecast import guess_places
from dliosim.plan.samples.places import FramedPlaces, IndexedPlaces, Places
from dliosim.plan.samples.sample_index import DataIndex
from dliosim.plan.samples.sample_to_file import first_samples
from dliosim.plan.samples.sizes import block_count, block_totals, needs_totals

if TYPE_CHECKING:
    from dliosim.formats.protocols import ExistingFiles


def open_known_datasets(sessions: Sequence[Session]) -> None:
    """Open the data sets of workloads whose samples have known places before they are written. Collective."""
    for session in sessions:
        session.world.run_on_all(partial(import_modules, session.workload.datasets))
        for dataset in session.workload.datasets:
            open_planned(session, dataset)


def open_planned(session: Session, dataset: Dataset) -> OpenDataset | None:
    """Open a data set whose samples have known places before they are written; return None for others. Collective."""
    return open_dataset(session, dataset) if dataset.source or not bind(dataset).needs_index else None


def open_dataset(session: Session, dataset: Dataset) -> OpenDataset:
    """Return a data set with the places of its samples. Collective.

    A data set that was opened before is returned as it was. If only the files know places, their indexes are read:
    they must be complete, except without I/O. Raises ExecutionError on every rank.
    """
    if dataset not in session.opened:
        opened = _open_existing(session, dataset) if dataset.source else open_files(session, session.files(dataset))
        session.opened[dataset] = opened
    return session.opened[dataset]


def open_files(session: Session, files: DatasetFiles) -> OpenDataset:
    """Return files that dliosim has written, or will write, with the places of their samples; as `open_dataset`."""
    form = bind(files.dataset)
    if isinstance(form, Framed):
        return _add_places(files, FramedPlaces(form, _share_block_totals(form, session.world)))
    if session.options.null:  # there may be no file whose index can be read
        return _add_places(files, guess_places(form))
    return open_indexed(session, form, files, lambda file: form.index(files.path(file)))


def open_indexed(
    session: Session, form: Format, files: DatasetFiles, index_of: Callable[[int], FileIndex]
) -> OpenDataset:
    """Return files by their indexes, which `index_of` returns; each is read by one rank. Collective.

    Raises ExecutionError on every rank, [R401] if a file has other samples.
    """
    dataset, count = form.dataset, form.dataset.layout.files
    index, note = build_index(session, files, index_of)
    first = index.first_sample
    planned = np.diff(first_samples(np.arange(count + 1), dataset.samples, count))
    wrong = np.flatnonzero(np.diff(first) != planned)
    if len(wrong):
        file = int(wrong[0])
        holds = readable.count(int(first[file + 1] - first[file]), "sample")
        failure = damage_error(dataset, f"{files.path(file)} holds {holds}, not {int(planned[file])}")
        failure.shared = True
        raise failure
    return _add_places(files, IndexedPlaces(form, index), note)


def forget_dataset(session: Session, dataset: Dataset) -> None:
    """Forget where samples are: the data set is written again, and its index takes memory."""
    session.opened.pop(dataset, None)


def open_laid_out(session: Session, form: Format, index_of: Callable[[int], FileIndex]) -> None:
    """Open a data set whose files have just been made, and have the indexes of `index_of`. As `open_indexed`."""
    forget_dataset(session, form.dataset)
    session.opened[form.dataset] = open_indexed(session, form, session.files(form.dataset), index_of)


def estimate_bytes(session: Session, dataset: Dataset) -> int:
    """Return the bytes of all files of a data set, an estimate if only files know places. Not collective."""
    if dataset in session.opened:
        return session.opened[dataset].places.total_bytes
    return guess_places(bind(dataset)).total_bytes


def _add_places(files: DatasetFiles, places: Places, note: str = "") -> OpenDataset:
    return OpenDataset(files.dataset, files.directory, files.name, places, note)


def _open_existing(session: Session, dataset: Dataset) -> OpenDataset:
    """Share the existing files that rank 0 has found."""
    root = session.roots[dataset.root]
    names, index = share_existing_files(session.world, root, session.sources.get(dataset.found))
    samples, files = readable.count(dataset.samples, "sample"), readable.count(dataset.layout.files, "file")
    note = f"found: {samples} in {files} of {dataset.source} ({dataset.format})"
    return OpenDataset(dataset, root, names, IndexedPlaces(bind(dataset), index), note)


def _share_block_totals(form: Framed, world: World) -> NDArray[np.int64] | None:
    """Return prefix sums of the bytes of a data set's blocks, (blocks + 1,); None if offsets need none. Collective.

    The array is in memory that the ranks of a node share, since at 512 ranks copies would not fit. It is read-only and
    exists until the process ends. Raises ExecutionError [R402] on every rank if the memory is missing.
    """
    dataset = form.dataset
    if not needs_totals(dataset):
        return None
    blocks = block_count(dataset)
    what = f"sums of the sizes of the samples of `{dataset.name}`"
    world.require_memory((blocks + 1) * 8 if world.node.rank == 0 else 0, what)
    prefix = shared_memory(world, blocks + 1)
    first, last = world.rank * blocks // world.size, (world.rank + 1) * blocks // world.size
    prefix[first + 1 : last + 1] = block_totals(form, first, last)
    complete_table(world, prefix, sums=True)
    return prefix


@dataclass(frozen=True, slots=True)
class FileNames:
    """Names of files in memory that the ranks of a node share: name f is bytes start[f]:start[f + 1] of `text`."""

    #: all names, encoded; (bytes,)
    text: NDArray[np.uint8]
    #: where each name begins in `text`; (files + 1,)
    start: NDArray[np.int64]

    def __call__(self, file: int) -> str:
        """Return the path of a file below its root."""
        return os.fsdecode(self.text[int(self.start[file]) : int(self.start[file + 1])].tobytes())


@dataclass(frozen=True, slots=True)
class LinkedNames:
    """Names of files, with symbolic links on the way to some: each rank looks these up again to open such a file."""

    #: returns the path of a file below the root
    names: Callable[[int], str]
    #: 1 if links lead to the file, else 0; (files,)
    linked: NDArray[np.int64]
    #: path of the root, without links
    root: str

    def __call__(self, file: int) -> str:
        """Return the path of a file below the root, without links.

        Raises ExecutionError [R401], see `follow_to_file`.
        """
        name = self.names(file)
        return follow_to_file(self.root, name) if self.linked[file] else name


def share_existing_files(
    world: World, root: Path, source: ExistingFiles | None
) -> tuple[FileNames | LinkedNames, DataIndex]:
    """Give all ranks what rank 0 has found below `root`: names and index. Collective."""
    encoded = [os.fsencode(name) for name in source.names] if source is not None else []
    links = sum(source.linked) if source is not None else 0
    counts = world.broadcast_object([len(encoded), sum(map(len, encoded)), links] if world.rank == 0 else None)
    files, size, links = counts
    start = shared_memory(world, files + 1)
    words = shared_memory(world, -(-size // 8))
    if source is not None:
        start[1:] = np.cumsum([len(name) for name in encoded])
        words.view(np.uint8)[:size] = np.frombuffer(b"".join(encoded), np.uint8)
    linked = shared_memory(world, files if links else 0)
    if source is not None and links:
        linked[:] = source.linked
    indexes = source.indexes if source is not None else []
    index = join_indexes(world, files, range(len(indexes)), indexes, (start, words, linked))
    names = FileNames(words.view(np.uint8), start)
    return (LinkedNames(names, linked, os.path.realpath(root)) if links else names), index


def measure_dataset_residency(session: Session, dataset: Dataset) -> Residency:
    """Measure the residency of a complete data set, as `measure_residency` does; nothing without I/O."""
    if session.options.null:
        return Residency()
    return measure_residency(session, lambda: resident_dataset_share(session, dataset, MOST_READ))


def resident_dataset_share(session: Session, dataset: Dataset, most: int) -> tuple[int, int]:
    """Return the bytes of a data set in the page cache, and the bytes examined, as `resident_share` does."""
    with report_damage(dataset):
        return resident_share(session, dataset.layout.files, most, session.files(dataset).path)


@contextmanager
def report_damage(dataset: Dataset) -> Iterator[None]:
    """Raise an [R401] of the block, such as that of a missing file, as damage of the data set, with the remedy."""
    try:
        yield
    except ExecutionError as error:
        if error.code == "R401":
            raise damage_error(dataset, error.message) from error
        raise
