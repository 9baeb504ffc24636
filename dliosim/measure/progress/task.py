"""The work of rank 0 at a time, as progress is shown of it; without numpy, which some commands do not load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Task:
    """The work of rank 0 at a time: an epoch of a loop, or a move of bytes without steps."""

    #: name of the phase
    phase: str
    #: number of the epoch, from 1
    epoch: int = 1
    #: number of epochs
    epochs: int = 1
    #: steps of the epoch; 0 where their number is unknown
    steps: int = 0
    #: word for a step
    unit: str = "step"
    #: begin, ns of perf_counter_ns
    started: int = 0
    #: time since then in which it was interrupted, as by a save, ns
    held: int = 0
    #: returns the bytes of this rank, 0 where they are unknown; None where steps are counted
    total: Callable[[], int] | None = None
    #: the `StepAccount.rows` of the epoch; None where there are no steps of a loop
    readings: memoryview | None = None

    @property
    def label(self) -> str:
        """Return the phase with its epoch."""
        return f"{self.phase}, epoch {self.epoch} of {self.epochs}" if self.epochs > 1 else self.phase


#: The task between two others.
IDLE: Final = Task("between phases")
