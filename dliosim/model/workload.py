"""A whole workload: what a compiler makes of a pattern and a planner needs to know."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

from dliosim.model.checkpoint import Checkpoint
from dliosim.model.dataset import Dataset
from dliosim.model.job import Job
from dliosim.model.verbs import Loop, Prepare, Repeat, Verb


@dataclass(frozen=True, slots=True)
class Expectation:
    """A bound on a figure of one loop: utilization (ratio), throughput (B/s or samples/s) or p99 latency (s)."""

    figure: Literal["utilization", "throughput", "p99"]
    loop: str
    bound: Literal["at least", "at most"]
    value: float
    unit: Literal["ratio", "B/s", "samples/s", "s"]
    text: str


@dataclass(frozen=True, slots=True)
class Workload:
    """A pattern resolved for one job. `pattern` is the text of the main file, `overrides` what -D said."""

    name: str
    title: str
    seed: int
    job: Job
    datasets: tuple[Dataset, ...]
    checkpoints: tuple[Checkpoint, ...]
    verbs: tuple[Verb, ...]
    expectations: tuple[Expectation, ...] = ()
    pattern: str = ""
    overrides: tuple[tuple[str, str], ...] = ()

    def dataset(self, name: str) -> Dataset:
        """The data set of that name; KeyError where there is none."""
        return {dataset.name: dataset for dataset in self.datasets}[name]

    def checkpoint(self, name: str) -> Checkpoint:
        """The checkpoint of that name; KeyError where there is none."""
        return {checkpoint.name: checkpoint for checkpoint in self.checkpoints}[name]

    def missing_prepares(self) -> dict[str, str]:
        """Loops that read a data set which no `prepare` before them writes, and that data set.

        Not of files that are there already.
        """
        found: dict[str, str] = {}
        _find_unprepared(self.verbs, {dataset.name for dataset in self.datasets if dataset.source}, found)
        return found

    def digest(self) -> str:
        """16 hexadecimal digits of all that is done: the same workload and job, the same digest, however spelled."""
        described = _json_value(self)
        for expectation in described["expectations"]:
            del expectation["text"]
        for dataset in described["datasets"]:
            del dataset["counts"]  # `found` stands for these
        for name in ("pattern", "overrides", "title"):
            del described[name]
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]


def _find_unprepared(verbs: Iterable[Verb], prepared: set[str], found: dict[str, str]) -> None:
    for verb in verbs:
        if isinstance(verb, Prepare):
            prepared.add(verb.dataset)
        elif isinstance(verb, Repeat):
            _find_unprepared(verb.body, prepared, found)
        elif isinstance(verb, Loop):
            for loop in (verb, *(evaluation.loop for evaluation in verb.evaluations)):
                if loop.dataset not in prepared:
                    found[loop.name] = loop.dataset


def _json_value(value: Any) -> Any:
    """A value as JSON can hold it; dataclasses with their class, since a barrier and `drop caches` have no fields."""
    if is_dataclass(value):
        content = {each.name: _json_value(getattr(value, each.name)) for each in fields(value)}
        return {"is": type(value).__name__, **content}
    return [_json_value(each) for each in value] if isinstance(value, tuple) else value
