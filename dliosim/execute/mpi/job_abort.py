"""How a job ends before its time: one message, and no rank left behind."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from time import sleep
from typing import NoReturn

import numpy as np
from mpi4py import MPI

from dliosim.execute.mpi.polling import wait

#: Seconds that a rank which has nothing new to say waits for the one that speaks to end the job.
_PATIENCE = 10.0

#: Seconds in which rank 0 should have written the results of a job that is told to end; batch systems give 30.
RESULTS_DUE = 20.0

#: Seconds in which rank 0 ends a job that all ranks are told to end.
_TOLD = RESULTS_DUE + 5

#: Seconds that a launcher needs to forward a message.
_FORWARDED = 0.2

#: Seconds after which a process whose MPI_Abort does not return ends itself.
_LAST_RESORT = 5.0

_PR_SET_PDEATHSIG = 1
_LAUNCHERS = frozenset({"hydra_pmi_proxy"})


def end_with_launcher() -> None:
    """Have the kernel end this process when the process that started it dies, if that is MPICH's proxy.

    The proxy ends its ranks when mpiexec dies, but nobody ends them when the proxy itself is killed. Other launchers
    start ranks from threads, whose end the kernel would take for that of the process.
    """
    parent = os.getppid()
    try:
        name = Path(f"/proc/{parent}/comm").read_text().strip()
    except OSError:
        return
    if name in _LAUNCHERS:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)


def job_name(comm: MPI.Intracomm) -> str:
    """A name that the ranks of this job share with nobody else. Collective."""
    name = np.frombuffer(os.urandom(12), np.uint8).copy()
    wait(comm.Ibcast(name), comm.size)
    return bytes(name).hex()


def end_job(job: str, text: str, status: int = 1) -> NoReturn:
    """Print `text`, unless another rank of this node was first, and end every rank of the job with `status`."""
    if _is_first(job):
        sys.stderr.write(text.rstrip("\n") + "\n")
        sys.stderr.flush()
        sleep(_FORWARDED)  # the launcher drops what it has not yet forwarded when the job ends
    else:
        sleep(_PATIENCE)
    abort(status)


def end_job_late(job: str, text: str, status: int) -> None:
    """As `end_job`, unless rank 0 ends the job before."""
    sleep(_TOLD)
    end_job(job, text, status)


# What is told the exit status before the job ends.
_hearers: list[Callable[[int], None]] = []


def add_abort_hook(action: Callable[[int], None]) -> None:
    """Have `action` called with the exit status when this process ends the job."""
    _hearers.append(action)


def remove_abort_hook(action: Callable[[int], None]) -> None:
    """Take back what `add_abort_hook` was given."""
    _hearers.remove(action)


def abort(status: int) -> NoReturn:
    """End every rank of the job with `status`.

    This names COMM_WORLD, whatever communicator the job was given: of any other one MPICH aborts this process alone
    and leaves the rest to its launcher, which then reports 0 or 9 as often as the status, seconds later.
    """
    # MPI_Abort waits for ever behind a thread that is stuck in a call.
    last = threading.Timer(_LAST_RESORT, os._exit, (status,))
    last.daemon = True
    last.start()
    for action in _hearers:
        action(status)
    MPI.COMM_WORLD.Abort(status)
    os._exit(status)


# Held open: the name is taken as long as the socket lives.
_taken: list[socket.socket] = []


def _is_first(job: str) -> bool:
    """Whether no process of this node has asked this before; the kernel forgets the name with the process."""
    mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        mark.bind(f"\0dliosim-{job}")
    except OSError as error:
        mark.close()
        return error.errno != errno.EADDRINUSE
    _taken.append(mark)
    return True
