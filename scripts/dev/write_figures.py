#!/usr/bin/env python
"""Write the figures into docs/results.schema.json and the tables of docs/metrics.md, as they are declared.

    scripts/dev/write_figures.py

A figure's type, heading and formula are those of its field in dliosim/measure/figures/epoch_summaries.py, what it
means is the comment there. Columns of ranks.h5 are the fields of the record in dliosim/measure/rank/records.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from dliosim.measure.figures.declaration import (
    BoundShares,
    Reduced,
    ResultFigure,
    TimeSpread,
    column_of,
    result_figures,
)
from dliosim.measure.figures.epoch_summaries import EpochSummary, SourceSummary, VerbSummary
from dliosim.measure.figures.summary import RANK_COLUMNS
from dliosim.measure.figures.words import read_comments
from dliosim.measure.rank.records import EpochRecord

DOCS = Path(__file__).resolve().parents[2] / "docs"
SCHEMA, PAGE = DOCS / "results.schema.json", DOCS / "metrics.md"

#: Definitions of the schema that follow from dataclasses; the others are written by hand.
SUMMARIES = {"epoch": EpochSummary, "files": VerbSummary, "source": SourceSummary}
VALUES = {"spread": TimeSpread, "bound_by": BoundShares}

#: Tables of the page, each with the types of its figures.
TABLES = {
    "parts of the wall time": ("epoch", "Part"),
    "times": ("epoch", "TimeSpread"),
    "amounts": ("epoch", "int"),
    "rates": ("epoch", "float Share Signed BoundShares"),
    "latencies": ("epoch", "Histogram"),
    "hashes": ("epoch", "Hash"),
    "data sets": ("source", "str int float Histogram Hash"),
    "verbs": ("files", "float int Share Times TimeSpread Histogram"),
}

NUMBERS: dict[str, dict[str, Any]] = {
    "int": {"type": "integer", "minimum": 0},
    "float": {"type": "number", "minimum": 0},
    "Share": {"type": "number", "minimum": 0, "maximum": 1},
    "Signed": {"type": "number"},
}
OTHERS = {
    "Hash": {"type": "string", "pattern": "^[0-9a-f]{16}$"},
    "TimeSpread": {"$ref": "#/$defs/spread"},
    "Part": {"$ref": "#/$defs/spread"},
    "BoundShares": {"$ref": "#/$defs/bound_by"},
    "Times": {"type": "object", "additionalProperties": {"type": "number"}},
    "SourceSummaries": {"type": "array", "items": {"$ref": "#/$defs/source"}},
    "str": {"type": "string"},
    "Histogram": {"anyOf": [{"$ref": "#/$defs/quantiles"}, {"type": "null"}]},
}


def plain_type(kind: str) -> str:
    """Return a declared type without `None`."""
    return kind.removesuffix(" | None")


def describe_type(kind: str) -> dict[str, Any]:
    """Return the schema of a declared type."""
    plain = plain_type(kind)
    if plain in NUMBERS:
        rule = NUMBERS[plain]
        return rule if plain == kind else rule | {"type": [rule["type"], "null"]}
    return OTHERS[plain] if plain == kind else {"anyOf": [OTHERS[plain], {"type": "null"}]}


def fill_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with the definitions that follow from the declarations."""
    types = {name: [(one.key, one.kind) for one in result_figures(kind)] for name, kind in SUMMARIES.items()}
    types |= {name: [(one.name, str(one.type)) for one in fields(kind)] for name, kind in VALUES.items()}
    made = {
        name: schema["$defs"][name]
        | {"properties": {key: describe_type(kind) for key, kind in found}, "required": [key for key, _ in found]}
        for name, found in types.items()
    }
    return schema | {"$defs": schema["$defs"] | made}


class Used(dict[str, int]):
    """Values of all columns, which note the columns that are asked for."""

    def __missing__(self, column: str) -> int:
        self[column] = 1
        return 1


def find_columns(summary: type, one: ResultFigure) -> list[str]:
    """Return the columns of the record that a figure is made of."""
    used = Used()
    for field in fields(summary):
        if field.name == one.name and (formula := field.metadata.get("formula")):
            formula(Reduced(used, Used(), used, used, {}, np.empty(0, np.int64), np.empty((0, 2), np.int64)))
        elif field.name == one.name:
            used[f"{one.name}_max_ns" if one.kind == "Histogram" else column_of(one.name)] = 1
    return list(used)


def list_columns(summary: type) -> list[str]:
    """Return the columns that all figures of a summary are made of."""
    return [column for one in result_figures(summary) for column in find_columns(summary, one)]


def draw_table(name: str) -> str:
    """Return a table of the page."""
    if name == "ranks.h5":
        return draw_columns()
    which, kinds = TABLES[name]
    summary, comments = SUMMARIES[which], read_comments(SUMMARIES[which])
    rows = [["terminal", "results.json", "ranks.h5", "formula"]]
    for one in result_figures(summary):
        if plain_type(one.kind) in kinds.split():
            columns = ", ".join(f"`{column}`" for column in find_columns(summary, one) if column in RANK_COLUMNS)
            rows.append([one.words, f"`{one.key}`", columns, comments[one.name]])
    if which == "files":
        rows = [[heading, key, text] for heading, key, _, text in rows]
    if which == "source":
        rows = [[key, text] for _, key, _, text in rows]
    return format_rows(rows)


def draw_columns() -> str:
    """Return the table of the columns of ranks.h5 that no figure describes: figures use them in formulas only."""
    summary, comments = SUMMARIES["epoch"], read_comments(EpochRecord)
    formulas = {one.name for one in fields(summary) if one.metadata.get("formula")}
    described = {
        column for one in result_figures(summary) if one.name not in formulas for column in find_columns(summary, one)
    }
    rows = [[f"`{column}`", comments[column]] for column in RANK_COLUMNS if column not in described]
    return format_rows([["column", "meaning, for one rank and epoch"], *rows])


def format_rows(rows: Sequence[Sequence[str]]) -> str:
    """Return a table of Markdown; the first row has the headings."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]).replace("|  |", "| |")


def fill_page(page: str) -> str:
    """Return the page with each table between its marks."""
    for name in (*TABLES, "ranks.h5"):
        marks = f"<!-- figures: {name} -->", "<!-- end of figures -->"
        pattern = re.compile(f"{re.escape(marks[0])}.*?{re.escape(marks[1])}", re.DOTALL)
        table = "\n".join((marks[0], draw_table(name), marks[1]))
        page, count = pattern.subn(lambda _, table=table: table, page)
        if count != 1:
            raise SystemExit(f"{PAGE.name}: {marks[0]} is there {count} times, and must be once")
    return page


def main() -> None:
    """Write both."""
    schema = fill_schema(json.loads(SCHEMA.read_text(encoding="utf-8")))
    SCHEMA.write_text(json.dumps(schema, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
