"""Samples are inside their files and do not overlap, and calls read exactly their bytes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.errors import PlanError
from dliosim.model import Access, Dataset, Distribution, Job, Layout, Loop, constant
from dliosim.plan.samples.io_requests import Calls, Extents, deal_rounds, plan_calls, sample_heads
from dliosim.plan.samples.sample_to_file import (
    BLOCK,
    FileOrder,
    block_count,
    block_totals,
    files_of,
    first_samples,
    needs_totals,
    prefix_sum,
    sample_sizes,
)
from dliosim.plan.samples.sampler import plan_epoch
from tests.plan.helpers import placed
from tests.strategies import datasets, loops, varying_sizes

VARYING = Dataset("d", 1, 1000, Distribution("gamma", (300.0, 200.0)), Layout("shared file", 1), "d", align=8)


def up(values, align):
    return (values + align - 1) // align * align


@given(datasets())
def test_sizes_are_whole_bytes_of_at_least_one(dataset):
    sizes = sample_sizes(dataset, np.arange(dataset.samples))
    assert sizes.dtype == np.int64
    assert sizes.min() >= 1


def test_a_size_depends_on_seed_name_and_sample_only():
    samples = np.arange(100)
    sizes = sample_sizes(VARYING, samples)
    assert (sample_sizes(replace(VARYING, layout=Layout("files", 7), samples=500), samples) == sizes).all()
    assert (sample_sizes(VARYING, samples[::-3]) == sizes[::-3]).all()
    assert (sample_sizes(replace(VARYING, seed=2), samples) != sizes).any()
    assert (sample_sizes(replace(VARYING, name="e"), samples) != sizes).any()


def test_sizes_are_rounded_to_the_nearest_byte():
    sizes = sample_sizes(replace(VARYING, size=Distribution("uniform", (1.6, 2.4))), np.arange(1000))
    assert (sizes == 2).all()


def totals(dataset, first, last):
    return block_totals(placed(dataset).form, first, last)


@given(datasets(varying_sizes), st.data())
def test_sums_before_samples_equal_brute_force(dataset, data):
    sizes = up(sample_sizes(dataset, np.arange(dataset.samples)), dataset.align)
    expected = np.append(0, np.cumsum(sizes))
    before = prefix_sum(totals(dataset, 0, block_count(dataset)))
    assert (before[:-1] == expected[: dataset.samples : BLOCK]).all()
    assert before[-1] == expected[-1]
    samples = np.array(data.draw(st.lists(st.integers(0, dataset.samples))), np.int64)
    assert (replace(placed(dataset), prefix=before).bytes_before(samples) == expected[samples]).all()


@given(datasets(varying_sizes), st.data())
def test_totals_can_be_made_in_pieces(dataset, data):
    blocks = block_count(dataset)
    cut = data.draw(st.integers(0, blocks))
    pieces = [totals(dataset, 0, cut), totals(dataset, cut, blocks)]
    assert (np.concatenate(pieces) == totals(dataset, 0, blocks)).all()


def test_large_blocks_of_totals_join_seamlessly():
    dataset = replace(VARYING, samples=64 * 5000 + 17)
    assert (totals(dataset, 4090, 5001) == totals(dataset, 0, 5001)[4090:]).all()


def test_varying_samples_in_a_shared_file_need_totals():
    assert needs_totals(VARYING)
    assert not needs_totals(replace(VARYING, size=constant(5)))
    assert not needs_totals(replace(VARYING, layout=Layout("file per sample", 1000)))
    with pytest.raises(PlanError, match="block totals"):
        replace(placed(VARYING), prefix=None).locate(np.array([5]))


@given(st.integers(1, 500), st.integers(1, 520))
def test_samples_and_files_agree(total, files):
    samples = np.arange(total)
    file = files_of(samples, total, files)
    assert (file == samples * files // total).all()
    starts = first_samples(np.arange(files + 1), total, files)
    assert (starts == np.searchsorted(file, np.arange(files + 1))).all()


@given(st.integers(1, 300), st.integers(1, 320), st.integers(0, 10**6))
def test_a_permuted_order_of_files_has_every_file_and_sample_once(total, files, seed):
    order = FileOrder(total, files, seed)
    places = np.arange(files)
    permuted = order.files_at(places)
    assert sorted(permuted) == list(range(files))
    stream = order.samples_at(np.arange(total))
    assert sorted(stream) == list(range(total))
    # Whole files in the permuted order, and each sample of a file after the one before it.
    held = np.bincount(files_of(np.arange(total), total, files), minlength=files)
    assert (files_of(stream, total, files) == np.repeat(permuted, held[permuted])).all()
    assert (held[permuted] == held).all()
    assert (np.diff(stream)[np.diff(files_of(stream, total, files)) == 0] == 1).all()


@given(datasets())
def test_samples_fill_their_files_and_do_not_overlap(dataset):
    places = placed(dataset)
    file, offset, length = places.locate(np.arange(dataset.samples))
    sizes = places.file_sizes(np.arange(dataset.layout.files))
    header = up(dataset.header, dataset.align)
    assert (offset % dataset.align == 0).all()
    assert (length == sample_sizes(dataset, np.arange(dataset.samples))).all()
    end = np.full(dataset.layout.files, header)
    for f, o, n in zip(file.tolist(), offset.tolist(), length.tolist(), strict=True):
        assert o == end[f]
        end[f] = up(o + n, dataset.align)
    assert (end == sizes).all()


@given(datasets(), st.data())
def test_a_place_does_not_depend_on_what_else_is_asked(dataset, data):
    places = placed(dataset)
    together = places.locate(np.arange(dataset.samples))
    some = np.array(data.draw(st.lists(st.integers(0, dataset.samples - 1))), np.int64)
    for alone, column in zip(places.locate(some), together, strict=True):
        assert (alone == column[some]).all()


def moved(made: Calls, step: int) -> np.ndarray:
    """Columns file, file offset and place in the buffer of every byte that the calls of a step move."""
    part = made.step(step)
    columns = [
        np.stack([np.full(n, f), o + np.arange(n), s + np.arange(n)])
        for f, o, n, s in zip(part.file, part.offset, part.length, part.start, strict=True)
    ]
    return np.concatenate([np.empty((3, 0), np.int64), *columns], axis=1)


small = datasets(st.builds(constant, st.integers(1, 300).map(float)) | st.just(Distribution("uniform", (1.0, 300.0))))
transfers = st.none() | st.integers(64, 2000)


@given(small, loops, transfers, st.sampled_from([1, 1, 64]), st.integers(1, 5))
def test_calls_bring_every_byte_of_every_sample_to_its_place(dataset, loop, transfer, page, ranks):
    extents = plan_epoch(loop, placed(dataset), Job(ranks), 0, 0)
    made = plan_calls(extents, transfer, page)
    assert made.steps == extents.steps
    assert (made.offset % page == 0).all()
    assert (made.length % page == 0).all()
    assert (made.start % page == 0).all()
    assert (made.length > 0).all()
    if transfer is None:
        assert len(made.length) == len(extents.length)
    else:
        assert made.length.max(initial=0) <= transfer
    for step in range(min(extents.steps, 4)):
        rows = slice(*extents.step_start[step : step + 2].tolist())
        part = made.step(step)
        bytes_moved = moved(made, step)
        # The calls fill the buffer without gaps or overlaps, and the buffer is large enough.
        assert (np.sort(bytes_moved[2]) == np.arange(made.step_bytes[step])).all()
        assert made.step_bytes[step] <= made.buffer_size
        content = bytes_moved[:2][:, np.argsort(bytes_moved[2])]
        for file, offset, length, at in zip(
            extents.file[rows], extents.offset[rows], extents.length[rows], made.sample_start[rows], strict=True
        ):
            assert (content[0, at : at + length] == file).all()
            assert (content[1, at : at + length] == offset + np.arange(length)).all()
        if page == 1:
            assert part.length.sum() == extents.length[rows].sum()


def in_a_row(lengths: list[int], step_start: list[int]) -> Extents:
    length = np.array(lengths, np.int64)
    offset = np.cumsum(length) - length
    return Extents(np.arange(len(length)), np.zeros_like(length), offset, length, np.array(step_start))


def test_contiguous_samples_become_one_call_within_a_step():
    made = plan_calls(in_a_row([10] * 8, [0, 4, 8]), 1000)
    assert made.offset.tolist() == [0, 40]
    assert made.length.tolist() == [40, 40]
    assert made.start.tolist() == [0, 0]
    assert made.sample_start.tolist() == [0, 10, 20, 30] * 2


def test_a_run_is_cut_where_a_call_is_full():
    made = plan_calls(in_a_row([10] * 4, [0, 4]), 15)
    assert made.length.tolist() == [15, 15, 10]
    assert made.start.tolist() == made.offset.tolist() == [0, 15, 30]


def test_whole_samples_are_not_merged():
    assert plan_calls(in_a_row([10] * 4, [0, 4]), None).length.tolist() == [10] * 4


def test_direct_reads_are_widened_to_pages():
    made = plan_calls(in_a_row([100, 4096, 5000], [0, 3]), None, 4096)
    assert made.offset.tolist() == [0, 0, 4096]
    assert made.length.tolist() == [4096, 8192, 8192]
    assert made.start.tolist() == [0, 4096, 12288]
    assert made.sample_start.tolist() == [0, 4196, 12288 + 100]


def test_direct_reads_smaller_than_a_page_are_refused():
    with pytest.raises(PlanError, match="multiples of 4096"):
        plan_calls(in_a_row([10], [0, 1]), 100, 4096)


@given(st.lists(st.integers(1, 100), max_size=40), st.integers(10, 150), st.data())
def test_rounds_deal_every_call_once_and_stay_below_the_transfer(lengths, transfer, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(lengths)), max_size=5)))
    extents = in_a_row(lengths, [0, *cuts, len(lengths)])
    made = plan_calls(extents, transfer)
    dealt = deal_rounds(made, transfer)
    assert len(dealt.count) == made.steps
    for step in range(made.steps):
        at = int(made.step_start[step])
        for number in range(int(dealt.count[step])):
            first, last = dealt.calls(step, number)
            assert first == at < last
            taken = int(made.length[first:last].sum())
            assert taken <= transfer
            if last < made.step_start[step + 1]:
                assert taken + made.length[last] > transfer
            assert (made.part(first, last).start == made.start[first:last]).all()
            at = last
        assert at == made.step_start[step + 1]
        assert dealt.calls(step, int(dealt.count[step])) == (0, 0)


def test_whole_samples_take_one_round():
    made = plan_calls(in_a_row([10] * 5, [0, 3, 3, 5]), None)
    dealt = deal_rounds(made, None)
    assert dealt.count.tolist() == [1, 0, 1]
    assert dealt.calls(2, 0) == (3, 5)


def test_a_step_of_no_samples_has_no_calls():
    loop = Loop("train", "l", "d", Access(), batch=3, shard="by block", last_batch="keep")
    extents = plan_epoch(loop, placed(replace(VARYING, samples=2)), Job(5), 0, 0)
    part = plan_calls(extents, 4096).step(0)
    assert len(part.length) == len(part.sample_start) == part.buffer_size == 0


@pytest.mark.parametrize("transfer", [None, 4])
def test_ranges_of_one_sample_are_read_of_a_file_that_is_opened_once(transfer):
    sample = np.array([7, 7, 7, 3, 3, 3, 7, 7, 3, 3])
    offset = np.array([0, 50, 90, 10, 60, 95, 0, 50, 10, 10])
    many = Extents(sample, np.zeros(10, np.int64), offset, np.full(10, 5), np.array([0, 5, 10]))
    made = plan_calls(many, transfer)
    head = sample_heads(made, transfer is not None)
    # The second step begins in the midst of sample 3; one range that is read twice is that of two samples.
    assert made.offset[head].tolist() == [0, 10, 95, 0, 10, 10]
    assert sample_heads(made.part(1, 3), transfer is not None)[0], (
        "a round that begins in the middle opens the file, too"
    )


@given(st.integers(1, 60), st.integers(1, 400))
def test_sizes_by_file_are_one_size_for_each_file(files: int, more: int) -> None:
    layout = Layout("files", files)
    dataset = replace(VARYING, layout=layout, samples=files + more, sizes="by file")
    samples = np.arange(dataset.samples)
    sizes, place = sample_sizes(dataset, samples), samples * files // dataset.samples
    each = sample_sizes(replace(VARYING, samples=files, layout=Layout("file per sample", files)), np.arange(files))
    assert (sizes == each[place]).all()
    assert (sample_sizes(dataset, samples[::-2]) == sizes[::-2]).all()
