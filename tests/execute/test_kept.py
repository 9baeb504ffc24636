"""Samples are kept in memory up to a budget, in the order in which they were first read, and never evicted."""

from __future__ import annotations

import numpy as np

from dliosim.execute.kept import KeptSamples

DATA = memoryview(bytes(range(100)))


def keep(kept: KeptSamples, *samples: int, length: int = 10) -> None:
    """Keep samples of that many bytes, which lie back to back."""
    count = np.arange(len(samples))
    kept.keep(np.array(samples), count * length, np.full(len(samples), length), DATA)


def held(kept: KeptSamples, *samples: int) -> list[int]:
    """Those of the samples that are kept."""
    asked = np.array(samples)
    return asked[kept.holds(asked)].tolist() if not kept.is_empty else []


def test_what_fits_is_kept_from_the_first_on() -> None:
    kept = KeptSamples(35)
    keep(kept, 7, 3, 9, 1)
    kept.seal()
    assert held(kept, 1, 3, 7, 9, 11) == [3, 7, 9]


def test_nothing_is_taken_after_the_first_that_did_not_fit() -> None:
    kept = KeptSamples(25)
    keep(kept, 1, 2, 3)
    assert not kept.has_room
    keep(kept, 4, length=1)
    kept.seal()
    assert held(kept, 1, 2, 3, 4) == [1, 2]


def test_a_sample_read_twice_is_kept_once() -> None:
    kept = KeptSamples(30)
    keep(kept, 5, 5, 5, 6)
    assert kept.room == 10
    kept.seal()
    assert held(kept, 5, 6) == [5, 6]


def test_a_budget_that_is_used_up_exactly() -> None:
    kept = KeptSamples(20)
    keep(kept, 1, 2)
    assert (kept.room, kept.has_room) == (0, False)
    kept.seal()
    assert held(kept, 1, 2) == [1, 2]


def test_what_is_kept_counts_from_the_next_epoch_on_and_nothing_is_taken_then() -> None:
    kept = KeptSamples(100)
    keep(kept, 1)
    assert kept.is_empty
    kept.seal()
    assert not kept.is_empty
    keep(kept, 2)
    kept.seal()
    assert held(kept, 1, 2) == [1]


def test_no_budget_keeps_nothing() -> None:
    kept = KeptSamples(0)
    keep(kept, 1)
    kept.seal()
    assert kept.is_empty
    assert not kept.has_room


def test_what_is_kept_is_a_copy() -> None:
    kept = KeptSamples(100)
    data = bytearray(b"abcdef")
    kept.keep(np.array([0, 1]), np.array([0, 4]), np.array([4, 2]), memoryview(data))
    data[:] = b"xxxxxx"
    kept.seal()
    kept.copy_out(np.array([0]))
    assert kept._scratch.tobytes() == b"abcd"
    kept.copy_out(np.array([1, 5]))
    assert kept._scratch.tobytes() == b"efcd"
