"""The order in which an application reads samples or files, and how its ranks share them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from dliosim.analyze.arrays import Ints, group_rows
from dliosim.analyze.infer.data_files import DataFiles
from dliosim.analyze.infer.facts import Fact
from dliosim.analyze.infer.reads import SampleReads, count_by
from dliosim.readable import percent

#: The share of what was counted that must agree for a value to be sure.
_SURE: Final = 0.9
#: The share of samples that follow a smaller one, from which on an order is that of the files; half at random.
_IN_ORDER: Final = 0.75
#: Deviations from the half of samples in any order, from which on an order is sure.
_UNLIKELY: Final = 2.5
#: Fewer samples of a rank in an epoch show no order.
_FEWEST: Final = 8
#: Of as many reads at least one follows another one of the same file, if files are read in order.
_SEVERAL: Final = 3


def describe_order(data: DataFiles) -> dict[str, Fact]:
    """Return the order of samples, or of files that are read from start to end, and how ranks share them."""
    reads = data.reads
    if not data.are_placed:
        why = "ranks read more in an epoch than there is, so all may read the same samples"
        is_more = int((reads.epoch == reads.epoch[0]).sum()) > data.samples
        sharing = {"shard": Fact("off", why, False)} if is_more else {}
        return {"shuffle": Fact("", "the trace does not say where in the files its calls read"), **sharing}
    ranks, are_files = len(np.unique(reads.rank)), _goes_through_files(reads)
    units, what = (reads.file, "files") if are_files else (reads.sample, "samples")
    passes = [(int(reads.rank[rows[0]]), _order_of(reads, units, rows)) for rows in list_passes(reads)]
    shard = _describe_shard(reads, units, ranks, are_files)
    # Threads of a rank that read in order meet in any order, and few samples of one show none. Workers may all shuffle
    # in one way: many short runs show no more than one.
    lanes = [_order_of(reads, units, rows) for rows in list_lanes(reads)]
    long = [order for order in lanes if len(order) >= _FEWEST]
    many, ascending, is_unlikely = _measure_order(long or [order for _, order in passes])
    if many < _FEWEST - 1:
        why = f"fewer than {_FEWEST} {what} of a rank in an epoch show no order"
        return {"shuffle": Fact("off", why, False), "shard": shard}
    why = f"{percent(ascending, 2)} of {what} come after the one before in the files"
    if ascending >= _IN_ORDER:
        is_sure = bool(long) and is_unlikely and ascending >= _SURE and (are_files or not _takes_turns(reads))
        return {"shuffle": Fact("off", why, is_sure), "shard": shard}
    if ascending <= 1 - _IN_ORDER:
        return {"shuffle": Fact("off", f"{why}: backwards, which no setting does", False), "shard": shard}
    why += ", as in any order"
    by_rank = [[order for rank, order in passes if rank == own] for own in np.unique(reads.rank).tolist()]
    pairs = [(own[0], own[1]) for own in by_rank if len(own) > 1]
    if not pairs:
        more = "; one epoch does not show if others differ"
        return {"shuffle": Fact(f"{what} globally each epoch", why + more, False), "shard": shard}
    again = np.mean([np.array_equal(one[:_FEWEST], other[:_FEWEST]) for one, other in pairs]) > 0.5
    shared = float(np.mean([len(np.intersect1d(one, other)) / max(len(one), 1) for one, other in pairs]))
    is_same = all(np.array_equal(by_rank[0][0][:_FEWEST], own[0][:_FEWEST]) for own in by_rank)
    is_within = not is_same if shard.value == "off" else shared > _SURE
    value = f"{what} {'within shard' if is_within and ranks > 1 else 'globally'} {'once' if again else 'each epoch'}"
    why += "; one rank has all of them" if ranks == 1 else f"; {percent(shared, 2)} of a rank's {what} come again"
    return {"shuffle": Fact(value, why, bool(long) and ranks > 1), "shard": shard}


def _goes_through_files(reads: SampleReads) -> bool:
    """Return whether threads read several samples of a file, in order, before they go to another one."""
    if len(np.unique(reads.file)) in (1, len(np.unique(reads.sample))):
        return False
    lanes = list_lanes(reads)
    is_same = [np.diff(reads.file[rows]) == 0 for rows in lanes]
    within = np.concatenate([np.diff(reads.sample[rows])[same] for rows, same in zip(lanes, is_same, strict=True)])
    return len(within) * _SEVERAL >= len(reads) and float((within > 0).mean()) >= _SURE


def _takes_turns(reads: SampleReads) -> bool:
    """Return whether a thread reads of several files in turn, as loaders that interleave files do."""
    lanes = list_lanes(reads)
    visits = sum(1 + np.count_nonzero(np.diff(reads.file[rows])) for rows in lanes)
    return bool(visits > 2 * sum(len(np.unique(reads.file[rows])) for rows in lanes))


def _order_of(reads: SampleReads, units: Ints, rows: Ints) -> Ints:
    """Return the samples or files of some reads in their order: of steps if they are known, else of time.

    A file is where its first sample is.
    """
    order = units[rows[np.lexsort((reads.begin[rows], reads.step[rows]))]]
    found: Ints = order[np.sort(np.unique(order, return_index=True)[1])] if units is reads.file else order
    return found


def _measure_order(runs: Sequence[Ints]) -> tuple[int, float, bool]:
    """Return the numbers that follow another, the share that is greater, and whether that is unlikely in any order."""
    runs = [run for run in runs if len(run) > 1]
    many = sum(len(run) - 1 for run in runs)
    greater = sum(int((np.diff(run) > 0).sum()) for run in runs)
    # In any order half of them are, by this deviation.
    spread = float(np.sqrt(sum((len(run) + 1) / 12 for run in runs)))
    return many, greater / max(many, 1), greater - many / 2 > _UNLIKELY * spread


def share_all(reads: SampleReads) -> float:
    """Return the share of the samples of an epoch that all ranks read in it; 0 if reads show no epochs."""
    ranks = len(np.unique(reads.rank))
    same = np.diff(reads.rank) == 0
    if float((np.diff(reads.epoch)[same] >= 0).mean() if same.any() else 1.0) < _SURE:
        return 0.0  # numbers of reads of a sample that are no epochs, as other ranks read it between
    epoch, sample, _ = count_by(reads.epoch, reads.sample, reads.rank)[0]
    return float((count_by(epoch, sample)[1] == ranks).mean())


def _describe_shard(reads: SampleReads, units: Ints, ranks: int, are_files: bool) -> Fact:
    """Return how ranks share the samples of an epoch, or the files."""
    if ranks == 1:
        return Fact("", "one rank reads all", False)
    if share_all(reads) > _SURE:
        return Fact("off", "all ranks read the same samples")
    first = reads.epoch == reads.epoch[0]
    owned = [np.unique(units[first][rows]) for _, rows in group_rows(reads.rank[first])]
    owned.sort(key=lambda own: int(own[0]))
    if all(own[-1] < later[0] for own, later in pairwise(owned)):
        is_sure = min(map(len, owned)) >= _FEWEST  # a few may be so by chance
        return Fact("by block", f"each rank reads {'files' if are_files else 'samples'} next to each other", is_sure)
    readers = count_by(*count_by(reads.file[first], reads.rank[first])[0][:1])[1]
    if are_files and float((readers == 1).mean()) > _SURE:
        return Fact("by file", "a file is read by one rank in an epoch")
    return Fact("by sample", "ranks read samples in turn")


def is_in_order(reads: SampleReads) -> bool:
    """Return whether each rank reads samples in the order of the files."""
    same = reads.rank[1:] == reads.rank[:-1]
    return bool(same.any()) and float((np.diff(reads.sample)[same] > 0).mean()) >= _IN_ORDER


def list_passes(reads: SampleReads) -> list[Ints]:
    """Return the reads of each rank in each epoch."""
    return _list_by_epoch(reads.rank, reads.epoch)


def list_lanes(reads: SampleReads) -> list[Ints]:
    """Return the reads of each thread in each epoch."""
    return _list_by_epoch(reads.lane, reads.epoch)


def _list_by_epoch(owner: Ints, epoch: Ints) -> list[Ints]:
    """Return the rows of each owner in each epoch, from 1, or -1."""
    keys = np.unique(owner, return_inverse=True)[1] * (int(epoch.max(initial=0)) + 2) + epoch
    return [rows for _, rows in group_rows(keys)]
