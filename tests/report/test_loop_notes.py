"""The sentences below the answer of a comparison of loops are true for its rows."""

from __future__ import annotations

from dataclasses import replace

from dliosim.compare.result import Outcome
from dliosim.measure.rank.histogram import Histogram
from dliosim.report.compare.notes import compose_notes
from tests.compare.sample import ORDER, answered, measured, outcome


def notes(found: Outcome) -> list[str]:
    """The sentences below the answer."""
    return compose_notes(found, answered(found)[1].place(found))


def said(text: str, *variants: float, repetitions: int = 8, **changed: object) -> str:
    """The sentence with a text, of a comparison of variants so much slower than the first; empty if there is none."""
    found = outcome(measured(variants, repetitions, **changed), repetitions)
    return next((sentence for sentence in notes(found) if text in sentence), "")


def test_the_fastest_may_lose_at_a_percentile() -> None:
    tail = Histogram([1000] * 95 + [50_000_000] * 5)
    assert said("api=b is worse at p99 of batch latency: 50", 1.0, 0.5, latency=tail)
    assert not said("loses at p50", 1.0, 0.5, latency=tail)


def test_another_order_of_samples_is_reported() -> None:
    assert ORDER in said("the same samples in the same order", 1.0, 2.0)
    assert said("That is different work", 1.0, 2.0, order_hash="7")


def test_bytes_more_than_those_asked_and_two_phase_are_reported() -> None:
    assert said("api=b read 31.4 bytes for each byte asked", 1.0, 2.0, amplification=31.4)
    assert said("Two-phase engaged: api=b", 1.0, 2.0, two_phase="engaged")


def test_unequal_depth_and_unlike_caches_are_reported() -> None:
    assert said("Not the same depth: from 1.00 calls in flight (api=a) to 32.0 (api=b)", 1.0, 0.5, depth=32.0)
    assert said("CACHES WERE NOT THE SAME", 1.0, 2.0, resident_share=0.5)
    assert not said("CACHES WERE NOT THE SAME", 1.0, 2.0)
    cold = outcome(measured((1.0, 2.0)), caches="cold")
    assert "The page cache was dropped before each pass, but kept 100 % of the bytes." in notes(cold)


def test_hints_that_were_not_granted_are_reported() -> None:
    first, second = measured((1.0, 2.0))
    asked = replace(second, hints_asked=(("cb_nodes", "4"),), hints_granted=(("cb_nodes", "1"),))
    assert 'HINT NOT GRANTED to api=b: "cb_nodes" = "4" became "1".' in notes(outcome((first, asked)))


def test_the_striping_that_was_read_back_is_reported() -> None:
    first, second = (replace(one, striping="no striping to read back") for one in measured((1.0, 2.0)))
    assert "Striping of api=a; api=b: no striping to read back." in notes(outcome((first, second)))
    other = replace(second, striping="1 target of 1 MiB")
    assert "Striping of api=b: 1 target of 1 MiB." in notes(outcome((first, other)))
    assert not said("Striping", 1.0, 2.0)


def test_waits_for_cores_are_reported() -> None:
    assert said("api=b waited 5.1 % of its time for a core", 1.0, 2.0, core_wait_share=0.051)
    assert not said("waiting for a core", 1.0, 2.0, core_wait_share=0.049)


def test_a_machine_that_was_busy_before_is_reported() -> None:
    found = outcome(measured((1.0, 2.0)))
    busy = replace(found, environment=replace(found.environment, load_average=6.0))
    assert any(sentence.startswith("The machine was busy before (load average 6.00") for sentence in notes(busy))
    assert not said("The machine was busy", 1.0, 2.0)
