"""Shared memory of a node's ranks: they sleep until another rank wakes them, and send bytes through it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from time import time
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from dliosim.execute.mpi.job_abort import abort, abort_hooks
from dliosim.execute.mpi.shared_memory import SharedMemory, wait

#: Bytes of each semaphore and of each rank's row: one cache line each. A sem_t has 32 bytes on 64-bit Linux.
_LINE = 64

#: The largest and the smallest size of a piece; bytes of all pieces of a node, above which pieces become smaller.
_LARGEST_PIECE, _SMALLEST_PIECE, _PIECES = 1 << 19, 1 << 14, 1 << 24

#: Pieces of each rank: two that alternate from meeting to meeting, and two for the bytes that it sends.
_OWN_PIECES = 4

#: Seconds of sleep after which a rank checks whether the job has ended.
_NAP = 1.0

# A rank's row: the number of pieces it has put with the target of the last one, and the number of pieces received. Put
# and target are one word, put * ranks + target: if they were two, a receiver could read the target of the next send.
_PUT, _GOT = range(2)

# Words shared by all ranks: the last meeting that is over, the last one where all have arrived, exit status + 1.
_OVER, _FULL, _ENDED = range(3)

_libc = ctypes.CDLL(None, use_errno=True)
_post, _try_wait, _timed_wait = _libc.sem_post, _libc.sem_trywait, _libc.sem_timedwait
for _function in (_post, _try_wait, _timed_wait, _libc.sem_init, _libc.sem_destroy):
    _function.argtypes = (ctypes.c_void_p,)  # of the semaphore; ctypes takes what follows as it is


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class NodeMemory:
    """Memory of all ranks of `comm`, which must be on one node. Making and closing it is collective.

    A rank that waits sleeps on its own semaphore, and checks its condition each time another rank wakes it: one wake-up
    too many does no harm. POSIX semaphores need no constants that depend on the machine.

    Meetings are counted from 1. Bytes written before meeting m (`own_piece`, `shared_piece`) are read after it, and may
    be overwritten after meeting m + 1: a rank comes to meeting m + 1 only after it has read those of meeting m.
    """

    def __init__(self, comm: MPI.Intracomm, most_ranks: int, first_ends_meetings: bool) -> None:
        """Map and initialise the memory. Collective.

        `most_ranks` is the number of ranks of the largest node of the job: pieces have the same size on all nodes.
        `first_ends_meetings` makes the first rank, not the last to arrive, end each meeting.
        """
        self.rank, self.size = comm.rank, comm.size
        fair = _PIECES // (_OWN_PIECES * most_ranks) // _SMALLEST_PIECE * _SMALLEST_PIECE
        self.piece = max(_SMALLEST_PIECE, min(fair, _LARGEST_PIECE))
        head = -(-_LINE * (2 * self.size + 2) // _SMALLEST_PIECE) * _SMALLEST_PIECE
        length = head + (_OWN_PIECES * self.size + 2) * self.piece
        self._shared = SharedMemory(comm, length)
        memory = self._shared.view
        address = np.frombuffer(memory, np.uint8).ctypes.data
        # Addresses, and no object for each: 512 ranks would have 512 each.
        semaphores = range(address, address + _LINE * (self.size + 1), _LINE)
        self._semaphores, self._missing = semaphores[: self.size], semaphores[self.size]
        self._fence_memory = ctypes.create_string_buffer(_LINE)
        self._fence_semaphore = ctypes.addressof(self._fence_memory)
        _libc.sem_init(self._fence_semaphore, 0, 0)
        self._others = self._semaphores[: self.rank], self._semaphores[self.rank + 1 :]
        self._words = memory[_LINE * (self.size + 1) : head].cast("q")
        ends = head + 2 * self.size * self.piece
        self._met = memory[head:ends]
        self._boxes = memory[ends : ends + 2 * self.piece]
        self._sent = memory[ends + 2 * self.piece : length]
        self._first_ends = first_ends_meetings
        self._deadline = _Timespec()
        self._until = ctypes.byref(self._deadline)
        self._meetings = 0
        if self.rank == 0:
            for semaphore in self._semaphores:
                _libc.sem_init(semaphore, 1, 0)
            _libc.sem_init(self._missing, 1, self.size - 1)
        wait(comm.Ibarrier(), self.size)
        abort_hooks.append(self._note_job_end)

    def close(self) -> None:
        """Free the memory. Collective."""
        abort_hooks.remove(self._note_job_end)
        self._shared.close()

    def own_piece(self, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return room for `count` elements of this rank, at most a piece; the others read it after the next meeting."""
        return np.frombuffer(self._met, dtype, count, self._area_offset(self._meetings + 1) + self.rank * self.piece)

    def all_pieces(self, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return the `own_piece` of all ranks at the last meeting, shape (ranks, count); in a meeting, at this one."""
        begin = self._area_offset(self._meetings)
        rows: NDArray[Any] = np.frombuffer(self._met[begin : begin + self.size * self.piece], dtype)
        return rows.reshape(self.size, -1)[:, :count]

    def shared_piece(self, before: bool) -> memoryview:
        """Return the piece that one rank writes and all read after the meeting.

        The writer passes `before` True ahead of the next meeting, or False in it; the readers pass False after it.
        """
        place = ((self._meetings + before) % 2) * self.piece
        return self._boxes[place : place + self.piece]

    def _area_offset(self, meeting: int) -> int:
        return meeting % 2 * self.size * self.piece

    def run_barrier(self, finish: Callable[[], None] | None = None) -> None:
        """Wait for all ranks. One of them runs `finish` when all have arrived, before any rank continues.

        This is the last rank to arrive, or the first rank with `first_ends_meetings`.
        """
        self._meetings += 1
        number, words = self._meetings, self._words
        self._fence()
        # The only atomic step of a meeting: the semaphore has one post less than there are ranks, so the last rank
        # finds none.
        is_last = _try_wait(self._missing) != 0
        if is_last:
            self._fence()  # a failed sem_trywait orders no memory accesses
            # No other rank uses this semaphore before the meeting is over.
            _libc.sem_destroy(self._missing)
            _libc.sem_init(self._missing, 1, self.size - 1)
        if self._first_ends and self.rank == 0:
            if not is_last:
                self.sleep_until(lambda: words[_FULL] >= number)
        elif not is_last:
            self.sleep_until(lambda: words[_OVER] >= number)
            return
        elif self._first_ends:
            words[_FULL] = number
            self._wake(0)
            self.sleep_until(lambda: words[_OVER] >= number)
            return
        if finish is not None:
            finish()
        self._fence()
        words[_OVER] = number
        for semaphores in self._others:
            for semaphore in semaphores:
                _post(semaphore)

    def send(self, data: memoryview, target: int) -> None:
        """Send bytes to another rank; return when it has received them."""
        row, piece = self._row(self.rank), self.piece
        put = row[_PUT] // self.size
        for begin in range(0, max(len(data), 1), piece):
            # Two pieces in turn: this rank fills one while the receiver copies the other.
            self.sleep_until(lambda put=put: put - row[_GOT] < 2)  # type: ignore[misc]
            part = data[begin : begin + piece]
            self._message_piece(self.rank, put)[: len(part)] = part
            put += 1
            self._fence()
            row[_PUT] = put * self.size + target
            self._wake(target)
        self.sleep_until(lambda: row[_GOT] == put)

    def receive(self, data: memoryview, source: int) -> None:
        """Receive bytes from another rank; `data` has the length that it sends."""
        row, rank, piece = self._row(source), self.rank, self.piece

        def has_piece() -> bool:
            put, target = divmod(row[_PUT], self.size)
            return target == rank and put > row[_GOT]

        for begin in range(0, max(len(data), 1), piece):
            self.sleep_until(has_piece)
            part = data[begin : begin + piece]
            part[:] = self._message_piece(source, row[_GOT])[: len(part)]
            self._fence()
            row[_GOT] += 1
            self._wake(source)

    def _row(self, rank: int) -> memoryview:
        return self._words[8 * (1 + rank) : 8 * (2 + rank)]

    def _message_piece(self, rank: int, number: int) -> memoryview:
        place = (2 * rank + number % 2) * self.piece
        return self._sent[place : place + self.piece]

    def _wake(self, rank: int) -> None:
        _post(self._semaphores[rank])

    def sleep_until(self, there: Callable[[], bool]) -> None:
        """Sleep until `there` is true; another rank makes it true, then wakes this one. Exit if the job has ended."""
        own, deadline, until = self._semaphores[self.rank], self._deadline, self._until
        while not there():
            deadline.seconds = int(time() + _NAP)
            if _timed_wait(own, until) and self._words[_ENDED]:
                abort(self._words[_ENDED] - 1)
        self._fence()

    def _fence(self) -> None:
        """Order memory accesses: others see earlier writes before later ones. POSIX guarantees it of both calls."""
        _post(self._fence_semaphore)
        _try_wait(self._fence_semaphore)

    def _note_job_end(self, status: int) -> None:
        self._words[_ENDED] = status + 1
