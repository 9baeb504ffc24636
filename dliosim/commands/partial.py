"""The results of what a run has finished, written by another thread of rank 0 at any moment, without MPI."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from dliosim.commands.signals import OVER
from dliosim.execute.io_errors import rank_0_error
from dliosim.execute.mpi.job_abort import RESULTS_DUE

if TYPE_CHECKING:
    from dliosim.measure.run_summary import RunSummary


class PartialResults:
    """A run whose partial results `save` writes; the main thread says by `begin` and `over` from when until when."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._so_far: Callable[[str], RunSummary] | None = None
        self._write: Callable[[RunSummary], Path] | None = None
        self._otherwise = "no results were written"

    def begin(self, so_far: Callable[[str], RunSummary], write: Callable[[RunSummary], Path]) -> None:
        """From now on `so_far` makes the run as it stands, given the name of the signal, and `write` writes that."""
        self._so_far, self._write = so_far, write

    @contextmanager
    def final_write(self) -> Iterator[None]:
        """In the block results.json is written; nobody writes partial results beside it or later."""
        with self._lock:
            self._so_far, self._otherwise = None, OVER
            yield

    def save(self, signal: str) -> str:
        """Write results.partial.json if anything is finished; what became of it, in words."""
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
        finally:
            self._lock.release()
