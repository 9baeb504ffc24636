"""Prefetch: threads read batches ahead of the steps, in an order that only the main thread decides."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from time import perf_counter_ns
from typing import Any, Generic, TypeAlias, TypeVar

from dliosim.execute.backends.contract import OverlappingReader, Reader
from dliosim.execute.batches.decode_preprocess import EpochCalls
from dliosim.model import Access, By
from dliosim.plan.samples.io_requests import Calls
from dliosim.trace.recorder import recorder

T = TypeVar("T")

#: Seconds that `close` waits for each thread after the run has failed: a call in it may never return.
PATIENCE = 5.0


class Batches(ABC):
    """The batches of one loop on one rank, epoch by epoch and in the order of steps.

    The `run`, `end` and `close` of this class suit batches without threads.
    """

    def __init__(self, readers: Sequence[Reader]) -> None:
        #: the readers; their meters count all calls
        self.readers = readers
        #: native ids of the reader threads; empty if the waiting thread reads itself
        self.threads: Sequence[int] = ()
        #: ids of the reader processes; their bytes are those of the rank
        self.processes: Sequence[int] = ()
        #: of each step that a reader thread read and `wait` returned: when reading began and ended; perf_counter_ns,
        #: two entries a step, zeros if there was nothing to read. The code that takes the entries clears the list
        self.reading: list[int] = []
        #: of the last step waited for: ns that its readers were inside calls
        self.called = 0
        #: of the last step waited for: ns that reader threads decoded and preprocessed it
        self.decoded = 0
        #: of the last step waited for: ns that the waiting thread decoded and preprocessed itself, after the data came
        self.processed = 0

    @abstractmethod
    def begin(self, epoch: EpochCalls) -> None:
        """Begin an epoch with the calls of its steps: open the files that all ranks open together."""

    @abstractmethod
    def start(self) -> None:
        """Begin to read. Call it after the epoch's clock starts: what is read ahead is part of the epoch."""

    @abstractmethod
    def wait(self, step: int) -> tuple[memoryview, int]:
        """Wait for the batch of a step; return the buffer that holds it and the bytes that its calls returned.

        The buffer is valid until `release` or the next `wait`. Steps come in order, from 0. Raises ExecutionError if a
        call failed.
        """

    def release(self, step: int) -> None:
        """Note that the batch of a step, the last one waited for, is used: its buffer may take another one."""
        return

    def run(self, action: Callable[[], T]) -> T:
        """Run an action with collective file calls on the thread that makes them, after those submitted before.

        Returns its result, or raises its error.
        """
        return action()

    def end(self) -> None:
        """End the epoch, after any step: wait for the reads that are ahead, and close what `begin` opened."""
        for reader in self.readers:
            reader.end_epoch()

    def close(self, failed: bool = False) -> None:
        """Stop the threads and close the files; with `failed`, make no call that might never return. Safe twice."""
        for reader in [] if failed else self.readers:
            reader.close()


def make_batches(access: Access, readers: Sequence[Reader], slots: Sequence[memoryview]) -> Batches:
    """Make the batches of `access`; `slots` are `access.batches` buffers of `Calls.buffer_size` bytes or more."""
    if access.readers == 0:
        return InlineBatches(readers, slots)
    return PrefetchedBatches(readers, slots, access.prefetch, access.by, access.collective)


class InlineBatches(Batches):
    """Batches that the calling thread reads within the step (`readers 0`)."""

    def __init__(self, readers: Sequence[Reader], slots: Sequence[memoryview]) -> None:
        super().__init__(readers)
        self._reader = readers[0]
        self._slot = slots[0]
        self._inside = 0

    def begin(self, epoch: EpochCalls) -> None:
        """Begin an epoch: open the files that all ranks open together."""
        self._epoch = epoch
        self._reader.begin_epoch()

    def start(self) -> None:
        """Note the time spent in calls so far; `wait` reads the batch."""
        self._inside = self._reader.meter.io_call_ns

    def wait(self, step: int) -> tuple[memoryview, int]:
        """Read the batch of a step; return the buffer and the bytes that its calls returned."""
        epoch, slot = self._epoch, self._slot
        got = _read_parts(epoch.step_rounds(step), slot, self._reader)
        inside = self._reader.meter.io_call_ns
        self.called, self._inside = inside - self._inside, inside
        if epoch.processing is not None:
            self.processed = epoch.process(step, slot)
        return slot, got


class PrefetchedBatches(Batches):
    """Batches that K reader threads read ahead, N of them.

    The main thread submits the reads of steps 0 to N - 1 when an epoch's clock starts, and the read of step s + N when
    it has used the batch of step s: the data are on the accelerator by then, so the read reuses that buffer and a rank
    never holds more than N batches. This order is the same on every rank, even if a read fails. With `by sample` the
    readers divide the calls of a step. Otherwise one reader reads the whole batch: any reader that is free, or with `by
    batch in turn` reader s mod K. With `collective` there is one reader; files are opened and closed, and `run` runs
    its action, on its thread, in the order of the requests.
    """

    def __init__(
        self,
        readers: Sequence[Reader],
        slots: Sequence[memoryview],
        ahead: int,
        by: By,
        collective: bool,
        threads: int = 1,
    ) -> None:
        """Start the threads, some for each reader."""
        super().__init__(readers)
        self._slots = slots
        self._ahead = ahead
        self._used = -1  # the last step whose batch is used
        self._groups = len(readers) if by == "sample" else 1
        self._collective = collective
        shared: TaskQueue = SimpleQueue()
        # One queue for all readers, from which a free reader takes the next task; or one queue for each reader.
        self._queues = [SimpleQueue() if by == "batch in turn" else shared for _ in readers]
        self._pending: dict[int, Sequence[Task[int]]] = {}
        self._cancelled = False
        self._threads = [
            threading.Thread(
                target=self._run_tasks, args=(reader, self._queues[number]), name=f"reader-{number}", daemon=True
            )
            for number, reader in enumerate(readers)
            for _ in range(threads)
        ]
        for thread in self._threads:
            thread.start()
        self.threads = [thread.native_id for thread in self._threads if thread.native_id is not None]

    def begin(self, epoch: EpochCalls) -> None:
        """Begin an epoch: open the files that all ranks open together, on the reader's thread if `collective`."""
        self._epoch, self._used = epoch, -1
        self._run_on_readers(lambda reader: reader.begin_epoch())

    def start(self) -> None:
        """Submit the reads of the first steps, one for each batch ahead."""
        for step in range(min(self._ahead, self._epoch.steps)):
            self._submit_step(step)

    def wait(self, step: int) -> tuple[memoryview, int]:
        """Wait for the batch of a step, and submit the next read; return the buffer and the bytes of its calls.

        Raises ExecutionError if a call failed.
        """
        if self._used < step - 1:
            self.release(step - 1)
        if not self._ahead:
            self._submit_step(step)
        tasks = self._pending.pop(step)
        for task in tasks:
            task.wait()
        self.reading += _task_span(tasks)
        last = tasks[0].inside if len(tasks) == 1 else max([task.inside for task in tasks], key=sum, default=(0, 0))
        self.called, self.decoded = last
        try:
            return self._slots[step % len(self._slots)], sum([task.result() for task in tasks])
        except BaseException:
            # The other ranks submit the next read too, and would wait forever in a collective call of theirs alone.
            self.release(step)
            raise

    def release(self, step: int) -> None:
        """Submit the read that takes the buffer of a step, the last one waited for; nothing if that was done."""
        if self._used < step:
            self._used = step
            if self._ahead and step + self._ahead < self._epoch.steps:
                self._submit_step(step + self._ahead)

    def run(self, action: Callable[[], T]) -> T:
        """Run an action on the reader's thread if `collective`, else on the calling thread; return its result."""
        if not self._collective:
            return action()
        task: Task[T] = Task(lambda _: action())
        self._queues[0].put(task)
        task.wait()
        return task.result()

    def end(self) -> None:
        """End the epoch: wait for the reads that are ahead, ignore their errors, and close the epoch's files."""
        for tasks in self._pending.values():
            for task in tasks:
                task.wait()
        self._pending.clear()
        self._run_on_readers(lambda reader: reader.end_epoch())

    def close(self, failed: bool = False) -> None:
        """Close the files and stop the threads; with `failed`, only stop the threads. Safe to call twice."""
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
        """Run an action that may be collective once for each reader, in their order, while no reader is reading."""
        for reader in self.readers:
            self.run(partial(action, reader))

    def _submit_step(self, step: int) -> None:
        tasks = self._pending[step] = self._make_tasks(step, self._slots[step % len(self._slots)])
        for task in tasks:
            self._queues[step % len(self._queues)].put(task)

    def _make_tasks(self, step: int, slot: memoryview) -> Sequence[Task[int]]:
        """Return the tasks that read a step, one for each reader that has a share of it."""
        epoch = self._epoch
        if self._groups > 1:
            shares = epoch.shares(step, self._groups)
            then = partial(epoch.process_share, step, shares=len(shares), slot=slot)
            return [_ReadTask([epoch.calls.part(*share)], slot, partial(then, *share)) for share in shares]
        return [_ReadTask(epoch.step_rounds(step), slot, partial(epoch.process, step, slot))]

    def _run_tasks(self, reader: Reader, queue: TaskQueue) -> None:
        trace, log = recorder(), reader.meter.log
        if trace is not None and log is not None:
            trace.number_thread(log.thread)
        if isinstance(reader, OverlappingReader):
            self._run_overlapping_tasks(reader, queue)
            return
        while (task := queue.get()) is not None:
            if not self._cancelled:
                task.perform(reader)

    def _run_overlapping_tasks(self, reader: OverlappingReader, queue: TaskQueue) -> None:
        """Run the tasks of a queue; begin the next batch while the last calls of the one before are in flight."""
        begun: deque[_ReadTask] = deque()
        inside = 0  # the meter's ns in calls when the last batch was complete, or when the first was begun
        while True:
            if not begun or (reader.has_room and not queue.empty()):
                # Another thread may take the task first. Then this one continues its own batches, or waits if it has
                # none.
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
                    begun.append(task)
                except BaseException as error:  # as below
                    task.fail(error)
                continue
            try:
                complete = reader.advance()
            except BaseException as error:  # the main thread raises it, of any class
                while begun:
                    begun.popleft().fail(error)
                continue
            if complete:
                begun.popleft().complete(reader, inside)
                inside = reader.meter.io_call_ns


def _read_parts(parts: list[Calls], slot: memoryview, reader: Reader) -> int:
    return reader.read(parts[0], slot) if len(parts) == 1 else sum([reader.read(part, slot) for part in parts])


def _task_span(tasks: Sequence[Task[int]]) -> tuple[int, int]:
    """Return when the first of a step's tasks began and the last one ended, perf_counter_ns; zeros without tasks."""
    if len(tasks) == 1:
        return tasks[0].begun, tasks[0].ended
    return min([task.begun for task in tasks], default=0), max([task.ended for task in tasks], default=0)


class Task(Generic[T]):
    """An action for a reader's thread, performed once. A bare lock is the cheapest way to wait for it.

    `begun` and `ended` are clock readings (perf_counter_ns) for the pictures of a run; no figure uses them. `inside` is
    this task's part of `Batches.called` and `decoded`, ns.
    """

    __slots__ = ("_action", "_done", "_error", "_value", "begun", "ended", "inside")

    def __init__(self, action: Callable[[Reader], T]) -> None:
        self._action = action
        self._done = threading.Lock()
        self._done.acquire()
        self._error: BaseException | None = None
        self._value: T
        self.begun = self.ended = 0
        self.inside = 0, 0

    def perform(self, reader: Reader) -> None:
        """Run the action, keep its result or its error, and wake the waiting thread."""
        self.begun = perf_counter_ns()
        self.finish(partial(self._action, reader))

    def finish(self, action: Callable[[], T]) -> None:
        """Run `action` in place of the task's own, keep its result or its error, and wake the waiting thread."""
        try:
            self._value = action()
        except BaseException as error:  # the main thread raises it, of any class
            self._error = error
        finally:
            self.ended = perf_counter_ns()
            # A method of this task refers to it. Loops collect no garbage, and the plan of each epoch would stay.
            del self._action
            self._done.release()

    def fail(self, error: BaseException) -> None:
        """Keep an error as the outcome, and wake the waiting thread."""
        self._error = error
        self._done.release()

    def wait(self) -> None:
        """Wait until the task is done. Call it once only."""
        self._done.acquire()

    def result(self) -> T:
        """Return the result of the action, or raise its error; after `wait`."""
        if self._error is not None:
            raise self._error
        return self._value


class _ReadTask(Task[int]):
    """The reading of a batch, or of a reader's share of it; it may also be begun now and completed later.

    `then` processes the data after they are read, and returns the elapsed ns.
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
        self.inside = reader.meter.io_call_ns - inside, self._then()
        return got

    def begin(self, reader: OverlappingReader) -> None:
        """Begin the read. There is one part: only collective reads have several, and these do not overlap."""
        self.begun = perf_counter_ns()
        for part in self._parts:
            reader.begin(part, self._slot)

    def complete(self, reader: OverlappingReader, inside: int) -> None:
        """Complete the read, which is the oldest one begun.

        `inside` is `io_call_ns` of the meter at the time when the previous batch was complete.
        """

        def complete_batch() -> int:
            got = reader.complete()
            self.inside = reader.meter.io_call_ns - inside, self._then()
            return got

        self.finish(complete_batch)


TaskQueue: TypeAlias = "SimpleQueue[Task[Any] | None]"
