"""The progress of a long phase: one line on a terminal, and this rank's row of the board."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Thread
from time import perf_counter_ns
from typing import TextIO

from dliosim.measure.progress.board import DONE, STEP, BoardRow, private_row
from dliosim.readable import seconds, size

#: No line is shown before a phase has lasted this long; ns.
SILENT_NS = 2_000_000_000

#: The shortest time between two updates of the line, and between two lines of `--live`; ns.
EVERY_NS = 500_000_000
LIVE_NS = 10_000_000_000

_NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class _Task:
    """An epoch of a loop, or a move of bytes without steps."""

    phase: str  #: name of the phase
    epoch: int = 1  #: number of the epoch, from 1
    epochs: int = 1  #: number of epochs
    steps: int = 0  #: steps of the epoch; 0 if their number is unknown
    unit: str = "step"  #: word for a step
    started: int = 0  #: begin, ns of perf_counter_ns
    total: Callable[[], int] = lambda: 0  #: returns the bytes of this rank; 0 if they are unknown


_IDLE = _Task("between phases")


class ProgressLine:
    """A line that one rank updates until the phase ends, then removes; each rank writes its `row` of the board.

    If `stream` is no terminal nothing is written, or with `live` a line of its own now and then. Not thread-safe.
    """

    __slots__ = (
        "_due", "_every", "_is_terminal", "_next", "_shown", "_silent", "_stage", "_stream", "_task", "_words", "row",
    )  # fmt: skip

    def __init__(
        self,
        stream: TextIO | None,
        silent_ns: int = SILENT_NS,
        every_ns: int = EVERY_NS,
        row: BoardRow | None = None,
        live: bool = False,
    ) -> None:
        #: this rank's row of the board
        self.row = row if row is not None else private_row()
        self._task, self._words = _IDLE, self.row.words
        self._is_terminal = stream is not None and stream.isatty()
        self._stream = stream if self._is_terminal or live else None
        self._silent, self._every = (silent_ns, every_ns) if self._is_terminal else (0, LIVE_NS)
        self._stage, self._shown = "", False
        self._due = _NEVER  # when the line of this phase is to be written
        # When a line of any phase may be written: epochs may be shorter than the time between two lines of `--live`.
        self._next = 0 if self._is_terminal else perf_counter_ns() + LIVE_NS

    def stage(self, text: str) -> None:
        """Show a text at once and until the next stage, before the phases; an empty text removes the line."""
        self._stage = text
        self._shown = True
        self.end()

    def start(self, phase: str, epoch: int, epochs: int, steps: int, unit: str = "step") -> None:
        """Begin epoch `epoch` (from 1) of a phase with `steps` steps; 0 if their number is unknown.

        `unit` is shown instead of "step".
        """
        self.end()
        self.row.begin(phase, epoch)
        self._show_later(_Task(phase, epoch, epochs, steps, unit, perf_counter_ns()))

    @contextmanager
    def track_bytes(self, phase: str, total: Callable[[], int]) -> Iterator[None]:
        """Show bytes instead of steps for the length of a block, then the line from before it again.

        `total` returns the bytes of this rank, 0 if they are unknown. It is called when the line is written.
        """
        row = self.row
        outer, due, state = self._task, self._due, (row.phase, row.epoch, row.step, row.bytes_done)
        self.end()
        row.begin(phase, 0)
        self._show_later(_Task(phase, started=perf_counter_ns(), total=total))
        try:
            yield
        finally:
            self.end()
            row.begin(*state)
            self._task, self._due = outer, max(due, self._next)

    def _show_later(self, task: _Task) -> None:
        self._task = task
        if self._stream is not None:
            self._due = max(task.started + self._silent, self._next)

    def tick(self, now_ns: int, step: int, done_bytes: int) -> None:
        """Record that `step` steps and `done_bytes` bytes of this rank are done at `now_ns` of perf_counter_ns."""
        # Called in every step: two stores and a comparison. Text is only made when the line is due.
        words = self._words
        words[STEP], words[DONE] = step, done_bytes
        if now_ns >= self._due:
            self._show(now_ns, step, done_bytes)

    def end(self) -> None:
        """Remove the line: the phase is over."""
        self._due, self._task = _NEVER, _IDLE
        if self._shown and self._is_terminal:
            self._write(self._stage)
            self._shown = False

    def _show(self, now_ns: int, step: int, done_bytes: int) -> None:
        task = self._task
        elapsed = max((now_ns - task.started) * 1e-9, 1e-9)
        total = task.total()
        parts = []
        if done_bytes:
            amount = f"{size(done_bytes, 3)} of {size(total, 3)}" if total else size(done_bytes, 3)
            parts += [amount, f"{size(done_bytes / elapsed, 3)}/s on rank 0"]
        if task.steps and step:
            left = seconds(elapsed / step * (task.steps - step), 2)
            parts += [f"{task.unit} {step} of {task.steps}", f"{left} left"]
        elif total and done_bytes:
            parts.append(f"{seconds(elapsed / done_bytes * (total - done_bytes), 2)} left")
        stage = f"{self._stage}; " if self._stage else ""
        epoch = f", epoch {task.epoch} of {task.epochs}" if task.epochs > 1 else ""
        self._write(f"{stage}{task.phase}{epoch}: {', '.join(parts) or f'{seconds(elapsed, 2)} so far'}")
        self._shown = True
        self._due = self._next = now_ns + self._every

    def _write(self, text: str) -> None:
        # A terminal may be gone and a disk full, which is no reason to end a run.
        if self._stream is not None:
            with suppress(OSError):
                self._stream.write(f"\r{text[:110]}\x1b[K" if self._is_terminal else f"live: {text}\n")
                self._stream.flush()


@contextmanager
def show_elapsed(stream: TextIO | None, label: str, silent: float = 1.0) -> Iterator[None]:
    """Show the elapsed time of a block after `silent` seconds; only on a terminal."""
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
