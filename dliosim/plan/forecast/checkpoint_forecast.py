"""Forecasts of saving and of restoring a checkpoint."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dliosim.errors import PlanError
from dliosim.formats.protocols import Ints
from dliosim.model import Checkpoint, Restore
from dliosim.plan.checkpoints.layout import state_files
from dliosim.plan.checkpoints.reshard import ReadTotals
from dliosim.plan.forecast.checkpoint_columns import StateCounter, UnitRanges
from dliosim.plan.forecast.checkpoint_footprint import restore_bytes, staging_bytes
from dliosim.plan.forecast.forecast_types import PhaseForecast, RankSpread, spread_of, uniform_spread
from dliosim.plan.forecast.rank_memory import RankMemory

#: Ranks whose calls are counted, about; in larger jobs these ranks stand for the others.
_SAMPLED_RANKS = 256

#: Pairs (part, owner) that are handled for one figure (one second), and for one rank; more for a rank are refused.
_AFFORDABLE = 1 << 23
_MOST_OF_A_RANK = 1 << 25


def choose_sample_ranks(kinds: Ints, work: int) -> tuple[list[int], Ints]:
    """Return the ranks to count, and for each rank of the job the index of the one that stands for it, int64 (ranks,).

    `kinds` has a number for each rank; ranks of one kind do the same. Each kind is represented by a rank, unless there
    are more kinds than ranks are counted: then a rank of a nearby kind stands for it. `work` is the number of (part,
    owner) pairs for each rank: the more there are, the fewer ranks are counted.
    """
    order = np.argsort(kinds, kind="stable")
    most = max(1, min(_SAMPLED_RANKS, _AFFORDABLE // max(1, work)))
    chosen = np.linspace(0, len(kinds) - 1, min(len(kinds), most)).round().astype(np.int64)
    first = np.unique(kinds[order], return_index=True)[1]
    if len(first) <= most:
        chosen = np.union1d(chosen, first)
    instead = np.empty(len(kinds), np.int64)
    instead[order] = np.searchsorted(chosen, np.arange(len(kinds)), side="right") - 1
    return order[chosen].tolist(), instead


def forecast_save(checkpoint: Checkpoint, ranks: int, times: int) -> PhaseForecast:
    """Forecast writing a checkpoint: figures of the ranks that write, not of those that only send to them."""
    files = state_files(checkpoint, checkpoint.split(ranks))
    access, whole = checkpoint.access, checkpoint.pieces == "whole"
    owned, writers = files.bytes_per_owner(), files.writers()
    written = np.bincount(writers, owned, ranks).astype(np.float64)
    # All ranks open a shared file, and it counts as a file of each.
    shared = checkpoint.writers.kind == "shared file"
    made = np.ones(ranks) if shared else files.files_per_rank()[0]
    counts = StateCounter(files, files.split)
    some, instead = choose_sample_ranks(owned, len(files.parts))
    counted = [counts.count(counts.own_units(rank), access.transfer, whole, 1)[0] for rank in some]
    buffers = _write_buffers(np.array([count.largest for count in counted])[instead], owned, writers, ranks)
    calls = np.bincount(writers, np.array([count.calls for count in counted])[instead], ranks).astype(np.float64)
    estimated = bool(np.count_nonzero(owned[some]) < np.count_nonzero(owned))
    # With O_DIRECT one call becomes up to three: its whole pages, and the bytes before and after them.
    issued = spread_of(calls, ranks, estimated or access.page > 1)
    if access.collective and shared:
        issued = uniform_spread(issued.maximum, ranks, issued.estimated)
    staging = int(staging_bytes(checkpoint, files).max())
    opens, memory = spread_of(made, ranks, False), RankMemory(buffers=int(buffers.max()), staging=staging)
    return PhaseForecast(
        "save",
        checkpoint.name,
        times,
        1,
        uniform_spread(0, ranks),
        spread_of(written, ranks, False),
        opens,
        opens,
        issued,
        memory,
        rank_memory=buffers,
    )


def _write_buffers(largest: Ints, owned: Ints, writers: Ints, ranks: int) -> Ints:
    """Return the bytes of write buffers of each rank, int64 (ranks,): of its own calls, and of those it receives.

    `largest` is the largest call of what each rank saves; `owned` and `writers` as in `StateFiles`.
    """
    own, received = np.zeros(ranks, np.int64), np.zeros(ranks, np.int64)
    own[: len(owned)] = np.where(owned > 0, largest, 0)
    sent = writers != np.arange(len(writers))
    np.maximum.at(received, writers[sent], own[: len(owned)][sent])
    return own + received


def forecast_restore(checkpoint: Checkpoint, verb: Restore, ranks: int, times: int) -> PhaseForecast:
    """Forecast reading a checkpoint as `verb` says.

    With `once` only the first of the ranks that need the same bytes reads them. Raises PlanError if a rank has too
    many reads to count.
    """
    holder = verb.parallel or checkpoint.split(ranks)
    files = state_files(checkpoint, verb.written_by or checkpoint.split(ranks))
    access, whole = checkpoint.access, checkpoint.pieces == "whole"
    places = (np.arange(ranks) + verb.shift) % ranks
    reads_for_others = np.arange(ranks) == 0 if verb.everything else places // holder.data_stride % holder.data == 0
    counts = StateCounter(files, holder)

    def count_units(needs: UnitRanges) -> tuple[ReadTotals, int]:
        return counts.count(needs, access.transfer, whole, access.page)

    def count_rank(rank: int) -> tuple[ReadTotals, int]:
        if verb.everything:
            return nothing if verb.once and rank else every_unit
        place = int(places[rank])
        needs = counts.units_to_restore(place)
        if not verb.once or (not verb.sent and not holder.coordinates(place)[2]):
            return count_units(needs)
        lone = count_units(needs.keep_parts(~counts.tensors))
        if holder.coordinates(place)[2]:
            return lone
        shared, files_read = count_units(needs.keep_parts(counts.tensors))[0], count_units(needs)[1]
        return shared.combine(lone[0]), files_read

    work = counts.count_stretches(
        counts.all_units() if verb.everything else counts.units_to_restore(verb.shift % ranks)
    )
    if work > _MOST_OF_A_RANK:
        text = f"restoring checkpoint `{checkpoint.name}`, a rank reads {work:.2g} pieces of tensors and files"
        raise PlanError(f"{text}: `plan` counts {_MOST_OF_A_RANK:.2g} at most")
    some, instead = choose_sample_ranks((reads_for_others & verb.once).astype(np.int64), 0 if verb.everything else work)
    nothing = ReadTotals(0, 0, 0, 0), 0
    every_unit = count_units(counts.all_units()) if verb.everything else nothing
    found = [count_rank(rank) for rank in some]
    estimated = len(found) < ranks and not verb.everything

    def spread(values: list[int]) -> RankSpread:
        return spread_of(np.array(values)[instead], ranks, estimated)

    read = spread([count.bytes for count, _ in found])
    if not verb.everything:
        total = restore_bytes(files, holder, verb.once)
        read = replace(read, mean=total / ranks, total=total)
    files_read = spread([names for _, names in found])
    # Each rank reads the metadata file first. With MPI-IO all ranks open one file together, also those that read
    # nothing from it.
    together = access.is_mpi and files.is_one_file
    opens = spread([(1 if together else names) + checkpoint.metadata for _, names in found])
    issued = spread([count.calls for count, _ in found])
    if access.collective:
        issued = uniform_spread(max(count.steps for count, _ in found), ranks, estimated)
    buffers = np.array([count.largest for count, _ in found])[instead]
    if verb.once and verb.sent:
        buffers = np.full(ranks, buffers.max())  # some of the ranks read, and the others receive
    memory, none = RankMemory(buffers=int(buffers.max())), uniform_spread(0, ranks)
    figures = none, read, files_read, opens, issued, memory
    return PhaseForecast("restore", checkpoint.name, times, 1, *figures, when=verb.option_text, rank_memory=buffers)
