"""The ranges read from storage: not those that memory keeps, and for collective calls in the order of the file."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dliosim.model import Access, Api, Dataset, Distribution, Layout, constant
from dliosim.plan.samples.io_requests import Extents
from dliosim.plan.samples.read_ranges import buffer_bytes, plan_reads, rows_to_keep
from dliosim.plan.samples.sampler import extent_hash, order_hash
from tests.plan.helpers import placed

NOTHING = np.empty(0, np.int64)
DATA = Dataset("d", 1, 100, constant(10), Layout("shared file", 1), "d")


def extents_of(*steps: list[int], length: int = 10) -> Extents:
    """Steps of samples that are in one file in the order of their numbers."""
    sample = np.array([one for step in steps for one in step], np.int64)
    starts = np.cumsum([0, *(len(step) for step in steps)])
    return Extents(sample, np.zeros_like(sample), sample * length, np.full_like(sample, length), starts)


def steps_of(extents: Extents) -> list[list[int]]:
    return [part.tolist() for part in np.split(extents.sample, extents.step_start[1:-1])]


def kept(extents: Extents, memory: int) -> list[int]:
    return extents.sample[rows_to_keep(extents, memory)].tolist()


def test_what_fits_is_kept_from_the_first_on() -> None:
    assert kept(extents_of([7, 3], [9, 1]), 39) == [7, 3, 9]
    assert kept(extents_of([7, 3], [9, 1]), 40) == [7, 3, 9, 1]
    assert kept(extents_of([7, 3], [9, 1]), 9) == []


def test_nothing_is_kept_after_the_first_that_does_not_fit() -> None:
    extents = extents_of([1, 2, 3])
    extents.length[:] = 10, 20, 5
    assert kept(extents, 25) == [1]


@given(st.lists(st.lists(st.integers(0, 9)), min_size=1), st.integers(0, 120))
def test_a_sample_read_twice_is_kept_once(steps: list[list[int]], memory: int) -> None:
    extents = extents_of(*steps)
    first = list(dict.fromkeys(extents.sample.tolist()))
    assert kept(extents, memory) == first[: memory // 10]


def test_what_is_kept_is_not_read_again() -> None:
    extents = extents_of([4, 2], [3], [5, 1, 2])
    left = plan_reads(extents, Access(), np.array([2, 3, 7]), placed(DATA)).extents
    assert steps_of(left) == [[4], [], [5, 1]]
    assert left.offset.tolist() == [40, 50, 10]
    assert steps_of(plan_reads(extents, Access(), NOTHING, placed(DATA)).extents) == steps_of(extents)


def test_a_collective_batch_is_read_in_the_order_of_the_file() -> None:
    extents = extents_of([4, 2, 3], [], [9, 1])
    assert steps_of(plan_reads(extents, Access(api="mpi-collective"), NOTHING, placed(DATA)).extents) == [
        [2, 3, 4],
        [],
        [1, 9],
    ]
    assert steps_of(plan_reads(extents, Access(api="mpi-collective"), np.array([3]), placed(DATA)).extents) == [
        [2, 4],
        [],
        [1, 9],
    ]
    assert steps_of(plan_reads(extents, Access(), NOTHING, placed(DATA)).extents) == [[4, 2, 3], [], [9, 1]]


@given(st.lists(st.lists(st.integers(0, 30)), min_size=1), st.sampled_from(["posix", "mpi-independent"]))
def test_by_offset_every_step_goes_forward_in_its_files_and_has_the_same_samples(
    steps: list[list[int]], api: Api
) -> None:
    extents = extents_of(*steps)
    # Three files, with samples dealt over them: neither by number nor by offset alone are they in order.
    spread = replace(extents, file=extents.sample % 3, offset=(40 - extents.sample) * 10)
    read = plan_reads(spread, Access(api=api, order="by offset"), NOTHING, placed(DATA)).extents
    places = list(zip(read.file.tolist(), read.offset.tolist(), strict=True))
    for number, samples in enumerate(steps_of(read)):
        first, last = read.step_start[number : number + 2]
        assert sorted(samples) == sorted(steps[number])
        assert places[first:last] == sorted(places[first:last])
    assert order_hash(0, read, 0, len(steps)) == order_hash(0, spread, 0, len(steps))
    assert extent_hash(read, 0, len(steps)) == extent_hash(spread, 0, len(steps))


def test_buffers_have_room_where_sizes_vary() -> None:
    dataset = Dataset("d", 1, 5, constant(10), Layout("shared file", 1), "d")
    assert buffer_bytes(dataset, 80) == 80
    varying = Dataset("d", 1, 5, Distribution("uniform", (5.0, 20.0)), Layout("shared file", 1), "d")
    assert buffer_bytes(varying, 80) == 90
