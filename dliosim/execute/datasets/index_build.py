"""Build the index of samples whose places only their files know: one rank reads each file, nodes share the result."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns

import numpy as np
from numpy.typing import NDArray

from dliosim import readable
from dliosim.errors import ExecutionError
from dliosim.execute.io_errors import wrap_call
from dliosim.execute.mpi.shared_memory import SharedMemory
from dliosim.execute.mpi.world import World
from dliosim.execute.phases.context import DatasetFiles, Session
from dliosim.execute.safe_open import require_file
from dliosim.formats.protocols import Column, FileIndex, Filter
from dliosim.hashes import blake2b
from dliosim.plan.samples.sample_index import DataIndex, IndexColumn, first_of_units
from dliosim.plan.samples.sizes import prefix_sum

_FILE_FIELDS = 3  # samples, bytes, bytes of a sample by the library
_COLUMN_FIELDS = 7  # samples, pieces, row_bytes, unit_bytes, pipeline, units, whether units have first samples


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
    world: World,
    files: int,
    own: range,
    found: list[FileIndex],
    others: tuple[NDArray[np.int64], ...] = (),
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
        failure = ExecutionError(text, "R401")
        failure.shared = True
        raise failure
    for other in others:
        complete_table(world, other)
    fields = _share_fields(world, files, own, found, columns)
    pipelines = _share_pipelines(world, fields, found, columns)
    first_sample = prefix_sum(fields[:, 0])
    known = {_pipeline_id(filters): row for row, filters in enumerate(pipelines)}
    made = []
    for number in range(columns):
        field = fields[:, _FILE_FIELDS + number * _COLUMN_FIELDS :][:, :_COLUMN_FIELDS]
        first_unit = prefix_sum(field[:, 5])
        units = _share_units(world, own, first_unit, first_sample, [one.columns[number] for one in found])
        first = units[2] if field[:, 6].any() else None
        pipeline = np.array([known[one] for one in field[:, 4].tolist()], np.int64)
        samples, pieces, row_bytes, unit_bytes = field.T[:4]
        made.append(
            IndexColumn(samples, pieces, row_bytes, unit_bytes, pipeline, first_unit, units[0], units[1], first)
        )
    return DataIndex(first_sample, fields[:, 1], tuple(made), pipelines, fields[:, 2])


def _share_fields(world: World, files: int, own: range, found: list[FileIndex], columns: int) -> NDArray[np.int64]:
    """Return a table with one row a file: samples, bytes, bytes of a sample by the library, fields of each column."""
    width = _FILE_FIELDS + columns * _COLUMN_FIELDS
    table = shared_memory(world, files * width).reshape(files, width)
    for file, one in zip(own, found, strict=True):
        table[file, :_FILE_FIELDS] = one.samples, one.size, one.sample_bytes
        for number, column in enumerate(one.columns):
            first = _FILE_FIELDS + number * _COLUMN_FIELDS
            table[file, first : first + _COLUMN_FIELDS] = (
                column.samples,
                column.pieces,
                column.row_bytes,
                column.unit_bytes,
                _pipeline_id(column.filters),
                len(column.offset),
                column.first is not None,
            )
    complete_table(world, table)
    return table


def _share_units(
    world: World,
    own: range,
    first_unit: NDArray[np.int64],
    first_sample: NDArray[np.int64],
    found: list[Column],
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
    world: World, fields: NDArray[np.int64], found: list[FileIndex], columns: int
) -> tuple[tuple[Filter, ...], ...]:
    """Return every pipeline of filters that occurs, from the lowest rank that has read a file with it."""
    places = [_FILE_FIELDS + number * _COLUMN_FIELDS + 4 for number in range(columns)]
    numbers = np.unique(fields[:, places])
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
