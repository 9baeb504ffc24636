"""The results of a comparison of saves or restores: the columns of rows.csv, and the content of compare.json."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

from dliosim.compare.checkpoint_pass import StallPass
from dliosim.compare.checkpoint_verdict import stall_verdict
from dliosim.compare.result import Outcome
from dliosim.measure.histogram import merge_histograms
from dliosim.report.compare.results import common_content, common_variant, pass_rows

#: Columns of rows.csv after block, position, variant and `counts`, and of the rows in compare.json.
STALL_FIGURES: Final[dict[str, Callable[[StallPass], Any]]] = {
    "stall_seconds": lambda one: one.stall,
    "until_complete_seconds": lambda one: one.completion_time,
    "bytes": lambda one: one.bytes,
    "bytes_per_second": lambda one: one.bytes_per_second,
    "bytes_moved": lambda one: one.bytes_moved,
    "files": lambda one: one.files,
    "calls": lambda one: one.calls,
    "opens": lambda one: one.opens,
    "call_seconds": lambda one: one.call,
    "send_seconds": lambda one: one.send,
    "open_seconds": lambda one: one.open_close,
    "view_seconds": lambda one: one.view,
    "file_sync_seconds": lambda one: one.file_sync,
    "commit_seconds": lambda one: one.commit,
    "manifest_seconds": lambda one: one.manifest,
    "directory_sync_seconds": lambda one: one.directory_sync,
    "rename_seconds": lambda one: one.rename,
    "serialize_seconds": lambda one: one.serialize,
    "plan_seconds": lambda one: one.plan,
    "wait_seconds": lambda one: one.wait,
    "stage_seconds": lambda one: one.stage,
    "flush_seconds": lambda one: one.flush,
    "drain_seconds": lambda one: one.drain,
    "partner_seconds": lambda one: one.partner,
    "content_seconds": lambda one: one.content,
    "resident_share": lambda one: one.resident_share,
    "call_latency_p50_seconds": lambda one: one.latency.quantile(0.5) * 1e-9,
    "call_latency_p99_seconds": lambda one: one.latency.quantile(0.99) * 1e-9,
    "call_latency_max_seconds": lambda one: one.latency.max_ns * 1e-9,
}

#: Figures with a median over passes for each variant.
_MEDIANS: Final = tuple(name for name in STALL_FIGURES if name.endswith("_seconds") and not name.startswith("call_lat"))


def stall_content(outcome: Outcome[StallPass]) -> dict[str, Any]:
    """Return the content of compare.json for saves or restores: plain values, None where there is no figure."""
    what, _, checkpoint = outcome.what.partition(" ")
    variants = [_variant(outcome, number) for number in range(len(outcome.measured))]
    return common_content(outcome, {"what": what, "checkpoint": checkpoint}, variants, stall_verdict(outcome))


def _variant(outcome: Outcome[StallPass], number: int) -> dict[str, Any]:
    one = outcome.measured[number]
    latency = merge_histograms(each.latency for each in one.block_passes).quantiles()
    return common_variant(outcome, number) | {
        "seconds": [each.stall for each in one.block_passes],
        **{name: one.median(STALL_FIGURES[name]) for name in _MEDIANS},
        "bytes": one.block_passes[0].bytes,
        "files": one.block_passes[0].files,
        "calls": one.block_passes[0].calls,
        "rate_bytes_per_second": one.median(lambda each: each.bytes_per_second),
        "call_latency_seconds": latency and asdict(latency),
        "passes": pass_rows(outcome, one, STALL_FIGURES),
    }
