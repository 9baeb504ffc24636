"""The results of a run as files: ranks.h5 (figures of every rank), timeline.h5, and results.json, written last."""

from __future__ import annotations

import errno
import io
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

import dliosim
from dliosim.boundedjson import drop_nonfinite
from dliosim.errors import ExecutionError
from dliosim.measure.figures.declaration import result_figures
from dliosim.measure.figures.epoch_summaries import EpochSummary, SourceSummary, VerbSummary
from dliosim.measure.figures.summary import RANK_COLUMNS
from dliosim.measure.figures.timeline import EpochTimeline, Timeline
from dliosim.measure.rank.histogram import RELATIVE_ERROR
from dliosim.measure.results.checkpoint_overhead import loop_overheads, total_overhead
from dliosim.measure.results.phase import LoopPhase, PhaseSummary
from dliosim.measure.results.run_summary import RunSummary
from dliosim.plan.forecast.checkpoint_interval import best_interval, daly_interval, possible_interval, young_interval
from dliosim.report.answer_sentences import plain_content
from dliosim.report.interval_table import interval_loss
from dliosim.report.run.checkpoint_costs import CheckpointCosts, checkpoint_costs
from dliosim.report.run.loops import latencies_by_loop

ARRAYS_VERSION = 2

T = TypeVar("T")

#: Loops with the figures of all ranks.
RankRows: TypeAlias = Sequence[tuple[LoopPhase, NDArray[np.int64]]]

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


def encode_ranks(phases: RankRows) -> memoryview:
    """Return the bytes of ranks.h5: for each loop a group (numbered, in order) with all `RANK_COLUMNS`.

    Each is a data set (epochs, ranks). The input arrays are (ranks, epochs, columns), as from `gather_ranks`.
    """

    def add_columns(group: Any, _: LoopPhase, rows: NDArray[np.int64]) -> None:
        for column, name in enumerate(RANK_COLUMNS):
            data = group.create_dataset(name, data=rows[:, :, column].T)
            data.attrs["unit"], data.attrs["axes"] = _unit(name), "epoch, rank"

    return _encode_loops(phases, add_columns)


def _encode_loops(phases: Sequence[tuple[LoopPhase, T]], add: Callable[[Any, LoopPhase, T], None]) -> memoryview:
    import h5py  # takes 100 ms and 10 MB: only the rank that writes imports it

    # Written to memory first: HDF5 repeats its error if the disk is full, and may crash.
    content = io.BytesIO()
    with h5py.File(content, "w", libver="v108") as file:
        file.attrs["schema_version"] = ARRAYS_VERSION
        for index, (phase, found) in enumerate(phases):
            group = file.create_group(f"{index:04d}")
            group.attrs["name"], group.attrs["kind"] = phase.name, phase.kind
            add(group, phase, found)
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


SCHEMA_VERSION = 10
RESULTS = "results.json"
#: The results so far of a run that did not end, or has not ended yet.
PARTIAL = "results.partial.json"
#: The results of a comparison, written last.
COMPARE = "compare.json"
COMPARE_VERSION = 6
#: Every pass of a comparison.
ROWS = "rows.csv"
RANKS = "ranks.h5"
TIMELINE = "timeline.h5"


def copy_members(value: object, *names: str) -> dict[str, Any]:
    """Return members that a file has as they are."""
    return {name: getattr(value, name) for name in names}


def results_content(run: RunSummary) -> dict[str, Any]:
    """Return the content of results.json: plain values, None for no figure. Epochs count from 1, ranks from 0."""
    content = {
        "schema_version": SCHEMA_VERSION,
        "dliosim_version": dliosim.__version__,
        **copy_members(run, "name", "title", "pattern", "overrides", "program", "arguments"),
        "environment": asdict(run.environment) | {"details": dict(run.environment.details)},
        "answer": plain_content(run.answers),
        "digest": run.digest,
        "order_hash": f"{run.order_hash:016x}",
        "extent_hash": f"{run.extent_hash:016x}",
        **copy_members(run, "null", "modelled", "verify", "ranks", "nodes", "started", "seconds"),
        "verified_bytes": run.bytes_verified,
        "checkpoint_overhead": _overhead(run),
        "mtbf_seconds": run.mtbf,
        "restart_seconds": run.restart_time,
        "intervals": [_interval(one) for one in checkpoint_costs(run)],
        "partial": run.partial and asdict(run.partial),
        "latency_relative_error": RELATIVE_ERROR,
        "phases": [_phase(phase) for phase in run.phases],
        "loops": [
            {"title": title} | {f"{kind}_latency_seconds": found and asdict(found) for kind, found in latencies.items()}
            for title, latencies in latencies_by_loop(run).items()
        ],
        "expectations": plain_content(run.expectations),
    }
    return {name: drop_nonfinite(value) for name, value in content.items()}


def answer_json(run: RunSummary, place: Path | str | None) -> str:
    """Return one line of JSON for scripts: the answers of a run, and the missed `expect` lines.

    `place` is the directory of all results; None if these could not be written.
    """
    content = {
        "schema_version": SCHEMA_VERSION,
        "name": run.name,
        "results": None if place is None else str(place),
        "partial": run.partial and asdict(run.partial),
        "answer": plain_content(run.answers),
        "intervals": [_interval(one) for one in checkpoint_costs(run)],
        "missed": [plain_content(result) for result in run.expectations if result.is_missed],
    }
    return json.dumps(drop_nonfinite(content), allow_nan=False) + "\n"


def write_results(directory: Path, run: RunSummary, phases: RankRows, timelines: Sequence[Timeline | None]) -> None:
    """Write ranks.h5 (see `encode_ranks`), timeline.h5, then results.json, into an existing directory.

    `timelines` has one for each of `phases`. Each file is there whole or not at all. So if there is a results.json,
    the other files are there, too. Raises OSError with the file's name.
    """
    text = _results_json(run)
    write_atomic(directory / RANKS, encode_ranks(phases))
    recorded = [(phase, timeline) for (phase, _), timeline in zip(phases, timelines, strict=True)]
    write_atomic(directory / TIMELINE, encode_timeline(recorded))
    write_atomic(directory / RESULTS, text)
    (directory / PARTIAL).unlink(missing_ok=True)


def write_partial(directory: Callable[[], Path], run: RunSummary) -> Path:
    """Write the finished part of a run in the form of results.json, whole or not at all; return the path.

    `directory` makes the directory, once there is something to write.
    """
    text = _results_json(run)
    path = directory() / PARTIAL
    write_atomic(path, text)
    return path


def _results_json(run: RunSummary) -> bytes:
    return (json.dumps(results_content(run), indent=1, allow_nan=False) + "\n").encode()


def _overhead(run: RunSummary) -> dict[str, Any]:
    """Return the time that saves held of each loop that made some, and of all."""
    whole = total_overhead(run)
    return {
        "share": whole and whole.share,
        "held_seconds": whole.held_seconds if whole else 0.0,
        "loops": [asdict(one) | {"share": one.share} for one in loop_overheads(run)],
    }


def _interval(one: CheckpointCosts) -> dict[str, Any]:
    """Return the costs of a checkpoint's saves and of failures, and the intervals with the least loss; s."""
    costs = one.costs
    return {
        "name": one.checkpoint,
        "saves": one.saves,
        "is_estimate": one.is_estimate,
        "stall_seconds": costs.stall,
        "flush_seconds": costs.flush,
        "restart_seconds": costs.restart,
        "young_seconds": young_interval(costs.stall, costs.mtbf),
        "daly_seconds": daly_interval(costs.stall, costs.mtbf),
        "best": interval_loss(best_interval(costs), costs),
        "own": None if one.interval is None else interval_loss(possible_interval(one.interval, costs), costs),
    }


#: What results.json has of phases that do not have it.
_ABSENT: dict[str, Any] = {
    **dict.fromkeys(("null_seconds", "free_memory", "cache")),
    "cold_each_epoch": False,
    "prefetch": 0,
    "readers": 0,
    "reader_processes": False,
    "through": "direct",
    "epochs": (),
    **dict.fromkeys(("within", "fsync", "commit")),
    "part_of": "",
    **dict.fromkeys(("whole_times", "whole_ranks")),
    "how": "",
    "verb": None,
}


def _phase(phase: PhaseSummary) -> dict[str, Any]:
    found = _ABSENT | {one.name: getattr(phase, one.name) for one in fields(phase)}
    verb = found.pop("verb")
    return found | {
        "hints_asked": dict(phase.hints_asked),
        "hints_granted": dict(phase.hints_granted),
        "notes": list(phase.notes),
        "epochs": [_figures(epoch) for epoch in found["epochs"]],
        "files": verb and _figures(verb),
    }


def _figures(summary: EpochSummary | VerbSummary | SourceSummary) -> dict[str, Any]:
    """Return all figures of a summary; of latencies the quantiles, of times over ranks mean, least and greatest."""
    return {one.key: _plain_figure(one.kind, getattr(summary, one.name)) for one in result_figures(type(summary))}


def _plain_figure(kind: str, value: Any) -> Any:
    if kind == "Hash":
        return f"{value:016x}"
    if kind == "SourceSummaries":
        return [_figures(one) for one in value]
    value = value.quantiles() if kind == "Histogram" else value
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def write_atomic(path: Path, content: bytes | memoryview) -> None:
    """Write a file under another name, make it durable (fsync), and rename it."""
    aside = path.with_name(f"{path.name}.partial")
    try:
        with aside.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(path)
    except OSError as error:
        # Errors of calls on an open file do not have its name.
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        aside.unlink(missing_ok=True)


def write_new(path: Path, content: str | bytes | memoryview) -> None:
    """Write a file whole or not at all; ExecutionError if it cannot be written, or is there already."""
    try:
        if path.exists():
            raise FileExistsError(errno.EEXIST, "it is there already")
        write_atomic(path, content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise ExecutionError(f"cannot write {path}: {error.strerror}") from error
