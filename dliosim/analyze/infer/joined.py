"""Data sets that one loop reads: sample i of each, or a mixture by shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dliosim.analyze.arrays import Ints, group_rows
from dliosim.analyze.infer.data_files import DataFiles
from dliosim.analyze.infer.facts import Fact
from dliosim.analyze.infer.orders import describe_order, share_all
from dliosim.analyze.infer.reads import SampleReads, count_by, mode_of, number_rows
from dliosim.model.joined import WHOLE, Sources

#: The share of samples, or of steps, that must agree.
_SURE: Final = 0.9
#: The part of its rank's reads in an epoch within which a sample of one data set follows that of the other.
_NEAR: Final = 0.25


@dataclass(frozen=True, slots=True)
class Joined:
    """The data sets that a loop reads."""

    data: DataFiles  #: as one: the first of them, or all that a mixture reads, with the samples of its epoch
    members: tuple[DataFiles, ...]  #: each of them
    weights: tuple[int, ...] = ()  #: shares of a mixture, in 1 / `WHOLE`; empty: a step reads sample i of each
    is_repeated: bool = False  #: a mixture reads samples of some data sets again before it has read those of others

    def name(self, names: Mapping[int, str]) -> Fact:
        """Return how a loop reads them; `names` are by their identities."""
        if len(self.members) == 1:
            return Fact(names[id(self.data)], "")
        sources = Sources(tuple(names[id(one)] for one in self.members), self.weights, self.is_repeated)
        why = "samples of the same numbers, at about the same time"
        if self.weights:
            why = f"shares of {len(self.data.reads):_} samples"
        return Fact(str(sources), why, not (self.weights or any(one.doubt for one in self.members)))

    def replace_data(self, data: DataFiles) -> Joined:
        """Return the same with other facts about the data set, the first if they are read together."""
        return replace(self, data=data, members=self.members if self.weights else (data, *self.members[1:]))

    def agree(self, describe: Callable[[DataFiles], Fact]) -> Fact:
        """Return a fact about the data set that is read most often; a guess if it differs for another one."""
        facts = [describe(one) for one in sorted(self.members, key=lambda one: -len(one.reads))]
        others = ", ".join(dict.fromkeys(fact.value for fact in facts if fact.value != facts[0].value))
        return replace(facts[0], why=f"{facts[0].why}; {others} for others", is_sure=False) if others else facts[0]

    def describe_order(self) -> dict[str, Fact]:
        """Return the order of samples and how ranks share them, as loops over as many data sets may have them."""
        facts = describe_order(max(self.members, key=lambda one: len(one.reads)) if self.weights else self.data)
        if len(self.members) == 1:
            return facts
        shard, shuffle = facts.get("shard", Fact("by sample", "")), facts["shuffle"]
        if shard.value == "by file":
            facts["shard"] = Fact("by sample", f"{shard.why}; several data sets are not shared so", False)
        elif shard.value == "off" and self.weights and not self.data.are_placed:
            # It reads samples of small data sets again, so more than there are say nothing of sharing.
            facts["shard"] = Fact("by sample", "a mixture reads samples again, so all ranks may read the same", False)
        if "within" in shuffle.value and (self.weights or shuffle.value.startswith("files")):
            value = shuffle.value.replace("within shard", "globally")
            facts["shuffle"] = Fact(value, f"{shuffle.why}; several data sets are not shuffled so", False)
        return facts


def group_by_loop(datasets: Sequence[DataFiles], least: float, are_in_steps: bool) -> list[Joined]:
    """Return what each loop reads, one data set or several; one of less than `least` bytes alone is left out.

    `are_in_steps` says that the data sets are read in steps of the same epochs.
    """
    joined: list[Joined] = []
    for data in sorted(datasets, key=lambda one: -one.reads.size.sum()):
        for place, other in enumerate(joined):
            if (partner := _find_partner(other.data, data, are_in_steps)) is not None:
                joined[place] = Joined(other.data, (*other.members, partner))
                break
        else:
            joined.append(Joined(data, (data,)))
    joined = [one for one in joined if len(one.members) > 1 or one.data.reads.size.sum() >= least]
    if not are_in_steps or len(joined) < 2 or any(len(one.members) > 1 for one in joined):
        return joined
    # In order of their names, so that runs of a job on other numbers of ranks have them in one order.
    mixture = _mix(sorted((one.data for one in joined), key=lambda data: data.paths[0]))
    return [mixture] if mixture is not None else joined


def _find_partner(one: DataFiles, other: DataFiles, are_in_steps: bool) -> DataFiles | None:
    """Return a data set if a loop reads the same samples of it as of another one; None if not.

    Without marks its samples may be parts of calls: then all steps read as many bytes, as many for each sample.
    """
    if one.samples == other.samples and _are_same(one.reads, other.reads):
        return other
    if not are_in_steps or other.is_whole or other.is_counted:
        return None
    reads, used = one.reads, len(count_by(one.reads.rank, one.reads.epoch, one.reads.sample)[1])
    each, rest = divmod(int(other.reads.size.sum()), used)
    if rest or not each:
        return None
    steps, other_steps = _number_both(reads, other.reads, "step")
    moved, share = mode_of(np.bincount(other_steps, other.reads.size).astype(np.int64))
    if share < _SURE or not np.array_equal(np.unique(other_steps), np.unique(steps)):
        return None
    doubt = f"{moved:_} B a step do not show samples: as many as of the other data set"
    file, size = np.minimum(reads.file, len(other.paths) - 1), np.full(len(reads), each)
    return replace(other, reads=replace(reads, file=file, size=size), samples=one.samples, doubt=doubt)


def _number_both(one: SampleReads, other: SampleReads, column: str) -> tuple[Ints, Ints]:
    """Return numbers from 0 of the values of a column in each epoch of each rank, the same ones in both; (n,), (m,)."""
    names = ("rank", "epoch", column)
    numbers = number_rows(*(np.concatenate([getattr(one, name), getattr(other, name)]) for name in names))
    return numbers[: len(one)], numbers[len(one) :]


def _are_same(one: SampleReads, other: SampleReads) -> bool:
    """Return whether ranks read the same samples in the same epochs, and both at about the same time."""
    (key, first), (other_key, other_first) = (
        np.unique(numbers, return_index=True) for numbers in _number_both(one, other, "sample")
    )
    _, here, there = np.intersect1d(key, other_key, assume_unique=True, return_indices=True)
    if len(here) < _SURE * max(len(key), len(other_key)):
        return False
    both = first[here]
    begin = one.begin[both]
    gap = np.abs(begin - other.begin[other_first[there]])
    spans = [(rows, np.ptp(begin[rows])) for _, rows in group_rows(number_rows(one.rank[both], one.epoch[both]))]
    near = sum(int((gap[rows] <= _NEAR * span).sum()) for rows, span in spans)
    return near >= _SURE * len(here)


def _mix(datasets: Sequence[DataFiles]) -> Joined | None:
    """Return a mixture of some data sets; None if steps have not as many samples of all of them together."""
    data = _unite(datasets)
    largest = max(datasets, key=lambda one: len(one.reads))
    together, alone = (
        mode_of(count_by(one.reads.rank, one.reads.epoch, one.reads.step)[1])[1] for one in (data, largest)
    )
    if together < _SURE or alone >= _SURE:
        return None
    shares = np.array([max(round(WHOLE * len(one.reads) / len(data.reads)), 1) for one in datasets])
    shares[shares.argmax()] += WHOLE - shares.sum()
    quotas, held = shares // np.gcd.reduce(shares), np.array([one.samples for one in datasets])
    times = len(np.unique(data.reads.epoch)) * (len(np.unique(data.reads.rank)) if share_all(data.reads) > _SURE else 1)
    until_first = int(quotas.sum() * (held // quotas).min())
    is_repeated = len(data.reads) > until_first * times
    samples = int(quotas.sum() * (-(-held // quotas)).max()) if is_repeated else until_first
    return Joined(replace(data, samples=samples), tuple(datasets), tuple(shares.tolist()), is_repeated)


def _unite(datasets: Sequence[DataFiles]) -> DataFiles:
    """Return some data sets as one, the samples and files of each behind those of the one before."""
    samples, files = (
        np.cumsum([0, *each]) for each in zip(*((one.samples, len(one.paths)) for one in datasets), strict=True)
    )
    moved = [
        replace(one.reads, sample=one.reads.sample + before, file=one.reads.file + files_before)
        for one, before, files_before in zip(datasets, samples.tolist(), files.tolist(), strict=False)
    ]
    columns = [np.concatenate([getattr(reads, name) for reads in moved]) for name in SampleReads.__slots__]
    order = np.lexsort((columns[SampleReads.__slots__.index("begin")], columns[0]))
    rows = np.any([one.rows for one in datasets], axis=0)
    paths = tuple(path for one in datasets for path in one.paths)
    return DataFiles(
        paths,
        rows,
        SampleReads(*(column[order] for column in columns)),
        int(samples[-1]),
        is_whole=all(one.is_whole for one in datasets),
        are_placed=all(one.are_placed for one in datasets),
        is_divided=any(one.is_divided for one in datasets),
        doubt=next((one.doubt for one in datasets if one.doubt), ""),
    )
