"""Settings of all tests.

Property tests are never timed: machines that run them are busy. All processes of tests get Ctrl-C, and use short time
slices: ranks that wait inside MPI spin until their slice ends, and there are more ranks than cores.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct

import pytest
from hypothesis import settings

from tests.mpi.waiting import close_all

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# What a shell runs in its background ignores this signal, and so does whatever that starts in turn.
signal.signal(signal.SIGINT, signal.default_int_handler)

#: `struct sched_attr` of the first version, with the length of a turn where a deadline's runtime would be (Linux 6.12).
_ATTRIBUTES, _SCHED_SETATTR, _TURN_NS = "=IIQiIQQQ", 314, 100_000


def pytest_configure(config: pytest.Config) -> None:
    """Ask for short turns, for this process and all that it starts; a kernel that has none does as it always does."""
    if platform.machine() != "x86_64":
        return  # the call has another number
    size = struct.calcsize(_ATTRIBUTES)
    niceness = os.getpriority(os.PRIO_PROCESS, 0)  # as it is, for the call sets that, too
    attributes = struct.pack(_ATTRIBUTES, size, 0, 0, niceness, 0, _TURN_NS, 0, 0)
    ctypes.CDLL(None).syscall(_SCHED_SETATTR, 0, attributes, 0)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let the ranks end that waited for commands."""
    close_all()
