"""The system calls that the threads of a process are in, with file and offset, as /proc shows them."""

from __future__ import annotations

import os
import platform
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dliosim.readable import printable

# The arguments of a call: descriptor, buffer, bytes and offset; descriptor, pieces, their number and offset; a
# descriptor first; a path first; a path second.
_AT, _PIECES, _ON, _PATH_1, _PATH_2, _NONE = "at", "pieces", "on", "path 1", "path 2", ""

# Name, number on x86-64, number on aarch64, and kind of arguments.
_CALLS = (
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
    ("io_getevents", 208, 4, _NONE), ("io_uring_enter", 426, 426, _ON), ("futex", 202, 98, _NONE),
    ("poll", 7, -1, _NONE), ("ppoll", 271, 73, _NONE), ("select", 23, -1, _NONE), ("pselect6", 270, 72, _NONE),
    ("epoll_wait", 232, -1, _NONE), ("epoll_pwait", 281, 22, _NONE), ("nanosleep", 35, 101, _NONE),
    ("clock_nanosleep", 230, 115, _NONE), ("restart_syscall", 219, 128, _NONE), ("wait4", 61, 260, _NONE),
)  # fmt: skip
_IS_ARM = platform.machine() == "aarch64"
_KNOWN = {(arm if _IS_ARM else intel): (name, what) for name, intel, arm, what in _CALLS}

#: Calls in which a thread waits for another one, for a message or for the time.
_WAITS = frozenset(
    ("futex", "poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "nanosleep", "clock_nanosleep",
     "restart_syscall", "wait4")
)  # fmt: skip

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
    """Inspect the threads of a process, except `but`, and return its state; its main thread is in `state`."""
    calls = list(_thread_calls(pid, but))
    busy = [(thread, line) for thread, line in calls if not _is_idle(pid, thread, line)]
    busy.sort(key=lambda each: each[0] != pid)
    key = tuple(line for _, line in busy)
    if busy:
        more = f", and {len(busy) - 1} more of its threads are in calls" if len(busy) > 1 else ""
        return ProcessState(state if state in "TtDZX" else "c", format_call(pid, busy[0][1]) + more, key)
    if state == "D":
        return ProcessState(state, "a page fault", key)
    return ProcessState(state, next((format_call(pid, line) for thread, line in calls if thread == pid), ""), key)


def count_transfers(pid: int, but: Collection[int]) -> tuple[int, int]:
    """Return the read and write calls of a process so far, except on threads `but`, and their bytes.

    Only differences between two results count: the numbers are short by a constant. Zeros if the kernel does not show
    them.
    """
    try:
        calls, size = _read_io_counters(f"/proc/{pid}/io")
        others = [_read_io_counters(f"/proc/{pid}/task/{thread}/io") for thread in but]
    except (OSError, ValueError, KeyError):
        return 0, 0
    return calls - sum(each[0] for each in others), size - sum(each[1] for each in others)


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
    if what == _AT:
        return f"{name}({descriptor_path(pid, arguments[0])}, {arguments[2]} bytes at {arguments[3]})"
    if what == _PIECES:
        return f"{name}({descriptor_path(pid, arguments[0])} at {arguments[3]})"
    if what == _ON:
        return f"{name}({descriptor_path(pid, arguments[0])})"
    if what in (_PATH_1, _PATH_2):
        return f"{name}({read_process_path(pid, arguments[what == _PATH_2])})"
    return name


def _is_idle(pid: int, thread: int, line: str) -> bool:
    """Return whether a thread runs, or waits for another thread or a signal. Signals are read from a pipe."""
    words = line.split()
    if len(words) < 7 or words[0] == "-1":
        return True
    name = _KNOWN.get(int(words[0]), ("", _NONE))[0]
    if name in _WAITS:
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

    The kernel reads it, because the memory may not exist any more.
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
