"""Sizes of data sets that no cache holds and that last for enough steps, by the figures of the plan."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace

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


@dataclass(frozen=True, slots=True)
class DatasetSize:
    """The least size of a data set that keeps both rules; its files are whole."""

    dataset: str  #: name of the data set
    bound_by: str  #: `memory` or `steps`: the rule that asks for more
    by_memory: tuple[int, int]  #: samples and files that the rule of the nodes' memory asks for
    by_steps: tuple[int, int]  #: samples and files that the rule of the steps of an epoch asks for
    bytes: float  #: bytes of the files that keep both, as `plan` has them
    define: tuple[str, ...]  #: values of `-D` that make the pattern's data set this one


def size_dataset(workload: Workload, dataset: Dataset, needed: float, steps: int) -> DatasetSize:
    """Return the least size of a data set that loops read.

    `needed` is the least number of bytes, `steps` the least number of steps of each rank in an epoch. Raises UsageError
    for existing files, and if no size keeps both.
    """
    if dataset.source:
        text = f"data set `{dataset.name}`: its samples are counted in existing files (`from files`), and cannot be set"
        raise UsageError(f"{text}{HELP}`dliosim check PATTERN --rules mlperf-v3` says if there are enough")
    loops = [loop for loop in loops_of(workload.verbs) if loop.dataset == dataset.name]

    def lasts(units: int) -> bool:
        made = _resize(dataset, units)
        return all(steps_of_epoch(replace(loop, steps=None), made, workload.job.ranks) >= steps for loop in loops)

    def fills(units: int) -> bool:
        made = _resize(dataset, units)
        return count_data(made, _file_bytes(workload, made)) >= needed

    first = math.ceil(needed / count_data(_resize(dataset, 1), math.inf))
    by_memory, by_steps = (_resize(dataset, _find_least(dataset, *one)) for one in ((fills, first), (lasts, 1)))
    made = max(by_memory, by_steps, key=lambda one: one.samples)
    define = define_size(made)
    define += [f"{one.name}.steps={steps}" for one in loops if one.steps is not None and one.steps < steps]
    by = [(one.samples, one.layout.files) for one in (by_memory, by_steps)]
    bound = "memory" if made is by_memory else "steps"
    return DatasetSize(dataset.name, bound, by[0], by[1], _file_bytes(workload, made), tuple(define))


def multiply_dataset(dataset: Dataset, times: int) -> Dataset:
    """Return a data set of `times` as many samples, in files as full as before if their number is not fixed."""
    full = dataset.samples // dataset.layout.files
    return _resize(dataset, times * (full if dataset.layout.kind in _FIXED else dataset.layout.files))


def define_size(dataset: Dataset) -> list[str]:
    """Return the values of `-D` for the samples and files of a data set."""
    folders = f" in {dataset.layout.folders} folders" if dataset.layout.folders > 1 else ""
    files = [f"{dataset.name}.layout={dataset.layout.files} files{folders}"] * (dataset.layout.kind == "files")
    return [f"{dataset.name}.samples={dataset.samples}", *files]


def count_data(dataset: Dataset, stored: float) -> float:
    """Return the bytes that count for the rule of memory: those of the files, or of the records if these are fewer.

    MLPerf counts records of the mean length: it counts neither a format's own bytes, nor limits of sizes.
    """
    return min(stored, dataset.samples * dataset.size.mean)


def _find_least(dataset: Dataset, holds: Callable[[int], bool], first: int) -> int:
    """Return the fewest units of `_resize`, from `first` on, for which a rule holds; UsageError if there are none."""
    last = first
    while last > _MOST_FILES or not holds(last):
        if last > _MOST_FILES:
            raise UsageError(f"data set `{dataset.name}`: {_MOST_FILES:_} files or samples a file are not enough")
        last *= 2
    return first + bisect_left(range(first, last), True, key=holds)


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
