"""Forecasts of saving and of restoring a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from dliosim.errors import PlanError
from dliosim.formats.protocols import Ints
from dliosim.model import Checkpoint, Restore
from dliosim.plan.checkpoints.layout import count_pieces, state_files
from dliosim.plan.checkpoints.reshard import (
    Reads,
    ReadTotals,
    count_steps,
    count_stored_blocks,
    restore_passes,
    whole_state_reads,
)
from dliosim.plan.checkpoints.shards import StoredBlock
from dliosim.plan.forecast.checkpoint_footprint import restore_bytes, staging_bytes
from dliosim.plan.forecast.forecast_types import PhaseForecast, RankSpread, spread_of, uniform_spread
from dliosim.plan.forecast.rank_memory import RankMemory

#: Ranks whose calls are counted, about; in larger jobs these ranks stand for the others.
_SAMPLED_RANKS = 256

#: Reads or shards that are counted for one figure, and for one rank; more for a rank are refused. One takes 7 to 50 us.
_AFFORDABLE = 1 << 16
_MOST_OF_A_RANK = 500_000


def choose_sample_ranks(kinds: Ints, work: int) -> tuple[list[int], Ints]:
    """Return the ranks to count, and for each rank of the job the index of the one that stands for it, int64 (ranks,).

    `kinds` has a number for each rank; ranks of one kind do the same. Each kind is represented by a rank, unless there
    are more kinds than ranks are counted: then a rank of a nearby kind stands for it. `work` is the number of reads or
    shards of each rank: the more there are, the fewer ranks are counted.
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
    some, instead = choose_sample_ranks(owned, len(files.parts))
    counted = np.array([count_pieces(files.shards(rank), access.transfer, whole) for rank in some])[instead]
    buffers = _write_buffers(counted[:, 1], owned, writers, ranks)
    calls = np.bincount(writers, counted[:, 0], ranks).astype(np.float64)
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

    def count_reads(passes: Sequence[Reads]) -> tuple[ReadTotals, int]:
        """Return the totals of some reads, and the number of files that they are in."""
        totals, names = ReadTotals(0, 0, 0, 0), set[str]()

        def note_files(found: Iterator[StoredBlock]) -> Iterator[StoredBlock]:
            for read in found:
                names.add(read.file)
                yield read

        for each in passes:
            totals = totals.combine(count_steps(note_files(each()), access.transfer, whole, access.page))
        return totals, len(names)

    def count_rank(rank: int) -> tuple[ReadTotals, int]:
        if verb.everything:
            return count_reads(()) if verb.once and rank else every_read
        passes = restore_passes(files, holder, verb, ranks, rank)
        return count_reads(passes if reads_for_others[rank] else passes[-1:])

    work = count_stored_blocks(files, holder, None if verb.everything else verb.shift % ranks)
    if work > _MOST_OF_A_RANK:
        text = f"restoring checkpoint `{checkpoint.name}`, a rank reads {work:.2g} pieces of tensors and files"
        raise PlanError(f"{text}: `plan` counts {_MOST_OF_A_RANK:.2g} at most")
    every_read = count_reads([lambda: whole_state_reads(files)] if verb.everything else ())
    some, instead = choose_sample_ranks((reads_for_others & verb.once).astype(np.int64), 0 if verb.everything else work)
    found = [count_rank(rank) for rank in some]
    estimated = len(found) < ranks and not verb.everything

    def spread(values: list[int]) -> RankSpread:
        return spread_of(np.array(values)[instead], ranks, estimated)

    read = spread([totals.bytes for totals, _ in found])
    if not verb.everything:
        total = restore_bytes(files, holder, verb.once)
        read = replace(read, mean=total / ranks, total=total)
    files_read = spread([names for _, names in found])
    # Each rank reads the metadata file first. With MPI-IO all ranks open one file together, also those that read
    # nothing from it.
    together = access.is_mpi and files.is_one_file
    opens = spread([(1 if together else names) + checkpoint.metadata for _, names in found])
    issued = spread([totals.calls for totals, _ in found])
    if access.collective:
        issued = uniform_spread(max(totals.steps for totals, _ in found), ranks, estimated)
    buffers = np.array([totals.largest for totals, _ in found])[instead]
    if verb.once and verb.sent:
        buffers = np.full(ranks, buffers.max())  # some of the ranks read, and the others receive
    memory, none = RankMemory(buffers=int(buffers.max())), uniform_spread(0, ranks)
    figures = none, read, files_read, opens, issued, memory
    return PhaseForecast("restore", checkpoint.name, times, 1, *figures, when=verb.option_text, rank_memory=buffers)
