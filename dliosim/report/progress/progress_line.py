"""The progress of a long phase: one line on a terminal, and this rank's row of the board."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Event, Thread
from time import perf_counter_ns
from typing import TextIO

from dliosim.measure.progress.board import DONE, STEP, BoardRow, private_row
from dliosim.measure.progress.task import IDLE, Task
from dliosim.readable import seconds, size

#: No line is shown before a phase has lasted this long; ns.
SILENT_NS = 2_000_000_000

#: The shortest time between two updates of the line; ns.
EVERY_NS = 500_000_000

_NEVER = 1 << 62


class ProgressLine:
    """A line that one rank updates until the phase ends, then removes; each rank writes its `row` of the board.

    No line is written where `stream` is None or no terminal. Not thread-safe.
    """

    __slots__ = (
        "_due", "_every", "_row", "_shown", "_silent", "_stage", "_stream", "_words", "row", "task",
    )  # fmt: skip

    def __init__(
        self,
        stream: TextIO | None,
        silent_ns: int = SILENT_NS,
        every_ns: int = EVERY_NS,
        row: BoardRow | None = None,
    ) -> None:
        #: this rank's row of the board
        self.row = row if row is not None else private_row()
        #: what this rank does; one store replaces it, so that another thread may read it at any time
        self.task = IDLE
        self._words = self.row.words
        self._stream = stream if stream is not None and stream.isatty() else None
        self._silent, self._every = silent_ns, every_ns
        self._stage, self._shown, self._due = "", False, _NEVER

    def release_terminal(self) -> TextIO | None:
        """Remove the line, show none from now on, and return the terminal, if there is one."""
        self.end()
        stream, self._stream = self._stream, None
        return stream

    def stage(self, text: str) -> None:
        """Show at once, and until the next stage, a text before the phases; an empty text removes the line."""
        self._stage = text
        self._shown = True
        self.end()

    def start(
        self, phase: str, epoch: int, epochs: int, steps: int, unit: str = "step", readings: memoryview | None = None
    ) -> None:
        """Begin epoch `epoch` (from 1) of a phase with `steps` steps; 0 if their number is unknown.

        `unit` is shown instead of "step"; `readings` as in `Task`.
        """
        self.end()
        self.row.begin(phase, epoch)
        self._show_later(Task(phase, epoch, epochs, steps, unit, perf_counter_ns(), readings=readings))

    @contextmanager
    def track_bytes(self, phase: str, total: Callable[[], int]) -> Iterator[None]:
        """Show bytes instead of steps for the length of a block, then the line from before it again.

        `total` returns the bytes of this rank, 0 if they are unknown. It is called when the line is written.
        """
        row = self.row
        outer, due, state = self.task, self._due, (row.phase, row.epoch, row.step, row.bytes_done)
        self.end()
        row.begin(phase, 0)
        begun = perf_counter_ns()
        self._show_later(Task(phase, started=begun, total=total))
        try:
            yield
        finally:
            self.end()
            row.resume(*state)
            self.task, self._due = replace(outer, held=outer.held + perf_counter_ns() - begun), due

    def _show_later(self, task: Task) -> None:
        self.task = task
        if self._stream is not None:
            self._due = task.started + self._silent

    def tick(self, now_ns: int, step: int, done_bytes: int) -> None:
        """Record that `step` steps and `done_bytes` bytes of this rank are done at `now_ns` of perf_counter_ns."""
        # Called in every step: two stores and a comparison. Text is only made when the line is due.
        words = self._words
        words[STEP], words[DONE] = step, done_bytes
        if now_ns >= self._due:
            self._show(now_ns, step, done_bytes)

    def end(self) -> None:
        """Remove the line: the phase is over."""
        self._due, self.task = _NEVER, IDLE
        if self._shown and self._stream is not None:
            self._stream.write(f"\r{self._stage[:110]}\x1b[K")
            self._stream.flush()
            self._shown = False

    def _show(self, now_ns: int, step: int, done_bytes: int) -> None:
        task = self.task
        elapsed = (now_ns - task.started) * 1e-9
        total = task.total() if task.total is not None else 0
        parts = []
        if done_bytes:
            amount = f"{size(done_bytes, 3)} of {size(total, 3)}" if total else size(done_bytes, 3)
            parts += [amount, f"{size(done_bytes / elapsed, 3)}/s on rank 0"]
        if task.steps and step:
            parts += [
                f"{task.unit} {step} of {task.steps}",
                f"{seconds(elapsed / step * (task.steps - step), 2)} left",
            ]
        elif total and done_bytes:
            parts.append(f"{seconds(elapsed / done_bytes * (total - done_bytes), 2)} left")
        stage = f"{self._stage}; " if self._stage else ""
        text = f"{stage}{task.label}: {', '.join(parts) or f'{seconds(elapsed, 2)} so far'}"
        if self._stream is not None:
            self._stream.write(f"\r{text[:110]}\x1b[K")
            self._stream.flush()
            self._shown = True
        self._due = now_ns + self._every


@contextmanager
def show_elapsed(stream: TextIO | None, label: str, silent: float = 1.0) -> Iterator[None]:
    """Show the time since the begin of a block, from `silent` seconds on; only on a terminal."""
    if stream is None or not stream.isatty():
        yield
        return
    over, started = Event(), perf_counter_ns()

    def show(terminal: TextIO) -> None:
        waiting, shown = silent, False
        while not over.wait(waiting):
            terminal.write(f"\r{label[:90]}: {seconds((perf_counter_ns() - started) * 1e-9, 2)} so far\x1b[K")
            terminal.flush()
            waiting, shown = EVERY_NS * 1e-9, True
        if shown:
            terminal.write("\r\x1b[K")
            terminal.flush()

    thread = Thread(target=show, args=(stream,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
