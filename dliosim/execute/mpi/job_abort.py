"""The early end of a job: one message, and an end for every rank."""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, sleep
from typing import TYPE_CHECKING, NoReturn

import numpy as np
from mpi4py import MPI

from dliosim.execute.mpi.shared_memory import wait

if TYPE_CHECKING:
    from socket import socket

#: Seconds that a rank waits for the rank that prints the message to end the job.
_PATIENCE = 10.0

#: Seconds in which rank 0 should write the results of a job that must end; batch systems give 30.
RESULTS_DUE = 20.0

#: Seconds in which rank 0 should end a job when all ranks got the signal to end.
_ABORT_WAIT = RESULTS_DUE + 5

#: Seconds in which a launcher should have read a message, and those that it then needs to forward it.
_READ, _FORWARDED = 2.0, 0.2

#: Seconds after which a process whose MPI_Abort does not return ends itself.
_LAST_RESORT = 5.0


def job_name(comm: MPI.Intracomm) -> str:
    """Return a random name, 24 hexadecimal digits, the same on all ranks of this job. Collective."""
    name = np.frombuffer(os.urandom(12), np.uint8).copy()
    wait(comm.Ibcast(name), comm.size)
    return bytes(name).hex()


def end_job(job: str, text: str, status: int = 1) -> NoReturn:
    """Print `text`, unless another rank of this node has done so, and end every rank of the job with `status`."""
    if _is_first(job):
        sys.stderr.write(text.rstrip("\n") + "\n")
        sys.stderr.flush()
        with suppress(OSError):
            _open_socket().sendto(b"ending", _rank_0_address(job))
    else:
        sleep(_PATIENCE)
    abort(status)


def listen_for_end(job: str) -> Callable[[], bool]:
    """Return a function for rank 0: True once a rank of its node has printed the message that ends the job.

    The kernel keeps what that rank sends, which may be gone when the launcher ends the others.
    """
    mark = _open_socket()
    mark.setblocking(False)
    with suppress(OSError):
        mark.bind(_rank_0_address(job))

    def is_ending() -> bool:
        with suppress(OSError):
            return bool(mark.recv(16))
        return False

    return is_ending


def _open_socket() -> socket:
    from socket import AF_UNIX, SOCK_DGRAM, socket  # for rank 0, and the end of a job

    return socket(AF_UNIX, SOCK_DGRAM)


def _rank_0_address(job: str) -> str:
    return f"\0dliosim-{job}-0"


def end_job_late(job: str, text: str, status: int) -> None:
    """Give rank 0 the time to end the job, then end it as `end_job` does."""
    sleep(_ABORT_WAIT)
    end_job(job, text, status)


#: Functions that are called with the exit status before this process ends the job.
abort_hooks: list[Callable[[int], None]] = []


def abort(status: int) -> NoReturn:
    """End every rank of the job with `status`, once the launcher has what this process has printed.

    It aborts COMM_WORLD, not the communicator of the job: with any other communicator MPICH aborts this process only
    and leaves the rest to its launcher. That takes seconds, and the launcher then often reports 0 or 9, not `status`.
    """
    _wait_for_launcher()
    # MPI_Abort waits forever if another thread hangs in an MPI call.
    last = threading.Timer(_LAST_RESORT, os._exit, (status,))
    last.daemon = True
    last.start()
    for action in abort_hooks:
        action(status)
    MPI.COMM_WORLD.Abort(status)
    os._exit(status)


def _wait_for_launcher() -> None:
    """Wait until the launcher has read standard error, and for the time in which it forwards that.

    It drops what it has not yet forwarded when the job ends. That of MPICH even hears of the end first, if the
    message and the end both wait for it.
    """
    from fcntl import ioctl  # for the end of a job
    from termios import FIONREAD

    until = monotonic() + _READ
    with suppress(OSError):  # it may be closed
        while stat.S_ISFIFO(os.fstat(2).st_mode) and any(ioctl(2, FIONREAD, bytes(4))) and monotonic() < until:
            sleep(0.01)
    sleep(_FORWARDED)


# Kept open: the name is in use as long as the socket is open.
_taken: list[object] = []


def _is_first(job: str) -> bool:
    """Return True for the first process of this node that asks. The kernel forgets the name when the process ends."""
    mark = _open_socket()
    try:
        mark.bind(f"\0dliosim-{job}")
    except OSError as error:
        mark.close()
        return error.errno != errno.EADDRINUSE
    _taken.append(mark)
    return True
