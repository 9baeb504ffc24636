"""Saves of checkpoints and restores: their number, their calls, and the memory and storage that they need."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import PlanError
from dliosim.formats.protocols import Ints
from dliosim.model import Checkpoint, Restore, Split, Workload
from dliosim.model.epoch_size import steps_of_epoch
from dliosim.model.verbs import Cadence, Loop, Save, count_due_saves, flatten_verbs
from dliosim.plan.checkpoints import reshard
from dliosim.plan.checkpoints.layout import METADATA, StateFiles, count_pieces, state_files
from dliosim.plan.checkpoints.shards import ShardSizes, StoredBlock, part_bytes
from dliosim.plan.forecast.forecast_types import (
    PhaseForecast,
    RankSpread,
    StateForecast,
    Storage,
    spread_of,
    uniform_spread,
)
from dliosim.plan.forecast.layout_forecast import mean_compute
from dliosim.plan.forecast.rank_memory import RankMemory

#: Largest sum of bytes over ranks that is counted, so that 64 bits hold it.
_MOST_BYTES = 1 << 62


def staging_bytes(checkpoint: Checkpoint, files: StateFiles) -> NDArray[np.int64]:
    """Return the bytes of buffers in which background saves wait for their flush; int64 (ranks that take part,)."""
    background, owned = checkpoint.background, files.bytes_per_owner()
    return owned * (0 if background is None or background.simulated else background.in_flight)


def forecast_state(checkpoint: Checkpoint, ranks: int, saves: int) -> StateForecast:
    """Return the content of one of `saves` saves of a checkpoint."""
    files = state_files(checkpoint, checkpoint.split(ranks))
    kinds: Counter[str] = Counter()
    for label, number in files.files_per_rank()[1].items():
        kinds[re.sub("[^a-z].*", "", label)] += number  # `layer` for `layer_012`
    if checkpoint.metadata:
        kinds[METADATA] += 1
    own = len(files.parts) - len(checkpoint.parts)
    labels = [
        part.name if number >= own else "optimizer" if part.file == "optimizer" else "weights"
        for number, part in enumerate(files.parts)
    ]
    contents = Counter(dict.fromkeys(labels, 0))
    saved = files.shares.bytes_below(files.split.present_ranks)
    for label, size in zip(labels, saved.tolist(), strict=True):
        contents[label] += size
    owned = files.bytes_per_owner()
    writers = len(np.unique(files.writers()[owned > 0]))
    return StateForecast(
        checkpoint.name,
        saves,
        tuple(contents.items()),
        tuple(kinds.items()),
        writers,
        int(owned.max()),
        restore_bytes(files, files.split, once=False),
        checkpoint.describe_part(files.split),
    )


@lru_cache(maxsize=16)
def complete_times(checkpoint: Checkpoint, ranks: int) -> tuple[float, int]:
    """Return full checkpoint bytes / bytes of the part that `ranks` ranks save, and the ranks that save all of it."""
    whole, part = checkpoint.complete(ranks), forecast_state(checkpoint, ranks, 1).bytes
    everyone = whole.split(ranks).ranks
    return (forecast_state(whole, everyone, 1).bytes / part if part else 1.0), everyone


def restore_bytes(files: StateFiles, holder: Split, once: bool) -> int:
    """Return the bytes that all ranks read when they restore the state as `holder`; with `once` replicas count once.

    Raises PlanError if the sum may be too large to count.
    """
    written = files.split
    parts = [
        # The ranks of another split do not match those that saved it: its bytes are dealt again, evenly.
        replace(part, size=part_bytes(part, written), scope="total")
        if part.scope == "per rank" and holder != written
        else part
        for part in files.checkpoint.parts_for(holder)
    ]
    most = sum(
        part_bytes(part, holder) * (1 if part.scope in ("per rank", "total") else holder.present_ranks)
        for part in parts
    )
    if most >= _MOST_BYTES:
        text = (
            f"{holder.present_ranks} ranks that restore checkpoint `{files.checkpoint.name}` may read "
            f"{most / 1e18:.3g} EB"
        )
        raise PlanError(f"{text}: `plan` counts to {_MOST_BYTES / 1e18:.3g} EB")
    return int(ShardSizes(parts, holder, 0 if once else "all").bytes_below(holder.present_ranks).sum())


def storage_of(checkpoint: Checkpoint, state: StateForecast) -> Iterator[Storage]:
    """Yield the largest space that saves take on the root of the checkpoint, and on the root they are drained to."""

    def copies(unfinished: int) -> int:
        # New checkpoints are complete before the oldest one is deleted.
        return state.saves if checkpoint.keep is None else min(state.saves, checkpoint.keep + unfinished)

    name, count = checkpoint.name, sum(number for _, number in state.files)
    # A partner's copies are on the same root as the originals.
    times = 1 if checkpoint.partner is None else 2
    flying = checkpoint.background.in_flight if checkpoint.background else 1
    yield Storage("checkpoint", name, checkpoint.root, times * state.bytes, times * count, copies(flying), False)
    if checkpoint.drain is not None:
        yield Storage("checkpoint", name, checkpoint.drain, state.bytes, count, copies(1), False)


def count_saves(loop: Loop, cadence: Cadence, steps: int) -> int:
    """Return the saves in one run of a loop whose epochs have `steps` steps, if no time limit ends it.

    For `every D` it is the smallest number: the saves that fit into the compute time alone.
    """
    counted = count_due_saves(loop, cadence, steps)
    if counted is not None:
        return counted
    compute = mean_compute(loop.compute, loop.batch)
    return loop.epochs * steps // math.ceil(cadence.seconds / compute) if compute > 0 else 0


def save_intervals(workload: Workload, checkpoint: str) -> Iterator[tuple[Cadence, float | None]]:
    """Yield when loops save a checkpoint, and the mean compute seconds between two saves; None if it is not known."""
    for verb, _ in flatten_verbs(workload.verbs):
        if isinstance(verb, Loop):
            steps = steps_of_epoch(verb, workload.read_dataset(verb), workload.job.ranks)
            for cadence in verb.checkpoints:
                if cadence.checkpoint == checkpoint:
                    yield cadence, _save_interval(verb, cadence, steps)


def _save_interval(loop: Loop, cadence: Cadence, steps: int) -> float | None:
    if cadence.unit == "seconds":
        return cadence.seconds
    if cadence.unit == "end":
        return None
    count = cadence.every * (1 if cadence.unit == "steps" else steps)
    return count * mean_compute(loop.compute, loop.batch) or None


def minimum_saves(workload: Workload) -> Counter[str]:
    """Return the least number of saves of each checkpoint; a loop with `for` TIME is only sure of its last save."""
    counted: Counter[str] = Counter()
    for verb, times in flatten_verbs(workload.verbs):
        if isinstance(verb, Save):
            counted[verb.checkpoint] += times
        elif isinstance(verb, Loop):
            steps = steps_of_epoch(verb, workload.read_dataset(verb), workload.job.ranks)
            for cadence in verb.checkpoints:
                if verb.seconds is None or cadence.unit == "end":
                    counted[cadence.checkpoint] += times * count_saves(verb, cadence, steps)
    return counted


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

    def count_reads(passes: Sequence[reshard.Reads]) -> tuple[reshard.ReadTotals, int]:
        """Return the totals of some reads, and the number of files that they are in."""
        totals, names = reshard.ReadTotals(0, 0, 0, 0), set[str]()

        def note_files(found: Iterator[StoredBlock]) -> Iterator[StoredBlock]:
            for read in found:
                names.add(read.file)
                yield read

        for each in passes:
            totals = totals.combine(reshard.count_steps(note_files(each()), access.transfer, whole, access.page))
        if verb.through == "mmap":
            totals = totals._replace(calls=totals.steps)
        if verb.ahead:  # all of each file, in calls of the buffer's size
            sizes = (files.size(name, maker) for name, maker in files.files() if name in names)
            more = sum(-(-size // totals.largest) for size in sizes)
            totals = totals._replace(calls=totals.calls + more)
        return totals, len(names)

    def count_rank(rank: int) -> tuple[reshard.ReadTotals, int]:
        if verb.by_file:
            return count_reads([dealt[rank]])
        if verb.everything:
            return count_reads(()) if verb.once and rank else every_read
        passes = [each for (each,) in reshard.restore_passes(files, holder, verb, ranks, rank)]
        return count_reads(passes if reads_for_others[rank] else passes[-1:])

    work = reshard.count_stored_blocks(files, holder, None if verb.everything else verb.shift % ranks)
    if work > _MOST_OF_A_RANK:
        text = f"restoring checkpoint `{checkpoint.name}`, a rank reads {work:.2g} pieces of tensors and files"
        raise PlanError(f"{text}: `plan` counts {_MOST_OF_A_RANK:.2g} at most")
    dealt = reshard.deal_files(files, ranks) if verb.by_file else []
    every_read = count_reads([lambda: reshard.whole_state_reads(files)] if verb.everything else ())
    kinds = np.arange(ranks) if verb.by_file else (reads_for_others & verb.once).astype(np.int64)
    some, instead = choose_sample_ranks(kinds, 0 if verb.everything else work)
    found = [count_rank(rank) for rank in some]
    estimated = len(found) < ranks and (verb.by_file or not verb.everything)

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
    opens = spread([(1 if together else names * (1 + verb.ahead)) + checkpoint.metadata for _, names in found])
    issued = spread([totals.calls for totals, _ in found])
    if access.collective:
        issued = uniform_spread(max(totals.steps for totals, _ in found), ranks, estimated)
    buffers = np.array([totals.largest for totals, _ in found])[instead]
    if verb.by_file:
        buffers = np.full(ranks, 2 * buffers.max())  # of what a rank reads, and of what it receives
    elif verb.once and verb.sent:
        buffers = np.full(ranks, buffers.max())  # some of the ranks read, and the others receive
    memory, none = RankMemory(buffers=int(buffers.max())), uniform_spread(0, ranks)
    figures = none, read, files_read, opens, issued, memory
    return PhaseForecast("restore", checkpoint.name, times, 1, *figures, when=verb.option_text, rank_memory=buffers)
