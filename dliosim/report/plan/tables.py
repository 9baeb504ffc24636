"""The report of `dliosim plan`: amounts, what storage must deliver, memory and disk; and one rank's reads as CSV."""

from __future__ import annotations

import csv
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import TextIO

from dliosim.model import Loop, Workload
from dliosim.plan.forecast.forecast import loops_of
from dliosim.plan.forecast.forecast_types import Demand, Forecast, Listing, PhaseForecast, RankSpread
from dliosim.readable import ABSENT, count, number, seconds, size
from dliosim.report.plan.checkpoint_tables import state_tables
from dliosim.report.text_table import WIDTH, grid

#: Mark before figures that are not exact for every rank and epoch.
_ESTIMATED = "~"


def plan_report(workload: Workload, forecast: Forecast, note: str = "") -> str:
    """Return the whole forecast as text, at most 120 columns wide; `note` is a line below its title."""
    place = f"{count(forecast.ranks, 'rank')} on {count(forecast.nodes, 'node')}"
    title = f"{forecast.workload}: {workload.title}" if workload.title else forecast.workload
    head = f"{title}\n{place}, digest {forecast.digest}" + f"\n{note}" * bool(note)
    sections = [
        head,
        _amount_table(forecast),
        _rank_table(forecast),
        _demand_table(workload, forecast),
        state_tables(workload, forecast),
        _storage_table(forecast),
        _memory_text(forecast),
    ]
    if any(spread.estimated for phase in forecast.phases for spread in _spreads(phase)):
        sections.append(
            f"{_ESTIMATED} estimated: not all ranks or epochs planned, mean sizes, or the mean of epochs that differ"
        )
    return "\n\n".join(section for section in sections if section) + "\n"


def write_csv(stream: TextIO, listings: Iterable[Listing]) -> None:
    """Write one row a sample in the order of reading: step, sample, file, offset and length in bytes."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["step", "sample", "file", "offset", "length"])
    for listing in listings:
        step, sample, offset, length = (
            column.tolist() for column in (listing.step, listing.sample, listing.offset, listing.length)
        )
        writer.writerows(zip(step, sample, listing.file, offset, length, strict=True))


def _spreads(phase: PhaseForecast) -> tuple[RankSpread, ...]:
    return phase.samples, phase.bytes, phase.files, phase.opens, phase.calls


def _name(phase: PhaseForecast) -> str:
    name = phase.verb if phase.name == phase.verb else f"{phase.verb} {phase.name}"
    if phase.first_epoch is None:
        between = " " if phase.verb == "restore" else ", "
        return f"{name}{between}{phase.when}" if phase.when else name
    epochs = f"{phase.first_epoch}"
    if phase.last_epoch != phase.first_epoch:
        epochs += f" to {phase.last_epoch}"
    return f"{name}, epoch {epochs}"


def _mark_estimate(spread: RankSpread, value: float, shown: Callable[[float], str]) -> str:
    return (_ESTIMATED if spread.estimated else "") + shown(value)


def _count(value: float) -> str:
    return number(value) if value != int(value) else f"{int(value):,}".replace(",", " ")


def _amount_table(forecast: Forecast) -> str:
    rows = [
        [
            _name(phase),
            ("up to " if phase.at_most else "at least " if phase.at_least else "") + str(phase.times),
            _count(phase.steps) if phase.steps else ABSENT,
            _mark_estimate(phase.samples, phase.samples.total, _count) if phase.samples.total else ABSENT,
            _mark_estimate(phase.bytes, phase.bytes.total, size),
            _mark_estimate(phase.opens, phase.opens.total, _count),
            _mark_estimate(phase.calls, phase.calls.total, _count),
        ]
        for phase in forecast.phases
    ]
    return grid("all ranks, each time", ["", "times", "steps", "samples", "bytes", "opens", "calls"], rows)


def _rank_table(forecast: Forecast) -> str:
    rows, stages = [], any(phase.memory.staging for phase in forecast.phases)
    for phase in forecast.phases:
        row = [_name(phase)]
        for spread, shown in ((phase.bytes, size), (phase.calls, _count), (phase.opens, _count)):
            row += [_mark_estimate(spread, value, shown) for value in (spread.minimum, spread.mean, spread.maximum)]
        staging = [size(phase.memory.staging) if phase.memory.staging else ABSENT] if stages else []
        memory = [*staging, size(phase.memory.total)]
        rows.append([*row, _mark_estimate(phase.files, phase.files.maximum, _count), *memory])
    kinds = [f"{kind}\n{figure}" for kind in ("bytes", "calls", "opens") for figure in ("min", "mean", "max")]
    headings = ["", *kinds, "files\nmax", *(["of it\nstaging"] if stages else []), "memory"]
    return grid("one rank, each time", headings, rows, [3, 3, 3, len(headings) - 10])


def _demand_table(workload: Workload, forecast: Forecast) -> str:
    phases = [phase for phase in forecast.phases if phase.demand or phase.span_ratio or phase.amplification]
    if not phases:
        return ""
    processed = any(phase.demand and phase.demand.processing for phase in phases)
    rows = []
    for phase in phases:
        demand = phase.demand
        cells = [ABSENT] * (4 + processed)
        if demand is not None:
            times = [seconds(demand.processing)] * processed + [seconds(demand.budget) if demand.budget else "nothing"]
            rates = (f"{size(rate)}/s" if rate else ABSENT for rate in (demand.rank_rate, demand.total_rate))
            cells = [size(demand.step_bytes), *times, *rates]
        rows.append([_name(phase), *cells, number(phase.span_ratio), number(phase.amplification)])
    headings = [
        "",
        "bytes\na step",
        *["pre-\nprocess"] * processed,
        "within",
        "for each\nrank",
        "in total",
        "file span /\nbatch",
        "moved /\nasked",
    ]
    table = grid("what storage must deliver for a utilization of 90 % (requests: to keep up)", headings, rows)
    loops = {loop.name: loop for loop in loops_of(workload.verbs)}
    notes = dict.fromkeys(
        note for phase in phases if phase.demand for note in _storage_limits(loops[phase.name], phase.demand)
    )
    return "\n\n".join([table, *(textwrap.fill(note, WIDTH) for note in notes)])


def _storage_limits(loop: Loop, demand: Demand) -> Iterator[str]:
    """Yield where no storage is fast enough, why, and what would help; and what only a run shows."""
    readers = loop.access.readers
    if demand.rank_rate is None and loop.arrivals is not None:
        text = "`compute` and `preprocess` take" if demand.processing else "`compute` takes"
        yield f"{loop.name}: no storage keeps up with its requests: {text} all the time between two of them."
    elif demand.rank_rate is None:
        whom = f"{count(readers, 'reader')} " if readers else ""
        text = f"`preprocess` takes {seconds(demand.processing)} a step and leaves {whom}no time to read"
        more = f"`readers {demand.readers}` in the access method would leave some"
        yield f"{loop.name}: no storage makes it 90 % busy: {text}; {more}."
    if loop.decode and loop.access.through == "direct":
        less = "readers have that much less for reading" if readers else "less is left than what stands below `within`"
        yield f"{loop.name}: `decode on` takes time, too, and only a run tells how much: {less}."


def _storage_table(forecast: Forecast) -> str:
    rows = [
        [
            f"{item.kind.replace('dataset', 'data set')} {item.name}",
            item.root,
            (_ESTIMATED if item.estimated else "") + size(item.bytes * item.copies),
            _count(item.files * item.copies),
            str(item.copies),
        ]
        for item in forecast.storage
    ]
    title = "what is on storage at most (a new checkpoint is complete before an old one is deleted)"
    return grid(title, ["", "root", "bytes", "files", "copies"], rows) if rows else ""


def _memory_text(forecast: Forecast) -> str:
    rank, node = size(forecast.rank_bytes), size(forecast.node_bytes)
    text = f"memory: {rank} on the rank that needs most, {node} on the fullest node"
    if forecast.index_bytes:
        text += f",\n{size(forecast.index_bytes)} of it sums that place samples of varying size"
    return text
