"""Each insight is found where it must be, and not at its threshold."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from dliosim.analyze.insights.rules import INSIGHTS, judge
from tests.analyze.rows import Row, compute, figures, insight, read, write

MIB = 1 << 20
S = 1_000_000_000

#: Makes the rows of a trace in which a figure has the value of a number, in the unit of its name.
Make = Callable[[int], Sequence[Row]]


def io_alone(percent: int) -> Sequence[Row]:
    """I/O of 100, of it `percent` without compute."""
    return [read(0, 100), compute(percent, 500)]


def waiting(percent: int) -> Sequence[Row]:
    return [Row("data wait", 0, percent, layer="application"), compute(percent, 100 - percent)]


def ahead(percent: int) -> Sequence[Row]:
    """Ranks 0 and 1 take 100 each, rank 2 as much more as this share."""
    return [read(0, 100), read(0, 100, process=1), read(0, 100 + percent, process=2)]


def uneven(percent: int) -> Sequence[Row]:
    return [read(0, 100, moved=100), read(0, 100 - percent, process=1, moved=100 - percent)]


def calls_of(side: Callable[..., Row], share: int, size: int) -> list[Row]:
    """20,000 calls of 1 MiB, one behind the other; `share` per cent of them have another size."""
    few = 200 * share
    return [side(at * 10, 5, offset=at * MIB, moved=size if at < few else MIB) for at in range(20_000)]


def small(side: Callable[..., Row]) -> Make:
    return lambda percent: calls_of(side, percent, MIB - 1)


def slow_small(side: Callable[..., Row]) -> Make:
    """A small call of `percent`, and opens of the rest."""
    return lambda percent: [side(0, percent), Row("open", 200, 100 - percent, file="/d/a")]


def misaligned(side: Callable[..., Row]) -> Make:
    return lambda percent: [side(at * 10, 5, offset=4096 * at + (at < percent)) for at in range(100)]


def random_calls(side: Callable[..., Row]) -> Make:
    """10,000 calls, a share of them at offset 0 and all others behind the last."""
    return lambda percent: [
        side(at * 10, 5, offset=0 if at % 100 >= 100 - percent else 10 * at + 100) for at in range(10_000)
    ]


def again(side: Callable[..., Row]) -> Make:
    """100 bytes moved, the last `percent` of them where the first ones were."""
    return lambda percent: [side(0, 5, moved=100 - percent), side(10, 5, offset=0, moved=percent)]


def metadata_seconds(seconds: int) -> Sequence[Row]:
    return [Row("open", 0, seconds * S, file="/d/a"), Row("open", 0, 1, 1, file="/d/a")]


def metadata_share(percent: int) -> Sequence[Row]:
    return [Row("open", 0, percent, file="/d/a"), read(200, 100 - percent)]


def independent(percent: int) -> Sequence[Row]:
    layers = ["mpi-io" if at % 100 < percent else "mpi-io collective" for at in range(5000)]
    return [read(at * 10, 5, process=rank, layer=layer) for rank in (0, 1) for at, layer in enumerate(layers)]


def blocking(tenths: int) -> Sequence[Row]:
    """`tenths` of 1000 calls of 2000 block."""
    names = ["MPI_File_read_at" if at % 1000 < tenths else "MPI_File_iread_at" for at in range(2000)]
    return [read(at * 10, 5, layer="mpi-io", name=name) for at, name in enumerate(names)]


def stdio(percent: int) -> Sequence[Row]:
    return [read(0, 5, layer="stdio", moved=percent), read(10, 5, file="/d/b", moved=100 - percent)]


def mix(percent: int) -> Sequence[Row]:
    """Reads are `percent` more than writes, of 200 calls of a byte."""
    reads = 100 + percent
    return [(read if at < reads else write)(at * 10, 5, moved=1) for at in range(200)]


def saving(percent: int) -> Sequence[Row]:
    """A write of `percent` of the time, half of it next to compute."""
    return [compute(0, 100 - percent), write(100 - 2 * percent, 2 * percent)]


#: Of each insight a trace, the number at which it is not found yet, and one where it is.
CASES: dict[str, tuple[Make, int, int]] = {
    "unoverlapped-io": (io_alone, 50, 51),
    "unoverlapped-writes": (saving, 10, 11),
    "data-wait": (waiting, 10, 11),
    "straggler": (ahead, 15, 16),
    "uneven-bytes": (uneven, 30, 31),
    "uneven-time": (uneven, 30, 31),
    "small-reads": (small(read), 10, 11),
    "small-writes": (small(write), 10, 11),
    "slow-small-reads": (slow_small(read), 50, 51),
    "slow-small-writes": (slow_small(write), 50, 51),
    "misaligned-reads": (misaligned(read), 10, 11),
    "misaligned-writes": (misaligned(write), 10, 11),
    "random-reads": (random_calls(read), 20, 21),
    "random-writes": (random_calls(write), 20, 21),
    "read-again": (again(read), 10, 11),
    "written-again": (again(write), 10, 11),
    "metadata-seconds": (metadata_seconds, 30, 31),
    "metadata-share": (metadata_share, 49, 50),
    "independent-mpi-io": (independent, 50, 51),
    "blocking-mpi-io": (blocking, 999, 1000),
    "stdio": (stdio, 10, 11),
    "operation-mix": (mix, 10, 11),
    "size-mix": (mix, 10, 11),
}


@pytest.mark.parametrize("name", CASES)
def test_an_insight_is_found_beyond_its_threshold_only(name: str) -> None:
    make, below, beyond = CASES[name]
    assert not insight(name, make(below)).is_met
    found = insight(name, make(beyond))
    assert found.is_met
    assert found.found is not None and found.found.words


def test_each_insight_has_a_case() -> None:
    others = {"incomplete", "mpi-io-wait"}  # of the reader, and of Darshan's counters
    assert {one.name for one in INSIGHTS} == {*CASES, *others}


def test_a_trace_with_anything_missing_is_incomplete_and_that_comes_first() -> None:
    found = judge(figures([*io_alone(90)], incomplete=("the last line is cut",)))
    assert found[0].insight.name == "incomplete" and found[0].is_met
    assert found[0].found is not None and "the last line is cut" in found[0].found.words
    assert not insight("incomplete", io_alone(90)).is_met


def test_small_calls_are_found_above_1000_of_them_only() -> None:
    rows = [read(at * 10, 5, file=f"/d/{at}", moved=5) for at in range(1001)]
    assert insight("small-reads", rows).is_met
    assert not insight("small-reads", rows[:1000]).is_met


def test_a_request_of_1_mib_is_not_small() -> None:
    rows = [read(at * 10, 5, file=f"/d/{at}", moved=MIB) for at in range(2000)]
    assert not insight("small-reads", rows).is_met


def test_calls_whose_size_is_not_known_are_not_small() -> None:
    rows = [read(at * 10, 5, file=f"/d/{at}", moved=-1) for at in range(2000)]
    for name in ("small-reads", "slow-small-reads"):
        assert insight(name, rows).found is None
    large = [read(at * 10, 5, file=f"/e/{at}", moved=MIB) for at in range(10)]
    assert not insight("small-reads", rows + large).is_met
    access = figures(rows + large).access.read
    assert (access.sized, access.mean, sum(access.bins), access.small) == (10, MIB, 10, 0)


def test_the_time_of_large_reads_is_not_that_of_many_small_ones() -> None:
    """A Python program reads thousands of its own small files, next to its data."""
    rows = [read(at * 10, 1, file=f"/p/{at}.pyc", moved=5) for at in range(400)]
    rows += [read(5000, 900, moved=2 * MIB)]
    assert not insight("slow-small-reads", rows).is_met
    assert insight("slow-small-reads", [*rows, read(6000, 1500, file="/d/b", moved=MIB - 1)]).is_met


def test_drishtis_inverted_rule_is_put_right_for_a_file_that_is_read_in_part() -> None:
    """Drishti finds redundant reads where the highest offset is above the bytes read: in a sparse read."""
    assert not insight("read-again", [read(0, 5, offset=10_000)]).is_met


def test_metadata_of_half_of_the_time_is_found_at_the_threshold() -> None:
    assert insight("metadata-share", metadata_share(50)).is_met


@pytest.mark.parametrize(
    ("others", "job", "step"),
    [
        (10, "900 % more I/O time than the mean", "takes 900 % longer than the mean of the others, "),
        (0, "100 ns more I/O time than the median", ""),
    ],
)
def test_a_straggler_next_to_ranks_that_took_no_time_is_compared_in_seconds(others: int, job: str, step: str) -> None:
    reads = [read(0, 100 if rank == 2 else others, process=rank) for rank in range(3)]
    found = insight("straggler", reads).found
    assert found is not None and found.words == f"rank 2 takes {job} of the others"
    computes = [compute(0, one.duration, one.process, epoch=1, step=1) for one in reads]
    found = insight("straggler", computes).found
    assert found is not None and found.words.startswith(f"rank 2 {step}is last in 1 of 1 step, ")


def test_of_two_that_are_found_the_one_that_costs_more_comes_first() -> None:
    rows = [read(0, 100), compute(60, 500), Row("open", 600, 10, file="/d/a")]
    met = [one for one in judge(figures(rows)) if one.is_met]
    costs = [one.found.cost for one in met if one.found]
    assert len(costs) > 1
    assert costs == sorted(costs, reverse=True, key=float)  # type: ignore[arg-type]


def test_a_file_that_each_epoch_reads_from_its_begin_to_its_end_is_not_read_at_random() -> None:
    rows = [
        read(10_000 * epoch + at, 1, file=f"/d/{at // 2}", offset=10 * (at % 2), epoch=epoch)
        for epoch in (1, 2, 3)
        for at in range(2000)
    ]
    access = figures(rows).access.read
    assert (access.first, access.consecutive, access.random) == (3000, 3000, 0)
    assert not insight("random-reads", rows).is_met


def test_without_compute_nothing_is_said_about_what_it_hides() -> None:
    assert insight("unoverlapped-io", [read(0, 100)]).found is None


def test_writes_that_nothing_hides_are_no_reason_to_read_ahead() -> None:
    rows = [compute(0, 100), read(0, 10), write(100, 50)]
    assert not insight("unoverlapped-io", rows).is_met
    assert insight("unoverlapped-writes", rows).is_met


def test_a_rank_that_writes_for_all_reads_no_more_than_others() -> None:
    rows = [read(0, 10), read(0, 10, process=1), write(20, 50, moved=1 << 20)]
    assert not insight("uneven-bytes", rows).is_met
    found = insight("uneven-time", rows).found
    assert found is not None and found.words.endswith("; the first writes 1.05 MB, the other 0 B")
    even = insight("uneven-time", [read(0, 100), read(0, 50, process=1)]).found
    assert even is not None and "writes" not in even.words


def test_io_outside_of_epochs_is_no_reason_to_read_ahead() -> None:
    rows = [read(0, 900), Row("epoch", 1000, 100, layer="application"), read(1000, 10), compute(1000, 100)]
    assert not insight("unoverlapped-io", rows).is_met


def test_with_workers_that_belong_to_no_rank_only_the_union_says_what_is_hidden() -> None:
    found = insight("unoverlapped-io", [compute(0, 100), read(20, 60, process=1)])
    assert not found.is_met
    assert found.found is not None and "the processes'" in found.found.words
