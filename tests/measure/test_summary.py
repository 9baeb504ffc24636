import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dliosim.measure.figures.declaration import BoundShares
from dliosim.measure.figures.epoch_summaries import storage_byte_bound
from dliosim.measure.figures.summary import RANK_COLUMNS, gather_ranks, rank_row, summarise, summarise_verb
from dliosim.measure.rank.histogram import PACKED, Histogram
from dliosim.measure.rank.records import (
    CAUSES,
    EpochRecord,
    StepBlock,
    VerbRecord,
    pack_arrivals,
    unpack_arrivals,
    unpack_waits,
)
from dliosim.measure.results.run_summary import FilePhase, RestorePhase, SavePhase
from tests.examples import examples
from tests.measure.ranks import on_ranks

STORAGE, COMPUTE, TOOL, ARRIVALS, DECODE = range(5)
MS = 1_000_000


def summary_of(*records):
    summary, *others = on_ranks(summarise, records)
    assert others == [None] * (len(records) - 1)
    return summary


def record(**figures):
    return EpochRecord(phase=0, epoch=1, **{"samples": 1, **figures})


times = st.integers(0, 10**12)
parts = ("data_wait", "compute", "sync_wait", "arrival_wait", "checkpoint", "processing", "tool")
records = st.builds(
    lambda named, tool: record(wall_ns=sum(named.values()) + tool, **named),
    st.fixed_dictionaries({f"{part}_ns": times for part in parts[:-1]}),
    times,
)


@settings(max_examples=examples(25))
@given(st.lists(records, min_size=1, max_size=4))
def test_the_parts_of_the_time_add_up_to_the_wall_time(of_ranks):
    summary = summary_of(*of_ranks)
    total = sum(getattr(summary, f"{part}_seconds").mean for part in parts)
    assert total == pytest.approx(np.mean([one.wall_ns for one in of_ranks]) * 1e-9)


@settings(max_examples=examples(25))
@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=4))
def test_hashes_add_up_modulo_two_to_the_64(hashes):
    summary = summary_of(*(record(order_hash=one, extent_hash=one ^ 1) for one in hashes))
    assert summary.order_hash == sum(hashes) % 2**64
    assert summary.extent_hash == sum(one ^ 1 for one in hashes) % 2**64


def test_counts_add_up_and_the_slowest_rank_gives_the_time():
    summary = summary_of(
        record(steps=3, samples=12, bytes=1200, bytes_moved=4096, calls=12, opens=1, wall_ns=2_000 * MS),
        record(steps=3, samples=10, bytes=1000, bytes_moved=4096, calls=10, opens=2, wall_ns=1_000 * MS),
    )
    assert (summary.ranks, summary.steps, summary.fewest_steps) == (2, 3, 3)
    assert (summary.samples, summary.bytes, summary.bytes_moved) == (22, 2200, 8192)
    assert (summary.calls, summary.opens, summary.seconds) == (22, 3, 2.0)
    assert (summary.samples_per_second, summary.bytes_per_second) == (11.0, 1100.0)


def test_different_numbers_of_steps_are_both_given():
    summary = summary_of(record(steps=3), record(steps=5), record(steps=4))
    assert (summary.steps, summary.fewest_steps) == (5, 3)


def test_rates_leave_out_blocking_checkpoints():
    summary = summary_of(record(samples=10, wall_ns=3_000 * MS, checkpoint_ns=1_000 * MS))
    assert (summary.seconds, summary.loop_seconds, summary.samples_per_second) == (3.0, 2.0, 5.0)


def test_utilization_is_the_mean_of_the_ranks_own_quotients():
    summary = summary_of(
        record(nominal_ns=90 * MS, steady_ns=100 * MS),
        record(nominal_ns=10 * MS, steady_ns=40 * MS),
        record(),
    )
    assert summary.utilization == pytest.approx((0.9 + 0.25) / 2)
    assert summary.utilization_min == pytest.approx(0.25)
    assert summary.utilization_max == pytest.approx(0.9)


def test_where_requests_arrive_by_themselves_there_is_no_utilization_and_no_au_of_dlio():
    blocks = [StepBlock(5, 1200 * MS, 200 * MS, 800 * MS)]
    closed = record(nominal_ns=90 * MS, steady_ns=100 * MS, blocks=blocks, batch=1)
    opened = record(nominal_ns=90 * MS, steady_ns=100 * MS, blocks=blocks, batch=1, request_latency=Histogram([5 * MS]))
    assert summary_of(closed).utilization == pytest.approx(0.9)
    assert summary_of(closed).dlio_au == pytest.approx(0.8)
    summary = summary_of(opened)
    assert (summary.utilization, summary.utilization_min, summary.utilization_max) == (None, None, None)
    assert summary.dlio_au is None
    assert summary.dlio_samples_per_second is not None


def test_utilization_of_storage_alone_takes_the_slowest_rank_of_each_step():
    held = {"nominal_ns": 40, "steady_ns": 400}
    first = record(storage_ns=np.array([[20, 20, 0], [20, 60, 0]]), **held)
    second = record(storage_ns=np.array([[10, 40, 0], [30, 30, 0]]), **held)
    assert summary_of(first, second).storage_utilization == pytest.approx((20 + 30) / (40 + 60))
    assert summary_of(record(storage_ns=np.array([[20, 40, 0]]))).storage_utilization is None


def test_a_step_of_all_ranks_ends_when_the_first_of_them_leaves_its_sync():
    held = {"nominal_ns": 40, "steady_ns": 400}
    early = record(storage_ns=np.array([[0, 0, 0], [20, 60, -100], [20, 60, -200], [0, 0, 0]]), **held)
    late = record(storage_ns=np.array([[0, 0, 0], [20, 150, -170], [20, 30, -200], [0, 0, 0]]), **held)
    assert summary_of(early, late).storage_step_seconds == pytest.approx(160e-9)


def test_the_error_of_utilization_of_storage_alone_is_that_of_a_ratio_of_sums():
    held = {"nominal_ns": 40, "steady_ns": 400}
    rows = [[20, 40, 0], [20, 60, -60], [0, 0, 0]]
    found = summary_of(record(storage_ns=np.array(rows), **held)).storage_utilization_error
    assert found == pytest.approx(((20 - 16) ** 2 + (20 - 24) ** 2) ** 0.5 * 2**0.5 / 100)
    only = record(storage_ns=np.array([[20, 40, 0], [0, 0, 0]]), **held)
    assert summary_of(only).storage_utilization_error is None


def test_without_compute_or_with_one_step_there_is_no_utilization():
    summary = summary_of(record(steady_ns=100), record(nominal_ns=0, steady_ns=0))
    assert (summary.utilization, summary.utilization_min, summary.utilization_max) == (None, None, None)


def test_compute_bound_throughput_is_ranks_times_batch_by_compute_times_utilization():
    ranks, batch, steps, compute_ns, step_ns = 3, 4, 100, 10 * MS, 11 * MS
    one = record(
        batch=batch,
        steady_samples=batch * steps,
        steady_ns=steps * step_ns,
        nominal_ns=steps * compute_ns,
    )
    summary = summary_of(*[one] * ranks)
    assert summary.steady_samples_per_second == pytest.approx(ranks * batch / (compute_ns * 1e-9) * summary.utilization)


def test_the_rank_that_waited_least_was_last_and_says_why():
    first, second = (
        record(last_arrival=np.array([pack_arrivals(*word) for word in words], np.int64))
        for words in (
            [(5, 0, COMPUTE), (9, 0, TOOL), (1, 0, TOOL), (7, 0, DECODE)],
            [(9, 1, TOOL), (2, 1, STORAGE), (8, 1, STORAGE), (3, 1, DECODE)],
        )
    )
    summary = summary_of(first, second)
    assert summary.bound_by == BoundShares(storage=0.25, compute=0.25, tool=0.25, arrivals=0.0, decode=0.25)
    assert (summary.slowest_rank, summary.slowest_rank_share) in [(0, 0.5), (1, 0.5)]
    assert summary.least_sync_wait_seconds == pytest.approx((5 + 2 + 1 + 3) * 1e-9)


@given(
    st.integers(1, 4).flatmap(
        lambda ranks: st.lists(
            st.lists(st.tuples(times, st.integers(0, 4)), min_size=ranks, max_size=ranks), min_size=1, max_size=20
        )
    )
)
@settings(max_examples=examples(25))
def test_shares_of_what_bound_the_steps_add_up_to_one(steps):
    ranks = range(len(steps[0]))
    summary = summary_of(
        *(
            record(last_arrival=np.array([pack_arrivals(step[rank][0], rank, step[rank][1]) for step in steps]))
            for rank in ranks
        )
    )
    found = summary.bound_by
    assert found.storage + found.compute + found.tool + found.arrivals + found.decode == pytest.approx(1)
    assert 1 / len(ranks) <= summary.slowest_rank_share <= 1


def test_without_a_sync_no_rank_was_last():
    summary = summary_of(record(steps=4), record(steps=4))
    assert (summary.bound_by, summary.slowest_rank, summary.slowest_rank_share) == (None, None, None)
    assert summary.least_sync_wait_seconds is None


@given(st.integers(0, 2**62), st.integers(0, 2**22 - 1), st.integers(0, len(CAUSES) - 1))
def test_an_arrival_packs_into_a_positive_word_and_back(wait, rank, cause):
    word = pack_arrivals(wait, rank, cause)
    assert 0 <= word < 2**63
    ranks, causes = unpack_arrivals(np.array([word], np.int64))
    assert (ranks[0], causes[0]) == (rank, cause)


@given(st.lists(st.integers(0, 270 * 10**9), min_size=2, max_size=2), st.lists(st.integers(0, 4), min_size=2))
def test_of_waits_below_four_and_a_half_minutes_the_shorter_one_is_the_smaller_word(waits, causes):
    words = [
        pack_arrivals(wait, 2**22 - 1 - i, cause) for i, (wait, cause) in enumerate(zip(waits, causes, strict=False))
    ]
    assert (words[0] > words[1]) == (waits[0] >= waits[1])
    assert unpack_waits(np.array(words, np.int64)).tolist() == waits


def test_times_of_decoding_are_spread_over_ranks_and_no_part_of_the_tools_time():
    inline = record(wall_ns=100 * MS, processing_ns=70 * MS, decode_ns=50 * MS, preprocess_ns=20 * MS)
    reading_ahead = record(wall_ns=100 * MS, decode_ns=150 * MS)
    summary = summary_of(inline, reading_ahead)
    assert (summary.decode_seconds.mean, summary.decode_seconds.max) == pytest.approx((0.1, 0.15))
    assert (summary.preprocess_seconds.min, summary.preprocess_seconds.max) == pytest.approx((0.0, 0.02))
    assert (summary.processing_seconds.mean, summary.tool_seconds.min) == pytest.approx((0.035, 0.03))
    row = dict(zip(RANK_COLUMNS, rank_row(inline).tolist(), strict=True))
    assert (row["processing_ns"], row["decode_ns"], row["preprocess_ns"]) == (70 * MS, 50 * MS, 20 * MS)


def test_latencies_of_all_ranks_are_in_one_histogram():
    summary = summary_of(
        record(batch_latency=Histogram([10]), call_latency=Histogram([1, 2])), record(batch_latency=Histogram([30]))
    )
    assert (summary.batch_latency.count, summary.batch_latency.max_ns) == (2, 30)
    assert (summary.call_latency.count, summary.request_latency.count) == (2, 0)


def test_amplification_needs_every_rank_to_know():
    known = record(bytes=100, rchar=400, read_bytes=50)
    assert (summary_of(known, known).amplification, summary_of(known, known).storage_amplification) == (4.0, 0.5)
    assert summary_of(known, record(bytes=100)).amplification is None
    mapped = summary_of(known, record(bytes=100, read_bytes=150))
    assert (mapped.amplification, mapped.storage_amplification) == (None, 1.0)


def test_what_one_rank_does_not_know_no_rank_knows():
    known, unknown = record(bytes=100, distinct_bytes=30), record(bytes=100)
    assert (summary_of(known, known).distinct_bytes, summary_of(known, unknown).distinct_bytes) == (60, None)
    asked = VerbRecord(wall_ns=1_000 * MS, bytes=100, rchar=100, read_bytes=20, distinct_bytes=50)
    summary, _ = on_ranks(summarise_verb, [asked, asked])
    assert (summary.distinct_bytes, summary.read_call_bytes, summary.device_bytes) == (100, 200, 40)
    summary, _ = on_ranks(summarise_verb, [asked, VerbRecord(wall_ns=1_000 * MS, bytes=100)])
    assert (summary.distinct_bytes, summary.read_call_bytes, summary.device_bytes) == (None, None, None)
    assert summary.bytes_per_second == 200.0, "what is not known bounds nothing"


@pytest.mark.parametrize(
    ("called", "distinct", "device", "given"),
    [
        (None, None, None, 200),
        (200, 100, 100, 100),
        (200, 100, 0, 100),
        (200, 100, 200, 200),  # past the page cache every rank has its own from the device
        (200, 100, 900, 200),  # the kernel reads ahead
        (100, 200, 100, 100),  # one rank reads what others asked for
        (None, 100, None, 100),
    ],
)
def test_a_rate_has_no_byte_that_storage_did_not_give(called, distinct, device, given):
    assert storage_byte_bound(200, called, distinct, device) == given


def test_the_depth_is_that_of_the_calls_of_all_ranks_while_they_made_any():
    busy = record(call_latency=Histogram([30, 30]), io_busy_ns=20)
    assert summary_of(busy, record(call_latency=Histogram([20]), io_busy_ns=20)).depth == 2.0
    assert summary_of(record()).depth is None


def test_oversleep_is_a_share_of_the_compute_asked():
    assert summary_of(record(compute_ns=102, oversleep_ns=2)).oversleep_share == pytest.approx(0.02)
    assert summary_of(record()).oversleep_share is None


def test_waits_for_cores_are_known_only_if_every_rank_knows_its_own():
    quiet, crowded = record(core_wait_ns=0, reader_core_wait_ns=7 * MS), record(core_wait_ns=30 * MS)
    summary = summary_of(quiet, crowded)
    found = summary.core_wait_seconds
    assert (found.mean, found.min, found.max) == pytest.approx((0.015, 0.0, 0.03))
    assert summary.reader_core_wait_seconds is None
    assert summary_of(quiet, record()).core_wait_seconds is None


def test_dlio_s_figures_follow_its_formulas():
    # Two blocks of a rank with batch 4. Of 5 steps in 1.2 s the first took 0.2 s: 4 x 0.2 s of compute in 1.0 s; of 3
    # steps in 0.7 s the first took 0.2 s: 2 x 0.2 s in 0.5 s. Weighted by steps: 80 %. Samples: 3 and 1 steps of 4.
    blocks = [StepBlock(5, 1200 * MS, 200 * MS, 800 * MS), StepBlock(3, 700 * MS, 200 * MS, 400 * MS)]
    one = record(batch=4, blocks=blocks)
    summary = summary_of(one, one)
    assert summary.dlio_au == pytest.approx(0.8)
    assert summary.dlio_samples_per_second == pytest.approx(2 * (5 * 3 * 4 / 1.0 + 3 * 1 * 4 / 0.5) / 8, abs=1e-5)
    assert summary_of(record()).dlio_au is None


def test_an_epoch_costs_two_reductions_of_a_size_that_ranks_do_not_change():
    def lengths_of(one, reducer):
        lengths = []

        class Counting:
            def reduce(self, array, op):
                lengths.append(len(array))
                return reducer.reduce(array, op)

        summarise(one, Counting())
        return lengths

    one = record(last_arrival=np.zeros(1000, np.int64), storage_ns=np.zeros((1001, 3), np.int64))
    (alone,), (first, *others) = on_ranks(lengths_of, [one]), on_ranks(lengths_of, [one] * 4)
    assert first == alone
    assert others == [alone] * 3
    # Of each column the sum, the number of ranks that know it, the greatest and the least; of each histogram its ends.
    columns = (alone[0] - 3 * PACKED) // 2
    assert alone == [2 * columns + 3 * PACKED, 1000 + 3 * 1001 + 2 * columns + 2 * 3]
    assert columns < 60


def test_a_verb_s_figures_add_up():
    one = VerbRecord(wall_ns=2_000 * MS, bytes=300, files=2, call_ns=1_500 * MS, encode_ns=100 * MS)
    other = VerbRecord(wall_ns=1_000 * MS, bytes=100, call_ns=500 * MS, resident_bytes=1, examined_bytes=4)
    summary, nothing = on_ranks(summarise_verb, [one, other])
    assert nothing is None
    assert (summary.ranks, summary.bytes, summary.files, summary.seconds) == (2, 400, 2, 2.0)
    assert (summary.call_seconds.mean, summary.call_seconds.min, summary.call_seconds.max) == (1.0, 0.5, 1.5)
    assert (summary.encode_seconds.mean, summary.encode_seconds.max) == (0.05, 0.1)
    assert (summary.bytes_per_second, summary.resident_share) == (200.0, 0.25)


def test_the_parts_of_a_save_are_those_of_the_slowest_rank_and_add_up_to_its_time():
    writer = VerbRecord(wall_ns=1_000 * MS, call_ns=600 * MS, send_ns=100 * MS, commit_ns=200 * MS, rename_ns=50 * MS)
    sender = VerbRecord(wall_ns=400 * MS, send_ns=300 * MS, commit_ns=90 * MS, content_ns=700 * MS)
    summary, _ = on_ranks(summarise_verb, [sender, writer])
    parts = SavePhase("c", "save", 1.0, verb=summary).parts
    shown = {name: round(time, 9) for name, time in parts.items() if time}
    assert shown == {"call_seconds": 0.6, "send_seconds": 0.1, "commit_seconds": 0.2, "rest_seconds": 0.1}
    assert sum(parts.values()) == pytest.approx(summary.seconds)


def test_calls_in_flight_together_take_no_more_than_the_other_parts_leave():
    overlapping = VerbRecord(wall_ns=1_000 * MS, call_ns=5_000 * MS, open_ns=100 * MS, content_ns=300 * MS)
    summary, _ = on_ranks(summarise_verb, [overlapping, VerbRecord(wall_ns=1)])
    kinds = {FilePhase: 0.6, RestorePhase: 0.9}  # contents are in the clock of a prepare alone
    for kind, calls in kinds.items():
        parts = kind("d", "", 1.0, verb=summary).parts
        assert (parts["call_seconds"], parts["rest_seconds"]) == pytest.approx((calls, 0.0))


def test_calls_that_one_rank_could_not_count_are_no_figure():
    one, other = VerbRecord(calls=3, bytes_moved=300, bytes=300), VerbRecord(bytes=100, uncounted_files=1)
    summary, _ = on_ranks(summarise_verb, [one, other])
    assert (summary.calls, summary.bytes_moved, summary.bytes) == (None, None, 400)


def test_gathered_rows_are_those_of_each_rank_and_epoch():
    records = [[EpochRecord(0, epoch, steps=rank, wall_ns=10 * epoch) for epoch in (0, 1)] for rank in range(3)]
    of_ranks = [[rank_row(each) for each in of_rank] for of_rank in records]
    rows, *others = on_ranks(gather_ranks, of_ranks)
    assert rows.shape == (3, 2, len(RANK_COLUMNS))
    assert rows[:, :, RANK_COLUMNS.index("steps")].tolist() == [[0, 0], [1, 1], [2, 2]]
    assert rows[:, :, RANK_COLUMNS.index("tool_ns")].tolist() == [[0, 10]] * 3
    assert others == [None, None]
