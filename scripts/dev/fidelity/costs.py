"""The cost of a DataLoader without reading: parameters of patterns/profiles/torch_dataloader.dlio on this machine.

Its workers take samples out of memory, so that nothing is read and no latency has an effect. The result is a property
of the loader, the size of a batch and the machine, and is fixed before any epoch is compared.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness import run

_LOADERS: Final = Path(__file__).with_name("loaders.py")

#: Seconds of a step in which every batch is ready long before it is wanted.
_LONG: Final = 0.02
_EPOCHS: Final = 4


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds: `start` until the first batch of an epoch and `end` after its last, `batch` in a worker, `step` in main.

    `step` has what the loader's own time.sleep is late, too.
    """

    start: float
    end: float
    batch: float
    step: float


def dataloader(python: str, batch: int, size: int) -> Costs:
    """Measure batches of `batch` samples of `size` bytes; first epochs are not counted."""

    def epochs(workers: int, compute: float) -> list[dict[str, float]]:
        asked = ["--batch", str(batch), "--size", str(size), "--workers", str(workers), "--compute", str(compute)]
        command = [python, str(_LOADERS), "torch-memory", ".", *asked, "--epochs", str(_EPOCHS)]
        found: list[dict[str, float]] = json.loads(run(command, 300).splitlines()[-1])
        return found[1:]

    # One worker that never waits: each step takes the time that it needs for a batch.
    hurried = epochs(1, 0.0)
    a_batch = _median(hurried, lambda epoch: (epoch["last"] - epoch["first"]) / (epoch["steps"] - 1))
    relaxed = epochs(2, _LONG)
    a_step = _median(relaxed, lambda epoch: (epoch["last"] - epoch["first"]) / epoch["steps"] - _LONG)
    start = _median(relaxed, lambda epoch: epoch["first"]) - a_batch
    return Costs(start, _median(relaxed, lambda epoch: epoch["seconds"] - epoch["last"]), a_batch, a_step)


def _median(epochs: list[dict[str, float]], figure: Callable[[dict[str, float]], float]) -> float:
    return statistics.median([figure(epoch) for epoch in epochs])
