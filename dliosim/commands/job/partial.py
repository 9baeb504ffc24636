"""The results of what a run has finished: written now and then, and by another thread of rank 0 when a signal comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING

from dliosim.commands.job.signals import OVER
from dliosim.execute.io_errors import rank_0_error
from dliosim.execute.mpi.job_abort import RESULTS_DUE

if TYPE_CHECKING:
    from dliosim.measure.results.run_summary import RunSummary

#: Seconds without a write, at least, and how many times as long as the last write took: writing takes 2 % at most.
_PAUSE, _SPARSE = 5.0, 50


class PartialResults:
    """The partial results of a run, which are written between `begin` and `final_write` of the main thread.

    No MPI is needed. What was written last is there however the run ends: launchers may kill the ranks before any of
    them can write what it has.
    """

    def __init__(self) -> None:
        self._due = 0.0
        self._lock = Lock()
        self._so_far: Callable[[str], RunSummary] | None = None
        self._write: Callable[[RunSummary], Path] | None = None
        self._otherwise = "no results were written"

    def begin(self, so_far: Callable[[str], RunSummary], write: Callable[[RunSummary], Path]) -> None:
        """Let results be written from now on: `so_far` returns the run until now, `write` writes it.

        `so_far` takes the name of the signal, which is empty for `keep`.
        """
        self._so_far, self._write = so_far, write
        self._due = monotonic() + _PAUSE

    @contextmanager
    def final_write(self) -> Iterator[None]:
        """Write results.json in this block; partial results are not written during it or later."""
        with self._lock:
            self._so_far, self._otherwise = None, OVER
            yield

    def keep(self) -> None:
        """Write results.partial.json unless that was done lately; an epoch or a verb has ended, and no clock runs.

        What cannot be written is not reported: the run may well end with results.
        """
        began = monotonic()
        if began >= self._due and self._lock.acquire(blocking=False):
            try:
                with suppress(OSError):
                    self._write_finished("")
            finally:
                self._lock.release()
                self._due = monotonic() + max(_PAUSE, _SPARSE * (monotonic() - began))

    def save(self, signal: str) -> str:
        """Write results.partial.json if anything is finished; return in words what was done."""
        if not self._lock.acquire(timeout=RESULTS_DUE):
            return f"{OVER}, and its results were still being written"
        try:
            place = self._write_finished(signal)
            if place is not None:
                return f"what was finished is in {place}"
            return self._otherwise if self._so_far is None else f"{self._otherwise}, as nothing was finished"
        except OSError as error:
            return str(rank_0_error("write the partial results", error))
        except Exception as error:  # the job must end, even if its results cannot be made
            return f"the partial results could not be made: {error!r}"
        finally:
            self._lock.release()

    def _write_finished(self, signal: str) -> Path | None:
        """Write what is finished and return the file; None where nothing is, and before `begin` or after the end."""
        if self._so_far is None or self._write is None:
            return None
        run = self._so_far(signal)
        return self._write(run) if run.phases else None
