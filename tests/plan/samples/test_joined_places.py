"""Properties of loops over several data sets: pairs of samples, and mixtures by weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from dliosim.formats.protocols import Ints
from dliosim.model import Access, Dataset, Job, JoinedDataset, Layout, Loop, Shuffle, Sources, constant
from dliosim.model.joined import join_datasets
from dliosim.plan.samples.read_ranges import plan_reads
from dliosim.plan.samples.sampler import plan_epoch
from tests.plan.helpers import placed, plans
from tests.strategies import joined_datasets, rank_counts

LOOP = Loop("train", "l", Sources(()), Access(), batch=3, last_batch="keep")
_shuffles = st.sampled_from([Shuffle(), Shuffle("globally"), Shuffle("globally", True), Shuffle(files="globally")])
_shards = st.sampled_from(["by sample", "by block"])
loops = st.builds(lambda shuffle, shard: replace(LOOP, shuffle=shuffle, shard=shard), _shuffles, _shards)
_NO = np.empty(0, np.int64)


def data(name: str, samples: int, files: int = 1) -> Dataset:
    return Dataset(name, 1, samples, constant(10), Layout("files", files), name)


def stream(loop: Loop, dataset: JoinedDataset, ranks: int, epoch: int = 0) -> Ints:
    """The samples of all ranks in the order of their positions."""
    made = plans(loop, dataset, Job(ranks), epoch)
    if loop.shard == "by block":
        return np.concatenate([plan.sample for plan in made])
    steps = [plan.sample[slice(*plan.step_start[step : step + 2])] for step in range(made[0].steps) for plan in made]
    return np.concatenate(steps or [_NO])


def members_of(dataset: JoinedDataset, samples: Ints) -> Iterator[tuple[Dataset, Ints]]:
    """Each data set with the numbers of its own samples."""
    first = np.cumsum([0, *(one.samples for one in dataset.joined)])
    for number, one in enumerate(dataset.joined):
        yield one, samples[(samples >= first[number]) & (samples < first[number + 1])] - first[number]


@given(joined_datasets(mixed=False), loops, rank_counts, st.integers(0, 3))
def test_a_step_has_sample_i_of_each_data_set_and_an_epoch_every_sample_once(dataset, loop, ranks, epoch):
    each = len(dataset.joined)
    made = plans(loop, dataset, Job(ranks), epoch)
    first = np.cumsum([0, *(one.samples for one in dataset.joined)])[:-1]
    for plan in made:
        rows = plan.sample.reshape(-1, each)
        assert (rows - first == rows[:, :1]).all()
        assert (plan.step_start % each == 0).all()
        assert np.diff(plan.step_start).max(initial=0) <= loop.batch * each
    samples = np.concatenate([plan.sample for plan in made])
    for one, own in members_of(dataset, samples):
        assert np.sort(own).tolist() == list(range(one.samples))


@given(joined_datasets(mixed=False), loops, rank_counts)
def test_pairs_come_in_the_order_of_the_first_data_set(dataset, loop, ranks):
    alone = plans(loop, dataset.joined[0], Job(ranks))
    pairs = plans(loop, dataset, Job(ranks))
    assert [one.sample[:: len(dataset.joined)].tolist() for one in pairs] == [one.sample.tolist() for one in alone]


@given(joined_datasets(mixed=True), loops, rank_counts, st.integers(0, 3))
def test_a_mixture_has_its_shares_and_reads_no_sample_again_before_the_data_set_ends(dataset, loop, ranks, epoch):
    samples, quotas = stream(loop, dataset, ranks, epoch), dataset.sources.quotas
    assert len(samples) == dataset.samples
    assert len(samples) % sum(quotas) == 0
    for (one, own), quota in zip(members_of(dataset, samples), quotas, strict=True):
        assert len(own) * sum(quotas) == len(samples) * quota
        if not dataset.sources.repeated:
            assert len(own) <= one.samples
        for first in range(0, len(own), one.samples):
            some = own[first : first + one.samples]
            assert len(np.unique(some)) == len(some)


@given(joined_datasets(mixed=True), rank_counts)
def test_blocks_of_a_mixture_hold_exact_shares(dataset, ranks):
    samples, quotas = stream(LOOP, dataset, ranks), dataset.sources.quotas
    block = sum(quotas) * max(1, 1000 // sum(quotas))
    for first in range(0, len(samples), block):
        some = samples[first : first + block]
        counts = [len(own) for _, own in members_of(dataset, some)]
        assert counts == [len(some) * quota // sum(quotas) for quota in quotas]


@given(joined_datasets(mixed=True), loops, rank_counts, st.integers(0, 3))
def test_the_order_of_a_mixture_is_the_same_on_any_number_of_ranks(dataset, loop, ranks, epoch):
    assert stream(loop, dataset, ranks, epoch).tolist() == stream(loop, dataset, 1, epoch).tolist()


@given(st.one_of(joined_datasets(mixed=True), joined_datasets(mixed=False)), loops, rank_counts, st.integers(0, 9))
def test_a_plan_from_a_later_step_is_the_end_of_the_plan(dataset, loop, ranks, first):
    places, job = placed(dataset), Job(ranks)
    whole = plan_epoch(loop, places, job, 0, 1)
    assume(first <= whole.steps)
    later = plan_epoch(loop, places, job, 0, 1, first)
    assert later.sample.tolist() == whole.sample[whole.step_start[first] :].tolist()
    assert later.step_start.tolist() == (whole.step_start[first:] - whole.step_start[first]).tolist()


@given(st.one_of(joined_datasets(mixed=True), joined_datasets(mixed=False)), loops, st.booleans())
def test_samples_are_where_each_data_set_has_them(dataset, loop, by_offset):
    places = placed(dataset)
    extents = plan_epoch(loop, places, Job(1), 0, 0)
    access = Access(order="by offset" if by_offset else "as planned")
    stored = plan_reads(extents, access, _NO, places).extents
    assert by_offset or stored.sample.tolist() == extents.sample.tolist()
    for read in (extents, stored):
        for member, rows in places.split_rows(read.sample):
            found = member.places.locate(read.sample[rows] - member.first_sample)
            assert (read.file[rows] - member.first_file).tolist() == found[0].tolist()
            assert read.offset[rows].tolist() == found[1].tolist()
            assert read.length[rows].tolist() == found[2].tolist()
    sizes = places.file_sizes(np.arange(dataset.layout.files))
    assert (extents.offset + extents.length <= sizes[extents.file]).all()


def test_a_mixture_without_shuffling_takes_each_data_set_in_its_order() -> None:
    dataset = join_datasets(Sources(("a", "b"), (700, 300)), [data("a", 70), data("b", 40)])
    (first, own), (second, other) = members_of(dataset, stream(LOOP, dataset, 3))
    assert (first.name, own.tolist()) == ("a", list(range(70)))
    assert (second.name, other.tolist()) == ("b", list(range(30)))


def test_a_data_set_that_begins_again_does_so_in_a_new_order() -> None:
    loop = replace(LOOP, shuffle=Shuffle("globally"))
    dataset = join_datasets(Sources(("a", "b"), (500, 500), repeated=True), [data("a", 60), data("b", 20)])
    samples = [stream(loop, dataset, 2, epoch) for epoch in (0, 1)]
    orders = [
        own.reshape(-1, 20).tolist() for one in samples for data, own in members_of(dataset, one) if data.name == "b"
    ]
    rounds = [tuple(order) for epoch in orders for order in epoch]
    assert len(rounds) == 6
    assert len(set(rounds)) == 6


def test_an_epoch_of_a_mixture_ends_with_the_first_or_with_the_last_data_set() -> None:
    each = [data("a", 75), data("b", 100)]
    assert join_datasets(Sources(("a", "b"), (700, 300)), each).samples == 100  # 70 of a; 5 more are no 7
    assert join_datasets(Sources(("a", "b"), (700, 300), repeated=True), each).samples == 340  # 102 of b
    assert join_datasets(Sources(("a", "b"), (995, 5)), each).samples == 0


def test_each_epoch_and_each_loop_draws_another_mixture() -> None:
    dataset = join_datasets(Sources(("a", "b"), (500, 500)), [data("a", 300), data("b", 300)])
    drawn = [
        (stream(replace(LOOP, name=name), dataset, 1, epoch) < 300).tolist() for name in ("l", "m") for epoch in (0, 1)
    ]
    assert len({tuple(one) for one in drawn}) == 4
