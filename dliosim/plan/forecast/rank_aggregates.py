"""Figures over all ranks, from what was planned of an epoch: exact where closed forms or complete plans allow it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dliosim.model.access import Access
from dliosim.model.dataset import Dataset
from dliosim.model.epoch_size import samples_of_ranks, shard_bounds
from dliosim.model.verbs import Loop
from dliosim.plan.forecast.forecast_types import RankSpread, spread_of, uniform_spread

_COUNTED_RANKS = 65_536


@dataclass(frozen=True, slots=True)
class RankPlan:
    """Figures of one planned rank. Of `calls` as planned so many are `issued`: a copy out of mappings is of many.

    `span` is of some steps, `kept` what `cache memory` takes of a first epoch.
    """

    bytes: int
    files: NDArray[np.int64]
    heads: int
    calls: int
    issued: int
    moved: int
    largest_step: int
    plan_bytes: int
    rounds: NDArray[np.int64]
    span: NDArray[np.int64]
    kept: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class EpochAggregate:
    """What was planned of an epoch, and what for.

    `scale` is steps asked for each step planned; `whole` if nothing was left out, of this epoch or of those that it
    stands for. `reads_all` is whether every sample is read from storage, `opening` whether what all ranks open together
    is opened, `fresh` which of each planned rank's files were not open before. `group` says for
    each planned rank which of all `groups` that open a shared file together it is in. `apart` is whether every sample
    is one range of a file, which no other shares, and `sample_bytes` what reading one moves, None where that varies.
    `mean_bytes` is that in the mean of all samples where it varies and samples are left out, else None.
    Unless `counted`, only a run can tell what more is moved, or less for what samples have in common.
    """

    loop: Loop
    dataset: Dataset
    ranks: int
    nodes: int
    steps: int
    scale: float
    whole: bool
    found: tuple[RankPlan, ...]
    reads_all: bool
    opening: bool
    fresh: list[NDArray[np.int64]]
    group: NDArray[np.int64]
    groups: int
    apart: bool
    sample_bytes: int | None
    counted: bool
    mean_bytes: float | None

    def make_spread(self, values: list[float], exact: bool = True) -> RankSpread:
        """The spread of a figure of the planned ranks."""
        return spread_of(values, self.ranks, not (self.whole and exact))

    def scale_by_bytes(self, spread: RankSpread, samples: RankSpread) -> RankSpread:
        """A figure that goes with the bytes, of the ranks planned, for all samples that are read, of mean size."""
        if self.mean_bytes is None or not self.reads_all:
            return spread
        planned = sum(one.bytes for one in self.found) * self.scale / len(self.found)
        mean = spread.mean * samples.mean * self.mean_bytes / planned if planned else 0.0
        return replace(
            spread,
            minimum=min(spread.minimum, mean),
            mean=mean,
            maximum=max(spread.maximum, mean),
            total=mean * self.ranks,
        )

    def limit_to_readers(self, spread: RankSpread) -> RankSpread:
        """A figure of those who read, where with `scatter by node` the first rank of a node reads for all of its.

        An estimate where ranks of several nodes differ: who is on which node, the launcher decides.
        """
        members = -(-self.ranks // self.nodes)
        if not self.loop.access.scatter or members == 1:
            return spread
        alike = spread.minimum == spread.maximum and self.ranks % self.nodes == 0
        most = spread.total if self.nodes == 1 else spread.mean * members
        return RankSpread(0, spread.mean, most, spread.total, spread.estimated or not (alike or self.nodes == 1))


def count_handles(access: Access) -> int:
    """Readers of a rank with open files of their own."""
    return 1 if access.collective else max(1, access.readers)


def count_samples(tally: EpochAggregate) -> RankSpread:
    """Samples of a rank: by closed forms, or by counting the shards."""
    loop, dataset, ranks = tally.loop, tally.dataset, tally.ranks
    wanted = tally.steps * loop.batch

    def cap_samples(own: int) -> int:
        return wanted if loop.last_batch == "pad" and own else min(wanted, own)

    fewest, most = shard_bounds(loop, dataset, ranks)
    if cap_samples(fewest) == cap_samples(most):
        return uniform_spread(cap_samples(most), ranks)
    if loop.last_batch == "keep" and wanted >= most:  # not `shard off`, where all have as many
        return RankSpread(fewest, dataset.samples / ranks, most, dataset.samples)
    own = samples_of_ranks(loop, dataset, ranks, np.arange(0, ranks, -(-ranks // _COUNTED_RANKS)))
    counted = np.where(own, wanted, 0) if loop.last_batch == "pad" else np.minimum(own, min(wanted, most))
    spread = spread_of(counted, ranks, len(own) < ranks)
    return replace(spread, minimum=cap_samples(fewest), maximum=cap_samples(most))


def count_bytes(tally: EpochAggregate, samples: RankSpread) -> RankSpread:
    """Bytes asked of storage."""
    size = tally.sample_bytes
    if size is None or not tally.reads_all:
        asked = tally.make_spread([one.bytes * tally.scale for one in tally.found], exact=tally.counted)
        return tally.limit_to_readers(tally.scale_by_bytes(asked, samples))
    return tally.limit_to_readers(
        RankSpread(
            samples.minimum * size,
            samples.mean * size,
            samples.maximum * size,
            samples.total * size,
            samples.estimated or not tally.counted,
        )
    )


def _scale_files(tally: EpochAggregate, files: int) -> float:
    """Files that a rank touches in all its steps, when it touches `files` in those that were planned."""
    total = tally.dataset.layout.files
    if tally.scale == 1:
        return files
    if tally.loop.shuffle.samples == "globally" and tally.loop.shard != "by file":
        # Each step meets files at random: the share left untouched shrinks geometrically.
        return float(total * (1 - (1 - files / total) ** tally.scale))
    return min(files * tally.scale, float(total))


def count_files(tally: EpochAggregate, samples: RankSpread) -> RankSpread:
    """Files that a rank reads."""
    if tally.loop.access.scatter:
        return _files_of_nodes(tally, [one.files for one in tally.found])
    if tally.dataset.layout.files == 1 and tally.reads_all and samples.minimum:
        return uniform_spread(1, tally.ranks)
    return tally.make_spread([_scale_files(tally, len(one.files)) for one in tally.found])


def _files_of_nodes(tally: EpochAggregate, files: Sequence[NDArray[np.int64]]) -> RankSpread:
    """Files that the first rank of each node reads for all of its ranks, of which each has `files`."""
    together, members = np.concatenate(files), -(-tally.ranks // tally.nodes)
    if tally.whole and tally.nodes == 1:
        found, estimated = float(len(np.unique(together))), False
    elif tally.dataset.layout.files == 1:
        found, estimated = float(len(together) > 0), not tally.reads_all
    else:
        total = tally.dataset.layout.files
        # As if each rank met files at random.
        untouched = float(np.mean([1 - _scale_files(tally, len(own)) / total for own in files]))
        found, estimated = total * (1 - untouched**members), True
    least = found if members == 1 else 0
    return RankSpread(least, found * tally.nodes / tally.ranks, found, found * tally.nodes, estimated)


def count_opens(tally: EpochAggregate, samples: RankSpread) -> RankSpread:
    """Files that a rank opens, as often as it does."""
    access, dataset, scale = tally.loop.access, tally.dataset, tally.scale
    if access.open == "each sample":
        if access.transfer is None and tally.reads_all and tally.apart:
            return tally.limit_to_readers(samples)
        # Where one rank's calls end, another's may go on in the same file.
        return tally.limit_to_readers(
            tally.make_spread([one.heads * scale for one in tally.found], exact=not access.scatter)
        )
    handles = count_handles(access)
    always = handles == 1 and tally.reads_all and samples.minimum > 0
    if dataset.layout.files == 1 and (access.is_mpi or always):
        # Batches of one size never need larger buffers later on, and so no file opened anew.
        exact = tally.whole or dataset.constant_size is not None
        opens, readers = handles if tally.opening else 0, tally.nodes if access.scatter else tally.ranks
        least = opens if readers == tally.ranks else 0
        return RankSpread(least, opens * readers / tally.ranks, opens, opens * readers, not exact)
    if access.scatter:
        # What one rank of a node had read before may be new to another: less is opened than this.
        return replace(_files_of_nodes(tally, tally.fresh), estimated=True)
    # Each reader is taken to meet every file that the rank reads.
    opened = [
        min(_scale_files(tally, len(fresh)) * handles, one.calls * scale)
        for one, fresh in zip(tally.found, tally.fresh, strict=True)
    ]
    return tally.make_spread(opened, exact=handles == 1)


def count_calls(tally: EpochAggregate, samples: RankSpread) -> RankSpread:
    """Calls that read; a collective one is one on every rank."""
    access = tally.loop.access
    if access.collective:
        if access.transfer is None:
            return uniform_spread(tally.steps, tally.ranks)
        most = np.max([one.rounds for one in tally.found], axis=0)
        return uniform_spread(float(most.sum()) * tally.scale, tally.ranks, not tally.whole)
    if access.transfer is None and tally.reads_all and tally.apart and access.engine != "mmap":
        return tally.limit_to_readers(samples)
    if access.scatter and access.engine == "mmap" and access.open != "each sample":
        # One copy out of mappings fills a step of all ranks of a node: as many as the rank with most steps needs.
        copies = tally.make_spread([one.issued * tally.scale for one in tally.found])
        alike = copies.minimum == copies.maximum
        total = copies.maximum * tally.nodes
        least = copies.maximum if tally.nodes == tally.ranks else 0
        return RankSpread(least, total / tally.ranks, copies.maximum, total, copies.estimated or not alike)
    return tally.limit_to_readers(
        tally.scale_by_bytes(tally.make_spread([one.issued * tally.scale for one in tally.found]), samples)
    )


def span_ratio(tally: EpochAggregate) -> float | None:
    """Span of the file that a step touches for each byte that it reads there; see `PhaseForecast`."""
    spans = np.array([one.span for one in tally.found])
    asked = spans[:, 2].sum(axis=0) * (tally.ranks / len(tally.found))
    planned = [spans[tally.group == group] for group in np.unique(tally.group)]
    found = [np.maximum(members[:, 1].max(axis=0) - members[:, 0].min(axis=0), 0) for members in planned]
    span = np.sum(found, axis=0) * (tally.groups / len(planned))
    used = asked > 0
    return float((span[used] / asked[used]).mean()) if used.any() else None
