"""The forecast equals what the plans of all ranks add up to, and says so where it cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dliosim.errors import PlanError
from dliosim.execute.datasets.file_writer import RawWriter
from dliosim.formats.registry import bind
from dliosim.model import (
    Access,
    Arrivals,
    Background,
    Barrier,
    Cadence,
    Checkpoint,
    Chunk,
    Compute,
    Convert,
    Dataset,
    Distribution,
    Evaluation,
    Expectation,
    Job,
    Layout,
    Loop,
    Part,
    Prepare,
    Preprocess,
    Repeat,
    Restore,
    Save,
    Shuffle,
    Split,
    Sync,
    Workload,
    Writers,
    constant,
)
from dliosim.plan.checkpoints.layout import state_files
from dliosim.plan.forecast import epoch_statistics, prepare_forecast
from dliosim.plan.forecast.checkpoint_footprint import forecast_save
from dliosim.plan.forecast.forecast import forecast, list_reads
from dliosim.plan.forecast.forecast_types import Listing, RankSpread
from dliosim.plan.forecast.rank_memory import NODE_BYTES, RANK_BYTES
from dliosim.plan.samples.io_requests import plan_calls
from dliosim.plan.samples.read_ranges import buffer_bytes
from dliosim.plan.samples.sample_to_file import sample_sizes
from tests.plan.helpers import placed, plans
from tests.strategies import checkpoints, datasets, jobs, loops

DATASET = Dataset("d", 1, 1000, constant(4096), Layout("shared file", 1), "data")
JOB = Job(4, 2)
LOOP = Loop("train", "l", "d", Access(), batch=5, epochs=3)
CHECKPOINT = Checkpoint("c", 1, (Part("w", 1000, "total"),), Writers("shared file"), Access(), "c", keep=2)


def listed(whole: Workload, *chosen: Any) -> Listing:
    """All blocks of `list_reads` as one."""
    blocks = list(list_reads(whole, *chosen))
    step, sample, offset, length = (
        np.concatenate([np.empty(0, np.int64), *(getattr(block, name) for block in blocks)])
        for name in ("step", "sample", "offset", "length")
    )
    return Listing(step, sample, [name for block in blocks for name in block.file], offset, length)


@pytest.mark.parametrize("samples", ["off", "globally", "within shard", "within buffer"])
def test_a_listing_in_blocks_is_that_of_the_whole_epoch(monkeypatch: pytest.MonkeyPatch, samples: Any) -> None:
    shuffle = Shuffle(samples, buffer=30, files="within shard")
    loop = Loop("train", "l", "d", Access(), batch=3, shuffle=shuffle, last_batch="pad")
    dataset = Dataset("d", 1, 1000, Distribution("uniform", (1.0, 90.0)), Layout("files", 7), "d")
    whole = Workload("w", "", 1, Job(3), (dataset,), (), (loop,))
    expected = listed(whole, 1, 0)
    monkeypatch.setattr("dliosim.plan.forecast.forecast._LISTED", 50)
    assert len(list(list_reads(whole, 1, 0))) == 7
    found = listed(whole, 1, 0)
    for name in ("step", "sample", "file", "offset", "length"):
        assert list(getattr(found, name)) == list(getattr(expected, name))


def workload(*verbs, dataset=DATASET, checkpoint=CHECKPOINT, job=JOB) -> Workload:
    return Workload("w", "", 1, job, (dataset,), (checkpoint,), verbs)


def only(*verbs, **others):
    phases = forecast(workload(*verbs, **others)).phases
    assert len(phases) == 1
    return phases[0]


def is_of(spread: RankSpread, values) -> bool:
    """Return whether a spread is that of these values, one for each rank."""
    column = np.array(list(values))
    found = (spread.minimum, spread.mean, spread.maximum, spread.total)
    return not spread.estimated and found == pytest.approx((column.min(), column.mean(), column.max(), column.sum()))


@given(datasets(), loops, jobs, st.none() | st.integers(64, 5000))
def test_a_loop_is_forecast_exactly_where_it_is_small(dataset, loop, job, transfer):
    loop = replace(loop, access=Access(transfer=transfer), epochs=1)
    made = plans(loop, dataset, job)
    called = [plan_calls(plan, transfer) for plan in made]
    (phase,) = forecast(workload(loop, dataset=dataset, job=job)).phases
    assert phase.steps == made[0].steps
    assert is_of(phase.samples, [len(plan.sample) for plan in made])
    assert is_of(phase.bytes, [plan.length.sum() for plan in made])
    assert is_of(phase.files, [len(np.unique(plan.file)) for plan in made])
    assert is_of(phase.opens, [len(np.unique(plan.file)) for plan in made])
    assert is_of(phase.calls, [len(each.length) for each in called])
    assert phase.memory.buffers == buffer_bytes(dataset, max(each.buffer_size for each in called))


#: One sample, and a file that has none and no bytes.
FILE_TOO_MANY = replace(DATASET, samples=1, layout=Layout("files", 2))


@given(datasets(), jobs, st.none() | st.integers(1, 500))
@example(FILE_TOO_MANY, Job(3), 1)
def test_preparing_is_forecast_exactly_where_it_is_small(dataset, job, transfer):
    parts = [list(placed(dataset).parts(job.ranks, rank)) for rank in range(job.ranks)]
    made = forecast(workload(Prepare("d", Access(transfer=transfer)), dataset=dataset, job=job))
    (phase,) = made.phases
    places = placed(dataset)
    calls = [sum(RawWriter(places).chunk_count(part, transfer) for part in own) for own in parts]
    assert is_of(phase.calls, calls) or (phase.calls.estimated and phase.calls.maximum <= max(calls))
    assert phase.calls.estimated <= (transfer is not None and max(len(own) for own in parts) > 1)
    assert is_of(phase.samples, [sum(part.last_sample - part.first_sample for part in own) for own in parts])
    assert is_of(phase.bytes, [sum(part.length for part in own) for own in parts])
    assert is_of(phase.files, [len(own) for own in parts])
    sizes = placed(dataset).file_sizes(np.arange(dataset.layout.files))
    assert made.storage[0].bytes == sizes.sum()


@given(datasets(), jobs)
def test_preparing_counts_what_stands_behind_the_samples_of_files_that_ranks_share(dataset, job):
    dataset = replace(dataset, format="tar", header=0, align=1)
    parts = [list(placed(dataset).parts(job.ranks, rank)) for rank in range(job.ranks)]
    phase = only(Prepare("d", Access()), dataset=dataset, job=job)
    assert is_of(phase.bytes, [sum(part.length for part in own) for own in parts])
    assert is_of(phase.files, [len(own) for own in parts])
    writer = RawWriter(placed(dataset))
    assert is_of(phase.calls, [sum(writer.chunk_count(part, None) for part in own) for own in parts])


@given(checkpoints, jobs, st.none() | st.integers(1, 200))
def test_saving_is_forecast_exactly_where_it_is_small(checkpoint, job, transfer):
    checkpoint = replace(checkpoint, access=Access(transfer=transfer))
    written, called = np.zeros(job.ranks), np.zeros(job.ranks)
    files = state_files(checkpoint, checkpoint.split(job.ranks))
    for rank in range(job.ranks):
        for shard in files.shards(rank):
            written[files.writer(rank)] += shard.block.length
            called[files.writer(rank)] += -(-shard.block.length // (transfer or shard.block.length))
    phase = only(Save("c"), checkpoint=checkpoint, job=job)
    assert is_of(phase.bytes, written)
    assert is_of(phase.calls, called)


@given(checkpoints, jobs, st.none() | st.integers(1, 9))
def test_restoring_reads_all_that_was_written(checkpoint, job, written_by):
    split = Split(1, 1, written_by or job.ranks)
    phase = only(Restore("c", split), checkpoint=checkpoint, job=job)
    assert phase.bytes.total == state_files(checkpoint, split).total()
    assert not phase.calls.estimated


@pytest.mark.parametrize(("api", "opens"), [("posix", [1, 0, 0, 0]), ("mpi-independent", [1, 1, 1, 1])])
def test_one_file_is_opened_by_all_who_restore_it_by_mpi(api, opens):
    checkpoint = replace(CHECKPOINT, access=Access(api))
    assert is_of(only(Restore("c", everything=True, once=True), checkpoint=checkpoint).opens, opens)


def test_calls_past_the_page_cache_are_estimated_as_parts_of_pages_are_calls_of_their_own():
    checkpoint = Checkpoint("c", 1, (Part("p", 10_000, "total"),), Writers("file per rank"), Access(cache="off"), "c")
    assert only(Save("c"), checkpoint=checkpoint).calls.estimated
    assert not only(Save("c"), checkpoint=replace(checkpoint, access=Access())).calls.estimated


@given(checkpoints, jobs)
def test_each_rank_opens_the_metadata_and_the_files_that_it_restores(checkpoint, job):
    without, with_metadata = (
        only(Restore("c"), checkpoint=replace(checkpoint, metadata=metadata), job=job) for metadata in (False, True)
    )
    assert with_metadata.opens.total == without.opens.total + job.ranks
    assert with_metadata.files == without.files


def test_later_epochs_are_separate_from_the_first():
    first, later = forecast(workload(LOOP)).phases
    assert (first.first_epoch, first.last_epoch, first.times) == (1, 1, 1)
    assert (later.first_epoch, later.last_epoch, later.times) == (2, 3, 2)
    assert first.opens.maximum == 1
    assert later.opens.maximum == 0


FEW_FILES = replace(DATASET, samples=200, layout=Layout("files", 40))


def test_epochs_that_differ_are_not_shown_as_if_they_were_one():
    """New files are met from epoch to epoch: fewer and fewer of them."""
    loop = replace(LOOP, epochs=4, steps=2, shuffle=Shuffle("globally"))
    opened, found = [set() for _ in range(JOB.ranks)], []
    for epoch in range(4):
        fresh = [set(plan.file.tolist()) for plan in plans(loop, FEW_FILES, JOB, epoch)]
        found.append([len(new - old) for new, old in zip(fresh, opened, strict=True)])
        opened = [new | old for new, old in zip(fresh, opened, strict=True)]
    first, later = forecast(workload(loop, dataset=FEW_FILES)).phases
    assert is_of(first.opens, found[0])
    assert later.opens.estimated
    assert later.opens.total == pytest.approx(np.sum(found[1:]) / 3)
    assert (later.opens.minimum, later.opens.maximum) == (np.min(found[1:]), np.max(found[1:]))
    assert not later.calls.estimated
    second = forecast(workload(replace(loop, epochs=2), dataset=FEW_FILES)).phases[1]
    assert is_of(second.opens, found[1])


def test_epochs_of_one_order_are_the_same_however_many():
    once = Shuffle("globally", samples_once=True)
    for shuffle in (Shuffle(), once):
        loop = replace(LOOP, epochs=10**6, steps=2, shuffle=shuffle, access=Access(transfer=8192, open="each epoch"))
        first, later = forecast(workload(loop, dataset=FEW_FILES)).phases
        assert later.opens == first.opens
        assert later.calls == first.calls
        assert not later.calls.estimated


def test_too_many_epochs_to_plan_are_estimated_by_the_second():
    loop = replace(LOOP, epochs=10**6, steps=2, shuffle=Shuffle("globally"), access=Access(open="each epoch"))
    _, later = forecast(workload(loop, dataset=FEW_FILES)).phases
    assert later.opens.estimated
    assert later.opens.total == sum(len(np.unique(plan.file)) for plan in plans(loop, FEW_FILES, JOB, 1))
    assert not later.bytes.estimated
    assert not forecast(workload(loop)).phases[1].opens.estimated  # one file


def test_an_evaluation_holds_its_files_and_samples_from_run_to_run():
    access = Access(cache="memory", memory=10 * 4096)
    evaluation = replace(LOOP, kind="evaluate", name="e", epochs=1, access=access, shard="by block")
    train = replace(LOOP, epochs=4, evaluations=(Evaluation(1, evaluation),))
    first, later = forecast(workload(Repeat(3, (train,)), dataset=FEW_FILES)).phases[2:]
    assert [(each.first_epoch, each.last_epoch, each.times) for each in (first, later)] == [(1, 1, 3), (2, 4, 9)]
    assert (first.opens.total, later.opens.total) == (40, 0)
    assert (first.calls.total, later.calls.total) == (200, 160)
    assert not later.calls.estimated


def test_what_may_end_early_is_at_most_whatever_is_inside_it():
    evaluation = Evaluation(1, replace(LOOP, kind="evaluate", name="e", epochs=1))
    saves = (Cadence("c", "epochs", 1), Cadence("c", "end"))
    phases = forecast(workload(replace(LOOP, seconds=60.0, evaluations=(evaluation,), checkpoints=saves))).phases
    assert [phase.at_most for phase in phases] == [True] * 5 + [False]


def test_each_step_opens_again_where_each_sample_does():
    """Steps continue where those before them ended, and a file that a step reads by several calls is opened once."""
    access = Access(open="each sample", transfer=6000)
    loop = replace(LOOP, batch=2, epochs=1, shard="by block", access=access)
    phase = only(loop)
    assert (phase.opens.total, phase.calls.total) == (500, 1000)
    assert not phase.opens.estimated
    two = replace(access, readers=2, by="sample", prefetch=1)
    assert only(replace(loop, access=two)).opens.total == 1000


@pytest.mark.parametrize(
    ("access", "calls"),
    [
        (Access(engine="mmap"), 200),
        (Access(engine="mmap", readers=3, prefetch=1, by="sample"), 600),
        (Access(engine="mmap", readers=3, prefetch=1), 200),
        (Access(engine="mmap", open="each sample"), 1000),
        (Access(engine="queued", depth=4), 1000),
    ],
)
def test_a_copy_out_of_mappings_is_one_call_for_each_reader_of_a_step(access, calls):
    phase = only(replace(LOOP, epochs=1, access=access))
    assert (phase.calls.total, phase.calls.estimated) == (calls, False)


def test_repeats_multiply():
    phases = forecast(workload(Repeat(3, (LOOP, Barrier(), Repeat(2, (Save("c"),)))))).phases
    assert [phase.times for phase in phases] == [3, 6, 6]


def test_what_is_kept_in_memory_is_not_read_again():
    access = Access(cache="memory", memory=100 * 4096)
    first, later = forecast(workload(replace(LOOP, access=access, shard="by block"))).phases
    assert first.calls.total == 1000
    assert later.calls.total == later.bytes.total / 4096 == 600
    assert first.memory.cache == later.memory.cache == 100 * 4096


def test_no_more_is_kept_in_memory_than_an_epoch_reads():
    access = Access(cache="memory", memory=1 << 40)
    phases = forecast(workload(replace(LOOP, access=access, shard="by block"))).phases
    assert [phase.memory.cache for phase in phases] == [250 * 4096] * 2


def test_handles_follow_the_access():
    files = replace(DATASET, layout=Layout("files", 100))
    loop = replace(LOOP, epochs=1)

    def opens(**settings):
        return only(replace(loop, access=Access(**settings)), dataset=files).opens.total

    assert opens(open="each sample") == 1000
    assert opens(open="once") == sum(len(np.unique(plan.file)) for plan in plans(loop, files, Job(4)))
    assert only(replace(loop, access=Access(api="mpi-independent", readers=2))).opens.total == 8


def test_a_collective_step_is_a_call_or_the_rounds_of_the_rank_that_needs_most():
    loop = replace(LOOP, epochs=1)
    assert only(replace(loop, access=Access(api="mpi-collective"))).calls.mean == 50
    assert only(replace(loop, access=Access(api="mpi-collective", transfer=8192))).calls.mean == 50 * 3


def test_bytes_are_an_estimate_where_a_collective_call_reads_a_sample_once_that_a_step_asks_for_twice():
    few = replace(DATASET, samples=23)
    loop = replace(LOOP, epochs=1, batch=6, last_batch="pad")  # a rank has 5 or 6 samples, and reads 6
    collective = replace(loop, access=Access(api="mpi-collective"))
    assert only(collective, dataset=few).bytes.estimated
    assert not only(loop, dataset=few).bytes.estimated
    assert not only(replace(collective, batch=5), dataset=few).bytes.estimated  # the first sample comes a step later


def test_what_a_two_phase_read_spans_is_given():
    straight = only(replace(LOOP, epochs=1))
    shuffled = only(replace(LOOP, epochs=1, shuffle=Shuffle("globally")))
    assert straight.span_ratio == pytest.approx(1)
    assert 30 < shuffled.span_ratio < 50  # nearly the whole file for 20 of its 1000 samples
    assert only(LOOP_OF_FILES, dataset=FILES).span_ratio is None


def test_who_reads_for_a_node_makes_the_calls_of_all_its_ranks():
    loop = replace(LOOP, epochs=1, access=Access(scatter=True))
    shared = only(loop)
    assert is_of(shared.samples, [250] * 4)
    assert is_of(shared.calls, [500, 0, 500, 0])
    assert is_of(shared.bytes, [500 * 4096, 0, 500 * 4096, 0])
    assert is_of(shared.opens, [1, 0, 1, 0])
    assert is_of(shared.files, [1, 0, 1, 0])
    assert shared.memory.buffers == 2 * 5 * 4096
    assert shared.node_memory == 3 * 5 * 4096 + 2 * shared.memory.plan
    each = replace(loop, access=Access(scatter=True, open="each sample"))
    assert is_of(only(each, dataset=FILES).opens, [500, 0, 500, 0])
    assert is_of(only(loop, dataset=FILES, job=Job(4)).files, [1000, 0, 0, 0])


def test_who_reads_for_a_node_out_of_mappings_copies_once_a_step():
    loop = replace(LOOP, epochs=1, access=Access(scatter=True, engine="mmap"))
    assert is_of(only(loop).calls, [50, 0, 50, 0])


def test_who_reads_for_uneven_nodes_is_estimated_with_sums_that_hold():
    loop = replace(LOOP, epochs=1, last_batch="keep", access=Access(scatter=True))
    plan = only(loop, job=Job(3, 2))
    assert plan.calls.estimated
    assert (plan.calls.minimum, plan.calls.total) == (0, 1000)


def test_a_two_phase_read_of_fewer_ranks_spans_less():
    blocks = replace(LOOP, epochs=1, shard="by block")
    world = only(replace(blocks, access=Access(api="mpi-collective"))).span_ratio
    each = only(replace(blocks, access=Access(api="mpi-collective", communicator=1))).span_ratio
    pairs = only(replace(blocks, access=Access(api="mpi-collective", communicator=2))).span_ratio
    assert each == pytest.approx(1)
    assert world == pytest.approx((750 + 5) / 20)  # from the first of four blocks of 250 samples into the last
    assert pairs == pytest.approx((250 + 5) / 10)


FILES = replace(DATASET, layout=Layout("file per sample", 1000), size=constant(5000))
LOOP_OF_FILES = replace(LOOP, epochs=1)


def test_widening_of_direct_reads_is_reported():
    assert only(LOOP_OF_FILES, dataset=FILES).amplification is None
    direct = replace(LOOP_OF_FILES, access=Access(cache="off"))
    assert only(direct, dataset=FILES).amplification == pytest.approx(8192 / 5000)


def test_bandwidth_leaves_a_tenth_of_the_time_or_overlaps_compute():
    loop = replace(LOOP, epochs=1, compute=Compute(constant(0.9)))
    inside = only(loop).demand
    assert inside.budget == pytest.approx(0.1)
    assert inside.rate == pytest.approx(5 * 4096 / 0.1)
    assert inside.needs == pytest.approx(5 * 4096 / 1.0)
    assert only(replace(loop, access=Access(readers=1, prefetch=2))).demand.budget == pytest.approx(1.0)
    assert only(replace(LOOP, epochs=1)).demand is None


def test_the_goal_is_that_of_the_expect_line():
    loop = replace(LOOP, epochs=1, compute=Compute(constant(0.9)))
    line = Expectation("utilization", loop.name, "at least", 0.6, "ratio", "utilization of l at least 60 %")
    (found,) = forecast(replace(workload(loop), expectations=(line,))).phases
    assert (found.demand.goal, found.demand.budget) == (0.6, pytest.approx(0.6))
    assert found.demand.needs == pytest.approx(5 * 4096 / 1.5)


def test_what_steps_preprocess_is_part_of_a_step_that_storage_needs_no_time_for():
    """A tenth of 10 ms of compute and of 5 times 100 us, by 0.9: 1.167 ms to read, and 4.29 GB/s in place of 4.5."""
    dataset = replace(DATASET, size=constant(10**6))
    loop = replace(LOOP, epochs=1, compute=Compute(constant(0.01)))
    assert only(loop, dataset=dataset).demand.rate == pytest.approx(4.5e9)
    taken = only(replace(loop, preprocess=Preprocess(constant(100e-6))), dataset=dataset).demand
    assert taken.processing == pytest.approx(500e-6)
    assert taken.budget == pytest.approx(0.0105 / 9)
    assert taken.rate == pytest.approx(5e6 / (0.0105 / 9))
    # Readers preprocess while the step computes.
    ahead = replace(loop, preprocess=Preprocess(constant(100e-6)), access=Access(readers=1, prefetch=2))
    assert only(ahead, dataset=dataset).demand.rate == pytest.approx(5e6 / (0.01 / 0.9))


@pytest.mark.parametrize(
    ("readers", "milliseconds", "enough"), [(0, 0.3, 1), (0, 5, 3), (1, 3, 2), (2, 5, 3), (2, 4, 0)]
)
def test_where_preprocessing_takes_all_the_time_the_readers_that_would_do_are_named(readers, milliseconds, enough):
    """Steps of 10 ms have 1.111 ms in addition to compute, and their readers 11.11 ms each; a step has 5 samples."""
    access = Access(readers=readers, prefetch=2 * readers)
    loop = replace(LOOP, epochs=1, access=access, compute=Compute(constant(0.01)))
    found = only(replace(loop, preprocess=Preprocess(constant(milliseconds / 1000)))).demand
    assert found.readers == enough
    assert not enough or 5 * milliseconds / enough < 10 / 0.9 <= 5 * milliseconds / max(enough - 1, 0.01)


def test_requests_are_read_in_what_compute_and_preprocessing_leave_between_them():
    arrivals = Arrivals(50, constant(0.01))
    loop = replace(LOOP, kind="infer", arrivals=arrivals, epochs=1, compute=Compute(constant(0.004)))
    assert only(replace(loop, preprocess=Preprocess(constant(0.0004)))).demand.budget == pytest.approx(0.004)
    assert only(loop).demand.needs is None
    assert only(replace(loop, preprocess=Preprocess(constant(0.0012)))).demand.rate is None


def test_the_same_data_are_as_many_bytes_wherever_they_are_said():
    """More ranks than are planned: what is prepared, what is stored and what each epoch reads are one figure."""
    varied = Distribution("normal", (4096.0, 2000.0), low=100.0, high=9000.0)
    dataset = replace(DATASET, samples=30_000, size=varied, layout=Layout("file per sample", 30_000))
    loop = replace(LOOP, batch=1, epochs=9, shuffle=Shuffle("globally"), access=Access(transfer=1000))
    job = Job(3000)
    assert job.ranks > epoch_statistics._ALL_RANKS
    sizes = sample_sizes(dataset, np.arange(30_000))
    found = forecast(workload(Prepare("d", Access()), loop, dataset=dataset, job=job))
    prepared, first, later = found.phases
    said = {prepared.bytes.total, round(first.bytes.total), round(later.bytes.total), found.storage[0].bytes}
    assert said == {sizes.sum()}
    assert first.bytes.estimated and first.bytes.minimum < first.bytes.mean < first.bytes.maximum
    # So are calls, but for what is rounded up in each: 4.6 a sample.
    calls = (-(-sizes // 1000)).sum()
    assert [first.calls.total, later.calls.total] == pytest.approx([calls, calls], rel=0.01)


@pytest.mark.parametrize(("form", "suffix"), [("raw", ""), ("indexed", "idx"), ("tfrecord", "index")])
def test_files_next_to_others_are_files_too(form, suffix):
    dataset = replace(DATASET, format=form, layout=Layout("files", 8))
    found = forecast(workload(Prepare("d", Access()), dataset=dataset))
    assert (found.storage[0].files, found.phases[0].files.total) == (8, 16 if suffix else 8)
    assert [(one.kind, one.name, one.files) for one in found.storage[1:]] == [("sidecar", f"d.{suffix}", 8)] * bool(
        suffix
    )


def test_the_bytes_of_sidecars_are_exact_for_few_samples_and_an_estimate_for_many():
    few = replace(DATASET, format="tfrecord", layout=Layout("files", 2), samples=4, size=constant(1000))
    found = forecast(workload(Prepare("d", Access()), dataset=few)).storage[1]
    each = bind(few).stride(np.array([1000]))[0]
    assert (found.bytes, found.estimated) == (2 * len(f"0 {each}\n{each} {each}\n"), False)
    many = replace(few, layout=Layout("files", 200), samples=400)
    found = forecast(workload(Prepare("d", Access()), dataset=many)).storage[1]
    assert found.bytes == pytest.approx(200 * len(f"0 {each}\n{each} {each}\n")) and found.estimated


def test_time_that_is_clipped_is_clipped_in_the_mean():
    compute = Compute(Distribution("uniform", (0.0, 2.0), low=1.0))
    phase = only(replace(LOOP, epochs=1, compute=compute, access=Access(readers=1, prefetch=2)))
    assert phase.demand.budget == pytest.approx(1.25 / 0.9, rel=0.01)


def test_requests_are_steps_that_repeat_passes():
    loop = replace(LOOP, kind="infer", arrivals=Arrivals(120, Distribution("exponential", (0.5,))), epochs=1)
    phases = forecast(workload(loop)).phases
    assert [(phase.first_epoch, phase.when, phase.steps) for phase in phases] == [
        (None, "pass 1", 50),
        (None, "pass 2", 50),
        (None, "pass 3", 20),
    ]
    rows = listed(workload(loop), 2, 0)
    assert rows.step.tolist() == np.repeat(np.arange(120), 5).tolist()
    later = plans(loop, DATASET, JOB, 2)[2]
    assert rows.sample[500:].tolist() == later.sample[:100].tolist()
    with pytest.raises(PlanError, match="no epoch 2: `l` has 1"):
        list_reads(workload(loop), 0, 1)
    assert phases[0].demand.budget == pytest.approx(0.5)


def test_what_happens_inside_a_loop_is_counted():
    evaluation = replace(LOOP, kind="evaluate", name="e", epochs=1, batch=10)
    saves = (Cadence("c", "steps", 40), Cadence("c", "epochs", 2), Cadence("c", "end"))
    train = replace(LOOP, evaluations=(Evaluation(2, evaluation),), checkpoints=saves, seconds=60.0)
    made = forecast(workload(train))
    found = [(phase.verb, phase.times) for phase in made.phases]
    assert found == [("train", 1), ("train", 2), ("evaluate", 1), ("save", 3), ("save", 1), ("save", 1)]
    assert made.phases[0].at_most
    assert (made.storage[0].bytes, made.storage[0].copies) == (1000, 3)


def test_saves_by_steps_are_counted_within_a_pass():
    train = replace(LOOP, epochs=3, checkpoints=(Cadence("c", "steps", 30), Cadence("c", "steps", 20)))
    made = forecast(workload(train))
    assert [phase.times for phase in made.phases if phase.verb == "save"] == [3, 6]


def test_an_evaluation_continues_where_its_last_run_ended():
    evaluation = replace(LOOP, kind="evaluate", name="e", epochs=2)
    whole = workload(replace(LOOP, epochs=4, evaluations=(Evaluation(2, evaluation),)))
    assert len(listed(whole, 0, 3, "e").step) == 250
    with pytest.raises(PlanError, match="no epoch 5: `e` has 4"):
        list_reads(whole, 0, 4, "e")


def test_memory_is_that_of_the_phase_that_needs_most_on_the_fullest_node():
    access = Access(readers=2, prefetch=3)
    loop = replace(LOOP, access=access, sync=Sync("allreduce", 1_000_000))
    varying = replace(DATASET, size=Distribution("uniform", (1000.0, 2000.0)))
    made = forecast(workload(loop, dataset=varying, job=Job(5, 2)))
    memory = made.phases[0].memory
    assert memory.buffers > 4 * 5 * 1000
    assert memory.allreduce == 1_000_000
    assert made.rank_bytes == RANK_BYTES + max(phase.memory.total for phase in made.phases)
    assert made.index_bytes == 8 * 17
    assert made.node_bytes == 3 * made.rank_bytes + NODE_BYTES + made.index_bytes


def test_what_a_node_needs_is_the_sum_of_its_ranks_and_not_the_most_of_each() -> None:
    """Rank 0 alone writes pieces of 64 MiB, and receives those of the 15 others."""
    pieces, part = Access(transfer=64 << 20), Part("p", 64 << 20, "per rank")
    saved = replace(CHECKPOINT, parts=(part,), writers=Writers("rank", 0), access=pieces)
    made = forecast(replace(workload(Save("c"), job=Job(16)), checkpoints=(saved,)))
    assert made.rank_bytes == RANK_BYTES + (128 << 20)
    assert made.phases[0].node_memory == 17 * (64 << 20)
    assert made.node_bytes == 16 * RANK_BYTES + NODE_BYTES + made.phases[0].node_memory
    total = replace(saved, parts=(replace(part, size=16 * part.size, scope="total"),), writers=Writers("one per", 8))
    flushed = replace(total, background=Background(in_flight=2))
    for checkpoint, each in ((total, 16 + 2), (flushed, 16 + 2 + 32)):
        one = forecast(replace(workload(Save("c"), job=Job(16)), checkpoints=(checkpoint,)))
        assert one.phases[0].node_memory == each * (64 << 20)
    two = forecast(replace(workload(Save("c"), job=Job(16, 2)), checkpoints=(total,)))
    assert two.phases[0].node_memory == 9 * (64 << 20)


def test_an_evaluation_has_its_buffers_in_addition_to_those_of_its_loop():
    evaluation = replace(LOOP, kind="evaluate", name="e", epochs=1, batch=20)
    made = forecast(workload(replace(LOOP, evaluations=(Evaluation(1, evaluation),))))
    loop, inner = (
        max(each.memory.total for each in made.phases if each.verb == verb) for verb in ("train", "evaluate")
    )
    assert inner > loop > 0
    assert made.rank_bytes == RANK_BYTES + loop + inner


@pytest.mark.parametrize("files", [1, 8])
def test_calls_that_prepare_past_the_page_cache_are_an_estimate(files):
    """The bytes of a call outside whole pages are a call of their own."""
    dataset = replace(DATASET, layout=Layout("files", files), header=1)
    for cache, estimated in (("off", True), ("page", False)):
        assert only(Prepare("d", Access(cache=cache)), dataset=dataset).calls.estimated is estimated


@pytest.mark.parametrize("dataset", [replace(DATASET, format="npz"), replace(DATASET, samples=2)], ids=["npz", "few"])
def test_a_file_that_is_prepared_by_mpi_is_opened_by_all(dataset):
    assert is_of(only(Prepare("d", Access("mpi-independent")), dataset=dataset).opens, [1, 1, 1, 1])
    assert only(Prepare("d", Access()), dataset=dataset).opens.total < 4


def test_preparing_takes_a_buffer_of_a_call():
    headed = replace(DATASET, header=100, align=8)
    assert only(Prepare("d", Access(transfer=1000)), dataset=headed).memory.buffers == 1000 + (2 << 20)
    assert only(Prepare("d", Access()), dataset=headed).memory.buffers == 4096 + 100 + 2 * 8 + (2 << 20)


@pytest.mark.parametrize(("planned", "estimated"), [(1000, False), (70, True)])
def test_a_conversion_plans_no_more_samples_than_it_may(monkeypatch, planned, estimated):
    seen = []
    whole = prepare_forecast.plan_part
    monkeypatch.setattr(prepare_forecast, "_PLANNED", planned)
    monkeypatch.setattr(
        prepare_forecast,
        "plan_part",
        lambda places, first, last: seen.append(last - first) or whole(places, first, last),
    )
    packed = replace(DATASET, name="packed", layout=Layout("files", 7), path="packed")
    workload = Workload("w", "", 1, JOB, (DATASET, packed), (), (Convert("packed", Access(), source="d"),))
    reads = forecast(workload).phases[0]
    assert 0 < sum(seen) <= planned
    assert reads.bytes.total == pytest.approx(1000 * 4096, rel=0.01)
    assert reads.bytes.estimated is estimated


def test_a_writer_for_others_has_a_buffer_to_receive_and_its_own():
    parts = (Part("p", 90_000, "total"),)
    own = Checkpoint("c", 1, parts, Writers("file per rank"), Access(transfer=1000), "c")
    for writers, buffers in [(own.writers, 1000), (Writers("rank", 0), 2000), (Writers("one per", 2), 2000)]:
        assert forecast_save(replace(own, writers=writers), 3, 1).memory.buffers == buffers
    assert forecast_save(replace(own, writers=Writers("rank", 0)), 1, 1).memory.buffers == 1000


def test_a_large_job_is_sampled_and_says_so():
    large = replace(DATASET, samples=10**9, size=Distribution("gamma", (4096.0, 1000.0)))
    loop = replace(LOOP, batch=256, epochs=1, shuffle=Shuffle("globally"), access=Access(transfer=65536))
    phase = only(loop, dataset=large, job=Job(65_536, 512))
    assert not phase.samples.estimated
    assert phase.samples.total == phase.steps * 256 * 65_536
    assert phase.bytes.estimated
    assert phase.bytes.total == pytest.approx(phase.samples.total * 4096, rel=0.01)
    assert phase.calls.estimated


def test_fixed_sizes_are_exact_however_large_the_job():
    large = replace(DATASET, samples=10**12, layout=Layout("file per sample", 10**12))
    loop = replace(LOOP, batch=256, epochs=1, access=Access(open="each sample"))
    phase = only(loop, dataset=large, job=Job(1000))
    assert not any(spread.estimated for spread in (phase.samples, phase.bytes, phase.calls, phase.opens))
    assert phase.bytes.total == phase.samples.total * 4096


@pytest.mark.parametrize("ranks", [1, 300])
def test_row_groups_at_the_ends_of_batches_are_counted_in_each(ranks):
    """A batch of 8 thirds of a row group touches 3, 4 and 3 of them, a call for each column."""
    table = replace(DATASET, samples=48 * 6144 * ranks, size=constant(160), layout=Layout("files", 6 * ranks), parts=40)
    table = replace(table, format="parquet", chunk=Chunk(6144, "samples"))
    loop = replace(LOOP, batch=16_384, epochs=1, shard="by file", shuffle=Shuffle(files="globally"))
    phase = only(loop, dataset=table, job=Job(ranks))
    assert phase.steps == 18
    assert phase.calls.mean == pytest.approx(60 * 40, rel=0.04)
    assert phase.amplification == pytest.approx(60 / 48, rel=0.04)
    assert phase.opens.mean == pytest.approx(6, rel=0.25)


def test_steps_left_out_are_scaled():
    """More samples than are planned on one rank: a part of the steps stands for all of them."""
    large = replace(DATASET, samples=20_000_000, size=Distribution("uniform", (1.0, 3.0)), layout=Layout("files", 100))
    loop = replace(LOOP, epochs=1)
    phase = only(loop, dataset=large, job=Job(1))
    assert phase.bytes.total == pytest.approx(40_000_000, rel=0.01)
    assert phase.files.total == pytest.approx(100, rel=0.05)


def test_files_of_steps_left_out_are_met_at_random_or_in_a_row(monkeypatch):
    monkeypatch.setattr("dliosim.plan.forecast.epoch_statistics._ROWS", 5000)
    large = replace(DATASET, samples=10**6, layout=Layout("files", 10_000))
    loop = replace(LOOP, epochs=1, steps=4000)
    for shuffle in (Shuffle("globally"), Shuffle()):
        shuffled = replace(loop, shuffle=shuffle)
        (whole,) = plans(shuffled, large, Job(1))
        phase = only(shuffled, dataset=large, job=Job(1))
        assert phase.files.estimated
        assert phase.files.total == pytest.approx(len(np.unique(whole.file)), rel=0.02)
        assert phase.opens.total == pytest.approx(phase.files.total)


def test_preparing_more_files_than_are_counted_takes_their_mean():
    large = replace(DATASET, samples=10**8, layout=Layout("file per sample", 10**8), header=10)
    phase = only(Prepare("d", Access()), dataset=large, job=Job(7))
    assert phase.bytes.total == pytest.approx(10**8 * 4106)
    assert phase.files.total == 10**8


@given(datasets(), loops, jobs, st.integers(0, 3))
def test_a_listing_is_the_plan_of_one_rank(dataset, loop, job, epoch):
    rank = job.ranks - 1
    loop = replace(loop, epochs=4)
    plan = plans(loop, dataset, job, epoch)[rank]
    rows = listed(workload(loop, dataset=dataset, job=job), rank, epoch)
    assert (rows.sample == plan.sample).all()
    assert (rows.offset == plan.offset).all()
    assert (rows.length == plan.length).all()
    assert (np.bincount(rows.step, minlength=plan.steps) == np.diff(plan.step_start)).all()
    folder = f"d/{dataset.digest()}/"
    assert rows.file == [folder + dataset.file_name(file) for file in plan.file.tolist()]


def test_a_listing_finds_loops_by_name_and_says_what_is_missing():
    evaluation = replace(LOOP, kind="evaluate", name="e", batch=10)
    whole = workload(Repeat(2, (replace(LOOP, evaluations=(Evaluation(1, evaluation),)),)))
    assert len(np.unique(listed(whole, 0, 0).step)) == 50
    assert len(np.unique(listed(whole, 0, 0, "e").step)) == 25
    with pytest.raises(PlanError, match="no loop `f`"):
        list_reads(whole, 0, 0, "f")
    with pytest.raises(PlanError, match="no rank 4"):
        list_reads(whole, 4, 0)
    with pytest.raises(PlanError, match="no loop"):
        list_reads(workload(Barrier()), 0, 0)


def test_compute_per_sample_is_that_of_the_samples_of_a_step() -> None:
    each = replace(LOOP, epochs=1, compute=Compute(constant(0.002), per_sample=True))
    whole = replace(LOOP, epochs=1, compute=Compute(constant(0.002 * LOOP.batch)))
    assert only(each).demand == only(whole).demand
