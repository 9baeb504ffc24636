"""Measures of how similar two traces are: 1 for the same, less for others, and what each measure ignores."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scripts.fidelity import script

compare = script("fidelity.compare")
tables = script("fidelity.tables")
Record = script("fidelity.tracing").Record

LETTERS = st.lists(st.sampled_from("abc"), max_size=12)


def read(start: float, file: str, offset: int, length: int, pid: int = 1, duration: float = 0.5) -> Any:
    return Record(pid, pid, start, duration, "pread64", file, offset, length, length)


def whole_files(order: str, pid: int = 1, first: float = 0.0) -> list[Any]:
    return [read(first + number, name, 0, 100, pid) for number, name in enumerate(order)]


def by_table(one: list[str], other: list[str]) -> int:
    """The longest common subsequence by the usual table."""
    row = [0] * (len(other) + 1)
    for a in one:
        before, row = row, [0]
        for place, b in enumerate(other):
            row.append(before[place] + 1 if a == b else max(row[-1], before[place + 1]))
    return row[-1]


@given(LETTERS, LETTERS)
def test_the_longest_common_subsequence_is_that_of_the_table(one: list[str], other: list[str]) -> None:
    assert compare.longest_common(one, other) == by_table(one, other)


@given(LETTERS)
def test_what_is_equal_is_wholly_in_order(letters: list[str]) -> None:
    assert compare.order_similarity(letters, letters) == 1.0


def test_names_do_not_matter_but_their_order_does() -> None:
    one = compare.profile(whole_files("abcd"))
    assert compare.likeness(one, compare.profile(whole_files("wxyz"))).order == 1.0
    assert compare.likeness(one, compare.profile(whole_files("zyxw"))).order == pytest.approx(0.25)


def test_files_that_are_only_opened_have_no_number() -> None:
    looked_at = Record(1, 1, 0.0, 0.1, "openat", "0-manifest", -1, 0, 3)
    found = compare.profile([looked_at, *whole_files("ab", first=1.0)])
    assert found.extents == ((0, 0, 100), (1, 0, 100))


def test_the_same_reads_by_other_threads_differ_in_that_alone() -> None:
    one = compare.profile([*whole_files("ac", 1), *whole_files("bd", 2, 0.5)])
    dealt = compare.profile([*whole_files("ad", 1), *whole_files("bc", 2, 0.5)])
    found = compare.likeness(one, dealt)
    assert found.calls == found.data == found.sizes == 1.0
    assert found.per_worker == pytest.approx(0.5)


def test_the_same_threads_under_other_numbers_and_in_another_turn_are_the_same() -> None:
    one = compare.profile([*whole_files("ac", 1), *whole_files("bd", 2, 0.5)])
    other = compare.profile([*whole_files("bd", 9), *whole_files("ac", 8, 0.5)])
    assert compare.likeness(one, other).per_worker == 1.0


def test_a_thread_that_the_other_lacks_counts_as_no_similarity() -> None:
    one = compare.profile([*whole_files("ab", 1), *whole_files("cd", 2, 0.5)])
    other = compare.profile([*whole_files("ab", 1), *whole_files("cd", 1, 5.0)])
    assert compare.likeness(one, other).per_worker == pytest.approx(2 * 2 / 8)


def test_the_same_bytes_in_smaller_calls_are_the_same_data_in_no_same_call() -> None:
    one = compare.profile([read(0, "a", 0, 4096)])
    other = compare.profile([read(number, "a", number * 1024, 1024) for number in range(4)])
    found = compare.likeness(one, other)
    assert (found.data, found.calls, found.sizes, found.sizes_by_bytes) == (1.0, 0.0, 0.0, 0.0)


def test_bytes_read_twice_are_unique_once() -> None:
    found = compare.profile([read(0, "a", 0, 100), read(1, "a", 50, 100), read(2, "b", 0, 10)])
    assert (found.total_bytes, found.unique) == (210, 160)


def test_reads_that_return_nothing_are_distinguished() -> None:
    end = Record(1, 1, 2.0, 0.1, "read", "a", 100, 1, 0)
    found = compare.profile([read(0, "a", 0, 100), end])
    assert (len(found.extents), found.empty, found.asked) == (1, 1, (100, 1))


def test_a_read_at_an_unknown_place_is_refused() -> None:
    with pytest.raises(ValueError, match="read of a by 1: its offset is not known"):
        compare.profile([Record(1, 1, 0.0, 0.1, "read", "a", -1, 10, 10)])


def test_calls_in_flight_are_those_that_overlap() -> None:
    calls = [read(0, "a", 0, 1, duration=2), read(1, "b", 0, 1, duration=2), read(10, "c", 0, 1, duration=1)]
    most, mean = compare.concurrency(calls)
    assert (most, mean) == (2, pytest.approx(5 / 4))
    assert compare.concurrency([]) == (0, 0)


def test_the_time_between_first_and_last_is_split_by_calls_in_flight() -> None:
    calls = [read(0, "a", 0, 1, duration=2), read(1, "b", 0, 1, duration=2), read(9, "c", 0, 1, duration=1)]
    assert compare.shares_in_flight(calls) == pytest.approx((0.6, 0.3, 0.1))
    assert compare.shares_in_flight([]) == ()


def test_a_row_says_once_what_is_the_same_in_both() -> None:
    one, other = compare.profile(whole_files("ab")), compare.profile(whole_files("abc"))
    cells = dict(zip(tables.SIMILARITY_HEAD, tables.similarity_cells(one, other), strict=True))
    assert (cells["threads"], cells["reads"], cells["bytes"]) == ("1", "2 / 3", "200 / 300")
    assert cells["same order"] == "0.800"


def test_a_call_that_begins_when_another_ends_does_not_overlap_it() -> None:
    assert compare.concurrency([read(0, "a", 0, 1, duration=1), read(1, "b", 0, 1, duration=1)])[0] == 1


@given(st.lists(st.integers(1, 1 << 40), min_size=1))
def test_a_histogram_is_like_itself_and_like_nothing_without_its_sizes(lengths: list[int]) -> None:
    extents = [(0, 0, length) for length in lengths]
    for by_bytes in (False, True):
        found = compare.sizes(extents, by_bytes)
        assert compare.cosine(found, found) == pytest.approx(1.0)
        assert compare.cosine(found, Counter({50: 3})) == 0.0


def test_what_a_worker_reads_is_given_in_batches() -> None:
    records = [*whole_files("abef", 1), *whole_files("cd", 2, 0.5)]
    assert compare.batches(records, 2) == {1: [0, 2], 2: [1]}


def test_batches_begun_ahead_come_before_those_of_each_step() -> None:
    starts = [0.0, 0.1, 0.2, 1.0, 2.0]
    records = [read(start, f"{number}", 0, 10) for number, start in enumerate(starts)]
    assert compare.count_batch_starts(records, 1, 1.0) == [3, 1, 1]


def test_two_traces_stand_side_by_side() -> None:
    one = compare.profile(whole_files("ab"))
    lines = list(tables.side_by_side(one, one))
    assert "| reads that return bytes | 2 | 2 |" in lines
    assert "| reads in the same order | 1.000 |" in lines


def test_like_calls_that_follow_each_other_are_one_row() -> None:
    seek = Record(1, 1, 0.0, 0.1, "lseek", "a", 5, 0, 5)
    rows = list(tables.sequence([seek, seek, read(1, "a", 5, 10)]))
    assert rows[2:] == ["| lseek x 2 | a | 5 |  |  |", "| pread64 | a | 5 | 10 | 10 |"]
