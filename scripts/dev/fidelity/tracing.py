"""The system calls of a command on the files below a folder, as strace sees them.

Offsets of read() and write(), which have none, are those of the descriptor: where it was opened, sought and moved to,
over dup() and over fork(), whose child shares them; that a file was opened to append is not known. Reads by io_uring
or through a mapping are not seen; that a file was mapped is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

READS: Final = ("read", "readv", "pread64", "preadv", "preadv2")
WRITES: Final = ("write", "writev", "pwrite64", "pwritev", "pwritev2")
SYNCS: Final = ("fsync", "fdatasync")
RENAMES: Final = ("rename", "renameat", "renameat2")
STATS: Final = ("fstat", "newfstatat", "statx")
_OTHERS: Final = ("openat", "lseek", "close", "mmap", "dup", "dup2", "dup3", "clone", "clone3", "fork", "vfork")

#: How slow_reads.c waits; glibc sleeps by another call.
_ADDED: Final = "nanosleep"

#: Calls that are followed where data are read, and where they are written.
READING: Final = (*READS, *STATS, *_OTHERS, _ADDED)
SAVING: Final = (*READING, *WRITES, *SYNCS, *RENAMES)

#: A filter in the kernel stops only at these calls: without it every call of the process costs two switches.
_STRACE: Final = ("strace", "--seccomp-bpf", "-f", "-v", "-s", "0", "-ttt", "-T", "-y", "--signal=none")

_LINE = re.compile(r"(?P<pid>\d+)\s+(?P<time>\d+\.\d+) (?P<rest>.*)")
_CALL = re.compile(
    r"(?P<name>\w+)\((?P<arguments>.*)\)\s+= (?P<result>\?|-?\w+)(?P<after>.*?)(?: <(?P<took>\d+\.\d+)>)?$"
)
_DESCRIPTOR = re.compile(r"(\d+)<([^>]*)>")
_VECTOR = re.compile(r"iov_len=(\d+)")
_UNFINISHED = " <unfinished ...>"
_RESUMED = re.compile(r"<\.\.\. \w+ resumed>(.*)")

#: Calls that read or write where the descriptor stands, and move it.
_AT_THE_OFFSET: Final = ("read", "readv", "write", "writev")

UNKNOWN: Final = -1
"""`Record.offset` where a call has none, or none that the trace tells."""


@dataclass(frozen=True, slots=True)
class Record:
    """One call on a file below the folder.

    `pid` is the thread, `process` the one that it belongs to; `start` (since the epoch) and `duration` are seconds;
    `file` is relative to the folder; of a renaming the new name. `offset` is where a read or write begins, where a seek
    leads, or what a mapping begins with; `asked` the bytes asked for; `returned` what the call returned, negative where
    it failed.
    """

    pid: int
    process: int
    start: float
    duration: float
    call: str
    file: str
    offset: int
    asked: int
    returned: int

    @property
    def end(self) -> float:
        """Seconds at which the call returned."""
        return self.start + self.duration


@dataclass(frozen=True, slots=True)
class _Call:
    """A line of strace, or two of them put together; `order` is when it changes which descriptor is which file."""

    pid: int
    start: float
    duration: float
    name: str
    arguments: str
    result: int
    after: str

    @property
    def order(self) -> float:
        """A number is free from when close() begins, and taken when open() is done: other threads come between."""
        return self.start + self.duration if self.name in ("openat", "dup", "dup2", "dup3") else self.start


@dataclass(slots=True)
class _Description:
    """An open file description of the kernel: descriptors that come from one open() share its offset."""

    path: str
    offset: int


def strace(command: Sequence[str], log: Path, calls: Sequence[str] = READING) -> list[str]:
    """Return the same command under strace, which writes these `calls` to `log`, for `parse`."""
    return [*_STRACE, "-e", f"trace={','.join(calls)}", "-o", str(log), *command]


def parse(lines: Iterable[str], folder: Path) -> list[Record]:
    """Return the records of a trace made by `strace`, in the order in which the calls began.

    Latency that slow_reads.c added to a read is part of its duration.
    """
    calls = sorted(_calls(lines), key=lambda call: call.order)
    following = _Following(str(folder).rstrip("/") + "/")
    records: list[Record] = []
    last: dict[int, int] = {}
    for call in calls:
        if call.name == _ADDED and (place := last.get(call.pid)) is not None and records[place].call in READS:
            records[place] = replace(records[place], duration=call.start + call.duration - records[place].start)
        for record in following.see(call):
            last[call.pid] = len(records)
            records.append(record)
    return sorted(records, key=lambda record: record.start)


def _calls(lines: Iterable[str]) -> Iterator[_Call]:
    """Yield the calls that returned; the line of another thread may have cut the line of a call in two."""
    begun: dict[int, tuple[float, str]] = {}
    for line in lines:
        if (found := _LINE.match(line)) is None:
            continue
        pid, start, rest = int(found["pid"]), float(found["time"]), found["rest"]
        if rest.endswith(_UNFINISHED):
            begun[pid] = start, rest.removesuffix(_UNFINISHED)
            continue
        if resumed := _RESUMED.match(rest):
            if pid not in begun:
                continue
            start, head = begun.pop(pid)
            rest = head + resumed[1]
        call = _CALL.match(rest)
        if call is None or call["result"] == "?":
            continue
        result = int(call["result"], 16 if call["result"].startswith("0x") else 10)
        yield _Call(pid, start, float(call["took"] or 0), call["name"], call["arguments"], result, call["after"])


class _Following:
    """The process of each thread, and the offset of each of its descriptors."""

    def __init__(self, below: str) -> None:
        self._below = below
        self._process: dict[int, int] = {}
        self._open: dict[tuple[int, int], _Description] = {}

    def see(self, call: _Call) -> Iterator[Record]:
        """Yield the record of a call, if it is one on a file below the folder."""
        if call.name in ("clone", "clone3", "fork", "vfork"):
            self._follow_clone(call)
        elif call.name == "openat":
            yield from self._follow_open(call)
        elif call.name.startswith("dup"):
            self._follow_dup(call)
        elif call.name in RENAMES:
            yield from self._record(call, re.findall(r'"([^"]*)"', call.arguments)[-1], UNKNOWN, 0)
        elif call.name == "newfstatat" and (path := re.search(r'"([^"]+)"', call.arguments)):
            yield from self._record(call, path[1], UNKNOWN, 0)
        elif found := _DESCRIPTOR.search(call.arguments):
            yield from self._follow_descriptor(call, int(found[1]), found[2])

    def _process_of(self, pid: int) -> int:
        return self._process.get(pid, pid)

    def _follow_clone(self, call: _Call) -> None:
        if call.result <= 0:
            return
        parent = self._process_of(call.pid)
        if "CLONE_THREAD" in call.arguments:
            self._process[call.result] = parent
            return
        for (process, number), description in list(self._open.items()):
            if process == parent:
                self._open[call.result, number] = description

    def _follow_open(self, call: _Call) -> Iterator[Record]:
        path = re.search(r'"([^"]*)"', call.arguments)
        landed = re.match(r"<([^>]*)>", call.after)
        named = landed[1] if landed else path[1] if path else ""
        if call.result >= 0 and named.startswith(self._below):
            self._open[self._process_of(call.pid), call.result] = _Description(named, 0)
        yield from self._record(call, named, UNKNOWN, 0)

    def _follow_dup(self, call: _Call) -> None:
        found = re.match(r"(\d+)", call.arguments)
        process = self._process_of(call.pid)
        if found and call.result >= 0 and (description := self._open.get((process, int(found[1])))):
            self._open[process, call.result] = description

    def _follow_descriptor(self, call: _Call, number: int, path: str) -> Iterator[Record]:
        key = self._process_of(call.pid), number
        known = self._open.get(key)
        if known is not None and known.path != path:  # closed by a call that was not traced
            known = self._open.pop(key, None) and None
        offset, asked = UNKNOWN, 0
        if call.name == "close":
            self._open.pop(key, None)
        elif call.name == "lseek":
            offset = call.result
            if known is not None and call.result >= 0:
                known.offset = call.result
        elif call.name == "mmap":
            parts = call.arguments.split(", ")
            offset, asked = int(parts[-1], 0), int(parts[1])
        elif call.name in (*READS, *WRITES):
            asked = _request_bytes(call)
            if call.name in _AT_THE_OFFSET:
                offset = known.offset if known is not None else UNKNOWN
                if known is not None and call.result > 0:
                    known.offset += call.result
            else:
                offset = int(call.arguments.split(", ")[-2 if call.name.endswith("v2") else -1])
        yield from self._record(call, path, offset, asked)

    def _record(self, call: _Call, path: str, offset: int, asked: int) -> Iterator[Record]:
        if path.startswith(self._below):
            file = path.removeprefix(self._below)
            process = self._process_of(call.pid)
            yield Record(call.pid, process, call.start, call.duration, call.name, file, offset, asked, call.result)


def _request_bytes(call: _Call) -> int:
    if call.name in ("read", "pread64", "write", "pwrite64"):
        return int(call.arguments.split(", ")[2])
    return sum(int(length) for length in _VECTOR.findall(call.arguments))
