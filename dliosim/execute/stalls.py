"""The board of a node's ranks in shared memory, and a thread of each rank that watches it for stalls.

One thread a node reports which ranks block the others. It uses no MPI, which may be what hangs, and takes no lock that
the rank's other threads hold while they wait.
"""

from __future__ import annotations

import os
import platform
import signal
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns

from dliosim.execute.mpi.shared_memory import SharedMemory
from dliosim.execute.mpi.world import World
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

# The arguments of a call: descriptor, buffer, bytes and offset; descriptor, pieces, their number and offset; a
# descriptor first; a path first; a path second. In calls of the kind `_WAITS` a thread waits for another one, for a
# message or for the time.
_AT, _PIECES, _ON, _PATH_1, _PATH_2, _WAITS, _NONE = "at", "pieces", "on", "path 1", "path 2", "waits", ""

# Name, number on x86-64, number on aarch64, and kind of arguments.
_SYSTEM_CALLS = (
    ("read", 0, 63, _ON), ("write", 1, 64, _ON), ("pread64", 17, 67, _AT), ("pwrite64", 18, 68, _AT),
    ("readv", 19, 65, _ON), ("writev", 20, 66, _ON), ("preadv", 295, 69, _PIECES), ("pwritev", 296, 70, _PIECES),
    ("preadv2", 327, 286, _PIECES), ("pwritev2", 328, 287, _PIECES),
    ("open", 2, -1, _PATH_1), ("openat", 257, 56, _PATH_2),
    ("openat2", 437, 437, _PATH_2), ("close", 3, 57, _ON), ("stat", 4, -1, _PATH_1), ("fstat", 5, 80, _ON),
    ("lstat", 6, -1, _PATH_1), ("newfstatat", 262, 79, _PATH_2), ("statx", 332, 291, _PATH_2),
    ("statfs", 137, 43, _PATH_1), ("fstatfs", 138, 44, _ON), ("access", 21, -1, _PATH_1),
    ("faccessat", 269, 48, _PATH_2), ("lseek", 8, 62, _ON), ("ioctl", 16, 29, _ON), ("fcntl", 72, 25, _ON),
    ("flock", 73, 32, _ON), ("fsync", 74, 82, _ON), ("fdatasync", 75, 83, _ON), ("sync_file_range", 277, 84, _ON),
    ("truncate", 76, 45, _PATH_1), ("ftruncate", 77, 46, _ON), ("fallocate", 285, 47, _ON),
    ("fadvise64", 221, 223, _ON), ("getdents64", 217, 61, _ON), ("rename", 82, -1, _PATH_1),
    ("renameat", 264, 38, _PATH_2), ("renameat2", 316, 276, _PATH_2), ("mkdir", 83, -1, _PATH_1),
    ("mkdirat", 258, 34, _PATH_2), ("rmdir", 84, -1, _PATH_1), ("unlink", 87, -1, _PATH_1),
    ("unlinkat", 263, 35, _PATH_2), ("msync", 26, 227, _NONE), ("madvise", 28, 233, _NONE), ("munmap", 11, 215, _NONE),
    ("copy_file_range", 326, 285, _ON), ("sendfile", 40, 71, _ON), ("io_submit", 209, 2, _NONE),
    ("io_getevents", 208, 4, _NONE), ("io_uring_enter", 426, 426, _ON), ("futex", 202, 98, _WAITS),
    ("recvfrom", 45, 207, _WAITS),
    ("poll", 7, -1, _WAITS), ("ppoll", 271, 73, _WAITS), ("select", 23, -1, _WAITS), ("pselect6", 270, 72, _WAITS),
    ("epoll_wait", 232, -1, _WAITS), ("epoll_pwait", 281, 22, _WAITS), ("nanosleep", 35, 101, _WAITS),
    ("clock_nanosleep", 230, 115, _WAITS), ("restart_syscall", 219, 128, _WAITS), ("wait4", 61, 260, _WAITS),
)  # fmt: skip
_IS_ARM = platform.machine() == "aarch64"
_KNOWN = {(arm if _IS_ARM else intel): (name, what) for name, intel, arm, what in _SYSTEM_CALLS}


_STOPPED = frozenset("Tt")

_LONGEST_PATH, _SHOWN_PATH, _MOST_THREADS = 512, 110, 64


@dataclass(frozen=True, slots=True)
class ProcessState:
    """The state of a process, as the kernel shows it."""

    #: state of its main thread as in /proc/PID/stat (T stopped, D in uninterruptible sleep, R running, S sleeping;
    #: empty: gone), or "c" if any of its threads is in a call of a file
    state: str
    #: that call, or the call of the main thread, as text; empty if there is none or it cannot be seen
    call: str
    #: lines of /proc/PID/task/*/syscall of the threads in calls; differs when another call is made
    key: tuple[str, ...] = ()


def inspect_process(pid: int, state: str, but: Collection[int] = ()) -> ProcessState:
    """Inspect the threads of a process, except `but`, and return its state; its main thread is in `state`.

    Those of its reader processes count as its own.
    """
    calls = list(_thread_calls(pid, but))
    busy = [(pid, thread, line) for thread, line in calls if not _is_idle(pid, thread, line)]
    busy.sort(key=lambda each: each[1] != pid)
    for child in list_children(pid):
        busy += [
            (child, thread, line) for thread, line in _thread_calls(child, ()) if not _is_idle(child, thread, line)
        ]
    key = tuple(line for _, _, line in busy)
    if stopped := list_stopped_readers(pid):
        return ProcessState(state, f"reader process {stopped[0]}, which is stopped", key)
    if busy:
        process, _, line = busy[0]
        more = f", and {len(busy) - 1} more of its threads are in calls" if len(busy) > 1 else ""
        of = "" if process == pid else f" in reader process {process}"
        return ProcessState(state if state in "TtDZX" else "c", format_call(process, line) + of + more, key)
    if state == "D":
        return ProcessState(state, "a page fault", key)
    return ProcessState(state, next((format_call(pid, line) for thread, line in calls if thread == pid), ""), key)


def count_transfers(pid: int, but: Collection[int]) -> tuple[int, int]:
    """Return the read and write calls of a process so far, except on threads `but`, and their bytes.

    Only differences between two results count: the numbers are short by a constant. Zeros if the kernel does not show
    them.
    """
    try:
        found = [_read_io_counters(f"/proc/{one}/io") for one in (pid, *list_children(pid))]
        others = [_read_io_counters(f"/proc/{pid}/task/{thread}/io") for thread in but]
    except (OSError, ValueError, KeyError):
        return 0, 0
    calls, size = (sum(one[at] for one in found) - sum(one[at] for one in others) for at in (0, 1))
    return calls, size


def list_children(pid: int) -> list[int]:
    """Return the processes that the main thread of a process has executed, as reader processes; [] if not shown."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def list_stopped_readers(pid: int) -> tuple[int, ...]:
    """Return the reader processes of a rank that are stopped."""
    return tuple(child for child in list_children(pid) if _process_state(child) in _STOPPED)


def _read_io_counters(path: str) -> tuple[int, int]:
    lines = dict(line.split(": ") for line in Path(path).read_text().splitlines())
    return int(lines["syscr"]) + int(lines["syscw"]), int(lines["rchar"]) + int(lines["wchar"])


def _thread_calls(pid: int, but: Collection[int]) -> Iterator[tuple[int, str]]:
    """Yield each thread with its line of /proc/PID/task/TID/syscall."""
    with suppress(OSError):
        for thread in sorted(int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir())[:_MOST_THREADS]:
            if thread not in but:
                with suppress(OSError):
                    yield thread, Path(f"/proc/{pid}/task/{thread}/syscall").read_text().strip()


def format_call(pid: int, line: str) -> str:
    """Return the call of a line of /proc/PID/syscall as text; empty if the thread is in no call."""
    words = line.split()
    if len(words) < 7 or words[0] == "-1":
        return ""
    name, what = _KNOWN.get(int(words[0]), (f"system call {words[0]}", _NONE))
    arguments = [int(word, 16) for word in words[1:7]]
    if what in (_PATH_1, _PATH_2):
        return f"{name}({read_process_path(pid, arguments[what == _PATH_2])})"
    if what in (_WAITS, _NONE):
        return name
    where = {_AT: f", {arguments[2]} bytes at {arguments[3]}", _PIECES: f" at {arguments[3]}"}.get(what, "")
    return f"{name}({descriptor_path(pid, arguments[0])}{where})"


def _is_idle(pid: int, thread: int, line: str) -> bool:
    """Return whether a thread runs, or waits for another thread or a signal. Signals are read from a pipe."""
    words = line.split()
    if len(words) < 7 or words[0] == "-1":
        return True
    name, what = _KNOWN.get(int(words[0]), ("", _NONE))
    if what == _WAITS:
        return True
    return thread != pid and name == "read" and descriptor_path(pid, int(words[1], 16)).startswith("pipe:")


def descriptor_path(pid: int, descriptor: int) -> str:
    """Return the path of an open file, shortened; its number if the path cannot be seen."""
    try:
        return _shorten_path(str(Path(f"/proc/{pid}/fd/{descriptor}").readlink()))
    except OSError:
        return f"file {descriptor}" if descriptor < 1 << 31 else "?"


def read_process_path(pid: int, address: int) -> str:
    """Read the path at a memory address of a process; return it shortened, or "?" if it cannot be read.

    The kernel reads it, because the memory may be gone.
    """
    try:
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
            data = os.pread(memory.fileno(), _LONGEST_PATH, address)
    except (OSError, OverflowError):
        return "?"
    return _shorten_path(os.fsdecode(data.partition(b"\0")[0])) or "?"


def _shorten_path(path: str) -> str:
    path = printable(path)
    return path if len(path) <= _SHOWN_PATH else f"...{path[-_SHOWN_PATH:]}"


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

    The lowest rank of a node whose watcher runs leads. Nodes know nothing of each other, since MPI or storage may be
    what hangs. Node 0 always reports; another node reports if it has a late rank.
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
        leads = not any(self._is_awake(self._board.rows[lower], now) for lower in range(self._board.place))
        if leads or self._reported:
            self._handle_stall(now, leads)

    def _note_kernel_call(self, row: BoardRow) -> None:
        pid, own = os.getpid(), {self._thread}
        found, (calls, size) = inspect_process(pid, _process_state(pid), own), count_transfers(pid, own)
        ended = calls - self._transfers[0] > _CALLS or size - self._transfers[1] > _BYTES or found.key != self._calls
        # Calls that end inside a meeting are no work: a library polls for messages there.
        row.note_call(found.state, found.call, ended and not row.meeting)
        self._calls, self._transfers = found.key, (calls, size)

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
            state, call, awake, row.meeting, row.meeting_count, row.action, list_stopped_readers(pid),
        )  # fmt: skip


def kill_stopped(board: Board) -> None:
    """Kill the stopped ranks of this node, but only processes with the start time that the rank stored."""
    for row in board.rows:
        pid, started = row.process
        # Not by a pidfd, which kernels before 5.3, and Pythons built for them, do not have. A stopped process does not
        # end by itself, so its number stays its own.
        if pid != os.getpid() and start_time(pid) == started and _process_state(pid) in _STOPPED:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def kill_stopped_later(board: Board) -> None:
    """Kill the stopped ranks of this node after a second, unless the end of the job has ended them by then."""
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
