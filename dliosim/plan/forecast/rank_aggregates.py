"""Figures over all ranks, from the planned ranks of an epoch: exact if closed forms or complete plans allow it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dliosim.formats.protocols import Ints
from dliosim.model import Dataset, Job, Loop, communicator_size
from dliosim.model.epoch_size import pads_all_ranks, samples_of_ranks, shard_bounds
from dliosim.plan.forecast.forecast_types import RankSpread, spread_of, uniform_spread
from dliosim.plan.forecast.layout_forecast import Placement

_COUNTED_RANKS = 65_536


@dataclass(frozen=True, slots=True)
class CountInput:
    """The input of counting an epoch."""

    loop: Loop  #: loop that is counted
    dataset: Dataset  #: data set of the loop
    placement: Placement  #: places of the samples
    job: Job  #: ranks and nodes
    ranks: list[int]  #: ranks whose plans are made
    stream: bool  #: true if epochs do not divide the passes (requests)
    rows: int  #: samples or calls that may be planned on all ranks together

    @property
    def is_stand_in(self) -> bool:
        """True if the placement is that of samples which all have the mean size."""
        return self.placement.dataset.constant_size != self.dataset.constant_size


@dataclass(frozen=True, slots=True)
class RankPlan:
    """Figures of one planned rank."""

    bytes: int  #: bytes of the samples that are read
    files: Ints  #: numbers of the files that are read, sorted, each once
    heads: int  #: calls before which `open each sample` opens a file
    calls: int  #: calls as planned
    issued: int  #: calls as a run counts them; one copy out of a mapping stands for several
    moved: int  #: bytes of all calls
    largest_step: int  #: bytes of the largest step
    plan_bytes: int  #: bytes of the plan's columns
    rounds: Ints  #: collective rounds of each step, (steps,)
    span: Ints  #: first byte, last byte and bytes of the first steps, (3, steps)
    kept: Ints  #: samples that `cache memory` takes in the first epoch, sorted


@dataclass(frozen=True, slots=True)
class EpochAggregate:
    """The plans of an epoch, and the context for figures over all ranks."""

    case: CountInput  #: what is counted
    steps: int  #: steps of the epoch
    scale: float  #: steps of the epoch for each planned step
    whole: bool  #: true if nothing was left out, of this epoch or of those that it stands for
    found: tuple[RankPlan, ...]  #: planned ranks
    reads_all: bool  #: true if every sample is read from storage
    opening: bool  #: true if a file that all ranks open together is opened in this epoch
    fresh: list[Ints]  #: files that were not open before, for each planned rank
    disjoint: bool  #: true if every sample is one range of a file, and shares no bytes with another sample
    sample_bytes: int | None  #: bytes that reading a sample moves; None if they vary
    counted: bool  #: false if only a run shows whether more bytes are moved, or fewer for bytes that samples share
    #: mean of `sample_bytes` over all samples, if they vary and samples are left out; else None
    mean_bytes: float | None

    def make_spread(self, values: list[float], exact: bool = True) -> RankSpread:
        """Return the spread of a figure of the planned ranks."""
        return spread_of(values, self.case.job.ranks, not (self.whole and exact))

    def scale_by_bytes(self, spread: RankSpread, samples: RankSpread) -> RankSpread:
        """Return a figure proportional to bytes, scaled from the planned ranks to all samples at their mean size."""
        if self.mean_bytes is None or not self.reads_all:
            return spread
        planned = sum(one.bytes for one in self.found) * self.scale / len(self.found)
        mean = spread.mean * samples.mean * self.mean_bytes / planned if planned else 0.0
        total = mean * self.case.job.ranks
        return RankSpread(min(spread.minimum, mean), mean, max(spread.maximum, mean), total, spread.estimated)

    def limit_to_readers(self, spread: RankSpread) -> RankSpread:
        """Return a figure for the ranks that read: with `scatter by node` only a node's first rank reads.

        It is an estimate if ranks of several nodes differ, as the launcher decides which ranks are on which node.
        """
        job = self.case.job
        if not self.case.loop.access.scatter or job.ranks_per_node == 1:
            return spread
        uniform = spread.minimum == spread.maximum and job.ranks % job.nodes == 0
        most = spread.total if job.nodes == 1 else spread.mean * job.ranks_per_node
        return RankSpread(0, spread.mean, most, spread.total, spread.estimated or not (uniform or job.nodes == 1))


def count_samples(tally: EpochAggregate) -> RankSpread:
    """Count the samples of a rank: by closed forms, or by counting the shards."""
    loop, dataset, ranks = tally.case.loop, tally.case.dataset, tally.case.job.ranks
    wanted = tally.steps * loop.batch

    def cap_samples(own: int) -> int:
        return wanted if pads_all_ranks(loop) or (loop.last_batch == "pad" and own) else min(wanted, own)

    fewest, most = shard_bounds(loop, dataset, ranks)
    if cap_samples(fewest) == cap_samples(most):
        return uniform_spread(cap_samples(most), ranks)
    if loop.last_batch == "keep" and wanted >= most:  # not `shard off`: there all ranks have the same number
        return RankSpread(fewest, dataset.samples / ranks, most, dataset.samples)
    own = samples_of_ranks(loop, dataset, ranks, np.arange(0, ranks, -(-ranks // _COUNTED_RANKS)))
    counted = np.where(own, wanted, 0) if loop.last_batch == "pad" else np.minimum(own, min(wanted, most))
    spread = spread_of(counted, ranks, len(own) < ranks)
    return replace(spread, minimum=cap_samples(fewest), maximum=cap_samples(most))


def count_bytes(tally: EpochAggregate, samples: RankSpread) -> RankSpread:
    """Count the bytes asked of storage."""
    size = tally.sample_bytes
    if size is None or not tally.reads_all:
        asked = tally.make_spread([one.bytes * tally.scale for one in tally.found], exact=tally.counted)
        return tally.limit_to_readers(tally.scale_by_bytes(asked, samples))
    return tally.limit_to_readers(replace(samples.scale(size), estimated=samples.estimated or not tally.counted))


def _scale_files(tally: EpochAggregate, files: int) -> float:
    """Return the files that a rank touches in all its steps, from the `files` that it touches in the planned steps."""
    total = tally.case.dataset.layout.files
    if tally.scale == 1:
        return files
    if tally.case.loop.shuffle.samples == "globally" and tally.case.loop.shard != "by file":
        # Each step touches files at random: the share of untouched files shrinks geometrically.
        return float(total * (1 - (1 - files / total) ** tally.scale))
    return min(files * tally.scale, float(total))


def count_files(tally: EpochAggregate, samples: RankSpread) -> RankSpread:
    """Count the files that a rank reads."""
    if tally.case.loop.access.scatter:
        return _files_of_nodes(tally, [one.files for one in tally.found])
    if tally.case.dataset.layout.files == 1 and tally.reads_all and samples.minimum:
        return uniform_spread(1, tally.case.job.ranks)
    return tally.make_spread([_scale_files(tally, len(one.files)) for one in tally.found])


def _files_of_nodes(tally: EpochAggregate, files: Sequence[Ints]) -> RankSpread:
    """Count the files that the first rank of each node reads for all ranks of the node, if each rank has `files`."""
    job, together, total = tally.case.job, np.concatenate(files), tally.case.dataset.layout.files
    if tally.whole and job.nodes == 1:
        found, estimated = float(len(np.unique(together))), False
    elif total == 1:
        found, estimated = float(len(together) > 0), not tally.reads_all
    else:
        # As if each rank touched files at random.
        untouched = float(np.mean([1 - _scale_files(tally, len(own)) / total for own in files]))
        found, estimated = total * (1 - untouched**job.ranks_per_node), True
    return _spread_of_readers(found, job.nodes, job.ranks, estimated)


def _spread_of_readers(value: float, readers: int, ranks: int, estimated: bool) -> RankSpread:
    """Return the spread of a figure that is the same on all ranks that read; the others have none."""
    least = value if readers == ranks else 0
    return RankSpread(least, value * readers / ranks, value, value * readers, estimated)


def count_opens(tally: EpochAggregate, samples: RankSpread) -> RankSpread:
    """Count how often a rank opens a file."""
    access, dataset, job, scale = tally.case.loop.access, tally.case.dataset, tally.case.job, tally.scale
    if access.open == "each sample":
        if access.transfer is None and tally.reads_all and tally.disjoint:
            return tally.limit_to_readers(samples)
        # The calls of one rank may continue where those of another end in the same file.
        return tally.limit_to_readers(
            tally.make_spread([one.heads * scale for one in tally.found], exact=not access.scatter)
        )
    handles = access.handles
    always = handles == 1 and tally.reads_all and samples.minimum > 0
    if dataset.layout.files == 1 and (access.is_mpi or always):
        # Batches of one size never need larger buffers later, so no file is opened again.
        exact = tally.whole or dataset.constant_size is not None
        opens, readers = handles if tally.opening else 0, job.nodes if access.scatter else job.ranks
        return _spread_of_readers(opens, readers, job.ranks, not exact)
    if access.scatter:
        # A file that is new to one rank of a node may be open for another: the real number is smaller than this.
        return replace(_files_of_nodes(tally, tally.fresh), estimated=True)
    # Assumed: each reader touches every file that the rank reads.
    opened = [
        min(_scale_files(tally, len(fresh)) * handles, one.calls * scale)
        for one, fresh in zip(tally.found, tally.fresh, strict=True)
    ]
    return tally.make_spread(opened, exact=handles == 1)


def count_calls(tally: EpochAggregate, samples: RankSpread) -> RankSpread:
    """Count the calls that read; a collective call counts as one on every rank."""
    access, job = tally.case.loop.access, tally.case.job
    if access.collective:
        if access.transfer is None:
            return uniform_spread(tally.steps, job.ranks)
        most = np.max([one.rounds for one in tally.found], axis=0)
        return uniform_spread(float(most.sum()) * tally.scale, job.ranks, not tally.whole)
    if access.transfer is None and tally.reads_all and tally.disjoint and access.engine != "mmap":
        return tally.limit_to_readers(samples)
    if access.scatter and access.engine == "mmap" and access.open != "each sample":
        # One copy out of mappings fills a step for all ranks of a node: the rank with most steps decides their number.
        copies = tally.make_spread([one.issued * tally.scale for one in tally.found])
        estimated = copies.estimated or copies.minimum != copies.maximum
        return _spread_of_readers(copies.maximum, job.nodes, job.ranks, estimated)
    return tally.limit_to_readers(
        tally.scale_by_bytes(tally.make_spread([one.issued * tally.scale for one in tally.found]), samples)
    )


def span_ratio(tally: EpochAggregate) -> float | None:
    """Return the span of the file that a step touches for each byte that it reads there; see `PhaseForecast`."""
    job, spans = tally.case.job, np.array([one.span for one in tally.found])
    asked = spans[:, 2].sum(axis=0) * (job.ranks / len(tally.found))
    together = communicator_size(tally.case.loop.access.communicator, job)  # ranks that open a shared file together
    groups = np.array(tally.case.ranks) // together
    planned = [spans[groups == group] for group in np.unique(groups)]
    found = [np.maximum(members[:, 1].max(axis=0) - members[:, 0].min(axis=0), 0) for members in planned]
    span = np.sum(found, axis=0) * (-(-job.ranks // together) / len(planned))
    used = asked > 0
    return float((span[used] / asked[used]).mean()) if used.any() else None
