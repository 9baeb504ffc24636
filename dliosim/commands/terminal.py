"""The terminal of the user: that of this process, or of the launcher that carries its output there."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import TextIO

from dliosim.commands.launcher import name_and_parent

_LAUNCHERS = frozenset({"hydra_pmi_proxy", "mpiexec", "mpiexec.hydra", "mpirun", "orted", "prte", "prted", "prterun"})


def user_terminal() -> TextIO | None:
    """Return standard error if it is a terminal, else that of the launcher on this node if it is one, else None.

    A rank's standard error is a pipe to its launcher, so it is never a terminal itself.
    """
    if sys.stderr.isatty():
        return sys.stderr
    process = os.getppid()
    while (found := name_and_parent(process)) and found[0] in _LAUNCHERS:
        terminal = _open_terminal(Path(f"/proc/{process}/fd/2"))
        if terminal is not None:
            return terminal
        process = found[1]
    return None


def _open_terminal(path: Path) -> TextIO | None:
    try:
        if not stat.S_ISCHR(path.stat().st_mode):
            return None
        descriptor = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    if not os.isatty(descriptor):
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "w", encoding="utf-8", errors="replace")


def discard_output() -> None:
    """Discard what Python still buffers of standard output, so that it does not fail a second time at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
