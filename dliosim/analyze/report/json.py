"""The figures of an analysis as JSON, for scripts; docs/analysis.schema.json has the keys."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from dliosim.analyze.figures.access import BIN_NAMES
from dliosim.analyze.figures.job import Figures
from dliosim.analyze.insights.jobs import Changes
from dliosim.analyze.insights.rules import Finding
from dliosim.boundedjson import drop_nonfinite

#: Version of the names and their meaning.
SCHEMA_VERSION = 1


def analysis_json(figures: Figures, findings: Sequence[Finding]) -> str:
    """Return all figures and insights of a job as a line of JSON."""
    content = {"schema_version": SCHEMA_VERSION, **asdict(figures), "insights": list(map(_finding, findings))}
    for side in ("read", "write"):
        one = content["access"][side]
        one["bins"] = dict(zip(BIN_NAMES, one["bins"], strict=True))
    return _line(content)


def changes_json(changes: Changes, names: Sequence[str]) -> str:
    """Return what changed between two jobs as a line of JSON."""
    content = {
        "schema_version": SCHEMA_VERSION,
        "jobs": names,
        **{side: [asdict(one) for one in getattr(changes, side)] for side in ("times", "others")},
        "same": changes.same,
        **{side: list(map(_finding, getattr(changes, side))) for side in ("appeared", "gone")},
    }
    return _line(content)


def fleet_json(rows: Sequence[Any]) -> str:
    """Return a line of JSON for each of several jobs."""
    return "".join(_line({"schema_version": SCHEMA_VERSION, **asdict(one)}) for one in rows)


def _finding(one: Finding) -> dict[str, Any]:
    found = one.found
    return {
        "name": one.insight.name,
        "met": one.is_met,
        "value": found.value if found else None,
        "threshold": one.insight.limit,
        "count": found.count if found else None,
        "least_count": one.insight.least,
        "cost_seconds": found.cost if found else None,
        "words": found.words if found else None,
        "cure": one.insight.cure,
    }


def _line(content: Any) -> str:
    return json.dumps(drop_nonfinite(content), allow_nan=False) + "\n"
