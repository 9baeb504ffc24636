"""The answer of `dliosim plan`, as first lines and as JSON: what storage must deliver, and what fits in memory."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from dliosim.boundedjson import drop_nonfinite
from dliosim.model import Workload
from dliosim.plan.forecast.checkpoint_interval import LOSS, Costs, best_interval, compute_waste, possible_interval
from dliosim.plan.forecast.forecast import loops_of
from dliosim.plan.forecast.forecast_types import Forecast, Storage
from dliosim.plan.forecast.interval_forecast import Risk, StateRisks
from dliosim.plan.forecast.needs import (
    UNLIMITED,
    LoopNeeds,
    SaveNeeds,
    StageNeeds,
    StorageRates,
    loop_needs,
    memory_left,
    save_needs,
    stage_needs,
)
from dliosim.plan.forecast.rank_memory import NODE_BYTES
from dliosim.readable import count, long_time, number, percent, seconds, size, trim_zeros
from dliosim.report.files.results import copy_members
from dliosim.report.first_lines import first_lines, fit_rows, fit_title, name_forms
from dliosim.report.interval_table import interval_loss
from dliosim.report.plan.tables import show_figure
from dliosim.report.text_table import shorten_name

#: Shares of an epoch from which on memory has nearly all of it, and below which nearly nothing.
_ALL, _NONE = 0.99, 0.01

#: Bytes that calls move for each byte asked, from which on this is said.
_AMPLIFIED = 2.0

#: Bytes that no file system has.
_TOO_MUCH = 1e18


def plan_lines(
    workload: Workload,
    forecast: Forecast,
    memory: float,
    risks: Sequence[StateRisks] = (),
    notes: Sequence[str] = ("",),
    storage: StorageRates = UNLIMITED,
    loss: float = LOSS,
) -> str:
    """Return the first lines of a plan, at most 8: a title, and a line for each question that it can answer.

    With a bandwidth of `storage`, one more line has room for the time of saves. `memory` is a node's, in bytes; `risks`
    belong to a job that fails; `notes` are forms of the title's end after the nodes and their memory, the longest
    first; `loss` is the share of the time that saves may cost. Loops after the first only get their rate.
    """
    loops = list(loop_needs(workload, forecast, memory, storage))
    rows = list(_missing_memory(forecast, memory))
    if workload.scale > 1 and any(phase.verb not in ("save", "restore") for phase in forecast.phases):
        rows.append(("SCALE", f"scale={workload.scale} shrinks the published workload; -D scale=1 plans all of it"))
    of_loop = list(_loop_rows(loops[0], workload, memory_left(forecast, memory), storage)) if loops else []
    copied = stage_needs(workload, forecast, memory, storage)
    rows += of_loop[:1] + [("STAGE" if one.fits else "ROOM", _stage(one, storage)) for one in copied] + of_loop[1:]
    rows += [("ALSO", _rate(one, forecast.ranks, workload.accelerator)) for one in loops[1:2]]
    unread = [shorten_name(one.name) for one in loops_of(workload.verbs) if not one.dataset]
    rows += [("ALSO" if rows else "NEEDS", f"{name}: nothing: it does not read") for name in unread[:1]]
    hint = "" if risks else "; `--mtbf D` gives the best interval"
    rows += [("HOLDS", _holding(one)) for one in forecast.storage if one.bytes * one.copies > _TOO_MUCH][:1]
    saves = save_needs(workload, forecast, loss)
    rows += [("SAVES", _save(one, hint, workload.scale, storage.bandwidth, loss)) for one in saves]
    rows += [("INTERVAL", _best_intervals(one)) for one in risks]
    rows += [("NEEDS", _describe_need(one, loss)) for one in risks if one.needed or one.flush_rate]
    for phase in forecast.phases:
        if phase.verb == "restore" or (phase.verb in ("prepare", "convert") and not loops):
            whole = show_figure(phase.bytes.total, size, phase.bytes.estimated)
            times = f", {phase.times} times" * (phase.times > 1)
            rows.append((phase.verb.upper(), f"{shorten_name(phase.name)}: {whole} by all ranks{times}"))
    job = f"{count(forecast.ranks, 'rank')} on {count(forecast.nodes, 'node')} of {trim_zeros(size(memory, 3))}"
    title = fit_title(name_forms(forecast.workload), [f"{job}{note}" for note in notes])
    return first_lines(*fit_rows(title, rows, large=["SAVES"] if storage.bandwidth else []))


def _missing_memory(forecast: Forecast, memory: float) -> Iterator[tuple[str, str]]:
    """Yield that a node's memory has no room for what its ranks need, with the phase that needs most of it."""
    if not forecast.phases or not 0 < memory < forecast.node_bytes:
        return
    most = max(forecast.phases, key=lambda phase: phase.node_memory)
    what = most.verb if most.name == most.verb else f"{most.verb} {shorten_name(most.name)}"
    buffers = " (buffers of background saves)" if most.memory.staging > most.memory.total / 2 else ""
    once = NODE_BYTES + forecast.index_bytes
    room, others = memory - once - forecast.rank_bytes, forecast.node_bytes - once - forecast.rank_bytes
    # Next to the rank that needs most, the others of the fullest node stand for those of any node.
    each = max(others, 1) / max(-(-forecast.ranks // forecast.nodes) - 1, 1)
    nodes = -(-forecast.ranks // (1 + int(max(room, 0) // each)))
    cure = f"`--nodes {nodes}` has room" if room >= 0 else "one rank alone needs more"
    needed, there = _two_digits(forecast.node_bytes), trim_zeros(size(memory, 3))
    yield (
        "ROOM",
        f"none: {what} needs {needed} per node{buffers}, a node has {there}; {cure}, or give a node's `--memory`",
    )


def _loop_rows(needs: LoopNeeds, workload: Workload, left: float, storage: StorageRates) -> Iterator[tuple[str, str]]:
    ranks = workload.job.ranks
    yield "NEEDS", _rate(needs, ranks, workload.accelerator)
    yield from (("REACH", line) for line in _reach(needs, storage))
    demand = needs.demand
    if demand and demand.goal and not needs.loop.access.readers:
        rate = "more than any storage has"
        if demand.rate is not None:
            rate = f"{show_figure(demand.rate * ranks, size, True)}/s"
        yield "READING", f"{rate} while steps wait, because no `readers` read ahead"
    asked = show_figure(needs.epoch_bytes, size, needs.estimated)
    mean = show_figure(needs.epoch_bytes / ranks, size, needs.estimated)
    one, several = ("pass", "passes") if needs.loop.arrivals else ("epoch", "epochs")
    more = needs.amplification or 0.0
    moved = f"; calls move {number(more, 2)} times as many bytes" if more > _AMPLIFIED else ""
    yield "DATA", f"{asked} per {one} for all ranks, {mean} per rank; {count(needs.epochs, one, several)}{moved}"
    yield "MEMORY", _memory(needs, left, one)


def _rate(needs: LoopNeeds, ranks: int, accelerator: str) -> str:
    """Return the mean rate that a loop needs, of all ranks and of one; for requests the rate while one is read."""
    name, demand = shorten_name(needs.loop.name), needs.demand
    if demand is None:
        return f"{name}: as fast as storage can, because it has no compute"
    if demand.needs is None or demand.goal is None:
        if demand.rate is None:
            return f"{name}: no storage keeps up with its requests, because compute takes all the time"
        rate = f"{show_figure(demand.rate * ranks, size, True)}/s"
        return f"{name}: {rate} to keep up with requests, {seconds(demand.budget, 2)} to read each"
    whole, each = (f"{show_figure(rate, size, True)}/s" for rate in (demand.needs * ranks, demand.needs))
    kind = f" ({shorten_name(accelerator)})" * bool(accelerator)
    opens_rate = needs.opens_per_second or 0.0
    opens = f"; ~{_group(float(f'{opens_rate:.1e}'))} opens/s" if opens_rate >= 1 else ""
    return f"{name}: {whole} for {count(ranks, 'accelerator')}{kind} at {percent(demand.goal, 2)}, {each} each{opens}"


def _stage(needs: StageNeeds, storage: StorageRates) -> str:
    """Return what a node copies, and from which epoch on that pays, or what to type to learn it."""
    name, root = shorten_name(needs.verb.dataset), needs.verb.root
    each = f"{show_figure(needs.node_bytes, size, needs.estimated)} per node"
    if not needs.fits:
        share = "; `holds own share` copies less" if needs.verb.holds == "all" else ""
        return f"none: the copy of {name} is {each}, root {root} has {size(storage.local_space or 0, 3)}{share}"
    pays = needs.pays_from
    if pays is None or needs.copy_seconds is None:
        return f"{name} to {root}: {each}; `--bandwidth B` and `--local B` say from which epoch on that pays"
    text = f"{name} to {root}: {each} in {seconds(needs.copy_seconds, 2)}"
    if pays == math.inf:
        return f"{text}; never pays: an epoch is no faster from the copies"
    if needs.verb.copy == "before":
        return f"{text}; pays from epoch {pays:.0f} on"
    return f"{text}; epoch {pays + 1:.0f} may be the first to read the copies"


def _reach(needs: LoopNeeds, storage: StorageRates) -> Iterator[str]:
    """Yield the most that a loop reaches with the rates of a storage, and the rate that limits it."""
    if needs.reach is None or needs.demand is None:
        return
    name, most = shorten_name(needs.loop.name), percent(needs.reach.utilization, 2)
    rates = {"bandwidth": f"{size(storage.bandwidth, 2)}/s"} if storage.bandwidth else {}
    rates |= {"opens": f"{_group(storage.opens)} opens/s"} if storage.opens else {}
    given = " and ".join(rates.values())
    if needs.demand.goal is None:
        yield f"{name}: {given} keep up with {'all' if needs.reach.utilization == 1 else f'at most {most} of'} requests"
    elif needs.reach.bound == "compute":
        yield f"{name}: {given} do not limit the accelerators"
    else:
        goal = f"goal {percent(needs.demand.goal, 2)}"
        yield f"{name}: accelerators busy {most} at most ({goal}), limited by {rates[needs.reach.bound]}"


def _memory(needs: LoopNeeds, left: float, one: str) -> str:
    """Return what an epoch (`one`) is on a node whose ranks leave `left` bytes, and how much of it may stay there."""
    data, share = f"an {one}" if one == "epoch" else f"a {one}", needs.memory_share
    each = f"{show_figure(needs.node_bytes, size, True)} per node"
    if needs.loop.access.cache == "off":
        return f"bypasses the page cache (`cache off`): every {one} comes from storage"
    if needs.loop.cold_within is not None:
        return f"every {one} comes from storage: each begins with a cold page cache, {each}"
    if needs.epochs == 1:
        return f"{each}, read once: nothing comes from memory after a cold start"
    later = f"{one} 2" if needs.epochs == 2 else f"{one}{'e' * (one == 'pass')}s 2 to {needs.epochs}"
    if share >= _ALL:
        stays = f"all of {later} may come from memory, not from storage"
    elif share < _NONE:
        stays = f"almost nothing of {later} comes from memory"
    elif share * needs.data_bytes < _ALL * left:
        stays = f"at most {percent(share, 2)} of {one} {needs.epochs} can be in memory: the rest is new to the node"
    else:
        stays = f"at most {percent(share, 2)} of {later} can be in memory"
    return f"{data} reads {each}; the page cache has room for {_two_digits(left)}: {stays}"


def _holding(one: Storage) -> str:
    """Return what is stored of data that nothing can hold, and what to type."""
    several = one.copies > 2
    whole = f"{f'{one.copies} copies, ' * several}{show_figure(one.bytes * one.copies, size, one.estimated)}"
    return f"{shorten_name(one.name)}: {whole}: too much to store{f' (-D {one.name}.keep=1)' * several}"


def _group(value: float) -> str:
    """Return a number as it is typed, with `_` between thousands, so that no line breaks it."""
    return f"{value:_.0f}" if value >= 10 else number(value, 2)


def _two_digits(value: float) -> str:
    """Return bytes with two digits."""
    return size(float(f"{value:.1e}"), 2)


def _describe_need(one: StateRisks, loss: float) -> str:
    needs = []
    if one.needed:
        rate = f"{show_figure(_round_up(one.needed), size, True)}/s"
        needs.append(f"{rate} limits the loss to saves and failures to {100 * loss:g} %")
    if one.flush_rate:
        needs.append(f"{show_figure(_round_up(one.flush_rate), size, True)}/s ends a flush before the next save")
    return f"{shorten_name(one.state.checkpoint)}: {'; '.join(needs)}"


def _round_up(value: float) -> float:
    """Return a number of two digits that is not below a value."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1) if value > 0 else 1.0
    return math.ceil(value / unit - 1e-9) * unit


def _best_intervals(one: StateRisks) -> str:
    """Return how often it is best to save, for up to three bandwidths, and what is lost with it."""
    name = shorten_name(one.state.checkpoint)
    if one.part_of:
        name = f"{name}, all {size(one.state.bytes)} of {count(one.ranks, 'rank')}"
    if not one.knows_stall:
        flushes = ", ".join(f"{long_time(risk.costs.flush, 2)}{_name_bandwidth(risk)}" for risk in one.risks[:3])
        return f"{name}: unknown, because the time of the copy is: give `--save-time`. A flush takes {flushes}"
    return f"{name}: {', '.join(map(_best, one.risks[:3]))}"


def _best(risk: Risk) -> str:
    best = best_interval(risk.costs)
    return f"{long_time(best, 2)} ({percent(compute_waste(best, risk.costs).total, 2)} lost){_name_bandwidth(risk)}"


def _name_bandwidth(risk: Risk) -> str:
    return f" at {size(risk.bandwidth, 1)}/s" if risk.bandwidth else ""


def _save(needs: SaveNeeds, hint: str, scale: int, bandwidth: float | None, loss: float) -> str:
    text, part = f"{shorten_name(needs.state.checkpoint)}: {size(needs.state.bytes)}", needs.state.part_of
    if needs.interval is None:
        text += " at the end" if needs.cadence and needs.cadence.unit == "end" else " each"
        return f"{text}: only {part}" if part else f"{text}{hint}"
    every = f"{text} every {seconds(needs.interval, 2)} of compute"
    if scale > 1:
        return f"{every}; -D scale=1 gives the rate"
    if needs.rate is None:
        return f"{every}; serializing alone takes longer"
    limit = "to finish in that time" if needs.background else f"for {100 * loss:g} % of the time"
    taken = f"; {seconds(needs.state.bytes / bandwidth, 2)} at {size(bandwidth, 2)}/s" if bandwidth else ""
    return f"{every}: {show_figure(needs.rate, size, True)}/s {limit}{taken}"


PLAN_VERSION: Final = 1


def plan_json(
    workload: Workload,
    forecast: Forecast,
    memory: float,
    is_given: bool,
    mtbf: float | None = None,
    risks: Sequence[StateRisks] = (),
    storage: StorageRates = UNLIMITED,
    loss: float = LOSS,
) -> str:
    """Return the answer of a plan as a line of JSON; keys in docs/answer.md.

    `memory` is a node's, in bytes; `is_given` if the user named it, else it is this machine's. `risks` belong to a job
    that fails every `mtbf` seconds.
    """
    content = {
        "schema_version": PLAN_VERSION,
        "name": forecast.workload,
        **copy_members(forecast, "digest", "ranks", "nodes"),
        "scale": workload.scale,
        "memory": {
            "node_bytes": memory,
            "is_given": is_given,
            "ranks_bytes": forecast.node_bytes,
            "left_bytes": memory_left(forecast, memory),
        },
        "storage_rates": {
            "bytes_per_second": storage.bandwidth,
            "opens_per_second": storage.opens,
            "local_bytes_per_second": storage.local,
            "local_bytes": storage.local_space,
        },
        "loops": [_loop(one, forecast.ranks) for one in loop_needs(workload, forecast, memory, storage)],
        "stages": [_stage_content(one) for one in stage_needs(workload, forecast, memory, storage)],
        "loss": loss,
        "saves": [_save_content(one) for one in save_needs(workload, forecast, loss)],
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
        "needs_opens_per_second": needs.opens_per_second,
        "needs_calls_per_second": needs.calls_per_second,
        "reached_at_most": needs.reach and needs.reach.utilization,
        "limited_by": needs.reach and needs.reach.bound,
        "epoch_bytes": needs.epoch_bytes,
        "is_estimate": needs.estimated,
        "epochs": needs.epochs,
        "node_epoch_bytes": needs.node_bytes,
        "node_bytes": needs.data_bytes,
        "memory_share": needs.memory_share,
    }


def _stage_content(needs: StageNeeds) -> dict[str, Any]:
    return {
        "dataset": needs.verb.dataset,
        "root": needs.verb.root,
        "node_bytes": needs.node_bytes,
        "is_estimate": needs.estimated,
        **copy_members(needs, "fits", "copy_seconds"),
        "shared_epoch_seconds": needs.shared_seconds,
        "local_epoch_seconds": needs.local_seconds,
        "pays_from_epoch": needs.pays_from,
    }


def _save_content(needs: SaveNeeds) -> dict[str, Any]:
    return {
        **copy_members(needs.state, "checkpoint", "saves", "bytes"),
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
        "flush_bytes_per_second": one.flush_rate,
        "best": _loss(best_interval(costs), costs, one.knows_stall),
        "own": [_loss(possible_interval(time, costs), costs, one.knows_stall) for _, time in one.own],
    }


def _loss(interval: float, costs: Costs, knows_stall: bool) -> dict[str, float | None]:
    """Return an interval and what is lost with it; None for saving where the stall is not known."""
    return interval_loss(interval, costs) | ({} if knows_stall else {"saving": None})
