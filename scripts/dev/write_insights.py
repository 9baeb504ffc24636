#!/usr/bin/env python
"""Write the insights into docs/analyze.md, and the keys of `analyze --json` into docs/analysis.schema.json.

    scripts/dev/write_insights.py           write both
    scripts/dev/write_insights.py --show    print the table of insights

Insights are those of dliosim/analyze/insights/rules.py. Keys are the fields of the figures, with their types
and comments.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from dliosim.analyze.figures.access import BIN_NAMES
from dliosim.analyze.figures.job import Figures
from dliosim.analyze.insights.jobs import Change, FleetRow
from dliosim.analyze.insights.rules import INSIGHTS
from dliosim.analyze.report.tables import SCHEMA_VERSION

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, SCHEMA = DOCS / "analyze.md", DOCS / "analysis.schema.json"

#: JSON types of plain fields; a float that is not finite is null.
PLAIN: dict[Any, dict[str, Any]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": ["number", "null"]},
    str: {"type": "string"},
    NoneType: {"type": "null"},
}


def write_insights() -> str:
    """Return the table of insights."""
    rows = ["| insight | threshold | figure | from |", "|---|---|---|---|"]
    for one in INSIGHTS:
        figure = one.figure.replace("|", "\\|")
        rows.append(f"| `{one.name}` | {one.threshold} | {figure} | {one.source} |")
    return "\n".join(rows)


def fill_page(page: str) -> str:
    """Return the page with the table between its marks."""
    marks = "<!-- insights -->", "<!-- end of insights -->"
    text = "\n".join((marks[0], write_insights(), marks[1]))
    page, count = re.subn(f"{marks[0]}.*?{marks[1]}", lambda _: text, page, flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"{PAGE.name}: {marks[0]} is there {count} times, and must be once")
    return page


def find_records(kind: Any) -> Iterator[type]:
    """Yield each dataclass in a type, with those in its fields."""
    if is_dataclass(kind):
        yield kind
    for inner in get_type_hints(kind).values() if is_dataclass(kind) else get_args(kind):
        yield from find_records(inner)


def describe_type(kind: Any) -> dict[str, Any]:
    """Return the schema of a field's type."""
    if is_dataclass(kind):
        return {"$ref": f"#/$defs/{kind.__name__}"}
    parts = get_args(kind)
    if get_origin(kind) is tuple:
        return {"type": "array", "items": describe_type(parts[0])}
    if get_origin(kind) is dict:
        return {"type": "object", "additionalProperties": describe_type(parts[1])}
    return {"anyOf": [describe_type(one) for one in parts]} if parts else PLAIN[kind]


def read_comments(record: type) -> dict[str, str]:
    """Return the comment of each field: behind it, or above it."""
    source = inspect.getsource(record)
    above = re.findall(r"^ {4}#: (.*)\n {4}(\w+):", source, re.MULTILINE)
    behind = re.findall(r"^ {4}(\w+): [^\n]*?  #: (.*)$", source, re.MULTILINE)
    return {
        name: re.sub(r"\bNone\b", "null", text) for name, text in [*((name, text) for text, name in above), *behind]
    }


def describe_record(record: type) -> dict[str, Any]:
    """Return the schema of a dataclass: each field with its type and its comment."""
    types, comments = get_type_hints(record), read_comments(record)
    names = [field.name for field in fields(record)]  # type: ignore[arg-type]
    keys = {name: describe_type(types[name]) | {"description": comments[name]} for name in names}
    if "bins" in keys:
        kind = {"type": "object", "additionalProperties": {"type": "integer"}, "required": [*BIN_NAMES]}
        keys["bins"] = kind | {"description": comments["bins"]}
    return {"type": "object", "properties": keys, "required": names}


def write_schema() -> str:
    """Return the schema of the lines that `analyze --json` prints."""
    records = {one.__name__: one for root in (Figures, Change, FleetRow) for one in find_records(root)}
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"dliosim analyze --json, schema_version {SCHEMA_VERSION}",
        "description": "Figures: a job. Change: each of `times` and `others` of two jobs. FleetRow: a line per job.",
        "$defs": {name: describe_record(record) for name, record in sorted(records.items())},
    }
    return json.dumps(schema, indent=1) + "\n"


def main() -> None:
    """Write both files, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--show", action="store_true", help="print the table of insights")
    if parser.parse_args().show:
        print(write_insights())
        return
    PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    SCHEMA.write_text(write_schema(), encoding="utf-8")


if __name__ == "__main__":
    main()
