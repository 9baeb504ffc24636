"""Labels of results and of variants, by what differs between them."""

from __future__ import annotations

from collections.abc import Sequence

from dliosim.measure.results.run_summary import RunSummary
from dliosim.readable import count
from dliosim.report.pattern_diff import input_differences
from dliosim.report.reader.comparison import ComparisonResult

# Longer labels are cut, which no label of a usual run is, and longer names in them, so that what differs has room.
_LONGEST_LABEL, _LONGEST_NAME = 240, 40

# Where a variant's label is longer, tables have numbers, as in `dliosim compare`.
_LONGEST_VARIANT = 44


def label_results(results: Sequence[RunSummary | ComparisonResult], places: Sequence[str]) -> list[str]:
    """Return a label for each result, all different: the workload, and what differs between results of it.

    Where nothing else differs, it is the time of the start of runs, and the directory of comparisons, in `places`.
    """
    names = [_name_result(one) for one in results]
    labels = list(names)
    for name in set(names):
        alike = [i for i, each in enumerate(names) if each == name]
        for i, label in zip(alike, _label_alike(name, [results[i] for i in alike]), strict=True):
            labels[i] = label if len(label) <= _LONGEST_LABEL else f"{label[: _LONGEST_LABEL - 3]}..."
    marks = [
        one.started[:19].replace("T", " ") if isinstance(one, RunSummary) else place
        for one, place in zip(results, places, strict=True)
    ]
    labels = [
        f"{label}, {mark}" if labels.count(label) > 1 else label for label, mark in zip(labels, marks, strict=True)
    ]
    return [f"{label} #{i + 1}" if labels.count(label) > 1 else label for i, label in enumerate(labels)]


def _name_result(one: RunSummary | ComparisonResult) -> str:
    return one.name if isinstance(one, RunSummary) else f"{one.name}: variants of {one.what}"


def _label_alike(name: str, results: Sequence[RunSummary | ComparisonResult]) -> list[str]:
    """Return the name with what differs between results of that name, which are all runs or all comparisons."""
    runs = [one for one in results if isinstance(one, RunSummary)]
    kinds = [[count(one.ranks, "rank") for one in results], [count(one.nodes, "node") for one in results]]
    if runs:
        kinds += _label_inputs(runs)
    brief = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."
    differing = [texts for texts in kinds if len(set(texts)) > 1]
    return [", ".join(filter(None, [brief, *(texts[i] for texts in differing)])) for i in range(len(results))]


def _label_inputs(runs: Sequence[RunSummary]) -> list[list[str]]:
    """Return the apis of runs, and a text of each for each difference; an override that repeats its api is left out."""
    apis, inputs = [_apis(run) for run in runs], input_differences(runs)
    if len(set(apis)) > 1:
        inputs = [
            ["" if text.endswith(f"api={api}") else text for text, api in zip(texts, apis, strict=True)]
            for texts in inputs
        ]
    return [apis, *inputs]


def _apis(run: RunSummary) -> str:
    return ", ".join(dict.fromkeys(loop.api for loop in run.loops if loop.api and loop.api != "null"))


def variant_names(labels: Sequence[str]) -> list[str]:
    """Return the names of variants in tables: their labels, or `(1)`, `(2)`, ... where any label is too long."""
    if max(map(len, labels), default=0) <= _LONGEST_VARIANT:
        return list(labels)
    return [f"({i + 1})" for i in range(len(labels))]


def variant_legend(labels: Sequence[str]) -> list[str]:
    """Return number and label of each variant, where tables have numbers."""
    names = variant_names(labels)
    return [f"{name} {label}" for name, label in zip(names, labels, strict=True) if name != label]
