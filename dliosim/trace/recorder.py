"""The recorder of one rank: threads append their calls without locks, the main thread makes columns of them.

A call costs two clock readings that its meter makes anyway. What it read or wrote is known from the plan: an entry
holds the rows of the plan that its calls are, and columns are made of many entries at a time, between two steps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from time import perf_counter_ns
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dliosim.trace.calls import NAMES, Call
from dliosim.trace.columns import ColumnBuffer
from dliosim.trace.cut import TraceCut
from dliosim.trace.events import UNKNOWN, kind_number

T = TypeVar("T")

#: Numbers of threads from here on are those of saves in the background; readers have 1 and more.
BACKGROUND = 1000


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


class _Run(NamedTuple):
    """Calls that a thread made one after the other, or at the same time, each a row of the plan."""

    log: CallLog
    call: Call
    rows: PlannedCalls
    #: clock before the first call, and after each one; or begins and ends of all
    began: int | NDArray[np.int64]
    ended: Sequence[int] | NDArray[np.int64]
    #: (row, bytes, clock after the call) of calls that returned less than was asked
    short: Sequence[tuple[int, int, int]]


class _One(NamedTuple):
    """One call, which may be of several rows of the plan."""

    log: CallLog
    call: Call
    file: int
    offset: int
    asked: int
    moved: int
    began: int
    ended: int
    rows: PlannedCalls | None


class CallLog:
    """The calls of one reader or writer, for the recorder that made it."""

    __slots__ = ("_entries", "_files", "_path", "_short", "thread")

    def __init__(self, entries: list[_Run | _One], path: Callable[[int], str], thread: int) -> None:
        #: number of the thread that makes the calls, as in `Events.thread`
        self.thread = thread
        self._entries, self._path = entries, path
        self._files: dict[int, int] = {}
        self._short: list[tuple[int, int, int]] = []

    def add_run(
        self,
        call: Call,
        rows: PlannedCalls,
        began: int | NDArray[np.int64],
        ended: Sequence[int] | NDArray[np.int64],
        short: Sequence[tuple[int, int, int]] = (),
    ) -> None:
        """Record calls, one a row; `began` is the clock before them if one followed the other, else one a row."""
        if self._short:
            short, self._short = [*short, *self._short], []
        self._entries.append(_Run(self, call, rows, began, ended, short))

    def add_short(self, row: int, moved: int, ended: int) -> None:
        """Note that a call of the run under way, of row `row`, returned only `moved` bytes, at `ended`."""
        self._short.append((row, moved, ended))

    def add_call(
        self,
        call: Call,
        began: int,
        file: int = 0,
        offset: int = UNKNOWN,
        asked: int = UNKNOWN,
        moved: int = UNKNOWN,
        rows: PlannedCalls | None = None,
        ended: int = 0,
    ) -> None:
        """Record one call, which ended at `ended`, or now; `rows` are those of the plan that it is for."""
        self._entries.append(_One(self, call, file, offset, asked, moved, began, ended or perf_counter_ns(), rows))

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


class Recorder:
    """All that one rank records.

    Methods are for the main thread; `CallLog` for any. `calls` and `spans` have the columns of what is collected.
    """

    def __init__(self, cut: TraceCut, origin: int, calls: ColumnBuffer, spans: ColumnBuffer) -> None:
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
        self._entries: list[_Run | _One] = []
        self._epoch = self._steps_done = 0
        self._threads: dict[int, int] = {threading.get_ident(): 0}

    def open_log(self, path: Callable[[int], str]) -> CallLog:
        """Make a log of a reader or writer whose files have these paths, by number; its thread is the calling one."""
        thread = self._threads.setdefault(threading.get_ident(), BACKGROUND + len(self._threads))
        return CallLog(self._entries, path, thread)

    def begin_epoch(self, epoch: int) -> None:
        """Begin an epoch of a loop, from 1."""
        self.collect()
        self._epoch, self._steps_done = epoch, 0

    def end_epoch(self, name: str, begin: int, end: int) -> None:
        """End an epoch of the loop `name`, from `begin` to `end` on this rank's clock."""
        self.collect()
        self.add_span("epoch", name, begin, end)
        self._epoch = 0
        self.calls.compress()
        self.spans.compress()

    def add_span(self, kind: str, name: str, begin: int, end: int) -> None:
        """Record what the main thread did, as a whole."""
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
        entries = self._entries[:]
        # Other threads append to this list at any time.
        del self._entries[: len(entries)]
        wholes: dict[int, list[_Run]] = {}
        for entry in entries:
            if isinstance(entry, _Run):
                wholes.setdefault(id(entry.rows.whole or entry.rows), []).append(entry)
        for runs in wholes.values():
            self._collect_runs(runs)
        if singles := [entry for entry in entries if isinstance(entry, _One)]:
            self._collect_singles(singles)

    def _collect_runs(self, runs: list[_Run]) -> None:
        """Make columns of runs whose rows are of the same plan."""
        whole = runs[0].rows.whole or runs[0].rows
        counts = np.array([len(run.ended) for run in runs])
        first = np.array([run.rows.first for run in runs])
        before = np.cumsum(counts) - counts
        row = np.arange(counts.sum()) + np.repeat(first - before, counts)
        begin = np.empty(len(row), np.int64)
        if isinstance(runs[0].began, int):
            end = np.fromiter(chain.from_iterable(run.ended for run in runs), np.int64, len(row))
            begin[1:] = end[:-1]
            begin[before] = [run.began for run in runs]
        else:
            end = np.concatenate([np.asarray(run.ended) for run in runs])
            np.concatenate([np.asarray(run.began) for run in runs], out=begin)
        moved = whole.length[row]
        for at, run in zip(before.tolist(), runs, strict=True):
            for number, got, ended in run.short:
                moved[at + number], end[at + number] = got, ended
        numbers, file = whole.file[row], np.empty(len(row), np.int64)
        for log in dict.fromkeys(run.log for run in runs):
            mine = np.repeat([run.log is log for run in runs], counts)
            found, place = np.unique(numbers[mine], return_inverse=True)
            file[mine] = np.array([log.file_of(number, self.files) for number in found.tolist()], np.int64)[place]
        self._add_calls(
            call=np.repeat([run.call for run in runs], counts),
            thread=np.repeat([run.log.thread for run in runs], counts),
            begin=begin,
            duration=end - begin,
            file=file,
            offset=whole.offset[row],
            asked=whole.length[row],
            moved=moved,
            step=np.searchsorted(whole.step_start, row, "right") if self._epoch else np.full(len(row), UNKNOWN),
        )

    def _collect_singles(self, entries: list[_One]) -> None:
        begin = np.array([entry.began for entry in entries])
        step = np.full(len(entries), UNKNOWN)
        planned = [(at, entry.rows) for at, entry in enumerate(entries) if entry.rows is not None]
        for at, rows in planned if self._epoch else ():
            if len(rows.file):
                step[at] = np.searchsorted((rows.whole or rows).step_start, rows.first, "right")
        self._add_calls(
            call=np.array([entry.call for entry in entries]),
            thread=np.array([entry.log.thread for entry in entries]),
            begin=begin,
            duration=np.array([entry.ended for entry in entries]) - begin,
            file=np.array([entry.log.file_of(entry.file, self.files) for entry in entries]),
            offset=np.array([entry.offset for entry in entries]),
            asked=np.array([entry.asked for entry in entries]),
            moved=np.array([entry.moved for entry in entries]),
            step=step,
        )

    def _add_calls(self, **columns: NDArray[np.int64]) -> None:
        self._add(self.calls, columns)

    def _add_spans(
        self, kind: str, name: str, begin: NDArray[np.int64], end: NDArray[np.int64], step: NDArray[np.int64]
    ) -> None:
        count = len(begin)
        self._add(
            self.spans,
            {
                "kind": np.full(count, kind_number(kind)),
                "name": np.full(count, self.names.setdefault(name, len(self.names))),
                "begin": begin,
                "duration": end - begin,
                "step": step,
            },
        )

    def _add(self, buffer: ColumnBuffer, columns: dict[str, NDArray[np.int64]]) -> None:
        """Add the rows of these columns that the cut asks for."""
        epoch, step = self._epoch or UNKNOWN, columns["step"]
        cut = self.cut
        if self._epoch and not cut.epochs[0] <= epoch <= cut.epochs[1]:
            return
        rows = (step == UNKNOWN) | (step >= cut.steps[0]) & (step <= cut.steps[1])
        columns["epoch"] = np.full(len(step), epoch)
        columns["begin"] = columns["begin"] - self.origin
        buffer.add(columns if rows.all() else {name: column[rows] for name, column in columns.items()})


class _Process:
    """The recorder of this process, while one is under way."""

    recorder: Recorder | None = None


def recorder() -> Recorder | None:
    """Return the recorder of this process; None if nothing is recorded."""
    return _Process.recorder


def record_by(one: Recorder | None) -> None:
    """Record from now on; None ends it."""
    _Process.recorder = one


def open_log(path: Callable[[int], str]) -> CallLog | None:
    """Make a log of a reader or writer whose files have these paths, by number; None if nothing is recorded."""
    one = _Process.recorder
    return None if one is None else one.open_log(path)


def collect_calls() -> None:
    """Make columns of the calls so far, if they are recorded."""
    if _Process.recorder is not None:
        _Process.recorder.collect()
