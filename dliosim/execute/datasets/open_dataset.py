"""Open data sets: all ranks learn where samples are, once for each data set; a node keeps one copy of large tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dliosim import readable
from dliosim.errors import ExecutionError
from dliosim.execute.datasets.file_names import FileNames, JoinedNames
from dliosim.execute.io_errors import wrap_call
from dliosim.execute.mpi.shared_memory import SharedMemory
from dliosim.execute.mpi.world import World
from dliosim.execute.phases.context import DatasetFiles, OpenDataset, ReadFiles, Session
from dliosim.execute.phases.residency import MOST_READ, Residency, measure_residency, resident_share
from dliosim.execute.safe_open import require_file
from dliosim.execute.store.manifest import damage_error
from dliosim.formats.protocols import Column, FileIndex, Filter, Format, Framed
from dliosim.formats.registry import bind, import_modules
from dliosim.hashes import blake2b
from dliosim.model import Dataset, JoinedDataset
from dliosim.plan.forecast.layout_forecast import guess_places
from dliosim.plan.samples.joined_places import JoinedPlaces
from dliosim.plan.samples.places import FramedPlaces, IndexedPlaces, Places
from dliosim.plan.samples.sample_index import DataIndex, IndexColumn, first_of_units
from dliosim.plan.samples.sample_to_file import block_count, block_totals, first_samples, needs_totals, prefix_sum

if TYPE_CHECKING:
    from dliosim.formats.protocols import ExistingFiles

_FILE_FIELDS = 3  # samples, bytes, bytes of a sample by the library
_COLUMN_FIELDS = 7  # samples, pieces, row_bytes, unit_bytes, pipeline, units, whether units have first samples


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
    if isinstance(dataset, JoinedDataset):
        return _join_opened(dataset, [open_dataset(session, one) for one in dataset.joined])
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
        raise damage_error(dataset, f"{files.path(file)} holds {holds}, not {int(planned[file])}").mark_shared()
    return _add_places(files, IndexedPlaces(form, index), note)


def forget_dataset(session: Session, dataset: Dataset) -> None:
    """Forget where samples are: the data set is written again, and its index takes memory."""
    session.opened.pop(dataset, None)


def estimate_bytes(session: Session, dataset: Dataset) -> int:
    """Return the bytes of all files of a data set, an estimate if only files know places. Not collective."""
    if dataset in session.opened:
        return session.opened[dataset].places.total_bytes
    return guess_places(bind(dataset)).total_bytes


def _add_places(files: DatasetFiles, places: Places, note: str = "") -> OpenDataset:
    return OpenDataset(files.dataset, files.directory, files.name, places, note)


def _join_opened(dataset: JoinedDataset, opened: Sequence[OpenDataset]) -> OpenDataset:
    """Return several open data sets as one, with their files numbered through."""
    places = JoinedPlaces(dataset, tuple(one.places for one in opened))
    directories = [Path.cwd() / one.directory for one in opened]
    top = os.path.commonpath(directories)
    folders = [os.path.relpath(directory, top) for directory in directories]
    first = [member.first_file for member in places.members]
    name = JoinedNames(first, folders, [one.name for one in opened])
    return OpenDataset(dataset, Path(top), name, places, "; ".join(filter(None, (one.note for one in opened))))


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


def share_existing_files(world: World, root: Path, source: ExistingFiles | None) -> tuple[FileNames, DataIndex]:
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
    return FileNames(words.view(np.uint8), start, linked, os.path.realpath(root)), index


def measure_dataset_residency(session: Session, files: ReadFiles) -> Residency:
    """Measure the residency of complete files, as `measure_residency` does; nothing without I/O."""
    if session.options.null:
        return Residency()
    return measure_residency(session, lambda: resident_dataset_share(session, files, MOST_READ))


def resident_dataset_share(session: Session, files: ReadFiles, most: int) -> tuple[int, int]:
    """Return the bytes of files in the page cache, and the bytes examined, as `resident_share` does."""
    with report_damage(files):
        return resident_share(session, files.count, most, files.path)


@contextmanager
def report_damage(files: ReadFiles) -> Iterator[None]:
    """Raise an [R401] of the block, such as that of a missing file, as damage of the data set, with the remedy."""
    try:
        yield
    except ExecutionError as error:
        if error.code == "R401" and isinstance(files, DatasetFiles):
            raise damage_error(files.dataset, error.message) from error
        raise


def build_index(session: Session, files: DatasetFiles, index_of: Callable[[int], FileIndex]) -> tuple[DataIndex, str]:
    """Read the indexes of files by `index_of`, each on one rank, and share them; return them and a note. Collective.

    The arrays are in memory that the ranks of a node share, and are read-only. Raises ExecutionError on every rank.
    """
    world, dataset = session.world, files.dataset
    begun, count = perf_counter_ns(), dataset.layout.files
    own = range(world.rank, count, world.size)

    def read_own_indexes() -> list[FileIndex]:
        found = []
        with session.progress.track_bytes(f"index {dataset.name}", lambda: 0):
            for file in own:
                path = files.path(file)
                require_file(path)
                with wrap_call("open", path, reading=True):
                    found.append(index_of(file))
                session.progress.tick(perf_counter_ns(), 0, found[-1].touched)
        return found

    found = world.run_on_all(read_own_indexes)
    index = join_indexes(world, count, own, found)
    touched = int(world.allreduce(np.array([sum(one.touched for one in found)], np.int64), "sum")[0])
    took = readable.seconds((perf_counter_ns() - begun) * 1e-9)
    read = f"{readable.size(touched)} of {readable.count(count, 'file')}"
    return index, f"index: {read} read in {took}, before the clock started"


def join_indexes(
    world: World, files: int, own: range, found: list[FileIndex], others: tuple[NDArray[np.int64], ...] = ()
) -> DataIndex:
    """Join the indexes of `files` files into one, in memory that a node shares; this rank has those of files `own`.

    `others` are arrays of `shared_memory` that are completed with it. Collective. Raises ExecutionError [R401] on every
    rank if files differ in their number of columns.
    """
    wide = [len(one.columns) for one in found]
    extremes = world.allreduce(np.array([max(wide, default=0), -min(wide, default=1 << 30)]), "max").tolist()
    columns = extremes[0]
    if -extremes[1] != columns:
        text = f"files have {-extremes[1]} to {columns} data sets or columns: name those that all of them have"
        raise ExecutionError(text, "R401").mark_shared()
    for other in others:
        complete_table(world, other)
    fields = _share_fields(world, files, own, found, columns)
    of_columns = fields[_FILE_FIELDS:].reshape(columns, _COLUMN_FIELDS, files)
    pipelines = _share_pipelines(world, np.unique(of_columns[:, 4]), found)
    first_sample = prefix_sum(fields[0])
    known = {_pipeline_id(filters): row for row, filters in enumerate(pipelines)}
    made = []
    for number, (samples, pieces, row_bytes, unit_bytes, filters, units, firsts) in enumerate(of_columns):
        first_unit = prefix_sum(units)
        shared = _share_units(world, own, first_unit, first_sample, [one.columns[number] for one in found])
        first = shared[2] if firsts.any() else None
        pipeline = np.array([known[one] for one in filters.tolist()], np.int64)
        made.append(
            IndexColumn(samples, pieces, row_bytes, unit_bytes, pipeline, first_unit, shared[0], shared[1], first)
        )
    return DataIndex(first_sample, fields[1], tuple(made), pipelines, fields[2])


def _share_fields(world: World, files: int, own: range, found: list[FileIndex], columns: int) -> NDArray[np.int64]:
    """Return a table (fields, files): samples, bytes, bytes of a sample by the library, then fields of each column."""
    rows = _FILE_FIELDS + columns * _COLUMN_FIELDS
    table = shared_memory(world, rows * files).reshape(rows, files)
    for file, one in zip(own, found, strict=True):
        fields = [one.samples, one.size, one.sample_bytes]
        for column in one.columns:
            fields += column.samples, column.pieces, column.row_bytes, column.unit_bytes
            fields += _pipeline_id(column.filters), len(column.offset), column.first is not None
        table[:, file] = fields
    complete_table(world, table)
    return table


def _share_units(
    world: World, own: range, first_unit: NDArray[np.int64], first_sample: NDArray[np.int64], found: list[Column]
) -> NDArray[np.int64]:
    """Return offset, length and first sample of every unit of one column; (3, units)."""
    units = int(first_unit[-1])
    table = shared_memory(world, 3 * units).reshape(3, units)
    for file, column in zip(own, found, strict=True):
        place = slice(int(first_unit[file]), int(first_unit[file + 1]))
        table[0, place], table[1, place] = column.offset, column.length
        table[2, place] = first_of_units(column) + first_sample[file]
    complete_table(world, table)
    return table


def _share_pipelines(
    world: World, numbers: NDArray[np.int64], found: list[FileIndex]
) -> tuple[tuple[Filter, ...], ...]:
    """Return the pipelines of filters of these numbers, each from the lowest rank that has read a file with it."""
    result: list[tuple[Filter, ...]] = []
    mine = {_pipeline_id(column.filters): column.filters for one in found for column in one.columns}
    for number in numbers.tolist():
        holder = np.array([world.rank if number in mine else world.size], np.int64)
        source = int(world.allreduce(holder, "min")[0])
        result.append(world.broadcast_object(mine.get(number) if world.rank == source else None, source))
    return tuple(result)


def _pipeline_id(filters: tuple[Filter, ...]) -> int:
    """Return a number (56 bits) that stands for a pipeline in an array of int64."""
    text = repr([(one.name, one.parameters) for one in filters])
    return int.from_bytes(blake2b(text.encode(), digest_size=7).digest(), "little")


def shared_memory(world: World, count: int) -> NDArray[np.int64]:
    """Make `count` zeros in memory that the ranks of a node share. Collective."""
    return np.frombuffer(SharedMemory(world.node.comm, max(count, 1) * 8).view, np.int64, count)


def complete_table(world: World, table: NDArray[np.int64], sums: bool = False) -> None:
    """Wait for the rows of every rank, add those of other nodes, and with `sums` sum them up. Collective."""
    world.barrier()
    if world.node.rank == 0:
        if world.nodes > 1:
            world.sum_over_nodes(table)
        if sums:
            np.cumsum(table, out=table)
    world.barrier()
    table.flags.writeable = False
