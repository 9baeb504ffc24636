"""Figures of drawn traces against the same, counted one event after the other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dliosim.analyze.figures.access import ALIGNMENT
from dliosim.analyze.figures.job import Figures, measure_figures
from dliosim.analyze.figures.view import View
from tests.analyze.rows import Row, trace

#: Times, offsets and sizes are small, so that events often touch, overlap and repeat.
rows = st.lists(
    st.builds(
        Row,
        kind=st.sampled_from(["read", "read", "write", "open", "compute"]),
        begin=st.integers(0, 60),
        duration=st.integers(0, 12),
        process=st.integers(0, 2),
        file=st.sampled_from(["/d/a", "/d/b"]),
        offset=st.one_of(st.integers(-1, 12), st.just(ALIGNMENT)),
        moved=st.integers(0, 6),
        epoch=st.integers(1, 2),
    ),
    max_size=25,
)


def measure(some: list[Row]) -> tuple[Figures, list[Row]]:
    """The figures, and the rows in the order of the table."""
    for row in some:
        row.layer = "application" if row.kind == "compute" else "posix"
    made = trace(some, ranks=3)
    return measure_figures(View(made)), sorted(some, key=lambda row: (row.process, row.begin))


def points(some: list[Row]) -> set[int]:
    return {point for row in some for point in range(row.begin, row.begin + row.duration)}


@given(rows)
def test_time_split(some: list[Row]) -> None:
    found, ordered = measure(some)
    is_io = [row for row in ordered if row.kind != "compute"]
    is_compute = [row for row in ordered if row.kind == "compute"]
    both = [
        len(
            points([row for row in is_io if row.process == rank]) & points([r for r in is_compute if r.process == rank])
        )
        for rank in range(3)
    ]
    assert round(found.split.ranks["overlapped"].mean * 3e9) == sum(both)
    assert round(found.split.union.io * 1e9) == len(points(is_io))
    assert round(found.split.union.unoverlapped_io * 1e9) == len(points(is_io) - points(is_compute))
    assert round(found.split.union.unoverlapped_compute * 1e9) == len(points(is_compute) - points(is_io))


@given(rows)
def test_order_alignment_and_switches(some: list[Row]) -> None:
    found, ordered = measure(some)
    for kind, side in (("read", found.access.read), ("write", found.access.write)):
        ends: dict[tuple[int, str], tuple[int, int]] = {}
        count = dict.fromkeys(("placed", "first", "consecutive", "sequential", "random", "misaligned"), 0)
        for row in ordered:
            if row.kind != kind or row.offset < 0:
                continue
            count["placed"] += 1
            count["misaligned"] += row.offset % ALIGNMENT != 0
            epoch, last = ends.get((row.process, row.file), (-1, -1))
            end = last if epoch == row.epoch else None  # the first call of each epoch follows nothing
            count["first"] += end is None
            count["consecutive"] += end is not None and row.offset == end
            count["sequential"] += end is not None and row.offset >= end
            count["random"] += end is not None and row.offset < end
            ends[row.process, row.file] = row.epoch, row.offset + row.moved
        assert {name: getattr(side, name) for name in count} == count
    last: dict[tuple[int, str], str] = {}
    switches = 0
    for row in ordered:
        if row.kind in ("read", "write"):
            switches += last.get((row.process, row.file), row.kind) != row.kind
            last[row.process, row.file] = row.kind
    assert found.access.switches == switches


@given(rows)
def test_bytes_moved_again(some: list[Row]) -> None:
    found, ordered = measure(some)
    one = found.access.read
    reads = [row for row in ordered if row.kind == "read" and row.offset >= 0]
    moved = [(row.epoch, row.file, at) for row in reads for at in range(row.offset, row.offset + row.moved)]
    assert one.extents == len({place[1:] for place in moved})
    assert one.again == len(moved) - one.extents
    if reads:
        assert one.again_in_epoch == len(moved) - len(set(moved))


@given(rows)
def test_calls_and_bytes_of_functions_ranks_and_files_add_up(some: list[Row]) -> None:
    found, ordered = measure(some)
    calls = [row for row in ordered if row.kind in ("read", "write")]
    assert sum(one.count for one in found.functions) == len(ordered)
    assert sum(one.read + one.written for one in found.ranks) == sum(row.moved for row in calls)
    assert sum(one.read + one.written for one in found.files) == sum(row.moved for row in calls)
    assert sum(found.access.read.bins) + sum(found.access.write.bins) == len(calls)
    assert round(sum(found.bandwidth.read + found.bandwidth.written), 6) == sum(row.moved for row in calls)
