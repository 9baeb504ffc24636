"""Checks of a run of any pattern: its output, its figures, its order, and the files that it leaves."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from dliosim import cli
from dliosim.errors import DliosimError
from dliosim.execute.datasets.discovery import FileFinder
from dliosim.execute.phases.context import Phase
from dliosim.execute.store import checkpoint_store
from dliosim.execute.store.manifest import load_manifest
from dliosim.formats.registry import bind
from dliosim.language.compile import compile_pattern
from dliosim.measure.figures.summary import RANK_COLUMNS
from dliosim.measure.results.phase import LoopPhase, PhaseSummary
from dliosim.measure.results.run_summary import RestorePhase, RunSummary, SavePhase
from dliosim.model import Dataset, Job, JoinedDataset, Loop, Repeat, Verb, Workload
from dliosim.model.counter_rng import key
from dliosim.model.epoch_size import steps_of_epoch
from dliosim.plan.forecast.forecast import forecast
from dliosim.plan.forecast.forecast_types import PhaseForecast
from dliosim.plan.samples.io_requests import Extents
from dliosim.plan.samples.joined_places import JoinedPlaces
from dliosim.plan.samples.places import IndexedPlaces, Places
from dliosim.plan.samples.sample_index import concat_indexes
from dliosim.plan.samples.sample_to_file import sample_sizes
from dliosim.plan.samples.sampler import order_hash, plan_epoch
from dliosim.report.progress.progress_line import ProgressLine
from dliosim.report.reader.results import read_run
from tests.execute.alone import checkpoint_faults
from tests.mpi.forecast_program import Compared, compare
from tests.plan.helpers import placed
from tests.report.test_real_runs import SCHEMA, faults

LOOPS = ("train", "evaluate", "infer")

#: What no run says.
_NEVER = ("Traceback", "fault in dliosim", "error[", "error:")

Hashes = list[tuple[str, list[int]]]


class Examined:
    """One run that ended well: its workload, its results, and what is wrong with them, as lines of text."""

    def __init__(self, pattern: Path, ranks: int, roots: dict[str, Path], output: Path) -> None:
        finder = FileFinder(roots, ProgressLine(None))
        self.ranks, self.roots, self.output = ranks, roots, output
        self.workload: Workload = compile_pattern(pattern, [], Job(ranks), finder)[0]
        self._indexes = {name: concat_indexes(source.indexes) for name, source in finder.sources.items()}
        self.run: RunSummary = read_run(output / "results.json")[0]

    def problems(self, kept: bool) -> Iterator[str]:
        """All that is wrong; `kept` is whether its data were there before."""
        yield from list(faults(json.loads((self.output / "results.json").read_text()), SCHEMA))[:5]
        yield from self._figures()
        yield from self._orders()
        yield from self._verified()
        if kept:
            yield from self._written_again()
        yield from _litter(self.roots.values())
        yield from self._checkpoints()

    # ---- figures --------------------------------------------------------------------------------------------------

    def phases(self) -> Iterator[Phase]:
        """The phases of the run, loops with the rows of their ranks."""
        with h5py.File(self.output / "ranks.h5") as file:
            groups = iter([{name: data[:] for name, data in group.items()} for group in file.values()])
        for summary in self.run.phases:
            columns = next(groups) if isinstance(summary, LoopPhase) and summary.epochs else None
            rows = np.stack([columns[name].T for name in RANK_COLUMNS], axis=-1) if columns else None
            yield Phase(summary, rows)

    def _figures(self) -> Iterator[str]:
        """Return the differences from the exact figures of `plan` (those without `~`)."""
        compared = Compared()
        planned = forecast(self.workload, self._indexes).phases
        phases = list(self.phases())
        for number, phase in enumerate(phases):
            found = phase.summary
            made = isinstance(found, SavePhase) and found.within is not None
            if made or any(note.startswith("kept") for note in found.notes):
                continue
            plans = [
                plan
                for plan in planned
                if (plan.verb, plan.name) == (found.kind, found.name)
                and (not isinstance(found, RestorePhase) or plan.when == found.how)
            ]
            if not plans or any(plan.at_most or plan.at_least for plan in plans):
                continue
            times = sum(_same(found, other.summary) for other in phases) if found.kind in LOOPS else 1
            plans = [_asked(replace(plan, times=plan.times // times)) for plan in plans]
            if any(note.startswith("epochs from ") for note in found.notes):  # then the files of the copies are opened
                plans = [replace(plan, opens=replace(plan.opens, estimated=True)) for plan in plans]
            if found.kind in LOOPS and any(one.source for one in self._datasets_of(found)):
                phase = replace(phase, rank_rows=_of_samples(phase.rank_rows))
            compare(plans, phase, compared, f"phase {number}, {found.kind} {found.name}")
        yield from compared.differ

    def _verified(self) -> Iterator[str]:
        """Bytes that were read and not checked, though all should be: around samples of `raw` there is nothing."""
        for phase in self.run.loops if self.run.verify else ():
            unchecked = sum(epoch.unchecked_bytes for epoch in phase.epochs)
            if unchecked and all(one.format == "raw" for one in self._datasets_of(phase)):
                yield f"{phase.kind} {phase.name}: {unchecked} bytes were not checked"

    def _written_again(self) -> Iterator[str]:
        """Data sets that were there, and are not called kept."""
        for phase in self.run.phases:
            if phase.kind == "prepare" and not any(note.startswith("kept") for note in phase.notes):
                yield f"prepare {phase.name}: written again, though it was there"

    def _datasets_of(self, phase: PhaseSummary) -> tuple[Dataset, ...]:
        loops = (
            one for loop in _loops(self.workload.verbs) for one in (loop, *(each.loop for each in loop.evaluations))
        )
        return self.workload.dataset(next(loop.dataset for loop in loops if loop.name == phase.name)).members

    # ---- order ----------------------------------------------------------------------------------------------------

    def hashes(self) -> Hashes:
        """Order hashes of the epochs of each run of each loop; none for a loop that time may end."""
        names = set()
        for loop in _loops(self.workload.verbs):
            ended = [loop] if loop.seconds is not None else []
            ended += [one.loop for one in loop.evaluations if ended or one.loop.seconds is not None]
            names |= {one.name for one in ended}
        return [
            (phase.name, [] if phase.name in names else [epoch.order_hash for epoch in phase.epochs])
            for phase in self.run.phases
            if isinstance(phase, LoopPhase)
        ]

    def _orders(self) -> Iterator[str]:
        """Orders that are not as planned, and plans that break a rule."""
        found = self.hashes()
        expected = list(self._expected())
        if [name for name, _ in found] != [loop.name for loop, _, _ in expected]:
            yield f"loops {[name for name, _ in found]}, not {[loop.name for loop, _, _ in expected]}"
            return
        for (name, hashes), (loop, salt, epochs) in zip(found, expected, strict=True):
            dataset = self.workload.dataset(loop.dataset)
            unknown = any(bind(one).needs_index and not one.found for one in dataset.members)
            if loop.arrivals is not None or not hashes or unknown:
                continue
            for epoch in range(epochs):
                plans = self._plans(loop, dataset, epoch)
                yield from (f"{name}, epoch {epoch}: {wrong}" for wrong in _shares(loop, dataset, plans))
                places = self._places(dataset)
                wanted = sum(_order(rank, plan, places, epoch, salt) for rank, plan in enumerate(plans)) % 2**64
                if hashes[epoch : epoch + 1] != [wanted]:
                    yield f"{name}, epoch {epoch}: not in the order that was planned"

    def _expected(self) -> Iterator[tuple[Loop, int, int]]:
        """Loops in the order of their phases, the key of their hashes, and the number of epochs of each."""
        for ordinal, loop in enumerate(_loops(self.workload.verbs)):
            yield loop, ordinal, loop.epochs
            for number, one in enumerate(loop.evaluations):
                yield one.loop, (number + 1 << 32) + ordinal, one.loop.epochs * (loop.epochs // one.every)

    def _plans(self, loop: Loop, dataset: Dataset, epoch: int) -> list[Extents]:
        places = self._places(dataset)
        return [plan_epoch(loop, places, Job(self.ranks), rank, epoch) for rank in range(self.ranks)]

    def _places(self, dataset: Dataset) -> Places:
        if isinstance(dataset, JoinedDataset):
            return JoinedPlaces(dataset, tuple(map(self._places, dataset.joined)))
        index = self._indexes.get(dataset.found)
        return placed(dataset) if index is None else IndexedPlaces(bind(dataset), index)

    # ---- checkpoints ----------------------------------------------------------------------------------------------

    def _checkpoints(self) -> Iterator[str]:
        """Return the faults of those that are there."""
        for kept in self.workload.checkpoints:
            for root in {kept.root, kept.drain} - {None}:
                for base in (self.roots[root] / kept.path).glob("*"):
                    yield from _saved(base)


def _saved(base: Path) -> Iterator[str]:
    numbers = checkpoint_store.checkpoint_numbers(base)
    names = sorted(entry.name for entry in base.iterdir())
    if names != sorted(f"{number:06d}" for number in numbers):
        yield f"{base}: {names}, and not complete checkpoints alone"
    for number in numbers:
        directory = base / f"{number:06d}"
        try:
            wrong = load_manifest(directory).find_size_fault(directory)
            wrong = wrong or "".join(checkpoint_faults(directory))
        except ValueError as error:
            wrong = f"{error}"
        if wrong:
            yield f"{directory}: {wrong}"


def _asked(plan: PhaseForecast) -> PhaseForecast:
    """The plan with its bytes as an estimate where calls move more than those asked for: whole pages."""
    if plan.amplification is None:
        return plan
    return replace(plan, bytes=replace(plan.bytes, estimated=True))


def _of_samples(rows: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
    """The rows with the bytes of samples where those of calls stand, which `plan` does not say of files that are there.

    Where a unit holds several samples and is read whole, it counts each sample's part.
    """
    if rows is None:
        return None
    rows = rows.copy()
    rows[:, :, RANK_COLUMNS.index("bytes_moved")] = rows[:, :, RANK_COLUMNS.index("bytes")]
    return rows


def _same(one: PhaseSummary, other: PhaseSummary) -> bool:
    return (one.kind, one.name) == (other.kind, other.name)


def _loops(verbs: Sequence[Verb]) -> Iterator[Loop]:
    for verb in verbs:
        if isinstance(verb, Loop):
            yield verb
        elif isinstance(verb, Repeat):
            for _ in range(verb.count):
                yield from _loops(verb.body)


def _order(rank: int, plan: Extents, places: Places, epoch: int, salt: int) -> int:
    sizes = plan.length.copy()
    for member, rows in places.split_rows(plan.sample):
        if not member.places.dataset.source:
            sizes[rows] = sample_sizes(member.places.dataset, plan.sample[rows] - member.first_sample)
    steps = len(plan.step_start) - 1
    return order_hash(rank, replace(plan, length=sizes), 0, steps, epoch, key(salt, places.dataset.name))


def _shares(loop: Loop, dataset: Dataset, plans: Sequence[Extents]) -> Iterator[str]:
    """Samples that come too often or too seldom in an epoch, and ranks with other numbers of steps."""
    if len({len(plan.step_start) for plan in plans}) != 1:
        yield "ranks have other numbers of steps"
    if isinstance(dataset, JoinedDataset):
        yield from _joined_shares(dataset, plans)
        if dataset.sources.weights:
            return  # how often a sample may come follows from the shares: tests/plan/samples/test_joined_places.py
    each = [plan.sample[:: dataset.rows] for plan in plans]
    capped = loop.steps is not None and loop.steps <= steps_of_epoch(replace(loop, steps=None), dataset, len(plans))
    for samples in each if loop.shard == "off" else [np.concatenate(each)]:
        count = np.bincount(samples, minlength=dataset.samples)
        if len(count) > dataset.samples:
            yield "samples that there are not"
        if loop.last_batch != "pad" and count.max() > 1:
            yield "a sample comes twice"
        if loop.last_batch != "drop" and not capped and count.min() < 1:
            yield "a sample is left out"


def _joined_shares(dataset: JoinedDataset, plans: Sequence[Extents]) -> Iterator[str]:
    """Return other samples of one data set than of another, or samples of a mixture that come too often."""
    first = np.cumsum([0, *(one.samples for one in dataset.joined)])
    for plan in plans if not dataset.sources.weights else ():
        numbers = plan.sample.reshape(-1, dataset.rows) - first[:-1]
        if (numbers != numbers[:, :1]).any():
            yield "a step has other samples of one data set than of another"
    samples = np.concatenate([plan.sample for plan in plans])
    if len(samples) and samples.max() >= first[-1]:
        yield "samples that there are not"


def _litter(roots: Sequence[Path]) -> Iterator[str]:
    for root in roots:
        yield from (f"{path} was left" for path in root.rglob("*.partial"))


def said_wrong(said: str) -> list[str]:
    """Lines that no run says."""
    return [line for line in said.splitlines() if any(word in line for word in _NEVER)]


def looked_at(pattern: Path, ranks: int, roots: dict[str, Path], output: Path) -> Iterator[str]:
    """Return the faults of the commands that read a pattern or results: each must end well."""
    places = ["--dir", f"{roots['data']}"]
    commands = [
        ["check", f"{pattern}", "--ranks", f"{ranks}", *places],
        ["plan", f"{pattern}", "--ranks", f"{ranks}", "--mtbf", "4 h", *places],
        ["report", f"{output}"],
    ]
    for command in commands:
        status, said = quietly(command)
        if status or said_wrong(said):
            yield f"{command[0]} ended with {status}: {said}"
    status, said = quietly(["explain", f"{pattern}", "--ranks", f"{ranks}", *places])
    if status:
        yield f"explain ended with {status}: {said}"
        return
    again = pattern.with_suffix(".explained.dlio")
    again.write_text(said)
    try:
        first, second = (
            compile_pattern(path, [], Job(ranks), FileFinder(roots, ProgressLine(None)))[0] for path in (pattern, again)
        )
    except DliosimError as error:
        yield f"what explain writes is refused: {error}"
        return
    if first.digest() != second.digest():
        yield "what explain writes is another workload"


def quietly(command: Sequence[str]) -> tuple[int, str]:
    """The status of a command line without MPI, and what it says."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        status = cli.main(command)
    return status, said.getvalue()
