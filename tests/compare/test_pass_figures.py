"""A pass as figures, and whether two-phase engaged in it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from dliosim.compare.pass_figures import LOOP, STALL, Measured, Pass, Subject, find_two_phase_state, make_pass
from dliosim.measure.figures.summary import RANK_COLUMNS
from dliosim.measure.results.phase import LoopPhase, PhaseSummary
from dliosim.measure.results.run_summary import RestorePhase, SavePhase
from tests.report.sample import change, epoch, flushed, saved, spread


def phase(api: str = "mpi-collective", **hints: str) -> PhaseSummary:
    """A loop of two epochs."""
    granted = tuple(sorted(hints.items()))
    return LoopPhase("train", "train", 1.0, epochs=(epoch(0), epoch(1, 2.0)), api=api, hints_granted=granted)


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
    assert find_two_phase_state(Measured(phase(**hints), rows(read), len(read))) == expected


def test_all_ranks_of_a_smaller_communicator_may_be_aggregators() -> None:
    automatic = phase(romio_cb_read="automatic", cb_nodes="2")
    assert find_two_phase_state(Measured(automatic, rows([1000] * 4), 2)) == "unknown"
    assert find_two_phase_state(Measured(automatic, rows([1000] * 4), 4)) == "not engaged"
    assert find_two_phase_state(Measured(phase(romio_cb_read="enable"), rows([1000] * 4), 1)) == "not engaged"


def test_only_collective_reads_have_two_phases() -> None:
    assert find_two_phase_state(Measured(phase("mpi-independent", romio_cb_read="enable"), rows([1000, 0]), 2)) is None


def made(phase: PhaseSummary, subject: Subject = LOOP) -> Pass:
    """The pass of a phase."""
    found = make_pass(subject, Measured(phase), block=3, position=17)
    assert found is not None
    return found


def test_a_pass_adds_up_its_epochs() -> None:
    summary = phase("posix")
    decoded = replace(summary, epochs=tuple(replace(one, decode_seconds=spread(0.25)) for one in summary.epochs))
    assert made(decoded).figures["decode_seconds"] == 0.5
    one = made(summary)
    found = one.figures
    assert (one.block, one.position) == (3, 17)
    assert found["seconds"] == pytest.approx(sum(one.seconds for one in summary.epochs))
    assert (found["samples"], found["bytes"], one.latency.count) == (256, 256 * 2_828_486, 256)
    assert LOOP.time(one) * found["samples_per_second"] == pytest.approx(1.0)
    assert int(found["order_hash"], 16) == sum(one.order_hash for one in summary.epochs) % 2**64
    calls = sum(one.call_latency.sum_ns for one in summary.epochs) * 1e-9
    assert found["depth"] == pytest.approx(calls / sum(4 * one.io_busy_seconds.mean for one in summary.epochs))


def test_percentiles_of_a_pass_are_those_of_its_latencies() -> None:
    one = made(phase("posix"))
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)):
        assert one.figures[f"batch_latency_{name}_seconds"] == one.latency.quantile(share) * 1e-9
    assert one.figures["batch_latency_max_seconds"] == one.latency.max_ns * 1e-9


def test_other_ranks_have_no_figures() -> None:
    assert make_pass(STALL, Measured(PhaseSummary("c", "save", 1.0)), 0, 0) is None


def test_what_one_rank_reads_for_others_is_passed_to_them() -> None:
    verb = replace(saved(1.0), send_seconds=spread(0.0), broadcast_seconds=spread(0.25))
    assert made(RestorePhase("c", "restore", 1.0, verb=verb), STALL).figures["send_seconds"] == pytest.approx(0.275)


def test_a_save_is_complete_when_all_is_flushed() -> None:
    found = made(SavePhase("c", "save", 1.0, verb=flushed(1.0, 4.0)), STALL).figures
    assert (found["stall_seconds"], found["until_complete_seconds"]) == (1.0, 5.0)
    assert found["bytes_per_second"] == pytest.approx(20e6)


def test_no_stall_is_still_a_time() -> None:
    verb = replace(saved(0.0), bytes=0)
    one = made(SavePhase("c", "save", 0.0, verb=verb), STALL)
    assert STALL.time(one) > 0 and one.figures["bytes_per_second"] is None


def test_bytes_that_ranks_share_or_memory_kept_count_once_against_the_device() -> None:
    def share(**second: object) -> object:
        halves = epoch(0).bytes // 2
        first = change(epoch(0), distinct_bytes=halves, storage_amplification=0.5)
        later = change(first, **{"epoch": 1, "storage_amplification": 0.0, **second})
        whole = LoopPhase("train", "train", 1.0, epochs=(first, later), cache="off")
        return made(whole).figures["device_share"]

    assert share() == pytest.approx(0.5), "half of the epochs came from the page cache"
    assert share(storage_amplification=0.5) == pytest.approx(1.0), "two ranks asked for each byte of the device"
    assert share(bytes_moved=0) == pytest.approx(1.0), "the second asked storage for nothing"
    assert share(storage_amplification=None) is None


def test_parts_of_pages_that_no_sample_has_are_no_bytes_of_the_device_unless_the_pass_began_cold() -> None:
    """Samples of 1 kB: the device gave as many bytes as were asked for, in pages that are four times as large."""
    small = change(epoch(0), bytes=128_000, bytes_moved=128_000, storage_amplification=1.0)
    whole = LoopPhase("train", "train", 1.0, epochs=(small,), resident_share=0.0)
    assert made(whole).figures["device_share"] == pytest.approx(1.0)
    assert made(replace(whole, resident_share=0.5)).figures["device_share"] == pytest.approx(1000 / 5096)
    later = replace(whole, epochs=(small, replace(small, epoch=2)))
    assert made(later).figures["device_share"] == pytest.approx(2000 / 6096), "the second epoch did not begin cold"
    assert made(replace(later, cache="off")).figures["device_share"] == pytest.approx(1.0)
