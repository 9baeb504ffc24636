"""Figures from Darshan's counters, which are sums for each file and rank, and know no single call.

Counters of a file that all ranks use are of all of them together; here each rank has an equal part, but for the time
of the slowest and the fastest rank, which Darshan has. If a log has DXT, times are those of its calls; counts and
bytes are those of the counters, which miss no call.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dliosim.analyze.arrays import Bools, Floats, Ints
from dliosim.analyze.figures.access import ALIGNMENT, SMALL, Access, Direction
from dliosim.analyze.figures.breakdown import FileKind, Function, sum_kinds
from dliosim.analyze.figures.job import Figures, MpiWait, pipe_notes
from dliosim.analyze.figures.ranks import Rank, find_slowest
from dliosim.analyze.figures.time_split import Split, TimeSplit, spread
from dliosim.analyze.figures.view import View, find_pipes, find_purpose
from dliosim.analyze.read.darshan.counters import BINS, METADATA, MPI_CALLS, SIDES, TIMES, FileCounters, LogTrace
from dliosim.readable import count as count_words
from dliosim.readable import seconds as time_words

#: Seconds above which a mean open or stat waits for something else than a file system.
_LONGEST_OPEN: Final = 10.0

_SMALL_BINS: Final = 5

_COLLECTIVE: Final = ("COLL_READS", "COLL_WRITES", "SPLIT_READS", "SPLIT_WRITES")
#: Modules with sizes of calls.
_SIZED: Final = ("POSIX", "DFS", "DAOS")

#: The counters of a module that a log does not have.
_NOTHING: Final = FileCounters("", np.zeros(0, np.int32), np.zeros(0, np.int32), {}, {})

_NO_METADATA: Final = "DXT has reads and writes alone: I/O in the time split is without opens and stats"


def add_counters(view: View, figures: Figures) -> Figures:
    """Return the figures with those that the counters of a Darshan log say better than its events."""
    if not isinstance(view.trace, LogTrace):
        return figures
    whole = {one.module: one for one in view.trace.counters}
    tables, notes = _leave_out_waits(whole, figures)
    # POSIX is below MPI-IO, and DAOS below DFS; STDIO's calls are not among those of POSIX.
    bases = [tables[name] for name in ("POSIX", "STDIO", "DFS") if name in tables]
    if "DAOS" in tables and "DFS" not in tables:
        bases.append(tables["DAOS"])
    if "MPI-IO" in tables and not {"POSIX", "DFS", "DAOS"} & set(tables):
        bases.append(tables["MPI-IO"])
    if not bases:
        return figures
    has_events = len(view.events) > 0
    ranks, waits = _list_ranks(figures, bases, tables, has_events)
    job = replace(
        figures.job,
        notes=(*notes, *figures.job.notes, *([_NO_METADATA] if has_events else [])),
        operations=sum(one.operations for one in ranks),
        time_by_slowest=min(_time_by_slowest(bases, len(ranks), figures.job.ranks), figures.job.seconds),
    )
    found = replace(
        figures,
        job=job,
        access=_describe_access(bases, tables.get("MPI-IO", _NOTHING), figures.job.ranks),
        files=_list_files(bases),
        functions=_list_functions(list(tables.values())),
        ranks=ranks,
        mpi_wait=waits,
    )
    if has_events:
        return found
    return replace(found, split=_split_time(figures.job.seconds, ranks), straggler=find_slowest(ranks))


def _leave_out_waits(whole: dict[str, FileCounters], figures: Figures) -> tuple[dict[str, FileCounters], list[str]]:
    """Return the counters without pipes and without opens longer than any file system's, and sentences on both.

    An open of a named pipe waits for its peer, on any number of threads at once. If the log does not show the names,
    opens and stats of a rank together are longer than the job then.
    """
    tables, pipes, waited, odd, lost = {}, set(), 0.0, 0, 0.0
    for name, one in whole.items():
        is_pipe = np.append(find_pipes(one.files), False)[one.file]
        pipes |= {one.files[number] for number in np.unique(one.file[is_pipe]).tolist()}
        waited += float(one.time(*TIMES)[is_pipe].sum())
        one = one.select(~is_pipe)
        metadata = one.time("F_META_TIME")
        if metadata.sum() > max(figures.job.ranks, 1) * figures.job.seconds:
            is_long = metadata > _LONGEST_OPEN * np.maximum(one.count(*METADATA), 1)
            odd, lost = odd + int(is_long.sum()), lost + float(metadata[is_long].sum())
            one = replace(one, seconds={**one.seconds, "F_META_TIME": np.where(is_long, 0.0, metadata)})
        tables[name] = one
    notes = list(pipe_notes(pipes, waited, figures.job.seconds))
    if odd:
        notes.append(
            f"not counted: {time_words(lost, 4)} of opens and stats of {count_words(odd, 'file')}, above "
            f"{_LONGEST_OPEN:.0f} s a call, in a job of {time_words(figures.job.seconds, 4)}: no file system takes so "
            "long; opens of named pipes wait for their peer"
        )
    return tables, notes


def _list_ranks(
    figures: Figures, bases: Sequence[FileCounters], tables: Mapping[str, FileCounters], has_events: bool
) -> tuple[tuple[Rank, ...], MpiWait | None]:
    """Return the ranks, and how long they waited in MPI-IO, which is I/O of theirs, too.

    Their I/O is no longer than the job, which sums over threads may be.
    """
    groups, ranks = len(figures.ranks), figures.job.ranks

    def add_up(values: Callable[[FileCounters], NDArray[Any]]) -> Floats:
        return sum((one.add_up(values(one), groups, ranks) for one in bases), np.zeros(groups))

    read, written = (add_up(lambda one, name=SIDES[side][1]: one.count(name)) for side in SIDES)  # type: ignore[misc]
    operations = add_up(lambda one: one.count(*METADATA) + one.calls("read") + one.calls("write"))
    metadata = add_up(lambda one: one.time("F_META_TIME"))
    times = sum((_rank_times(one, groups, ranks) for one in bases), np.zeros(groups))
    waits = None
    if "POSIX" in tables and "MPI-IO" in tables and ranks > 1:
        posix, mpi = tables["POSIX"], tables["MPI-IO"]
        both = set(posix.files) & set(mpi.files)
        inside, below = (one.select(one.is_of(both)) for one in (mpi, posix))
        accessed = _rank_times(below, groups, ranks)
        waited = np.maximum(_rank_times(inside, groups, ranks) - accessed, 0)
        times += waited
        mean, longest = float(waited.sum()) / ranks, float(accessed.max(initial=0.0))
        waits = _describe_wait(inside, below, tables.get("LUSTRE", _NOTHING), mean, longest, ranks)
    found = tuple(
        replace(
            one,
            read=round(read[at]),
            written=round(written[at]),
            operations=round(operations[at]),
            io=min(one.io + float(metadata[at]) if has_events else float(times[at]), figures.job.seconds),
            metadata=float(metadata[at]),
        )
        for at, one in enumerate(figures.ranks)
    )
    return found, waits


def _describe_wait(
    inside: FileCounters, below: FileCounters, layouts: FileCounters, waited: float, longest: float, ranks: int
) -> MpiWait | None:
    """Return the waits in MPI-IO of `waited` s a rank, with the file that has most of it; None without files.

    `longest` is the longest time of a rank in the files, s. `inside` has the files as MPI-IO sees them, `below` as
    POSIX does.
    """
    times, own = (dict(zip(one.files, one.sum_files(one.time(*TIMES)), strict=True)) for one in (inside, below))
    if not any(times.values()):
        return None
    file = max(times, key=lambda path: times[path] - own.get(path, 0.0))
    stripes = layouts.count("STRIPE_COUNT")[layouts.is_of({file})]
    moved = below.count("BYTES_READ", "BYTES_WRITTEN")
    # Of a file that all ranks use, Darshan has the bytes of the slowest and of the fastest of them.
    extremes = [below.count(f"{which}_RANK_BYTES") for which in ("SLOWEST", "FASTEST")]
    most = np.where(below.rank < 0, np.maximum(*extremes), moved)
    rows = below.is_of({file})
    total = int(moved[rows].sum())
    return MpiWait(
        waited,
        sum(times.values()) / ranks,
        file,
        bool(inside.count(*_COLLECTIVE)[inside.is_of({file})].any()),
        longest,
        int(stripes.max(initial=0)),
        int(most[rows].max()) / total if total else 0.0,
    )


def _rank_times(module: FileCounters, groups: int, ranks: int) -> Floats:
    """Return the time of each group, s; (groups,)."""
    times = module.add_up(module.time(*TIMES), groups, ranks)
    times[:ranks] += _differ(module, ranks)
    return times


def _differ(module: FileCounters, ranks: int) -> Floats:
    """Return how much longer than an equal part each rank took on the files that all ranks have together, s.

    Of each file Darshan has the slowest and the fastest rank with their times; the others have equal parts of the rest.
    """
    more = np.zeros(ranks)
    total = module.time(*TIMES)
    unknown = np.full(len(module), -1, np.int64)
    slowest, fastest = (module.counts.get(f"{which}_RANK", unknown) for which in ("SLOWEST", "FASTEST"))
    longest, shortest = (module.time(f"F_{which}_RANK_TIME") for which in ("SLOWEST", "FASTEST"))
    rest = total - longest - shortest
    # Without a rest there are two ranks, or the times are not known.
    is_known = (module.rank < 0) & (longest > 0) & (slowest != fastest)
    is_known &= (np.minimum(slowest, fastest) >= 0) & (np.maximum(slowest, fastest) < ranks)
    is_known &= (rest >= 0) if ranks > 2 else np.abs(rest) <= 1e-6 * total
    each = np.where(is_known, rest / max(ranks - 2, 1) * (ranks > 2), 0.0)[is_known]
    more += (each - total[is_known] / max(ranks, 1)).sum()
    np.add.at(more, slowest[is_known], longest[is_known] - each)
    np.add.at(more, fastest[is_known], shortest[is_known] - each)
    return more


def _time_by_slowest(bases: Sequence[FileCounters], groups: int, ranks: int) -> float:
    """Return the longest time of a rank on its own files + the slowest rank's on each shared file, as Darshan does."""
    own, shared = np.zeros(groups), 0.0
    for one in bases:
        total, is_own = one.time(*TIMES), one.rank >= 0
        own += np.bincount(one.rank[is_own], total[is_own], groups)
        longest = one.time("F_SLOWEST_RANK_TIME")
        # Without the slowest rank's time an equal part is what is known.
        shared += float(np.where(longest > 0, longest, total / max(ranks, 1))[~is_own].sum())
    return float(own.max(initial=0.0)) + shared


def _describe_access(bases: Sequence[FileCounters], mpi: FileCounters, ranks: int) -> Access:
    shared = {path for one in bases for path in _shared_files(one)}
    on_shared, calls = mpi.is_of(shared | _shared_files(mpi)), mpi.count(*MPI_CALLS)
    stdio = [one for one in bases if one.module == "STDIO"]
    return Access(
        _describe(bases, "read", shared, ranks),
        _describe(bases, "write", shared, ranks),
        int(sum(one.count("RW_SWITCHES").sum() for one in bases)),
        len({path for one in bases for path in one.files}),
        len(shared),
        int(calls.sum()),
        int(calls[on_shared].sum()),
        int(mpi.count("COLL_READS", "COLL_WRITES")[on_shared].sum()),
        int(mpi.count("NB_READS", "NB_WRITES").sum()),
        int(sum(one.count("BYTES_READ", "BYTES_WRITTEN").sum() for one in stdio)),
    )


def _shared_files(module: FileCounters) -> set[str]:
    """Return the files that several ranks use."""
    rows = np.bincount(module.file, minlength=len(module.files))
    several = set(module.file[module.rank < 0].tolist()) | set(np.flatnonzero(rows > 1).tolist())
    return {module.files[file] for file in several}


def _describe(bases: Sequence[FileCounters], side: str, shared: set[str], ranks: int) -> Direction:
    """Return the figures of one direction; the calls of a file and rank are taken to be equally long.

    Times of random and misaligned calls are taken as their share of all calls.
    """
    name, moved, furthest, time = SIDES[side]
    other = "write" if side == "read" else "read"
    count = bytes_moved = on_shared = sized = small = 0
    seconds = small_seconds = 0.0
    bins, common = np.zeros(len(BINS), np.int64), Counter[int]()
    for one in bases:
        calls = one.calls(side)
        count += int(calls.sum())
        seconds += float(one.time(time).sum())
        bytes_moved += int(one.count(moved).sum())
        on_shared += int(calls[one.is_of(shared)].sum())
        if one.module in _SIZED:
            is_alone, of_rows = one.calls(other) == 0, [one.count(f"SIZE_{side.upper()}_{each}") for each in BINS]
            sized += int(calls.sum())
            bins += [int(column.sum()) for column in of_rows]
            common += _common_sizes(one, is_alone)
            small_rows = sum(of_rows[:_SMALL_BINS])
            small_rows -= np.minimum(_count_size(one, SMALL) * is_alone, of_rows[_SMALL_BINS - 1])
            small += int(small_rows.sum())
            small_seconds += float((one.time(time) * (small_rows / np.maximum(calls, 1)).clip(0, 1)).sum())
    # Only POSIX has order and alignment.
    posix = next((one for one in bases if one.module == "POSIX"), _NOTHING)
    calls = posix.calls(side)
    placed, sequential = int(calls.sum()), int(posix.count(f"SEQ_{name}").sum())
    # Each rank has a first call on a file that all use; Darshan counts the first call at offset 0 as no sequential one.
    first = min(int(np.minimum(calls, np.where(posix.rank < 0, ranks, 1)).sum()), max(placed - sequential, 0))
    random = max(placed - sequential - first, 0)
    share = calls / np.maximum(calls + posix.calls(other), 1)
    misaligned = round(float((posix.count("FILE_NOT_ALIGNED") * share).sum()))
    # Bytes above the byte furthest behind in the file, over all ranks.
    ends = np.zeros(len(posix.files), np.int64)
    np.maximum.at(ends, posix.file, posix.count(furthest) + (calls > 0))
    again = int(np.maximum(posix.sum_files(posix.count(moved)) - ends, 0).sum())
    mean = bytes_moved / count if count else None
    each = seconds / count if count else 0.0
    commonest = sorted(common.items(), key=lambda pair: (-pair[1], pair[0]))[:4]
    return Direction(
        count=count,
        bytes=bytes_moved,
        seconds=seconds,
        sized=sized,
        mean=mean,
        bins=tuple(bins.tolist()),
        common=tuple(commonest),
        small=small,
        small_seconds=small_seconds,
        first=first,
        consecutive=int(posix.count(f"CONSEC_{name}").sum()),
        sequential=sequential,
        random=random,
        random_seconds=random * each,
        placed=placed,
        misaligned=misaligned,
        misaligned_seconds=misaligned * each * ALIGNMENT / ((mean or 0.0) + ALIGNMENT),
        again=again,
        again_in_epoch=None,
        shared=on_shared,
        extents=bytes_moved - again,
    )


def _common_sizes(one: FileCounters, is_alone: Bools) -> Counter[int]:
    """Return the commonest sizes with their calls, of the rows with one direction: Darshan does not say which it is."""
    found: Counter[int] = Counter()
    for sizes, counts in one.common_sizes():
        for size, count in zip(sizes[is_alone].tolist(), counts[is_alone].tolist(), strict=True):
            found[size] += count
    return found


def _count_size(one: FileCounters, size: int) -> Ints:
    """Return the calls of a size in each row, as far as it is among the commonest."""
    return sum((counts * (sizes == size) for sizes, counts in one.common_sizes()), np.zeros(len(one), np.int64))


def _list_files(bases: Sequence[FileCounters]) -> tuple[FileKind, ...]:
    paths = [path for one in bases for path in one.files]
    columns: list[tuple[float, ...]] = []
    for one in bases:
        counts = (("OPENS", "INDEP_OPENS", "COLL_OPENS"), METADATA, ("BYTES_READ",), ("BYTES_WRITTEN",))
        rows = [*(one.count(*names) for names in counts), one.time(*TIMES)]
        columns += zip(*map(one.sum_files, rows), strict=True)
    return sum_kinds(paths, [find_purpose(path) for path in paths], columns)


def _list_functions(modules: Sequence[FileCounters]) -> tuple[Function, ...]:
    """Return reads, writes and all other calls of each module; quantiles are not known."""
    found = []
    for one in modules:
        calls = [
            (f"{side}s", side, one.calls(side), one.time(time), int(one.count(moved).sum()))
            for side, (_, moved, _, time) in SIDES.items()
        ]
        calls.append(("opens, stats, ...", "metadata", one.count(*METADATA), one.time("F_META_TIME"), 0))
        for name, kind, counts, times, moved in calls:
            about = f"{one.module} {name}", one.module.lower(), kind
            quantiles = math.nan, math.nan, math.nan
            found.append(Function(*about, int(counts.sum()), float(times.sum()), moved, None, *quantiles))
    return tuple(sorted((one for one in found if one.count), key=lambda one: (-one.seconds, one.name)))


def _split_time(seconds: float, ranks: Sequence[Rank]) -> TimeSplit:
    """Return the time split of ranks; no counter says which calls were at once, so the union is not known."""
    names = [one.name for one in ranks]
    splits = [Split(seconds, one.io, 0.0, 0.0, one.io, 0.0, math.nan) for one in ranks]
    by_rank = {name: spread([getattr(one, name) for one in splits], names) for name in Split.__dataclass_fields__}
    return TimeSplit(by_rank, Split(seconds, math.nan, 0.0, 0.0, math.nan, 0.0, math.nan), False, True)
