"""The loops of an application: epochs, batches, readers, order, compute and syncs, each with how sure it is."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from dliosim.analyze.arrays import Ints, find_starts
from dliosim.analyze.figures.view import View
from dliosim.analyze.infer.facts import Fact
from dliosim.analyze.infer.reads import DataFiles, SampleReads, count_by, find_spans, group_rows, mode_of
from dliosim.readable import count, percent
from dliosim.trace.events import layer_number
from dliosim.units import format_bytes, format_seconds

#: The share of what was counted that must agree for a value to be sure.
_SURE: Final = 0.9
#: The share of samples that follow a smaller one, from which on an order is that of the files; half at random.
_IN_ORDER: Final = 0.75
#: Fewer samples of a rank in an epoch show no order.
_FEWEST: Final = 8
#: As many calls in a step may each read samples that are next to each other.
_FEW_CALLS: Final = 2
#: Compute that varies by less of its mean is the same in all steps.
_STEADY: Final = 0.1
#: Reads of a sample in an epoch, for each rank, from which on it is read again.
_AGAIN: Final = 1.5
#: Fewer groups of reads show no batch.
_FEWEST_BURSTS: Final = 3
#: A gap between batches is this many times as long as those within one.
_GAP: Final = 2.0


@dataclass(frozen=True, slots=True)
class LoopFacts:
    """A loop over a data set, or over none."""

    data: DataFiles | None  #: what it reads
    spans: Ints  #: its epochs among the events; none if the trace has no epochs
    epochs: int  #: epochs
    steps: int  #: steps of each rank in an epoch; 0 if they are not known
    begin: int  #: ns
    has_compute: bool  #: its steps are known by their compute
    facts: dict[str, Fact]  #: settings by their heads


def list_loops(view: View, datasets: list[DataFiles]) -> list[LoopFacts]:
    """Return the loops in the order in which they begin."""
    events = view.events
    spans = np.flatnonzero(events.is_kind("epoch"))
    owner = np.full(len(spans), -1, np.int64)
    most = np.zeros(len(spans), np.int64)  # reads of the data set that has most in each epoch
    for number, data in enumerate(datasets):
        inside = find_spans(view, spans, data.reads.rank, data.reads.begin)
        many = np.bincount(inside[inside >= 0], minlength=len(spans))
        owner[many > most] = number
        most = np.maximum(many, most)
    found = [_describe_loop(view, data, spans[owner == number]) for number, data in enumerate(datasets)]
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


def _describe_loop(view: View, data: DataFiles | None, spans: Ints) -> LoopFacts:
    events = view.events
    per_rank = np.unique(view.groups_of(spans), return_counts=True)[1]
    epochs, share = mode_of(per_rank)
    begin = int(events.begin[spans].min()) if len(spans) else int(data.reads.begin.min()) if data is not None else 0
    facts: dict[str, Fact] = {}
    if epochs:
        facts["epochs"] = Fact(str(epochs), "epochs of the trace", share >= _SURE)
    elif data is not None:
        times = count_by(data.reads.sample)[1]
        epochs, share = mode_of(times)
        facts["epochs"] = Fact(str(epochs), f"{percent(share, 2)} of the samples were read as often", share >= _SURE)
    computes = list_inside(view, spans, "compute")
    steps = _count_steps(view, computes, spans)
    if data is not None and not steps:
        steps = max(int(data.reads.step.max()), 0)
    again = len(data.reads) / max(data.samples * max(epochs, 1), 1) if data is not None else 0.0
    if data is not None and again > _AGAIN * len(np.unique(data.reads.rank)):
        epochs = round(len(data.reads) / data.samples)
        facts["epochs"] = Fact(str(epochs), "samples were read again within an epoch: as many reads", False)
    if data is not None:
        facts |= _describe_reads(view, data, epochs, steps, len(computes) > 0)
    facts["compute"] = _describe_compute(view, computes, data, int(facts["readers"].value) if data is not None else 0)
    facts["sync"] = _describe_sync(view, spans, len(computes))
    return LoopFacts(data, spans, epochs, steps, begin, len(computes) > 0, facts)


def list_inside(view: View, spans: Ints, kind: str) -> Ints:
    """Return the events of a kind within the epochs of a loop; all, if it has none."""
    rows = np.flatnonzero(view.events.is_kind(kind))
    if not len(spans):
        return rows
    return rows[find_spans(view, spans, view.groups_of(rows), view.events.begin[rows]) >= 0]


def _count_steps(view: View, computes: Ints, spans: Ints) -> int:
    """Return the steps of most epochs of most ranks; 0 if the trace has no compute."""
    if not len(computes):
        return 0
    if not len(spans):
        return mode_of(np.unique(view.groups_of(computes), return_counts=True)[1])[0]
    return mode_of(count_by(find_spans(view, spans, view.groups_of(computes), view.events.begin[computes]))[1])[0]


def _describe_reads(view: View, data: DataFiles, epochs: int, steps: int, has_steps: bool) -> dict[str, Fact]:
    reads, events = data.reads, view.events
    facts: dict[str, Fact] = {}
    if (events.epoch[data.rows] >= 0).any():
        lanes = [len(np.unique(reads.lane[rows])) for rows in _epochs_of(reads)]
    else:
        lanes = [_count_at_once(reads, rows) for _, rows in group_rows(reads.rank)]
    readers = 0 if max(lanes) == 1 and not (reads.lane & 0xFFFFFFFF).any() else max(lanes)
    why = "threads or processes of a rank that read in an epoch"
    facts["readers"] = Fact(str(readers), why, mode_of(np.array(lanes))[0] == max(lanes))
    facts["batch"] = _describe_batch(data, epochs, steps)
    facts |= _describe_order(reads, data.are_placed)
    layers = np.unique(events.layer[data.rows])
    api = "mpi-collective" if layer_number("mpi-io collective") in layers else "posix"
    api = "mpi-independent" if layer_number("mpi-io") in layers and api == "posix" else api
    facts["api"] = Fact(api, "names of the calls")
    if data.piece:
        facts["transfer"] = Fact(format_bytes(data.piece), "the largest call, which many are")
    opens = events.is_kind("open") & np.isin(events.file, np.unique(events.file[data.rows]))
    opens &= events.begin >= reads.begin.min() - 1_000_000_000
    many = int((opens & view.operations).sum())
    used = len(count_by(reads.rank, reads.sample if data.is_whole else reads.rank)[1])
    if data.is_whole:
        often = "each sample" if many > 0.8 * len(reads) else "each epoch" if many > 1.2 * used else "once"
    else:
        often = "each sample" if many > 0.8 * len(reads) else "once"
    facts["open"] = Fact(often, f"{many:_} opens for {len(reads):_} reads of samples", bool(many))
    return facts


def _count_at_once(reads: SampleReads, rows: Ints) -> int:
    """Return how many threads of a rank read at a time, each from its first read to its last."""
    spans = [(reads.begin[rows[own]].min(), reads.end[rows[own]].max()) for _, own in group_rows(reads.lane[rows])]
    begins, ends = (np.sort(np.array(each)) for each in zip(*spans, strict=True))
    return int((np.arange(1, len(begins) + 1) - np.searchsorted(ends, begins, "right")).max())


def _epochs_of(reads: SampleReads) -> list[Ints]:
    """Return the reads of each rank in each epoch."""
    return [rows for _, rows in group_rows(_number_rows(reads.rank, reads.epoch))]


def _describe_batch(data: DataFiles, epochs: int, steps: int) -> Fact:
    reads = data.reads
    if (reads.step >= 0).all():
        many = count_by(reads.rank, reads.epoch, reads.step)[1]
        batch, share = mode_of(many)
        if batch == 1 or (batch <= _FEW_CALLS and not data.is_whole and _is_in_order(reads)):
            what = "file" if data.is_whole else "call"
            return Fact(f"{batch} per rank", f"{count(batch, what)} a step: a {what} may have several samples", False)
        return Fact(f"{batch} per rank", f"samples of a step: so in {percent(share, 2)} of steps", share >= _SURE)
    ranks = len(np.unique(reads.rank))
    if steps:
        each = len(reads) / ranks / max(epochs, 1) / steps
        if round(each) <= 1:
            what = "file" if data.is_whole else "call"
            return Fact("1 per rank", f"{each:.3g} {what}s a step: a {what} may have several samples", False)
        near = abs(each - round(each)) < 0.1 and each >= 1
        return Fact(f"{max(round(each), 1)} per rank", f"{each:.3g} samples for each step of a rank", near)
    # A thread first reads several batches ahead without a gap.
    sizes = [len(some) for rows in _lanes_of(reads) for some in _split_bursts(reads, rows)[1:]]
    batch, share = mode_of(np.array(sizes, np.int64))
    if len(sizes) >= _FEWEST_BURSTS and share >= _SURE:
        return Fact(f"{batch} per rank", f"{percent(share, 2)} of {len(sizes)} groups of reads between longer gaps")
    return Fact("", "no steps in the trace, and no gaps between batches: its compute would show them", False)


def _is_in_order(reads: SampleReads) -> bool:
    """Return whether each rank reads samples in the order of the files."""
    same = reads.rank[1:] == reads.rank[:-1]
    return bool(same.any()) and float((np.diff(reads.sample)[same] > 0).mean()) >= _IN_ORDER


def _lanes_of(reads: SampleReads) -> list[Ints]:
    """Return the reads of each thread in each epoch."""
    return [rows for _, rows in group_rows(_number_rows(reads.lane, reads.epoch))]


def _number_rows(*columns: Ints) -> Ints:
    """Return a number for each different row of some columns; (n,)."""
    order = np.lexsort(columns[::-1])
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(find_starts(*(column[order] for column in columns)))
    return numbers


def _split_bursts(reads: SampleReads, rows: Ints) -> list[Ints]:
    """Return the reads of a thread between gaps that are longer than all others, and than the reads themselves."""
    if len(rows) < 3:
        return [rows]
    usual = int(np.median(reads.end[rows] - reads.begin[rows]))
    gaps = np.maximum(reads.begin[rows][1:] - reads.end[rows][:-1], usual)
    ordered = np.sort(gaps)
    jump = int(np.argmax(ordered[1:] / np.maximum(ordered[:-1], 1)))
    is_clear = ordered[jump + 1] > _GAP * max(ordered[jump], 1)
    if not is_clear:
        return [rows]
    found: list[Ints] = np.split(rows, np.flatnonzero(gaps >= ordered[jump + 1]) + 1)
    return found


def _describe_order(reads: SampleReads, are_placed: bool) -> dict[str, Fact]:
    """Return the order of samples, and how ranks share them."""
    ranks = len(np.unique(reads.rank))
    passes = [(int(reads.rank[rows[0]]), _order_of(reads, rows)) for rows in _epochs_of(reads)]
    orders = dict(enumerate(order for _, order in passes))
    long = [order for order in orders.values() if len(order) >= _FEWEST]
    facts: dict[str, Fact] = {}
    if not are_placed:
        return {"shuffle": Fact("", "calls of a library have no offsets")}
    if not long:
        facts["shuffle"] = Fact("off", f"fewer than {_FEWEST} samples of a rank in an epoch show no order", False)
        return facts | {"shard": _describe_shard(reads, ranks)}
    ascending = float(np.mean([np.mean(np.diff(order) > 0) for order in long]))
    lanes = [reads.sample[rows] for rows in _lanes_of(reads) if len(rows) >= _FEWEST]
    if lanes:  # threads of a rank that read in order meet in any order
        ascending = max(ascending, float(np.mean([np.mean(np.diff(order) > 0) for order in lanes])))
    if ascending >= _IN_ORDER:
        facts["shuffle"] = Fact("off", f"{percent(ascending, 2)} of samples are behind the one before")
        facts["shard"] = _describe_shard(reads, ranks)
        return facts
    why = f"{percent(ascending, 2)} of samples are behind the one before, as in any order"
    by_rank = {rank: [order for own, order in passes if own == rank] for rank in np.unique(reads.rank).tolist()}
    pairs = [(own[0], own[1]) for own in by_rank.values() if len(own) > 1]
    if not pairs:
        facts["shuffle"] = Fact(
            "samples globally each epoch", f"{why}; one epoch does not show if others differ", False
        )
        return facts
    again = np.mean([np.array_equal(one[:_FEWEST], other[:_FEWEST]) for one, other in pairs]) > 0.5
    shared = float(np.mean([len(np.intersect1d(one, other)) / max(len(one), 1) for one, other in pairs]))
    when = "once" if again else "each epoch"
    if shared > _SURE and ranks > 1:
        facts["shuffle"] = Fact(
            f"samples within shard {when}", f"{why}; {percent(shared, 2)} of a rank's samples come again"
        )
    else:
        one = "; one rank has all samples" if ranks == 1 else f"; {percent(shared, 2)} of a rank's samples come again"
        facts["shuffle"] = Fact(f"samples globally {when}", why + one, ranks > 1)
    if ranks > 1 and _share_all(reads) > _SURE:
        facts["shard"] = Fact("off", "all ranks read the same samples")
    return facts


def _order_of(reads: SampleReads, rows: Ints) -> Ints:
    """Return the samples of some reads in their order: of steps if they are known, else of time."""
    order: Ints = reads.sample[rows[np.lexsort((reads.begin[rows], reads.step[rows]))]]
    return order


def _share_all(reads: SampleReads) -> float:
    """Return the share of the samples of an epoch that all ranks read."""
    ranks = len(np.unique(reads.rank))
    (_, sample), _ = count_by(reads.rank, reads.sample)
    return float((np.unique(sample, return_counts=True)[1] == ranks).mean())


def _describe_shard(reads: SampleReads, ranks: int) -> Fact:
    if ranks == 1:
        return Fact("", "one rank reads all", False)
    if _share_all(reads) > _SURE:
        return Fact("off", "all ranks read the same samples")
    first = reads.epoch == reads.epoch[0]
    widths = []
    for _, rows in group_rows(reads.rank[first]):
        own = np.unique(reads.sample[first][rows])
        widths.append((own[-1] - own[0] + 1) / len(own))
    if float(np.median(widths)) < 1.5:
        return Fact("by block", "each rank reads samples next to each other")
    return Fact("by sample", "ranks read samples in turn")


def _describe_compute(view: View, computes: Ints, data: DataFiles | None, readers: int) -> Fact:
    if len(computes):
        times = view.events.duration[computes] / 1e9
        mean, spread = float(times.mean()), float(times.std())
        text = format_seconds(float(f"{np.median(times):.3g}"))
        if spread > _STEADY * mean:
            why = f"the median of {len(computes):_} steps, which differ by {percent(spread / mean, 2)}"
            return Fact(text, why, False)
        return Fact(text, f"{len(computes):_} steps of the trace")
    if data is None:
        return Fact("0 s", "no compute in the trace", False)
    reads = data.reads
    gaps = []
    for rows in _epochs_of(reads):
        bursts = [_split_bursts(reads, rows[some]) for _, some in group_rows(reads.lane[rows])]
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
        every = round(steps / syncs)
        return Fact("barrier" if every <= 1 else f"barrier every {every} steps", "syncs of the trace")
    if view.trace.source == "dliosim":
        return Fact("off", "no sync in the trace")
    return Fact("barrier", "the trace has no syncs: this is what most jobs do", False)
