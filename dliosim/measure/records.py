"""What one rank knows of one epoch when it ends; `summary` turns the records of all ranks into figures."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dliosim.measure.histogram import Histogram

#: What the last rank of a step had spent its time on, in the order of `EpochRecord.last_arrival`'s lowest two bits.
CAUSES = ("storage", "compute", "tool", "arrivals")


@dataclass(slots=True)
class EpochRecord:
    """Counts, bytes, and nanoseconds (int) of one rank in one epoch of a loop, or one round of a verb.

    `steady_ns` is the wall time of the steps after the first, evaluation and blocking checkpoints taken out, and
    `nominal_ns` the compute drawn (not slept) for those same steps: their quotient is the utilization. `steps` counts
    the steps done, `samples` and `bytes` what calls returned (kept in memory included in neither `bytes_moved` nor
    calls, but in `bytes`). `last_arrival` has one int64 a step that ended in a sync, so packed that the minimum over
    ranks names the rank that waited least: sync wait in ns << 24 | rank << 2 | index in CAUSES.
    """

    phase: int
    epoch: int
    steps: int = 0
    samples: int = 0
    bytes: int = 0
    bytes_moved: int = 0
    calls: int = 0
    opens: int = 0
    wall_ns: int = 0
    steady_ns: int = 0
    steady_samples: int = 0
    nominal_ns: int = 0
    data_wait_ns: int = 0
    io_busy_ns: int = 0
    open_ns: int = 0
    view_ns: int = 0
    file_sync_ns: int = 0
    compute_ns: int = 0
    sync_wait_ns: int = 0
    arrival_wait_ns: int = 0
    checkpoint_ns: int = 0
    evaluate_ns: int = 0
    oversleep_ns: int = 0
    order_hash: int = 0
    extent_hash: int = 0
    rchar: int = -1
    read_bytes: int = -1
    batch_latency: Histogram = field(default_factory=Histogram)
    call_latency: Histogram = field(default_factory=Histogram)
    request_latency: Histogram = field(default_factory=Histogram)
    last_arrival: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def tool_ns(self) -> int:
        """The rest of the wall time: neither waiting for data, arrivals or ranks, nor computing, nor a phase inside."""
        named = self.data_wait_ns + self.compute_ns + self.sync_wait_ns + self.arrival_wait_ns
        return self.wall_ns - named - self.checkpoint_ns - self.evaluate_ns
