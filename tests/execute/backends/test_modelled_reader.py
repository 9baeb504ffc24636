"""Reads on a described storage: its queues, the servers of a range, and the times of calls."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

from dliosim.errors import PlanError
from dliosim.execute.backends.contract import Files
from dliosim.execute.backends.modelled_reader import ModelledCalls, ModelledReader, ModelledStorage, require_modelled
from dliosim.measure.rank.meter import Meter
from dliosim.model import Access, Dataset, Layout, Loop, Servers, StorageModel, Stripe, constant
from dliosim.plan.samples.io_requests import Extents, plan_calls

FILES = Files(Path("nowhere"), str, lambda file: 1 << 20, False, MPI.COMM_SELF)


#: Bytes per second of a server.
RATE = 1e9


def describe(**settings: object) -> StorageModel:
    return StorageModel(**{"name": "s", "servers": Servers(4, RATE), **settings})  # type: ignore[arg-type]


def make_storage(**settings: object) -> ModelledStorage:
    return ModelledStorage(MPI.COMM_SELF, describe(**settings), 7)


def make_dataset(size: float) -> Dataset:
    return Dataset("d", 1, 8, constant(size), Layout("files", 8, 1), "d")


def make_loop(access: Access) -> Loop:
    return Loop("train", "d", 1, access)


def read_latencies(storage: ModelledStorage, access: Access, files: list[int], length: int) -> list[int]:
    """The latencies in ns that a reader records for a step of calls, and that it opens what it should."""
    rows, lengths = np.array(files), np.full(len(files), length)
    step_start = np.array([0, len(files)])
    calls = plan_calls(Extents(np.arange(len(files)), rows, 0 * rows, lengths, step_start), None, 1).step(0)
    reader = ModelledReader(access, FILES, storage, 0)
    assert reader.read(calls, memoryview(b"")) == len(files) * length
    assert (reader.meter.calls, reader.meter.moved) == (len(files), len(files) * length)
    assert reader.meter.opens == (len(files) if access.open == "each sample" else len(set(files)))
    recorded: list[int] = reader.meter.take_latencies().tolist()
    return recorded


def test_reads_of_one_server_wait_for_each_other_and_others_do_not() -> None:
    storage = make_storage()
    assert storage.serve_call(0, 0, 0, 1000, RATE) == 1000
    assert storage.serve_call(0, 4, 0, 1000, RATE) == 2000
    assert storage.serve_call(0, 1, 0, 1000, RATE) == 1000
    assert storage.serve_call(5000, 0, 0, 1000, RATE) == 6000


def test_all_reads_of_a_node_wait_for_its_client() -> None:
    storage = make_storage(client=0.5e9)
    assert [storage.serve_call(0, file, 0, 1000, RATE) for file in range(3)] == [2000, 4000, 6000]


def test_opens_wait_for_the_metadata_alone() -> None:
    storage = make_storage(metadata=1e6)
    assert [storage.serve_open(0), storage.serve_open(0), storage.serve_open(9000)] == [1000, 2000, 10000]
    assert make_storage().serve_open(7) == 7


def test_a_striped_file_is_read_from_its_servers_at_once() -> None:
    storage = make_storage(stripe=Stripe(100, 2))
    assert storage.serve_call(0, 0, 0, 1000, RATE) == 500  # on servers 0 and 1
    assert storage.serve_call(0, 2, 0, 1000, RATE) == 500  # on servers 2 and 3
    assert storage.serve_call(0, 4, 0, 100, RATE) == 600  # on server 0 alone


@given(
    st.integers(0, 1000),
    st.integers(0, 5000),
    st.integers(1, 5000),
    st.integers(1, 700),
    st.integers(1, 9),
    st.integers(1, 9),
)
def test_each_byte_of_a_range_is_on_the_server_of_its_stripe(
    file: int, offset: int, length: int, stripe: int, targets: int, servers: int
) -> None:
    storage = make_storage(servers=Servers(servers, 1e9), stripe=Stripe(stripe, targets))
    expected = Counter((file + byte // stripe % targets) % servers for byte in range(offset, offset + length))
    divided = Counter[int]()
    for server, size in storage._divide(file, offset, length):
        assert size > 0
        divided[server] += size
    assert divided == expected


def test_a_call_takes_its_latency_its_own_time_and_its_transfer() -> None:
    storage = make_storage(latency=300e-6, call_time=100e-6)
    assert read_latencies(storage, Access(), [0, 1, 1, 0], 50_000) == [450_000] * 4


def test_a_file_is_opened_before_its_first_read_or_before_each() -> None:
    storage = make_storage(latency=50e-6, metadata=10_000.0)
    assert read_latencies(storage, Access(), [2, 2, 3], 1000) == [51_000] * 3
    assert read_latencies(storage, Access(open="each sample"), [2, 2, 3], 1000) == [51_000] * 3


def test_latencies_with_a_tail_have_its_least_value_and_its_median() -> None:
    storage = make_storage(latency=20e-6, tail=2.0)
    drawn = np.array(ModelledCalls(storage, 0, RATE, Meter())._draw_latencies(20_001))
    assert drawn.min() >= 20_000
    assert np.median(drawn) == pytest.approx(20_000 * 2**0.5, rel=0.02)
    for rank in (0, 1):  # another thread of the same rank, too: a loop that runs again is not the same again
        others = ModelledCalls(storage, rank, RATE, Meter())._draw_latencies(20_001)
        assert (drawn != others).mean() > 0.9


@pytest.mark.parametrize(
    ("access", "size", "reason"),
    [
        (Access(api="mpi-collective"), 1e6, "the two phases of a collective read are not modelled"),
        (Access(through="library"), 1e6, "a library's own calls are not modelled"),
        (Access(engine="mmap"), 1e6, "this engine is not modelled"),
        (Access(), 1e3, "a call of 1.0 us is too short to be waited for"),
        (Access(transfer=4096), 1e6, "a call of 4.1 us is too short to be waited for"),
        (Access(), 1e14, "a call would take 100000 s"),
    ],
)
def test_what_no_description_says_is_refused(access: Access, size: float, reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        require_modelled(make_loop(access), make_dataset(size), describe())


def test_calls_that_can_be_waited_for_are_modelled() -> None:
    require_modelled(make_loop(Access()), make_dataset(1e6), describe())


def test_calls_on_very_many_servers_and_wide_ones_in_time() -> None:
    many = describe(servers=Servers(100_000, 1e9), stripe=Stripe(1024, 100_000), latency=1e-3)
    with pytest.raises(PlanError, match="a call has parts on 97_657 servers"):
        require_modelled(make_loop(Access()), make_dataset(1e8), many)
    wide = describe(servers=Servers(1000, 25e6), stripe=Stripe(1 << 20, 1000))
    require_modelled(make_loop(Access()), make_dataset(1e11), wide)  # 4 s, and 4000 s by one server


def test_times_beyond_all_clocks_end_no_rank() -> None:
    """Readers that hold the lock of the queues must let it go, whatever the numbers are."""
    storage = make_storage(servers=Servers(1, 1e-3))
    for _ in range(2):
        assert storage.serve_call(0, 0, 0, 1 << 62, 1e-3) == 1 << 62
    calls = ModelledCalls(make_storage(latency=1.0, tail=1.0001), 0, RATE, Meter())
    assert min(calls._draw_latencies(10_000)) >= 1_000_000_000


def test_a_call_that_is_made_early_does_not_hold_up_one_that_arrives_before_it() -> None:
    storage = make_storage()
    assert storage.serve_call(0, 0, 0, 1000, RATE) == 1000
    assert storage.serve_call(9000, 0, 0, 1000, RATE) == 10_000
    assert [storage.serve_call(4000, 0, 0, 2000, RATE) for _ in range(2)] == [6000, 8000]
    assert storage.serve_call(4000, 0, 0, 2000, RATE) == 12_000  # 1 us is left before the one that was made early


@given(st.lists(st.tuples(st.integers(0, 50_000), st.integers(1, 3000)), min_size=1, max_size=40))
def test_no_server_serves_two_calls_at_once(calls: list[tuple[int, int]]) -> None:
    storage = make_storage()
    spans = [
        (end - length, end) for arrival, length in calls for end in [storage.serve_call(arrival, 0, 0, length, RATE)]
    ]
    assert all(begin >= arrival for (begin, _), (arrival, _) in zip(spans, calls, strict=True))
    assert all(one[1] <= other[0] for one, other in pairwise(sorted(spans)))
