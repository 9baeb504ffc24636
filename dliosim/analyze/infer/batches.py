"""The batches of an application: how many samples a rank reads in a step."""

from __future__ import annotations

from typing import Final

import numpy as np

from dliosim.analyze.arrays import Bools, Ints, find_starts
from dliosim.analyze.infer.data_files import DataFiles
from dliosim.analyze.infer.facts import Fact
from dliosim.analyze.infer.orders import is_in_order, list_lanes
from dliosim.analyze.infer.reads import SampleReads, count_by, find_long, mode_of
from dliosim.readable import count, percent

#: The share of steps that must agree for a batch to be sure.
_SURE: Final = 0.9
#: As many calls in a step may each read samples that are next to each other.
_FEW_CALLS: Final = 2
#: Fewer groups of reads show no batch.
_FEWEST_BURSTS: Final = 3


def describe_batch(data: DataFiles, steps: int, shares_steps: bool) -> Fact:
    """Return the samples of a step of a rank, by the `steps` of all of them (0: unknown), or by gaps between reads.

    With `shares_steps` some of the steps may be those of other loops.
    """
    reads = data.reads
    if (reads.step >= 0).all():
        many, is_last = count_in_steps(reads)
        batch, share = mode_of(many if is_last.all() else many[~is_last])  # the last one may be smaller
        used = len(count_by(reads.rank, reads.epoch, reads.sample)[1])
        if data.is_counted and used < many.sum() and used % len(many) == 0:
            why = f"{used:_} samples in {count(len(many), 'step')}, that read some again, as row groups are"
            return Fact(f"{used // len(many)} per rank", why, False)
        is_few = batch == 1 or (batch <= _FEW_CALLS and not data.is_whole and is_in_order(reads))
        if is_few and not data.is_counted:
            what = "file" if data.is_whole else "call"
            return Fact(f"{batch} per rank", f"{count(batch, what)} a step: a {what} may have several samples", False)
        why = f"samples of a step: so in {percent(share, 2)} of steps"
        if reads.step.max() <= 1 and batch > 1:
            return Fact(f"{batch} per rank", f"{why}, one in an epoch: larger batches would read as many", False)
        return Fact(f"{batch} per rank", why, share >= _SURE and not data.is_divided)
    if steps:
        each = len(reads) / steps
        if round(each) <= 1 and not data.is_counted:
            what = "file" if data.is_whole else "call"
            return Fact("1 per rank", f"{each:.3g} {what}s a step: a {what} may have several samples", False)
        near = abs(each - round(each)) < 0.1 and each >= 1 and not (data.is_divided or data.doubt or shares_steps)
        others = ", and some steps may read other data sets" if shares_steps else ""
        return Fact(f"{max(round(each), 1)} per rank", f"{each:.3g} samples for each step of a rank{others}", near)
    bursts = [[len(some) for some in split_bursts(reads, rows)] for rows in list_lanes(reads)]
    # A thread first reads several batches ahead without a gap, and its last one may be smaller.
    later = [size for sizes in bursts for size in sizes[1:]]
    within = [size for sizes in bursts for size in sizes[1:-1]]
    batch, share = mode_of(np.array(later, np.int64))
    if len(later) >= _FEWEST_BURSTS and share >= _SURE:
        why = f"{percent(share, 2)} of {len(later)} groups of reads between longer gaps"
        is_one_call = batch <= _FEW_CALLS and not data.is_whole and is_in_order(reads)  # which may have several samples
        is_sure = within.count(batch) >= _FEWEST_BURSTS and batch > 1 and not (is_one_call or data.doubt)
        return Fact(f"{batch} per rank", why, is_sure)
    every = np.array([size for sizes in bursts if len(sizes) > 1 for size in sizes], np.int64)
    divisors = [size for size in np.unique(every).tolist() if size > 1 and (every % size == 0).mean() >= _SURE]
    if divisors and len(every) >= _FEWEST_BURSTS:
        return Fact(f"{max(divisors)} per rank", "longer gaps are behind multiples of these reads", False)
    return Fact("", "no steps in the trace, and no gaps between batches: its compute would show them", False)


def split_bursts(reads: SampleReads, rows: Ints) -> list[Ints]:
    """Return the reads of a thread between gaps that are long, also for the reads themselves."""
    if len(rows) < 3:
        return [rows]
    usual = int(np.median(reads.end[rows] - reads.begin[rows]))
    gaps = np.maximum(reads.begin[rows][1:] - reads.end[rows][:-1], usual)
    is_long = find_long(gaps)
    found: list[Ints] = np.split(rows, np.flatnonzero(is_long) + 1)
    return found


def count_in_steps(reads: SampleReads) -> tuple[Ints, Bools]:
    """Return the samples of each step of each rank, and which steps are the last ones of an epoch; (steps,) each."""
    (rank, epoch, _), many = count_by(reads.rank, reads.epoch, reads.step)
    return many, np.append(find_starts(rank, epoch)[1:], True)


def count_partial_ends(reads: SampleReads, batch: int) -> int:
    """Return how many epochs of ranks end with less than a batch; 0 if other steps have less, too."""
    many, is_last = count_in_steps(reads)
    partial = many < batch
    return int(partial.sum()) if (reads.step >= 0).all() and not (partial & ~is_last).any() else 0
