"""The I/O of all ranks in the epochs of a loop, counted from their plans.

All ranks are planned if this is affordable; else a sample of ranks, drawn by the seed, and a limited number of
steps. All epochs are planned if this is affordable, as files stay open and samples stay in memory from one epoch to
the next; else one epoch stands for those with other orders. If all epochs have one order, one is enough. Figures by
closed forms are exact in each case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dliosim.formats.protocols import Ints
from dliosim.model import Access, Dataset, Job, JoinedDataset, Loop
from dliosim.model.counter_rng import key
from dliosim.model.epoch_size import files_in_table, rows_of_step, shard_bounds
from dliosim.plan.forecast import rank_aggregates
from dliosim.plan.forecast.forecast_types import PhaseForecast, mean_spread, uniform_spread
from dliosim.plan.forecast.layout_forecast import Placement, mean_read_bytes
from dliosim.plan.forecast.rank_memory import RankMemory, rank_buffers, reader_bytes
from dliosim.plan.samples.io_requests import Calls, Extents, deal_rounds, plan_calls, sample_heads, share_bounds
from dliosim.plan.samples.read_ranges import buffer_bytes, plan_reads, rows_to_keep
from dliosim.plan.samples.sample_to_file import Permutation, sample_sizes
from dliosim.plan.samples.sampler import plan_epoch

_FULL = 4  # up to this number of loops, each has the limits below; more loops share them evenly
_ROWS = 2_000_000  # samples of an epoch planned on all ranks together, or calls if there are more calls
_ALL_RANKS = 2048  # largest number of ranks that are all planned, if their samples are affordable
_SOME_RANKS = 24  # ranks of a sample
_SOME_STEPS = 8  # steps for which a sample has fewer ranks: the first one begins with a file and a unit, others do not
_PART = 4  # a sample of ranks has this part of the rows
_ALL_EPOCHS = 4096  # largest number of (rank, epoch) pairs where all epochs of a loop are planned
_SPAN_STEPS = 16  # steps whose span of the file is measured
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class PassRange:
    """Epochs of a loop with the same number of steps."""

    first: int  #: first epoch, from 1
    last: int  #: last epoch, inclusive
    steps: int  #: steps of each epoch


@dataclass(slots=True)
class _RankState:
    """The state of planned ranks after earlier epochs.

    When an epoch needs larger buffers than there are, all files are opened again.
    """

    kept: list[Ints]  #: samples in memory, for each planned rank
    opened: list[Ints]  #: open files, for each planned rank
    buffer: int = -1  #: bytes of a buffer; -1 before the first epoch


def count_passes(
    loop: Loop,
    dataset: Dataset,
    placement: Placement,
    job: Job,
    passes: Sequence[PassRange],
    stream: bool,
    loops: int = 1,
) -> list[PhaseForecast]:
    """Return passes that follow one another from the first epoch, without demands; `stream` for passes of requests.

    `loops` loops are counted in one forecast: the more there are, the less of each is planned. Figures are estimates
    if the epochs of a range differ and not all of them are planned.
    """
    each, steps = rows_of_step(loop, dataset), max((one.steps for one in passes), default=0)
    table = files_in_table(loop, dataset, job.ranks)
    rows = each * steps + table
    among = max(1, loops // _FULL)
    ranks = _choose_ranks(dataset.seed, job.ranks, rows, (each + table, each * min(steps, _SOME_STEPS) + table), among)
    case = rank_aggregates.CountInput(loop, dataset, placement, job, ranks, stream, _ROWS // among)
    one_order = _has_one_order(loop, dataset)
    plans = len(ranks) * max((one.last for one in passes), default=0)
    every = len(ranks) == job.ranks and plans <= _ALL_EPOCHS // among and plans * rows <= case.rows
    held = _RankState([_NONE] * len(ranks), [_NONE] * len(ranks))
    result: list[PhaseForecast] = []
    for one in passes:
        epochs = range(one.first - 1, one.last if every and not one_order else one.first)
        known = one_order or every or one.last <= 2
        found = _average_epochs([_count_epoch(case, epoch, one.steps, held, known) for epoch in epochs])
        # What the first epoch has read stays; the later ones add nothing.
        cache = result[0].memory.cache if result else int(min(loop.access.memory, found.bytes.maximum))
        memory = replace(found.memory, cache=cache)
        times = one.last - one.first + 1
        result.append(replace(found, times=times, first_epoch=one.first, last_epoch=one.last, memory=memory))
    return result


def unread_pass(loop: Loop, ranks: int, one: PassRange) -> PhaseForecast:
    """Return passes of a loop that reads nothing."""
    nothing, memory = uniform_spread(0, ranks), RankMemory(allreduce=loop.sync.size)
    times, figures = one.last - one.first + 1, (nothing, nothing, nothing, nothing, nothing)
    return PhaseForecast(loop.kind, loop.name, times, one.steps, *figures, memory, one.first, one.last)


def _has_one_order(loop: Loop, dataset: Dataset) -> bool:
    """Return whether every epoch reads the same samples in the same order; each epoch draws a new mixture."""
    shuffle = loop.shuffle
    if isinstance(dataset, JoinedDataset) and dataset.sources.weights:
        return False
    return (shuffle.samples == "off" or shuffle.samples_once) and (shuffle.files == "off" or shuffle.files_once)


def _count_epoch(
    case: rank_aggregates.CountInput, epoch: int, steps: int, held: _RankState, known: bool
) -> PhaseForecast:
    """Count the first `steps` steps of `epoch` (from 0), and update `held`; `known` if no epoch is left out."""
    loop, job, ranks = case.loop, case.job, case.ranks
    affordable = case.rows if len(ranks) == job.ranks else case.rows // _PART
    planned = min(steps, max(1, affordable // (rows_of_step(loop, case.dataset) * len(ranks))))
    part = replace(case, loop=replace(loop, steps=planned))
    found = tuple(_plan_rank(part, rank, epoch, kept) for rank, kept in zip(ranks, held.kept, strict=True))
    needed = max(one.largest_step for one in found)
    grown = needed > held.buffer
    if grown:
        held.buffer = buffer_bytes(case.dataset, needed)
    # A stream of requests is one epoch: what is done at the beginning of an epoch is done once.
    opening = (grown or loop.access.open == "each epoch") and (epoch == 0 or not case.stream)
    if opening:
        held.opened = [_NONE] * len(ranks)
    fresh = [
        one.files[~np.isin(one.files, opened, assume_unique=True)]
        for one, opened in zip(found, held.opened, strict=True)
    ]
    held.opened = [np.concatenate(both) for both in zip(held.opened, fresh, strict=True)]
    if epoch == 0 and not case.stream:
        held.kept = [one.kept for one in found]
    all_planned = len(ranks) == job.ranks and planned == steps
    disjoint, sample_bytes, counted = _classify_samples(case)
    tally = rank_aggregates.EpochAggregate(
        case=case,
        steps=steps,
        scale=steps / max(planned, 1),
        whole=all_planned and case.placement.exact and known,
        found=found,
        reads_all=epoch == 0 or case.stream or not loop.access.memory,
        opening=opening,
        fresh=fresh,
        disjoint=disjoint,
        sample_bytes=sample_bytes,
        counted=counted,
        mean_bytes=mean_read_bytes(case.dataset) if sample_bytes is None and disjoint and not all_planned else None,
    )
    samples = rank_aggregates.count_samples(tally)
    in_units = not disjoint and loop.access.through == "direct"
    asked = sum(one.bytes for one in found)
    widened = asked and (loop.access.cache == "off" or in_units)
    memory = RankMemory(
        rank_buffers(loop, held.buffer, job.ranks_per_node, leads=True),
        round(max(one.plan_bytes for one in found) * tally.scale),
        loop.sync.size if loop.sync.kind == "allreduce" else 0,
        readers=reader_bytes(loop.access, case.dataset),
    )
    return PhaseForecast(
        loop.kind,
        loop.name,
        1,
        steps,
        samples,
        rank_aggregates.count_bytes(tally, samples),
        rank_aggregates.count_files(tally, samples),
        rank_aggregates.count_opens(tally, samples),
        rank_aggregates.count_calls(tally, samples),
        memory,
        amplification=sum(one.moved for one in found) / asked if widened else None,
        span_ratio=rank_aggregates.span_ratio(tally) if case.dataset.layout.files == 1 else None,
    )


def _classify_samples(case: rank_aggregates.CountInput) -> tuple[bool, int | None, bool]:
    """Return the fields `disjoint`, `sample_bytes` and `counted` of `EpochAggregate`."""
    loop, dataset, places, access = case.loop, case.dataset, case.placement.places, case.loop.access
    size = dataset.constant_size
    if access.through == "library":
        return True, size, False  # the library is asked for samples; what it reads for them is not known
    # One collective call reads common bytes of samples once, and also a sample that is in a step twice.
    twice = loop.last_batch == "pad" and loop.batch > shard_bounds(loop, dataset, case.job.ranks)[0]
    known = places.plans_shared_bytes or not access.collective or (places.has_disjoint_samples and not twice)
    return places.has_plain_samples, None if case.is_stand_in else places.read_bytes, known


def _average_epochs(made: Sequence[PhaseForecast]) -> PhaseForecast:
    """Return the mean of several epochs with the same number of steps, and the most memory of any."""
    average: dict[str, Any] = {
        name: mean_spread([getattr(one, name) for one in made]) for name in ("bytes", "files", "opens", "calls")
    }
    for name in ("amplification", "span_ratio"):
        known = [value for one in made if (value := getattr(one, name)) is not None]
        average[name] = sum(known) / len(known) if known else None
    buffers, plan = (max(getattr(one.memory, name) for one in made) for name in ("buffers", "plan"))
    return replace(made[0], **average, memory=replace(made[0].memory, buffers=buffers, plan=plan))


def _choose_ranks(seed: int, ranks: int, rows: int, fewest: tuple[int, int], among: int) -> list[int]:
    """Return the ranks to plan where each has `rows` rows; `fewest` are those of its first step, and of some steps.

    These are all ranks, or a sample that includes the first and, if possible, the last. `among` loops share the limits.
    """
    limit, (first, some) = _ROWS // among, fewest
    few = max(2, _SOME_RANKS // among)
    if ranks <= few and ranks * some <= limit:
        return list(range(ranks))
    most = min(few, max(2, limit // _PART // max(some, 1)), max(1, limit // first))
    if ranks <= most or (ranks <= _ALL_RANKS // among and ranks * rows <= _ROWS // among):
        return list(range(ranks))
    some = Permutation(ranks, key(seed, "ranks forecast"))(np.arange(max(0, most - 2))).tolist()
    return sorted({0, *some, *([ranks - 1] if most > 1 else [])})


def _plan_rank(case: rank_aggregates.CountInput, rank: int, epoch: int, kept: Ints) -> rank_aggregates.RankPlan:
    loop, placement, access = case.loop, case.placement, case.loop.access
    extents = plan_epoch(loop, placement.places, case.job, rank, epoch)
    if case.is_stand_in:
        extents = replace(extents, length=sample_sizes(case.dataset, extents.sample))
    stored = plan_reads(extents, access, kept, placement.places).extents
    made = plan_calls(stored, access.transfer, access.page)
    files = np.sort(stored.file)  # the hashing of np.unique takes seconds if values are evenly spaced
    taken = stored.sample[rows_to_keep(stored, access.memory)] if epoch == 0 and access.memory else _NONE
    return rank_aggregates.RankPlan(
        _request_bytes(case, extents, stored, kept),
        files[np.diff(files, prepend=-1) > 0],
        _count_heads(access, made),
        len(made.length),
        _count_issued_calls(access, made),
        int(made.length.sum()),
        made.buffer_size,
        _table_bytes(extents, made),
        deal_rounds(made, access.transfer).count if access.collective else _NONE,
        _step_spans(stored),
        np.sort(taken),
    )


def _request_bytes(case: rank_aggregates.CountInput, extents: Extents, stored: Extents, kept: Ints) -> int:
    """Return the bytes of the samples that are read; samples that share an encoded unit share its bytes evenly."""
    if not case.placement.places.plans_shared_bytes:
        return int(stored.length.sum())
    return int(extents.length[~np.isin(extents.sample, kept)].sum())


def _count_heads(access: Access, made: Calls) -> int:
    """Return the number of calls before which `open each sample` opens a file."""
    head, readers = sample_heads(made, access.transfer is not None), access.handles
    if readers > 1 and access.by == "sample":  # a reader's share may begin in the middle of a run
        first, last = made.step_start[:-1], made.step_start[1:]
        for begins in share_bounds(first, last, readers)[1:-1]:
            head[begins[first < last]] = True
    return int(head.sum())


def _count_issued_calls(access: Access, made: Calls) -> int:
    """Return the calls as a run counts them: out of a lasting mapping, a reader copies its share of a step at once."""
    if access.engine != "mmap":
        return len(made.length)
    if access.open == "each sample":
        return _count_heads(access, made)
    shares = access.handles if access.by == "sample" else 1
    return int(np.minimum(np.diff(made.step_start), shares).sum())


def _table_bytes(extents: Extents, made: Calls) -> int:
    columns = [*(getattr(extents, name) for name in extents.__slots__), *made]
    return sum({id(column): column.nbytes for column in columns if isinstance(column, np.ndarray)}.values())


def _step_spans(extents: Extents) -> Ints:
    """Return first byte, last byte and bytes of each of the first steps; int64 (3, steps)."""
    steps = min(extents.steps, _SPAN_STEPS)
    result = np.zeros((3, steps), np.int64)
    result[0] = np.iinfo(np.int64).max
    for step in range(steps):
        rows = slice(int(extents.step_start[step]), int(extents.step_start[step + 1]))
        if rows.start < rows.stop:
            end = extents.offset[rows] + extents.length[rows]
            result[:, step] = extents.offset[rows].min(), end.max(), extents.length[rows].sum()
    return result
