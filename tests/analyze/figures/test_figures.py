"""Figures of small traces, worked out by hand."""

from __future__ import annotations

import dataclasses

import pytest

from dliosim.analyze.figures.job import measure_figures
from dliosim.analyze.figures.view import View
from tests.analyze.rows import MS, Row, compute, figures, read, trace, view, write


def test_time_is_split_on_each_rank_and_in_the_union_that_hides_a_rank_that_waits() -> None:
    # Rank 0 reads 0..40 ms and computes 30..60; rank 1 computes 0..30 and reads 60..100.
    split = figures(
        [
            read(0, 40 * MS),
            compute(30 * MS, 30 * MS),
            compute(0, 30 * MS, 1),
            read(60 * MS, 40 * MS, process=1),
        ]
    ).split
    mean = {name: one.mean for name, one in split.ranks.items()}
    assert mean == pytest.approx(
        {
            "total": 0.08,
            "io": 0.04,
            "compute": 0.03,
            "overlapped": 0.005,
            "unoverlapped_io": 0.035,
            "unoverlapped_compute": 0.025,
            "unoverlapped_write": 0.0,
        }
    )
    assert (split.ranks["total"].min_rank, split.ranks["total"].max_rank) == ("rank 0", "rank 1")
    assert dataclasses.astuple(split.union) == pytest.approx((0.1, 0.08, 0.06, 0.04, 0.04, 0.02, 0.0))


def test_two_readers_of_a_rank_that_read_at_once_take_the_time_once() -> None:
    found = figures([read(0, 10 * MS, thread=1), read(5 * MS, 10 * MS, thread=2)])
    assert found.split.ranks["io"].mean == pytest.approx(0.015)
    assert found.functions[0].seconds == pytest.approx(0.02)


def test_calls_of_a_higher_layer_count_as_time_and_their_bytes_only_where_no_lower_layer_has_the_file() -> None:
    found = figures(
        [
            read(0, 10, layer="mpi-io", moved=100),
            read(2, 5, layer="posix", moved=64),
            read(20, 5, layer="mpi-io", moved=7, file="/d/b"),
            read(40, 5, layer="reader", moved=1000),
        ]
    )
    assert found.access.read.bytes == 71
    assert found.job.operations == 2
    assert found.split.ranks["io"].mean == pytest.approx(15e-9)
    assert found.access.mpi_calls == 2


def test_functions_have_quantiles_of_sizes_and_latencies() -> None:
    found = figures([read(at * 1000, at + 1, moved=size, name="pread64") for at, size in enumerate([4, 8, 16, 32])])
    (one,) = found.functions
    assert (one.name, one.layer, one.kind, one.count, one.bytes) == ("pread64", "posix", "read", 4, 60)
    assert dataclasses.astuple(one.sizes) == (4, 4, 15, 8, 16, 32)  # type: ignore[arg-type]
    assert (one.p50, one.p99, one.max) == pytest.approx((2e-9, 4e-9, 4e-9))


def test_sizes_are_in_darshans_bins_whose_upper_ends_belong_to_them() -> None:
    sizes = [0, 100, 101, 1024, 1025, 1 << 20, (1 << 20) + 1, 1 << 30, (1 << 30) + 1, 100, 100]
    access = figures([read(at * 10, 1, moved=size) for at, size in enumerate(sizes)]).access
    assert access.read.bins == (4, 2, 1, 0, 1, 1, 0, 0, 1, 1)
    assert access.read.common == ((100, 3), (0, 1), (101, 1), (1024, 1))
    assert access.read.small == 7  # exactly 1 MiB is not small


def test_order_is_that_of_a_process_on_a_file() -> None:
    # Process 0 on a: first, consecutive, a gap, back; on b in between: first. Process 1 on a: first.
    access = figures(
        [
            read(0, 1, offset=0),
            read(10, 1, offset=50, file="/d/b"),
            read(20, 1, offset=10),
            read(30, 1, offset=100),
            read(40, 1, offset=105),
            read(25, 1, offset=110, process=1),
        ]
    ).access
    one = access.read
    assert (one.placed, one.first, one.consecutive, one.sequential, one.random) == (6, 3, 1, 2, 1)
    assert (access.files, access.shared_files, one.shared) == (2, 1, 5)


def test_reads_and_writes_are_ordered_by_themselves_and_their_switches_are_counted() -> None:
    rows = [
        read(0, 1, offset=0),
        write(10, 1, offset=500),
        write(20, 1, offset=510),
        read(30, 1, offset=10),
    ]
    access = figures(rows).access
    assert (access.read.consecutive, access.write.consecutive, access.switches) == (1, 1, 2)


def test_an_offset_that_is_not_known_takes_no_part_in_order_and_alignment() -> None:
    one = figures([read(0, 1, offset=-1), read(10, 1, offset=4096), read(20, 1, offset=4097)]).access.read
    assert (one.count, one.placed, one.misaligned, one.random) == (3, 2, 1, 1)


def test_the_offset_of_a_copy_from_a_mapping_takes_no_part_in_order_and_repetition() -> None:
    rows = [read(at, 1, offset=0, moved=100, name="copies from a mapping") for at in (0, 10)]
    one = figures([*rows, read(20, 1, offset=0, moved=100)]).access.read
    assert (one.count, one.placed, one.again, one.random) == (3, 1, 0, 0)


def test_bytes_are_read_again_over_all_processes_and_within_an_epoch() -> None:
    rows = [
        read(0, 1, offset=0, moved=100, epoch=1),
        read(10, 1, offset=50, moved=100, epoch=1, process=1),
        read(20, 1, offset=0, moved=100, epoch=2),
        read(30, 1, offset=0, moved=100, epoch=2, file="/d/b"),
    ]
    one = figures(rows).access.read
    assert (one.bytes, one.extents, one.again, one.again_in_epoch) == (400, 250, 150, 50)


def test_files_are_by_purpose_and_ending_and_what_a_save_uses_is_a_checkpoint() -> None:
    rows = [
        Row("save", 100, 100, layer="application"),
        write(120, 10, file="/out/state.bin", moved=7),
        Row("open", 110, 5, file="/out/state.bin"),
        read(0, 10, file="/data/1.npz", moved=3),
        read(20, 10, file="/data/2.NPZ", moved=4),
        read(40, 10, file="/usr/lib/libc.so.6", moved=5),
        write(60, 10, file="/run1/ckpt/step-10.pt", moved=6),
    ]
    found = {(one.purpose, one.suffix): one for one in figures(rows).files}
    assert {key: (one.files, one.opens, one.read, one.written) for key, one in found.items()} == {
        ("data set", ".npz"): (2, 0, 7, 0),
        ("checkpoint", ".bin"): (1, 1, 0, 7),
        ("checkpoint", ".pt"): (1, 0, 0, 6),
        ("other", ""): (1, 0, 5, 0),
    }


def test_layers_overlap_their_parent_on_their_own_rank_alone() -> None:
    found = figures(
        [
            Row("epoch", 0, 100, layer="application"),
            compute(50, 100),
            Row("data wait", 0, 40, layer="application", process=1),
            Row("epoch", 200, 100, layer="application", process=1),
        ]
    )
    layers = {one.name: one for one in found.layers}
    assert layers["compute"].overlap == 0.5
    assert layers["fetch data"].overlap == 0.0
    assert layers["reader"].events == 0 and layers["reader"].overlap is None


def test_the_straggler_of_steps_is_the_rank_that_the_others_wait_for() -> None:
    # Ends of steps: (10, 30, 12), (40, 45, 60), (70, 95, 75); each step begins with the sync's end.
    rows = []
    for step, (begin, ends) in enumerate([(0, (10, 30, 12)), (31, (40, 45, 60)), (61, (70, 95, 75))], 1):
        for rank, end in enumerate(ends):
            rows.append(compute(begin, end - begin, rank, epoch=1, step=step))
            rows.append(Row("sync", end, max(ends) - end, rank, "application", epoch=1, step=step))
    one = figures(rows).straggler
    assert one is not None
    assert (one.name, one.by, one.steps, one.last) == ("rank 1", "step", 3, 2)
    assert one.cost == pytest.approx((18 + 20) * 1e-9)
    assert one.behind == pytest.approx(((30 - 11) + (95 - 72.5)) / 2 * 1e-9)


def test_without_steps_the_straggler_is_the_rank_with_the_longest_io() -> None:
    one = figures([read(0, 10), read(0, 10, process=1), read(0, 30, process=2)]).straggler
    assert one is not None
    assert (one.name, one.by, one.over) == ("rank 2", "job", pytest.approx(2.0))
    assert one.cost == pytest.approx(20e-9)


def test_bandwidth_has_all_bytes_once() -> None:
    found = figures([read(0, 70, moved=700), read(30, 70, moved=77, process=1), write(5, 1, moved=9)]).bandwidth
    assert sum(found.read) == pytest.approx(777)
    assert sum(found.written) == pytest.approx(9)


def test_processes_of_one_rank_are_one_and_those_without_are_named_by_their_id() -> None:
    one = view([read(0, 1), read(0, 1, process=1), read(0, 1, process=2)])
    processes = [
        dataclasses.replace(each, rank=rank) for each, rank in zip(one.events.processes, (3, -1, 3), strict=True)
    ]
    trace = dataclasses.replace(one.trace, events=dataclasses.replace(one.events, processes=tuple(processes)))
    found = type(one)(trace)
    assert found.groups == ("rank 3", "process 101")
    assert found.group_of.tolist() == [0, 1, 0]


def test_a_trace_without_events_has_figures() -> None:
    found = figures([], ranks=2)
    assert found.job.events == 0
    assert found.split.union.io == 0
    assert [one.read for one in found.ranks] == [0, 0]


def test_workers_that_prepare_later_steps_do_not_move_their_begin() -> None:
    """Processes 2 and 3 are workers of the ranks 0 and 1, long before the step that they name."""
    rows = [
        row
        for rank in (0, 1)
        for step in (1, 2)
        for row in (
            compute(1000 * step, 100 + 50 * rank, rank, epoch=1, step=step),
            Row("preprocess", 500 * step, 5, 2 + rank, "reader", epoch=1, step=step),
        )
    ]
    made = trace(rows)
    processes = tuple(dataclasses.replace(one, rank=one.rank % 2) for one in made.events.processes)
    found = measure_figures(
        View(dataclasses.replace(made, events=dataclasses.replace(made.events, processes=processes)))
    ).straggler
    assert found is not None
    assert (found.name, found.by, found.steps) == ("rank 1", "step", 2)
    assert found.over == pytest.approx(0.5)
