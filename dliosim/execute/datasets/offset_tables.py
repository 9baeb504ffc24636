"""Block totals of a data set of varying sizes: computed once by all ranks together, one copy a node."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dliosim.execute.context import Session
from dliosim.execute.datasets.file_list import FileNames, LinkedNames, share_existing_files
from dliosim.execute.datasets.index_build import shared_memory
from dliosim.execute.mpi.world import World
from dliosim.execute.node.free_space import require_memory
from dliosim.formats.registry import import_modules
from dliosim.model import Dataset
from dliosim.plan.samples.sample_index import DataIndex
from dliosim.plan.samples.sizes import block_count, block_totals, needs_totals
from dliosim.readable import count


def share_sample_places(sessions: Sequence[Session]) -> None:
    """Give each session what is needed to place the samples of its data sets, computed once for each. Collective.

    That is sums of sizes, and for existing files their names and indexes.
    """
    for session in sessions:
        session.world.run_on_all(partial(import_modules, session.workload.datasets))
    known: dict[str, NDArray[np.int64] | None] = {}
    found: dict[str, tuple[FileNames | LinkedNames, DataIndex]] = {}
    for session in sessions:
        for dataset in session.workload.datasets:
            digest = dataset.digest()
            if dataset.source:
                if digest not in found:
                    source = session.sources.get(dataset.found)
                    found[digest] = share_existing_files(session.world, session.roots[dataset.root], source)
                session.names[dataset.name], session.places[dataset.name] = found[digest]
                samples, files = count(dataset.samples, "sample"), count(dataset.layout.files, "file")
                session.index_notes[dataset.name] = (
                    f"found: {samples} in {files} of {dataset.source} ({dataset.format})"
                )
                continue
            if digest not in known:
                known[digest] = share_block_totals(dataset, session.world)
            session.places[dataset.name] = known[digest]


def share_block_totals(dataset: Dataset, world: World) -> NDArray[np.int64] | None:
    """Return prefix sums of the bytes of a data set's blocks, (blocks + 1,); None if offsets need none. Collective.

    The array is in memory that the ranks of a node share, since at 512 ranks copies would not fit. It is read-only and
    exists until the process ends. Raises ExecutionError [R402] on every rank where the memory is missing.
    """
    if not needs_totals(dataset):
        return None
    blocks = block_count(dataset)
    needed = -(-(blocks + 1) * 8 // world.node.size)
    what = f"sums of the sizes of the samples of `{dataset.name}`"
    world.run_on_all(lambda: require_memory(needed, world.node.size, what))
    prefix = shared_memory(world, blocks + 1)
    first, last = world.rank * blocks // world.size, (world.rank + 1) * blocks // world.size
    prefix[first + 1 : last + 1] = block_totals(dataset, first, last)
    world.barrier()
    if world.node.rank == 0:
        if world.nodes > 1:
            world.sum_over_nodes(prefix)
        np.cumsum(prefix, out=prefix)
    world.barrier()
    prefix.flags.writeable = False
    return prefix
