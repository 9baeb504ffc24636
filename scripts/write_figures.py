#!/usr/bin/env python
"""Write the figures of summaries into docs/results.schema.json, each by its declaration.

scripts/write_figures.py
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from dliosim.measure.epoch_summaries import EpochSummary, VerbSummary
from dliosim.measure.figures import BoundShares, TimeSpread, result_figures

SCHEMA = Path(__file__).resolve().parent.parent / "docs" / "results.schema.json"

#: Definitions of the schema that follow from dataclasses; the others are written by hand.
SUMMARIES = {"epoch": EpochSummary, "files": VerbSummary}
VALUES = {"spread": TimeSpread, "bound_by": BoundShares}

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
    "Histogram": {"anyOf": [{"$ref": "#/$defs/quantiles"}, {"type": "null"}]},
}


def describe_type(kind: str) -> dict[str, Any]:
    """Return the schema of a declared type."""
    plain = kind.removesuffix(" | None")
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


def main() -> None:
    """Write the schema."""
    schema = fill_schema(json.loads(SCHEMA.read_text(encoding="utf-8")))
    SCHEMA.write_text(json.dumps(schema, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
