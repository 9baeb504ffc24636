"""Figures of a run while it runs, from the board of a node and the clock readings of rank 0: no step works for them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dliosim.measure.progress.board import BoardRow
from dliosim.measure.progress.task import IDLE, Task
from dliosim.measure.rank.step_times import AT_ONCE, READINGS, StepTimes

#: Bandwidth now is over this time; ns.
_NOW = 1_000_000_000

#: Late ranks, at most, whose calls are looked up.
_ASKED = 8

#: Time without progress from which on it is shown of a rank that others wait for; ns.
_QUIET = 2_000_000_000


@dataclass(frozen=True, slots=True)
class LiveFigures:
    """The figures of a run at one moment. Ranks are those of the node of rank 0."""

    #: see `Task.label`
    label: str
    #: name of the phase
    phase: str
    #: seconds since the task began
    elapsed: float
    #: steps that rank 0 has done
    step: int
    #: steps of the task; 0 where their number is unknown
    steps: int
    #: word for a step
    unit: str
    #: fewest and most steps that any rank has done
    step_range: tuple[int, int]
    #: bytes of the task that rank 0 has done
    done: int
    #: bytes of the task of rank 0; 0 where they are unknown
    total: int
    #: bytes that all ranks have done in this task
    moved: int
    #: bytes/s of all ranks in the last second; None before there are two looks
    now: float | None
    #: bytes/s of all ranks in this task, without what interrupted it; None before the first bytes
    mean: float | None
    #: seconds that 99 % of the last waits of rank 0 for a batch took at most
    p99: float | None
    #: number of these waits
    waits: int
    #: ranks that wait in a meeting of all ranks for others: for other nodes if no rank of this one is late
    waiting: tuple[int, ...]
    #: ranks that have not reached it
    late: tuple[int, ...]
    #: seconds without progress of any late rank; 0 where they are few
    quiet: float
    #: call that one of the late ranks is in; empty where it is not known, or `quiet` is 0
    call: str
    #: the rank that was late in most looks of this phase, in how many, and the looks in which any rank was late
    slowest: tuple[int, int, int] | None
    #: seconds left of the epoch or the bytes; None where unknown
    left: float | None
    #: seconds left of all epochs; None where unknown
    left_of_all: float | None


@dataclass(slots=True)
class _PhaseCounts:
    """The sums over the looks at one phase."""

    #: looks in which a rank was late, and how often each was
    looks: int = 0
    late: Counter[int] = field(default_factory=Counter)


class LiveMeter:
    """The figures of a node's ranks, from one look to the next."""

    def __init__(self, rows: Sequence[BoardRow], own_row: BoardRow, ranks: int) -> None:
        """Look at `rows` in a job of `ranks`; `own_row` is that of rank 0, which is this process."""
        self._rows, self._own = rows, own_row
        self._is_whole = len(rows) == ranks
        self._looks: deque[tuple[int, int]] = deque()  # ns, and the bytes of all ranks until then
        self._phases: dict[str, _PhaseCounts] = {}
        self._sized: tuple[Task, int] = IDLE, 0

    @property
    def pause(self) -> float:
        """Return the seconds between two looks: longer with many ranks, so that they take about 0.4 % of a core."""
        return max(0.25, len(self._rows) / 512)

    @property
    def is_over(self) -> bool:
        """Return True if a rank ends: no more than a message follows."""
        return any(row.is_over for row in self._rows)

    def look(self, now: int, task: Task) -> LiveFigures:
        """Return the figures at `now` (perf_counter_ns) of what rank 0 does."""
        rows, own = self._rows, self._own
        all_bytes = sum(row.all_bytes for row in rows)
        counts = self._phases.setdefault(task.phase, _PhaseCounts())
        self._looks.append((now, all_bytes))
        while len(self._looks) > 2 and self._looks[1][0] <= now - _NOW:
            self._looks.popleft()
        first, had = self._looks[0]
        waiting, late = find_late(rows)
        if not late and (self._is_whole or len(waiting) < len(rows)):
            waiting = []  # they are about to leave the meeting
        if late:
            counts.looks += 1
            counts.late.update(row.rank for row in late)
        phase, epoch = own.phase, own.epoch
        same = [row for row in rows if row.epoch == epoch and row.phase == phase]
        step, done, elapsed = own.step, own.bytes_done, (now - task.started) * 1e-9
        p99, waits = recent_p99(task, own)
        left, left_of_all = _time_left(task, step, done, self._total_bytes(task), elapsed)
        quiet = min((now - row.quiet_since for row in late), default=0)
        moved, worked = sum(row.bytes_done for row in same), now - task.started - task.held
        return LiveFigures(
            task.label,
            task.phase,
            elapsed,
            step,
            task.steps,
            task.unit,
            (min((row.step for row in same), default=step), max((row.step for row in same), default=step)),
            done,
            self._total_bytes(task),
            moved,
            (all_bytes - had) / (now - first) * 1e9 if now > first else None,
            moved / worked * 1e9 if moved and worked > 0 else None,
            p99,
            waits,
            tuple(row.rank for row in waiting),
            tuple(row.rank for row in late),
            quiet * 1e-9 if quiet >= _QUIET else 0.0,
            next(filter(None, (row.call[1] for row in late[:_ASKED])), "") if quiet >= _QUIET else "",
            (*_most_often(counts.late), counts.looks) if counts.looks else None,
            left,
            left_of_all,
        )

    def _total_bytes(self, task: Task) -> int:
        """Return the bytes of rank 0 in a task, which are worked out once."""
        if self._sized[0] is not task:
            self._sized = task, task.total() if task.total is not None else 0
        return self._sized[1]


def find_late(rows: Sequence[BoardRow]) -> tuple[list[BoardRow], list[BoardRow]]:
    """Return the ranks that wait in the latest meeting, and those that have not reached it; nothing if unsure.

    Rows change while they are read: a rank would seem late only because its row was read first. So they are read twice,
    and what changed between counts for nothing. Waits of microseconds are so not seen.
    """
    seen = [row.attendance for row in rows]
    if seen != [row.attendance for row in rows]:
        return [], []
    latest = max(arrived for arrived, _ in seen)
    waiting = [row for row, (arrived, waits) in zip(rows, seen, strict=True) if waits and arrived == latest]
    late = [row for row, (arrived, _) in zip(rows, seen, strict=True) if arrived < latest]
    return (waiting, late) if waiting else ([], [])


def recent_p99(task: Task, row: BoardRow) -> tuple[float | None, int]:
    """Return the p99 (nearest rank) in seconds of the waits for the last batches of an epoch, and their number.

    At most `AT_ONCE` batches; None and 0 before the first one. `row` is that of this process, so that copying its
    readings holds the interpreter lock, and none is half written.
    """
    count = min(row.step, AT_ONCE)
    if task.readings is None or count == 0:
        return None, 0
    rows = np.frombuffer(bytes(task.readings), np.int64).reshape(-1, len(READINGS))[:count]
    waits = np.sort(StepTimes(rows, 0).data_wait)
    return float(waits[-(-99 * count // 100) - 1]) * 1e-9, count


def _time_left(task: Task, step: int, done: int, total: int, elapsed: float) -> tuple[float | None, float | None]:
    """Return the seconds left of an epoch (or of the bytes) and of all epochs, at the speed of this one until now."""
    if task.steps and step:
        each = elapsed / step
        left = each * (task.steps - step)
        return left, left + each * task.steps * (task.epochs - task.epoch)
    if total and done:
        left = elapsed / done * max(total - done, 0)
        return left, left
    return None, None


def _most_often(late: Counter[int]) -> tuple[int, int]:
    """Return the rank that was late most often, the lowest of several, and how often."""
    return min(late.items(), key=lambda item: (-item[1], item[0]))
