"""What `dliosim plan` prints: amounts, what storage must deliver, memory and disk; and one rank's reads as CSV."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from typing import TextIO

from dliosim.model import Workload
from dliosim.plan.figures import Forecast, Listing, PhaseForecast, Spread
from dliosim.readable import ABSENT, count, number, seconds, size
from dliosim.report.grid import grid
from dliosim.report.state_tables import state_tables

#: Stands before figures that do not hold exactly for every rank and epoch.
_ESTIMATED = "~"

#: Rows of CSV written at a time.
_ROWS = 65536


def plan_report(workload: Workload, forecast: Forecast) -> str:
    """The whole forecast as text, at most 120 columns wide."""
    place = f"{count(forecast.ranks, 'rank')} on {count(forecast.nodes, 'node')}"
    title = f"{forecast.workload}: {workload.title}" if workload.title else forecast.workload
    head = f"{title}\n{place}, digest {forecast.digest}"
    sections = [
        head,
        _amounts(forecast),
        _of_a_rank(forecast),
        _demands(forecast),
        state_tables(workload, forecast),
        _storage(forecast),
        _memory(forecast),
    ]
    if any(spread.estimated for phase in forecast.phases for spread in _spreads(phase)):
        sections.append(
            f"{_ESTIMATED} estimated: not all ranks or epochs planned, mean sizes, or the mean of epochs that differ"
        )
    return "\n\n".join(section for section in sections if section) + "\n"


def write_csv(stream: TextIO, listings: Iterable[Listing]) -> None:
    """One row a sample in the order of reading: step, sample, file, offset and length in bytes."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["step", "sample", "file", "offset", "length"])
    for listing in listings:
        for first in range(0, len(listing.file), _ROWS):
            some = slice(first, first + _ROWS)
            columns = (listing.step, listing.sample, listing.offset, listing.length)
            step, sample, offset, length = (column[some].tolist() for column in columns)
            writer.writerows(zip(step, sample, listing.file[some], offset, length, strict=True))


def _spreads(phase: PhaseForecast) -> tuple[Spread, ...]:
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


def _marked(spread: Spread, value: float, shown: Callable[[float], str]) -> str:
    return (_ESTIMATED if spread.estimated else "") + shown(value)


def _count(value: float) -> str:
    return number(value) if value != int(value) else f"{int(value):,}".replace(",", " ")


def _amounts(forecast: Forecast) -> str:
    rows = [
        [
            _name(phase),
            ("up to " if phase.at_most else "at least " if phase.at_least else "") + str(phase.times),
            _count(phase.steps) if phase.steps else ABSENT,
            _marked(phase.samples, phase.samples.total, _count) if phase.samples.total else ABSENT,
            _marked(phase.bytes, phase.bytes.total, size),
            _marked(phase.opens, phase.opens.total, _count),
            _marked(phase.calls, phase.calls.total, _count),
        ]
        for phase in forecast.phases
    ]
    return grid("all ranks, each time", ["", "times", "steps", "samples", "bytes", "opens", "calls"], rows)


def _of_a_rank(forecast: Forecast) -> str:
    rows, stages = [], any(phase.memory.staging for phase in forecast.phases)
    for phase in forecast.phases:
        row = [_name(phase)]
        for spread, shown in ((phase.bytes, size), (phase.calls, _count), (phase.opens, _count)):
            row += [_marked(spread, value, shown) for value in (spread.minimum, spread.mean, spread.maximum)]
        staging = [size(phase.memory.staging) if phase.memory.staging else ABSENT] if stages else []
        memory = [*staging, size(phase.memory.total)]
        rows.append([*row, _marked(phase.files, phase.files.maximum, _count), *memory])
    kinds = [f"{kind}\n{figure}" for kind in ("bytes", "calls", "opens") for figure in ("min", "mean", "max")]
    headings = ["", *kinds, "files\nmax", *(["of it\nstaging"] if stages else []), "memory"]
    return grid("one rank, each time", headings, rows, [3, 3, 3, len(headings) - 10])


def _demands(forecast: Forecast) -> str:
    phases = [phase for phase in forecast.phases if phase.demand or phase.span_ratio or phase.amplification]
    if not phases:
        return ""
    rows = [
        [
            _name(phase),
            size(phase.demand.step_bytes) if phase.demand else ABSENT,
            seconds(phase.demand.budget) if phase.demand else ABSENT,
            f"{size(phase.demand.rank_rate)}/s" if phase.demand else ABSENT,
            f"{size(phase.demand.total_rate)}/s" if phase.demand else ABSENT,
            number(phase.span_ratio),
            number(phase.amplification),
        ]
        for phase in phases
    ]
    headings = [
        "",
        "bytes\na step",
        "within",
        "for each\nrank",
        "in total",
        "file span /\nbatch",
        "O_DIRECT\nmoved / asked",
    ]
    return grid("what storage must deliver for a utilization of 90 % (requests: to keep up)", headings, rows)


def _storage(forecast: Forecast) -> str:
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
    title = "what lies on storage at most (a new checkpoint is complete before an old one is deleted)"
    return grid(title, ["", "root", "bytes", "files", "copies"], rows) if rows else ""


def _memory(forecast: Forecast) -> str:
    rank, node = size(forecast.rank_bytes), size(forecast.node_bytes)
    text = f"memory: {rank} on the rank that needs most, {node} on the fullest node"
    if forecast.index_bytes:
        text += f",\n{size(forecast.index_bytes)} of it sums that place samples of varying size"
    return text
