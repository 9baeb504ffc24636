"""Meters of I/O threads: a thread records its calls without locks, with one list append a call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field
from threading import local
from time import perf_counter_ns
from typing import TypeVar

import numpy as np

from dliosim.measure.rank.histogram import Histogram
from dliosim.measure.rank.time_series import EpochSeries
from dliosim.measure.reducer import Ints
from dliosim.trace.calls import Call
from dliosim.trace.recorder import CallLog, PlannedCalls, open_log

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Meter:
    """Counts and times of one thread's calls, in nanoseconds and bytes.

    Read calls one after the other go into `stamps` (`add_run`). Calls with several in flight go into `spans`
    (`add_overlapping`). A meter has only one of the two.
    """

    #: paths of files by number, for a run that is recorded
    path: InitVar[Callable[[int], str] | None] = None
    #: what reads as planned, for a run that is recorded
    planned: InitVar[Call] = Call.READ
    #: the log of the calls, one by one, in a run that is recorded; None in others
    log: CallLog | None = field(init=False)
    #: latencies of write calls that `take_latencies` has not taken yet
    call_ns: list[int] = field(default_factory=list)
    #: read calls in runs: the clock before a run, negated, then the clock after each of its calls
    stamps: list[int] = field(default_factory=list)
    #: read calls with several in flight: begins, ends, and the bound for later begins
    spans: list[tuple[Ints, Ints, int]] = field(default_factory=list)
    #: returns the numbers of the data sets that have some files, for a loop over several; None for other loops
    source_of: Callable[[Ints], Ints] | None = None
    #: rows of the plan that runs read, in a loop over several data sets; None for a reader that does not say
    read_rows: list[tuple[PlannedCalls, int, int] | None] = field(default_factory=list)
    #: data sets of the calls whose times were taken; -1 for a call that read several
    sources: list[Ints] = field(default_factory=list)
    #: how the calls are made, if a reader can choose
    how: str = ""
    #: number of calls
    calls: int = 0
    #: bytes that calls moved, alignment included where the backend knows it; else the bytes asked
    moved: int = 0
    #: ns in which at least one read call ran
    read_ns: int = 0
    #: end of the latest call in `spans`
    reached: int = 0
    #: files opened
    opens: int = 0
    #: ns of opening them
    open_ns: int = 0
    #: ns of closing them
    close_ns: int = 0
    #: ns of setting MPI-IO file views
    view_ns: int = 0
    #: ns of fsync
    sync_ns: int = 0

    def __post_init__(self, path: Callable[[int], str] | None, planned: Call) -> None:
        self.log = None if path is None else open_log(path, planned)

    @property
    def io_call_ns(self) -> int:
        """Return the ns that the thread spent in calls that read: opening, setting views, reading, closing."""
        return self.read_ns + self.open_ns + self.close_ns + self.view_ns

    def add_run(self, began: int, stamps: Sequence[int], rows: PlannedCalls | None = None) -> None:
        """Record calls made one after the other, at least one: the clock before them, and after each of them.

        `rows` are the rows of the plan that they read: one row a call, or all rows in one call.
        """
        self._note_rows(rows)
        self.stamps.extend([-began, *stamps])
        self.read_ns += stamps[-1] - began

    def _note_rows(self, rows: PlannedCalls | None) -> None:
        """Note the rows that a run read, before its times: the thread that takes these has no lock."""
        if self.log is not None and rows is not None:
            self.log.add_rows(rows)
        self.note_sources(rows)

    def note_sources(self, rows: PlannedCalls | None) -> None:
        """Note the rows of a run for the data sets of its calls, in a loop over several."""
        if self.source_of is not None:
            self.read_rows.append(None if rows is None else (rows.whole or rows, rows.first, len(rows.file)))

    def log_call(self, call: Call, began: int, file: int = 0) -> None:
        """Record a call that has just ended, without bytes, if calls are recorded: the clock before it, its file."""
        if self.log is not None:
            self.log.add_call(call, began, file)

    def add_write(self, call: Call, began: int, offset: int, asked: int, wrote: int) -> None:
        """Record a write call that has just ended: the clock before it, and its bytes."""
        ended = perf_counter_ns()
        self.call_ns.append(ended - began)
        self.calls += 1
        self.moved += wrote
        if self.log is not None:
            self.log.add_call(call, began, 0, offset, asked, wrote, ended=ended)
            self.log.make_room()

    def add_overlapping(
        self, begin: Ints, end: Ints, since: int | None = None, rows: PlannedCalls | None = None
    ) -> None:
        """Record calls by the clock readings of their begins and ends, in any order; at least one. `rows` as `add_run`.

        `since` is the start of the first call that is still in flight; no later record may begin before it. None if no
        call is in flight: then no later record may begin before the last of these ended.
        """
        self._note_rows(rows)
        first, last = max(int(begin.min()), self.reached), int(end.max())
        self.read_ns += max(0, last - first)
        self.reached = max(self.reached, last)
        self.spans.append((begin, end, last if since is None else since))

    def take_latencies(self) -> Ints:
        """Return the latencies recorded since the last time, in ns; safe while another thread appends."""
        single = np.array(_pop_all(self.call_ns), np.int64)
        latencies, _, _ = self.take_intervals()
        return np.concatenate([single, latencies]) if len(single) else latencies

    def take_intervals(self) -> tuple[Ints, Ints, int]:
        """Return the read calls since the last time: latencies (n,), intervals (2, m), and a time, in ns.

        No later call begins before that time; 0 if there are no calls.
        """
        spans = _pop_all(self.spans)
        if not spans:
            return self._take_runs()
        begin, end = (np.concatenate([span[edge] for span in spans]) for edge in (0, 1))
        self._take_sources([len(span[0]) for span in spans])
        if self.log is not None:
            self.log.add_times(begin, end, np.array([len(span[0]) for span in spans]))
        return end - begin, np.stack([begin, end]), spans[-1][2]

    def _take_sources(self, counts: Sequence[int] | Ints) -> None:
        """Add the data sets of the calls of the next runs, `counts` calls each, to `sources`."""
        if self.source_of is None:
            return
        runs = self.read_rows[: len(counts)]
        del self.read_rows[: len(counts)]
        for run, calls in zip(runs, counts, strict=True):
            found = np.full(calls, -1)
            if run is not None:
                whole, first, rows = run
                read = self.source_of(whole.file[first : first + rows])
                if rows == calls or (read == read[0]).all():
                    found[:] = read if rows == calls else read[0]
            self.sources.append(found)

    def _take_runs(self) -> tuple[Ints, Ints, int]:
        """Return the same as `take_intervals`, from `stamps`: one interval for each run of calls."""
        stamps = _pop_all(self.stamps)
        if not stamps:
            return np.empty(0, np.int64), np.empty((2, 0), np.int64), 0
        edges = np.fromiter(stamps, np.int64, len(stamps))
        begins = edges < 0
        np.abs(edges, out=edges)
        first = np.flatnonzero(begins)
        last = np.append(first[1:], len(edges)) - 1
        single = ~begins[1:]
        self._take_sources(last - first)
        if self.log is not None:
            self.log.add_times(edges[:-1][single], edges[1:][single], last - first)
        return np.diff(edges)[single], np.stack([edges[first], edges[last]]), int(edges[-1])


def _pop_all(values: list[T]) -> list[T]:
    # Keep the list object: the reader's thread holds it for a whole step, and would append to a list already taken.
    taken = values[:]
    del values[: len(taken)]
    return taken


class MeterGroup:
    """The meters of a rank's readers: latencies of one epoch, and the time with any reader in a call."""

    def __init__(self, meters: Sequence[Meter], sources: int = 0) -> None:
        """Begin an epoch of a loop; `sources` is the number of its data sets, if they are several."""
        self._meters = meters
        #: latencies of the calls that read each of several data sets
        self.by_source = [Histogram() for _ in range(sources)]
        self._open = np.empty((2, 0), np.int64)
        self._reached = [0] * len(meters)

    def sum_counts(self) -> dict[str, int]:
        """Return the counts of all calls so far, by their names in `EpochRecord`."""
        names = {"calls": "calls", "bytes_moved": "moved", "opens": "opens", "view_ns": "view_ns"}
        counts = {name: sum(getattr(meter, own) for meter in self._meters) for name, own in names.items()}
        return counts | {"open_ns": sum(meter.open_ns + meter.close_ns for meter in self._meters)}

    def collect_busy(self, latencies: Histogram, series: EpochSeries | None = None) -> int:
        """Move latencies into a histogram; return the ns in which at least one reader was in a call.

        Each ns counts once over all calls of this method. Intervals that other readers' calls may still overlap stay
        for the next call. `series` records the times of the calls.
        """
        runs = [self._open]
        for number, meter in enumerate(self._meters):
            taken, made, reached = meter.take_intervals()
            latencies.add(taken)
            if self.by_source and len(taken):
                source = np.concatenate(_pop_all(meter.sources))
                for one, histogram in enumerate(self.by_source):
                    histogram.add(taken[source == one])
            if made.size:
                self._reached[number] = reached
                runs.append(made)
                if series is not None:
                    series.add_reads(number, made)
        begin, end = np.concatenate(runs, axis=1)
        until = min(self._reached)
        done, left = begin < until, end > until
        self._open = np.stack([np.maximum(begin[left], until), end[left]])
        return _union_length(begin[done], np.minimum(end[done], until), series)

    def collect_rest(self, series: EpochSeries | None = None) -> int:
        """Return the ns that the last `collect_busy` left over, once no reader makes calls any more."""
        begin, end = self._open
        self._open = np.empty((2, 0), np.int64)
        return _union_length(begin, end, series)


def _union_length(begin: Ints, end: Ints, series: EpochSeries | None) -> int:
    """Return the length of the union of intervals in ns, and record the union in `series`."""
    if not len(begin):
        return 0
    order = np.argsort(begin)
    begin, reached = begin[order], np.maximum.accumulate(end[order])
    gaps = begin[1:] > reached[:-1]
    union = np.stack([begin[np.append(True, gaps)], reached[np.append(gaps, True)]])
    if series is not None:
        series.add_busy(union)
    return int((union[1] - union[0]).sum())


class _Innermost(local):
    """The stopwatch of each thread that runs innermost."""

    watch: Stopwatch | None = None


_thread = _Innermost()


class Stopwatch:
    """Adds the ns of a `with` block to a column of a record (or to a time of a meter).

    With `aside` no stopwatch around the block counts its time: they all stand still, as the clock of a save does while
    the contents are made. Stopwatches nest within one thread. One costs a microsecond: too much for each small file, so
    writers read the clock themselves there.
    """

    __slots__ = ("_apart_ns", "_aside", "_begun", "_column", "_outer", "_record")

    def __init__(self, record: object, column: str, aside: bool = False) -> None:
        self._record, self._column, self._aside = record, column, aside

    def __enter__(self) -> None:
        self._outer, _thread.watch = _thread.watch, self
        self._apart_ns, self._begun = 0, perf_counter_ns()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        spent, record, column, outer = perf_counter_ns() - self._begun, self._record, self._column, self._outer
        setattr(record, column, getattr(record, column) + spent - self._apart_ns)
        _thread.watch = outer
        if outer is not None:
            outer._apart_ns += spent if self._aside else self._apart_ns
