"""The null backend (`--null`): no I/O and no data, to measure dliosim itself and a plan without storage."""

from __future__ import annotations

import numpy as np

from dliosim.execute.backends.contract import Reader
from dliosim.measure.rank.meter import Meter
from dliosim.plan.samples.io_requests import Calls


class NullReader(Reader):
    """Reads nothing, and reports all bytes as read. It does not change the buffer, and its meter counts nothing."""

    def __init__(self) -> None:
        self.meter = Meter()

    def begin_epoch(self) -> None:
        """Do nothing: there are no files."""

    def read(self, calls: Calls, into: memoryview) -> int:
        """Return the bytes that the calls ask for."""
        return int(np.add.reduce(calls.length))

    def end_epoch(self) -> None:
        """Do nothing: there are no files."""

    def close(self) -> None:
        """Do nothing: there are no files."""
