"""The recorder of one rank: threads append their calls without locks, the main thread makes columns of them.

A call costs two clock readings that its meter makes anyway. The plan tells what it read or wrote: an entry holds the
plan's rows for its calls, and columns are made of many entries at a time, between two steps.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dliosim.trace.calls import NAMES, Call
from dliosim.trace.events import UNKNOWN, kind_number

if TYPE_CHECKING:
    from dliosim.trace.columns import ColumnBuffer
    from dliosim.trace.cut import TraceCut

T = TypeVar("T")

#: Numbers of threads from here on are those of saves in the background; readers have 1 and more.
BACKGROUND = 1000

#: Calls that are no rows of a plan, at most, before columns are made of them, 600 B each.
_MOST_CALLS = 1 << 15


class PlannedCalls(Protocol):
    """Rows of a plan, as `plan.samples.io_requests.Calls`."""

    @property
    def file(self) -> NDArray[np.int64]:
        """Number of the file, (calls,)."""

    @property
    def offset(self) -> NDArray[np.int64]:
        """First byte, (calls,)."""

    @property
    def length(self) -> NDArray[np.int64]:
        """Bytes, (calls,)."""

    @property
    def step_start(self) -> NDArray[np.int64]:
        """First call of each step, (steps + 1,)."""

    @property
    def first(self) -> int:
        """Number of the first of these calls among those of `whole`."""

    @property
    def whole(self) -> Any:
        """The calls that these are a part of; None if they are all."""


class _PlannedRuns(NamedTuple):
    """Calls of one thread whose bytes the plan knows, in runs: of the same batch, or of a part of it."""

    log: CallLog
    #: rows that each run read: the plan, number of the first, and how many; (runs,)
    rows: list[tuple[PlannedCalls, int, int]]
    #: begin and end of each call, (calls,)
    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    #: calls of each run: one a row, or one for all rows, (runs,)
    counts: NDArray[np.int64]
    #: (run, call in it, bytes, end) of calls that returned less than was asked
    short: list[tuple[int, int, int, int]]


class _SingleCall(NamedTuple):
    """One call that is not in the plan, by the columns that it has."""

    log: CallLog
    call: Call
    file: int
    offset: int
    asked: int
    moved: int
    began: int
    ended: int


class CallLog:
    """The calls of one reader or writer, for the recorder that made it.

    Its meter has the clock readings of planned calls, and gives them when it is asked for them (`add_times`).
    """

    __slots__ = ("_entries", "_files", "_made", "_path", "_recorder", "_rows", "_short", "_timed", "call", "thread")

    def __init__(self, recorder: CallCollector, path: Callable[[int], str], planned: Call, thread: int) -> None:
        #: number of the thread that makes the calls, as in `Events.thread`
        self.thread = thread
        #: the call that reads what is planned
        self.call = planned
        self._recorder, self._entries, self._path = recorder, recorder.entries, path
        self._files: dict[int, int] = {}
        self._rows: list[tuple[PlannedCalls, int, int]] = []
        self._short: list[tuple[int, int, int, int]] = []
        # Runs so far, and those of them whose times are known.
        self._made = self._timed = 0

    def add_rows(self, rows: PlannedCalls) -> None:
        """Note the rows of a run, before its meter has its times: a call for each row, or one for all."""
        # Not the rows themselves: they are views, made for a batch, and many of them would fill the caches.
        self._rows.append((rows.whole or rows, rows.first, len(rows.file)))
        self._made += 1

    def add_short(self, call: int, moved: int, ended: int) -> None:
        """Note that a call of the next run returned only `moved` bytes, at `ended`."""
        self._short.append((self._made, call, moved, ended))

    def take_rows(self) -> tuple[list[tuple[int, int]], list[tuple[int, int, int, int]]]:
        """Return and forget the runs without times: first row and rows of each, and what `add_short` noted of them."""
        rows, short = [(first, size) for _, first, size in self._rows], self._short
        self._rows, self._short, self._made = [], [], 0
        return rows, short

    def add_times(self, begin: NDArray[np.int64], end: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Record runs by the times of their calls, in the order of their rows; `counts` (runs,) calls each."""
        rows, first = self._rows[: len(counts)], self._timed
        del self._rows[: len(counts)]
        self._timed += len(counts)
        short = [(run - first, call, moved, at) for run, call, moved, at in self._short if run < self._timed]
        del self._short[: len(short)]
        self._entries.append(_PlannedRuns(self, rows, begin, end, counts, short))

    def add_call(
        self,
        call: Call,
        began: int,
        file: int = 0,
        offset: int = UNKNOWN,
        asked: int = UNKNOWN,
        moved: int = UNKNOWN,
        ended: int = 0,
    ) -> None:
        """Record one call, which ended at `ended`, or now."""
        self._entries.append(_SingleCall(self, call, file, offset, asked, moved, began, ended or perf_counter_ns()))

    def make_room(self) -> None:
        """Make columns of the calls so far if they are many; no call may be timed during these milliseconds.

        Loops collect their calls more often, but a verb may write any number of files.
        """
        if len(self._entries) >= _MOST_CALLS:
            self._recorder.collect_on_main_thread()

    def follow(self, call: Call, files: Iterable[int], results: Iterable[T]) -> Iterator[T]:
        """Yield results of calls, one of each file, made as they are asked for, and record the calls."""
        began = perf_counter_ns()
        for file, result in zip(files, results, strict=False):
            self.add_call(call, began, file)
            yield result
            began = perf_counter_ns()

    def file_of(self, number: int, table: dict[str, int]) -> int:
        """Return the index of a file in `table`, which gets its path if it lacks it."""
        found = self._files.get(number)
        if found is None:
            found = UNKNOWN if number < 0 else table.setdefault(self._path(number), len(table))
            self._files[number] = found
        return found


class _CallingThread(threading.local):
    """The calling thread; its `number` is as in `Events.thread`."""

    # Not by `get_ident`: a thread that begins may have the identity of one that has ended.
    number: int | None = None


class CallCollector:
    """The calls and spans of the threads of a process; a reader process sends them to its rank, which collects them."""

    def __init__(self) -> None:
        #: calls that are in no column yet; any thread appends to them
        self.entries: list[_PlannedRuns | _SingleCall] = []
        #: what readers did next to calls: kind, thread, begin, end, step
        self.noted: list[tuple[str, int, int, int, int]] = []
        self._thread = _CallingThread()
        self._thread.number = 0
        self._background = itertools.count(BACKGROUND)

    def open_log(self, path: Callable[[int], str], planned: Call) -> CallLog:
        """Make a log of a reader or writer: the paths of its files by number, and the call that reads what is planned.

        Its thread is the calling one.
        """
        return CallLog(self, path, planned, self._find_thread())

    def number_thread(self, thread: int) -> None:
        """Give the calling thread its number; it is a reader."""
        self._thread.number = thread

    def note_span(self, kind: str, begin: int, end: int, step: int) -> None:
        """Record an activity of the calling thread for a step, from 0. For any thread."""
        self.noted.append((kind, self._find_thread(), begin, end, step + 1))

    def take_noted(self) -> tuple[list[tuple[int, ...]], list[tuple[str, int, int]]]:
        """Return and forget single calls, as arguments of `CallLog.add_call`, and spans: kind, begin, end."""
        calls: list[tuple[int, ...]] = [
            (int(one.call), one.began, one.file, one.offset, one.asked, one.moved, one.ended)
            for one in self.entries
            if isinstance(one, _SingleCall)
        ]
        spans = [(kind, begin, end) for kind, _, begin, end, _ in self.noted]
        self.entries.clear()
        self.noted.clear()
        return calls, spans

    def collect_on_main_thread(self) -> None:
        """Make columns of the calls so far, if the calling thread is the main one and columns are made here."""

    def _find_thread(self) -> int:
        """Return the number of the calling thread: one that has none saves in the background."""
        if self._thread.number is None:
            self._thread.number = next(self._background)
        return self._thread.number


class Recorder(CallCollector):
    """The recording of one rank.

    Methods are for the main thread; `CallLog` for any. `calls` and `spans` have the columns of what is collected.
    """

    def __init__(self, cut: TraceCut, origin: int, calls: ColumnBuffer, spans: ColumnBuffer) -> None:
        super().__init__()
        #: what is recorded
        self.cut = cut
        #: the clock reading that times count from
        self.origin = origin
        #: columns of calls, and of what the main thread did
        self.calls, self.spans = calls, spans
        #: paths of files, with their indices
        self.files: dict[str, int] = {}
        #: names of events, with their indices; those of calls first
        self.names: dict[str, int] = {name: number for number, name in enumerate(NAMES)}
        #: calls that were made if no log could see them: by a format's library, or a backend of another package
        self.unseen = 0
        self._epoch = self._steps_done = 0

    def begin_epoch(self, epoch: int) -> None:
        """Begin an epoch of a loop, from 1."""
        self.collect()
        self._epoch, self._steps_done = epoch, 0

    def end_epoch(self, name: str, begin: int, end: int) -> None:
        """End an epoch of the loop `name`, from `begin` to `end` on this rank's clock."""
        self.collect()
        self.add_span("epoch", f"epoch of {name}", begin, end)
        self._epoch = 0
        self.calls.compress()
        self.spans.compress()

    def add_span(self, kind: str, name: str, begin: int, end: int) -> None:
        """Record a whole activity of the main thread."""
        self._add_spans(kind, name, np.array([begin]), np.array([end]), np.array([UNKNOWN]))

    def add_steps(self, marks: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]) -> None:
        """Record the next steps of the epoch: begins and ends of the parts of each, by their kinds; (steps,)."""
        count = max((len(begin) for begin, _ in marks.values()), default=0)
        step = np.arange(self._steps_done + 1, self._steps_done + count + 1)
        self._steps_done += count
        for kind, (begin, end) in marks.items():
            some = end > begin
            self._add_spans(kind, kind, begin[some], end[some], step[some])

    def collect(self) -> None:
        """Make columns of the calls so far."""
        entries = self.entries[:]
        # Other threads append to this list at any time.
        del self.entries[: len(entries)]
        noted = self.noted[:]
        del self.noted[: len(noted)]
        for kind in dict.fromkeys(one[0] for one in noted):
            thread, begin, end, step = np.array([one[1:] for one in noted if one[0] == kind], np.int64).T
            self._add_spans(kind, kind, begin, end, step, thread)
        if singles := [entry for entry in entries if isinstance(entry, _SingleCall)]:
            self._collect_singles(singles)
        for entry in entries:
            if isinstance(entry, _PlannedRuns):
                self._collect_runs(entry)

    def collect_on_main_thread(self) -> None:
        """Make columns of the calls so far, if the calling thread is the main one. For any thread."""
        if self._thread.number == 0:
            self.collect()

    def _collect_runs(self, runs: _PlannedRuns) -> None:
        """Make columns of runs of one thread."""
        wholes, first, size = zip(*runs.rows, strict=True)
        begin, end = runs.begin, runs.end
        ends = np.cumsum(runs.counts)
        begins = ends - runs.counts
        moved_less = {begins[run] + call: (moved, ended) for run, call, moved, ended in runs.short}
        whole = wholes[0]
        if all(each is whole for each in wholes) and np.array_equal(runs.counts, size):
            row = np.arange(ends[-1]) + np.repeat(np.array(first) - begins, runs.counts)
            columns = self._columns_of(runs.log, whole.file[row], whole.offset[row], whole.length[row])
            step = np.searchsorted(whole.step_start, row, "right")
        else:
            parts = [
                _one_call(*rows) if count != rows[2] else _each_row(*rows)
                for rows, count in zip(runs.rows, runs.counts.tolist(), strict=True)
            ]
            *rows, step = (np.concatenate(column) for column in zip(*parts, strict=True))
            columns = self._columns_of(runs.log, *rows)
            # One call for all rows has a row for each of its files, and these begin and end together.
            many = [len(part[0]) // count for part, count in zip(parts, runs.counts.tolist(), strict=True)]
            begin, end = (np.repeat(times, np.repeat(many, runs.counts)) for times in (begin, end))
        if moved_less:
            end, columns["moved"] = end.copy(), columns["moved"].copy()
            for at, (moved, ended) in moved_less.items():
                columns["moved"][at], end[at] = moved, ended
        columns |= {"begin": begin, "duration": end - begin}
        columns["step"] = step if self._epoch else np.full(len(end), UNKNOWN)
        self._add(self.calls, columns)

    def _columns_of(
        self, log: CallLog, file: NDArray[np.int64], offset: NDArray[np.int64], length: NDArray[np.int64]
    ) -> dict[str, NDArray[np.int64]]:
        found, place = np.unique(file, return_inverse=True)
        own = np.array([log.file_of(number, self.files) for number in found.tolist()], np.int64)
        return {
            "call": np.full(len(file), log.call),
            "thread": np.full(len(file), log.thread),
            "file": own[place] if len(own) else own,
            # A library is asked for samples, and only it knows where in the file they are.
            "offset": np.full(len(file), UNKNOWN) if log.call == Call.LIBRARY_READ else offset,
            "asked": length,
            "moved": length,
        }

    def _collect_singles(self, entries: list[_SingleCall]) -> None:
        log, call, file, offset, asked, moved, began, ended = zip(*entries, strict=True)
        begin = np.array(began)
        self._add(
            self.calls,
            {
                "call": np.array(call),
                "thread": np.array([one.thread for one in log]),
                "begin": begin,
                "duration": np.array(ended) - begin,
                "file": np.array([one.file_of(number, self.files) for one, number in zip(log, file, strict=True)]),
                "offset": np.array(offset),
                "asked": np.array(asked),
                "moved": np.array(moved),
                "step": np.full(len(entries), UNKNOWN),
            },
        )

    def _add_spans(
        self,
        kind: str,
        name: str,
        begin: NDArray[np.int64],
        end: NDArray[np.int64],
        step: NDArray[np.int64],
        thread: NDArray[np.int64] | None = None,
    ) -> None:
        count = len(begin)
        self._add(
            self.spans,
            {
                "kind": np.full(count, kind_number(kind)),
                "name": np.full(count, self.names.setdefault(name, len(self.names))),
                "thread": np.zeros(count, np.int64) if thread is None else thread,
                "begin": begin,
                "duration": end - begin,
                "step": step,
            },
        )

    def _add(self, buffer: ColumnBuffer, columns: dict[str, NDArray[np.int64]]) -> None:
        """Add the rows of these columns that the cut asks for."""
        epoch, step, cut = self._epoch or UNKNOWN, columns["step"], self.cut
        if self._epoch and not cut.epochs[0] <= epoch <= cut.epochs[1]:
            return
        rows = (step == UNKNOWN) | (step >= cut.steps[0]) & (step <= cut.steps[1])
        columns["epoch"] = np.full(len(step), epoch)
        columns["begin"] = columns["begin"] - self.origin
        buffer.add(columns if rows.all() else {name: column[rows] for name, column in columns.items()})


def _each_row(whole: PlannedCalls, first: int, size: int) -> tuple[NDArray[np.int64], ...]:
    """Return file, offset, bytes and step of rows of a plan; (size,)."""
    rows = slice(first, first + size)
    step = np.searchsorted(whole.step_start, np.arange(first, first + size), "right")
    return whole.file[rows], whole.offset[rows], whole.length[rows], step


def _one_call(whole: PlannedCalls, first: int, size: int) -> tuple[NDArray[np.int64], ...]:
    """Return lowest offset and bytes of one call in each of its files, with file and step: `UNKNOWN` without rows."""
    file, offset, length, step = _each_row(whole, first, size)
    if not size:
        return tuple(np.array([value]) for value in (UNKNOWN, UNKNOWN, 0, UNKNOWN))
    found, place = np.unique(file, return_inverse=True)
    lowest, moved = np.full(len(found), offset.max()), np.zeros(len(found), np.int64)
    np.minimum.at(lowest, place, offset)
    np.add.at(moved, place, length)
    return found, lowest, moved, np.full(len(found), step[0])


class _Process:
    """The collector of this process, while calls are recorded."""

    collector: CallCollector | None = None


def collector() -> CallCollector | None:
    """Return the collector of this process; None if nothing is recorded."""
    return _Process.collector


def recorder() -> Recorder | None:
    """Return the recorder of this rank; None if nothing is recorded."""
    one = _Process.collector
    return one if isinstance(one, Recorder) else None


def record_by(one: CallCollector | None) -> None:
    """Record from now on; None ends it."""
    _Process.collector = one


@contextmanager
def pause_recording() -> Iterator[None]:
    """Record nothing in the block."""
    one = _Process.collector
    _Process.collector = None
    try:
        yield
    finally:
        _Process.collector = one


def open_log(path: Callable[[int], str], planned: Call) -> CallLog | None:
    """Make a log of a reader or writer, as `CallCollector.open_log` does; None if nothing is recorded."""
    one = _Process.collector
    return None if one is None else one.open_log(path, planned)


def count_unseen(calls: int) -> None:
    """Count calls that no log could see, if calls are recorded."""
    if (one := recorder()) is not None:
        one.unseen += calls


def collect_calls() -> None:
    """Make columns of the calls so far, if they are recorded."""
    if (one := recorder()) is not None:
        one.collect()
