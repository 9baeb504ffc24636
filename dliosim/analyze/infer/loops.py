"""The loops of an application: epochs, batches, readers, order, compute and syncs, each with how sure it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Final

import numpy as np

from dliosim.analyze.arrays import Ints, find_starts, group_rows
from dliosim.analyze.figures.view import View
from dliosim.analyze.infer.batches import count_in_steps, count_partial_ends, describe_batch, split_bursts
from dliosim.analyze.infer.data_files import MATTERS, DataFiles
from dliosim.analyze.infer.facts import Fact
from dliosim.analyze.infer.joined import Joined, group_by_loop
from dliosim.analyze.infer.orders import list_passes, share_all
from dliosim.analyze.infer.reads import SampleReads, count_at_once, count_by, find_spans, mode_of
from dliosim.analyze.read.darshan.counters import LogTrace
from dliosim.readable import count, percent
from dliosim.trace.events import layer_number
from dliosim.units import format_bytes, format_seconds

#: The share of what was counted that must agree for a value to be sure.
_SURE: Final = 0.9
#: Compute that varies by less of its mean is the same in all steps.
_STEADY: Final = 0.1
#: Reads of a sample in an epoch, for each rank, from which on it is read again.
_AGAIN: Final = 1.5


@dataclass(frozen=True, slots=True)
class LoopFacts:
    """A loop over data sets, or over none."""

    sources: Joined | None  #: what it reads
    spans: Ints  #: its epochs among the events; none if the trace has no epochs
    epochs: int  #: epochs
    steps: int  #: steps of each rank in an epoch; 0 if they are not known
    begin: int  #: ns
    has_compute: bool  #: its steps are known by their compute
    facts: dict[str, Fact]  #: settings by their heads

    @property
    def data(self) -> DataFiles | None:
        """Return what it reads, as one data set."""
        return self.sources.data if self.sources is not None else None


def list_loops(view: View, datasets: Sequence[DataFiles]) -> list[LoopFacts]:
    """Return the loops in the order in which they begin."""
    events = view.events
    spans = np.flatnonzero(events.is_kind("epoch"))
    least = MATTERS * sum(int(data.reads.size.sum()) for data in datasets)
    owner, host = _find_hosts(view, spans, datasets, least)
    found = []
    for number in np.unique(host).tolist():
        together = [data for data, own in zip(datasets, host.tolist(), strict=True) if own == number]
        are_in_steps = bool(len(spans)) and all((data.reads.step > 0).all() for data in together)
        grouped = group_by_loop(together, least, are_in_steps)
        for joined in grouped:
            is_host = any(one.paths == datasets[number].paths for one in joined.members)
            own = spans[owner == number] if is_host else spans[:0]
            found.append(_describe_loop(view, joined, own, shares_steps=len(grouped) > 1))
    found.sort(key=lambda one: one.begin)
    for number, one in enumerate(found):
        if number and not len(one.spans):  # its steps are those of another loop
            why = "read between the steps of the first loop, which may read both data sets"
            one.facts["compute"] = Fact("0 s", why, False)
    computes = np.flatnonzero(events.is_kind("compute"))
    alone = spans[owner == -1]
    within = find_spans(view, alone, view.groups_of(computes), events.begin[computes])
    if (within >= 0).any():
        found.append(_describe_loop(view, None, alone[np.unique(within[within >= 0])]))
    return sorted(found, key=lambda one: one.begin)


def _find_hosts(view: View, spans: Ints, datasets: Sequence[DataFiles], least: float) -> tuple[Ints, Ints]:
    """Return which data set most reads of each epoch are of, -1 for none, and in whose epochs each data set is read.

    (epochs,), (data sets,). Data sets of less than `least` bytes have no epochs. Without epochs all are read together.
    """
    reads = np.zeros((1 + len(datasets), len(spans)), np.int64)  # the first row is for none
    for number, data in enumerate(datasets, 1):
        place = find_spans(view, spans, data.reads.rank, data.reads.begin)
        reads[number] = np.bincount(place[place >= 0], minlength=len(spans))
    is_small = np.array([False, *(data.reads.size.sum() < least for data in datasets)])
    owner = np.where(is_small[:, None], 0, reads).argmax(axis=0) - 1
    host = np.arange(len(datasets)) if len(spans) else np.zeros(len(datasets), np.int64)
    for number in np.setdiff1d(host, owner).tolist() if len(spans) else ():
        used = owner[reads[number + 1].argmax()]
        host[number] = used if used >= 0 and reads[number + 1].any() else number
    return owner, host


def _describe_loop(view: View, joined: Joined | None, spans: Ints, shares_steps: bool = False) -> LoopFacts:
    """Return a loop; with `shares_steps` some of the steps in its epochs may be those of other loops."""
    events, data = view.events, joined.data if joined is not None else None
    per_rank = np.unique(view.groups_of(spans), return_counts=True)[1]
    epochs, share = mode_of(per_rank)
    begin = int(events.begin[spans].min()) if len(spans) else int(data.reads.begin.min()) if data is not None else 0
    facts: dict[str, Fact] = {}
    if epochs:
        facts["epochs"] = Fact(str(epochs), "epochs of the trace", share >= _SURE)
    elif data is not None:
        epochs, share = _count_passes(data.reads)
        is_sure = share >= _SURE and data.are_placed
        facts["epochs"] = Fact(str(epochs), f"{percent(share, 2)} of the samples were read so often", is_sure)
    computes = list_inside(view, spans, "compute")
    steps = _count_steps(view, computes, spans, epochs)
    if data is not None and not steps:
        steps = max(int(data.reads.step.max()), 0)
    again = len(data.reads) / max(data.samples * max(epochs, 1), 1) if data is not None else 0.0
    is_kept = False
    if data is not None and again > _AGAIN * len(np.unique(data.reads.rank)):
        epochs = round(len(data.reads) / data.samples)
        facts["epochs"] = Fact(str(epochs), "samples were read again within an epoch: as many reads", False)
        # Requests come one by one: what is read ahead is of no request.
        if len(spans) and (data.reads.step > 0).all() and _describe_readers(view, data).value == "0":
            epochs, facts = 1, {"requests": _describe_requests(data.reads, steps)}
            reads, is_kept = _split_passes(data)
            data = replace(data, reads=reads)
    if data is not None and joined is not None:
        every = len(computes) or steps * epochs * len(np.unique(data.reads.rank))
        facts |= {"readers": _describe_readers(view, data), "batch": describe_batch(data, every, shares_steps)}
        facts |= joined.replace_data(data).describe_order()
        facts["open"] = joined.agree(partial(_describe_opens, view, epochs))
        api = facts["api"] = joined.agree(partial(_describe_api, view))
        if api.value != "posix" and len(joined.members) > 1:
            facts["api"] = Fact("posix", f"{api.why}; loops over several data sets have no MPI-IO", False)
        if copies := int((view.copies & data.rows).sum()):
            facts["engine"] = Fact("mmap", count(copies, "copy", "copies") + " from mapped files")
        if data.piece:
            facts["transfer"] = Fact(format_bytes(data.piece), "the size of most calls")
        batch, ranks = int(facts["batch"].value.partition(" ")[0] or 1), view.ranks
        if data.samples < batch * ranks and facts.get("shard", Fact("", "")).value != "off":
            why = f"{count(data.samples, 'sample')} for {count(ranks, 'rank')} are less than a batch of each"
            facts["last batch"] = Fact("keep", why, False)
        elif is_kept or (ends := count_partial_ends(data.reads, batch)):
            why = "a rank has none at the end of some passes" if is_kept else f"{count(ends, 'epoch')} of a rank end so"
            facts["last batch"] = Fact("keep", f"smaller ones: {why}")
        in_epoch = len(data.reads) / len(np.unique(data.reads.rank)) / max(epochs, 1)
        if data.is_whole and not data.is_counted and steps > _AGAIN * in_epoch:
            doubt = f"{count(steps, 'step')} in an epoch of {in_epoch:.3g} files, which may have several"
            data = replace(data, doubt=data.doubt or doubt)
        joined = joined.replace_data(data)
    facts["compute"] = _describe_compute(view, computes, data, int(facts["readers"].value) if data is not None else 0)
    facts["sync"] = _describe_sync(view, spans, len(computes))
    return LoopFacts(joined, spans, epochs, steps, begin, len(computes) > 0, facts)


def _split_passes(data: DataFiles) -> tuple[SampleReads, bool]:
    """Return reads with the passes over the data in which ranks share it as epochs, and whether last batches are kept.

    Reads stay as they are if no number of steps makes passes in which a sample is read once.
    """
    reads = data.reads
    each = mode_of(count_in_steps(reads)[0])[0] * len(np.unique(reads.rank))
    for steps in (data.samples // each, -(-data.samples // each)):
        epoch = (reads.step - 1) // max(steps, 1) + 1
        if count_by(epoch, reads.sample)[1].max() == 1:
            return replace(reads, epoch=epoch), steps * each > data.samples
    return reads, False


def _describe_requests(reads: SampleReads, steps: int) -> Fact:
    """Return the requests of a loop that reads samples again before it has read all, and the time between two."""
    is_first = find_starts(reads.rank, reads.epoch, reads.step)
    gaps, steps_between = np.diff(reads.begin[is_first]) / 1e9, np.diff(reads.step[is_first])
    gaps = (gaps / np.maximum(steps_between, 1))[np.diff(reads.rank[is_first]) == 0]
    mean = float(gaps.mean()) if len(gaps) else 0.0
    gap = format_seconds(float(f"{mean:.3g}"))
    every = gap if gaps.std() <= _STEADY * mean else f"exponential({gap})"
    if mean <= 0:
        return Fact(f"{steps} per rank every 1 ms", "one step: nothing shows when requests come", False)
    why = "samples are read again before all are; when requests come is a guess by when they are read"
    return Fact(f"{steps} per rank every {every}", why, False)


def _count_passes(reads: SampleReads) -> tuple[int, float]:
    """Return how often most samples were read, and the share of these: by each rank, if each read all as often."""
    if len(np.unique(reads.rank)) > 1 and share_all(reads) > _SURE:
        often, share = mode_of(count_by(reads.rank, reads.sample)[1])
        if share > 0.5:  # samples that ranks share by chance are read less evenly
            return often, share
    return mode_of(count_by(reads.sample)[1])


def list_inside(view: View, spans: Ints, kind: str) -> Ints:
    """Return the events of a kind within the epochs of a loop; all, if it has none."""
    rows = np.flatnonzero(view.events.is_kind(kind))
    if not len(spans):
        return rows
    return rows[find_spans(view, spans, view.groups_of(rows), view.events.begin[rows]) >= 0]


def _count_steps(view: View, computes: Ints, spans: Ints, epochs: int) -> int:
    """Return the steps of most epochs of most ranks, their mean if no epochs are known; 0 without compute."""
    if not len(computes):
        return 0
    if not len(spans):
        return round(len(computes) / len(np.unique(view.groups_of(computes))) / max(epochs, 1))
    return mode_of(count_by(find_spans(view, spans, view.groups_of(computes), view.events.begin[computes]))[1])[0]


def _describe_opens(view: View, epochs: int, data: DataFiles) -> Fact:
    """Return how often files are opened: again in later epochs, or for each read of a sample."""
    events, reads = view.events, data.reads
    is_own = np.isin(events.file, np.unique(events.file[data.rows]))
    made = is_own & events.is_kind("write") & (events.begin < reads.begin.min())
    since = int(events.end[made].max()) if made.any() else 0
    is_open = is_own & view.basic & events.is_kind("open")
    opens = np.flatnonzero(is_open & (events.begin >= max(int(reads.begin.min()) - 1_000_000_000, since)))
    many = len(opens) or _count_opens(view, data)
    opened = f"{many:_} {'open' if many == 1 else 'opens'}"
    why = f"{opened} for {len(reads):_} {'read' if len(reads) == 1 else 'reads'} of samples"
    if many > 0.8 * len(reads):
        return Fact("each sample", why)
    if isinstance(view.trace, LogTrace) or not len(opens):  # their times are not known
        used = len(count_by(reads.rank, reads.sample if data.is_whole else reads.rank)[1])
        return Fact("each epoch" if many > 1.2 * used else "once", why, bool(many))
    if epochs <= 1:
        return Fact("once", f"{why}; one epoch does not show if others open them again", False)
    # A loader may open a file several times, so only those that it opens again in later epochs count.
    key = view.groups_of(opens) << 32 | events.file[opens]
    is_later = events.begin[opens] > reads.end[reads.epoch == reads.epoch.min()].max()
    again = int(np.isin(key[is_later], key[~is_later]).sum())
    is_each = 2 * again > int((~is_later).sum()) * (epochs - 1)
    return Fact("each epoch" if is_each else "once", f"{why}, {again:_} of them again in later epochs")


def _count_opens(view: View, data: DataFiles) -> int:
    """Return how often a log counts that files of a data set were opened, by its lowest module that knows them."""
    tables = view.trace.counters if isinstance(view.trace, LogTrace) else ()
    every = {table.module: int(table.count("OPENS")[table.is_of(set(data.paths))].sum()) for table in tables}
    return every.get("POSIX", 0) or every.get("STDIO", 0)


def _describe_api(view: View, data: DataFiles) -> Fact:
    events = view.events
    of_data = np.isin(events.file, np.unique(events.file[data.rows]))
    every = view.operations & of_data & events.is_kind("read")
    layers = [layer_number(name) for name in ("mpi-io collective", "mpi-io")]
    together, alone = (int((every & (events.layer == layer)).sum()) for layer in layers)
    below = int((data.rows & ~np.isin(events.layer, layers)).sum())
    if not below and together + alone:
        return Fact("mpi-collective" if together else "mpi-independent", "names of the calls")
    if alone and not together and abs(alone - below) <= (1 - _SURE) * below:
        return Fact("mpi-independent", f"{alone:_} reads of MPI-IO, and {below:_} of POSIX for them")
    if together + alone:
        why = f"as the file system sees them: {together + alone:_} reads of MPI-IO, {together:_} of them collective"
        return Fact("posix", why, False)
    return Fact("posix", "names of the calls")


def _describe_readers(view: View, data: DataFiles) -> Fact:
    """Return the readers of each rank: threads and processes other than the one that began it."""
    reads = data.reads
    lanes = [len(np.unique(reads.lane[rows])) for rows in list_passes(reads)]
    many, is_sure = max(lanes), mode_of(np.array(lanes))[0] == max(lanes)
    if not (view.events.epoch[data.rows] >= 0).any():
        at_once = max(_count_at_once(reads, rows) for _, rows in group_rows(reads.rank))
        # Those that begin late or end early do not meet all others; those that are begun again in an epoch meet few.
        is_sure, many = is_sure and at_once == many, many if at_once * 2 > many else at_once
    is_other = (reads.lane & 0xFFFFFFFF > 0) | ~np.isin(reads.lane >> 32, _find_firsts(view))
    if many == 1 and not is_other.any():
        many = 0
    if view.trace.source == "Darshan DXT" and many <= 1 and not is_other.any():
        return Fact(str(many), "the log does not tell threads", False)
    if _take_turns(reads):
        return Fact(str(many), "threads that read where others ended: fewer of them may read at a time", False)
    return Fact(str(many), "threads or processes of a rank that read in an epoch", is_sure)


def _find_firsts(view: View) -> Ints:
    """Return the process of each rank that began first; one without events had none to tell when."""
    begin = np.full(len(view.events.processes), np.iinfo(np.int64).max)
    np.minimum.at(begin, view.events.process, view.events.begin)
    begin[np.bincount(view.events.process, minlength=len(begin)) == 0] = -1
    order = np.lexsort((begin, view.group_of))
    firsts: Ints = order[find_starts(view.group_of[order])]
    return firsts


def _take_turns(reads: SampleReads) -> bool:
    """Return whether most calls begin where that of another thread of the process ended, as in a pool."""
    order = np.lexsort((reads.begin, reads.sample, reads.epoch, reads.rank))
    lane, sample, epoch = reads.lane[order], reads.sample[order], reads.epoch[order]
    follows = (sample[1:] == sample[:-1] + 1) & (epoch[1:] == epoch[:-1]) & (lane[1:] >> 32 == lane[:-1] >> 32)
    return bool(follows.any()) and float((lane[1:] != lane[:-1])[follows].mean()) > 0.5


def _count_at_once(reads: SampleReads, rows: Ints) -> int:
    """Return how many threads of a rank read at a time, each from its first read to its last."""
    return count_at_once(
        [(reads.begin[rows[own]].min(), reads.end[rows[own]].max()) for _, own in group_rows(reads.lane[rows])]
    )


def _describe_compute(view: View, computes: Ints, data: DataFiles | None, readers: int) -> Fact:
    if len(computes):
        times = view.events.duration[computes] / 1e9
        mean, spread = float(times.mean()), float(times.std())
        text = format_seconds(float(f"{np.median(times):.3g}"))
        if spread > _STEADY * mean:
            why = f"the median of {len(computes):_} steps, which differ by {percent(spread / mean, 2)}"
            return Fact(text, why, False)
        return Fact(text, f"{len(computes):_} steps of the trace")
    if data is None or view.trace.source == "dliosim":  # which records all compute
        return Fact("0 s", "no compute in the trace", view.trace.source == "dliosim")
    reads = data.reads
    gaps = []
    for rows in list_passes(reads):
        bursts = [split_bursts(reads, rows[some]) for _, some in group_rows(reads.lane[rows])]
        if readers:  # each begins a batch when one of the rank is used, after the first ones
            gaps += np.diff(np.sort([reads.begin[some[0]] for own in bursts for some in own[1:]])).tolist()
        else:
            gaps += [
                reads.begin[after[0]] - reads.end[before].max() for own in bursts for before, after in pairwise(own)
            ]
    if not gaps:
        return Fact("0 s", "no compute in the trace, and no gaps between reads", False)
    typical = float(np.median(gaps)) / 1e9
    return Fact(format_seconds(float(f"{typical:.2g}")), "the median time between two batches", False)


def _describe_sync(view: View, spans: Ints, steps: int) -> Fact:
    syncs = len(list_inside(view, spans, "sync"))
    if syncs and steps:
        every = max(round(steps / syncs), 1)
        value = "barrier" if every == 1 else f"barrier every {every} steps"
        why = f"{count(syncs, 'sync')} in {count(steps, 'step')}"
        return Fact(value, why, abs(steps / syncs - every) <= _STEADY * every)
    if view.trace.source == "dliosim":
        return Fact("off", "no sync in the trace")
    return Fact("barrier", "the trace has no syncs: this is what most jobs do", False)
