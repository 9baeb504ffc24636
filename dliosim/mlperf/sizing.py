"""Sizes of data sets that no cache holds and that last for enough steps, by the figures of the plan."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dliosim.errors import HELP, UsageError
from dliosim.model import Access, Dataset, Prepare, Workload
from dliosim.model.epoch_size import steps_of_epoch
from dliosim.model.verbs import flatten_verbs
from dliosim.plan.forecast.forecast import loops_of
from dliosim.plan.forecast.layout_forecast import place_samples
from dliosim.plan.forecast.prepare_forecast import forecast_prepare

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
        "define": [*define_size(made), *((f"{one.name}.steps", str(steps)) for one in limited)],
    }


def multiply_dataset(dataset: Dataset, times: int) -> Dataset:
    """Return a data set of `times` as many samples, in files as full as before if their number is not fixed."""
    full = dataset.samples // dataset.layout.files
    return _resize(dataset, times * (full if dataset.layout.kind in _FIXED else dataset.layout.files))


def define_size(dataset: Dataset) -> list[tuple[str, str]]:
    """Return the pairs of -D for the samples and files of a data set."""
    pairs = [(f"{dataset.name}.samples", str(dataset.samples))]
    if dataset.layout.kind == "files":
        folders = f" in {dataset.layout.folders} folders" if dataset.layout.folders > 1 else ""
        pairs.append((f"{dataset.name}.layout", f"{dataset.layout.files} files{folders}"))
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
