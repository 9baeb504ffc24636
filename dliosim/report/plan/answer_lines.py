"""The first lines that `dliosim plan` prints: what storage must deliver, and what fits in memory."""

from __future__ import annotations

from collections.abc import Iterator

from dliosim.model import Workload
from dliosim.plan.forecast.forecast_types import Forecast
from dliosim.plan.forecast.needs import SAVE_SHARE, LoopNeeds, SaveNeeds, loop_needs, save_needs
from dliosim.readable import count, percent, seconds, size
from dliosim.report.answer_lines import first_lines
from dliosim.report.phase_titles import shorten_name
from dliosim.report.plan.tables import show_figure

#: Shares of an epoch from which on memory has nearly all of it, and below which nearly nothing.
_ALL, _NONE = 0.99, 0.01


def plan_lines(workload: Workload, forecast: Forecast, memory: float, note: str = "") -> str:
    """Return the first lines of a plan, at most 8: a title, and a line for each question that it can answer.

    `memory` is that of a node, in bytes; `note` ends the title. Of loops after the first only the rate is there.
    """
    loops, saves = list(loop_needs(workload, forecast, memory)), list(save_needs(workload, forecast))
    left = max(memory - forecast.node_bytes, 0.0)
    rows = list(_loop_rows(loops[0], forecast.ranks, left)) if loops else []
    rows += [("ALSO", _rate(one, forecast.ranks)) for one in loops[1:2]]
    rows += [("SAVES", _save(one)) for one in saves]
    rows += [
        (
            phase.verb.upper(),
            f"{shorten_name(phase.name)}: {show_figure(phase.bytes.total, size, phase.bytes.estimated)} by all ranks",
        )
        for phase in forecast.phases
        if phase.verb == "restore" or (phase.verb == "prepare" and not loops)
    ]
    title = f"{forecast.workload}  {count(forecast.ranks, 'rank')} on {count(forecast.nodes, 'node')}{note}"
    return first_lines(title, rows)


def _loop_rows(needs: LoopNeeds, ranks: int, left: float) -> Iterator[tuple[str, str]]:
    yield "NEEDS", _rate(needs, ranks)
    yield from (("READING", text) for text in _reading_rates(needs, ranks))
    asked = show_figure(needs.epoch_bytes, size, needs.estimated)
    mean = show_figure(needs.epoch_bytes / ranks, size, needs.estimated)
    yield "DATA", f"{asked} an epoch by all ranks, {mean} a rank; {count(needs.epochs, 'epoch')}"
    yield "MEMORY", _memory(needs, left)


def _rate(needs: LoopNeeds, ranks: int) -> str:
    """Return the mean rate that a loop needs, of all ranks and of one."""
    name, demand = shorten_name(needs.loop.name), needs.demand
    if demand is None or demand.needs is None:
        return f"{name}: as fast as storage can, as it has no compute"
    whole, each = (f"{show_figure(rate, size, True)}/s" for rate in (demand.needs * ranks, demand.needs))
    return f"{name}: {whole} for {count(ranks, 'accelerator')} at {percent(demand.goal, 2)}, {each} each"


def _reading_rates(needs: LoopNeeds, ranks: int) -> Iterator[str]:
    """Yield the rate while steps wait, where nothing is read ahead of them."""
    loop, demand = needs.loop, needs.demand
    if demand is None or (loop.access.readers and loop.arrivals is None):
        return
    rate = f"{show_figure(demand.rate * ranks, size, True)}/s" if demand.rate else ""
    if loop.arrivals is not None:
        left = f"compute leaves {seconds(demand.budget, 2)} to read each"
        yield f"below {rate} requests pile up: {left}" if rate else "requests pile up with any storage"
    else:
        slow = "no storage is fast enough without `readers`"
        yield f"{rate} while steps wait, as no `readers` read ahead of them" if rate else slow


def _memory(needs: LoopNeeds, left: float) -> str:
    """Return how much of a node's data stays in its memory; the ranks leave `left` bytes of it."""
    data, share = f"{show_figure(needs.data_bytes, size, True)} a node", needs.memory_share
    room = f"ranks leave {size(float(f'{left:.1e}'), 2)}"
    if needs.loop.access.cache == "off":
        return "read past the page cache (`cache off`): every epoch comes from storage"
    if needs.epochs == 1:
        return f"{data}, read once: nothing comes from memory after a cold start"
    if share >= _ALL:
        return f"{data} fit in memory ({room}): later epochs read it"
    if share < _NONE:
        return f"{data}; {room} of memory: next to nothing stays in it"
    return f"{data}; {room} of memory: at most {percent(share, 2)} of an epoch"


def _save(needs: SaveNeeds) -> str:
    text = f"{shorten_name(needs.state.checkpoint)}: {size(needs.state.bytes)}"
    if needs.interval is None:
        at_end = needs.cadence is not None and needs.cadence.unit == "end"
        return f"{text} at the end" if at_end else f"{text} each; `--mtbf D` says the best interval"
    every = f"{text} every {seconds(needs.interval, 2)} of compute"
    if needs.rate is None:
        return f"{every}; to serialize them takes longer than that leaves"
    limit = "to end before the next" if needs.background else f"to take {percent(SAVE_SHARE, 1)} of the time"
    return f"{every}: {show_figure(needs.rate, size, True)}/s {limit}"
