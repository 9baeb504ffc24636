"""Results of runs that never were, in the formats of results.json, ranks.h5, timeline.h5 and compare.json."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.figures.summary import RANK_COLUMNS
from dliosim.measure.figures.timeline import EpochTimeline, Timeline
from dliosim.measure.rank.histogram import Histogram
from dliosim.measure.rank.time_series import WINDOW_STEPS
from dliosim.measure.results.phase import LoopPhase
from dliosim.measure.results.run_summary import RunSummary
from dliosim.report.files.results import write_results
from tests.report.sample import epoch, run, spread

BATCH, SAMPLE = 4, 1_000_000
READERS = 2
BINS = 100
SAMPLES = 4096


@dataclass(frozen=True)
class Events:
    """One epoch: `marks` (ranks, steps, 6) as timeline.h5's window, `reads` (n, 4) and `offsets` (n, 4)."""

    marks: NDArray[np.int64]
    reads: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @property
    def data_wait(self) -> NDArray[np.int64]:
        return self.marks[:, :, 1] - self.marks[:, :, 0]


def events(ranks: int, steps: int, cold: bool, seed: int, save_every: int = 16) -> Events:
    """Steps of 10 ms of compute with a barrier; rank 0's node is slow, and the first epoch reads four times as long."""
    draw = np.random.default_rng(seed)
    marks = np.zeros((ranks, steps, 6), np.int64)
    reads, offsets = [], []
    now = np.zeros(ranks, np.int64)
    order = draw.permutation(SAMPLES)
    for step in range(steps):
        read = draw.lognormal(np.log(3e6 if not cold else 12e6), 0.5, ranks).astype(np.int64)
        read[: max(1, ranks // 16)] *= 2
        wait = read if step == 0 else np.maximum(read - 8_000_000, 20_000)
        ready = now + wait
        begun = ready + 30_000
        ended = begun + draw.normal(10e6, 2e5, ranks).astype(np.int64)
        synced = np.full(ranks, ended.max() + 200_000)
        saved = synced + (40_000_000 if (step + 1) % save_every == 0 else 0)
        marks[:, step] = np.stack([now, ready, begun, ended, synced, saved], axis=1)
        for reader in range(READERS):
            row = [np.arange(ranks), np.full(ranks, reader), np.maximum(ready - read, 0), ready]
            reads.append(np.stack(row, axis=1))
        for sample in range(BATCH):
            chosen = order[(step * ranks * BATCH + np.arange(ranks) * BATCH + sample) % SAMPLES]
            rows = [np.arange(ranks), np.full(ranks, step), np.zeros(ranks, np.int64), chosen * SAMPLE]
            offsets.append(np.stack(rows, axis=1))
        now = saved
    return Events(marks, np.concatenate(reads), np.concatenate(offsets))


def timeline(epochs: dict[int, Events]) -> Timeline:
    """The arrays that rank 0 gathers of some epochs."""
    ranks = next(iter(epochs.values())).marks.shape[0]
    return Timeline(np.arange(ranks), {number: _epoch(found) for number, found in epochs.items()})


def _epoch(found: Events) -> EpochTimeline:
    ranks, steps = found.marks.shape[:2]
    bin_ns = int(found.marks.max()) // BINS + 1
    parts = {"data_wait_ns": (0, 1), "compute_ns": (2, 3), "sync_wait_ns": (3, 4), "checkpoint_ns": (4, 5)}
    bins = {name: _binned(found.marks[:, :, a], found.marks[:, :, b], bin_ns) for name, (a, b) in parts.items()}
    rows = np.arange(ranks).repeat(steps)
    at = (found.marks[:, :, 5] // bin_ns).ravel()
    bins["bytes"], bins["steps"], bins["batch_latency_max_ns"] = (np.zeros((ranks, BINS), np.int64) for _ in range(3))
    np.add.at(bins["bytes"], (rows, at), BATCH * SAMPLE)
    np.add.at(bins["steps"], (rows, at), 1)
    np.maximum.at(bins["batch_latency_max_ns"], (rows, at), found.data_wait.ravel())
    bins["io_busy_ns"] = bins["data_wait_ns"]
    return EpochTimeline(steps, bin_ns, bins, found.marks[:, :WINDOW_STEPS], found.reads, found.offsets)


def _binned(begin: NDArray[np.int64], end: NDArray[np.int64], bin_ns: int) -> NDArray[np.int64]:
    """Return how much of each bin is within the intervals of each row."""
    edges = np.arange(BINS + 1) * bin_ns
    within = np.clip(np.minimum(end[..., None], edges[1:]) - np.maximum(begin[..., None], edges[:-1]), 0, None)
    return within.sum(axis=1)


def write_run(
    directory: Path,
    ranks: int = 4,
    steps: int = 32,
    epochs: int = 5,
    core_wait: float = 0.0013,
    **changed: object,
) -> RunSummary:
    """A whole directory of results: one loop `train`, of whose epochs the first 3 and the last are recorded.

    Ranks waited for cores for `core_wait` seconds of each epoch.
    """
    directory.mkdir(parents=True, exist_ok=True)
    happened = [events(ranks, steps, index == 0, seed=index) for index in range(epochs)]
    rows = np.stack([_rank_rows(index, found) for index, found in enumerate(happened)], axis=1)
    train = LoopPhase(
        name="train",
        kind="train",
        seconds=float(sum(found.marks.max() for found in happened)) * 1e-9,
        epochs=tuple(
            replace(_summary(index, ranks, found, rows[:, index]), core_wait_seconds=spread(core_wait))
            for index, found in enumerate(happened)
        ),
        resident_share=0.0,
        api="posix",
        cache="page",
        prefetch=2,
    )
    base = run(ranks=ranks, phases=(*run().phases[:4], train), **changed)
    environment = replace(base.environment, ranks_per_node=ranks, cores_per_node=max(ranks, 8))
    whole = replace(base, environment=environment) if "environment" not in changed else base
    kept = sorted({*range(min(3, epochs)), epochs - 1})
    write_results(directory, whole, [(train, rows)], [timeline({i + 1: happened[i] for i in kept})])
    return whole


def _rank_rows(index: int, found: Events) -> NDArray[np.int64]:
    marks = found.marks
    ranks, steps = marks.shape[:2]
    spans = {name: (marks[:, :, b] - marks[:, :, a]).sum(axis=1) for name, (a, b) in _SPANS.items()}
    rows = np.zeros((ranks, len(RANK_COLUMNS)), np.int64)
    values = {"epoch": index + 1, "steps": steps, "samples": steps * BATCH, "bytes": steps * BATCH * SAMPLE, **spans}
    values["wall_ns"] = marks[:, -1, 5]
    values["loop_ns"] = marks[:, -1, 5] - spans["checkpoint_ns"]
    values["steady_ns"] = values["loop_ns"] - (marks[:, 0, 4] - marks[:, 0, 0])
    values["nominal_ns"] = (steps - 1) * 10_000_000
    for name, value in values.items():
        rows[:, RANK_COLUMNS.index(name)] = value
    return rows


_SPANS = {
    "data_wait_ns": (0, 1),
    "tool_ns": (1, 2),
    "compute_ns": (2, 3),
    "sync_wait_ns": (3, 4),
    "checkpoint_ns": (4, 5),
}


def _summary(index: int, ranks: int, found: Events, rows: NDArray[np.int64]) -> EpochSummary:
    by_name = dict(zip(RANK_COLUMNS, rows.T, strict=True))
    steps = found.marks.shape[1]
    busy = by_name["nominal_ns"] / np.maximum(by_name["steady_ns"], 1)
    known = {"utilization": busy.mean(), "utilization_min": busy.min(), "utilization_max": busy.max()}
    content = ranks * steps * BATCH * SAMPLE
    seconds = {name: replace(spread(0.0), **_three(by_name[f"{name}_ns"] * 1e-9)) for name in _PARTS}
    return epoch(
        index,
        ranks=ranks,
        steps=steps,
        fewest_steps=steps,
        samples=ranks * steps * BATCH,
        bytes=content,
        bytes_moved=content,
        calls=ranks * steps * BATCH,
        opens=ranks * steps * BATCH,
        seconds=float(by_name["wall_ns"].max()) * 1e-9,
        loop_seconds=float(by_name["loop_ns"].max()) * 1e-9,
        **{name: float(value) if steps > 1 else None for name, value in known.items()},
        data_wait_seconds=seconds["data_wait"],
        compute_seconds=seconds["compute"],
        sync_wait_seconds=seconds["sync_wait"],
        checkpoint_seconds=seconds["checkpoint"],
        tool_seconds=seconds["tool"],
        batch_latency=Histogram(found.data_wait.ravel()),
        call_latency=Histogram(found.reads[:, 3] - found.reads[:, 2]),
    )


_PARTS = ("data_wait", "compute", "sync_wait", "checkpoint", "tool")


def _three(values: NDArray[np.float64]) -> dict[str, float]:
    return {"mean": float(values.mean()), "min": float(values.min()), "max": float(values.max())}


def comparison(**changed: object) -> dict[str, Any]:
    """compare.json of three access methods on two layouts; one variant could not be run."""
    ratios = {
        ("posix", "shared file"): (1.0, 1.0, 1.0, "not judged"),
        ("posix", "file per sample"): (0.81, 0.77, 0.84, "slower"),
        ("mpi-independent", "shared file"): (1.02, 0.97, 1.06, "no difference shown"),
        ("mpi-independent", "file per sample"): (0.74, 0.70, 0.80, "slower"),
        ("mpi-collective", "shared file"): (1.62, 1.44, 1.81, "faster"),
    }
    variants = []
    for (api, layout), (ratio, low, high, verdict) in ratios.items():
        variants.append(
            {
                "label": f"api={api}, layout={layout}",
                "settings": {"api": api, "layout": layout},
                "rate_samples_per_second": 512.0 * ratio,
                "rate_bytes_per_second": 1.45e9 * ratio,
                "seconds": [1.0 / ratio + i / 100 for i in range(8)],
                "ratio": ratio,
                "ratio_low": low,
                "ratio_high": high,
                "p_adjusted": None if verdict == "not judged" else 0.012,
                "smallest_difference": 0.05,
                "verdict": verdict,
                "data_wait_share": 0.25,
                "compute_share": 0.6,
                "sync_wait_share": 0.1,
                "arrival_wait_share": 0.0,
                "checkpoint_share": 0.0,
                "tool_share": 0.05,
                "processing_share": 0.0,
                "utilization": 0.6,
                "checkpoint_seconds": 0.0,
                "decode_seconds": 0.0,
                "preprocess_seconds": 0.0,
                "resident_share": 0.0,
                "added": None,
                "api": api,
                "notes": [],
                "hints_asked": {},
                "storage_amplification": 1.0,
                "amplification": 1.0,
                "depth": 2.5,
                "batch_latency_seconds": {"p50": 0.0012, "p90": 0.002, "p99": 0.0081, "p999": 0.011, "max": 0.02},
                "hints_granted": {},
                "two_phase": "engaged" if api == "mpi-collective" else None,
                "order_hash": "0123456789abcdef",
            }
        )
    content = {
        "schema_version": 6,
        "kind": "compare",
        "name": "resnet50",
        "title": "ImageNet packed in one file that all ranks read",
        "overrides": [["epochs", "1"]],
        "caches": "cold",
        "ranks": 4,
        "nodes": 1,
        "environment": {
            "mpi_library": "MPICH 4.1.3",
            "cores_per_node": 8,
            "ranks_per_node": 4,
            "memory_per_node": 24 * 2**30,
            "whole_memory_per_node": 24 * 2**30,
            "load_average": 0.25,
            "mpi_io": "ROMIO",
            "file_systems": [
                {"root": "data", "directory": "/scratch", "kind": "lustre", "options": "rw", "striping": ""}
            ],
            "details": {},
        },
        "what": "loop",
        "loop": "train main",
        "varied": [
            {"name": "api", "values": ["posix", "mpi-independent", "mpi-collective"]},
            {"name": "layout", "values": ["shared file", "file per sample"]},
        ],
        "reference": "api=posix, layout=shared file",
        "repetitions": 8,
        "variants": variants,
        "not_run": [
            {
                "label": "api=mpi-collective, layout=file per sample",
                "reason": "E512: mpi-collective needs a shared file",
            }
        ],
        "without_saves": True,
        "modelled": "",
        "answer": {
            "verdict": "use",
            "reasons": [],
            "use": "api=mpi-collective, layout=shared file",
            "against": "api=posix, layout=shared file",
            "ratio": 1.62,
            "ratio_low": 1.44,
            "ratio_high": 1.81,
            "tied": [],
            "ahead": [],
            "source": "unknown",
            "limits": [{"kind": "one_node_collective", "values": {"is_local": False}}],
            "advice": [],
        },
        "notes": ["Two-phase engaged: api=mpi-collective, layout=shared file."],
    }
    return {**content, **changed}


def write_comparison(directory: Path, **changed: object) -> None:
    """A directory with that compare.json."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "compare.json").write_text(json.dumps(comparison(**changed)))
