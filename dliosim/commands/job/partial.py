"""The results so far of a run: written now and then, and by another thread of rank 0 on a signal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from time import monotonic

from dliosim.commands.job.signals import OVER
from dliosim.execute.io_errors import rank_0_error
from dliosim.execute.mpi.job_abort import RESULTS_DUE

#: Seconds without a write, at least, and how many times as long as the last write took: writing takes 2 % at most.
_PAUSE, _SPARSE = 5.0, 50


class PartialResults:
    """The partial results of a run, which are written between `begin` and `final_write` of the main thread.

    No MPI is needed. The last write survives however the run ends: launchers may kill the ranks before any of them can
    write its results. Without `begin`, `save` only returns `otherwise`.
    """

    def __init__(self, otherwise: str) -> None:
        self._due = 0.0
        self._lock = Lock()
        self._write: Callable[[str], Path | None] | None = None
        self._otherwise = otherwise

    def begin(self, write: Callable[[str], Path | None]) -> None:
        """Allow results to be written from now on by `write`, which returns the file, or None if nothing is finished.

        It takes the name of the signal, which is empty for `keep`.
        """
        self._write = write
        self._due = monotonic() + _PAUSE

    @contextmanager
    def final_write(self) -> Iterator[None]:
        """Write results.json in this block; partial results are not written during it or later."""
        with self._lock:
            self._write, self._otherwise = None, OVER
            yield

    def keep(self) -> None:
        """Write results.partial.json unless it is recent; an epoch or a verb has ended, and no clock runs.

        A failed write is not reported: the run may well end with results.
        """
        began = monotonic()
        if self._write is not None and began >= self._due and self._lock.acquire(blocking=False):
            try:
                with suppress(OSError):
                    self._write("")
            finally:
                self._lock.release()
                self._due = monotonic() + max(_PAUSE, _SPARSE * (monotonic() - began))

    def save(self, signal: str) -> str:
        """Write results.partial.json if anything is finished; return a sentence about it."""
        if not self._lock.acquire(timeout=RESULTS_DUE):
            return f"{OVER}, and its results were still being written"
        try:
            if self._write is None:
                return self._otherwise
            place = self._write(signal)
            return f"what was finished is in {place}" if place else f"{self._otherwise}, because nothing was finished"
        except OSError as error:
            return str(rank_0_error("write the partial results", error))
        except Exception as error:  # the job must end, even if its results cannot be made
            return f"the partial results could not be made: {error!r}"
        finally:
            self._lock.release()
