"""A thread of each rank that does one thing after the other beside the steps, and meets those of the other ranks."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from queue import SimpleQueue
from time import perf_counter_ns

from mpi4py import MPI

from dliosim.errors import DliosimError, ExecutionError
from dliosim.execute.context import Progress, Session
from dliosim.execute.mpi.job_abort import end_job
from dliosim.execute.mpi.world import duplicate_world

#: The end of what goes on.
NEVER = (1 << 63) - 1

#: Seconds between two looks of whoever waits at the line of progress.
_LOOK = 0.25


class BackgroundTask:
    """Something that a worker does; `error` is what ended it, the same on every rank, once it is over."""

    def __init__(self, action: Callable[[Session], None], after: BackgroundTask | None) -> None:
        self.action = action
        self.after = after
        self.error: DliosimError | None = None
        self._over = threading.Event()

    @property
    def is_over(self) -> bool:
        """Whether it is done, or has failed."""
        return self._over.is_set()

    def mark_done(self) -> None:
        """Wake whoever waits."""
        self._over.set()

    def wait(self, progress: Progress | None = None) -> None:
        """Wait until it is over, however it ended."""
        while not self._over.wait(_LOOK if progress is not None else None):
            if progress is not None:
                progress.tick(perf_counter_ns(), 0, 0)


class Worker:
    """A thread of this rank, for jobs that are submitted in the same order on every rank.

    It has communicators of its own, so that what it agrees on with those of the other ranks is nobody else's, and it
    sleeps while it waits, since steps go on beside it. Making and closing one is collective.
    """

    def __init__(self, session: Session, name: str) -> None:
        """Raises ExecutionError [R403] on every rank where MPI does not let threads call it."""
        self._world = duplicate_world(session.world)
        self._session = replace(session, world=self._world, progress=_NullProgress())
        self._jobs: SimpleQueue[BackgroundTask | None] = SimpleQueue()
        self._at_work: list[tuple[int, int]] = []
        self._thread = threading.Thread(target=self._run_tasks, name=name, daemon=True)
        self._thread.start()

    def submit(self, action: Callable[[Session], None], after: BackgroundTask | None = None) -> BackgroundTask:
        """Have it done, after those before and, if that does not fail, after `after`, which another worker does.

        `action` is given a session to meet the other ranks' workers by. A DliosimError that it raises on this rank
        alone ends the job of all ranks.
        """
        job = BackgroundTask(action, after)
        self._jobs.put(job)
        return job

    def busy_intervals(self, since: int) -> list[tuple[int, int]]:
        """When (perf_counter_ns, begin and end) it was at work, of what was not over at `since`; NEVER if it still is.

        What was over before is forgotten.
        """
        while self._at_work and self._at_work[0][1] < since:
            del self._at_work[0]
        return self._at_work

    def close(self, free: bool) -> None:
        """Do what was submitted, and end; with `free` give back the communicators, which is collective."""
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
            job.mark_done()

    def _run_task(self, job: BackgroundTask) -> None:
        begun = perf_counter_ns()
        self._at_work.append((begun, NEVER))
        try:
            job.action(self._session)
        except DliosimError as error:
            if not error.shared and self._world.size > 1:
                # Only this rank knows, and the others may wait for it anywhere.
                self._world.abort(error)
            job.error = error
        except BaseException:  # nobody could hear of it, and all would wait
            text = f"rank {self._world.rank}: a fault in dliosim itself; please report it\n{traceback.format_exc()}"
            end_job(self._world.job, text)
        finally:
            self._at_work[-1] = (begun, perf_counter_ns())


class _NullProgress:
    """A line of progress that nobody sees: that of the steps is shown meanwhile."""

    def start(self, phase: str, epoch: int, epochs: int, steps: int) -> None:
        """Nothing."""

    @contextmanager
    def track_bytes(self, phase: str, total: Callable[[], int]) -> Iterator[None]:
        """Nothing."""
        yield

    def tick(self, now_ns: int, step: int, done_bytes: int) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""


def require_threads(what: str) -> None:
    """Raise ExecutionError [R403] unless threads may call MPI beside each other; on every rank alike."""
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        error = ExecutionError(f"{what} needs an MPI with MPI_THREAD_MULTIPLE, and this one has less", "R403")
        error.shared = True
        raise error
