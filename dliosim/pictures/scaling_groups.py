"""Groups of runs of the same study on different numbers of ranks, which a scaling curve may join."""

from __future__ import annotations

from collections.abc import Sequence

from dliosim.measure.results.run_summary import RunSummary
from dliosim.report.pattern_diff import input_differences
from dliosim.report.reader.load import LoopResult, SavedRun

RULE = (
    "Only results with the same pattern, overrides, options (null, verify), kinds of file systems and access method "
    "are joined."
)


def study_names(pairs: Sequence[tuple[SavedRun, LoopResult]]) -> list[str]:
    """Return the name of each run's study, with what distinguishes it from the others.

    The name is empty for a run that is left out, as its study has no other number of ranks.
    """
    keys = [_study_key(saved.run, loop) for saved, loop in pairs]
    ranks: dict[object, set[int]] = {}
    for key, (saved, _) in zip(keys, pairs, strict=True):
        ranks.setdefault(key, set()).add(saved.run.ranks)
    first = {key: pair for key, pair in reversed(list(zip(keys, pairs, strict=True))) if len(ranks[key]) > 1}
    names = dict(zip(first, _study_labels(list(first.values())), strict=True))
    return [names.get(key, "") for key in keys]


def omission_text(labels: Sequence[str]) -> str:
    """Return the sentence on results that are in no curve."""
    return f"Left out, as nothing here can be joined with them: {', '.join(labels)}." if labels else ""


def _study_key(run: RunSummary, loop: LoopResult) -> object:
    # The order of overrides only matters for equal names: the last one counts, or each counts for its own part.
    overrides = tuple(sorted(run.overrides, key=lambda pair: pair[0]))
    roots = tuple(sorted((place.root, place.kind) for place in run.environment.file_systems))
    return (run.name, run.pattern, overrides, run.null, run.verify, roots, loop.phases[0].api)


def _study_labels(pairs: Sequence[tuple[SavedRun, LoopResult]]) -> list[str]:
    differences = input_differences([saved.run for saved, _ in pairs])
    return [
        ", ".join(filter(None, [f"{saved.run.name}: {loop.title}", loop.phases[0].api or "no reads", *details]))
        for (saved, loop), *details in zip(pairs, *differences, strict=True)
    ]
