"""Forecasts of saving and of restoring a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from dliosim.model import Checkpoint, Restore
from dliosim.plan.figures import Memory, PhaseForecast, over, same
from dliosim.plan.reassembly import Fetch, Reading, count_steps, everything, fetches, lone_reads, shared_reads
from dliosim.plan.saving import count_pieces
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
    counted = {rank: count_pieces(files.shards(rank), access.transfer, whole) for rank in some}
    estimated = len(counted) < ranks
    made_by_each = [count.calls for count in counted.values()]
    if estimated:  # a writer's calls are as many as its bytes take on the whole
        calls = written * (float(np.mean(made_by_each)) * ranks / max(1, int(written.sum())))
    else:
        np.add.at(calls, [files.writer(rank) for rank in counted], made_by_each)
    # Past the page cache a call is up to three: what of it is whole pages, and what lies before and behind these.
    issued = over(calls, ranks, estimated or access.page > 1)
    if access.collective and checkpoint.writers.kind == "shared file":
        issued = same(issued.maximum, ranks, issued.estimated)
    largest = max(count.largest for count in counted.values())
    # A writer has what it sends itself beside what it receives.
    buffers = largest * (2 if checkpoint.writers.kind in ("one per", "rank") and ranks > 1 else 1)
    opens, memory = over(made, ranks, False), Memory(buffers=buffers, staging=staged_bytes(checkpoint, files))
    return PhaseForecast(
        "save", checkpoint.name, times, 1, same(0, ranks), over(written, ranks, False), opens, opens, issued, memory
    )


def forecast_restore(checkpoint: Checkpoint, verb: Restore, ranks: int, times: int) -> PhaseForecast:
    """Reading a checkpoint as `verb` says; with `once` only the first of the ranks that need the same reads it."""
    holder = verb.parallel or checkpoint.split(ranks)
    files = state_files(checkpoint, verb.written_by or checkpoint.split(ranks))
    some = range(0, ranks, -(-ranks // _SAMPLED_RANKS))
    access, whole = checkpoint.access, checkpoint.pieces == "whole"

    def reading(*passes: Iterator[Fetch]) -> tuple[Reading, int]:
        names: set[str] = set()
        total = Reading(0, 0, 0, 0)
        for found in passes:
            total = total.and_then(count_steps(_named(found, names), access.transfer, whole, access.page))
        return total, len(names)

    def own(rank: int) -> tuple[Reading, int]:
        if verb.everything:
            return nothing if verb.once and rank else alike
        place = (rank + verb.shift) % ranks
        if not verb.once:
            return reading(fetches(files, holder, place))
        shared = [] if holder.place(place)[2] else [shared_reads(files, holder, place)]
        return reading(*shared, lone_reads(files, holder, place))

    nothing, alike = reading(), reading(*([everything(files)] if verb.everything else []))
    found = [own(rank) for rank in some]
    estimated = len(found) < ranks
    read = over([count.bytes for count, _ in found], ranks, estimated)
    files_read = over([names for _, names in found], ranks, estimated)
    # Each rank looks into the file of all shards' places before anything else; one file is opened by all together by
    # MPI-IO, also by those that read nothing of it.
    together = access.is_mpi and files.one_file
    opens = over([(1 if together else names) + checkpoint.metadata for _, names in found], ranks, estimated)
    issued = over([count.calls for count, _ in found], ranks, estimated)
    if access.collective:
        issued = same(max(count.steps for count, _ in found), ranks, estimated)
    memory = Memory(buffers=max(count.largest for count, _ in found))
    none = same(0, ranks)
    return PhaseForecast(
        "restore", checkpoint.name, times, 1, none, read, files_read, opens, issued, memory, when=verb.how
    )


def _named(found: Iterable[Fetch], names: set[str]) -> Iterator[Fetch]:
    for fetch in found:
        names.add(fetch.file)
        yield fetch
