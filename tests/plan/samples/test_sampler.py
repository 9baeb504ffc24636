"""Properties of the epochs of all ranks, for any loop, data set and number of ranks."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dliosim.model import Access, Dataset, Job, Layout, Loop, Shuffle, constant
from dliosim.model.epoch_size import steps_of_epoch
from dliosim.plan.samples.io_requests import Extents
from dliosim.plan.samples.sample_to_file import files_of
from dliosim.plan.samples.sampler import plan_epoch
from tests.examples import examples
from tests.plan.helpers import placed, plans
from tests.strategies import datasets, jobs, loops

SHARED = Dataset("d", 1, 1000, constant(10), Layout("shared file", 1), "d")
FILES = replace(SHARED, layout=Layout("files", 50))
LOOP = Loop("train", "l", "d", Access(), batch=4)


def same(a: Extents, b: Extents) -> bool:
    return all(np.array_equal(getattr(a, field.name), getattr(b, field.name)) for field in fields(Extents))


def read(loop: Loop, dataset: Dataset, ranks: int, epoch: int = 0) -> list[list[int]]:
    return [extents.sample.tolist() for extents in plans(loop, dataset, Job(ranks), epoch)]


def interleaved(loop: Loop, dataset: Dataset, ranks: int, epoch: int = 0) -> list[int]:
    """The samples of all ranks in order of step, then rank."""
    made = plans(loop, dataset, Job(ranks), epoch)
    return [
        sample
        for step in range(made[0].steps)
        for plan in made
        for sample in plan.sample[plan.step_start[step] : plan.step_start[step + 1]].tolist()
    ]


@given(datasets(), loops, jobs, st.integers(0, 3))
def test_every_sample_comes_as_often_as_the_rules_say(dataset, loop, job, epoch):
    made = plans(loop, dataset, job, epoch)
    assert {plan.steps for plan in made} == {steps_of_epoch(loop, dataset, job.ranks)}
    samples = np.concatenate([plan.sample for plan in made])
    assert ((samples >= 0) & (samples < dataset.samples)).all()
    times = np.bincount(samples, minlength=dataset.samples)
    once = job.ranks if loop.shard == "off" else 1
    capped = loop.steps is not None and loop.steps < steps_of_epoch(replace(loop, steps=None), dataset, job.ranks)
    if loop.last_batch == "keep" and not capped:
        assert (times == once).all()
    elif loop.last_batch == "pad" and not capped:
        assert (times >= once).all()
    elif loop.last_batch != "pad":
        assert (times <= once).all()
    for plan in made:
        batches = np.diff(plan.step_start)
        assert batches.max(initial=0) <= loop.batch
        if loop.last_batch == "drop" or (loop.last_batch == "pad" and len(plan.sample)):
            assert (batches == loop.batch).all()


@given(datasets(), loops, jobs)
def test_extents_are_inside_their_files(dataset, loop, job):
    places = placed(dataset)
    sizes = places.file_sizes(np.arange(dataset.layout.files))
    for plan in plans(loop, dataset, job):
        assert (plan.offset >= dataset.header).all()
        assert (plan.offset + plan.length <= sizes[plan.file]).all()
        assert (plan.file == files_of(plan.sample, dataset.samples, dataset.layout.files)).all()


@given(datasets(), loops, jobs, st.integers(0, 3))
def test_the_same_seed_gives_the_same_plan(dataset, loop, job, epoch):
    places = placed(dataset)
    assert same(plan_epoch(loop, places, job, 0, epoch), plan_epoch(loop, places, job, 0, epoch))


@given(datasets(), loops, jobs)
def test_a_shift_relabels_ranks(dataset, loop, job):
    straight = plans(replace(loop, shift=0), dataset, job)
    for rank, plan in enumerate(plans(loop, dataset, job)):
        assert same(plan, straight[(rank + loop.shift) % job.ranks])


@given(datasets(), loops, jobs)
def test_a_cap_on_steps_takes_the_first_ones(dataset, loop, job):
    whole = plans(replace(loop, steps=None), dataset, job)
    assume(loop.steps is not None)
    for plan, longer in zip(plans(loop, dataset, job), whole, strict=True):
        assert (plan.sample == longer.sample[: len(plan.sample)]).all()
        assert (plan.step_start == longer.step_start[: plan.steps + 1]).all()


@pytest.mark.parametrize(
    "shuffle",
    [
        Shuffle("globally"),
        Shuffle("within shard"),
        Shuffle("within buffer", buffer=50),
        Shuffle(files="globally"),
        Shuffle(files="within shard"),
    ],
    ids=str,
)
@pytest.mark.parametrize("shard", ["by sample", "by block", "by file", "off"])
def test_epochs_and_seeds_differ_in_order_unless_once(shuffle, shard):
    loop = replace(LOOP, shard=shard, shuffle=shuffle)
    first, second = read(loop, FILES, 3, 0), read(loop, FILES, 3, 1)
    assert first != second
    assert first != read(replace(loop, shuffle=Shuffle()), FILES, 3)
    assert first != read(loop, replace(FILES, seed=2), 3)
    once = replace(loop, shuffle=replace(shuffle, samples_once=True, files_once=True))
    assert read(once, FILES, 3, 0) == read(once, FILES, 3, 1) == first


@pytest.mark.parametrize("shard", ["by sample", "by block"])
@given(ranks=st.integers(1, 13), batch=st.integers(1, 9))
def test_the_order_of_a_global_shuffle_does_not_depend_on_the_ranks(shard, ranks, batch):
    loop = replace(LOOP, shuffle=Shuffle("globally", files="globally"), last_batch="keep", shard=shard, batch=batch)
    alone = read(replace(loop, batch=1), FILES, 1)[0]
    if shard == "by sample":
        assert interleaved(loop, FILES, ranks) == alone
    else:
        assert [sample for own in read(loop, FILES, ranks) for sample in own] == alone


def test_shards_are_as_the_language_says():
    small = replace(SHARED, samples=12, layout=Layout("files", 6))
    loop = replace(LOOP, batch=2)
    assert read(loop, small, 3) == [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]]
    assert read(replace(loop, shard="by block"), small, 3) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert read(replace(loop, shard="by file"), small, 3) == [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]]
    assert read(replace(loop, shard="off"), small, 2) == [list(range(12))] * 2


def test_last_batches_are_as_the_language_says():
    small = replace(SHARED, samples=7)
    loop = replace(LOOP, batch=2, shard="by block")
    assert read(loop, small, 2) == [[0, 1], [3, 4]]
    assert read(replace(loop, last_batch="keep"), small, 2) == [[0, 1, 2], [3, 4, 5, 6]]
    assert read(replace(loop, last_batch="pad"), small, 2) == [[0, 1, 2, 0], [3, 4, 5, 6]]


@given(
    samples=st.integers(1, 40),
    batch=st.integers(1, 9),
    ranks=st.integers(1, 12),
    shard=st.sampled_from(["by sample", "by block", "off"]),
    shuffle=st.sampled_from([Shuffle(), Shuffle("globally"), Shuffle("within shard")]),
)
def test_padding_fills_all_batches_of_all_ranks_and_leaves_no_sample_out(samples, batch, ranks, shard, shuffle):
    dataset = replace(SHARED, samples=samples)
    made = plans(replace(LOOP, batch=batch, shard=shard, shuffle=shuffle, last_batch="pad"), dataset, Job(ranks))
    assert len({plan.steps for plan in made}) == 1
    assert all((np.diff(plan.step_start) == batch).all() for plan in made)
    assert set(np.concatenate([plan.sample for plan in made]).tolist()) == set(range(samples))


def test_a_rank_without_a_file_has_empty_steps():
    made = plans(replace(LOOP, shard="by file", last_batch="pad"), replace(SHARED, layout=Layout("files", 2)), Job(3))
    assert [len(plan.sample) for plan in made] == [500, 500, 0]
    assert made[2].steps == made[0].steps == 125


def test_files_shuffled_keep_their_samples_in_order():
    loop = replace(LOOP, batch=1, shuffle=Shuffle(files="globally"))
    order = np.array(read(loop, FILES, 1)[0]).reshape(50, 20)
    assert (np.diff(order, axis=1) == 1).all()
    assert (np.diff(order[:, 0]) != 20).any()


@pytest.mark.parametrize("shard", ["by block", "by file", "off"])
@given(ranks=st.integers(1, 7), samples=st.integers(60, 300))
def test_files_shuffled_within_a_shard_stay_in_it_and_in_order(shard, ranks, samples):
    dataset = replace(FILES, samples=samples)
    plain = replace(LOOP, batch=1, shard=shard, last_batch="keep")
    shuffled = replace(plain, shuffle=Shuffle(files="within shard"))
    for before, after in zip(read(plain, dataset, ranks), read(shuffled, dataset, ranks), strict=True):
        assert sorted(before) == sorted(after)
        file = files_of(np.array(after), samples, 50)
        assert (np.diff(np.array(after))[np.diff(file) == 0] > 0).all()
        assert (np.diff(file) != 0).sum() == len(np.unique(file)) - 1


@given(samples=st.integers(60, 300), ranks=st.integers(1, 7))
def test_whole_files_stay_on_one_rank(samples, ranks):
    loop = replace(LOOP, batch=1, shard="by file", shuffle=Shuffle("globally", files="globally"), last_batch="keep")
    dataset = replace(FILES, samples=samples)
    owners = [set(files_of(np.array(own), samples, 50).tolist()) for own in read(loop, dataset, ranks) if own]
    assert sum(len(files) for files in owners) == len(set().union(*owners)) == 50


@pytest.mark.parametrize("files", ["off", "within shard", "globally"])
@settings(max_examples=examples(30))
@given(
    samples=st.integers(60, 300),
    ranks=st.integers(1, 13),
    of_samples=st.sampled_from(["off", "globally", "within shard", "within buffer"]),
    once=st.booleans(),
)
def test_by_file_a_rank_keeps_its_files_unless_all_files_are_shuffled_each_epoch(
    files, samples, ranks, of_samples, once
):
    dataset = replace(FILES, samples=samples)
    shuffle = Shuffle(of_samples, files=files, files_once=once, buffer=9)
    loop = replace(LOOP, shard="by file", shuffle=shuffle, last_batch="keep")
    unshuffled = [len(own) for own in read(replace(loop, shuffle=Shuffle()), dataset, ranks)]
    dealt = []
    for epoch in range(3):
        made = read(loop, dataset, ranks, epoch)
        owned = [set(files_of(np.array(own), samples, 50).tolist()) for own in made]
        assert sum(map(len, owned)) == 50, "whole files"
        # As many files and samples as without a shuffle, so that every epoch has the same steps.
        plain = [np.flatnonzero(np.arange(50) % ranks == rank).tolist() for rank in range(ranks)]
        assert [len(own) for own in owned] == [len(own) for own in plain]
        assert [len(own) for own in made] == unshuffled
        if files != "globally":
            assert owned == [set(own) for own in plain]
        dealt.append(owned)
    stay = files != "globally" or once or ranks == 1
    assert (dealt[0] == dealt[1] == dealt[2]) == stay


def test_a_shuffle_within_a_shard_stays_in_it():
    plain = replace(LOOP, shard="by block", last_batch="keep")
    for shuffle in (Shuffle("within shard"), Shuffle("within buffer", buffer=30)):
        for before, after in zip(read(plain, SHARED, 3), read(replace(plain, shuffle=shuffle), SHARED, 3), strict=True):
            assert before != after
            assert before == sorted(after)


def test_ranks_shuffle_their_shards_differently():
    made = read(replace(LOOP, shard="off", shuffle=Shuffle("within shard")), SHARED, 2)
    assert made[0] != made[1]


def test_a_buffer_moves_no_sample_further_ahead_than_its_size():
    loop = replace(LOOP, shard="by block", shuffle=Shuffle("within buffer", buffer=20))
    order = np.array(read(loop, SHARED, 1)[0])
    assert (order < np.arange(1000) + 20).all()
