"""Samples are kept in memory as they were first read, and never evicted; which ones is tested in tests/plan."""

from __future__ import annotations

import numpy as np

from dliosim.execute.batches.decode_preprocess import SampleCache

DATA = memoryview(bytes(range(100)))


def keep(kept: SampleCache, *samples: int, length: int = 10) -> None:
    """Keep samples of these sizes (bytes), stored back to back."""
    count = np.arange(len(samples))
    kept.store_samples(np.array(samples), count * length, np.full(len(samples), length), DATA)


def test_what_is_kept_counts_from_the_next_epoch_on() -> None:
    kept = SampleCache()
    keep(kept, 7, 3, 9)
    assert kept.is_empty
    kept.seal()
    assert not kept.is_empty
    assert kept.numbers.tolist() == [3, 7, 9]


def test_nothing_kept_is_nothing() -> None:
    kept = SampleCache()
    kept.seal()
    assert kept.is_empty
    assert kept.numbers.tolist() == []


def test_what_is_kept_is_a_copy() -> None:
    kept = SampleCache()
    data = bytearray(b"abcdef")
    kept.store_samples(np.array([0, 1]), np.array([0, 4]), np.array([4, 2]), memoryview(data))
    data[:] = b"xxxxxx"
    kept.seal()
    kept.copy_hits(np.array([0]))
    assert kept._scratch.tobytes() == b"abcd"
    kept.copy_hits(np.array([1, 5]))
    assert kept._scratch.tobytes() == b"efcd"
