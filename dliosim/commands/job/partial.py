"""The results of what a run has finished, written by another thread of rank 0 at any moment, without MPI."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from dliosim.commands.job.signals import OVER
from dliosim.execute.io_errors import rank_0_error
from dliosim.execute.mpi.job_abort import RESULTS_DUE

if TYPE_CHECKING:
    from dliosim.measure.results.run_summary import RunSummary


class PartialResults:
    """The partial results of a run, which `save` writes between `begin` and `final_write` of the main thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._so_far: Callable[[str], RunSummary] | None = None
        self._write: Callable[[RunSummary], Path] | None = None
        self._otherwise = "no results were written"

    def begin(self, so_far: Callable[[str], RunSummary], write: Callable[[RunSummary], Path]) -> None:
        """Let `save` write results from now on: `so_far` returns the run until now, `write` writes it.

        `so_far` takes the name of the signal.
        """
        self._so_far, self._write = so_far, write

    @contextmanager
    def final_write(self) -> Iterator[None]:
        """Write results.json in this block; partial results are not written during it or later."""
        with self._lock:
            self._so_far, self._otherwise = None, OVER
            yield

    def save(self, signal: str) -> str:
        """Write results.partial.json if anything is finished; return in words what was done."""
        if not self._lock.acquire(timeout=RESULTS_DUE):
            return f"{OVER}, and its results were still being written"
        try:
            if self._so_far is None or self._write is None:
                return self._otherwise
            run = self._so_far(signal)
            if not run.phases:
                return f"{self._otherwise}, as nothing was finished"
            return f"what was finished is in {self._write(run)}"
        except OSError as error:
            return str(rank_0_error("write the partial results", error))
        except Exception as error:  # the job must end, even if its results cannot be made
            return f"the partial results could not be made: {error!r}"
        finally:
            self._lock.release()
