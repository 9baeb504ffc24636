"""The results of a comparison as files: rows.csv with every pass, and compare.json, which is written last."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import dliosim
from dliosim.boundedjson import drop_nonfinite
from dliosim.compare.pass_figures import LOOP, STALL, Pass, Subject
from dliosim.compare.result import ComparisonAnswer, Outcome
from dliosim.report.answer_sentences import plain_content
from dliosim.report.compare.notes import compose_notes
from dliosim.report.files.results import COMPARE, COMPARE_VERSION, ROWS, copy_members, write_atomic


def comparison_content(outcome: Outcome, answer: ComparisonAnswer) -> dict[str, Any]:
    """Return the content of compare.json: plain values, None for no figure; passes in the order of blocks."""
    what = {"what": "loop", "loop": outcome.what}
    if outcome.subject is STALL:
        what = dict(zip(("what", "checkpoint"), outcome.what.split(" ", 1), strict=True))
    content = {
        "schema_version": COMPARE_VERSION,
        "kind": "compare",
        "dliosim_version": dliosim.__version__,
        **copy_members(outcome, "name", "title", "pattern", "overrides", "arguments"),
        "environment": asdict(outcome.environment) | {"details": dict(outcome.environment.details)},
        **copy_members(outcome, "ranks", "nodes", "started"),
        "seconds": outcome.total_seconds,
        **what,
        "varied": [{"name": one.name, "values": list(one.values)} for one in outcome.varied],
        "reference": outcome.measured[0].label,
        **copy_members(outcome, "repetitions", "seed", "caches", "without_saves", "modelled"),
        "variants": [_variant(outcome, number) for number in range(len(outcome.measured))],
        "not_run": [asdict(one) for one in outcome.not_run],
        "answer": plain_content(answer),
        "notes": compose_notes(outcome, answer.place(outcome)),
    }
    return {name: drop_nonfinite(value) for name, value in content.items()}


def comparison_json(name: str, answer: ComparisonAnswer, place: Path | None) -> str:
    """Return the answer of a comparison as a line of JSON; `place` is None if results could not be written."""
    results = str(place) if place is not None else None
    content = {"schema_version": COMPARE_VERSION, "name": name, "results": results, "answer": plain_content(answer)}
    return json.dumps(drop_nonfinite(content), allow_nan=False) + "\n"


def format_rows(passes: Sequence[tuple[str, Sequence[Pass]]], subject: Subject) -> str:
    """Return the content of rows.csv: a row for every pass, warm-ups too, in the order in which they ran.

    `passes` has the label of each variant with its passes, also of one that failed later.
    """
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["block", "position", "variant", "counts", *subject.columns])
    labelled = [(each, label) for label, those in passes for each in those]
    for each, label in sorted(labelled, key=lambda pair: pair[0].position):
        values = (each.figures[name] for name in subject.columns)
        shown = ["" if value is None else repr(value) if isinstance(value, float) else value for value in values]
        table.writerow([each.block, each.position, label, int(each.block > 0), *shown])
    return text.getvalue()


def write_rows(directory: Path, passes: Sequence[tuple[str, Sequence[Pass]]], subject: Subject) -> None:
    """Write rows.csv with the passes so far, which remain if a comparison is stopped."""
    write_atomic(directory / ROWS, format_rows(passes, subject).encode())


def write_comparison(directory: Path, outcome: Outcome, answer: ComparisonAnswer) -> None:
    """Write rows.csv, then compare.json, into an existing directory, each whole or not at all. Raises OSError."""
    text = json.dumps(comparison_content(outcome, answer), indent=1, allow_nan=False) + "\n"
    write_rows(directory, outcome.passes, outcome.subject)
    write_atomic(directory / COMPARE, text.encode())


def _variant(outcome: Outcome, number: int) -> dict[str, Any]:
    """Return a variant: its settings, its comparison with the first, its figures and all passes, the warm-up first."""
    one, latency, subject = outcome.measured[number], outcome.measured[number].latency, outcome.subject
    against = outcome.comparisons[number - 1] if number else None
    return {
        "label": one.label,
        "settings": dict(one.values),
        "added": one.added or None,
        **copy_members(one, "digest", "api", "notes"),
        "ratio": against.ratio if against else 1.0,
        "ratio_low": against.low if against else None,
        "ratio_high": against.high if against else None,
        "p_adjusted": against.p_adjusted if against else None,
        "smallest_difference": against.smallest - 1 if against and against.smallest else None,
        "verdict": against.verdict if against else "reference",
        "resident_share": one.median("resident_share"),
        "striping": one.striping or None,
        "hints_asked": dict(one.hints_asked),
        "hints_granted": dict(one.hints_granted),
        "seconds": one.values_of(subject.seconds),
        **{key: one.mean(name) for key, name in subject.means.items()},
        **{name: one.median(name) for name in subject.medians},
        **{key: one.share(name) for key, name in subject.shares.items()},
        **{name: one.block_passes[0].figures[name] for name in subject.counts},
        **({"two_phase": one.two_phase, "order_hash": one.passes[0].figures["order_hash"]} if subject is LOOP else {}),
        f"{subject.latency}_seconds": latency and asdict(latency),
        "passes": [
            {"block": each.block, "position": each.position} | {name: each.figures[name] for name in subject.columns}
            for each in one.passes
        ],
    }
