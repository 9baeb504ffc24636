"""The verdict on saves and restores that were compared."""

from __future__ import annotations

from dataclasses import replace

from dliosim.compare.verdict import compose_verdict
from tests.compare.sample import with_figures
from tests.compare.stall_sample import saves, stalled


def said(begin: str, *stalls: float, **changed: object) -> str:
    """The first sentence that has this text; empty if there is none."""
    return next((one for one in compose_verdict(saves(stalled(stalls, **changed))) if begin in one), "")


def test_the_way_that_stalls_least_is_held_against_the_first() -> None:
    first = compose_verdict(saves(stalled((1.8, 2.0, 1.0))))[0]
    assert first.startswith("`writers=rank 0` stalls 1.77 times less than `writers=into file per rank` (95 %: 1.7")
    assert said("Every other one is shown to stall longer", 1.8, 2.0, 1.0)


def test_where_the_first_stalls_least_the_closest_is_named() -> None:
    first = compose_verdict(saves(stalled((1.0, 3.0, 2.0))))[0]
    assert first.startswith("`writers=into file per rank` (the first one) stalls least: ")
    assert first.endswith("times less than `writers=rank 0`, the closest.")


def test_what_is_not_shown_is_not_claimed() -> None:
    found = saves(stalled((1.0, 1.001, 4.0)))
    first, second, *_ = compose_verdict(found)
    assert " stalls least" not in first and "has the shortest stall" in first
    assert second.startswith("Not shown to stall longer than it: `writers=")
    assert not any("Every other one" in sentence for sentence in compose_verdict(found))
    assert said("No difference shown between any two", 1.0, 1.0)
    assert compose_verdict(saves(stalled((1.0, 3.0), blocks=4), repetitions=4))[0].startswith(
        "No verdict: 4 repetitions"
    )


def test_how_long_the_job_stalls_is_said_in_seconds() -> None:
    sentence = said("How long the job stalls for a save", 2.0, 1.0, 4.0)
    assert sentence.count(" s with `") == 3
    order = [sentence.index(label) for label in ("all ranks into shared file", "into file per rank", "rank 0")]
    assert order == sorted(order)


def test_where_the_stall_went_is_said() -> None:
    sentence = said("Stall of `writers=all ranks into shared file`", 2.0, 1.0)
    assert sentence.endswith("calls 50 %, sync 25 %, completing 12 %.")
    behind = said("Stall of `writers=all", 2.0, 1.0, stage_seconds=0.9, flush_seconds=5.0)
    assert "copying to buffers" in behind and "calls" not in behind


def test_a_save_in_the_background_says_when_it_is_complete() -> None:
    assert "complete after 6.1" in said("continues in the background", 2.0, 1.0, flush_seconds=5.0)
    assert not said("continues in the background", 2.0, 1.0)


def test_other_bytes_and_unsynced_saves_are_reported() -> None:
    assert said("Not the same bytes are moved: 1.000 GB (`writers=into", 2.0, 1.0, bytes=2_000_000_000)
    assert not said("Not the same bytes", 2.0, 1.0)
    assert said("Without a sync", 2.0, 1.0, file_sync_seconds=0.0).endswith(
        "storage: writers=all ranks into shared file."
    )
    assert not said("Without a sync", 2.0, 1.0)
    restores = replace(saves(stalled((2.0, 1.0), file_sync_seconds=0.0)), what="restore state")
    assert not any("Without a sync" in sentence for sentence in compose_verdict(restores))


def test_caches_that_were_not_the_same_are_reported() -> None:
    variants = stalled((2.0, 1.0), resident_share=0.5)
    cold = tuple(with_figures(each, resident_share=0.0) for each in variants[0].passes)
    found = saves((replace(variants[0], passes=cold), variants[1]), what="restore state", caches="cold")
    assert any("CACHES WERE NOT THE SAME" in sentence for sentence in compose_verdict(found))
