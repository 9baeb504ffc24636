"""The null backend (`--null`): no I/O and no data, to measure the tool itself and a plan without storage."""

from __future__ import annotations

from dliosim.measure.meter import Meter
from dliosim.plan.samples.io_requests import Calls


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

    def active_hints(self) -> dict[str, str]:
        """Nothing."""
        return {}

    def close(self) -> None:
        """Nothing."""
