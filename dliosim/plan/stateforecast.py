"""Forecasts of saving and of restoring a checkpoint."""

from __future__ import annotations

import numpy as np

from dliosim.errors import PlanError
from dliosim.model import Checkpoint, Restore
from dliosim.plan.figures import Memory, PhaseForecast, over, same
from dliosim.plan.reassembly import Reading
from dliosim.plan.stateamounts import staged_bytes
from dliosim.plan.statecounts import Needs, StateCounts
from dliosim.plan.statefiles import state_files

#: Ranks whose calls are counted; those of more are taken from so many, evenly spread.
_SAMPLED_RANKS = 256

#: Parts of owners that are looked at for one figure (a second), and for one rank alone: beyond these none is given.
_AFFORDABLE = 1 << 23
_MOST_OF_A_RANK = 1 << 25


def forecast_save(checkpoint: Checkpoint, ranks: int, times: int) -> PhaseForecast:
    """Writing a checkpoint: figures of the ranks that write, none of those that send to them."""
    files = state_files(checkpoint, checkpoint.split(ranks))
    access, whole = checkpoint.access, checkpoint.pieces == "whole"
    writers = files.writers()
    written = np.bincount(writers, files.owned_by_each(), ranks).astype(np.float64)
    # A shared file is opened by all, and each rank's share of it counts as its file.
    made = np.ones(ranks) if checkpoint.writers.kind == "shared file" else files.files_of_each()[0]
    counts = StateCounts(files, files.split)
    some = _some_ranks(ranks, len(files.parts))
    counted = [counts.count(counts.own(rank), access.transfer, whole, 1)[0] for rank in some]
    estimated = len(counted) < ranks
    made_by_each = [count.calls for count in counted]
    if estimated:  # a writer's calls are as many as its bytes take on the whole
        calls = written * (float(np.mean(made_by_each)) * ranks / max(1, int(written.sum())))
    else:
        calls = np.bincount(writers, made_by_each, ranks).astype(np.float64)
    # Past the page cache a call is up to three: what of it is whole pages, and what lies before and behind these.
    issued = over(calls, ranks, estimated or access.page > 1)
    if access.collective and checkpoint.writers.kind == "shared file":
        issued = same(issued.maximum, ranks, issued.estimated)
    largest = max(count.largest for count in counted)
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
    access, whole = checkpoint.access, checkpoint.pieces == "whole"

    counts = StateCounts(files, holder)

    def reading(needs: Needs) -> tuple[Reading, int]:
        return counts.count(needs, access.transfer, whole, access.page)

    def own(rank: int) -> tuple[Reading, int]:
        if verb.everything:
            return nothing if verb.once and rank else alike
        place = (rank + verb.shift) % ranks
        needs = counts.needs(place)
        if not verb.once:
            return reading(needs)
        lone = reading(needs.only(~counts.tensors))
        if holder.place(place)[2]:
            return lone
        shared, files_read = reading(needs.only(counts.tensors))[0], reading(needs)[1]
        return shared.and_then(lone[0]), files_read

    work = counts.stretches(counts.everything() if verb.everything else counts.needs(verb.shift % ranks))
    if work > _MOST_OF_A_RANK:
        text = f"restoring checkpoint `{checkpoint.name}`, a rank reads {work:.2g} pieces of tensors and files"
        raise PlanError(f"{text}: `plan` counts {_MOST_OF_A_RANK:.2g} at most")
    some = _some_ranks(ranks, 0 if verb.everything else work)
    nothing = Reading(0, 0, 0, 0), 0
    alike = reading(counts.everything()) if verb.everything else nothing
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


def _some_ranks(ranks: int, work: int) -> range:
    """Ranks whose calls are counted, where each is so many parts of owners to look at."""
    most = max(1, min(_SAMPLED_RANKS, _AFFORDABLE // max(1, work)))
    return range(0, ranks, -(-ranks // most))
