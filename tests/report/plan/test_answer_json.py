"""The answer of `dliosim plan` for scripts: the same figures as its first lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dliosim.language.compile import compile_pattern
from dliosim.model import Job
from dliosim.plan.forecast.forecast import forecast
from dliosim.plan.forecast.interval_forecast import FailureModel, forecast_risks
from dliosim.report.plan.answer_lines import plan_json

PATTERNS = Path(__file__).parents[3] / "patterns"


def answer(name: str, failures: FailureModel | None = None, **overrides: str) -> Any:
    """The answer for 64 ranks on 8 nodes of 25 GB."""
    workload = compile_pattern(PATTERNS / f"{name}.dlio", list(overrides.items()), Job(64, 8))[0]
    found = forecast(workload)
    risks = list(forecast_risks(workload, found, failures)) if failures else []
    text = plan_json(workload, found, 25e9, True, failures and failures.mtbf, risks)
    assert text.count("\n") == 1
    return json.loads(text)


def test_needs_memory_and_saves_are_those_of_the_first_lines() -> None:
    found = answer("cosmoflow", scale="1", files="1024")
    assert (found["name"], found["ranks"], found["nodes"], found["scale"]) == ("cosmoflow", 64, 8, 1)
    memory, (loop,), (save,) = found["memory"], found["loops"], found["saves"]
    assert (memory["node_bytes"], memory["is_given"]) == (25e9, True)
    assert memory["left_bytes"] == memory["node_bytes"] - memory["ranks_bytes"]
    assert (loop["loop"], loop["goal"], loop["epochs"]) == ("train", 0.7, 5)
    assert loop["needs_bytes_per_second"] == pytest.approx(36.209e9, rel=1e-3)
    assert loop["node_epoch_bytes"] == pytest.approx(loop["epoch_bytes"] / 8)
    assert loop["memory_share"] == pytest.approx(1 - (7 / 8) ** 4)
    assert (save["checkpoint"], save["bytes"], save["interval_seconds"]) == ("model", 100_000_000, 0.112)
    assert save["needs_bytes_per_second"] == pytest.approx(100e6 / (0.112 * 0.05 / 0.95))
    assert (found["mtbf_seconds"], found["intervals"]) == (None, [])
    scaled = answer("cosmoflow")
    assert (scaled["scale"], scaled["saves"][0]["needs_bytes_per_second"]) == (800, None)


def test_the_best_intervals_are_there_where_jobs_fail() -> None:
    found = answer("llama3_8b", FailureModel(14_400.0, save_time=30.0), scale="1")
    (one,) = found["intervals"]
    assert (found["mtbf_seconds"], one["checkpoint"], one["stall_seconds"]) == (14_400.0, "state", 30.0)
    assert one["best"]["interval_seconds"] == pytest.approx(910, rel=0.01) and 0 < one["best"]["total"] < 0.1
    assert found["loops"] == []


def test_files_next_to_those_with_samples_are_counted_by_themselves() -> None:
    first, second, _ = answer("cosmoflow")["storage"]
    assert (first["kind"], first["files"]) == ("dataset", 1024)
    assert (second["kind"], second["name"], second["files"]) == ("sidecar", "universe.index", 1024)
    assert 8 * 1024 <= second["bytes"] <= 16 * 1024


def test_what_nothing_says_about_a_copy_to_buffers_is_null_and_an_own_interval_is_no_shorter_than_a_flush() -> None:
    risk = FailureModel(21_600.0, bandwidth=61.8e6)
    (one,) = answer("checkpoint_async", risk, scale="1")["intervals"]
    assert (one["stall_seconds"], one["best"]["saving"]) == (None, None)
    (own,) = one["own"]
    assert own["interval_seconds"] == one["flush_seconds"]
    assert own["total"] >= one["best"]["total"]
