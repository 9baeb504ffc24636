"""Workloads: the result of compiling a pattern, and the input of planning it."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from dliosim.hashes import sha256
from dliosim.model.checkpoint import Checkpoint
from dliosim.model.dataset import Dataset
from dliosim.model.expectation import Expectation
from dliosim.model.job import Job
from dliosim.model.joined import Sources, find_dataset
from dliosim.model.verbs import Convert, Loop, Prepare, Stage, Verb, flatten_verbs, names_read


@dataclass(frozen=True, slots=True)
class Workload:
    """A pattern resolved for one job."""

    name: str  #: name of the workload
    title: str  #: title in the pattern
    seed: int  #: of all random streams
    job: Job  #: ranks and nodes
    datasets: tuple[Dataset, ...]  #: data sets of the pattern
    checkpoints: tuple[Checkpoint, ...]  #: checkpoints of the pattern
    verbs: tuple[Verb, ...]  #: verbs in order
    expectations: tuple[Expectation, ...] = ()  #: `expect` lines
    pattern: str = ""  #: text of the main file
    overrides: tuple[tuple[str, str], ...] = ()  #: pairs of -D (name, phrase)
    scale: int = 1  #: parameter `scale`, by which the published size is divided
    accelerator: str = ""  #: parameter `accelerator`, whose compute time the loops have

    def dataset(self, name: str | Sources) -> Dataset:
        """Return the data set of a name, or several as one; KeyError if there is none."""
        return find_dataset(name, {dataset.name: dataset for dataset in self.datasets})

    def read_dataset(self, loop: Loop) -> Dataset | None:
        """Return the data set that a loop reads; None for a loop that reads nothing."""
        return self.dataset(loop.dataset) if loop.dataset else None

    def checkpoint(self, name: str) -> Checkpoint:
        """Return the checkpoint of a name; KeyError if there is none."""
        return {checkpoint.name: checkpoint for checkpoint in self.checkpoints}[name]

    @property
    def roots(self) -> set[str]:
        """Names of the roots that the workload may use, also those of a `stage` with `copy off`."""
        return self.run_roots | {verb.root for verb, _ in flatten_verbs(self.verbs) if isinstance(verb, Stage)}

    @property
    def run_roots(self) -> set[str]:
        """Names of the roots without which the workload cannot run."""
        used = {dataset.root for dataset in self.datasets} | {verb.root for verb in self.stages()}
        return used | {root for one in self.checkpoints for root in (one.root, one.drain) if root is not None}

    def stages(self) -> list[Stage]:
        """Return the `stage` verbs that copy, each once."""
        return [verb for verb, _ in flatten_verbs(self.verbs) if isinstance(verb, Stage) and verb.copy != "off"]

    def missing_prepares(self) -> dict[str, str]:
        """Return {loop or `convert`: data set} for those whose data set no `prepare` before them writes.

        Data sets of files that exist already are left out.
        """
        found: dict[str, str] = {}
        prepared = {dataset.name for dataset in self.datasets if dataset.source}
        for verb, _ in flatten_verbs(self.verbs):
            if isinstance(verb, Convert) and verb.source not in prepared:
                found[verb.title] = verb.source
            if isinstance(verb, Prepare):
                prepared.add(verb.dataset)
            elif isinstance(verb, Loop):
                for loop in (verb, *(evaluation.loop for evaluation in verb.evaluations)):
                    missing = [name for name in names_read(loop) if name not in prepared]
                    if missing:
                        found[loop.name] = missing[0]
        return found

    def digest(self) -> str:
        """Return 16 hexadecimal digits of the whole workload; the same workload and job have the same digest."""
        described = _json_value(self)
        for expectation in described["expectations"]:
            del expectation["text"]
        for dataset in described["datasets"]:
            del dataset["counts"]  # `found` stands for these
        for name in ("pattern", "overrides", "title", "scale", "accelerator"):
            del described[name]
        return sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]


def _json_value(value: Any) -> Any:
    """Return a value for JSON; dataclasses with their class, since a barrier and `drop caches` have no fields."""
    if is_dataclass(value):
        content = {each.name: _json_value(getattr(value, each.name)) for each in fields(value) if each.compare}
        return {"is": type(value).__name__, **content}
    return [_json_value(each) for each in value] if isinstance(value, tuple) else value
