"""Keeping batches ahead of the steps: threads that read, in an order that the main thread alone decides."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from time import perf_counter_ns
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from dliosim.execute.backends.contract import OverlappingReader, Reader
from dliosim.execute.batches.batch_schedule import EpochCalls
from dliosim.model import Access, By
from dliosim.plan.samples.io_requests import Calls

T = TypeVar("T")

#: Seconds that `close` waits for a thread whose call does not return, when the run has already failed.
PATIENCE = 5.0


class Batches(Protocol):
    """The batches of one loop on one rank, epoch by epoch and in the order of steps.

    `threads` are the native ids of the threads that read, where these are others than the one who waits.

    Of steps that others read than the one who waits, `reading` has when that began and when it ended (clock readings,
    two a step that was waited for, zeros where there was nothing to read). Whoever takes them clears it. Of the last
    step waited for, `called` is how long (ns) its readers were inside calls, and decoded and preprocessed where that is
    not done by the one who waits: no more of the wait was for data. `processed` is how long the one who waited has
    itself decoded and preprocessed, after the data were there.
    """

    readers: Sequence[Reader]
    threads: Sequence[int]
    reading: list[int]
    called: int
    processed: int

    def begin(self, epoch: EpochCalls) -> None:
        """Begin an epoch with the calls of its steps: open what all ranks open together."""
        ...

    def start(self) -> None:
        """Begin to read, once the clock runs: nothing of an epoch may be read before it."""
        ...

    def wait(self, step: int) -> tuple[memoryview, int]:
        """The buffer with the batch of a step, and the bytes that its calls returned.

        The buffer is good until the next step is waited for. Steps come in order, from 0. Raises ExecutionError if a
        call failed.
        """
        ...

    def run(self, action: Callable[[], T]) -> T:
        """Run something that makes collective file calls, on the thread that makes them, after those begun before."""
        ...

    def end(self) -> None:
        """End the epoch, at whichever step: let reads that are ahead finish and close what an epoch opens."""
        ...

    def close(self, failed: bool = False) -> None:
        """Stop the threads and close the files; with `failed`, do not wait for calls that might never return."""
        ...


def make_batches(access: Access, readers: Sequence[Reader], slots: Sequence[memoryview]) -> Batches:
    """The batches of `access`; `slots` are `slot_count(access)` buffers of `Calls.buffer_size` bytes or more."""
    if access.readers == 0:
        return InlineBatches(readers, slots)
    return PrefetchedBatches(readers, slots, access.by, access.collective)


def slot_count(access: Access) -> int:
    """Buffers that an access needs: a batch in use, and those ahead."""
    return 1 + access.prefetch if access.readers else 1


class InlineBatches:
    """Reads in the step itself, on the calling thread (`readers 0`)."""

    def __init__(self, readers: Sequence[Reader], slots: Sequence[memoryview]) -> None:
        self.readers = readers
        self.threads: Sequence[int] = ()
        self.reading: list[int] = []
        self.called = 0
        self.processed = 0
        self._reader = readers[0]
        self._slot = slots[0]
        self._inside = 0

    def begin(self, epoch: EpochCalls) -> None:
        """See `Batches.begin`."""
        self._epoch = epoch
        self._reader.begin_epoch()

    def start(self) -> None:
        """A batch is read when it is waited for; calls count from now on."""
        self._inside = self._reader.meter.io_call_ns

    def wait(self, step: int) -> tuple[memoryview, int]:
        """Read the batch of a step."""
        got = _read_parts(self._epoch.step_rounds(step), self._slot, self._reader)
        inside = self._reader.meter.io_call_ns
        self.called, self._inside = inside - self._inside, inside
        self.processed = self._epoch.process(step, self._slot)
        return self._slot, got

    def run(self, action: Callable[[], T]) -> T:
        """Run it here."""
        return action()

    def end(self) -> None:
        """See `Batches.end`."""
        self._reader.end_epoch()

    def close(self, failed: bool = False) -> None:
        """Close the files, unless that is collective and the run has failed."""
        if not failed:
            self._reader.close()


class PrefetchedBatches:
    """Keeps as many batches ahead as there are slots besides the one in use.

    The main thread submits the reads of steps 0 to N - 1 when an epoch's clock starts, and that of step s + N when it
    has the batch of step s: one order on every rank, also if a read fails. By sample the calls of a step are shared
    among the readers, else a reader takes a whole batch: the one that is free, or (in turn) reader s mod K. With
    `collective` there is one reader, and opening, closing and `run` happen on its thread, in the order in which they
    were asked for.
    """

    def __init__(self, readers: Sequence[Reader], slots: Sequence[memoryview], by: By, collective: bool) -> None:
        self.readers = readers
        self.reading: list[int] = []
        self.called = 0
        self.processed = 0
        self._slots = slots
        self._ahead = len(slots) - 1
        self._groups = len(readers) if by == "sample" else 1
        self._collective = collective
        shared: _Queue = SimpleQueue()
        # One queue, from which whoever is free takes the next task, or one for each reader.
        self._queues = [SimpleQueue() if by == "batch in turn" else shared for _ in readers]
        self._pending: dict[int, list[_Task[int]]] = {}
        self._cancelled = False
        self._threads = [
            threading.Thread(
                target=self._run_tasks, args=(reader, self._queues[number]), name=f"reader-{number}", daemon=True
            )
            for number, reader in enumerate(readers)
        ]
        for thread in self._threads:
            thread.start()
        self.threads: Sequence[int] = [thread.native_id for thread in self._threads if thread.native_id is not None]

    def begin(self, epoch: EpochCalls) -> None:
        """See `Batches.begin`."""
        self._epoch = epoch
        self._run_on_readers(lambda reader: reader.begin_epoch())

    def start(self) -> None:
        """See `Batches.start`."""
        for step in range(min(self._ahead, self._epoch.steps)):
            self._submit_step(step)

    def wait(self, step: int) -> tuple[memoryview, int]:
        """See `Batches.wait`."""
        if step not in self._pending:  # only with no batch ahead
            self._submit_step(step)
        tasks = self._pending.pop(step)
        for task in tasks:
            task.wait()
        self.reading += _task_span(tasks)
        self.called = tasks[0].called if len(tasks) == 1 else max([task.called for task in tasks], default=0)
        # The slot of the step before this one is free now. Other ranks submit this too, so not after raising an error.
        if self._ahead and step + self._ahead < self._epoch.steps:
            self._submit_step(step + self._ahead)
        return self._slots[step % len(self._slots)], sum([task.result() for task in tasks])

    def run(self, action: Callable[[], T]) -> T:
        """See `Batches.run`."""
        if not self._collective:
            return action()
        task: _Task[T] = _Task(lambda _: action())
        self._queues[0].put(task)
        task.wait()
        return task.result()

    def end(self) -> None:
        """See `Batches.end`; errors of batches that nobody waited for are nobody's."""
        for tasks in self._pending.values():
            for task in tasks:
                task.wait()
        self._pending.clear()
        self._run_on_readers(lambda reader: reader.end_epoch())

    def close(self, failed: bool = False) -> None:
        """See `Batches.close`; safe to call twice."""
        if not self._threads:
            return
        self._cancelled = failed
        if not failed:
            self._run_on_readers(lambda reader: reader.close())
        for queue in self._queues:
            queue.put(None)
        for thread in self._threads:
            thread.join(PATIENCE if failed else None)
        self._threads = []

    def _run_on_readers(self, action: Callable[[Reader], None]) -> None:
        """Something that may be collective, once for each reader, in their order and with none of them at work."""
        for reader in self.readers:
            self.run(partial(action, reader))

    def _submit_step(self, step: int) -> None:
        slot = self._slots[step % len(self._slots)]
        epoch = self._epoch
        if self._groups > 1:
            shares = epoch.shares(step, self._groups)
            processing = [partial(epoch.process_share, step, *share, len(shares), slot) for share in shares]
            parts = [[epoch.calls.round(step, *share)] for share in shares]
        else:
            parts, processing = [epoch.step_rounds(step)], [partial(epoch.process, step, slot)]
        tasks = self._pending[step] = [
            _ReadTask(part, slot, then) for part, then in zip(parts, processing, strict=True)
        ]
        for task in tasks:
            self._queues[step % len(self._queues)].put(task)

    def _run_tasks(self, reader: Reader, queue: _Queue) -> None:
        if isinstance(reader, OverlappingReader):
            self._run_overlapping_tasks(reader, queue)
            return
        while (task := queue.get()) is not None:
            if not self._cancelled:
                task.perform(reader)

    def _run_overlapping_tasks(self, reader: OverlappingReader, queue: _Queue) -> None:
        """As `_run_tasks`, but with the next batch begun while the last calls of the one before are in flight."""
        begun: deque[_ReadTask] = deque()
        inside = 0  # when the batch before was complete, or none was begun
        while True:
            if not begun or (reader.has_room and not queue.empty()):
                # Another thread may have been faster: then this one has others to go on with, or waits.
                try:
                    task = queue.get(block=not begun)
                except Empty:
                    continue
                if task is None:
                    return
                if self._cancelled:
                    continue
                if not isinstance(task, _ReadTask):
                    task.perform(reader)
                    continue
                if not begun:
                    inside = reader.meter.io_call_ns
                try:
                    task.begin(reader)
                except BaseException as error:  # as below
                    task.fail(error)
                else:
                    begun.append(task)
                continue
            try:
                complete = reader.advance()
            except BaseException as error:  # whatever it is, it is the main thread's to raise
                while begun:
                    begun.popleft().fail(error)
                continue
            if complete:
                begun.popleft().complete(reader, inside)
                inside = reader.meter.io_call_ns


def _read_parts(parts: list[Calls], slot: memoryview, reader: Reader) -> int:
    return sum([reader.read(part, slot) for part in parts])


def _task_span(tasks: list[_Task[int]]) -> tuple[int, int]:
    """When the first of a step's tasks began and the last was over; zeros where there are none."""
    if len(tasks) == 1:
        return tasks[0].begun, tasks[0].ended
    return min([task.begun for task in tasks], default=0), max([task.ended for task in tasks], default=0)


class _Task(Generic[T]):
    """Something for a reader's thread to do, once; a bare lock is the cheapest way to wait for it.

    `begun` and `ended` are when it was done, for the pictures of a run: no figure is made of them. `called` is its part
    of `Batches.called`.
    """

    __slots__ = ("_action", "_done", "_error", "_value", "begun", "called", "ended")

    def __init__(self, action: Callable[[Reader], T]) -> None:
        self._action = action
        self._done = threading.Lock()
        self._done.acquire()
        self._error: BaseException | None = None
        self._value: T
        self.begun = self.ended = self.called = 0

    def perform(self, reader: Reader) -> None:
        """Do it, keep what comes of it, and wake whoever waits."""
        self.begun = perf_counter_ns()
        self.finish(partial(self._action, reader))

    def finish(self, action: Callable[[], T]) -> None:
        """Do what is left of it instead."""
        try:
            self._value = action()
        except BaseException as error:  # whatever it is, it is the main thread's to raise
            self._error = error
        finally:
            self.ended = perf_counter_ns()
            self._done.release()

    def fail(self, error: BaseException) -> None:
        """Give up, and wake whoever waits."""
        self._error = error
        self._done.release()

    def wait(self) -> None:
        """Wait until it is done; only once."""
        self._done.acquire()

    def result(self) -> T:
        """What came of it, after `wait`."""
        if self._error is not None:
            raise self._error
        return self._value


class _ReadTask(_Task[int]):
    """The reading of a batch, or of a reader's share of it, which may also be begun now and finished later.

    `then` is what the reader does with the data once they are there.
    """

    __slots__ = ("_parts", "_slot", "_then")

    def __init__(self, parts: list[Calls], slot: memoryview, then: Callable[[], int]) -> None:
        super().__init__(self._read_batch)
        self._parts = parts
        self._slot = slot
        self._then = then

    def _read_batch(self, reader: Reader) -> int:
        inside = reader.meter.io_call_ns
        got = _read_parts(self._parts, self._slot, reader)
        self.called = reader.meter.io_call_ns - inside + self._then()
        return got

    def begin(self, reader: OverlappingReader) -> None:
        """Begin it; there is one part, as only collective reads have several."""
        self.begun = perf_counter_ns()
        for part in self._parts:
            reader.begin(part, self._slot)

    def complete(self, reader: OverlappingReader, inside: int) -> None:
        """Finish it, as the batch begun first is complete; `inside` is the meter's when the one before it was."""

        def complete_batch() -> int:
            got = reader.complete()
            self.called = reader.meter.io_call_ns - inside + self._then()
            return got

        self.finish(complete_batch)


_Queue: TypeAlias = "SimpleQueue[_Task[Any] | None]"
