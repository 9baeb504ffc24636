"""The null backend (`--null`): no I/O and no data, to measure the tool itself and a plan without storage."""

from __future__ import annotations

from pathlib import Path

from dliosim.measure.meter import Meter
from dliosim.plan.extents import Calls


class NullReader:
    """Reads nothing and says that it did; the buffer stays as it is, and the meter counts neither calls nor bytes."""

    def __init__(self) -> None:
        self.meter = Meter()

    def begin_epoch(self) -> None:
        """Nothing."""

    def read(self, calls: Calls, into: memoryview) -> int:
        """The bytes asked."""
        return int(calls.length.sum())

    def end_epoch(self) -> None:
        """Nothing."""

    def granted(self) -> dict[str, str]:
        """Nothing."""
        return {}

    def close(self) -> None:
        """Nothing."""


class NullWriter:
    """Writes nothing and makes no file."""

    def __init__(self, path: Path) -> None:
        self.meter = Meter()
        self.path = path

    def write(self, offset: int, data: memoryview) -> None:
        """Count the bytes."""
        self.meter.calls += 1
        self.meter.moved += len(data)

    def sync(self) -> None:
        """Nothing."""

    def granted(self) -> dict[str, str]:
        """Nothing."""
        return {}

    def close(self) -> None:
        """Nothing."""
