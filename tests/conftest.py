"""Settings of all tests.

All processes of tests get Ctrl-C, and use short time slices: ranks that wait inside MPI spin until their slice ends,
and there are more ranks than cores. Workers of pytest-xdist begin with the folders whose files take longest. Where
Python keeps no bytecode, tests keep theirs in the cache of pytest: hundreds of processes would compile all otherwise.
"""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import shutil
import signal
import struct
import sys
import tempfile
from collections.abc import Generator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

import tests.examples  # noqa: F401, it has the profiles
from tests.memory_group import memory_group
from tests.mpi.waiting import close_all

settings.load_profile("quick")

# What a shell runs in its background ignores this signal, and so does whatever that starts in turn.
signal.signal(signal.SIGINT, signal.default_int_handler)

#: Folders whose files take long.
_LONG = ("mpi", "commands", "scripts", "extending")

#: `struct sched_attr` of the first version, with the length of a turn where a deadline's runtime would be (Linux 6.12).
_ATTRIBUTES, _SCHED_SETATTR, _TURN_NS = "=IIQiIQQQ", 314, 100_000

#: Python's variable for "keep none", and that for a directory to keep it in.
_KEEP_NONE, _KEPT_BELOW = "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"


def pytest_configure(config: pytest.Config) -> None:
    """Prepare this process and all that it starts."""
    if hasattr(config.option, "loadscopereorder"):  # by the order below instead
        config.option.loadscopereorder = False
    _keep_bytecode(config)
    _ask_for_short_turns()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say whether tests of control groups had a real one, or only files that look like one."""
    with memory_group(1 << 30, "dliosim-probe") as group:
        terminalreporter.write_line(f"a control group of memory: {'made' if group else 'cannot be made here'}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first: with one of them at the end, the other workers would have nothing to do."""
    here = Path(__file__).parent
    items.sort(key=lambda item: item.path.relative_to(here).parts[0] not in _LONG)
    for item in items:
        for mark in item.iter_markers("not_under"):
            if _mpi_library().startswith(mark.args):
                item.add_marker(pytest.mark.skip(reason=mark.kwargs["reason"]))


@cache
def _mpi_library() -> str:
    """Return the version of the MPI that tests run under."""
    from dliosim.execute.node.environment import mpi_library

    return mpi_library()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Search for no garbage among what all tests have in common: every loop of a run begins with such a search."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def _keep_bytecode(config: pytest.Config) -> None:
    """Keep bytecode in pytest's cache, of this process and all that it starts, where Python is to keep none."""
    if not os.environ.get(_KEEP_NONE) or not hasattr(config, "cache"):
        return
    del os.environ[_KEEP_NONE]
    kept = config.cache.mkdir("bytecode")
    sys.dont_write_bytecode, sys.pycache_prefix = False, f"{kept}"
    os.environ[_KEPT_BELOW] = f"{kept}"
    of_tests = kept.joinpath(*Path(tempfile.gettempdir()).parts[1:])
    config.add_cleanup(lambda: [shutil.rmtree(one) for one in of_tests.glob("pytest-of-*")])


def _ask_for_short_turns() -> None:
    """Ask for short turns on the cores; a kernel that has none does as it always does."""
    if platform.machine() != "x86_64":
        return  # the call has another number
    size = struct.calcsize(_ATTRIBUTES)
    niceness = os.getpriority(os.PRIO_PROCESS, 0)  # as it is, for the call sets that, too
    attributes = struct.pack(_ATTRIBUTES, size, 0, 0, niceness, 0, _TURN_NS, 0, 0)
    ctypes.CDLL(None).syscall(_SCHED_SETATTR, 0, attributes, 0)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let the ranks end that waited for commands."""
    close_all()
