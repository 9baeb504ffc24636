"""The variant that a comparison chooses, in rows whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dliosim.compare.statistics import Choice, choose_variant, compare_pairs, compare_variants
from tests.compare.synthetic import equal, passes


def choose(times: NDArray[np.float64]) -> Choice | None:
    return choose_variant(times, compare_variants(times))


@pytest.mark.parametrize("kind", ["iid", "two-moded 0.5"])
@pytest.mark.parametrize("variants", [2, 4])
def test_of_equal_variants_one_is_rarely_chosen(kind: str, variants: int) -> None:
    rows = equal(kind, np.random.default_rng(variants), 300, variants)
    assert sum(choose(each) is not None for each in rows) <= 0.07 * 300


def test_of_equal_variants_that_beat_the_first_one_is_rarely_called_faster_than_another() -> None:
    made = [choose(passes(seed, (2.0, 1.0, 1.0, 1.0))) for seed in range(150)]
    assert all(one and one.use for one in made)
    assert sum(len(one.tied) < 2 for one in made if one) <= 0.07 * 150


def test_the_fastest_stands_alone_where_it_is_much_faster() -> None:
    one = choose(passes(0, (1.0, 1.5, 0.5, 1.5)))
    assert one is not None and (one.use, one.against, one.tied) == (2, 0, ())
    assert one.lead.ratio == pytest.approx(2.0, rel=0.1)


def test_the_first_is_chosen_where_another_is_shown_to_be_worse_and_none_to_be_better() -> None:
    one = choose(passes(0, (1.0, 3.0, 1.0, 2.0)))
    assert one is not None and (one.use, one.against, one.tied) == (0, 3, (2,))
    assert one.lead.ratio == pytest.approx(2.0, rel=0.1)


def test_a_variant_shown_to_be_better_is_chosen_where_a_noisy_one_is_ahead_of_it_by_its_mean() -> None:
    """The noisy one is not shown to differ from any: it must not keep the first, which is shown to be slower."""
    steady = passes(0, (1.0, 0.7), noise=0.01, outliers=0.0)
    noisy = steady[:, 1:] * np.exp([[-0.8], [0.5], [-0.8], [0.5], [-0.8], [0.5], [0.5], [-0.8]])
    times = np.hstack([steady, noisy])
    assert int(np.log(times).mean(axis=0).argmin()) == 2
    one = choose(times)
    assert one is not None and (one.use, one.against, one.tied, one.ahead) == (1, 0, (2,), (2,))
    assert one.lead.ratio > 1


def test_it_is_chosen_exactly_where_the_table_shows_a_difference() -> None:
    for seed in range(60):
        times = passes(seed, (1.0, 0.96, 0.97, 0.98), outliers=0.0)
        comparisons = compare_variants(times)
        shown = {number for number, one in enumerate(comparisons, 1) if one.is_shown}
        found = choose_variant(times, comparisons)
        assert (found is not None) == bool(shown) and (found is None or found.use in {0, *shown})
        pairs = compare_pairs(times, comparisons)
        assert shown == {number for (first, number), one in pairs.items() if first == 0 and one.is_shown}
