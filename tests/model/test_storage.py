"""Storages at both ends of what is uncertain about them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.model import Servers, StorageModel
from dliosim.model.storage import list_ends


@given(st.floats(0.001, 0.9))
def test_all_that_is_uncertain_is_worse_together_or_better_together(share: float) -> None:
    uncertain = (("latency", share), ("servers", share / 2), ("tail", share / 4))
    storage = StorageModel("s", Servers(4, 1e9), latency=1e-3, tail=3.0, uncertain=uncertain)
    worse, better = list_ends(storage)
    assert (worse.latency, better.latency) == pytest.approx((1e-3 * (1 + share), 1e-3 * (1 - share)))
    assert (worse.servers.rate, better.servers.rate) == pytest.approx((1e9 * (1 - share / 2), 1e9 * (1 + share / 2)))
    assert (worse.tail, better.tail) == pytest.approx((3 * (1 - share / 4), 3 * (1 + share / 4)))
    assert worse.servers.number == better.servers.number == 4


def test_a_certain_storage_has_no_ends() -> None:
    assert list_ends(StorageModel("s", Servers(4, 1e9), latency=1e-3)) == []


@pytest.mark.parametrize(("tail", "worst"), [(1.2, 1.05), (1.02, 1.02)])
def test_latencies_have_a_mean_at_the_worse_end(tail: float, worst: float) -> None:
    worse, _ = list_ends(StorageModel("s", Servers(4, 1e9), latency=1e-3, tail=tail, uncertain=(("tail", 0.5),)))
    assert worse.tail == pytest.approx(worst)
