"""Descriptions of a checkpoint that cause the same calls, and others that do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dliosim.model import Access, Checkpoint, Part, Restore, Split, Writers
from dliosim.plan.checkpoints.equivalence import are_restores_equal, are_saves_equal

CHECKPOINT = Checkpoint(
    name="c",
    seed=0,
    parts=(Part("weights", 300_000, "total"), Part("rng", 1001, "per rank")),
    writers=Writers("file per rank"),
    access=Access(transfer=4096),
    path="c",
)
RESTORE = Restore("c")


@pytest.mark.parametrize(
    ("writers", "ranks", "same"),
    [
        (Writers("one per", 1), 4, True),
        (Writers("one per", 2), 4, False),
        (Writers("shared file"), 4, False),
        (Writers("rank", 0), 4, False),
        # A single rank writes one file, whatever that is called.
        (Writers("one per", 2), 1, True),
    ],
)
def test_saves_are_the_same_if_each_rank_makes_the_same_calls(writers: Writers, ranks: int, same: bool) -> None:
    assert are_saves_equal(CHECKPOINT, replace(CHECKPOINT, writers=writers), ranks) is same


def test_a_larger_call_is_the_same_only_where_nothing_fills_it() -> None:
    whole, larger = (
        replace(CHECKPOINT, access=replace(CHECKPOINT.access, transfer=size)) for size in (1 << 20, 1 << 22)
    )
    assert are_saves_equal(whole, larger, 2) and not are_saves_equal(CHECKPOINT, whole, 2)
    by_mpi = replace(larger, access=replace(larger.access, api="mpi-independent"))
    assert not are_saves_equal(larger, by_mpi, 2)


def test_how_it_becomes_complete_is_part_of_a_save_and_how_many_are_kept_is_not() -> None:
    for changed in (
        replace(CHECKPOINT, fsync=False),
        replace(CHECKPOINT, commit="none"),
        replace(CHECKPOINT, metadata=True),
    ):
        assert not are_saves_equal(CHECKPOINT, changed, 2)
    assert are_saves_equal(CHECKPOINT, replace(CHECKPOINT, keep=3), 2)


def test_restores_are_the_same_however_it_was_saved_if_the_same_is_read() -> None:
    for changed in (replace(CHECKPOINT, fsync=False), replace(CHECKPOINT, commit="none")):
        assert are_restores_equal((CHECKPOINT, RESTORE), (changed, RESTORE), 3)
    shared = replace(CHECKPOINT, writers=Writers("shared file"))
    assert not are_restores_equal((CHECKPOINT, RESTORE), (shared, RESTORE), 3)


def test_restores_by_other_ranks_or_of_more_differ() -> None:
    for changed in (Restore("c", shift=1), Restore("c", everything=True), Restore("c", written_by=Split(1, 1, 6))):
        assert not are_restores_equal((CHECKPOINT, RESTORE), (CHECKPOINT, changed), 3)
    # All of what one rank saved is its own part.
    assert are_restores_equal((CHECKPOINT, RESTORE), (CHECKPOINT, Restore("c", everything=True)), 1)


@pytest.mark.parametrize(("most", "same"), [(1, False), (3, False), (4, True), (9, True)])
def test_turns_count_if_there_are_several(most: int, same: bool) -> None:
    assert are_saves_equal(CHECKPOINT, replace(CHECKPOINT, at_most=most), 4) is same
    assert are_restores_equal((CHECKPOINT, RESTORE), (replace(CHECKPOINT, at_most=most), RESTORE), 4)


def test_an_order_counts_if_a_rank_reads_several_files() -> None:
    for everything, same in (False, True), (True, False):
        one = replace(RESTORE, everything=everything)
        other = replace(one, order="rotated by rank")
        assert are_restores_equal((CHECKPOINT, one), (CHECKPOINT, other), 4) is same


@pytest.mark.parametrize("way", [{"by_file": True}, {"through": "mmap"}, {"ahead": True}])
def test_another_way_to_read_is_another_restore(way: dict[str, Any]) -> None:
    whole = replace(RESTORE, everything=True)
    assert not are_restores_equal((CHECKPOINT, whole), (CHECKPOINT, replace(whole, **way)), 4)
