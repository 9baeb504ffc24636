"""A pass as figures, and whether two-phase engaged in it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from dliosim.compare.loop_pass import find_two_phase_state, make_loop_pass
from dliosim.measure.phase import PhaseSummary
from dliosim.measure.summary import RANK_COLUMNS
from tests.report.sample import epoch, spread


def phase(api: str = "mpi-collective", **hints: str) -> PhaseSummary:
    """A loop of two epochs."""
    granted = tuple(sorted(hints.items()))
    return PhaseSummary("train", "train", 1.0, epochs=(epoch(0), epoch(1, 2.0)), api=api, hints_granted=granted)


def rows(read: list[int]) -> NDArray[np.int64]:
    """The state for ranks that each asked for 1000 bytes, and whose own read calls brought these numbers of bytes."""
    made = np.zeros((len(read), 1, len(RANK_COLUMNS)), np.int64)
    made[:, 0, RANK_COLUMNS.index("bytes")] = 1000
    made[:, 0, RANK_COLUMNS.index("rchar")] = read
    return made


@pytest.mark.parametrize(
    ("hints", "read", "expected"),
    [
        ({"romio_cb_read": "enable"}, [1000, 1000], "engaged"),
        ({"romio_cb_read": "disable"}, [2000, 0], "not engaged"),
        ({"romio_cb_read": "automatic", "cb_nodes": "1"}, [2000, 0], "engaged"),
        ({"romio_cb_read": "automatic", "cb_nodes": "1"}, [5000, 1000], "not engaged"),
        # Each rank is an aggregator: it is not known which rank read for which.
        ({"romio_cb_read": "automatic", "cb_nodes": "2"}, [1000, 1000], "unknown"),
        ({"romio_cb_read": "automatic", "cb_nodes": "1"}, [-1, -1], "unknown"),
        # A rank that reads together with no other rank.
        ({"romio_cb_read": "enable", "cb_nodes": "1"}, [1000], "not engaged"),
    ],
)
def test_who_read_for_whom_tells_whether_two_phase_engaged(
    hints: dict[str, str], read: list[int], expected: str
) -> None:
    assert find_two_phase_state(phase(**hints), rows(read), len(read)) == expected


def test_all_ranks_of_a_smaller_communicator_may_be_aggregators() -> None:
    automatic = phase(romio_cb_read="automatic", cb_nodes="2")
    assert find_two_phase_state(automatic, rows([1000] * 4), together=2) == "unknown"
    assert find_two_phase_state(automatic, rows([1000] * 4), together=4) == "not engaged"
    assert find_two_phase_state(phase(romio_cb_read="enable"), rows([1000] * 4), together=1) == "not engaged"


def test_only_collective_reads_have_two_phases() -> None:
    assert find_two_phase_state(phase("mpi-independent", romio_cb_read="enable"), rows([1000, 0]), together=2) == ""


def test_a_pass_adds_up_its_epochs() -> None:
    summary = phase("posix")
    decoded = replace(summary, epochs=tuple(replace(one, decode_seconds=spread(0.25)) for one in summary.epochs))
    assert make_loop_pass(decoded, None, 4, block=3, position=17, variant=1).decode == 0.5
    made = make_loop_pass(summary, None, 4, block=3, position=17, variant=1)
    assert made.seconds == pytest.approx(sum(one.seconds for one in summary.epochs))
    assert (made.samples, made.bytes, made.latency.count) == (128, 128 * 2_828_486, 128)
    assert made.comparison_time * made.samples_per_second == pytest.approx(1.0)
    assert made.order_hash == sum(one.order_hash for one in summary.epochs) % 2**64
    calls = sum(one.call_latency.sum_ns for one in summary.epochs) * 1e-9
    assert made.depth == pytest.approx(calls / sum(4 * one.io_busy_seconds.mean for one in summary.epochs))


def test_bytes_that_ranks_share_or_memory_kept_count_once_against_the_device() -> None:
    def share(**second: object) -> float | None:
        halves = epoch(0).bytes // 2
        first = replace(epoch(0), distinct_bytes=halves, storage_amplification=0.5)
        later = replace(first, **{"epoch": 1, "storage_amplification": 0.0, **second})
        whole = PhaseSummary("train", "train", 1.0, epochs=(first, later))
        return make_loop_pass(whole, None, 2, 1, 0, 0).device_share

    assert share() == pytest.approx(0.5), "half of the epochs came from the page cache"
    assert share(storage_amplification=0.5) == pytest.approx(1.0), "two ranks asked for each byte of the device"
    assert share(bytes_moved=0) == pytest.approx(1.0), "the second asked storage for nothing"
    assert share(storage_amplification=None) is None
