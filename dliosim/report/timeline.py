"""timeline.h5: the data for pictures of a run; docs/metrics.md has its layout."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dliosim.measure.epoch_summaries import EpochSummary
from dliosim.measure.phase import LoopPhase
from dliosim.measure.timeline import EpochTimeline, Timeline

SCHEMA_VERSION = 1

_OVER = "the time that the step's data took to be read, on its readers' threads; without readers, its data wait"

# Arrays from this size on, bytes, are stored in compressed chunks; chunks themselves cost some kilobytes.
_COMPRESSED = 1 << 16


def encode_timeline(phases: Sequence[tuple[LoopPhase, Timeline | None]]) -> memoryview:
    """Return the bytes of timeline.h5: a group for each loop, as in ranks.h5, and in it a group for each epoch.

    Loops without a timeline have no epochs.
    """
    import h5py  # takes 100 ms and 10 MB: only the rank that writes imports it

    content = io.BytesIO()
    with h5py.File(content, "w", libver="v108") as file:
        file.attrs["schema_version"] = SCHEMA_VERSION
        for index, (phase, timeline) in enumerate(phases):
            group = file.create_group(f"{index:04d}")
            group.attrs["name"], group.attrs["kind"] = phase.name, phase.kind
            if timeline is not None:
                for number, epoch in timeline.epochs.items():
                    _add_epoch(group.create_group(f"{number:04d}"), timeline.ranks, epoch, phase.epochs[number])
    return content.getbuffer()


def _add_epoch(group: Any, ranks: NDArray[np.int64], epoch: EpochTimeline, summary: EpochSummary) -> None:
    group.attrs["bin_ns"], group.attrs["steps"] = epoch.bin_ns, epoch.steps
    _add_array(group, "ranks", ranks, "1", "rank")
    for name, values in epoch.bins.items():
        _add_array(group, name, values, _unit(name), "rank, bin")
    group["bytes"].attrs["spread_over"] = _OVER
    _add_array(group, "window_ns", epoch.window, "ns", "rank, step, mark")
    _add_array(group, "reads_ns", epoch.reads, "ns", "read, (rank, reader, begin, end)")
    _add_array(group, "offsets", epoch.offsets, "bytes", "call, (rank, step, file, offset)")
    _add_array(group, "batch_latency", summary.batch_latency.nonempty_buckets(), "ns", "bucket, (upper edge, count)")
    _add_array(group, "call_latency", summary.call_latency.nonempty_buckets(), "ns", "bucket, (upper edge, count)")


def _add_array(group: Any, name: str, values: NDArray[np.int64], unit: str, axes: str) -> None:
    how: dict[str, Any] = {"compression": "gzip", "compression_opts": 1, "shuffle": True}
    data = group.create_dataset(name, data=values, **(how if values.nbytes >= _COMPRESSED else {}))
    data.attrs["unit"], data.attrs["axes"] = unit, axes


def _unit(quantity: str) -> str:
    if quantity.endswith("_ns"):
        return "ns"
    return "bytes" if quantity == "bytes" else "1"
