"""The board of a node's ranks in shared memory, and a thread of each rank that watches it for stalls.

One thread a node reports which ranks block the others. It uses no MPI, which may be what hangs, and takes no lock that
the rank's other threads hold while they wait.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter_ns

from dliosim.execute.mpi.shared_memory import SharedMemory
from dliosim.execute.mpi.world import World
from dliosim.execute.stalls.thread_calls import ProcessState, count_transfers, inspect_process
from dliosim.measure.progress.board import (
    ROW_BYTES,
    Board,
    BoardRow,
    BoardRows,
    private_row,
    publish_row,
    start_time,
    stat_fields,
)
from dliosim.measure.progress.stalled_ranks import JobStall, RankStatus
from dliosim.readable import printable

_STOPPED = frozenset("Tt")

#: States of processes whose watchers cannot run; "" is a process that has ended.
_STILL = frozenset(("T", "t", "Z", "X", ""))

#: Reads and writes, and their bytes, between two looks; above these a rank is at work. A progress line takes fewer.
_CALLS, _BYTES = 8, 4096

#: Times the limit after which a node ends the job whose ranks may all wait for ranks of other nodes.
_PATIENCE = 4

#: Seconds after which stopped processes are killed if the end of the job has not ended them.
_LEFT = 1.0


@dataclass(frozen=True, slots=True)
class StallLimits:
    """The times after which a stall has consequences."""

    #: seconds without movement after which a stall is reported; None: never
    report: float | None
    #: seconds without movement after which a stall ends the job; None: never
    end: float | None

    @property
    def first_limit(self) -> float | None:
        """The earlier limit, or None without limits."""
        return min((each for each in (self.report, self.end) if each is not None), default=None)


@dataclass(frozen=True, slots=True)
class StallActions:
    """The actions on a stall. The watcher's thread calls them."""

    #: prints the stall
    say: Callable[[JobStall], None]
    #: prints that a stall is over; gets the seconds that were reported
    moves: Callable[[float], None]
    #: ends the job, and does not return
    end: Callable[[JobStall], None]


class Watcher(threading.Thread):
    """The thread of a rank that watches its row of `board`, and reports stalls of its node if it leads that.

    The lowest rank of a node whose watcher runs leads. Nodes know nothing of each other: MPI or storage may be what
    hangs. Node 0 reports in any case, another node if it has a late rank.
    """

    def __init__(self, board: Board, limits: StallLimits, reactions: StallActions) -> None:
        super().__init__(name="watcher", daemon=True)
        first = limits.first_limit or 1.0
        # Seconds between two looks. A thousand ranks that look once a second would keep a core half busy.
        self._every = max(0.1, min(first / 10, 1 + len(board.rows) / 64))
        # Seconds without a look after which the watcher of another rank is taken for stopped.
        self._patience = 3 * self._every + 0.5
        self._first, self._limits, self._board, self._reactions = first, limits, board, reactions
        self._over = threading.Event()
        self._last: tuple[int, ...] = ()
        self._calls: tuple[str, ...] = ()
        self._transfers = 0, 0
        self._seen: dict[int, tuple[tuple[int, ...], int]] = {}
        self._next = limits.report
        self._reported: float = 0.0

    def stop(self) -> bool:
        """End the thread; return False if it hangs in a call of its own."""
        self._over.set()
        self.join(self._patience)
        return not self.is_alive()

    def run(self) -> None:
        """Look at the row at intervals until `stop` is called."""
        resumed, self._thread = True, threading.get_native_id()
        while True:
            self._check_row(perf_counter_ns(), resumed)
            before = perf_counter_ns()
            if self._over.wait(self._every):
                return
            # A wait that took much longer: this process was stopped, or the machine slept. Times start again.
            resumed = perf_counter_ns() - before > (self._every + max(1.0, self._first / 4)) * 1e9

    def _check_row(self, now: int, resumed: bool) -> None:
        row = self._board.own_row
        moving = row.progress_state
        moved = resumed or moving != self._last
        if resumed:
            self._seen.clear()
        row.note_look(now, moved)
        self._last = moving
        if not moved:
            self._note_kernel_call(row)
        leads = self._is_leader(now)
        if leads or self._reported:
            self._handle_stall(now, leads)

    def _note_kernel_call(self, row: BoardRow) -> None:
        pid, own = os.getpid(), {self._thread}
        found, (calls, size) = inspect_process(pid, _process_state(pid), own), count_transfers(pid, own)
        ended = calls - self._transfers[0] > _CALLS or size - self._transfers[1] > _BYTES or found.key != self._calls
        # Calls that end inside a meeting are no work: a library polls for messages there.
        row.note_call(found.state, found.call, ended and not row.meeting)
        self._calls, self._transfers = found.key, (calls, size)

    def _is_leader(self, now: int) -> bool:
        """Return whether no lower rank of this node has a watcher that runs."""
        return not any(self._is_awake(self._board.rows[lower], now) for lower in range(self._board.place))

    def _is_awake(self, row: BoardRow, now: int) -> bool:
        """Return whether a rank's own watcher runs. On a busy machine it may be late without being stopped."""
        late = (now - row.last_look_ns) * 1e-9
        return late < self._patience or (late < 3 * self._patience and _process_state(row.process[0]) not in _STILL)

    def _handle_stall(self, now: int, leads: bool) -> None:
        """Report a stall if this rank leads, and its end if this rank has reported it."""
        quiet = (now - self._last_movement(now)) * 1e-9
        if quiet < self._first:
            if self._reported:
                self._reactions.moves(self._reported)
            self._reported, self._next = 0.0, self._limits.report
            return
        if not leads:
            return
        seen = [self._rank_state(place, row, now) for place, row in enumerate(self._board.rows) if not row.is_over]
        stall = JobStall(self._board.ranks, quiet, tuple(seen), self._board.host, self._board.is_whole_job)
        # Other nodes may move, or name a late rank themselves: this one may only wait for them.
        end = self._limits.end and self._limits.end * (_PATIENCE if stall.may_wait_elsewhere else 1)
        if end is not None and quiet >= end:
            self._reactions.end(stall)
        if self._next is None or quiet < self._next or (stall.is_elsewhere and self._board.rows[0].rank != 0):
            return
        self._reported = quiet
        self._reactions.say(stall)
        # The same stall is reported again after twice the time.
        self._next = 2 * quiet

    def _last_movement(self, now: int) -> int:
        """Return when anything on this node last moved, perf_counter_ns."""
        latest = 0
        for place, row in enumerate(self._board.rows):
            if row.is_over:
                continue
            moving, known = row.progress_state, self._seen.get(place)
            if known is None or known[0] != moving:
                # At the first look this watcher cannot know when the row changed; the rank's own watcher knows it.
                self._seen[place] = moving, 0 if known is None else now
            latest = max(latest, row.quiet_since, self._seen[place][1])
        return latest or now

    def _rank_state(self, place: int, row: BoardRow, now: int) -> RankStatus:
        pid, started = row.process
        awake = self._is_awake(row, now)
        state, call = row.call
        own_state = _process_state(pid) if start_time(pid) == started else ("" if not stat_fields(pid) else "?")
        if not awake:
            found = inspect_process(pid, own_state) if own_state not in ("", "?") else ProcessState(own_state, "")
            # The call of a stopped process, or of one that /proc hides, may be the last that its own watcher noted.
            call = found.call or (call if state == "c" else "")
            state = found.state
        elif state != "c":
            state = own_state
        since = max(row.quiet_since, self._seen.get(place, ((), 0))[1])
        return RankStatus(
            row.rank, pid, row.phase, row.epoch, row.step, row.bytes_done, max(now - since, 0) * 1e-9,
            state, call, awake, row.meeting, row.meeting_count, row.action,
        )  # fmt: skip


def kill_stopped(board: Board) -> None:
    """Kill the stopped ranks of this node. A process is killed only if its start time is what the rank has written."""
    for row in board.rows:
        pid, started = row.process
        # Not by a pidfd, which kernels before 5.3, and Pythons built for them, do not have. A stopped process does not
        # end by itself, so its number stays its own.
        if pid != os.getpid() and start_time(pid) == started and _process_state(pid) in _STOPPED:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def kill_stopped_later(board: Board) -> None:
    """Kill the stopped ranks of this node a second later, if the end of the job has not ended them by then."""
    timer = threading.Timer(_LEFT, kill_stopped, (board,))
    timer.daemon = True
    timer.start()


def _process_state(pid: int) -> str:
    return (stat_fields(pid) or [""])[0]


def open_board(world: World) -> tuple[Board, SharedMemory]:
    """Make the board of this node's ranks and enter this rank; return the board and its memory. Collective."""
    memory = SharedMemory(world.node.comm, ROW_BYTES * world.node.size)
    board = Board(BoardRows(memory.view), world.node.rank, world.size, printable(os.uname().nodename))
    board.own_row.introduce(world.rank)
    # Every rank has written its row before any watcher reads it.
    world.barrier()
    board.own_row.meets = world.size > 1
    publish_row(board.own_row)
    return board, memory


def close_board(board: Board, memory: SharedMemory) -> None:
    """Free the memory of a board. Collective on the node."""
    publish_row(private_row())
    board.rows.release()
    memory.close()
