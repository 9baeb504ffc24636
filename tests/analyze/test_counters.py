"""Figures of Darshan's counters: literal tables, worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from dliosim.analyze.counters import add_counters
from dliosim.analyze.figures import Figures, measure_figures
from dliosim.analyze.insights import judge
from dliosim.analyze.view import View
from dliosim.report.analyze.first_screen import format_analysis
from dliosim.trace.events import FileCounters, Trace
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
    return View(Trace("Darshan counters", "x.darshan", events, 10_000_000_000, counters=tables))


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
    whole = type(one)(Trace("Darshan DXT", "x.darshan", one.events, 10_000_000_000, counters=(opens,)))
    found = add_counters(whole, measure_figures(whole))
    assert [each.io for each in found.ranks] == [5.0, 10.0]
    assert any("without opens" in note for note in found.job.notes)


def test_the_page_of_counters_has_the_sizes_of_calls_and_no_picture_over_time() -> None:
    pytest.importorskip("matplotlib")
    from dliosim.pictures.analysis_page import page

    found = counted(POSIX)
    text = page(logged(POSIX), found, judge(found))
    assert "Sizes of calls" in text and "What each rank did" not in text
    assert "layers: time" not in text
    nothing = table("POSIX", [(0, 0, {"OPENS": 1, "F_META_TIME": 1.0})])
    found = counted(nothing)
    assert "Pictures" not in page(logged(nothing), found, judge(found))
