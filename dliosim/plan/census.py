"""What the ranks of a job do in one epoch of a loop, counted from their plans without any I/O.

All ranks are planned where that is affordable; else a sample of them, drawn by the seed, and no more steps than are
affordable. What follows from closed forms is exact all the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dliosim.model.counting import samples_of_rank, shard_bounds
from dliosim.model.dataset import Dataset
from dliosim.model.distributions import Distribution, constant
from dliosim.model.job import Job
from dliosim.model.verbs import Loop
from dliosim.plan.extents import Calls, Extents, calls, rounds
from dliosim.plan.figures import Spread, over, same
from dliosim.plan.reading import plan_epoch
from dliosim.plan.shuffling import Permutation
from dliosim.plan.sizes import block_count, block_totals, needs_totals, prefix, sample_sizes
from dliosim.plan.streams import draw, key

AFFORDABLE = 5_000_000  # samples planned, or sizes drawn, for one figure
_ALL_RANKS = 2048  # planned all, if their samples are affordable
_SOME_RANKS = 24
_COUNTED_RANKS = 65_536
_SPAN_STEPS = 16
_DRAWS = 65_536
DIRECT_PAGE = 4096


@dataclass(frozen=True, slots=True)
class Census:
    """One pass over a data set: figures of a rank, over the ranks; see `PhaseForecast`.

    `largest_step` and `plan_bytes` are bytes of the largest batch, and of the plan's columns, on any rank.
    """

    steps: int
    samples: Spread
    bytes: Spread
    files: Spread
    opens: Spread
    calls: Spread
    amplification: float | None
    span_ratio: float | None
    largest_step: int
    plan_bytes: int


@dataclass(frozen=True, slots=True)
class Placement:
    """A data set with what it takes to place its samples; not `exact` where a stand-in of one size takes its place."""

    dataset: Dataset
    prefix: NDArray[np.int64] | None
    exact: bool


@dataclass(frozen=True, slots=True)
class _Rank:
    """Figures of one planned rank; `fresh` are files that were not open before, `span` of some steps."""

    bytes: int
    files: int
    fresh: int
    heads: int
    calls: int
    moved: int
    largest_step: int
    plan_bytes: int
    rounds: NDArray[np.int64]
    span: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Counted:
    """What was planned, and what for: `scale` is steps asked for each step planned; `whole` if nothing was left out."""

    loop: Loop
    dataset: Dataset
    ranks: int
    epoch: int
    steps: int
    scale: float
    whole: bool
    found: tuple[_Rank, ...]

    @property
    def reads_all(self) -> bool:
        """Whether every sample is read from storage."""
        return not (self.epoch and self.loop.access.memory)

    @property
    def handles(self) -> int:
        """Readers of a rank with open files of their own."""
        return 1 if self.loop.access.api == "mpi-collective" else max(1, self.loop.access.readers)

    def over(self, values: list[float], exact: bool = True) -> Spread:
        return over(values, self.ranks, not (self.whole and exact))


def expected(distribution: Distribution) -> float:
    """The mean of a distribution; with clamping, of 65536 draws."""
    if distribution.low is None and distribution.high is None:
        return distribution.mean
    return float(draw(distribution, key(0, "expected"), np.arange(_DRAWS)).mean())


def place(dataset: Dataset) -> Placement:
    """Totals of blocks where they are needed and affordable; else a stand-in of one size, the mean, for all samples."""
    if not needs_totals(dataset):
        return Placement(dataset, None, True)
    if dataset.samples <= AFFORDABLE:
        return Placement(dataset, prefix(block_totals(dataset, 0, block_count(dataset))), True)
    mean = round(float(sample_sizes(dataset, np.arange(_DRAWS)).mean()))
    return Placement(replace(dataset, size=constant(mean)), None, False)


def census(loop: Loop, dataset: Dataset, placement: Placement, job: Job, epoch: int, steps: int) -> Census:
    """Count the first `steps` steps of `epoch` (from 0)."""
    ranks = _ranks(dataset.seed, job.ranks, steps * loop.batch)
    affordable = AFFORDABLE if len(ranks) == job.ranks else AFFORDABLE // 4
    planned = min(steps, max(1, affordable // (loop.batch * len(ranks))))
    part = replace(loop, steps=planned)
    found = tuple(_rank(part, dataset, placement, job, rank, epoch) for rank in ranks)
    whole = len(ranks) == job.ranks and planned == steps and placement.exact
    counted = _Counted(loop, dataset, job.ranks, epoch, steps, steps / max(planned, 1), whole, found)
    samples = _samples(counted)
    asked = sum(one.bytes for one in found)
    return Census(
        steps,
        samples,
        _bytes(counted, samples),
        counted.over([_scaled_files(counted, one.files) for one in found]),
        _opens(counted, samples),
        _calls(counted, samples),
        sum(one.moved for one in found) / asked if loop.access.cache == "off" and asked else None,
        _span_ratio(counted) if dataset.layout.files == 1 else None,
        max(one.largest_step for one in found),
        round(max(one.plan_bytes for one in found) * counted.scale),
    )


def _ranks(seed: int, ranks: int, rows: int) -> list[int]:
    """The ranks to plan when each has `rows` samples: all, or some with the first and the last among them."""
    if ranks <= _SOME_RANKS or (ranks <= _ALL_RANKS and ranks * rows <= AFFORDABLE):
        return list(range(ranks))
    some = Permutation(ranks, key(seed, "ranks forecast"))(np.arange(_SOME_RANKS - 2)).tolist()
    return sorted({0, ranks - 1, *some})


def _rank(loop: Loop, dataset: Dataset, placement: Placement, job: Job, rank: int, epoch: int) -> _Rank:
    extents = plan_epoch(loop, placement.dataset, placement.prefix, job, rank, epoch)
    if not placement.exact:
        extents = replace(extents, length=sample_sizes(dataset, extents.sample))
    stored, opened = extents, np.empty(0, np.int64)
    if epoch and (loop.access.memory or loop.access.open == "once"):
        first = plan_epoch(loop, placement.dataset, placement.prefix, job, rank, 0)
        if loop.access.memory:
            stored = _not_kept(extents, first, loop.access.memory)
        if loop.access.open == "once":
            opened = first.file
    made = calls(stored, loop.access.transfer, DIRECT_PAGE if loop.access.cache == "off" else 1)
    files = _distinct(stored.file)
    return _Rank(
        int(stored.length.sum()),
        len(files),
        int((~np.isin(files, opened)).sum()),
        _heads(loop, made),
        len(made.length),
        int(made.length.sum()),
        made.buffer_size,
        _bytes_of(extents, made),
        rounds(made, loop.access.transfer).count if loop.access.api == "mpi-collective" else np.zeros(0, np.int64),
        _span(stored),
    )


def _distinct(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each value once. By sorting: the hashing of np.unique takes seconds where values are evenly spaced."""
    ordered = np.sort(values)
    fresh = np.ones(len(ordered), np.bool_)
    fresh[1:] = ordered[1:] != ordered[:-1]
    result: NDArray[np.int64] = ordered[fresh]
    return result


def _not_kept(extents: Extents, first: Extents, memory: int) -> Extents:
    """The rows that `cache memory` does not have: it holds the first bytes of the first epoch."""
    kept = first.sample[np.cumsum(first.length) <= memory]
    rows = ~np.isin(extents.sample, kept)
    start = np.append(0, np.cumsum(rows))[extents.step_start]
    return Extents(extents.sample[rows], extents.file[rows], extents.offset[rows], extents.length[rows], start)


def _heads(loop: Loop, made: Calls) -> int:
    """Calls before which `open each sample` opens a file: those that do not go on where the one before them ended."""
    if loop.access.transfer is None:
        return len(made.file)
    goes_on = (made.file[1:] == made.file[:-1]) & (made.offset[1:] == made.offset[:-1] + made.length[:-1])
    return len(made.file) - int(goes_on.sum())


def _bytes_of(extents: Extents, made: Calls) -> int:
    columns = [getattr(table, name) for table in (extents, made) for name in table.__slots__]
    return sum({id(column): column.nbytes for column in columns}.values())


def _span(extents: Extents) -> NDArray[np.int64]:
    """First byte, last byte and bytes of each of the first steps; one row each."""
    steps = min(extents.steps, _SPAN_STEPS)
    result = np.zeros((3, steps), np.int64)
    result[0] = np.iinfo(np.int64).max
    for step in range(steps):
        rows = slice(int(extents.step_start[step]), int(extents.step_start[step + 1]))
        if rows.start < rows.stop:
            end = extents.offset[rows] + extents.length[rows]
            result[:, step] = extents.offset[rows].min(), end.max(), extents.length[rows].sum()
    return result


def _span_ratio(counted: _Counted) -> float | None:
    spans = np.array([one.span for one in counted.found])
    span = spans[:, 1].max(axis=0) - spans[:, 0].min(axis=0)
    asked = spans[:, 2].sum(axis=0) * (counted.ranks / len(counted.found))
    used = asked > 0
    return float((span[used] / asked[used]).mean()) if used.any() else None


def _samples(counted: _Counted) -> Spread:
    """Samples of a rank: by closed forms, or by counting the shards."""
    loop, dataset, ranks = counted.loop, counted.dataset, counted.ranks
    wanted = counted.steps * loop.batch

    def read(own: int) -> int:
        return wanted if loop.last_batch == "pad" and own else min(wanted, own)

    fewest, most = shard_bounds(loop, dataset, ranks)
    if read(fewest) == read(most):
        return same(read(most), ranks)
    if loop.last_batch == "keep" and wanted >= most:  # not `shard off`, where all have as many
        return Spread(fewest, dataset.samples / ranks, most, dataset.samples)
    some = range(0, ranks, -(-ranks // _COUNTED_RANKS))
    spread = over([read(samples_of_rank(loop, dataset, ranks, rank)) for rank in some], ranks, len(some) < ranks)
    return replace(spread, minimum=read(fewest), maximum=read(most))


def _bytes(counted: _Counted, samples: Spread) -> Spread:
    size = counted.dataset.fixed_size
    if size is None or not counted.reads_all:
        return counted.over([one.bytes * counted.scale for one in counted.found])
    return Spread(
        samples.minimum * size, samples.mean * size, samples.maximum * size, samples.total * size, samples.estimated
    )


def _scaled_files(counted: _Counted, files: int) -> float:
    """Files that a rank touches in all its steps, when it touches `files` in those that were planned."""
    total = counted.dataset.layout.files
    if counted.loop.shuffle.samples == "globally" and counted.loop.shard != "by file":
        # Each step meets files at random: the share left untouched shrinks geometrically.
        return float(total * (1 - (1 - files / total) ** counted.scale))
    return min(files * counted.scale, float(total))


def _opens(counted: _Counted, samples: Spread) -> Spread:
    access, scale = counted.loop.access, counted.scale
    if access.open == "each sample":
        if access.transfer is None and counted.reads_all:
            return samples
        return counted.over([one.heads * scale for one in counted.found])
    if access.api != "posix" and counted.dataset.layout.files == 1:  # opened by all together
        return same(0 if counted.epoch and access.open == "once" else counted.handles, counted.ranks)
    # Each reader is taken to meet every file that the rank reads.
    opens = [min(_scaled_files(counted, one.fresh) * counted.handles, one.calls * scale) for one in counted.found]
    return counted.over(opens, exact=counted.handles == 1)


def _calls(counted: _Counted, samples: Spread) -> Spread:
    access = counted.loop.access
    if access.api == "mpi-collective":
        if access.transfer is None:
            return same(counted.steps, counted.ranks)
        most = np.maximum(np.max([one.rounds for one in counted.found], axis=0), 1)
        return same(float(most.sum()) * counted.scale, counted.ranks, not counted.whole)
    if access.transfer is None and counted.reads_all:
        return samples
    return counted.over([one.calls * counted.scale for one in counted.found])
