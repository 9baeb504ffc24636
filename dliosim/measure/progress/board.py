"""The state of each rank of a node, in shared memory: written with plain stores, read when no rank makes progress.

A rank has a row of 64 int64. Its main thread writes its progress and the meetings that it has arrived at, without
reading a clock. Its watcher (`execute.stalls`) writes when that last changed, and in which kernel call the rank
is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dliosim.readable import printable

#: Kinds of meetings, of all ranks or of those of the node, for `BoardRow.arrive`, and their names.
BARRIER, EXCHANGE, NODE_EXCHANGE = range(3)
MEETINGS = ("a barrier", "an exchange of all ranks", "an exchange of the node's ranks")

#: A meeting is stored as its number * _KINDS + its kind: one store, so a reader never sees half of it.
_KINDS = 8

ROW_BYTES = 512

# Words written once, before other processes read the row.
_PID, _STARTED, _RANK = 0, 1, 2
# Words written by the main thread.
STEP, DONE = 3, 4
_EPOCH, _PHASES, _ARRIVED, _LEFT, _UNTIL, _INSIDE, _OVER = range(5, 12)
# Words written by the watcher: ns of the last progress, ns of its last look, calls that ended, state of the process.
_MOVED, _LOOKED, _ENDED, _STATE = range(12, 16)
# First and last byte (exclusive) of UTF-8 texts that end with a zero. The watcher writes the last one.
_PHASE, _ACTION, _CALL = (128, 192), (192, 312), (320, 512)

#: Words that change with progress: those of the main thread, and the calls that ended.
_MOVING = (STEP, DONE, _PHASES, _ARRIVED, _LEFT, _INSIDE, _ENDED)


class _Word:
    """A word of a row as an attribute to read."""

    def __init__(self, place: int) -> None:
        self._place = place

    def __get__(self, row: BoardRow, owner: type) -> int:
        return row.words[self._place]


class BoardRow:
    """The state of one rank.

    Hot loops store `STEP` and `DONE` (bytes of the phase) in `words` directly, which saves a call.
    """

    __slots__ = ("_bytes", "_met", "meets", "words")

    #: number of the rank in the job
    rank = _Word(_RANK)
    #: epoch of the phase, from 1; 0 if it has none
    epoch = _Word(_EPOCH)
    #: number of steps of the epoch that are done
    step = _Word(STEP)
    #: bytes of the phase that are done
    bytes_done = _Word(DONE)
    #: ns at which the watcher last looked
    last_look_ns = _Word(_LOOKED)

    def __init__(self, memory: memoryview) -> None:
        self._bytes = memory
        self._met = 0
        #: True if a watcher runs and the job has other ranks; without it, `arrive` need not be called.
        self.meets = False
        #: The row as 64 int64.
        self.words = memory.cast("q")

    def release(self) -> None:
        """Release the memory; a later store raises ValueError."""
        self.words.release()
        self._bytes.release()

    def clear(self) -> None:
        """Set the whole row to zeros. Only the process of this row calls it."""
        self._bytes[:] = bytes(ROW_BYTES)

    def introduce(self, rank: int) -> None:
        """Store rank, process id and start time. Only the process of this row calls it."""
        self.words[_RANK], self.words[_PID], self.words[_STARTED] = rank, os.getpid(), start_time(os.getpid())

    def begin(self, phase: str, epoch: int, step: int = 0, done: int = 0) -> None:
        """Store that a phase begins, or continues after `step` steps and `done` bytes.

        `epoch` is counted from 1, or 0 for none.
        """
        words = self.words
        self._write_text(_PHASE, phase)
        words[_EPOCH], words[STEP], words[DONE] = epoch, step, done
        words[_PHASES] += 1

    def arrive(self, meeting: int) -> None:
        """Store that this rank has arrived at one of `MEETINGS`. Only the process of this row calls it."""
        self._met = met = self._met + _KINDS
        self.words[_ARRIVED] = met + meeting

    def leave(self) -> None:
        """Store that the meeting is over for this rank."""
        self.words[_LEFT] = self._met

    @contextmanager
    def collective_call(self, action: str) -> Iterator[None]:
        """Mark a call in which ranks wait for each other, while the context is open.

        It is for calls other than `MEETINGS`; `action` describes the call.
        """
        self._write_text(_ACTION, action)
        self.words[_INSIDE] += 1
        try:
            yield
        finally:
            self.words[_INSIDE] += 1

    def mark_pause(self, until: int) -> None:
        """Store that this rank computes or pauses until a time of perf_counter_ns; this is no stall."""
        self.words[_UNTIL] = until

    def finish(self) -> None:
        """Store that this rank has no more work."""
        self.words[_OVER] = 1

    @property
    def process(self) -> tuple[int, int]:
        """Return the process id and its `start_time`; together they identify a process."""
        return self.words[_PID], self.words[_STARTED]

    @property
    def is_over(self) -> bool:
        """Return True if the rank has no more work."""
        return self.words[_OVER] != 0

    @property
    def phase(self) -> str:
        """Return the name of the phase."""
        return self._read_text(_PHASE)

    @property
    def meeting(self) -> str:
        """Return the meeting in which the rank waits for all others, or an empty text."""
        arrived, kind = divmod(self.words[_ARRIVED], _KINDS)
        return MEETINGS[kind % len(MEETINGS)] if arrived * _KINDS != self.words[_LEFT] else ""

    @property
    def meeting_count(self) -> int:
        """Return the number of meetings that the rank has arrived at."""
        return self.words[_ARRIVED] // _KINDS

    @property
    def action(self) -> str:
        """Return the text of the open `collective_call`, or an empty text."""
        return self._read_text(_ACTION) if self.words[_INSIDE] % 2 else ""

    @property
    def progress_state(self) -> tuple[int, ...]:
        """Return the words that change with every progress of the rank."""
        return tuple(self.words[place] for place in _MOVING)

    @property
    def quiet_since(self) -> int:
        """Return the ns of the last progress that the watcher saw, or of the end of a pause, if that is later."""
        return max(self.words[_MOVED], self.words[_UNTIL])

    @property
    def call(self) -> tuple[str, str]:
        """Return the state and the kernel call that the watcher saw last; see `ProcessState`."""
        return chr(self.words[_STATE] & 0x7F) if self.words[_STATE] else "", self._read_text(_CALL)

    def note_look(self, now: int, moved: bool) -> None:
        """Store that the watcher looks, and whether the rank made progress since its last look."""
        self.words[_LOOKED] = now
        if moved:
            self.words[_MOVED] = now

    def note_call(self, state: str, call: str, ended: bool) -> None:
        """Store for the watcher the process state and the call, and whether a call has ended since."""
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


class BoardRows(Sequence[BoardRow]):
    """The rows in a memory of zeros; each rank introduces its own.

    A row is made when it is first asked for: most ranks look at their own and the first one, and 512 rows take 0.3 MB.
    """

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory
        self._made: dict[int, BoardRow] = {}

    def __len__(self) -> int:
        return len(self._memory) // ROW_BYTES

    def __getitem__(self, place: int) -> BoardRow:  # type: ignore[override]  # without slices
        if place not in self._made:
            if not 0 <= place < len(self):
                raise IndexError(place)
            self._made[place] = BoardRow(self._memory[place * ROW_BYTES : (place + 1) * ROW_BYTES])
        return self._made[place]

    def release(self) -> None:
        """Release the memory of all rows; a later store raises ValueError."""
        for row in self._made.values():
            row.release()


@dataclass(frozen=True, slots=True)
class Board:
    """The rows of a node's ranks."""

    #: one for each rank of the node
    rows: BoardRows
    #: index of this rank's row
    place: int
    #: ranks of the whole job
    ranks: int
    #: name of this node
    host: str = ""

    @property
    def own_row(self) -> BoardRow:
        """Return this rank's row."""
        return self.rows[self.place]

    @property
    def is_whole_job(self) -> bool:
        """Return True if no other node has ranks of the job."""
        return len(self.rows) == self.ranks


def private_row() -> BoardRow:
    """Return a row that no other process sees."""
    return BoardRow(memoryview(bytearray(ROW_BYTES)))


#: The row of this process; hot paths read it here, which saves the call of `process_row`.
current = [private_row()]


def process_row() -> BoardRow:
    """Return the row of this process; no other process sees it before `publish_row`."""
    return current[0]


def publish_row(row: BoardRow) -> None:
    """Make `process_row` return this row."""
    current[0] = row


def start_time(pid: int) -> int:
    """Return the start of a process, in ticks of the kernel; 0 if there is no such process."""
    fields = stat_fields(pid)
    return int(fields[19]) if len(fields) > 19 else 0


def stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, the state first; empty if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    return text[text.rindex(")") + 2 :].split()
