"""What every phase of a run needs: the workload, the ranks, where data lie, and how to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import UsageError
from dliosim.execute.mpi.world import World
from dliosim.execute.store.locking import LockTable
from dliosim.execute.store.manifest import resolve_in_root
from dliosim.measure.phase import LoopProgress, PartialProgress, PhaseSummary
from dliosim.measure.timeline import Timeline
from dliosim.model import Checkpoint, Dataset, Loop, Restore, Save, Split, Workload
from dliosim.model.verbs import flatten_verbs
from dliosim.plan.samples.sample_index import Places

if TYPE_CHECKING:
    from dliosim.execute.datasets.discovery import ExistingFiles


class Progress(Protocol):
    """Somebody who wants to know how far a phase is; see `report.progress`."""

    def start(self, phase: str, epoch: int, epochs: int, steps: int) -> None:
        """A new epoch begins."""
        ...

    def track_bytes(self, phase: str, total: Callable[[], int]) -> AbstractContextManager[None]:
        """A block in which this rank writes or reads bytes (`total` of them) without steps; may lie in an epoch."""
        ...

    def tick(self, now_ns: int, step: int, done_bytes: int) -> None:
        """A step or a call is done; cheap when nothing is due."""
        ...

    def end(self) -> None:
        """The epoch is over."""
        ...


@dataclass(frozen=True, slots=True)
class Options:
    """How to run: without I/O (`null`), with every byte read checked (`verify`)."""

    null: bool = False
    verify: bool = False


@dataclass(frozen=True, slots=True)
class Session:
    """One run of one workload on one rank.

    `places` says where samples of each data set lie, as far as is known. `sources` has, on rank 0, the files that were
    found for data sets `from files` by `Dataset.found`, and `names` their names on every rank. `index_notes` says what
    reading the indexes of a data set's files took. `locks` has, on
    rank 0, the directories of checkpoints that the run holds; who made them releases them. `finished` is what the run
    has come to so far.
    """

    workload: Workload
    world: World
    roots: Mapping[str, Path]
    options: Options
    progress: Progress
    places: dict[str, Places] = field(default_factory=dict)
    sources: Mapping[str, ExistingFiles] = field(default_factory=dict)
    names: dict[str, Callable[[int], str]] = field(default_factory=dict)
    index_notes: dict[str, str] = field(default_factory=dict)
    locks: LockTable = field(default_factory=LockTable)
    finished: PhaseLog = field(default_factory=lambda: PhaseLog())

    def files(self, dataset: Dataset) -> tuple[Path, Callable[[int], str]]:
        """Where the files of a data set lie, and the path of each below that."""
        if dataset.source:
            return self.roots[dataset.root], self.names[dataset.name]
        return self.directory(dataset.root, dataset.path, dataset.digest()), dataset.file_name

    def directory(self, root: str, path: str, digest: str) -> Path:
        """Where data of one description lie; UsageError if the root is unknown or the path leaves it."""
        if root not in self.roots:
            raise UsageError(f"no place is given for `root {root}`: add --root {root}=DIR")
        return resolve_in_root(self.roots[root], f"{path}/{digest}")

    def check_directories(self) -> None:
        """Raise UsageError for a data set or checkpoint whose root is unknown, or whose path leaves it."""
        for dataset in self.workload.datasets:
            if not dataset.source:
                self.directory(dataset.root, dataset.path, dataset.digest())
        for checkpoint in self.workload.checkpoints:
            self.save_directory(checkpoint)
            self.drain_directory(checkpoint)

    def save_directory(self, checkpoint: Checkpoint, split: Split | None = None) -> Path:
        """Where the checkpoints lie that ranks split so save (None: as this job's are)."""
        return self.directory(
            checkpoint.root, checkpoint.path, checkpoint.digest(split or checkpoint.split(self.world.size))
        )

    def drain_directory(self, checkpoint: Checkpoint, split: Split | None = None) -> Path | None:
        """Where complete ones are copied to, if they are."""
        digest = checkpoint.digest(split or checkpoint.split(self.world.size))
        return self.directory(checkpoint.drain, checkpoint.path, digest) if checkpoint.drain is not None else None

    def lock_checkpoints(self) -> None:
        """Keep other jobs from the checkpoints that this one will save, and from saving those that it will restore.

        For rank 0. Raises ExecutionError [R405] where another job is there before, OSError as the calls do.
        """
        saved, restored = set(), []
        for verb, _ in flatten_verbs(self.workload.verbs):
            if isinstance(verb, Save):
                saved.add(verb.checkpoint)
            elif isinstance(verb, Loop):
                saved |= {cadence.checkpoint for cadence in verb.checkpoints}
            elif isinstance(verb, Restore):
                restored.append(verb)
        for checkpoint in map(self.workload.checkpoint, sorted(saved)):
            for base in (self.save_directory(checkpoint), self.drain_directory(checkpoint)):
                if base is not None:
                    self.locks.lock_to_save(base)
        for verb in restored:
            checkpoint = self.workload.checkpoint(verb.checkpoint)
            for base in (
                self.save_directory(checkpoint, verb.written_by),
                self.drain_directory(checkpoint, verb.written_by),
            ):
                if base is not None:
                    self.locks.lock_to_restore(base)

    def make_roots(self) -> None:
        """Make the directories under which the workload's data lie.

        UsageError where the directory above one is missing: a mistyped path would be made on another file system, and
        that one measured.
        """
        used = {dataset.root for dataset in self.workload.datasets}
        used |= {checkpoint.root for checkpoint in self.workload.checkpoints}
        used |= {checkpoint.drain for checkpoint in self.workload.checkpoints if checkpoint.drain is not None}
        for root in sorted(used):
            place = self.roots[root]
            if not place.parent.is_dir():
                option = "--dir" if root == "data" else f"--root {root}="
                raise UsageError(f"{option} {place}: there is no {place.parent}; make it first, if that is meant")
            place.mkdir(exist_ok=True)


@dataclass(frozen=True, slots=True)
class Phase:
    """What a phase gave: its figures, and those of every rank (`gather_ranks`) and its course where rank 0 has them."""

    summary: PhaseSummary
    rank_rows: NDArray[np.int64] | None = None
    timeline: Timeline | None = None


@dataclass(frozen=True, slots=True)
class RunningLoop:
    """A loop that runs: `so_far` makes its phase of the epochs that are done, of `epochs` (None: time decides)."""

    so_far: Callable[[], PhaseSummary]
    epochs: int | None


@dataclass(slots=True)
class PhaseLog:
    """What a run has come to, which another thread of rank 0 may look at whenever it likes.

    `phases` is only added to, and the place of a save is filled when that is over. `_now` is replaced as a whole: how
    many verbs are over, how many of `phases` are theirs, and the loops that run.
    """

    phases: list[Phase | None] = field(default_factory=list)
    _now: tuple[int, int, tuple[RunningLoop, ...]] = (0, 0, ())

    def begin_loops(self, loops: tuple[RunningLoop, ...]) -> None:
        """A verb is a loop, with those inside it."""
        self._now = (self._now[0], len(self.phases), loops)

    def end_verb(self) -> None:
        """A verb is over, and `phases` has what it gave."""
        self._now = (self._now[0] + 1, len(self.phases), ())

    def partial_phases(self, signal: str, verbs: int) -> tuple[tuple[PhaseSummary, ...], PartialProgress]:
        """The phases that are over and the epochs done of loops that run, and what is missing of so many verbs."""
        done, count, loops = self._now
        phases = [phase.summary for phase in self.phases[:count] if phase is not None]
        running = [(loop.so_far(), loop.epochs) for loop in loops]
        progress = (LoopProgress(phase.name, len(phase.epochs), epochs) for phase, epochs in running)
        phases += [phase for phase, _ in running if phase.epochs]
        return tuple(phases), PartialProgress(signal, done, verbs, tuple(progress))
