"""The options `--stall-report` and `--stall-timeout`: a job in which nothing moves says so, or ends."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from dliosim.errors import DliosimError
from dliosim.execute.mpi.job_abort import RESULTS_DUE, end_job
from dliosim.execute.mpi.world import World
from dliosim.execute.stalls.watcher import (
    StallActions,
    StallLimits,
    Watcher,
    close_board,
    kill_stopped_later,
    open_board,
)
from dliosim.measure.progress.board import process_row
from dliosim.measure.progress.stalled_ranks import JobStall
from dliosim.report.progress.stalled_ranks import recovery_text, stall_text


@contextmanager
def watch_stalls(world: World, limits: StallLimits, save: Callable[[str], str]) -> Iterator[None]:
    """Watch for stalls of this job during the block, if there are limits.

    Collective; so is its end, unless it ends by one rank's error. `save` keeps what is finished on rank 0, and returns
    in words what it did.
    """
    if limits.first_limit is None:
        yield
        return
    board, memory = open_board(world)

    def end(stall: JobStall) -> None:
        found = _save_results(save) if world.rank == 0 else "what rank 0 wrote last is kept, if it wrote any"
        kill_stopped_later(board)
        end_job(world.job, f"{stall_text(stall)}\nerror: the job is ended, as --stall-timeout says: {found}")

    reactions = StallActions(
        lambda stall: _write_stderr(stall_text(stall)), lambda quiet: _write_stderr(recovery_text(quiet)), end
    )
    watcher = Watcher(board, limits, reactions)
    watcher.start()
    together = False
    try:
        yield
        together = True
    except DliosimError as error:
        together = error.shared or world.size == 1
        raise
    finally:
        process_row().finish()
        if watcher.stop() and together:
            close_board(board, memory)


def _save_results(save: Callable[[str], str]) -> str:
    """Return what `save` did with the results, in words; it may hang in the file system of the results."""
    lines: list[str] = []
    thread = threading.Thread(target=lambda: lines.append(save("a stall")), daemon=True)
    thread.start()
    thread.join(RESULTS_DUE)
    return lines[0] if lines else "the partial results could not be written in time"


def _write_stderr(text: str) -> None:
    # Not through sys.stderr: another thread that cannot write may hold its lock.
    with suppress(OSError):
        os.write(2, f"{text}\n".encode(errors="replace"))
