"""The distinct bytes that the ranks of a node asked for: storage serves a node once for what several read."""

from __future__ import annotations

import numpy as np

from dliosim.execute.mpi.world import World
from dliosim.plan.samples.read_ranges import MOST_RANGES, ByteRanges, cut_at_blocks, union_ranges


def distinct_bytes(world: World, asked: ByteRanges | None) -> int:
    """Return this rank's share of the bytes that its node's ranks asked for; each byte counts on one rank.

    `asked` has the ranges of this rank, with file numbers that are the same on every rank; None for more ranges than
    are counted. If one rank of the node does not know its ranges, all return -1. Collective over the node.
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
