"""The rules of MLPerf Storage: rows of a data file, each a bound of one figure of a pattern or of its runs.

And sizes of data sets that keep two of them: that no cache holds the data, and that they last for enough steps.
"""

from __future__ import annotations

import json
import math
import operator
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, Final, TypeAlias

from dliosim.errors import HELP, UsageError
from dliosim.language.unparse import list_phrases
from dliosim.measure.results.machine import OTHER_MOUNT, RESULTS_ON
from dliosim.measure.results.run_summary import RunSummary
from dliosim.model import Access, Dataset, DropCaches, JoinedDataset, Loop, Prepare, Restore, Save, Workload
from dliosim.model.epoch_size import steps_of_epoch
from dliosim.model.verbs import flatten_verbs
from dliosim.plan.forecast.forecast import loops_of
from dliosim.plan.forecast.forecast_types import Forecast
from dliosim.plan.forecast.layout_forecast import place_samples
from dliosim.plan.forecast.prepare_forecast import forecast_prepare

#: Names and values of a figure; a value is None if it is not known.
Figure: TypeAlias = list[tuple[str, Any]]

#: A row of a data file. `id`, `name`, `text`, `source` and `date` say which rule it is, and where it is written; `of`
#: is what it is about (training, checkpointing); `figure`, `kind` and `value` are a key of `FIGURES` and its bound. An
#: object in `value` has bounds by accelerator or by the start of a workload's name, or of `others`. For the value
#: `undecided` the rule does not decide. `unless` is a figure, kind and bound that keep it, too.
Rule: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """A pattern on a job, with results of runs of it, if there are any."""

    workload: Workload  #: the pattern
    forecast: Forecast  #: its plan
    memory: float | None  #: bytes of a node; None if not given
    changed: Mapping[str, str]  #: settings that overrides change: kind and keyword -> name in the pattern
    runs: Sequence[tuple[str, RunSummary]] = ()  #: directories and their results, in the order of their starts
    is_shipped: bool = True  #: True for a pattern that comes with dliosim, whose name says which workload it is

    @property
    def training(self) -> list[tuple[Loop, Dataset]]:
        """Training loops, with the data sets that they read."""
        loops = loops_of(self.workload.verbs)
        return [(one, self.workload.dataset(one.dataset)) for one in loops if one.kind == "train" and one.dataset]

    @property
    def ranks(self) -> int:
        """Ranks of the job."""
        return self.forecast.ranks


def read_rules(version: str) -> list[Rule]:
    """Return the rules of a version: `mlperf-v2` or `mlperf-v3`."""
    content: dict[str, list[Rule]] = json.loads(Path(__file__).with_name(f"{version}.json").read_text(encoding="utf-8"))
    return content["rules"]


def judge_rules(case: Case, rules: Iterable[Rule]) -> list[tuple[Rule, bool | None, str]]:
    """Return the rules about what a pattern does, if each is kept (None: not known), and why."""
    saves = any(isinstance(verb, Save | Restore) for verb, _ in flatten_verbs(case.workload.verbs))
    does = {"training": case.training, "checkpointing": saves}
    return [(rule, *_judge_rule(case, rule)) for rule in rules if does[rule["of"]]]


def find_changes(base: Workload, workload: Workload) -> dict[str, str]:
    """Return the settings by which two workloads of one pattern differ, as `Case.changed`."""
    changed = {f"{kind}.{head}": f"{name}.{head}" for kind, name, head, _ in {*_phrases(base)} ^ {*_phrases(workload)}}
    for old, new in zip(base.datasets, workload.datasets, strict=False):
        if new.samples * old.layout.files != old.samples * new.layout.files:
            changed["dataset.samples of a file"] = f"{new.name}: samples of a file"
    return changed


def _phrases(workload: Workload) -> Iterable[tuple[str, str, str, str]]:
    """Yield kind, name, keyword and phrase of the settings of data sets, checkpoints, models and loops."""
    owners: list[tuple[str, Any]] = [("dataset", one) for one in workload.datasets]
    owners += [("checkpoint", one) for one in workload.checkpoints]
    owners += [("model", one.model) for one in workload.checkpoints if one.model is not None]
    owners += [(loop.kind, loop) for loop in loops_of(workload.verbs)]
    return ((kind, one.name, head, phrase) for kind, one in owners for head, phrase in list_phrases(kind, one))


def _judge_rule(case: Case, rule: Rule) -> tuple[bool | None, str]:
    """Return if a rule is kept, and the value that decides: the first broken one, else the first that is not known."""
    name, bound = case.workload.name.replace("-", "_"), rule["value"]
    if isinstance(bound, dict):
        keys = (key for key in bound if name.startswith(key) or key == case.workload.accelerator)
        bound = bound.get(next(keys, "others"))
    if bound is None:
        return None, f"there is no bound for `{name}`"
    holds, unknown = KINDS[rule["kind"]], (None, rule.get("undecided"))
    found = FIGURES[rule["figure"]](case, rule) or [("bytes that are saved", None)]
    judged = [(None if one in unknown else holds(one, bound), what, one) for what, one in found]
    verdict, what, value = min(judged, key=lambda one: (one[0] is not False, one[0] is not None))
    if verdict is False and "unless" in rule:
        return _judge_rule(case, dict(zip(("figure", "kind", "value"), rule["unless"], strict=True)))
    if value is None or isinstance(value, bool):
        return verdict, f"{what}: {_ANSWERS[value]}"
    kind = "" if rule["kind"] == "one of" and len(bound) == 1 else f"{rule['kind']} "
    asked = f"{kind}{' or '.join(map(str, bound if isinstance(bound, list) else [bound]))}"
    return verdict, f"{what}: {f'{value:.6g}' if isinstance(value, float) else value} (asked: {asked})"


_ANSWERS: Final = {None: "not known", True: "yes", False: "no"}
_NO_MEMORY: Final = [("memory of a node (`--memory 512GiB`)", None)]
_NO_RUNS: Final = [("results of runs (`dliosim check RESULTS --rules ...`)", None)]


def _divide_by_memory(case: Case, amounts: Iterable[tuple[str, float]]) -> Figure:
    if case.memory is None:
        return _NO_MEMORY
    memory = case.memory * case.forecast.nodes
    return [(f"{name} / memory of all nodes", held / memory) for name, held in amounts]


def _data_in_memories(case: Case, _: Rule) -> Figure:
    stored = {one.name: one.bytes for one in case.forecast.storage if one.kind == "dataset"}
    return _divide_by_memory(
        case,
        [
            (data.name, sum(count_data(one, stored.get(one.name, math.inf)) for one in data.members))
            for _, data in case.training
        ],
    )


def _name_workload(case: Case, rule: Rule) -> Figure:
    name = case.workload.name.replace("-", "_")
    if not case.is_shipped and KINDS[rule["kind"]](name, rule["value"]):  # a name alone proves nothing
        return [(f"if this pattern of its own is the published {name}", None)]
    return [("workload", name)]


def _mean_au(case: Case, _: Rule) -> Figure:
    means: Figure = []
    for place, run in case.runs[1:] or case.runs:  # of several runs the first is the one that warms up
        found = [epoch.dlio_au for loop in run.loops if loop.kind == "train" for epoch in loop.epochs]
        known = [] if run.null or run.modelled or None in found else [one for one in found if one is not None]
        means.append((f"AU of {place}", fmean(known) if known else None))
    return means or _NO_RUNS


def _setting_changes(case: Case, rule: Rule) -> Figure:
    other = sorted(name for key, name in case.changed.items() if key not in rule["allowed"])
    other += [f"scale={case.workload.scale} (published: 1)"] * (case.workload.scale > 1)
    keys = [word for _, run in case.runs for word in run.arguments if word.startswith(("++", "workload."))]
    if keys and not other:
        return [(f"what {keys[0]} changed, which results do not say (give the workload file and its keys)", None)]
    return [(f"{', '.join(other) or 'any other setting'} changed", bool(other))]


def _share_in_memory(case: Case, _: Rule) -> Figure:
    verbs = [verb for verb, _ in flatten_verbs(case.workload.verbs)]
    saves, restores = ([n for n, one in enumerate(verbs) if isinstance(one, kind)] for kind in (Save, Restore))
    if not saves or not restores:
        return [("share in memory between two runs, one that saves and one that restores", None)]
    if not any(isinstance(one, DropCaches) for one in verbs[saves[-1] : restores[0]]):
        return [("share in memory, as no `drop caches` is between save and restore", 1.0)]
    shares = [one.resident_share for _, run in case.runs for one in run.phases if one.kind == "drop caches"]
    share = None if None in shares or not case.runs else max((one or 0.0 for one in shares), default=0.0)
    return [("share in memory after `drop caches`", share)]


def _count_saves(case: Case, _: Rule) -> Figure:
    verbs = [*flatten_verbs(case.workload.verbs)]
    saves = sum(times for verb, times in verbs if isinstance(verb, Save))
    restores = sum(times * max(verb.each, 1) for verb, times in verbs if isinstance(verb, Restore))
    return [("saves", saves), ("restores", restores)]


def _shared_file_systems(case: Case, _: Rule) -> Figure:
    places = [(place, dict(run.environment.details).get(RESULTS_ON)) for place, run in case.runs]
    return [(f"{one} on the file system of the data", said and said != OTHER_MOUNT) for one, said in places] or _NO_RUNS


def _number_of_runs(case: Case, _: Rule) -> Figure:
    jobs = [(run.name, run.overrides, run.ranks, run.nodes) for _, run in case.runs]
    return [("runs of one job", jobs.count(jobs[0]))] if jobs else _NO_RUNS


def _gaps(case: Case, _: Rule) -> Figure:
    try:
        begun = [datetime.fromisoformat(run.started).timestamp() for _, run in case.runs]
    except (ValueError, OverflowError, OSError):  # results may be of any source
        return [("when runs started", None)]
    gaps = zip(case.runs, case.runs[1:], pairwise(begun), strict=False)
    return [
        (f"gap before {place} / run before it", (after - before) / max(run.seconds, 1e-9) - 1)
        for (_, run), (place, _), (before, after) in gaps
    ] or _NO_RUNS


#: What a rule may bound.
FIGURES: Final[dict[str, Callable[[Case, Rule], Figure]]] = {
    "data": _data_in_memories,
    "steps": lambda c, _: [(f"steps of {one.name}", steps_of_epoch(one, data, c.ranks)) for one, data in c.training],
    "AU": _mean_au,
    "workload": _name_workload,
    "ranks": lambda c, _: [("ranks", c.ranks)],
    "ranks a node": lambda c, _: [("ranks a node", c.ranks / c.forecast.nodes)],
    "ranks left over": lambda c, _: [("ranks left over", c.ranks % c.forecast.nodes)],
    "changes": _setting_changes,
    "direct I/O": lambda c, _: [(f"`cache off` of {one.name}", one.access.cache == "off") for one, _ in c.training],
    "saved": lambda c, _: _divide_by_memory(c, [(one.checkpoint, one.bytes) for one in c.forecast.states]),
    "cached": _share_in_memory,
    "fsync": lambda c, _: [(f"fsync of {one.name}", one.fsync) for one in c.workload.checkpoints],
    "saves": _count_saves,
    "accelerator": lambda c, _: [
        (f"GiB of {s.checkpoint} a rank", s.bytes / c.ranks / 2**30) for s in c.forecast.states
    ],
    "file systems": _shared_file_systems,
    "runs": _number_of_runs,
    "gaps": _gaps,
}

#: How a figure is bounded: value and bound.
KINDS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "at least": operator.ge,
    "more than": operator.gt,
    "at most": operator.le,
    "one of": lambda value, bound: value in bound,
    "begins with": lambda value, bound: value.startswith(tuple(bound)),
}


# Layouts whose number of files samples do not change.
_FIXED = ("shared file", "file per rank")

# A data set has at most this many files.
_MOST_FILES = 1 << 31


def size_dataset(workload: Workload, dataset: Dataset, needed: float, steps: int) -> dict[str, Any]:
    """Return the least size of a data set that loops read, as `size --json` has it; files are whole.

    `needed` is the least number of bytes, `steps` the least number of steps of each rank in an epoch. `by_memory` and
    `by_steps` are samples and files that either asks for, `bytes` those of the files that keep both, and `define` pairs
    of -D that make the data set so. Raises UsageError for existing files, and if no size keeps both.
    """
    if isinstance(dataset, JoinedDataset):
        raise UsageError(f"data sets `{dataset.name}`: a loop reads them together{HELP}`size` takes one data set")
    if dataset.source:
        text = f"data set `{dataset.name}`: its samples are counted in existing files (`from files`), and cannot be set"
        raise UsageError(f"{text}{HELP}`dliosim check PATTERN --rules mlperf-v3` says if there are enough")
    loops = [loop for loop in loops_of(workload.verbs) if loop.dataset == dataset.name]

    def lasts(made: Dataset) -> bool:
        return all(steps_of_epoch(replace(loop, steps=None), made, workload.job.ranks) >= steps for loop in loops)

    def fills(made: Dataset) -> bool:
        return count_data(made, _file_bytes(workload, made)) >= needed

    first = math.ceil(needed / count_data(_resize(dataset, 1), math.inf))
    by_memory, by_steps = _find_least(dataset, fills, first), _find_least(dataset, lasts, 1)
    made = max(by_memory, by_steps, key=lambda one: one.samples)
    limited = [one for one in loops if one.steps is not None and one.steps < steps]
    return {
        "dataset": dataset.name,
        "bound_by": "memory" if made is by_memory else "steps",
        "by_memory": (by_memory.samples, by_memory.layout.files),
        "by_steps": (by_steps.samples, by_steps.layout.files),
        "bytes": _file_bytes(workload, made),
        "define": [*_define_size(made), *((f"{one.name}.steps", str(steps)) for one in limited)],
    }


def multiply_dataset(dataset: Dataset, times: int) -> list[tuple[str, str]]:
    """Return the pairs of -D for `times` as many samples, in files as full as before if their number is not fixed."""
    full = dataset.samples // dataset.layout.files
    return _define_size(_resize(dataset, times * (full if dataset.layout.kind in _FIXED else dataset.layout.files)))


def _define_size(dataset: Dataset) -> list[tuple[str, str]]:
    """Return the pairs of -D for the samples and files of a data set."""
    layout, pairs = dataset.layout, [(f"{dataset.name}.samples", str(dataset.samples))]
    if layout.kind == "files":
        folders = f" in {layout.folders} folders" if layout.folders > 1 else ""
        pairs.append((f"{dataset.name}.layout", f"{layout.files} files{folders}"))
    return pairs


def count_data(dataset: Dataset, stored: float) -> float:
    """Return the bytes that count for the rule of memory: those of the files, or of the records if these are fewer.

    MLPerf counts records of the mean length: it counts neither a format's own bytes, nor limits of sizes.
    """
    return min(stored, dataset.samples * dataset.size.mean)


def _find_least(dataset: Dataset, holds: Callable[[Dataset], bool], first: int) -> Dataset:
    """Return the data set of the fewest units, from `first` on, for which a rule holds; UsageError if there is none."""
    last = first
    while last <= _MOST_FILES and not holds(_resize(dataset, last)):
        last *= 2
    if last > _MOST_FILES:
        raise UsageError(f"data set `{dataset.name}`: {_MOST_FILES:_} files or samples a file are not enough")
    more = bisect_left(range(first, last), True, key=lambda units: holds(_resize(dataset, units)))
    return _resize(dataset, first + more)


def _resize(dataset: Dataset, units: int) -> Dataset:
    """Return the data set with `units` files as full as before; with fixed files `units` samples in each of them."""
    files = dataset.layout.files
    if dataset.layout.kind in _FIXED:
        return replace(dataset, samples=units * files)
    return replace(dataset, samples=units * -(-dataset.samples // files), layout=replace(dataset.layout, files=units))


def _file_bytes(workload: Workload, dataset: Dataset) -> float:
    """Return the bytes of a data set's files, as the plan of the verb that writes them has them."""
    verbs = (verb for verb, _ in flatten_verbs(workload.verbs) if isinstance(verb, Prepare))
    writer = next((verb for verb in verbs if verb.dataset == dataset.name), Prepare(dataset.name, Access()))
    return forecast_prepare(place_samples(dataset), writer, workload.job.ranks, 1).bytes.total
