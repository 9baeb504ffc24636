"""The exact text about a stall, and the ranks that others are taken to wait for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dliosim.measure.progress.stalled_ranks import JobStall, RankStatus, format_ranks
from dliosim.report.progress.stalled_ranks import recovery_text, stall_text

WAITS = RankStatus(
    0, 4100, "train", 3, 118, 1_200_000_000, 31.2, "S", "clock_nanosleep", True, "a barrier", 119, ""
)  # fmt: skip
READS = replace(
    WAITS, rank=2, pid=4102, state="c", call="preadv2(/data/d/000000007.raw at 131072)", meeting="", arrived=118
)  # fmt: skip
STOPPED = replace(WAITS, rank=3, pid=4103, state="T", call="", is_watched=False, meeting="", arrived=118, quiet=30.4)
RUNS = replace(WAITS, rank=4, pid=4104, state="R", call="", meeting="", arrived=118)
OPENS = replace(WAITS, rank=5, pid=4105, state="R", call="", meeting="", arrived=118, action="MPI_File_open of /data/x")
DEEP = replace(WAITS, rank=6, pid=4106, state="D", call="fsync(/data/y)", meeting="", phase="save c", epoch=0, step=0)
PAUSED = replace(READS, state="S", call="reader process 4110, which is stopped", stopped_readers=(4110, 4111))


def stall(*seen: RankStatus, ranks: int = 0, quiet: float = 31.2) -> JobStall:
    return JobStall(ranks or len(seen), quiet, seen, "node7", not ranks)


STALLS = {
    "a read that hangs": stall(WAITS, replace(WAITS, rank=1), READS, replace(WAITS, rank=3)),
    "one that is stopped, and others that run": stall(WAITS, replace(WAITS, rank=1), READS, STOPPED, RUNS, quiet=30.4),
    "stopped reader processes": stall(WAITS, replace(WAITS, rank=1), PAUSED),
    "one that is stopped with its reader processes": stall(WAITS, replace(PAUSED, state="T")),
    "one that is stopped while it waits itself": stall(
        WAITS, replace(STOPPED, meeting="a barrier", call="futex"), quiet=30.4
    ),
    "inside a collective open": stall(replace(OPENS, rank=0), replace(OPENS, rank=1), replace(DEEP, rank=2)),
    "many equal": stall(WAITS, *(replace(STOPPED, rank=rank, pid=rank + 5000) for rank in range(1, 66)), quiet=300),
    "one of several nodes": stall(WAITS, replace(DEEP, rank=1), ranks=4),
    "a node that waits for others": stall(WAITS, replace(OPENS, rank=1), ranks=4),
    "all have arrived": stall(WAITS, replace(WAITS, rank=1)),
}


def text() -> str:
    said = "".join(f"# {name}\n{stall_text(stall)}\n\n" for name, stall in STALLS.items())
    return f"{said}# it is over\n{recovery_text(31.2)}\n"


@pytest.mark.parametrize(
    ("seen", "ranks", "patient"),
    [((RUNS,), 4, True), ((WAITS, replace(OPENS, rank=1)), 4, True), ((WAITS, DEEP), 4, False), ((RUNS,), 0, False)],
)
def test_a_rank_of_several_nodes_that_is_in_no_call_may_wait_for_another(
    seen: tuple[RankStatus, ...], ranks: int, patient: bool
) -> None:
    assert stall(*seen, ranks=ranks).may_wait_elsewhere is patient


def test_a_stall_prints_exactly_this() -> None:
    assert text() == Path(__file__).with_name("stalls.txt").read_text()


def test_the_page_on_stalls_shows_what_is_printed() -> None:
    page = Path(__file__).parents[2] / "docs" / "running.md"
    assert f"```\n{stall_text(STALLS['one that is stopped, and others that run'])}\n```" in page.read_text()


@pytest.mark.parametrize(
    ("seen", "late"),
    [
        ((WAITS, READS), [2]),
        ((WAITS, RUNS, READS, STOPPED), [3, 2, 4]),
        ((OPENS, replace(RUNS, rank=0)), [0]),
        ((READS, replace(PAUSED, rank=7, meeting="a barrier")), [7, 2]),
        # Stopped in a meeting; and the last one in a meeting that others have left for the next.
        ((WAITS, replace(STOPPED, meeting="a barrier")), [3]),
        ((replace(WAITS, rank=1, arrived=118), WAITS), [1]),
        ((WAITS,), []),
    ],
)
def test_others_wait_for_those_who_are_stopped_in_a_call_or_elsewhere(
    seen: tuple[RankStatus, ...], late: list[int]
) -> None:
    assert [one.rank for one in stall(*seen).late_ranks] == late


def test_ranks_are_said_in_ranges() -> None:
    assert format_ranks([3, 1, 2, 7, 9, 10]) == "1-3, 7, 9-10"


if __name__ == "__main__":
    Path(__file__).with_name("stalls.txt").write_text(text())
