"""The option `--live`: rank 0 shows what its node's ranks do, on the terminal or as a line every ten seconds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from threading import Event, Thread
from time import perf_counter_ns
from typing import TextIO

from dliosim.commands.job.setup import Setup
from dliosim.execute.mpi.job_abort import abort_hooks
from dliosim.measure.progress.live import LiveMeter
from dliosim.messages import ERASE, message_start
from dliosim.readable import count
from dliosim.report.progress.live_screen import live_line, live_screen
from dliosim.report.progress.progress_line import ProgressLine

#: Seconds from one line to the next where there is no screen.
_LINES = 10.0

#: Seconds that the end of a run waits for a terminal that takes nothing, as after Ctrl-S.
_PATIENCE = 1.0


class LiveDisplay(Thread):
    """The thread that looks and shows. Without a `terminal` it writes lines to standard error.

    The screen begins below the cursor, which stays above it, on an empty line: a message of any process replaces the
    screen, and the next look draws it below. So nothing is hidden, and a run that is killed leaves a sane terminal.
    """

    def __init__(self, meter: LiveMeter, progress: ProgressLine, title: str, begun: int, terminal: TextIO | None):
        super().__init__(name="live", daemon=True)
        self._meter, self._progress, self._title, self._begun = meter, progress, title, begun
        self._terminal = terminal
        self._over = Event()

    def __enter__(self) -> None:
        self.start()
        abort_hooks.append(self.stop)

    def __exit__(self, *_: object) -> None:
        abort_hooks.remove(self.stop)
        self.stop()

    def stop(self, status: int = 0) -> None:
        """End the thread and erase the screen, also before this process ends the job with `status`."""
        self._over.set()
        self.join(_PATIENCE)
        if self._terminal is not None and not self.is_alive():
            with suppress(OSError):
                os.write(self._terminal.fileno(), ERASE.encode())

    def run(self) -> None:
        """Look and show until `stop` is called, a rank ends, or the terminal is gone."""
        looks = 0
        with suppress(OSError):
            while not self._over.wait(self._meter.pause) and not self._meter.is_over:
                looks += 1
                self.show(looks)

    def show(self, looks: int) -> None:
        """Look once more; draw the screen, or write a line if it is time."""
        now = perf_counter_ns()
        figures = self._meter.look(now, self._progress.task)
        if self._terminal is not None:
            descriptor = self._terminal.fileno()
            columns, lines = terminal_size(descriptor)
            shown = live_screen(self._title, (now - self._begun) * 1e-9, figures, columns, lines)
            os.write(descriptor, draw(shown).encode())
        elif looks % round(_LINES / self._meter.pause) == 0:
            os.write(2, f"{live_line(figures)}\n".encode(errors="replace"))


def draw(lines: list[str]) -> str:
    """Return the escapes that draw lines below the cursor, over those of before, and leave it where it was."""
    # Each line is erased from its end on, and the screen below the last: the whole at once would flicker.
    return "\r\x1b[K" + "".join(f"\r\n{line}\x1b[K" for line in lines) + f"\x1b[J\x1b[{len(lines)}A\r"


def terminal_size(descriptor: int) -> tuple[int, int]:
    """Return columns and lines of a terminal; 80 and 24 where it does not know them."""
    size = os.get_terminal_size(descriptor)
    return size.columns or 80, size.lines or 24


@contextmanager
def show_live(setup: Setup, name: str) -> Iterator[None]:
    """Show how far the workload `name` is during the block. Collective."""
    world, board = setup.world, setup.board
    display = None
    terminal = setup.progress.release_terminal()
    if os.environ.get("TERM") == "dumb":
        terminal = None
    if world.rank == 0 and board is not None:
        some = f", {len(board.rows)} of them on this node" if len(board.rows) < world.size else ""
        title = f"{name} on {count(world.size, 'rank')}{some}"
        meter = LiveMeter(board.rows, board.own_row, world.size)
        display = LiveDisplay(meter, setup.progress, title, setup.begun_ns, terminal)
    message_start[0] = ERASE if world.broadcast_object(terminal is not None) else ""
    try:
        with display or nullcontext():
            yield
    finally:
        message_start[0] = ""
