"""Printed texts: in colours on terminals, and any text on a terminal that takes ASCII alone."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pictures.sample import write_run

ROOT = Path(__file__).parents[2]


#: A launcher, by its name, that gives its process a terminal, and prints what comes there: as Open MPI's.
LAUNCHER = """
import os, pty, sys
open("/proc/self/comm", "w").write("prterun")
pty.spawn(sys.argv[1:], stdin_read=lambda _: b"")
"""


def report_of(place: Path, *options: str, to: Path | None = None, **changed: str) -> bytes:
    """Return the output of `dliosim report` on a terminal; with `to`, by a launcher that prints to this file."""
    own, terminal = pty.openpty()
    known = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    environment = known | {"PYTHONPATH": str(ROOT), "TERM": "xterm"} | changed
    line = [sys.executable, "-m", "dliosim.cli", "report", str(place), *options]
    if to is not None:
        with to.open("wb") as stream:
            launched = [sys.executable, "-c", LAUNCHER, *line]
            subprocess.run(launched, stdout=stream, stdin=subprocess.DEVNULL, env=environment, check=True, timeout=60)
        return to.read_bytes()
    with subprocess.Popen(line, stdout=terminal, env=environment) as process:
        os.close(terminal)
        printed = b""
        while True:
            try:
                part = os.read(own, 65536)
            except OSError:  # Linux reports the end of a terminal as an error
                break
            if not part:
                break
            printed += part
    os.close(own)
    assert process.returncode == 0
    return printed.replace(b"\r\n", b"\n")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("results")
    write_run(directory, ranks=1, steps=2, epochs=1, name="caf\u00e9")
    return directory


def test_a_terminal_has_colours_unless_the_user_wants_none(place: Path) -> None:
    assert b"\x1b[" in report_of(place)
    for refused in ({"NO_COLOR": "0"}, {"TERM": "dumb"}):
        assert b"\x1b[" not in report_of(place, **refused)
        assert b"\x1b[" in report_of(place, "--colour", "always", **refused)
    assert b"\x1b[" not in report_of(place, "--colour", "never", FORCE_COLOR="1")


def test_a_file_has_no_colours_though_a_launcher_gives_its_ranks_a_terminal(place: Path, tmp_path: Path) -> None:
    printed = report_of(place, to=tmp_path / "out.txt")
    assert b"ANSWER" in printed and b"\x1b[" not in printed


def test_a_stream_that_takes_ascii_alone_gets_question_marks_and_ends_no_command(place: Path) -> None:
    found = report_of(place, PYTHONIOENCODING="ascii", NO_COLOR="1")
    assert b"ANSWER" in found and all(byte < 128 for byte in found)
