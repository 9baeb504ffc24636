"""The reads of one rank in one epoch of a loop: samples sharded, shuffled, cut into steps, with places and hashes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dliosim.errors import PlanError
from dliosim.formats.protocols import Ints
from dliosim.model import Dataset, Job, Loop, epoch_size
from dliosim.model.counter_rng import CHUNK, key, mix
from dliosim.plan.samples.io_requests import Extents
from dliosim.plan.samples.joined_places import JoinedPlaces, draw_mixture
from dliosim.plan.samples.places import Places
from dliosim.plan.samples.sample_to_file import FileOrder, Permutation, TableOrder, shuffle_buffer_order

#: Bytes of a plan for each step and each row: the columns of `Extents` and of `Calls`, 8 bytes each.
_STEP_BYTES = 3 * 8
_ROW_BYTES = 9 * 8


def plan_epoch(loop: Loop, places: Places, job: Job, rank: int, epoch: int, first: int = 0) -> Extents:
    """Return the extents of `rank` in `epoch` (from 0), of step `first` and all later steps.

    Time and memory grow with the rank's own steps, not with the data set or the ranks. `shuffle files within shard`
    also needs a table of the rank's files, and so does `shard by file` where N is no multiple of the files. If files
    hold any number of samples (`Dataset.counts`), `shuffle files globally` needs a table of all files.

    Raises PlanError: [E113] if a table would have more files than `LARGEST_TABLE`; [E215] if the order of files
    would decide how many samples a rank has.
    """
    dataset = places.dataset
    if (files := epoch_size.files_in_table(loop, dataset, job.ranks)) > epoch_size.LARGEST_TABLE:
        raise PlanError(
            f"`{loop.name}` needs a table of {files:_} files; at most {epoch_size.LARGEST_TABLE:_} are planned", "E113"
        )
    if epoch_size.has_order_dependent_shards(loop, dataset):
        text = f"files of `{dataset.name}` hold different numbers of samples: `shard by file` cannot deal them shuffled"
        raise PlanError(text, "E215")
    reader, own = epoch_size.find_shard(loop, dataset, job.ranks, rank)
    steps = epoch_size.steps_of_epoch(loop, dataset, job.ranks)
    rows = steps * loop.batch if loop.last_batch == "pad" and own else min(steps * loop.batch, own)
    begin = min(first * loop.batch, rows)
    index = np.arange(begin, rows)
    if rows > own:
        index %= own
    if isinstance(places, JoinedPlaces):
        sample = _samples_of_several(loop, places, job.ranks, reader, epoch, own, index)
    else:
        sample = _rank_samples(loop, places, job.ranks, reader, epoch, own, index)
    file, offset, length = places.locate(sample)
    step_start = np.minimum(np.arange(first, steps + 1) * loop.batch, rows) - begin
    return Extents(sample, file, offset, length, step_start * dataset.rows)


def plan_bytes(loop: Loop, dataset: Dataset, steps: int) -> int:
    """Return the bytes of memory that planning `steps` steps of a rank takes, at least."""
    return steps * (_STEP_BYTES + epoch_size.rows_of_step(loop, dataset) * _ROW_BYTES)


def _samples_of_several(
    loop: Loop, places: JoinedPlaces, ranks: int, rank: int, epoch: int, own: int, index: Ints
) -> Ints:
    """Return the samples of several data sets at places `index` of the rank's own sequence.

    Without weights sample i of each, by the order of the first. Else the data set at each position is drawn, and it
    gives the next sample of its own order, as one rank would read it; a new order begins where one ends.
    """
    dataset, members = places.dataset, places.members
    if not dataset.sources.weights:
        sample = _rank_samples(loop, members[0].places, ranks, rank, epoch, own, index)
        return np.add.outer(sample, [one.first_sample for one in members]).ravel()
    position = _stream_positions(loop, dataset.samples, ranks, rank, index)
    alone, sample = replace(loop, shard="off"), np.empty(len(position), np.int64)
    for number, rows, turn in draw_mixture(dataset, loop.name, epoch, position):
        member, quota = members[number], dataset.sources.quotas[number]
        total = member.places.dataset.samples
        rounds = -(-dataset.samples // sum(dataset.sources.quotas) * quota // total)
        again, index = np.divmod(turn, total)
        order = np.argsort(again, kind="stable")
        for some in np.split(order, np.flatnonzero(np.diff(again[order])) + 1) if len(order) else ():
            number_of_order = epoch * rounds + int(again[some[0]])
            found = _rank_samples(alone, member.places, 1, 0, number_of_order, total, index[some])
            sample[rows[some]] = found + member.first_sample
    return sample


def _rank_samples(loop: Loop, places: Places, ranks: int, rank: int, epoch: int, own: int, index: Ints) -> Ints:
    """Return the samples at places `index` of the rank's own sequence of `own` samples."""
    if not len(index):
        return index
    dataset = places.dataset
    total, shuffle = dataset.samples, loop.shuffle
    round_of_samples = 0 if shuffle.samples_once else epoch
    round_of_files = 0 if shuffle.files_once else epoch
    by_file = loop.shard == "by file"
    if shuffle.samples == "within shard" or (shuffle.samples == "globally" and by_file):
        permutation = Permutation(own, key(dataset.seed, "within", dataset.name, round_of_samples, rank))
        index = permutation(index)
    elif shuffle.samples == "within buffer":
        seed = key(dataset.seed, "buffer", dataset.name, round_of_samples, rank)
        index = shuffle_buffer_order(own, shuffle.buffer, seed, int(index.max()) + 1)[index]
    file_key = key(dataset.seed, "files", dataset.name, round_of_files) if shuffle.files == "globally" else None
    if dataset.counts is None:
        order = FileOrder(total, dataset.layout.files, file_key)
    else:
        order = TableOrder(places.first_samples(np.arange(dataset.layout.files + 1)), file_key)
    own_key = None
    if shuffle.files == "within shard":
        own_key = key(dataset.seed, "files within", dataset.name, round_of_files, rank)
    if by_file:
        return _samples_by_file(order, ranks, rank, own_key, index)
    if own_key is not None:
        index = _permute_files(loop, order, ranks, rank, own_key, own, index)
    position = _stream_positions(loop, total, ranks, rank, index)
    if shuffle.samples == "globally":
        position = Permutation(total, key(dataset.seed, "samples", dataset.name, round_of_samples))(position)
    return order.samples_at(position)


def _stream_positions(loop: Loop, total: int, ranks: int, rank: int, index: Ints) -> Ints:
    """Return the positions in the stream of all samples for places in the sequence of one rank."""
    if loop.shard == "by sample":
        return index + (index // loop.batch * (ranks - 1) + rank) * loop.batch
    if loop.shard == "by block":
        return index + rank * total // ranks
    return index


def _count_places_below(loop: Loop, total: int, ranks: int, rank: int, position: Ints) -> Ints:
    """Count the places of the rank's sequence before each position of the stream."""
    if loop.shard == "by sample":
        turn = position // (ranks * loop.batch)
        below: Ints = np.clip(position - (turn * ranks + rank) * loop.batch, 0, loop.batch)
        return below + turn * loop.batch
    if loop.shard == "by block":
        first, last = rank * total // ranks, (rank + 1) * total // ranks
        return np.clip(position, first, last) - first
    return position


def _samples_by_file(order: FileOrder, ranks: int, rank: int, own_key: int | None, index: Ints) -> Ints:
    """Return samples of the files in places rank, rank + R, rank + 2 R, ... of the order."""
    places = len(range(rank, order.files, ranks))
    if order.each is not None:
        group, within = np.divmod(index, order.each)
        if own_key is not None:
            group = Permutation(places, own_key)(group)
    else:
        place = rank + np.arange(places) * ranks
        counts = order.starts_of(place + 1) - order.starts_of(place)
        group, within = _permute_groups(counts, own_key, index)
    file = order.files_at(rank + group * ranks)
    return within + order.first_samples(file)


def _permute_files(loop: Loop, order: FileOrder, ranks: int, rank: int, own_key: int, own: int, index: Ints) -> Ints:
    """Return places with the files of the rank's shard permuted; the samples of each file keep their order."""
    if order.each == 1:
        return Permutation(own, own_key)(index)
    ends = _stream_positions(loop, order.total, ranks, rank, np.array([0, own - 1]))
    first, last = order.places_of(ends).tolist()
    starts = order.starts_of(np.arange(first, last + 2))
    bounds = _count_places_below(loop, order.total, ranks, rank, starts)
    group, within = _permute_groups(np.diff(bounds), own_key, index)
    return bounds[group] + within


def _permute_groups(counts: Ints, key: int | None, index: Ints) -> tuple[Ints, Ints]:
    """Return the group and the member at each place, if groups of `counts` members are in permuted order."""
    groups = np.arange(len(counts))
    if key is not None:
        groups = Permutation(len(counts), key)(groups)
    ends = np.cumsum(counts[groups])
    place = np.searchsorted(ends, index, side="right")
    chosen = groups[place]
    return chosen, index - (ends[place] - counts[chosen])


_FACTORS = tuple(np.uint64(key(0, "digest", i) | 1) for i in range(4))


def order_hash(rank: int, extents: Extents, first_step: int, last_step: int, epoch: int = 0, salt: int = 0) -> int:
    """Return a sum of hashes of (salt, epoch, step, rank, sample, length), over the rows of some steps."""
    rows = np.diff(extents.step_start[first_step : last_step + 1])
    step = np.repeat(np.arange(first_step, last_step), rows)
    first, last = int(extents.step_start[first_step]), int(extents.step_start[last_step])
    return _sum_hashes(key(salt, "order", epoch, rank), step, extents.sample[first:last], extents.length[first:last])


def extent_hash(extents: Extents, first_step: int, last_step: int, salt: int = 0) -> int:
    """Return a sum of hashes of (salt, file, offset, length), over rows of steps [first_step, last_step)."""
    first, last = int(extents.step_start[first_step]), int(extents.step_start[last_step])
    columns = extents.file[first:last], extents.offset[first:last], extents.length[first:last]
    return _sum_hashes(key(salt, "extents"), *columns)


def _sum_hashes(start: int, *columns: Ints) -> int:
    total = 0
    for begin in range(0, len(columns[0]), CHUNK):
        word = np.full(len(columns[0][begin : begin + CHUNK]), start, np.uint64)
        for column, factor in zip(columns, _FACTORS, strict=False):
            # Mixed after each column: a weighted sum of all would be the same for rows that exchange their values.
            word += column[begin : begin + CHUNK].view(np.uint64) * factor
            mix(word)
        total += int(word.sum(dtype=np.uint64))
    return total & (2**64 - 1)
