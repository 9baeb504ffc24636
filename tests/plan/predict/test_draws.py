"""The draws of a prediction."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.model import Servers, StorageModel
from dliosim.plan.predict.draws import DRAWS, draw_storages

STORAGE = StorageModel("s", Servers(4, 1e9), latency=1e-3, tail=1.2, client=7e9)


@given(st.integers(0, 1 << 32), st.floats(0.001, 0.9))
def test_an_uncertain_value_meets_both_ends_of_its_interval_and_its_middle(seed: int, share: float) -> None:
    storage = StorageModel("s", Servers(4, 1e9), latency=1e-3, uncertain=(("latency", share), ("servers", share / 2)))
    drawn = draw_storages(storage, seed)
    places = [-1, -0.5, 0, 0.5, 1]
    assert sorted(one.latency for one in drawn) == pytest.approx([1e-3 * (1 + share * place) for place in places])
    rates = sorted(one.servers.rate for one in drawn)
    assert rates == pytest.approx([1e9 * (1 + share / 2 * place) for place in places])
    assert {one.servers.number for one in drawn} == {4}


def test_values_that_are_certain_are_the_same_in_each_draw() -> None:
    assert draw_storages(STORAGE, 1) == [STORAGE] * DRAWS


def test_latencies_have_a_mean_in_each_draw() -> None:
    storage = StorageModel("s", Servers(4, 1e9), latency=1e-3, tail=1.2, uncertain=(("tail", 0.5),))
    tails = sorted(one.tail or 0.0 for one in draw_storages(storage, 1))
    assert tails == pytest.approx([1.05, 1.05, 1.2, 1.5, 1.8])


def test_values_are_drawn_apart_from_each_other() -> None:
    def is_faster(one: StorageModel) -> tuple[bool, bool]:
        return one.latency < 1e-3, (one.client or 0.0) > 7e9

    uncertain = (("latency", 0.1), ("client", 0.1))
    storage = StorageModel("s", Servers(4, 1e9), latency=1e-3, client=7e9, uncertain=uncertain)
    seen = {is_faster(one) for seed in range(20) for one in draw_storages(storage, seed)}
    assert len(seen) == 4
