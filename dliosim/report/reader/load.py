"""Read directories of results: runs and comparisons, each with its own label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, zip_longest
from pathlib import Path

import numpy as np

from dliosim.errors import HELP, UsageError
from dliosim.measure.figures.aggregate import Latencies
from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.results.phase import LoopPhase
from dliosim.measure.results.run_summary import Answer, RunSummary, select_epochs
from dliosim.readable import count, printable
from dliosim.report.files.results import COMPARE, PARTIAL, RANKS, RESULTS, TIMELINE
from dliosim.report.pattern_diff import input_differences
from dliosim.report.phase_titles import group_by, title_of
from dliosim.report.reader.arrays import TIME_COLUMNS, Ints, RecordedEpoch, read_rank_times, read_timelines
from dliosim.report.reader.bundle import unpack_bundle
from dliosim.report.reader.results import ComparisonResult, read_comparison, read_run

# The most directories that a message suggests.
_MOST_NAMED = 4

# Longer labels are cut, which no label of a usual run is, and longer names in them, so that what differs has room.
_LONGEST_LABEL, _LONGEST_NAME = 240, 40


@dataclass(frozen=True, slots=True, eq=False)
class LoopResult:
    """All runs of one loop in a run."""

    run: RunSummary  #: results.json
    answer: Answer | None  #: answer of the run about this loop; None in partial results
    title: str  #: title of the loop (`phase_titles.title_of`)
    phases: tuple[LoopPhase, ...]  #: runs of the loop
    epochs: tuple[EpochSummary, ...]  #: epochs of all runs, numbered across them
    latencies: Latencies  #: latencies of the epochs that count together
    rank_times: dict[str, Ints]  #: `TIME_COLUMNS` of ranks.h5, (epochs, ranks) each; ns; empty without that file
    timeline: tuple[RecordedEpoch, ...]  #: recorded epochs, numbered as `epochs`

    @property
    def answer_epochs(self) -> Sequence[EpochSummary]:
        """Epochs that count for the answer; all if there is none."""
        return select_epochs(self.epochs, self.answer)


@dataclass(frozen=True, slots=True, eq=False)
class SavedRun:
    """The results of a directory of `dliosim run`.

    A run that was stopped may have partial results: `run.partial` is set, and the other files are missing.
    """

    label: str  #: workload, and what differs from the other results
    place: str  #: path of the directory, as given
    run: RunSummary  #: results.json
    loops: tuple[LoopResult, ...]  #: loops of the run
    missing: tuple[str, ...]  #: names of the files that are not there


@dataclass(frozen=True, slots=True)
class SavedComparison:
    """The results of a directory of `dliosim compare`."""

    label: str  #: workload, and what differs from the other results
    place: str  #: path of the directory, as given
    comparison: ComparisonResult  #: compare.json


def load_results(given: Sequence[str], with_arrays: bool) -> list[SavedRun | SavedComparison]:
    """Read directories, `with_arrays` for pictures; UsageError if there are no results, or broken ones."""
    try:
        found = [saved for one in given for saved in _load_place(Path(one), with_arrays)]
    except OSError as error:
        raise UsageError(f"{error.filename or 'results'} cannot be read: {error.strerror or error}") from error
    contents = [one.run if isinstance(one, SavedRun) else one.comparison for one in found]
    labels = label_results(contents, [one.place for one in found])
    return [replace(one, label=label) for one, label in zip(found, labels, strict=True)]


def loop_titles(runs: Sequence[SavedRun]) -> list[str]:
    """Return the titles of the loops that any of the runs has, each once."""
    return list(dict.fromkeys(loop.title for one in runs for loop in one.loops))


def _load_place(place: Path, with_arrays: bool) -> list[SavedRun | SavedComparison]:
    """Return the results of a directory, or all those of a bundle."""
    if place.suffix != ".zip" or not place.is_file():
        return [_load_directory(place, with_arrays)]
    with unpack_bundle(place) as folders:
        saved = [_load_directory(one, with_arrays) for one in folders]
    return [replace(one, place=printable(str(place / folder.name))) for one, folder in zip(saved, folders, strict=True)]


def _load_directory(directory: Path, with_arrays: bool) -> SavedRun | SavedComparison:
    """Return the results of a directory, still without a label."""
    if (directory / COMPARE).exists():
        return SavedComparison("", printable(str(directory)), read_comparison(directory / COMPARE))
    file = next((directory / name for name in (RESULTS, PARTIAL) if (directory / name).exists()), None)
    if file is None:
        raise UsageError(_explain_missing(directory))
    run, latencies = read_run(file)
    if run.partial is None and file.name == PARTIAL:
        raise UsageError(f"{file}: does not say how much of the run it has")
    phases = run.loops
    ranks_file, timeline_file = directory / RANKS, directory / TIMELINE
    times: list[dict[str, Ints]] = [{} for _ in phases]
    recorded: list[list[RecordedEpoch]] = [[] for _ in phases]
    if with_arrays and ranks_file.exists():
        times = read_rank_times(ranks_file, phases, run.ranks)
    if with_arrays and timeline_file.exists():
        recorded = read_timelines(timeline_file, phases, run.ranks)
    # The same groups as `group_phases`, but with the arrays of each phase.
    groups = group_by(zip(phases, times, recorded, strict=True), lambda part: title_of(part[0]))
    loops = tuple(
        _join_phases(run, answer, latencies[title], parts)
        for (title, parts), answer in zip_longest(groups.items(), run.answers)
    )
    missing = tuple(one.name for one in (ranks_file, timeline_file) if not one.exists())
    return SavedRun("", printable(str(directory)), run, loops, missing)


def _explain_missing(given: Path) -> str:
    """Return why there are no results, and which directory to name instead."""
    wanted = "name a directory that `dliosim run` or `dliosim compare` wrote"
    cure = f"{HELP}`mpiexec -n 4 dliosim run cosmoflow` writes one"
    if given.is_file():
        inside = any((given.parent / name).exists() for name in (RESULTS, COMPARE))
        return f"{given} is a file: " + (f"name its directory, {given.parent}" if inside else f"{wanted}{cure}")
    if not given.is_dir():
        return f"{given}: there is no such directory: {wanted}{cure}"
    missing = f"{given} has neither {RESULTS} nor {COMPARE}"
    below = sorted(one.parent.name for name in (RESULTS, COMPARE) for one in given.glob(f"*/{name}"))
    if below:
        some = ", ".join(below[:_MOST_NAMED]) + (", ..." if len(below) > _MOST_NAMED else "")
        which = "run_*/" if any(name.startswith("run_") for name in below) else "*/"
        return f"{missing}, but {count(len(below), 'directory', 'directories')} in it ({some}): name {given}/{which}"
    return f"{missing}: {wanted}; a run without {RESULTS}, or a comparison without {COMPARE}, did not finish{cure}"


_Part = tuple[LoopPhase, dict[str, Ints], list[RecordedEpoch]]


def _join_phases(run: RunSummary, answer: Answer | None, latencies: Latencies, parts: Sequence[_Part]) -> LoopResult:
    """Return all runs of a loop as one result."""
    phases, times, recorded = zip(*parts, strict=True)
    firsts = [0, *accumulate(len(phase.epochs) for phase in phases)]
    epochs = [epoch for phase in phases for epoch in phase.epochs]
    return LoopResult(
        run=run,
        answer=answer,
        title=title_of(phases[0]),
        phases=phases,
        epochs=tuple(replace(epoch, epoch=i) for i, epoch in enumerate(epochs, 1)),
        latencies=latencies,
        rank_times={name: np.concatenate([one[name] for one in times]) for name in TIME_COLUMNS} if all(times) else {},
        timeline=tuple(
            replace(epoch, epoch=first + epoch.epoch)
            for first, some in zip(firsts, recorded, strict=False)
            for epoch in some
        ),
    )


def label_results(results: Sequence[RunSummary | ComparisonResult], places: Sequence[str]) -> list[str]:
    """Return a label for each result, all different: the workload, and what differs between results of it.

    If nothing else differs, it is the time of the start of runs, and the directory of comparisons, in `places`.
    """
    names = [one.name if isinstance(one, RunSummary) else f"{one.name}: variants of {one.what}" for one in results]
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
    apis = [", ".join(dict.fromkeys(loop.api for loop in run.loops if loop.api and loop.api != "null")) for run in runs]
    inputs = input_differences(runs)
    if len(set(apis)) > 1:
        inputs = [
            ["" if text.endswith(f"api={api}") else text for text, api in zip(texts, apis, strict=True)]
            for texts in inputs
        ]
    return [apis, *inputs]
