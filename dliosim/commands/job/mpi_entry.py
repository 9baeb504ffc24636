"""The entry of commands that run on all ranks, and every way in which these can end."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from time import sleep

from mpi4py import MPI

from dliosim.commands.command_line.program import insert_program
from dliosim.commands.job.launcher import find_launchers, launcher_rank, launcher_size
from dliosim.commands.job.signals import handle_signals, ignore_sigusr1
from dliosim.errors import DliosimError, UsageError
from dliosim.execute import stalls
from dliosim.execute.mpi.job_abort import RESULTS_DUE, abort, end_job, end_job_late, job_name, listen_for_end
from dliosim.execute.mpi.world import World, make_world, node_cores
from dliosim.execute.node.environment import check_launcher, mpi_library
from dliosim.measure.progress.board import process_row
from dliosim.measure.progress.stalled_ranks import JobStall
from dliosim.report.progress.stalled_ranks import recovery_text, stall_text

#: Seconds between the starts of a launcher's first and last process, at most.
_OTHERS_START = 1.0


def run_job(comm: MPI.Intracomm, action: Callable[[World], int], save: Callable[[str], str]) -> int:
    """Run an action on all ranks of `comm`; return the exit status, the same on every rank.

    `save` is called on rank 0 with the name of a signal, and writes the finished results; see `handle_signals`. An
    error of one rank alone ends the job, since other ranks may wait for it anywhere.
    """
    try:
        check_launcher(launcher_size(os.environ), comm.size, mpi_library())
    except UsageError as error:
        if launcher_rank(os.environ) == 0:
            sys.stderr.write(f"{error}\n")
            sys.stderr.flush()
        # The launcher may send SIGTERM to all its processes when the first one ends. It would end rank 0 before it has
        # printed the error, and give processes that still start another status.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sleep(_OTHERS_START)
        return error.exit_code
    job = job_name(comm)
    is_ending = listen_for_end(job) if comm.rank == 0 else lambda: False
    # Of a launcher that is not known the parent, as a shell that started this process alone may end before it.
    launcher = next(iter(find_launchers()), os.getppid() if comm.size > 1 else None)
    handle_signals(comm.rank, save, abort, partial(end_job_late, job), is_ending, launcher)
    world = make_world(comm, node_cores, job)
    try:
        with world.abort_on_error():
            status = action(world)
    except DliosimError as error:
        if comm.rank == 0:
            sys.stderr.write(insert_program(f"{error}\n"))
        status = error.exit_code
    except MemoryError as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"out of memory: {error}" if str(error) else "out of memory"
        where = f"in {place.name}, {place.filename}:{place.lineno}"
        end_job(world.job, f"error[R402]: rank {comm.rank}: {reason} ({where})")
    except Exception:
        text = f"rank {comm.rank}: a fault in dliosim itself; please report it\n{traceback.format_exc()}"
        end_job(world.job, text)
    finally:
        ignore_sigusr1()
    world.close()
    return status


@contextmanager
def watch_stalls(world: World, limits: stalls.StallLimits, save: Callable[[str], str]) -> Iterator[None]:
    """Watch for stalls of this job during the block, if there are limits.

    Collective; so is its end, unless it ends by one rank's error. `save` keeps the finished results on rank 0, and
    returns in words what it did.
    """
    if limits.first_limit is None:
        yield
        return
    board, memory = stalls.open_board(world)

    def end(stall: JobStall) -> None:
        found = _save_results(save) if world.rank == 0 else "what rank 0 wrote last is kept, if it wrote any"
        stalls.kill_stopped_later(board)
        end_job(world.job, f"{stall_text(stall)}\nerror: the job is ended, as --stall-timeout says: {found}")

    reactions = stalls.StallActions(
        lambda stall: _write_stderr(stall_text(stall)), lambda quiet: _write_stderr(recovery_text(quiet)), end
    )
    watching = stalls.Watcher(board, limits, reactions)
    watching.start()
    together = False
    try:
        yield
        together = True
    except DliosimError as error:
        together = error.shared or world.size == 1
        raise
    finally:
        process_row().finish()
        if watching.stop() and together:
            stalls.close_board(board, memory)


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
