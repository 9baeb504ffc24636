"""Figures of Darshan's counters: literal tables, worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from dliosim.analyze.figures.counters import add_counters
from dliosim.analyze.figures.job import Figures, measure_figures
from dliosim.analyze.figures.view import View
from dliosim.analyze.insights.rules import judge
from dliosim.analyze.read.darshan.counters import FileCounters, LogTrace
from dliosim.analyze.report.first_screen import format_analysis
from tests.analyze.rows import read, view

MIB = 1 << 20
FILES = ("/data/a.npz", "/data/b.npz")


def table(module: str, rows: Sequence[tuple[int, int, Mapping[str, float]]]) -> FileCounters:
    """Rows of (file, rank, counters); those that begin with F_ are times."""
    names = list(dict.fromkeys(name for _, _, values in rows for name in values))
    columns = {name: np.array([values.get(name, 0) for _, _, values in rows]) for name in names}
    return FileCounters(
        module,
        np.array([file for file, _, _ in rows], np.int32),
        np.array([rank for _, rank, _ in rows], np.int32),
        {name: column.astype(np.int64) for name, column in columns.items() if not name.startswith("F_")},
        {name: column.astype(np.float64) for name, column in columns.items() if name.startswith("F_")},
        FILES,
    )


def logged(*tables: FileCounters, ranks: int = 2) -> View:
    """A log of counters without operations."""
    events = view([], ranks).events
    return View(LogTrace("Darshan counters", "x.darshan", events, 10_000_000_000, counters=tables))


def counted(*tables: FileCounters, ranks: int = 2) -> Figures:
    one = logged(*tables, ranks=ranks)
    return add_counters(one, measure_figures(one))


#: Rank 0 reads file 0 twice over; ranks 0 and 1 share file 1, which Darshan has added up.
POSIX = table(
    "POSIX",
    [
        (
            0,
            0,
            {
                "OPENS": 2, "READS": 10, "BYTES_READ": 10 * MIB, "MAX_BYTE_READ": 5 * MIB - 1, "CONSEC_READS": 4,
                "SEQ_READS": 6, "SIZE_READ_100K_1M": 10, "ACCESS1_ACCESS": MIB, "ACCESS1_COUNT": 10,
                "FILE_NOT_ALIGNED": 3, "F_READ_TIME": 2.0, "F_META_TIME": 0.5,
            },
        ),
        (
            1,
            -1,
            {
                "OPENS": 2, "WRITES": 8, "BYTES_WRITTEN": 800, "MAX_BYTE_WRITTEN": 799, "SEQ_WRITES": 7,
                "SIZE_WRITE_0_100": 8, "ACCESS1_ACCESS": 100, "ACCESS1_COUNT": 8, "F_WRITE_TIME": 1.0,
            },
        ),
    ],
)  # fmt: skip


def test_a_direction_has_darshans_counts_and_a_request_of_1_mib_is_not_small() -> None:
    access = counted(POSIX).access
    one, other = access.read, access.write
    assert (one.count, one.bytes, one.seconds, one.bins[4]) == (10, 10 * MIB, 2.0, 10)
    assert (one.small, other.small) == (0, 8)
    assert (one.common, other.common) == (((MIB, 10),), ((100, 8),))
    assert (one.first, one.consecutive, one.sequential, one.random) == (1, 4, 6, 3)
    assert (other.first, other.sequential, other.random) == (1, 7, 0)
    assert one.misaligned == 3


def test_small_calls_of_a_file_have_their_part_of_its_time_alone() -> None:
    large = {"READS": 2, "BYTES_READ": 8 * MIB, "SIZE_READ_1M_4M": 2, "F_READ_TIME": 8.0}
    small = {"READS": 98, "BYTES_READ": 98, "SIZE_READ_0_100": 98, "F_READ_TIME": 1.0}
    found = counted(table("POSIX", [(0, 0, large), (1, 0, small)]))
    assert found.access.read.small_seconds == 1.0
    assert not next(one for one in judge(found) if one.insight.name == "slow-small-reads").is_met


def test_the_first_call_of_each_rank_on_a_file_of_all_is_no_jump_back() -> None:
    """Eight ranks read a module of Python: all of it, and then its end."""
    shared = {"READS": 16, "BYTES_READ": 800, "CONSEC_READS": 8, "SEQ_READS": 8, "SIZE_READ_0_100": 16}
    access = counted(table("POSIX", [(0, -1, shared)]), ranks=8).access.read
    assert (access.first, access.sequential, access.random) == (8, 8, 0)


def test_bytes_above_the_file_are_read_again_and_a_file_read_in_part_is_not() -> None:
    access = counted(POSIX).access
    assert (access.read.again, access.read.extents) == (5 * MIB, 5 * MIB)
    assert access.write.again == 0
    part = table("POSIX", [(0, 0, {"READS": 1, "BYTES_READ": 10, "MAX_BYTE_READ": 10_000})])
    assert counted(part).access.read.again == 0


def test_each_rank_has_an_equal_part_of_what_all_have_together() -> None:
    ranks = counted(POSIX).ranks
    assert [(one.read, one.written, one.io, one.metadata) for one in ranks] == [
        (10 * MIB, 400, 3.0, 0.5),
        (0, 400, 0.5, 0),
    ]


def test_of_a_shared_file_the_slowest_and_the_fastest_rank_have_their_own_time() -> None:
    known = {"SLOWEST_RANK": 2, "FASTEST_RANK": 0, "F_SLOWEST_RANK_TIME": 5.0, "F_FASTEST_RANK_TIME": 1.0}
    shared = table("POSIX", [(1, -1, {"WRITES": 4, "F_WRITE_TIME": 8.0, "F_META_TIME": 2.0, **known})])
    found = counted(shared, ranks=4)
    assert [one.io for one in found.ranks] == pytest.approx([1.0, 2.0, 5.0, 2.0])
    assert found.straggler is not None and found.straggler.name == "rank 2"
    assert [one.io for one in counted(shared, ranks=2).ranks] == [5.0, 5.0]  # no rank 2 there: equal parts


def test_the_slowest_ranks_time_is_that_on_its_own_files_and_on_each_shared_one_as_darshan_has_it() -> None:
    shared = {"SLOWEST_RANK": 1, "FASTEST_RANK": 0, "F_SLOWEST_RANK_TIME": 2.0, "F_WRITE_TIME": 3.0}
    found = counted(table("POSIX", [(0, 0, {"F_READ_TIME": 4.0}), (0, 1, {"F_READ_TIME": 1.0}), (1, -1, shared)]))
    assert found.job.time_by_slowest == 6.0


def test_of_counters_the_union_is_not_known_and_a_screen_says_so() -> None:
    found = counted(POSIX)
    assert math.isnan(found.split.union.io)
    assert found.split.ranks["io"].max == 3.0
    last = next(line for line in format_analysis(found, judge(found), False).splitlines() if line.startswith("union"))
    assert last.split()[4:7] == ["10.0", "s", "-"]


def test_calls_of_mpi_io_are_those_of_posix_below_and_its_collective_share_is_of_shared_files() -> None:
    mpi = table("MPI-IO", [(1, -1, {"COLL_WRITES": 6, "INDEP_WRITES": 2}), (0, 0, {"INDEP_READS": 10, "NB_READS": 1})])
    access = counted(POSIX, mpi).access
    assert access.write.count == 8
    assert (access.mpi_calls, access.shared_mpi_calls, access.collective_calls, access.nonblocking_calls) == (
        19,
        8,
        6,
        1,
    )


def collective(stripes: int | None, inside: float, below: float = 4.0, ranks: int = 8) -> Figures:
    """A shared file: all ranks are `inside` s in MPI-IO together, and rank 0 wrote all its bytes in `below` s."""
    most = {"SLOWEST_RANK": 0, "FASTEST_RANK": 1, "SLOWEST_RANK_BYTES": 800, "F_SLOWEST_RANK_TIME": below}
    posix = table("POSIX", [(0, -1, {"WRITES": 8, "BYTES_WRITTEN": 800, "F_WRITE_TIME": below, **most})])
    mpi = table("MPI-IO", [(0, -1, {"COLL_WRITES": 8, "BYTES_WRITTEN": 800, "F_WRITE_TIME": inside})])
    layouts = [table("LUSTRE", [(0, rank, {"STRIPE_COUNT": stripes}) for rank in (0, 1)])] if stripes else []
    return counted(posix, mpi, *layouts, ranks=ranks)


def test_time_in_mpi_io_without_calls_on_the_file_is_waiting_and_io_of_the_rank() -> None:
    found = collective(1, inside=40.0)
    # Each rank is 5 s in MPI-IO, and rank 0 writes for 4 s of these.
    assert found.mpi_wait is not None
    assert (found.mpi_wait.seconds, found.mpi_wait.mpi_seconds, found.mpi_wait.longest) == (4.5, 5.0, 4.0)
    assert (found.mpi_wait.file, found.mpi_wait.stripes, found.mpi_wait.busiest) == (FILES[0], 1, 1.0)
    assert [one.io for one in found.ranks] == [5.0] * 8
    assert found.job.time_by_slowest == 4.0  # as Darshan has it
    assert counted(POSIX, table("MPI-IO", [(0, 0, {"F_READ_TIME": 9.0})])).mpi_wait is not None
    assert counted(POSIX).mpi_wait is None


@pytest.mark.parametrize(("inside", "is_met"), [(8.0, False), (8.1, True)])
def test_ranks_wait_in_mpi_io_where_more_than_half_of_their_time_there_is_waiting(inside: float, is_met: bool) -> None:
    rows = [table(module, [(0, -1, {"F_READ_TIME": time})]) for module, time in (("POSIX", 4.0), ("MPI-IO", inside))]
    finding = next(one for one in judge(counted(*rows)) if one.insight.name == "mpi-io-wait")
    assert finding.is_met == is_met


@pytest.mark.parametrize(
    ("stripes", "parts"),
    [
        (
            1,
            (
                "its stripe count is 1, and one rank of 8 moved 100 % of its bytes",
                "TRY `lfs setstripe -c 8 /data`",
                "then",
            ),
        ),
        (4, ("its stripe count is 4, and one rank of 8 moved 100 %", "TRY the MPI-IO hint cb_nodes")),
        (None, ("most for /data/a.npz: one rank of 8 moved", "TRY on Lustre see first `lfs getstripe -c`")),
    ],
)
def test_the_one_cause_of_waits_stands_first_with_the_file_and_no_rank_is_blamed(
    stripes: int | None, parts: tuple[str, ...]
) -> None:
    found = collective(stripes, inside=40.0)
    findings = judge(found)
    assert findings[0].insight.name == "mpi-io-wait"
    shown = " ".join(format_analysis(found, findings, False).split())
    for part in (FILES[0], *parts):
        assert part in shown
    assert "deal out samples" not in shown


def test_independent_calls_wait_for_locks_and_not_for_other_ranks() -> None:
    rows = [
        table(module, [(0, -1, {"F_READ_TIME": time, "INDEP_READS": 4})])
        for module, time in (("POSIX", 2), ("MPI-IO", 9))
    ]
    found = counted(*rows)
    shown = " ".join(format_analysis(found, judge(found), False).split())
    assert "in independent calls, most for /data/a.npz: for locks" in shown
    assert "fs_ufs_lock_algorithm" in shown and "setstripe" not in shown


DFS = {"READS": 3, "READXS": 1, "BYTES_READ": 64, "WRITES": 4, "BYTES_WRITTEN": 32, "SIZE_READ_0_100": 4}


@pytest.mark.parametrize(
    ("module", "calls"), [("DFS", DFS), ("DAOS", {**DFS, "READS": 0, "READXS": 0, "ARRAY_READS": 3, "OBJ_FETCHES": 1})]
)
def test_files_of_daos_count_once_by_the_highest_layer_that_the_log_has(module: str, calls: dict[str, float]) -> None:
    below = table("DAOS", [(0, -1, {"ARRAY_READS": 4, "BYTES_READ": 64, "F_READ_TIME": 2.0})])
    tables = [table(module, [(0, -1, {**calls, "F_READ_TIME": 2.0})]), *([below] if module == "DFS" else [])]
    found = counted(table("POSIX", [(1, 0, {"OPENS": 1})]), *tables)
    assert [one.read for one in found.ranks] == [32, 32]
    assert (found.access.read.count, found.access.read.bytes, found.access.read.sized) == (4, 64, 4)
    assert [one.io for one in found.ranks] == [1.0, 1.0]


def test_calls_on_pipes_are_no_io_and_the_time_of_their_opens_is_said() -> None:
    pipes = FileCounters(
        **{
            **{name: getattr(POSIX, name) for name in ("module", "file", "rank")},
            "counts": POSIX.counts,
            "seconds": {**POSIX.seconds, "F_META_TIME": np.array([0.5, 70.0])},
            "files": ("/data/a.npz", "/scratch/job/pipe_-1043744754"),
        }
    )
    found = counted(pipes)
    assert [one.metadata for one in found.ranks] == [0.5, 0.0]
    assert (found.access.files, found.access.write.bytes) == (1, 0)
    assert any(
        "71.00 s of opens, reads and writes of /scratch/job/pipe_-1043744754" in note for note in found.job.notes
    )


@pytest.mark.parametrize(
    ("opens", "seconds", "kept"),
    [
        (2, 21.0, 0.0),  # in a job of 10 s on two ranks
        (2, 20.0, 20.0),
        (1000, 21.0, 21.0),  # many short ones, on threads
    ],
)
def test_opens_longer_than_the_ranks_have_time_are_no_work_of_a_file_system(
    opens: int, seconds: float, kept: float
) -> None:
    found = counted(table("POSIX", [(0, 0, {"OPENS": opens, "F_META_TIME": seconds})]))
    assert sum(one.metadata for one in found.ranks) == kept
    assert any("no file system takes so long" in note for note in found.job.notes) == (not kept)


def test_bytes_of_stdio_add_to_those_of_posix() -> None:
    stdio = table("STDIO", [(0, 1, {"OPENS": 1, "READS": 4, "BYTES_READ": 4096, "F_READ_TIME": 0.25})])
    found = counted(POSIX, stdio)
    assert found.access.stdio_bytes == 4096
    # Darshan has no sizes of calls of stdio: of these four it is not known whether they are small.
    assert (found.access.read.count, found.access.read.sized) == (14, 10)
    assert found.access.read.bytes == 10 * MIB + 4096
    assert found.ranks[1].io == pytest.approx(0.75)


def test_files_are_by_purpose_and_ending() -> None:
    (one,) = counted(POSIX).files
    assert (one.purpose, one.suffix, one.files, one.opens, one.read, one.written) == (
        "data set",
        ".npz",
        2,
        4,
        10 * MIB,
        800,
    )
    assert one.seconds == pytest.approx(3.5)


def test_opens_that_dxt_does_not_have_add_to_the_io_of_a_rank_and_it_is_no_longer_than_the_job() -> None:
    one = view([read(0, 2_000_000_000, file="/data/a.npz")], ranks=2)
    opens = table("POSIX", [(0, 0, {"OPENS": 9, "F_META_TIME": 3.0}), (1, 1, {"OPENS": 9, "F_META_TIME": 30.0})])
    whole = type(one)(LogTrace("Darshan DXT", "x.darshan", one.events, 10_000_000_000, counters=(opens,)))
    found = add_counters(whole, measure_figures(whole))
    assert [each.io for each in found.ranks] == [5.0, 10.0]
    assert any("without opens" in note for note in found.job.notes)


def test_the_page_of_counters_has_the_sizes_of_calls_and_no_picture_over_time() -> None:
    pytest.importorskip("matplotlib")
    from dliosim.analyze.report.page import page

    found = counted(POSIX)
    text = page(logged(POSIX), found, judge(found))
    assert "Sizes of calls" in text and "What each rank did" not in text
    assert "layers: time" not in text
    nothing = table("POSIX", [(0, 0, {"OPENS": 1, "F_META_TIME": 1.0})])
    found = counted(nothing)
    assert "Pictures" not in page(logged(nothing), found, judge(found))
