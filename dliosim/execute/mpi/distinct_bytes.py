"""How many bytes the ranks of a node asked for together: what several of them want, storage gives the node once."""

from __future__ import annotations

import numpy as np

from dliosim.execute.mpi.world import World
from dliosim.plan.samples.distinct_ranges import MOST_RANGES, ByteRanges, cut_at_blocks, union_ranges


def distinct_bytes(world: World, asked: ByteRanges | None) -> int:
    """This rank's share of the bytes that its node's ranks asked for, each byte counted on one of them.

    `asked` is what this rank asked for, with numbers of files that are the same on every rank; None where that are too
    many ranges to know. -1 on every rank of the node where one does not know. Collective over the node.
    """
    if world.node.size == 1:
        return -1 if asked is None or len(asked.file) > MOST_RANGES else asked.bytes
    none = np.empty(0, np.int64)
    cut, block = cut_at_blocks(ByteRanges(none, none, none) if asked is None else asked)
    owner = block % world.node.size
    order = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=world.node.size)
    if asked is None or len(owner) > MOST_RANGES:
        order, counts = order[:0], np.full(world.node.size, -1)
    table = world.node.alltoall_rows(np.column_stack(cut)[order], counts)
    return -1 if table is None else union_ranges(*table.T).bytes
