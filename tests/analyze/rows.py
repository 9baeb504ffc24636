"""Traces from short rows, for tests that work their figures out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dliosim.analyze.figures.job import Figures, measure_figures
from dliosim.analyze.figures.view import View
from dliosim.analyze.insights.rules import Finding, judge
from dliosim.trace.events import COLUMNS, Process, Trace, kind_number, layer_number, make_events

MS = 1_000_000


@dataclass
class Row:
    kind: str
    begin: int
    duration: int
    process: int = 0
    layer: str = "posix"
    name: str = ""
    file: str = ""
    offset: int = -1
    moved: int = -1
    epoch: int = -1
    step: int = -1
    thread: int = 0


def read(begin: int, duration: int, file: str = "/d/a", offset: int = 0, moved: int = 10, **more: object) -> Row:
    return Row("read", begin, duration, file=file, offset=offset, moved=moved, **more)  # type: ignore[arg-type]


def write(begin: int, duration: int, file: str = "/d/a", offset: int = 0, moved: int = 10, **more: object) -> Row:
    return Row("write", begin, duration, file=file, offset=offset, moved=moved, **more)  # type: ignore[arg-type]


def compute(begin: int, duration: int, process: int = 0, **more: object) -> Row:
    return Row("compute", begin, duration, process, "application", **more)  # type: ignore[arg-type]


def trace(rows: Sequence[Row], ranks: int = 0, **more: object) -> Trace:
    """The rows in the order of the contract; process numbers are ranks."""
    rows = sorted(rows, key=lambda row: (row.process, row.begin))
    files = tuple(dict.fromkeys(row.file for row in rows if row.file))
    names = tuple(dict.fromkeys(row.name or row.kind for row in rows))
    file_numbers = {file: number for number, file in enumerate(files)}
    columns: dict[str, list[int]] = {name: [] for name in COLUMNS}
    for row in rows:
        columns["kind"].append(kind_number(row.kind))
        columns["layer"].append(layer_number(row.layer))
        columns["name"].append(names.index(row.name or row.kind))
        columns["file"].append(file_numbers.get(row.file, -1))
        columns["asked"].append(row.moved)
        for name in ("process", "thread", "begin", "duration", "offset", "moved", "epoch", "step"):
            columns[name].append(getattr(row, name))
    count = max([ranks, *(row.process + 1 for row in rows)])
    processes = tuple(Process(rank, 100 + rank, "node") for rank in range(count))
    events = make_events({name: np.array(values) for name, values in columns.items()}, names, files, processes)
    end = max((row.begin + row.duration for row in rows), default=0)
    return Trace(**({"source": "DFTracer", "path": "t", "events": events, "duration": end} | more))  # type: ignore[arg-type]


def view(rows: Sequence[Row], ranks: int = 0, **more: object) -> View:
    return View(trace(rows, ranks, **more))


def figures(rows: Sequence[Row], ranks: int = 0, **more: object) -> Figures:
    return measure_figures(view(rows, ranks, **more))


def insight(name: str, rows: Sequence[Row], **more: object) -> Finding:
    return next(one for one in judge(figures(rows, **more)) if one.insight.name == name)  # type: ignore[arg-type]
