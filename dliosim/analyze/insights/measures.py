"""Figures that insights compare with their thresholds, each with a sentence and with the time that it concerns."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Final, TypeAlias

from dliosim.analyze.figures.access import Direction
from dliosim.analyze.figures.job import Figures
from dliosim.analyze.figures.time_split import TimeSplit, spread
from dliosim.readable import count as count_words
from dliosim.readable import size
from dliosim.report.cells import percent_cell, time_cell

#: Share of a file's bytes from which on one rank has moved them.
_ONE_RANK: Final = 0.9
#: Share by which a straggler's time may exceed others' and be given in per cent: if these took none, it is infinite.
_FAR: Final = 10

#: Cures of waits in MPI-IO, by their cause.
AGGREGATORS: Final = (
    "the MPI-IO hint cb_nodes, as many as there are nodes or more; see, too, whether some ranks come late to the calls"
)
_STRIPE: Final = (
    "`lfs setstripe -c 8 {folder}`, or more, before the file is made: ROMIO takes an aggregator, the rank that "
    f"accesses the file for others, for each of its stripes; then {AGGREGATORS}"
)
_LOCKS: Final = (
    "no locks: Open MPI's `--mca fs_ufs_lock_algorithm 1`, where ranks do not write the same bytes; ROMIO's hints "
    "romio_ds_read and romio_ds_write as `disable`; or collective calls"
)


@dataclass(frozen=True, slots=True)
class Measure:
    """The figure of an insight in one trace."""

    value: float  #: what is compared with the threshold
    words: str  #: sentence with the figure
    #: time of a mean rank that it concerns, s: at most this can be gained; None if all figures are in doubt
    cost: float | None = 0.0
    count: float = 0.0  #: operations, if an insight needs a least number of them
    cure: str = ""  #: what to try in this trace; empty for the insight's own


#: Measures one insight; None if the trace cannot say.
Measuring: TypeAlias = Callable[[Figures], "Measure | None"]


def _a_rank(figures: Figures, total: float) -> float:
    """Return a sum of durations over all ranks as time of a mean rank, which has no more than all its I/O."""
    ranks = max(len(figures.ranks), 1)
    return min(total, sum(one.io for one in figures.ranks)) / ranks


def missing_events(figures: Figures) -> Measure | None:
    """Return the number of sentences about what is missing."""
    missing = figures.job.incomplete
    return Measure(len(missing), missing[0].rstrip(".") if missing else "nothing is known to be missing", None)


def io_alone(figures: Figures) -> Measure | None:
    """Return the share of I/O time without compute, but for writes, within epochs where these are known."""
    times = _times_of(figures)[1]
    return _measure_alone(figures, times["unoverlapped_io"] - times["unoverlapped_write"], "io", "I/O time", "reading")


def writes_alone(figures: Figures) -> Measure | None:
    """Return the share of time in writes without compute, within epochs where these are known."""
    return _measure_alone(figures, _times_of(figures)[1]["unoverlapped_write"], "total", "time", "writing")


def _measure_alone(figures: Figures, alone: float, base: str, what: str, doing: str) -> Measure | None:
    """Return the share of a time, a field of `Split`, that is spent `alone`, s."""
    split, times, whose = _times_of(figures)
    if not split.has_compute or not (whole := times[base]):
        return None
    words = f"{percent_cell(alone / whole)} {whose.format(what)} ({time_cell(whole)})"
    return Measure(alone / whole, f"{words} is {doing} without compute next to it", alone)


def _times_of(figures: Figures) -> tuple[TimeSplit, dict[str, float], str]:
    """Return the split that is judged, its times, by the fields of `Split`, and whose they are in words."""
    split = figures.epochs or figures.split
    where = " in epochs" if figures.epochs else ""
    if split.is_by_rank:
        return split, {name: one.mean for name, one in split.ranks.items()}, f"of a mean rank's {{}}{where}"
    return split, asdict(split.union), f"of the processes' {{}}{where}"


def data_wait(figures: Figures) -> Measure | None:
    """Return the share of the time of steps that waits for data."""
    times = {one.name: one.seconds for one in figures.layers}
    wait, compute = times["fetch data"], times["compute"]
    if not wait or not compute:
        return None
    share = wait / (wait + compute)
    words = f"{percent_cell(share)} of the time of steps is waiting for data ({time_cell(wait)} a rank)"
    return Measure(share, words, wait)


def straggler_lag(figures: Figures) -> Measure | None:
    """Return how much longer the straggler takes than the others."""
    one = figures.straggler
    if one is None or (one.by == "job" and not _is_of_ranks(figures)):
        return None
    share, behind, is_far = percent_cell(one.over), time_cell(one.behind), one.over > _FAR
    if one.by == "job":
        more = f"{behind} more I/O time than the median" if is_far else f"{share} more I/O time than the mean"
        words = f"{one.name} takes {more} of the others"
    else:
        longer = "" if is_far else f"takes {share} longer than the mean of the others, "
        last = f"is last in {one.last} of {count_words(one.steps, 'step')}"
        words = f"{one.name} {longer}{last}, {behind} behind the median then"
    return Measure(one.over, words, one.cost)


def mpi_wait_share(figures: Figures) -> Measure | None:
    """Return the share of the time in MPI-IO in which no file is accessed, with the file that has most of it."""
    one = figures.mpi_wait
    if one is None or not one.mpi_seconds:
        return None
    waits = f"of {time_cell(one.mpi_seconds)} in MPI-IO a mean rank waits {time_cell(one.seconds)}"
    share = one.seconds / one.mpi_seconds
    if not one.is_collective:
        why = "for locks or copies, as POSIX calls take no such time"
        return Measure(share, f"{waits} in independent calls, most for {one.file}: {why}", one.seconds, cure=_LOCKS)
    moved = f"one rank of {figures.job.ranks} moved {percent_cell(one.busiest)} of its bytes"
    causes = [f"its stripe count is {one.stripes}"] if one.stripes else []
    causes += [moved] if one.busiest >= _ONE_RANK else []
    words = (
        f"{waits} for other ranks, and no rank accesses files for more than {time_cell(one.longest)}; "
        f"most for {one.file}" + (f": {', and '.join(causes)}" if causes else "")
    )
    folder = shlex.quote(str(PurePosixPath(one.file).parent))
    cure = _STRIPE.format(folder=folder) if one.stripes == 1 else AGGREGATORS if one.stripes else ""
    return Measure(share, words, one.seconds, cure=cure)


def bytes_spread(figures: Figures) -> Measure | None:
    """Return how far the bytes that ranks read are from each other, or those that they write if none reads."""
    side, verb = ("read", "reads") if any(one.read for one in figures.ranks) else ("written", "writes")
    names = [one.name for one in figures.ranks]
    moved = spread([getattr(one, side) for one in figures.ranks], names)
    if len(names) < 2 or not moved.max or not _is_of_ranks(figures):
        return None
    if figures.mpi_wait and figures.access.collective_calls:  # bytes of aggregators are not what ranks asked for
        return None
    share = (moved.max - moved.min) / moved.max
    least = f"{moved.min_rank} {size(moved.min, 3)}: {percent_cell(share)} less"
    words = f"{moved.max_rank} {verb} {size(moved.max, 3)}, {least}"
    io = spread([one.io for one in figures.ranks], names)
    return Measure(share, words, io.max - io.mean)


def _is_of_ranks(figures: Figures) -> bool:
    """Return True if all that is compared are ranks: others, such as workers, need not do the same work."""
    return figures.job.ranks == len(figures.ranks)


def time_spread(figures: Figures) -> Measure | None:
    """Return how far the I/O times of ranks are from each other, with the bytes that they write if these differ."""
    io = figures.split.ranks["io"]
    if len(figures.ranks) < 2 or not io.max or not _is_of_ranks(figures):
        return None
    share = (io.max - io.min) / io.max
    least = f"{io.min_rank} {time_cell(io.min)}: {percent_cell(share)} less"
    words = f"I/O takes {io.max_rank} {time_cell(io.max)}, {least}"
    written = {one.name: one.written for one in figures.ranks}
    first, other = written.get(io.max_rank, 0), written.get(io.min_rank, 0)
    if first > 2 * other:
        words += f"; the first writes {size(first, 3)}, the other {size(other, 3)}"
    return Measure(share, words, io.max - io.mean)


def share_of_calls(part: str, whole: str, words: str, side: str, figures: Figures) -> Measure | None:
    """Return the share that a part of the calls of a side, read or write, has of all that tell."""
    one: Direction = getattr(figures.access, side)
    count, calls = getattr(one, part), getattr(one, whole)
    if not calls:
        return None
    sentence = f"{percent_cell(count / calls)} of {calls} {side}s {words}"
    return Measure(count / calls, sentence, _a_rank(figures, getattr(one, f"{part}_seconds")), count)


def small_time_share(side: str, figures: Figures) -> Measure | None:
    """Return the time of small calls of a side."""
    one: Direction = getattr(figures.access, side)
    total = _operation_seconds(figures)
    if not one.sized or not total:
        return None
    share = one.small_seconds / total
    words = f"{side}s below 1 MiB take {percent_cell(share)} of the time of all operations"
    return Measure(share, words, _a_rank(figures, one.small_seconds))


def again_share(side: str, verb: str, figures: Figures) -> Measure | None:
    """Return the share of bytes of a side that were moved before."""
    one: Direction = getattr(figures.access, side)
    if not one.placed or not one.bytes:
        return None
    share = one.again / one.bytes
    words = f"{size(one.bytes, 3)} {verb}, of {size(one.extents, 3)} in files: {percent_cell(share)} again"
    if one.again_in_epoch is not None and side == "read":
        words += f", {percent_cell(one.again_in_epoch / one.bytes)} within one epoch"
    if one.from_device is not None:
        # What the page cache has given again is kept in memory already.
        share = min(max(one.from_device - one.extents, 0) / one.bytes, share)
        words += f"; {percent_cell(share)} again by the device, which gave {size(one.from_device, 3)}"
    return Measure(share, words, _a_rank(figures, one.seconds * share))


def metadata_seconds(figures: Figures) -> Measure | None:
    """Return the longest time of a rank in operations that move no bytes."""
    if not figures.ranks:
        return None
    slowest = max(figures.ranks, key=lambda one: one.metadata)
    words = f"{slowest.name} spends {time_cell(slowest.metadata)} in opens, closes and other calls without bytes"
    return Measure(slowest.metadata, words, _a_rank(figures, sum(one.metadata for one in figures.ranks)))


def _operation_seconds(figures: Figures) -> float:
    """Return the sum of the durations of all operations on files."""
    access = figures.access
    return access.read.seconds + access.write.seconds + sum(one.metadata for one in figures.ranks)


def metadata_share(figures: Figures) -> Measure | None:
    """Return the share of the time of operations that moves no bytes."""
    total, metadata = _operation_seconds(figures), sum(one.metadata for one in figures.ranks)
    if not total:
        return None
    words = f"{percent_cell(metadata / total)} of the time of all operations moves no bytes: opens, closes, stats"
    return Measure(metadata / total, words, _a_rank(figures, metadata))


def share_of_mpi_calls(kind: str, whole: str, where: str, time: str, figures: Figures) -> Measure | None:
    """Return the share of some calls by MPI-IO that are not of a kind, collective or nonblocking.

    It concerns a time of a mean rank, a field of `Split`, less its waits in MPI-IO, which have a cause of their own.
    """
    calls: int = getattr(figures.access, whole)
    if not calls:
        return None
    share = getattr(figures.access, f"{kind}_calls") / calls
    cost = figures.split.ranks[time].mean - (figures.mpi_wait.seconds if figures.mpi_wait else 0.0)
    words = f"{percent_cell(share)} of {calls} MPI-IO calls{where} are {kind}"
    return Measure(1 - share, words, max(cost, 0.0), calls)


def stdio_share(figures: Figures) -> Measure | None:
    """Return the share of bytes that stdio moves."""
    moved = figures.access.read.bytes + figures.access.write.bytes
    if not moved:
        return None
    share = figures.access.stdio_bytes / moved
    return Measure(share, f"{percent_cell(share)} of {size(moved, 3)} are moved by stdio (fread, fwrite)")


def mix_share(figure: str, word: str, figures: Figures) -> Measure | None:
    """Return the difference between reads and writes in a figure."""
    read, written = (getattr(one, figure) for one in (figures.access.read, figures.access.write))
    if not read + written:  # or if no size is known
        return None
    side, most = max(("read", read), ("written" if figure == "bytes" else "write", written), key=lambda one: one[1])
    words = f"{percent_cell(most / (read + written))} of {word} are {side}{'s' if figure == 'count' else ''}"
    return Measure(abs(read - written) / (read + written), words)
