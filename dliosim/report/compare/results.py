"""The results of a comparison as files: rows.csv with every pass, and compare.json, which is written last."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import dliosim
from dliosim.compare.loop_pass import LoopPass
from dliosim.compare.loop_verdict import loop_verdict
from dliosim.compare.result import Outcome, P, VariantResult
from dliosim.report.results import COMPARE, drop_nonfinite, write_atomic

SCHEMA_VERSION: Final = 1
ROWS: Final = "rows.csv"

#: Columns of rows.csv after block, position, variant and `counts`, and of the rows in compare.json.
ROW_FIGURES: Final[dict[str, Callable[[LoopPass], Any]]] = {
    "seconds": lambda one: one.seconds,
    "samples": lambda one: one.samples,
    "bytes": lambda one: one.bytes,
    "samples_per_second": lambda one: one.samples_per_second,
    "bytes_per_second": lambda one: one.bytes_per_second,
    "bytes_moved": lambda one: one.bytes_moved,
    "calls": lambda one: one.calls,
    "opens": lambda one: one.opens,
    "data_wait_seconds": lambda one: one.data_wait,
    "compute_seconds": lambda one: one.compute,
    "sync_wait_seconds": lambda one: one.sync_wait,
    "arrival_wait_seconds": lambda one: one.arrival_wait,
    "checkpoint_seconds": lambda one: one.checkpoint,
    "tool_seconds": lambda one: one.tool,
    "io_busy_seconds": lambda one: one.io_busy,
    "open_seconds": lambda one: one.open_close,
    "view_seconds": lambda one: one.view,
    "utilization": lambda one: one.utilization,
    "amplification": lambda one: one.amplification,
    "storage_amplification": lambda one: one.storage_amplification,
    "depth": lambda one: one.depth,
    "resident_share": lambda one: one.resident_share,
    "two_phase": lambda one: one.two_phase or None,
    "batch_latency_p50_seconds": lambda one: one.latency.quantile(0.5) * 1e-9,
    "batch_latency_p90_seconds": lambda one: one.latency.quantile(0.9) * 1e-9,
    "batch_latency_p99_seconds": lambda one: one.latency.quantile(0.99) * 1e-9,
    "batch_latency_p999_seconds": lambda one: one.latency.quantile(0.999) * 1e-9,
    "batch_latency_max_seconds": lambda one: one.latency.max_ns * 1e-9,
    "order_hash": lambda one: f"{one.order_hash:016x}",
    "extent_hash": lambda one: f"{one.extent_hash:016x}",
    "decode_seconds": lambda one: one.decode,
    "preprocess_seconds": lambda one: one.preprocess,
    "processing_seconds": lambda one: one.processing,
    "core_wait_share": lambda one: one.core_wait_share,
}


def loop_content(outcome: Outcome[LoopPass]) -> dict[str, Any]:
    """Return the content of compare.json for loops: plain values, None for no figure; passes in the order of blocks."""
    variants = [_variant(outcome, number) for number in range(len(outcome.measured))]
    return common_content(outcome, {"what": "loop", "loop": outcome.what}, variants, loop_verdict(outcome))


def common_content(
    outcome: Outcome[P], what: Mapping[str, str], variants: Sequence[Mapping[str, Any]], said: Sequence[str]
) -> dict[str, Any]:
    """Return the common content of every compare.json; `what` names the target, `said` is the verdict."""
    content = {
        "schema_version": SCHEMA_VERSION,
        "kind": "compare",
        "dliosim_version": dliosim.__version__,
        "name": outcome.name,
        "title": outcome.title,
        "pattern": outcome.pattern,
        "overrides": [list(pair) for pair in outcome.overrides],
        "arguments": list(outcome.arguments),
        "environment": asdict(outcome.environment) | {"details": dict(outcome.environment.details)},
        "ranks": outcome.ranks,
        "nodes": outcome.nodes,
        "started": outcome.started,
        "seconds": outcome.total_seconds,
        **what,
        "varied": [{"name": one.name, "values": list(one.values)} for one in outcome.varied],
        "reference": outcome.measured[0].label,
        "repetitions": outcome.repetitions,
        "seed": outcome.seed,
        "caches": outcome.caches,
        "variants": list(variants),
        "not_run": [asdict(one) for one in outcome.not_run],
        "verdict": list(said),
    }
    return {name: drop_nonfinite(value) for name, value in content.items()}


def common_variant(outcome: Outcome[P], number: int) -> dict[str, Any]:
    """Return the common content of a variant: its settings, and its comparison with the first."""
    one, against = outcome.measured[number], outcome.comparison_of(number)
    return {
        "label": one.label,
        "settings": dict(one.values),
        "added": one.added or None,
        "digest": one.digest,
        "api": one.api,
        "notes": list(one.notes),
        "ratio": against.ratio if against else 1.0,
        "ratio_low": against.low if against else None,
        "ratio_high": against.high if against else None,
        "p_adjusted": against.p_adjusted if against else None,
        "smallest_difference": against.smallest - 1 if against and against.smallest else None,
        "verdict": against.verdict if against else "reference",
        "resident_share": one.median(lambda each: each.resident_share),
        "striping": one.striping or None,
        "hints_asked": dict(one.hints_asked),
        "hints_granted": dict(one.hints_granted),
    }


def pass_rows(
    outcome: Outcome[P], one: VariantResult[P], figures: Mapping[str, Callable[[P], Any]]
) -> list[dict[str, Any]]:
    """Return all passes of a variant, the warm-up first."""
    return [
        {"block": each.block, "position": each.position} | {name: figure(each) for name, figure in figures.items()}
        for each in one.passes
    ]


def format_rows(passes: Sequence[tuple[str, Sequence[P]]], figures: Mapping[str, Callable[[P], Any]]) -> str:
    """Return the content of rows.csv: a row for every pass, warm-ups too, in the order in which they ran.

    `passes` has the label of each variant with its passes, also of one that failed later.
    """
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["block", "position", "variant", "counts", *figures])
    labelled = [(each, label) for label, those in passes for each in those]
    for each, label in sorted(labelled, key=lambda pair: pair[0].position):
        values = (figure(each) for figure in figures.values())
        shown = ["" if value is None else repr(value) if isinstance(value, float) else value for value in values]
        table.writerow([each.block, each.position, label, int(each.block > 0), *shown])
    return text.getvalue()


def write_rows(
    directory: Path, passes: Sequence[tuple[str, Sequence[P]]], figures: Mapping[str, Callable[[P], Any]]
) -> None:
    """Write rows.csv with the passes so far: they remain if a comparison is stopped."""
    write_atomic(directory / ROWS, format_rows(passes, figures).encode())


def write_comparison(
    directory: Path, outcome: Outcome[P], figures: Mapping[str, Callable[[P], Any]], content: Mapping[str, Any]
) -> None:
    """Write rows.csv, then compare.json, into an existing directory, each whole or not at all. Raises OSError."""
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    write_atomic(directory / ROWS, format_rows(outcome.passes, figures).encode())
    write_atomic(directory / COMPARE, text.encode())


def _variant(outcome: Outcome[LoopPass], number: int) -> dict[str, Any]:
    one = outcome.measured[number]
    latency = one.latency
    return common_variant(outcome, number) | {
        "rate_samples_per_second": one.median(lambda each: each.samples_per_second),
        "rate_bytes_per_second": one.median(lambda each: each.bytes_per_second),
        "seconds": [each.seconds for each in one.block_passes],
        "checkpoint_seconds": one.median(lambda each: each.checkpoint),
        **_shares(one),
        "amplification": one.median(lambda each: each.amplification),
        "storage_amplification": one.median(lambda each: each.storage_amplification),
        "depth": one.median(lambda each: each.depth),
        "batch_latency_seconds": latency and asdict(latency),
        "two_phase": one.two_phase or None,
        "order_hash": f"{one.passes[0].order_hash:016x}",
        "passes": pass_rows(outcome, one, ROW_FIGURES),
    }


def _shares(one: VariantResult[LoopPass]) -> dict[str, float]:
    return {
        "data_wait_share": one.share(lambda each: each.data_wait),
        "compute_share": one.share(lambda each: each.compute),
        "sync_wait_share": one.share(lambda each: each.sync_wait),
        "arrival_wait_share": one.share(lambda each: each.arrival_wait),
        "checkpoint_share": one.share(lambda each: each.checkpoint),
        "tool_share": one.share(lambda each: each.tool),
        "processing_share": one.share(lambda each: each.processing),
    }
