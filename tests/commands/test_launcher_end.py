"""Look whether a launcher has ended, where the kernel cannot report it: only what is certain counts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dliosim.commands.job.signals import _has_ended


def test_a_process_has_ended_when_it_is_gone_or_waits_to_be_collected() -> None:
    assert not _has_ended(os.getpid())
    with subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert _has_ended(process.pid)
    assert _has_ended(process.pid)


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), PermissionError(13, "Permission denied")])
def test_a_process_that_cannot_be_looked_at_has_not_ended(error: OSError, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise error

    monkeypatch.setattr(Path, "read_text", refuse)
    assert not _has_ended(os.getpid())
