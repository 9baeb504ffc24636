"""What each rank of a node does, in memory that all of them see: written with plain stores, read when nothing moves.

A row of 64 int64 a rank. The main thread writes how far it is and which meetings it has come to, without a clock; the
rank's watcher (`execute.stalls.watcher`) writes when that last changed, and in which call of the kernel the rank is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dliosim.readable import printable

#: Meetings of all ranks, as `Row.arrive` takes them, and what they are called.
BARRIER, EXCHANGE = range(2)
MEETINGS = ("a barrier", "an exchange of all ranks")

#: A meeting is stored as this number times how many there were, plus its kind: one store.
_KINDS = 8

ROW_BYTES = 512

# Written once, before others look.
_PID, _STARTED, _RANK = 0, 1, 2
# Written by the main thread.
STEP, DONE = 3, 4
_EPOCH, _PHASES, _ARRIVED, _LEFT, _UNTIL, _INSIDE, _OVER = range(5, 12)
# Written by the watcher: when anything last moved, when it last looked, calls seen to end, state of the process.
_MOVED, _LOOKED, _ENDED, _STATE = range(12, 16)
# UTF-8 texts, ended by a zero: from which byte to which. The last is the watcher's.
_PHASE, _ACTION, _CALL = (128, 192), (192, 320), (320, 512)

#: What the main thread writes, and calls that ended: a row whose words have changed has moved.
_MOVING = (STEP, DONE, _PHASES, _ARRIVED, _LEFT, _INSIDE, _ENDED)


class BoardRow:
    """What one rank does. `words` are its int64; `step` and bytes `done` of a phase are stored there directly.

    `meets` says that somebody looks, and that there are others to meet: else nobody needs to call `arrive`.
    """

    __slots__ = ("_bytes", "_met", "meets", "words")

    def __init__(self, memory: memoryview) -> None:
        self._bytes = memory
        self._met = 0
        self.meets = False
        self.words = memory.cast("q")

    def release(self) -> None:
        """Let go of the memory: who stores from now on gets a ValueError."""
        self.words.release()
        self._bytes.release()

    def clear(self) -> None:
        """Blank it: for the process whose row it is."""
        self._bytes[:] = bytes(ROW_BYTES)

    def introduce(self, rank: int) -> None:
        """Say who this is: for the process whose row it is."""
        self.words[_RANK], self.words[_PID], self.words[_STARTED] = rank, os.getpid(), start_time(os.getpid())

    def begin(self, phase: str, epoch: int) -> None:
        """A phase begins, or goes on; `epoch` from 1, or 0."""
        self._write_text(_PHASE, phase)
        self.words[_EPOCH] = epoch
        self.words[STEP] = self.words[DONE] = 0
        self.words[_PHASES] += 1

    def arrive(self, meeting: int) -> None:
        """This rank has come to a meeting of all ranks, one of `MEETINGS`: for the process whose row it is."""
        self._met = met = self._met + _KINDS
        self.words[_ARRIVED] = met + meeting

    def leave(self) -> None:
        """All have met, as far as this rank is concerned."""
        self.words[_LEFT] = self._met

    @contextmanager
    def collective_call(self, action: str) -> Iterator[None]:
        """A block in a call in which ranks wait for each other, other than a meeting of all."""
        self._write_text(_ACTION, action)
        self.words[_INSIDE] += 1
        try:
            yield
        finally:
            self.words[_INSIDE] += 1

    def mark_pause(self, until: int) -> None:
        """This rank computes or pauses until then, in ns of perf_counter_ns: that is no stall."""
        self.words[_UNTIL] = until

    def finish(self) -> None:
        """This rank has no more to do."""
        self.words[_OVER] = 1

    @property
    def rank(self) -> int:
        """Of the whole job."""
        return self.words[_RANK]

    @property
    def process(self) -> tuple[int, int]:
        """Its process, and when that was started, as `start_time` has it: no other process has both."""
        return self.words[_PID], self.words[_STARTED]

    @property
    def is_over(self) -> bool:
        """Whether it has no more to do."""
        return self.words[_OVER] != 0

    @property
    def phase(self) -> str:
        """What it is busy with."""
        return self._read_text(_PHASE)

    @property
    def step(self) -> int:
        """Steps of the epoch that are done."""
        return self.words[STEP]

    @property
    def bytes_done(self) -> int:
        """Bytes of the phase that are done."""
        return self.words[DONE]

    @property
    def epoch(self) -> int:
        """The epoch of the phase, from 1; 0 where it has none."""
        return self.words[_EPOCH]

    @property
    def meeting(self) -> str:
        """Where it waits for all other ranks, or an empty text."""
        arrived, kind = divmod(self.words[_ARRIVED], _KINDS)
        return MEETINGS[kind % len(MEETINGS)] if arrived * _KINDS != self.words[_LEFT] else ""

    @property
    def meeting_count(self) -> int:
        """How many meetings it has come to."""
        return self.words[_ARRIVED] // _KINDS

    @property
    def action(self) -> str:
        """The call of `inside` in which it is, or an empty text."""
        return self._read_text(_ACTION) if self.words[_INSIDE] % 2 else ""

    @property
    def progress_state(self) -> tuple[int, ...]:
        """What is different whenever something of this rank has ended."""
        return tuple(self.words[place] for place in _MOVING)

    @property
    def quiet_since(self) -> int:
        """When its watcher last saw that something had ended, or when a rest ends, if that is later."""
        return max(self.words[_MOVED], self.words[_UNTIL])

    @property
    def last_look_ns(self) -> int:
        """When its watcher last looked."""
        return self.words[_LOOKED]

    @property
    def call(self) -> tuple[str, str]:
        """State and call as its watcher last found them, see `thread_calls.ProcessState`."""
        return chr(self.words[_STATE] & 0x7F) if self.words[_STATE] else "", self._read_text(_CALL)

    def note_look(self, now: int, moved: bool) -> None:
        """For the watcher: it looks, and something has moved since it last did."""
        self.words[_LOOKED] = now
        if moved:
            self.words[_MOVED] = now

    def note_call(self, state: str, call: str, ended: bool) -> None:
        """For the watcher: what the kernel says of this process, and whether a call has ended meanwhile."""
        self.words[_STATE] = ord(state[:1] or "\0")
        self._write_text(_CALL, call)
        if ended:
            self.words[_ENDED] += 1

    def _write_text(self, place: tuple[int, int], text: str) -> None:
        first, end = place
        data = text.encode(errors="replace")[: end - first - 1]
        self._bytes[first : first + len(data) + 1] = data + b"\0"

    def _read_text(self, place: tuple[int, int]) -> str:
        data = bytes(self._bytes[place[0] : place[1]])
        return printable(data.partition(b"\0")[0].decode(errors="replace"))


@dataclass(frozen=True, slots=True)
class Board:
    """The rows of a node's ranks, of which number `place` is this rank's, and what each knows of the nodes.

    `ranks` is how many the job has; `node` is which node this is, and `hosts` are all nodes' names.
    """

    rows: tuple[BoardRow, ...]
    place: int
    ranks: int
    node: int = 0
    hosts: tuple[str, ...] = ("",)

    @property
    def own_row(self) -> BoardRow:
        """This rank's row."""
        return self.rows[self.place]

    @property
    def host(self) -> str:
        """The name of this node."""
        return self.hosts[self.node]


def map_rows(memory: memoryview) -> tuple[BoardRow, ...]:
    """The rows that lie in a memory, zeros at first, of which each rank introduces its own."""
    return tuple(BoardRow(memory[first : first + ROW_BYTES]) for first in range(0, len(memory), ROW_BYTES))


def private_row() -> BoardRow:
    """A row that nobody else sees."""
    return BoardRow(memoryview(bytearray(ROW_BYTES)))


#: The row of this process alone: for those who cannot spare the call of `own`.
current = [private_row()]


def process_row() -> BoardRow:
    """The row of this process, which nobody else sees before `show`."""
    return current[0]


def publish_row(row: BoardRow) -> None:
    """From now on this row is `own`."""
    current[0] = row


def start_time(pid: int) -> int:
    """When a process was started, in the kernel's ticks; 0 where there is none."""
    fields = stat_fields(pid)
    return int(fields[19]) if len(fields) > 19 else 0


def stat_fields(pid: int) -> list[str]:
    """What the kernel says of a process after its name: the state first; nothing where there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    return text[text.rindex(")") + 2 :].split()
