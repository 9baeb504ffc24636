"""Saves in the background: the host buffers that states are copied to, and the thread that flushes while steps run."""

from __future__ import annotations

import threading
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from queue import SimpleQueue
from time import perf_counter_ns
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from dliosim.errors import DliosimError, ExecutionError
from dliosim.execute.backends.contract import allocate
from dliosim.execute.checkpoints.state_writer import Made, fill_piece, generate_pieces, largest_call, pieces_of
from dliosim.execute.mpi.job_abort import end_job
from dliosim.execute.mpi.world import duplicate_world
from dliosim.execute.node.compute import sleep_until
from dliosim.execute.payload.payload_format import part_keys
from dliosim.execute.phases.context import Progress, Session
from dliosim.measure.rank.records import VerbRecord
from dliosim.model.checkpoint import Background
from dliosim.plan.checkpoints.layout import StateFiles
from dliosim.plan.samples.sample_to_file import align_up


class StagedSave(NamedTuple):
    """The copy of one save."""

    #: returns its calls, from the first again each time
    made: Callable[[], Made]
    #: time by which the copy was slower than its pace; ns
    late_ns: int
    #: gives the buffer back, if there is one
    release: Callable[[], None]
    #: nothing was copied, and contents are made during the flush
    simulated: bool


class StagingBuffers:
    """The staging buffers of one rank for one checkpoint: one a save in flight, none if simulated."""

    def __init__(self, files: StateFiles, rank: int, background: Background) -> None:
        """Allocate and touch the buffers. Raises ExecutionError [R402]."""
        self._files = files
        self._rank = rank
        self._background = background
        self._align = files.checkpoint.access.page
        size = _buffer_bytes(files, rank)
        self._source = memoryview(b"")
        self._free: deque[memoryview] = deque()
        if not background.simulated:
            # The state that a device would hold is made here, one call at a time.
            self._source = allocate(largest_call(files, rank))
            self._free.extend(allocate(size) for _ in range(background.in_flight))

    def stage(self, number: int, may_spin: bool, progress: Progress, record: VerbRecord) -> StagedSave:
        """Copy what this rank saves in save `number`, in the time that its pace asks for; a buffer must be free.

        `record.stage_ns` counts the copy alone, `record.content_ns` making what is copied.
        """
        keys = part_keys(self._files.checkpoint, self._files.parts, number)
        if self._background.simulated:
            late = self._wait_for_pace(perf_counter_ns(), 0, may_spin, record)
            return StagedSave(lambda: generate_pieces(self._files, keys, self._rank, record), late, lambda: None, True)
        buffer = self._free.popleft()
        at = copied = done = 0
        ended = perf_counter_ns()
        for piece in pieces_of(self._files, self._rank):
            begun = perf_counter_ns()
            source, target = self._source[: piece.length], buffer[at : at + piece.length]
            fill_piece(self._files, keys, piece, source)
            made = perf_counter_ns()
            # Not a slice assignment: numpy releases the interpreter lock, so that reader threads can continue.
            np.copyto(np.frombuffer(target, np.uint8), np.frombuffer(source, np.uint8))
            ended = perf_counter_ns()
            record.content_ns += made - begun
            copied += ended - made
            at += align_up(piece.length, self._align)
            done += piece.length
            progress.tick(ended, 0, done)
        late = self._wait_for_pace(ended, copied, may_spin, record)
        return StagedSave(lambda: self._buffer_pieces(buffer), late, lambda: self._free.append(buffer), False)

    def _wait_for_pace(self, now: int, copied: int, may_spin: bool, record: VerbRecord) -> int:
        """Sleep for the rest of the time that the copy should take; return by how many ns it took longer."""
        pace = self._background.staging
        due = round(pace.duration(self._files.owner_bytes(self._rank)) * 1e9) if pace is not None else copied
        record.stage_ns += copied
        if due > copied:
            sleep_until(now + due - copied, may_spin)
            record.stage_ns += perf_counter_ns() - now
        return max(0, copied - due)

    def _buffer_pieces(self, buffer: memoryview) -> Made:
        at = 0
        for piece in pieces_of(self._files, self._rank):
            yield piece, buffer[at : at + piece.length]
            at += align_up(piece.length, self._align)


def staging_bytes(files: StateFiles, rank: int, background: Background) -> int:
    """Return the bytes of all buffers that `StagingBuffers` of a rank allocates."""
    if background.simulated:
        return 0
    return background.in_flight * _buffer_bytes(files, rank) + largest_call(files, rank)


def _buffer_bytes(files: StateFiles, rank: int) -> int:
    # O_DIRECT writes a buffer without another copy only if it begins at a page.
    align = files.checkpoint.access.page
    if align == 1:
        return files.owner_bytes(rank)
    return sum(align_up(piece.length, align) for piece in pieces_of(files, rank))


#: The end of an interval that is still open; ns.
NEVER = (1 << 63) - 1

#: Seconds between two updates of the line of progress while the main thread waits.
_LOOK = 0.25


class BackgroundTask:
    """A task of a worker; after it, `error` is the error that ended it, the same on every rank."""

    def __init__(self, action: Callable[[Session], None], after: BackgroundTask | None) -> None:
        self.action = action
        self.after = after
        self.error: DliosimError | None = None
        self.over = threading.Event()

    @property
    def is_over(self) -> bool:
        """Return whether it is done, or has failed."""
        return self.over.is_set()

    def wait(self, progress: Progress | None = None) -> None:
        """Wait until it is over, with or without an error."""
        while not self.over.wait(_LOOK if progress is not None else None):
            if progress is not None:
                progress.tick(perf_counter_ns(), 0, 0)


class Worker:
    """A thread of this rank, for tasks that are submitted in the same order on every rank.

    It has communicators of its own, so that its messages never mix with those of the steps. It sleeps while it waits,
    since steps run at the same time. Making and closing a worker is collective.
    """

    def __init__(self, session: Session, name: str) -> None:
        """Start the thread. Collective."""
        self._world = duplicate_world(session.world)
        self._session = replace(session, world=self._world, progress=_NullProgress())
        self._jobs: SimpleQueue[BackgroundTask | None] = SimpleQueue()
        self._at_work: list[tuple[int, int]] = []
        self._thread = threading.Thread(target=self._run_tasks, name=name, daemon=True)
        self._thread.start()

    def submit(self, action: Callable[[Session], None], after: BackgroundTask | None = None) -> BackgroundTask:
        """Submit a task; it begins after those before it, and after `after`, a task of another worker.

        If `after` fails, the task is not executed. `action` is given a session whose communicators connect the workers
        of all ranks. A DliosimError that it raises on this rank alone ends the job of all ranks.
        """
        job = BackgroundTask(action, after)
        self._jobs.put(job)
        return job

    def busy_intervals(self, since: int) -> list[tuple[int, int]]:
        """Return when tasks ran that were not over at `since`: (begin, end) in perf_counter_ns.

        The end is NEVER while a task still runs. Intervals that ended before `since` are forgotten.
        """
        while self._at_work and self._at_work[0][1] < since:
            del self._at_work[0]
        return self._at_work

    def close(self, free: bool) -> None:
        """Execute what was submitted, and end; with `free` free the communicators, which is collective."""
        self._jobs.put(None)
        self._thread.join()
        if free:
            self._world.close()
            self._world.comm.Free()

    def _run_tasks(self) -> None:
        while (job := self._jobs.get()) is not None:
            if job.after is not None:
                job.after.wait()
            if job.after is None or job.after.error is None:
                self._run_task(job)
            job.over.set()

    def _run_task(self, job: BackgroundTask) -> None:
        begun = perf_counter_ns()
        self._at_work.append((begun, NEVER))
        try:
            with self._world.abort_on_error():
                job.action(self._session)
        except DliosimError as error:
            job.error = error
        except BaseException:  # no rank could receive it, and all would wait
            text = f"rank {self._world.rank}: a fault in dliosim itself; please report it\n{traceback.format_exc()}"
            end_job(self._world.job, text)
        finally:
            self._at_work[-1] = (begun, perf_counter_ns())


class _NullProgress(Progress):
    """A line of progress that is not shown: the terminal shows that of the steps."""


def require_threads(what: str) -> None:
    """Raise ExecutionError [R403] unless MPI has MPI_THREAD_MULTIPLE; on every rank."""
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        text = f"{what} needs an MPI with MPI_THREAD_MULTIPLE, and this one has less"
        raise ExecutionError(text, "R403").mark_shared()
