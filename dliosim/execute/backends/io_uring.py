"""Queues of reads in the kernel: io_uring, or libaio if io_uring is refused, by system calls only."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
from abc import ABC, abstractmethod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import ExecutionError
from dliosim.execute.safe_open import close_read

Integers = NDArray[np.int64]

_C = ctypes.CDLL(None, use_errno=True)
_C.syscall.restype = ctypes.c_long
_C.syscall.argtypes = [ctypes.c_long] * 7


class ReadQueue(ABC):
    """Reads that wait, in the order of `put`, until `submit_and_wait` submits them to the kernel.

    The thread that made the queue calls all methods; only `close` may be called by another.
    """

    #: name for messages
    name: str
    #: one entry for each read that may wait or be in flight, with the fields that `put` fills
    _requests: NDArray[np.void]
    #: reads so far: put into the queue, submitted to the kernel, complete
    added = sent = back = 0

    def put(self, descriptor: Integers | int, offset: Integers, address: Integers, length: Integers) -> None:
        """Add reads of `length` bytes at `offset` into memory at `address`; they are numbered from `added` on.

        Arrays have one entry a read; `descriptor` may be one for all. There must be room for all of them.
        """
        requests, count = self._requests, len(offset)
        at = self.added % len(requests)
        if at + count <= len(requests):
            rows: slice | Integers = slice(at, at + count)
        else:
            rows = np.arange(at, at + count) % len(requests)
        requests["fd"][rows] = descriptor
        requests["offset"][rows] = offset
        requests["address"][rows] = address
        requests["length"][rows] = length
        requests["number"][rows] = np.arange(self.added, self.added + count)
        self.added += count

    @abstractmethod
    def submit_and_wait(self, submit: int, least: int) -> tuple[int, Integers, Integers]:
        """Submit the next `submit` reads, and wait until `least` are complete.

        Returns the number submitted, and the numbers and results of all complete reads. A result is bytes, or a
        negative error number. Raises OSError.
        """

    @abstractmethod
    def close(self) -> None:
        """Free the queue, with nothing in flight; safe to call twice."""


def make_queue(depth: int, capacity: int) -> ReadQueue:
    """Make the best queue that this kernel gives. Raises ExecutionError [R403] if it gives none."""
    refused = []
    for make in (IoUring, LinuxAio):
        try:
            return make(depth, capacity)
        except OSError as error:  # missing, forbidden by an administrator or a container, or used up
            refused.append(f"{make.name} ({error.strerror})")
    text = f"`engine queued`: the kernel refuses {' and '.join(refused)}; use `engine preadv` with several `readers`"
    raise ExecutionError(text, "R403")


def _syscall(number: int, *arguments: int) -> int:
    """Make a system call without Python's global lock; repeat it if a signal ends it. Raises OSError."""
    padded = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    while True:
        result: int = _C.syscall(number, *padded)
        if result >= 0:
            return result
        code = ctypes.get_errno()
        if code != errno.EINTR:
            raise OSError(code, os.strerror(code))


# ---- io_uring -----------------------------------------------------------------------------------------------------

_SETUP: Final = 425
_ENTER: Final = 426
_CUR_POSITION: Final = 1 << 3  # a feature of Linux 5.6, which is also the first to know the reads that are made here
_GETEVENTS: Final = 1
_READ: Final = 22
_OFFSET_SQES: Final = 0x10000000
_COOP_TASKRUN, _SINGLE_ISSUER, _DEFER_TASKRUN = 1 << 8, 1 << 12, 1 << 13

_SQE: Final = np.dtype(
    {
        "names": ["opcode", "fd", "offset", "address", "length", "number"],
        "formats": ["u1", "i4", "u8", "u8", "u4", "u8"],
        "offsets": [0, 4, 8, 16, 24, 32],
        "itemsize": 64,
    }
)
_CQE: Final = np.dtype([("number", "i8"), ("result", "i4"), ("flags", "u4")])
# struct io_uring_params: 10 words, then the offsets of the words of both rings in the mapped memory.
_PARAMS: Final = np.dtype(
    [
        ("entries", "u4", 2),
        ("flags", "u4"),
        ("thread", "u4", 2),
        ("features", "u4"),
        ("rest", "u4", 4),
        ("sq", "u4", 10),
        ("cq", "u4", 10),
    ]
)


class IoUring(ReadQueue):
    """A queue by io_uring. The submission ring holds all waiting reads; each submit says how many the kernel takes.

    Memory barriers are not needed: only this thread uses the rings, and the kernel within io_uring_enter; this thread
    reads a ring only after that call returned.
    """

    name = "io_uring"

    def __init__(self, depth: int, capacity: int) -> None:
        self._maps: list[mmap.mmap] = []
        self._descriptor = -1
        try:
            self._open(capacity)
        except BaseException:
            self.close()
            raise

    def _open(self, capacity: int) -> None:
        params = np.zeros(1, _PARAMS)
        # Completions wait until this thread asks for them, without interrupts. Since Linux 6.1, or 5.19.
        for more in (_SINGLE_ISSUER | _DEFER_TASKRUN, _COOP_TASKRUN, 0):
            params["flags"] = more
            try:
                self._descriptor = _syscall(_SETUP, capacity, params.ctypes.data)
                break
            except OSError as error:
                if error.errno != errno.EINVAL or not more:
                    raise
        if not params["features"][0] & _CUR_POSITION:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        _syscall(_ENTER, self._descriptor, 0, 0, 0)  # may be forbidden where io_uring_setup is not
        entries, completions = params["entries"][0].tolist()
        sq, cq = params["sq"][0].tolist(), params["cq"][0].tolist()
        rings = self._map(max(sq[6] + 4 * entries, cq[5] + 16 * completions), 0)
        self._requests = np.frombuffer(self._map(64 * entries, _OFFSET_SQES), _SQE, entries)
        words = np.frombuffer(rings, np.uint32, len(rings) // 4)
        words[sq[6] // 4 : sq[6] // 4 + entries] = np.arange(entries)  # the index of each entry; it never changes
        self._tail = words[sq[1] // 4 : sq[1] // 4 + 1]
        self._heads = words[cq[0] // 4 : cq[0] // 4 + 1], words[cq[1] // 4 : cq[1] // 4 + 1]
        self._completions = np.frombuffer(rings, _CQE, completions, cq[5])
        self._requests["opcode"] = _READ

    def _map(self, size: int, offset: int) -> mmap.mmap:
        mapped = mmap.mmap(self._descriptor, size, mmap.MAP_SHARED | mmap.MAP_POPULATE, offset=offset)
        self._maps.append(mapped)
        return mapped

    def submit_and_wait(self, submit: int, least: int) -> tuple[int, Integers, Integers]:
        """Submit and wait by one io_uring_enter; return the number submitted, and numbers and results."""
        self._tail[0] = self.added & 0xFFFFFFFF
        try:
            submitted = _syscall(_ENTER, self._descriptor, submit, least, _GETEVENTS)
        except OSError as error:
            # The kernel has no memory for more reads now: wait for those in flight, which free some.
            if error.errno not in (errno.EAGAIN, errno.EBUSY) or self.sent == self.back:
                raise
            submitted = 0
            _syscall(_ENTER, self._descriptor, 0, min(least, self.sent - self.back), _GETEVENTS)
        self.sent += submitted
        head, tail = self._heads
        at, count = self.back % len(self._completions), (int(tail[0]) - self.back) & 0xFFFFFFFF
        done = self._completions[at : at + count]
        if len(done) < count:
            done = np.concatenate([done, self._completions[: count - len(done)]])
        numbers, results = done["number"].copy(), done["result"].astype(np.int64)
        self.back += count
        head[0] = self.back & 0xFFFFFFFF
        return submitted, numbers, results

    def close(self) -> None:
        """Unmap the rings and close the descriptor."""
        if self._descriptor >= 0:
            close_read([self._descriptor])
            self._descriptor = -1
        self._requests = self._completions = self._tail = self._heads = None  # type: ignore[assignment]
        while self._maps:
            self._maps.pop().close()


# ---- libaio -------------------------------------------------------------------------------------------------------

# Numbers of io_setup, io_destroy, io_getevents and io_submit: those of newer architectures agree. (Those of
# io_uring are the same on all.)
_NEWER: Final = (0, 1, 4, 2)
_AIO: Final = {"x86_64": (206, 207, 208, 209), "aarch64": _NEWER, "riscv64": _NEWER}
_PREAD: Final = 0

_IOCB: Final = np.dtype(
    {
        "names": ["number", "opcode", "fd", "address", "length", "offset"],
        "formats": ["u8", "u2", "u4", "u8", "u8", "i8"],
        "offsets": [0, 16, 20, 24, 32, 40],
        "itemsize": 64,
    }
)
_EVENT: Final = np.dtype([("number", "i8"), ("object", "u8"), ("result", "i8"), ("result2", "i8")])


class LinuxAio(ReadQueue):
    """A queue by the system calls of libaio. For reads through the page cache io_submit itself waits."""

    name = "libaio"

    def __init__(self, depth: int, capacity: int) -> None:
        numbers = _AIO.get(platform.machine())
        if numbers is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        setup, self._destroy, self._get_events, self._submit = numbers
        context = ctypes.c_ulong(0)
        _syscall(setup, depth, ctypes.addressof(context))
        self._context = context.value
        self._requests = np.zeros(capacity, _IOCB)
        self._requests["opcode"] = _PREAD
        self._pointers = self._requests.ctypes.data + 64 * np.arange(capacity, dtype=np.uint64)
        self._events = np.zeros(depth, _EVENT)

    def submit_and_wait(self, submit: int, least: int) -> tuple[int, Integers, Integers]:
        """Submit by io_submit, wait by io_getevents; return the number submitted, and numbers and results."""
        submitted, events = 0, self._events
        if submit:
            at = self.sent % len(self._requests)
            together = min(submit, len(self._requests) - at)
            try:
                submitted = _syscall(self._submit, self._context, together, self._pointers.ctypes.data + 8 * at)
            except OSError as error:
                if error.errno != errno.EAGAIN or self.sent == self.back:
                    raise
            self.sent += submitted
        # The kernel may have taken fewer than were submitted. Only those in flight can become complete.
        least = min(least, self.sent - self.back)
        count = _syscall(self._get_events, self._context, least, len(events), events.ctypes.data)
        self.back += count
        return submitted, events["number"][:count].copy(), events["result"][:count].copy()

    def close(self) -> None:
        """Destroy the context."""
        if self._context:
            _syscall(self._destroy, self._context)
            self._context = 0
