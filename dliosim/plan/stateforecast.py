"""Forecasts of saving and of restoring a checkpoint."""

from __future__ import annotations

import numpy as np

from dliosim.model import Checkpoint, Restore
from dliosim.plan.figures import Memory, PhaseForecast, over, same
from dliosim.plan.reassembly import Fetch, count_steps, fetches
from dliosim.plan.saving import largest_piece, pieces
from dliosim.plan.stateamounts import staged_bytes
from dliosim.plan.statefiles import state_files

#: Ranks whose calls are counted; those of more are taken from so many, evenly spread.
_SAMPLED_RANKS = 256


def forecast_save(checkpoint: Checkpoint, ranks: int, times: int) -> PhaseForecast:
    """Writing a checkpoint: figures of the ranks that write, none of those that send to them."""
    files = state_files(checkpoint, checkpoint.split(ranks))
    access, whole = checkpoint.access, checkpoint.pieces == "whole"
    written, made, calls = np.zeros(ranks), np.zeros(ranks), np.zeros(ranks)
    for rank in range(ranks):
        writer = files.writer(rank)
        written[writer] += files.owned_bytes(rank)
        # A shared file is opened by all, and each rank's share of it counts as its file.
        made[rank] = 1 if checkpoint.writers.kind == "shared file" else len(files.made_by(rank))
    some = range(0, ranks, -(-ranks // _SAMPLED_RANKS))
    counted = {rank: sum(1 for _ in pieces(files.shards(rank), access.transfer, whole)) for rank in some}
    estimated = len(counted) < ranks
    if estimated:  # a writer's calls are as many as its bytes take on the whole
        calls = written * (float(np.mean(list(counted.values()))) * ranks / max(1, int(written.sum())))
    else:
        np.add.at(calls, [files.writer(rank) for rank in counted], list(counted.values()))
    issued = over(calls, ranks, estimated)
    if access.collective and checkpoint.writers.kind == "shared file":
        issued = same(issued.maximum, ranks, issued.estimated)
    largest = max(largest_piece(files.shards(rank), access.transfer, whole) for rank in some)
    # A writer has what it sends itself beside what it receives.
    buffers = largest * (2 if checkpoint.writers.kind in ("one per", "rank") and ranks > 1 else 1)
    opens, memory = over(made, ranks, False), Memory(buffers=buffers, staging=staged_bytes(checkpoint, files))
    return PhaseForecast(
        "save", checkpoint.name, times, 1, same(0, ranks), over(written, ranks, False), opens, opens, issued, memory
    )


def forecast_restore(checkpoint: Checkpoint, verb: Restore, ranks: int, times: int) -> PhaseForecast:
    """Reading a checkpoint as `verb` says."""
    holder = verb.parallel or checkpoint.split(ranks)
    files = state_files(checkpoint, verb.written_by or checkpoint.split(ranks))
    some = range(0, ranks, -(-ranks // _SAMPLED_RANKS))
    found = [list(fetches(files, holder, (rank + verb.shift) % ranks, verb.everything)) for rank in some]
    estimated, access = len(found) < ranks, checkpoint.access
    read = over([sum(fetch.block.length for fetch in own) for own in found], ranks, estimated)
    opened = over([len({fetch.file for fetch in own}) for own in found], ranks, estimated)
    issued = over([_calls(own, access.transfer) for own in found], ranks, estimated)
    if access.collective:
        issued = same(max(count_steps(own, access.transfer) for own in found), ranks, estimated)
    lengths = (fetch.block.length for own in found for fetch in own)
    largest = max((min(length, access.transfer or length) for length in lengths), default=0)
    memory = Memory(buffers=largest)
    return PhaseForecast("restore", checkpoint.name, times, 1, same(0, ranks), read, opened, opened, issued, memory)


def _calls(found: list[Fetch], transfer: int | None) -> int:
    """Calls of reading, a row of a strided block each at least."""
    return sum(
        -(-fetch.block.length // (transfer or fetch.block.length))
        if fetch.contiguous
        else fetch.block.length // fetch.block.width * -(-fetch.block.width // (transfer or fetch.block.width))
        for fetch in found
    )
