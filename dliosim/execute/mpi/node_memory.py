"""Memory that the ranks of a node share: they sleep in it until another rank wakes them, and pass bytes through it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from time import time
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from dliosim.execute.mpi.job_abort import abort, add_abort_hook, remove_abort_hook
from dliosim.execute.mpi.polling import wait
from dliosim.execute.mpi.shared_memory import SharedMemory

#: Bytes for each semaphore and each rank's row: a cache line of its own. A sem_t has 32 bytes on 64-bit Linux.
_LINE = 64

#: Bytes of one piece of what is passed, and how much memory all pieces of a node may take before they get smaller.
_LARGEST_PIECE, _SMALLEST_PIECE, _PIECES = 1 << 19, 1 << 14, 1 << 24

#: Pieces that each rank has: two for meetings, by turns, and two for what it sends.
_OWN_PIECES = 4

#: Seconds of sleep after which a rank looks whether the job has ended.
_NAP = 1.0

# A rank's row: how many pieces it has put and for which rank the last one, and how many of them have been got. The
# first two are one number, put * ranks + target: of two read one after the other the second may be of the next send.
_PUT, _GOT = range(2)

# The words of all ranks: the last meeting that is over, the last at which all have arrived, the job's exit status + 1.
_OVER, _FULL, _ENDED = range(3)

_libc = ctypes.CDLL(None, use_errno=True)
_post, _try_wait, _timed_wait = _libc.sem_post, _libc.sem_trywait, _libc.sem_timedwait


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class NodeMemory:
    """Memory of all ranks of `comm`, who must be on one node. Making and closing it is collective.

    A rank that waits sleeps in a semaphore of its own, and looks again at what it waits for each time that it is woken:
    to be woken once too often does no harm. Semaphores of POSIX need no constants of one machine.

    Meetings are counted from 1. What is written before one (`own`, `shared_piece`) is read after it, and may be written over
    before the next but one: whoever comes to that one has seen all others leave the first.
    """

    def __init__(self, comm: MPI.Intracomm, most_ranks: int, first_ends_meetings: bool) -> None:
        """`most_ranks` is how many the largest node of the job has, since pieces are of one size on all of them.

        `first_ends_meetings` is whether the first rank has to do something in each meeting when all have arrived.
        """
        self.rank, self.size = comm.rank, comm.size
        fair = _PIECES // (_OWN_PIECES * most_ranks) // _SMALLEST_PIECE * _SMALLEST_PIECE
        self.piece = max(_SMALLEST_PIECE, min(fair, _LARGEST_PIECE))
        head = -(-_LINE * (2 * self.size + 2) // _SMALLEST_PIECE) * _SMALLEST_PIECE
        length = head + (_OWN_PIECES * self.size + 2) * self.piece
        self._shared = SharedMemory(comm, length)
        memory = self._shared.view
        address = np.frombuffer(memory, np.uint8).ctypes.data
        semaphores = [ctypes.c_void_p(address + _LINE * number) for number in range(self.size + 1)]
        self._semaphores, self._missing = semaphores[: self.size], semaphores[self.size]
        self._fence_semaphore = ctypes.create_string_buffer(_LINE)
        _libc.sem_init(self._fence_semaphore, 0, 0)
        self._others = [one for rank, one in enumerate(self._semaphores) if rank != self.rank]
        words = memory[_LINE * (self.size + 1) : head].cast("q")
        self._words = words[:8]
        self._rows = [words[8 * (1 + rank) : 8 * (2 + rank)] for rank in range(self.size)]
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
        add_abort_hook(self._note_job_end)

    def close(self) -> None:
        """Give the memory back. Collective."""
        remove_abort_hook(self._note_job_end)
        self._shared.close()

    def own_piece(self, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Room for `count` elements of this rank, at most a piece, that others read after the next meeting."""
        return np.frombuffer(self._met, dtype, count, self._area_offset(self._meetings + 1) + self.rank * self.piece)

    def all_pieces(self, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """What each rank had in `own` before the last meeting, (ranks, count); in a meeting, that one is the last."""
        begin = self._area_offset(self._meetings)
        rows: NDArray[Any] = np.frombuffer(self._met[begin : begin + self.size * self.piece], dtype)
        return rows.reshape(self.size, -1)[:, :count]

    def shared_piece(self, before: bool) -> memoryview:
        """A piece for one rank to write `before` the next meeting, or in it, and for all to read after it."""
        place = ((self._meetings + before) % 2) * self.piece
        return self._boxes[place : place + self.piece]

    def _area_offset(self, meeting: int) -> int:
        return meeting % 2 * self.size * self.piece

    def run_barrier(self, finish: Callable[[], None] | None = None) -> None:
        """Wait for all ranks. One of them runs `finish` when all have arrived, before any goes on.

        That is the last to arrive, or the first rank where it `first_ends_meetings`.
        """
        self._meetings += 1
        number, words = self._meetings, self._words
        self._fence()
        is_last = _try_wait(self._missing) != 0
        if is_last:
            self._fence()  # a wait that fails at once orders nothing
            # Nobody else comes near it before this meeting is over.
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
        for semaphore in self._others:
            _post(semaphore)

    def send(self, data: memoryview, target: int) -> None:
        """Pass bytes to another rank; over when that one has received them."""
        row, piece = self._rows[self.rank], self.piece
        put = row[_PUT] // self.size
        for begin in range(0, max(len(data), 1), piece):
            self.sleep_until(lambda put=put: put - row[_GOT] < 2)  # type: ignore[misc]
            part = data[begin : begin + piece]
            self._message_piece(self.rank, put)[: len(part)] = part
            put += 1
            self._fence()
            row[_PUT] = put * self.size + target
            self._wake(target)
        self.sleep_until(lambda: row[_GOT] == put)

    def receive(self, data: memoryview, source: int) -> None:
        """Receive as many bytes from another rank as it sends."""
        row, rank, piece = self._rows[source], self.rank, self.piece

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

    def _message_piece(self, rank: int, number: int) -> memoryview:
        place = (2 * rank + number % 2) * self.piece
        return self._sent[place : place + self.piece]

    def _wake(self, rank: int) -> None:
        _post(self._semaphores[rank])

    def sleep_until(self, there: Callable[[], bool]) -> None:
        """Sleep until what another rank writes before it wakes this one is there. Ends with the job, if that ends."""
        own, deadline, until = self._semaphores[self.rank], self._deadline, self._until
        while not there():
            deadline.seconds = int(time() + _NAP)
            if _timed_wait(own, until) and self._words[_ENDED]:
                abort(self._words[_ENDED] - 1)
        self._fence()

    def _fence(self) -> None:
        """Let others see what was written before it before what is written after it, as POSIX says of these calls."""
        _post(self._fence_semaphore)
        _try_wait(self._fence_semaphore)

    def _note_job_end(self, status: int) -> None:
        self._words[_ENDED] = status + 1
