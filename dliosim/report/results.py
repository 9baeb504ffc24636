"""The results of a run as files: results.json for its figures, ranks.h5 for those of every rank."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dliosim
from dliosim.errors import ExecutionError
from dliosim.measure.figures import EpochSummary, PhaseSummary, RunSummary, VerbSummary
from dliosim.measure.histogram import RELATIVE_ERROR
from dliosim.measure.summary import RANK_COLUMNS

SCHEMA_VERSION = 1
RESULTS = "results.json"
RANKS = "ranks.h5"

_EPOCH_SPREADS = (
    "data_wait_seconds",
    "io_busy_seconds",
    "open_seconds",
    "view_seconds",
    "compute_seconds",
    "sync_wait_seconds",
    "arrival_wait_seconds",
    "checkpoint_seconds",
    "tool_seconds",
)
_EPOCH_FIGURES = (
    "steps",
    "fewest_steps",
    "samples",
    "bytes",
    "bytes_moved",
    "calls",
    "opens",
    "seconds",
    "loop_seconds",
    "null_seconds",
    "slowdown",
    "utilization",
    "utilization_min",
    "utilization_max",
    "samples_per_second",
    "steady_samples_per_second",
    "bytes_per_second",
    "slowest_rank",
    "slowest_rank_share",
    "least_sync_wait_seconds",
    "oversleep_share",
    "amplification",
    "storage_amplification",
    "dlio_au",
    "dlio_samples_per_second",
)
_VERB_FIGURES = (
    "bytes",
    "bytes_moved",
    "files",
    "calls",
    "opens",
    "seconds",
    "bytes_per_second",
    "resident_bytes",
    "examined_bytes",
    "resident_share",
)
_VERB_SPREADS = (
    "call_seconds",
    "content_seconds",
    "send_seconds",
    "open_seconds",
    "view_seconds",
    "file_sync_seconds",
    "rename_seconds",
)


def results_of(run: RunSummary) -> dict[str, Any]:
    """What results.json holds: plain values, None where there is no figure. Epochs and ranks count from 0."""
    content = {
        "schema_version": SCHEMA_VERSION,
        "dliosim_version": dliosim.__version__,
        "name": run.name,
        "title": run.title,
        "pattern": run.pattern,
        "overrides": dict(run.overrides),
        "arguments": list(run.arguments),
        "environment": asdict(run.environment) | {"details": dict(run.environment.details)},
        "digest": run.digest,
        "order_hash": f"{run.order_hash:016x}",
        "extent_hash": f"{run.extent_hash:016x}",
        "null": run.null,
        "verify": run.verify,
        "ranks": run.ranks,
        "nodes": run.nodes,
        "started": run.started,
        "seconds": run.seconds,
        "verified_bytes": run.verified_bytes,
        "latency_relative_error": RELATIVE_ERROR,
        "phases": [_phase(phase) for phase in run.phases],
        "expectations": [asdict(result) for result in run.expectations],
    }
    return {name: _finite(value) for name, value in content.items()}


def write_results(directory: Path, run: RunSummary) -> Path:
    """Write results.json into an existing directory, so that it is there whole or not at all; return its path.

    Raises OSError as the calls do.
    """
    text = json.dumps(results_of(run), indent=1, allow_nan=False) + "\n"

    def write(aside: Path) -> None:
        aside.write_text(text, encoding="utf-8")

    return _written_aside(directory / RESULTS, write)


def write_ranks(directory: Path, phases: Sequence[tuple[PhaseSummary, NDArray[np.int64]]]) -> Path:
    """Write ranks.h5 into an existing directory, whole or not at all; return its path.

    For each loop a group (numbered, in order) with a data set (epochs, ranks) for each of `RANK_COLUMNS`, from arrays
    (ranks, epochs, columns) as `gather_ranks` gives them. Raises OSError as the calls do.
    """

    def write(aside: Path) -> None:
        import h5py  # 100 ms and 10 MB that only the rank which writes should pay

        with h5py.File(aside, "w", libver="v108") as file:
            file.attrs["schema_version"] = SCHEMA_VERSION
            for index, (phase, rows) in enumerate(phases):
                group = file.create_group(f"{index:04d}")
                group.attrs["name"], group.attrs["kind"] = phase.name, phase.kind
                for column, name in enumerate(RANK_COLUMNS):
                    data = group.create_dataset(name, data=rows[:, :, column].T)
                    data.attrs["unit"] = _unit(name)
                    data.attrs["axes"] = "epoch, rank"

    return _written_aside(directory / RANKS, write)


def load_results(path: Path) -> dict[str, Any]:
    """The content of a results.json (or of the one in a directory).

    Raises ExecutionError if it cannot be read, is none, or has a schema of another version.
    """
    file = path / RESULTS if path.is_dir() else path
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ExecutionError(f"{file}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ExecutionError(f"{file}: not the results of a run: {error}") from error
    version = content.get("schema_version") if isinstance(content, dict) else None
    if version is None:
        raise ExecutionError(f"{file}: not the results of a run: it has no schema_version")
    if version != SCHEMA_VERSION:
        raise ExecutionError(f"{file}: written with schema version {version}; this dliosim knows {SCHEMA_VERSION}")
    return dict(content)


def _phase(phase: PhaseSummary) -> dict[str, Any]:
    return {
        "name": phase.name,
        "kind": phase.kind,
        "seconds": phase.seconds,
        "null_seconds": phase.null_seconds,
        "resident_share": phase.resident_share,
        "api": phase.api,
        "cache": phase.cache,
        "prefetch": phase.prefetch,
        "hints_asked": dict(phase.hints_asked),
        "hints_granted": dict(phase.hints_granted),
        "notes": list(phase.notes),
        "epochs": [_epoch(epoch) for epoch in phase.epochs],
        "files": phase.verb and _verb(phase.verb),
    }


def _epoch(epoch: EpochSummary) -> dict[str, Any]:
    latencies = {
        "batch_latency_seconds": epoch.batch_latency,
        "call_latency_seconds": epoch.call_latency,
        "request_latency_seconds": epoch.request_latency,
    }
    return {
        "epoch": epoch.epoch,
        **{name: getattr(epoch, name) for name in _EPOCH_FIGURES},
        **{name: asdict(getattr(epoch, name)) for name in _EPOCH_SPREADS},
        **{name: found and asdict(found) for name, one in latencies.items() for found in [one.quantiles()]},
        "bound_by": epoch.bound_by and asdict(epoch.bound_by),
        "order_hash": f"{epoch.order_hash:016x}",
        "extent_hash": f"{epoch.extent_hash:016x}",
    }


def _verb(verb: VerbSummary) -> dict[str, Any]:
    found = verb.call_latency.quantiles()
    return {
        **{name: getattr(verb, name) for name in _VERB_FIGURES},
        **{name: asdict(getattr(verb, name)) for name in _VERB_SPREADS},
        "call_latency_seconds": found and asdict(found),
    }


def _finite(value: Any) -> Any:
    """The value with None for every number that JSON does not know."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return value


def _unit(column: str) -> str:
    if column.endswith("_ns"):
        return "ns"
    return "bytes" if column in ("bytes", "bytes_moved", "rchar", "read_bytes") else "1"


def _written_aside(path: Path, write: Callable[[Path], None]) -> Path:
    """Have a file written under another name, make it durable, and give it its own."""
    aside = path.with_name(f"{path.name}.partial")
    try:
        write(aside)
        with aside.open("rb") as stream:
            os.fsync(stream.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    return path
