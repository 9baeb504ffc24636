"""The answer of `dliosim plan` for scripts, as one line of JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from dliosim.model import Workload
from dliosim.plan.forecast.checkpoint_interval import Costs, best_interval, possible_interval
from dliosim.plan.forecast.forecast_types import Forecast
from dliosim.plan.forecast.interval_forecast import Risk, StateRisks
from dliosim.plan.forecast.needs import LoopNeeds, SaveNeeds, loop_needs, memory_left, save_needs
from dliosim.report.files.results import drop_nonfinite, interval_loss

PLAN_VERSION: Final = 1


def plan_json(
    workload: Workload,
    forecast: Forecast,
    memory: float,
    is_given: bool,
    mtbf: float | None = None,
    risks: Sequence[StateRisks] = (),
) -> str:
    """Return the answer of a plan as a line of JSON; keys in docs/answer.md.

    `memory` is that of a node, in bytes; `is_given`: by the user, else it is that of this machine. `risks` are those of
    a job that fails every `mtbf` seconds.
    """
    content = {
        "schema_version": PLAN_VERSION,
        "name": forecast.workload,
        "digest": forecast.digest,
        "ranks": forecast.ranks,
        "nodes": forecast.nodes,
        "scale": workload.scale,
        "memory": {
            "node_bytes": memory,
            "is_given": is_given,
            "ranks_bytes": forecast.node_bytes,
            "left_bytes": memory_left(forecast, memory),
        },
        "loops": [_loop(one, forecast.ranks) for one in loop_needs(workload, forecast, memory)],
        "saves": [_save(one) for one in save_needs(workload, forecast)],
        "storage": [asdict(one) for one in forecast.storage],
        "mtbf_seconds": mtbf,
        "intervals": [_interval(one, risk) for one in risks for risk in one.risks],
    }
    return json.dumps(drop_nonfinite(content), allow_nan=False) + "\n"


def _loop(needs: LoopNeeds, ranks: int) -> dict[str, Any]:
    demand = needs.demand
    mean, reading = (demand.needs, demand.rate) if demand else (None, None)
    return {
        "loop": needs.loop.name,
        "goal": demand and demand.goal,
        "needs_bytes_per_second": None if mean is None else mean * ranks,
        "reading_bytes_per_second": None if reading is None else reading * ranks,
        "epoch_bytes": needs.epoch_bytes,
        "is_estimate": needs.estimated,
        "epochs": needs.epochs,
        "node_epoch_bytes": needs.node_bytes,
        "node_bytes": needs.data_bytes,
        "memory_share": needs.memory_share,
    }


def _save(needs: SaveNeeds) -> dict[str, Any]:
    return {
        "checkpoint": needs.state.checkpoint,
        "saves": needs.state.saves,
        "bytes": needs.state.bytes,
        "is_part": bool(needs.state.part_of),
        "in_background": needs.background,
        "interval_seconds": needs.interval,
        "needs_bytes_per_second": needs.rate,
    }


def _interval(one: StateRisks, risk: Risk) -> dict[str, Any]:
    """Return the interval with the least loss at one bandwidth, and what the pattern's own intervals lose."""
    costs = risk.costs
    return {
        "checkpoint": one.state.checkpoint,
        "bandwidth": risk.bandwidth,
        "stall_seconds": costs.stall if one.knows_stall else None,
        "flush_seconds": costs.flush,
        "restart_seconds": costs.restart,
        "needs_bytes_per_second": one.needed,
        "best": _loss(best_interval(costs), costs, one.knows_stall),
        "own": [_loss(possible_interval(time, costs), costs, one.knows_stall) for _, time in one.own],
    }


def _loss(interval: float, costs: Costs, knows_stall: bool) -> dict[str, float | None]:
    """Return an interval and what is lost with it; None for saving where the stall is not known."""
    return interval_loss(interval, costs) | ({} if knows_stall else {"saving": None})
