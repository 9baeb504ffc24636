"""The sentences below the answer of a comparison of saves or restores are true for its rows."""

from __future__ import annotations

from dataclasses import replace

from dliosim.compare.result import Outcome
from dliosim.report.compare.notes import compose_notes
from tests.compare.sample import answered, with_figures
from tests.compare.stall_sample import saves, stalled


def notes(found: Outcome) -> list[str]:
    """The sentences below the answer."""
    return compose_notes(found, answered(found)[1].place(found))


def said(begin: str, *stalls: float, **changed: object) -> str:
    """The first sentence that has this text; empty if there is none."""
    return next((one for one in notes(saves(stalled(stalls, **changed))) if begin in one), "")


def test_how_long_the_job_stalls_is_said_in_seconds() -> None:
    sentence = said("Stall of the job for a save", 2.0, 1.0, 4.0)
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


def test_other_bytes_are_reported() -> None:
    assert said("Variants move different amounts: 1.000 GB (`writers=into", 2.0, 1.0, bytes=2_000_000_000)
    assert not said("Not the same bytes", 2.0, 1.0)


def test_caches_that_were_not_the_same_are_reported() -> None:
    variants = stalled((2.0, 1.0), resident_share=0.5)
    cold = tuple(with_figures(each, resident_share=0.0) for each in variants[0].passes)
    found = saves((replace(variants[0], passes=cold), variants[1]), what="restore state", caches="cold")
    assert any("CACHES WERE NOT THE SAME" in sentence for sentence in notes(found))
