"""`run --live` on a terminal and without one, to its end and to Ctrl-C."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import termios
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dliosim.commands.job.live import LiveDisplay, draw
from dliosim.measure.progress.board import private_row
from dliosim.measure.progress.live import LiveMeter
from dliosim.report.progress.progress_line import ProgressLine
from tests.mpi.jobs import CHECKPOINT, DATASET, PREPARE, TRAIN, Place
from tests.mpi.launch import running, start_ranks

LOOP = TRAIN.replace("epochs   2", "epochs   4\n    compute  100 ms\n    checkpoint c every 3 steps")


@dataclass
class Terminal:
    """A terminal of that size, which shows what it was sent."""

    columns: int
    lines: int
    ours: int = -1
    theirs: int = -1
    text: str = ""

    def read(self) -> str:
        """Take what was sent until now; return all of it."""
        try:
            while data := os.read(self.ours, 1 << 16):
                self.text += data.decode()
        except BlockingIOError:
            pass
        return self.text

    def screen(self) -> tuple[list[str], int]:
        """The lines that are not empty, after all that was sent, and the column of the cursor; no line may wrap."""
        rows, x, y = [""] * 200, 0, 0
        for part in re.findall(r"\x1b\[\d*[A-Z]|[\r\n]|[^\x1b\r\n]+", self.read()):
            if part == "\r":
                x = 0
            elif part == "\n":
                y += 1
            elif part == "\x1b[K":
                rows[y] = rows[y][:x]
            elif part == "\x1b[J":
                rows[y:] = [rows[y][:x], *[""] * (len(rows) - y - 1)]
            elif part.startswith("\x1b"):
                assert part.endswith("A"), part
                y -= int(part[2:-1])
                assert y >= 0
            else:
                rows[y] = rows[y][:x].ljust(x) + part + rows[y][x + len(part) :]
                x += len(part)
        return [row.rstrip() for row in rows if row.strip()], x


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    columns, lines = getattr(request, "param", (80, 24))
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    os.set_blocking(ours, False)
    yield Terminal(columns, lines, ours, theirs)
    os.close(ours)
    os.close(theirs)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.write(DATASET, CHECKPOINT, PREPARE, LOOP)
    return made


ENVIRONMENT = {"TERM": "xterm"}


@pytest.mark.parametrize(("ranks", "terminal"), [(0, (80, 24)), (3, (40, 12))], indirect=["terminal"])
def test_a_run_shows_what_it_does_and_leaves_the_terminal_empty(place: Place, terminal: Terminal, ranks: int) -> None:
    command = place.arguments("--live", "--json", "--stall-report", "off")
    with running(start_ranks(ranks, *command, cwd=place.directory, terminal=terminal.theirs, env=ENVIRONMENT)) as job:
        job.wait_until(lambda: bool(re.search(r"step {6}\d+ of", terminal.read())))
        done = job.finish(30)
    assert done.returncode == 0
    assert terminal.screen() == ([], 0)
    shown = terminal.text
    assert f"tiny on {max(ranks, 1)} rank" in shown and "phase     train, epoch " in shown
    assert "\r\nbandwidth " in shown and "\r\np99 wait  " in shown
    assert max(map(len, re.sub(r"\x1b\[\d*[A-Z]", "", shown).replace("\r", "").split("\n"))) < terminal.columns
    assert done.stdout.startswith("{") and done.stdout.count("\n") == 1


@pytest.mark.not_under("Open MPI", reason="its launcher's status is 1 after a signal, and it drops the message")
@pytest.mark.parametrize("ranks", [0, 3])
def test_after_ctrl_c_the_message_stands_where_the_screen_was(place: Place, terminal: Terminal, ranks: int) -> None:
    command = place.arguments("--live", define={"train.epochs": "1000"})
    with running(start_ranks(ranks, *command, cwd=place.directory, terminal=terminal.theirs, env=ENVIRONMENT)) as job:
        job.wait_until(lambda: "phase     train, epoch " in terminal.read())
        os.killpg(job.launcher.pid, signal.SIGINT)
        done = job.finish(30)
    assert done.returncode == 130
    lines, column = terminal.screen()
    text = "\n".join(lines)
    assert "interrupted: what was finished is in " in text and column == 0
    assert not re.search("phase|bandwidth|slowest", text), text


def test_an_error_of_another_rank_alone_stands_where_the_screen_was(place: Place, terminal: Terminal) -> None:
    place.write(DATASET, PREPARE, LOOP.replace("checkpoint c every 3 steps", "sync off"))
    command = place.arguments("--live", define={"train.epochs": "1000"})
    with running(start_ranks(3, *command, cwd=place.directory, terminal=terminal.theirs, env=ENVIRONMENT)) as job:
        job.wait_until(lambda: "phase     train, epoch " in terminal.read())
        os.truncate(place.files()[0], 1000)
        done = job.finish(30)
    assert done.returncode == 1
    lines, _ = terminal.screen()
    assert lines[0].startswith("error[R401]: rank "), lines
    assert not re.search("phase|bandwidth|slowest|SIGTERM", "\n".join(lines)), lines


def test_a_dumb_terminal_is_sent_no_escapes(place: Place, terminal: Terminal) -> None:
    command = place.arguments("--live", define={"train.epochs": "2"})
    dumb = {"TERM": "dumb"}
    with running(start_ranks(0, *command, cwd=place.directory, terminal=terminal.theirs, env=dumb)) as job:
        assert job.finish(30).returncode == 0
    assert "\x1b" not in terminal.read()


def test_where_there_is_no_terminal_each_fortieth_look_writes_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    progress = ProgressLine(None)
    display = LiveDisplay(LiveMeter([progress.row], progress.row, 1), progress, "tiny on 1 rank", 0, None)
    progress.start("train", 1, 1, 10)
    for looks in range(1, 81):
        display.show(looks)
    text = capfd.readouterr().err
    assert text.count("\n") == 2 and text.startswith("live: train, ") and "\x1b" not in text


def test_a_screen_is_drawn_over_the_one_before(terminal: Terminal) -> None:
    os.write(terminal.theirs, f"before\n{draw(['a long line', 'b', 'c'])}{draw(['d', 'e'])}".encode())
    assert terminal.screen() == (["before", "d", "e"], 0)
    os.write(terminal.theirs, f"\r\x1b[Ja message\n{draw(['f'])}".encode())
    assert terminal.screen() == (["before", "a message", "f"], 0)


def test_nothing_is_drawn_any_more_when_a_rank_ends() -> None:
    rows = [private_row(), private_row()]
    meter = LiveMeter(rows, rows[0], 2)
    assert not meter.is_over
    rows[1].finish()
    assert meter.is_over
