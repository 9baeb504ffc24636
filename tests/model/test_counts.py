"""Counts of files are kept where closed forms do not give them, and dealt to ranks as files are."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dliosim.model.dataset import pack_counts, rank_sample_counts


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=50))
def test_counts_are_kept_unless_samples_are_where_closed_forms_say(counts: list[int]) -> None:
    kept, total, files = pack_counts(np.array(counts)), sum(counts), len(counts)
    closed = [sum(sample * files // total == file for sample in range(total)) for file in range(files)]
    assert (kept is None) == (counts == closed)
    if kept is not None:
        assert kept.array.tolist() == counts


@given(st.integers(1, 300), st.integers(1, 50))
def test_even_files_keep_no_counts(samples: int, files: int) -> None:
    assert pack_counts(np.bincount(np.arange(samples) * files // samples, minlength=files)) is None


def test_counts_take_as_many_bytes_as_the_largest_needs() -> None:
    for largest, width in ((255, 1), (256, 2), (65_535, 2), (65_536, 4), (1 << 32, 8)):
        kept = pack_counts(np.array([largest, 1, 2]))
        assert kept is not None and (kept.width, len(kept.data)) == (width, 3 * width)
        assert kept.array.tolist() == [largest, 1, 2]


@given(st.lists(st.integers(0, 99), min_size=2, max_size=40), st.integers(1, 50))
def test_a_rank_has_the_samples_of_every_so_manieth_file(counts: list[int], ranks: int) -> None:
    kept = pack_counts(np.array(counts))
    if kept is not None:
        assert rank_sample_counts(kept, ranks) == tuple(sum(counts[rank::ranks]) for rank in range(ranks))
