"""Plans over files that are there already, which hold any number of samples each: the rules are those of all files."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim import cli
from dliosim.errors import PlanError
from dliosim.formats.protocols import Column, FileIndex
from dliosim.formats.registry import bind
from dliosim.model import Access, Dataset, Distribution, Job, Layout, Loop, Shuffle, constant
from dliosim.model.dataset import pack_counts
from dliosim.model.epoch_size import samples_of_rank, steps_of_epoch
from dliosim.plan.forecast.epoch_statistics import PassRange, count_passes
from dliosim.plan.forecast.layout_forecast import Placement
from dliosim.plan.samples.io_requests import Extents
from dliosim.plan.samples.places import IndexedPlaces
from dliosim.plan.samples.read_ranges import plan_reads
from dliosim.plan.samples.sample_index import DataIndex, concat_indexes
from dliosim.plan.samples.sampler import plan_epoch
from tests.strategies import jobs, loops

LOOP = Loop("train", "l", "d", Access(), batch=4)
SIZE = 10

counts_of_files = st.lists(st.integers(0, 30), min_size=1, max_size=12).filter(any)
plannable = loops.filter(lambda loop: loop.shard != "by file" or loop.shuffle.files != "globally")


def found(counts: list[int]) -> tuple[Dataset, DataIndex]:
    """A data set of files with these numbers of samples, and their index."""
    files = [
        FileIndex(one, one * SIZE, (Column(1, 1, SIZE, SIZE, np.arange(one) * SIZE, np.full(one, SIZE)),))
        for one in counts
    ]
    kept = pack_counts(np.array(counts))
    layout = Layout("files", len(counts))
    dataset = Dataset("d", 1, sum(counts), constant(SIZE), layout, ".", source="*", found="x", counts=kept)
    return dataset, concat_indexes(files)


def indexed(dataset: Dataset, index: DataIndex) -> IndexedPlaces:
    return IndexedPlaces(bind(dataset), index)


def plans(loop: Loop, counts: list[int], ranks: int, epoch: int = 0) -> list[Extents]:
    dataset, index = found(counts)
    return [plan_epoch(loop, indexed(dataset, index), Job(ranks), rank, epoch) for rank in range(ranks)]


def file_of(counts: list[int], samples: np.ndarray) -> np.ndarray:
    """The file of each sample, by walking through them."""
    return np.repeat(np.arange(len(counts)), counts)[samples]


@given(counts_of_files, plannable, jobs, st.integers(0, 3))
def test_every_sample_comes_as_often_as_the_rules_say(counts, loop, job, epoch):
    dataset, _ = found(counts)
    made = plans(loop, counts, job.ranks, epoch)
    steps = steps_of_epoch(loop, dataset, job.ranks)
    assert {plan.steps for plan in made} == {steps}
    times = np.bincount(np.concatenate([plan.sample for plan in made]), minlength=dataset.samples)
    assert len(times) == dataset.samples
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


@given(counts_of_files, plannable, jobs)
def test_samples_are_in_the_files_that_hold_them(counts, loop, job):
    starts = np.cumsum(counts) - counts
    for plan in plans(loop, counts, job.ranks):
        assert (plan.file == file_of(counts, plan.sample)).all()
        assert (plan.offset == (plan.sample - starts[plan.file]) * SIZE).all()


@given(counts_of_files, plannable, jobs, st.integers(0, 3))
def test_the_same_seed_gives_the_same_plan(counts, loop, job, epoch):
    for one, other in zip(plans(loop, counts, job.ranks, epoch), plans(loop, counts, job.ranks, epoch), strict=True):
        assert all(np.array_equal(getattr(one, each.name), getattr(other, each.name)) for each in fields(Extents))


@given(counts_of_files, st.integers(1, 7))
def test_whole_files_stay_on_the_rank_that_they_are_dealt_to(counts, ranks):
    loop = replace(LOOP, shard="by file", shuffle=Shuffle("globally", files="within shard"), last_batch="keep")
    for rank, plan in enumerate(plans(loop, counts, ranks)):
        assert set((plan.file % ranks).tolist()) <= {rank}
        assert len(plan.sample) == sum(counts[rank::ranks]) == samples_of_rank(loop, found(counts)[0], ranks, rank)


@pytest.mark.parametrize(
    ("shard", "files"),
    [
        ("by sample", "globally"),
        ("by block", "globally"),
        ("by block", "within shard"),
        ("by file", "within shard"),
        ("off", "globally"),
        ("off", "within shard"),
    ],
)
@given(counts=counts_of_files, ranks=st.integers(1, 7))
def test_files_shuffled_keep_their_samples_in_order(shard, files, counts, ranks):
    loop = replace(LOOP, batch=1, shard=shard, shuffle=Shuffle(files=files), last_batch="keep")
    for plan in plans(loop, counts, ranks):
        file = file_of(counts, plan.sample)
        assert (np.diff(plan.sample)[np.diff(file) == 0] > 0).all()
        assert (np.diff(file) != 0).sum() == max(0, len(np.unique(file)) - 1)


def test_files_of_any_length_come_in_any_place_and_in_another_each_epoch():
    loop = replace(LOOP, batch=1, shuffle=Shuffle(files="globally"))
    counts = [50, 1, 7, 20, 3, 0, 9, 11]
    orders = [tuple(dict.fromkeys(plans(loop, counts, 1, epoch)[0].file.tolist())) for epoch in range(40)]
    assert len(set(orders)) > 35
    assert {order[0] for order in orders} == {0, 1, 2, 3, 4, 6, 7}


@pytest.mark.parametrize("samples", ["off", "globally"])
def test_files_of_different_lengths_are_not_dealt_out_shuffled(samples):
    loop = replace(LOOP, shard="by file", shuffle=Shuffle(samples, files="globally"))
    with pytest.raises(PlanError, match="different numbers") as raised:
        plans(loop, [3, 9, 4], 2)
    assert raised.value.code == "E215"
    assert plans(loop, [4, 4, 4], 2)[0].steps


@given(counts_of_files, plannable, st.integers(1, 6))
def test_a_forecast_counts_what_is_planned(counts, loop, ranks):
    dataset, index = found(counts)
    made = plans(loop, counts, ranks)
    (counted,) = count_passes(
        loop, dataset, Placement(indexed(dataset, index), True), Job(ranks), [PassRange(1, 1, made[0].steps)], False
    )
    samples = [len(plan.sample) for plan in made]
    assert (counted.samples.minimum, counted.samples.maximum) == (min(samples), max(samples))
    assert counted.samples.total == sum(samples)
    assert counted.bytes.total == sum(samples) * SIZE
    assert (counted.files.minimum, counted.files.maximum) == (
        min(len(set(plan.file.tolist())) for plan in made),
        max(len(set(plan.file.tolist())) for plan in made),
    )


def packed(samples: int, pieces: int, sample_bytes: int = SIZE) -> tuple[Dataset, DataIndex, Extents]:
    """Two files of 8 samples in encoded units of `samples` samples, or of `pieces` units a sample; and a plan."""
    units = 8 * pieces // samples
    column = Column(samples, pieces, 0, SIZE * samples, np.arange(units) * 7, np.full(units, 7))
    index = concat_indexes([FileIndex(8, units * 7, (column,), sample_bytes=sample_bytes)] * 2)
    dataset, _ = found([8, 8])
    dataset = replace(dataset, size=Distribution("uniform", (1.0, 10.0)))
    return dataset, index, plan_epoch(replace(LOOP, batch=16), indexed(dataset, index), Job(1), 0, 0)


@pytest.mark.parametrize(("samples", "pieces", "kept"), [(1, 1, True), (4, 1, False), (1, 2, False)])
def test_memory_keeps_only_samples_that_are_one_range_of_bytes(samples, pieces, kept):
    dataset, index, plan = packed(samples, pieces)
    assert index.has_disjoint_samples == kept
    access = Access(cache="memory", memory=1000)
    if kept:
        assert len(plan_reads(plan, access, np.empty(0, np.int64), indexed(dataset, index)).extents.sample) == 16
        return
    with pytest.raises(PlanError) as raised:
        plan_reads(plan, access, np.empty(0, np.int64), indexed(dataset, index))
    assert raised.value.code == "E211"


def test_a_library_is_asked_for_what_its_files_say_a_sample_has():
    dataset, index, plan = packed(4, 1, sample_bytes=12)
    rows = plan_reads(plan, Access(through="library"), np.empty(0, np.int64), indexed(dataset, index)).extents
    assert rows.length.tolist() == [12] * 16
    assert rows.offset.tolist() == [12 * (sample % 8) for sample in plan.sample.tolist()]


def test_a_library_is_not_asked_for_samples_of_whatever_size():
    dataset, index, plan = packed(4, 1, sample_bytes=0)
    with pytest.raises(PlanError, match="no fixed size") as raised:
        plan_reads(plan, Access(through="library"), np.empty(0, np.int64), indexed(dataset, index))
    assert raised.value.code == "E216"


@pytest.mark.parametrize(("samples", "pieces"), [(4, 1), (1, 2)])
def test_bytes_of_encoded_samples_are_forecast_as_a_run_counts_them(samples, pieces):
    dataset, index, plan = packed(samples, pieces)
    loop = replace(LOOP, batch=16)
    (counted,) = count_passes(
        loop, dataset, Placement(indexed(dataset, index), True), Job(1), [PassRange(1, 1, 1)], False
    )
    assert counted.bytes.total == plan.length.sum()


@pytest.mark.parametrize(
    ("first", "steps"), [(0, 64), (1024, 1)], ids=["less than a byte each", "nothing but a fill value"]
)
def test_samples_that_a_codec_leaves_next_to_nothing_of_are_planned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], first: int, steps: int
) -> None:
    with h5py.File(tmp_path / "masks.h5", "w") as file:
        masks = file.create_dataset("masks", (2048, 8), "u1", chunks=(1024, 8), compression="gzip")
        masks[first:] = 0
        stored = masks.id.get_storage_size()
    text = 'dlio 1\nworkload w\ndataset d { from files "masks.h5" }\ntrain {\nread d\nbatch 16 per rank\n'
    (tmp_path / "masks.dlio").write_text(f"{text}epochs 2\nsteps {steps}\ncompute 1 ms\n}}\n")
    assert cli.main(["plan", f"{tmp_path / 'masks.dlio'}", "--dir", f"{tmp_path}", "--ranks", "2"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"DATA {0 if first else stored} B per epoch for all ranks, " in said
    assert ("; calls move 64 times as many bytes" in said) == (not first)
