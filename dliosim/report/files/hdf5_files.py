"""ranks.h5, the figures of every rank, and timeline.h5, the data for pictures; docs/report.md has their layout."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.figures.summary import RANK_COLUMNS
from dliosim.measure.figures.timeline import EpochTimeline, Timeline
from dliosim.measure.results.phase import LoopPhase

SCHEMA_VERSION = 2

T = TypeVar("T")

_OVER = "the time that the step's data took to be read, on its readers' threads; without readers, its data wait"

# Arrays from this size on, bytes, are stored in compressed chunks; chunks themselves cost some kilobytes.
_COMPRESSED = 1 << 16


def encode_timeline(phases: Sequence[tuple[LoopPhase, Timeline | None]]) -> memoryview:
    """Return the bytes of timeline.h5: a group for each loop, as in ranks.h5, and in it a group for each epoch.

    Loops without a timeline have no epochs.
    """

    def add_epochs(group: Any, phase: LoopPhase, timeline: Timeline | None) -> None:
        if timeline is not None:
            for number, epoch in timeline.epochs.items():
                _add_epoch(group.create_group(f"{number:04d}"), timeline.ranks, epoch, phase.epochs[number - 1])

    return _encode_loops(phases, add_epochs)


def encode_ranks(phases: Sequence[tuple[LoopPhase, NDArray[np.int64]]]) -> memoryview:
    """Return the bytes of ranks.h5: for each loop a group (numbered, in order) with all `RANK_COLUMNS`.

    Each is a data set (epochs, ranks). The input arrays are (ranks, epochs, columns), as from `gather_ranks`.
    """

    def add_columns(group: Any, _: LoopPhase, rows: NDArray[np.int64]) -> None:
        for column, name in enumerate(RANK_COLUMNS):
            data = group.create_dataset(name, data=rows[:, :, column].T)
            data.attrs["unit"], data.attrs["axes"] = _unit(name), "epoch, rank"

    return _encode_loops(phases, add_columns)


def _encode_loops(
    phases: Sequence[tuple[LoopPhase, T]], add_content: Callable[[Any, LoopPhase, T], None]
) -> memoryview:
    import h5py  # takes 100 ms and 10 MB: only the rank that writes imports it

    # Written to memory first: HDF5 repeats its error where the disk is full, and may crash.
    content = io.BytesIO()
    with h5py.File(content, "w", libver="v108") as file:
        file.attrs["schema_version"] = SCHEMA_VERSION
        for index, (phase, found) in enumerate(phases):
            group = file.create_group(f"{index:04d}")
            group.attrs["name"], group.attrs["kind"] = phase.name, phase.kind
            add_content(group, phase, found)
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
    return "bytes" if quantity in ("bytes", "bytes_moved", "rchar", "read_bytes") else "1"
