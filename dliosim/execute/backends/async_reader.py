"""Reading with many calls in flight (`engine queued depth N`), through a queue of the kernel."""

from __future__ import annotations

import errno
from collections import deque
from dataclasses import dataclass, field
from time import perf_counter_ns

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import ExecutionError
from dliosim.execute.backends.contract import FileReader, Files, address_of
from dliosim.execute.backends.fd_table import OpenFiles
from dliosim.execute.backends.io_uring import Integers, ReadQueue, make_queue
from dliosim.model import Access
from dliosim.plan.samples.io_requests import Calls, sample_heads
from dliosim.trace.calls import Call

# Room of the queue in calls, in flight or waiting. A batch of more calls is put into it part by part.
_LEAST_ROWS, _MOST_ROWS = 4096, 32768
# The window is filled again when one in this many of the calls in flight is complete: a look at the queue costs some
# ten microseconds, and the other calls keep the storage busy during it.
_SHARE = 4
# Results that are no errors of the read: preadv reads these bytes again.
_AGAIN = (-errno.EAGAIN, -errno.EINTR)


@dataclass(slots=True)
class _Batch:
    """A batch that `begin` asked for."""

    #: the buffer of the batch
    into: memoryview
    #: parts that are not finished
    parts: int = 0
    #: bytes of the finished parts
    moved: int = 0
    #: the first error, if any
    error: ExecutionError | None = None


@dataclass(slots=True)
class _BatchPart:
    """Calls of a batch that are put into the queue together."""

    #: the batch of the calls
    batch: _Batch
    #: the calls
    calls: Calls
    #: with `open each sample`: the calls that open a file, and whether the call after the last one does; shape
    #: (calls + 1,); None if files stay open
    heads: NDArray[np.bool_] | None
    #: number of the first call in the queue; the others follow
    first: int = 0
    #: calls that are not complete
    left: int = 0
    #: the descriptor of each call, shape (calls,), or one for all
    descriptors: Integers | int = -1
    #: descriptors to close when all calls are complete
    closing: list[int] = field(default_factory=list)

    @property
    def next_number(self) -> int:
        """Number after that of the last call."""
        return self.first + len(self.calls.file)


class QueuedReader(FileReader):
    """Reads files with up to `Access.depth` calls in flight: when some are complete, others take their place.

    The next batch may begin while the one before is not complete (`begin` before `complete`), so that the window does
    not run empty between two batches. One thread calls all methods; only `close` may be called by another.
    """

    _recorded = Call.QUEUED_READ

    def __init__(self, access: Access, files: Files) -> None:
        super().__init__(access, files)
        self._table = OpenFiles(access, files, self.meter)
        self._access = access
        self._rows = min(1 << (max(_LEAST_ROWS, 2 * access.depth) - 1).bit_length(), _MOST_ROWS)
        self._queue: ReadQueue | None = None
        # By the number of a call modulo the rows: when it was submitted, when it was complete (ns), and its result.
        self._began, self._ended, self._result = np.zeros((3, self._rows), np.int64)
        self._unread = 0  # calls that are asked for and not complete
        self._batches: deque[_Batch] = deque()
        self._waiting: deque[_BatchPart] = deque()
        self._parts: deque[_BatchPart] = deque()
        self._carried: int | None = None  # a descriptor that the next part uses, too
        self._failure: ExecutionError | None = None

    def read(self, calls: Calls, into: memoryview) -> int:
        """Read every call and wait for all; return the bytes. Raises ExecutionError."""
        self.begin(calls, into)
        while not self.advance(alone=True):
            pass
        return self.complete()

    @property
    def has_room(self) -> bool:
        """True if the calls of another batch could be submitted soon."""
        return self._unread < 2 * self._access.depth

    def begin(self, calls: Calls, into: memoryview) -> None:
        """Append the calls of a batch to those of the batches begun before it."""
        access, batch = self._access, _Batch(into)
        self._batches.append(batch)
        heads, size = None, self._rows // 2
        if access.open == "each sample":
            heads = sample_heads(calls, self._merged)
            # Smaller parts: the first samples are read while the files of later ones are not open yet.
            size = min(size, max(access.depth, self._table.together // 2))
        count = len(calls.file)
        self._unread += count
        for first in range(0, count, size):
            last = min(first + size, count)
            own = None if heads is None else np.append(heads[first:last], last == count or heads[last])
            self._waiting.append(_BatchPart(batch, calls.part(first, last), own))
            batch.parts += 1

    def advance(self, alone: bool = False) -> bool:
        """Submit calls and wait until some are complete; return whether the oldest batch is complete.

        With `alone` no other batch may begin now, so the last calls are waited for together. Raises ExecutionError if
        the queue itself fails.
        """
        if self._failure is not None:
            raise self._failure
        oldest = self._batches[0]
        if not oldest.parts:
            return True
        if self._queue is None:
            self._queue = make_queue(self._access.depth, self._rows)
            self.meter.how = f"queued by {self._queue.name}"
        self._fill_queue(self._queue)
        if self._parts:
            self._run_queue(self._queue, alone)
            while self._parts and not self._parts[0].left:
                self._finish_part(self._parts.popleft(), self._queue.sent)
        return not oldest.parts

    def complete(self) -> int:
        """Return the bytes of the oldest batch, after `advance` has returned True. Raises ExecutionError."""
        batch = self._batches.popleft()
        if batch.error is not None:
            raise batch.error
        return batch.moved

    def close(self) -> None:
        """Close every descriptor, and the queue."""
        super().close()
        if self._carried is not None:
            self._table.close([self._carried])
            self._carried = None
        if self._queue is not None:
            self._queue.close()
            self._queue = None

    def _close_files(self) -> None:
        self._table.close_kept()

    def _fill_queue(self, queue: ReadQueue) -> None:
        """Put parts into the queue, up to two windows ahead."""
        while self._waiting and queue.added - queue.back < 2 * self._access.depth:
            part = self._waiting[0]
            oldest = self._parts[0].first if self._parts else queue.added
            if queue.added + len(part.calls.file) - oldest > self._rows:
                return
            self._waiting.popleft()
            if part.batch.error is None:
                try:
                    self._enqueue(part, queue)
                except ExecutionError as error:
                    part.batch.error = error
            if part.batch.error is not None:
                self._unread -= len(part.calls.file)
                self._release_part(part)

    def _enqueue(self, part: _BatchPart, queue: ReadQueue) -> None:
        calls = part.calls
        if part.heads is None:
            kept = self._table.keep_files_of(calls)
            part.descriptors = kept if isinstance(kept, int) else np.array(kept)
        else:
            part.descriptors = self._open_sample_files(part, part.heads)
        address = calls.start + address_of(part.batch.into)
        part.first, part.left = queue.added, len(calls.file)
        queue.put(part.descriptors, calls.offset, address, calls.length)
        self._parts.append(part)

    def _open_sample_files(self, part: _BatchPart, heads: NDArray[np.bool_]) -> Integers:
        """Open a file for each call that begins a sample; return the descriptor of each call.

        The last file is carried over if the next part continues its sample.
        """
        begins, closing = heads[:-1], part.closing
        if self._carried is not None:
            closing.append(self._carried)
            self._carried = None
        before = len(closing) - 1
        self._table.open_all(part.calls.file[begins].tolist(), closing)
        descriptors: Integers = np.array(closing)[np.cumsum(begins) + before]
        if not heads[-1]:
            self._carried = closing.pop()
        return descriptors

    def _run_queue(self, queue: ReadQueue, alone: bool) -> None:
        """Submit calls, wait for some, and note the complete ones."""
        at, in_flight = queue.sent & self._rows - 1, queue.sent - queue.back
        submit = min(queue.added - queue.sent, self._access.depth - in_flight)
        in_flight += submit
        rest = self._parts[0].left
        last = alone and queue.sent + submit == queue.added
        least = min(in_flight, rest) if last else max(1, min(in_flight // _SHARE, rest))
        before = perf_counter_ns()
        try:
            submitted, numbers, results = queue.submit_and_wait(submit, least)
        except OSError as error:
            flying = queue.sent - queue.back
            text = f"`engine queued`: {queue.name} failed with {flying} calls in flight: {error.strerror}"
            self._failure = ExecutionError(text)
            raise self._failure from error
        after = perf_counter_ns()
        self._began[at : at + submitted] = before
        self._began[: max(0, at + submitted - self._rows)] = before
        rows = numbers & self._rows - 1
        self._ended[rows] = after
        self._result[rows] = results
        self._unread -= len(numbers)
        if len(self._parts) == 1:
            self._parts[0].left -= len(numbers)
        else:
            for part in self._parts:
                part.left -= int(np.count_nonzero((numbers >= part.first) & (numbers < part.next_number)))

    def _finish_part(self, part: _BatchPart, sent: int) -> None:
        """Add a part whose calls are all complete to the meter and to its batch; `sent` calls were submitted so far."""
        rows = np.arange(part.first, part.next_number) & self._rows - 1
        since = int(self._began[part.next_number & self._rows - 1]) if sent > part.next_number else None
        if self.meter.log is not None:
            for at in np.flatnonzero(self._result[rows] != part.calls.length).tolist():
                self.meter.log.add_short(at, max(0, int(self._result[rows[at]])), int(self._ended[rows[at]]))
        self.meter.add_overlapping(self._began[rows], self._ended[rows], since, part.calls)
        self.meter.calls += len(rows)
        result, batch = self._result[rows], part.batch
        try:
            for row in np.flatnonzero(result != part.calls.length).tolist():
                result[row] = self._resume_short_read(part, row, int(result[row]))
            moved = int(result.sum())
            self.meter.moved += moved
            batch.moved += moved
        except ExecutionError as error:
            batch.error = batch.error or error
        self._release_part(part)

    def _resume_short_read(self, part: _BatchPart, row: int, got: int) -> int:
        """Read the rest of a call that returned too few bytes, or -EAGAIN or -EINTR; return the bytes in all.

        Raises ExecutionError for another negative result, which is an error number.
        """
        calls, descriptors = part.calls, part.descriptors
        file, offset, length, start = (
            int(column[row]) for column in (calls.file, calls.offset, calls.length, calls.start)
        )
        if got < 0 and got not in _AGAIN:
            error = OSError(-got, "")
            raise self._table.read_error(f"read {self.meter.how}", file, offset, length, error) from None
        descriptor = descriptors if isinstance(descriptors, int) else int(descriptors[row])
        return self._table.resume_read(descriptor, file, part.batch.into[start : start + length], offset, max(got, 0))

    def _release_part(self, part: _BatchPart) -> None:
        self._table.close(part.closing)
        part.batch.parts -= 1
