"""A thread of each rank that executes tasks in order during the steps, together with those of the other ranks."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from dataclasses import replace
from queue import SimpleQueue
from time import perf_counter_ns

from mpi4py import MPI

from dliosim.errors import DliosimError, ExecutionError
from dliosim.execute.mpi.job_abort import end_job
from dliosim.execute.mpi.world import duplicate_world
from dliosim.execute.phases.context import Progress, Session

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
            job.action(self._session)
        except DliosimError as error:
            if not error.shared and self._world.size > 1:
                # Only this rank knows, and the others may wait for it anywhere.
                self._world.abort(error)
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
