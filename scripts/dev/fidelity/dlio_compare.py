"""Counts of DLIO next to those of the pattern that its workload file becomes; the import has to name differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dliosim.language.compile import compile_pattern
from dliosim.model import Job
from dliosim.plan.forecast.forecast import forecast

Counts = dict[str, Any]
"""Figures of a run by their names: of training, with `eval ` in front of evaluation, with `saved` of checkpoints."""

#: By figure: words of the sentences of an import's report that name a difference, and how large it may then be.
NAMED: Final[Mapping[str, tuple[tuple[str, float], ...]]] = {
    "bytes of files": (
        ("B of labels", 0.01), ("not the same sizes", 0.15), ("h5py's own", 0.02),
        ("B shorter", 0.01),
    ),
    "bytes read": (
        ("B of labels", 0.01), ("not the same sizes", 0.15),
        ("without numpy's own calls", 0.15), ("readers continue until", 2), ("reads the same first", 1),
        ("reads ahead into the next pass", 3), ("every rank of DLIO reads all files", 4),
    ),
    "opens": (
        ("readers continue until", 2), ("reads the same first", 1), ("reads ahead into the next pass", 3),
        ("every rank of DLIO reads all files", 4),
    ),
    "steps": (("as many steps as the mean", 0.5),),
    "saved files": (("here one file", 10),),
    "saved bytes": (("larger than its tensors", 0.05), ("here one file", 0.01)),
    "fails": (("IndexError", 0),),
}  # fmt: skip


def plan_counts(pattern: Path, ranks: int, overrides: Sequence[str] = ()) -> Counts:
    """Return what `dliosim plan` says of a pattern on some ranks."""
    given = [(name, value) for name, _, value in (text.partition("=") for text in overrides)]
    workload, _ = compile_pattern(pattern, given, Job(ranks))
    planned = forecast(workload)
    found: Counts = {"saved": 0}
    for stored in planned.storage:
        if stored.kind == "dataset":
            dataset = next(one for one in workload.datasets if one.name == stored.name)
            before = _prefix(stored.name)
            found[f"{before}files"] = dataset.layout.files
            found[f"{before}bytes of files"] = round(stored.bytes)
            found[f"{before}samples a file"] = [dataset.samples // dataset.layout.files]
    for phase in planned.phases:
        if phase.verb in ("train", "evaluate"):
            before = "eval " if phase.verb == "evaluate" else ""
            epochs = (phase.last_epoch or 1) - (phase.first_epoch or 1) + 1
            found.setdefault(f"{before}steps", []).extend([phase.steps] * epochs)
            found[f"{before}opens"] = found.get(f"{before}opens", 0) + round(phase.opens.total) * epochs
        elif phase.verb == "save":
            found["saved"] += phase.times
    return found


def _prefix(dataset: str) -> str:
    return "eval " if dataset.startswith("valid") else ""


def find_differences(dlio: Counts, other: Counts, report: str) -> Iterator[tuple[str, str]]:
    """Yield each figure that differs, and the words of the report that name it; no words where none does.

    Figures that one of the two does not have are not compared.
    """
    if "fails" in dlio:
        error = _naming("fails", 0, report)
        yield "fails", error if error in dlio["fails"] else ""
        return
    for figure in dlio.keys() & other.keys():
        if dlio[figure] != other[figure]:
            yield figure, _naming(figure.removeprefix("eval "), _distance(dlio[figure], other[figure]), report)


def _naming(figure: str, distance: float, report: str) -> str:
    return next((words for words, most in NAMED.get(figure, ()) if words in report and distance <= most), "")


def _distance(dlio: Any, other: Any) -> float:
    """Return by how much of the second one the two differ; of lists their sums."""
    first, second = (float(sum(value) if isinstance(value, list) else value) for value in (dlio, other))
    return abs(first - second) / second if second else float("inf")
