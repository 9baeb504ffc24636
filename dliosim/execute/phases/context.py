"""The context of every phase of a run: the workload, the ranks, the places of data, and how to run; and its results."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import HELP, DliosimError, ExecutionError, UsageError
from dliosim.execute.mpi.world import World
from dliosim.execute.node.environment import find_mount
from dliosim.execute.store.checkpoint_store import CheckpointStores
from dliosim.execute.store.manifest import resolve_in_root
from dliosim.measure.figures.timeline import Timeline
from dliosim.measure.rank.records import StepLog, VerbRecord
from dliosim.measure.results.phase import LoopPhase, LoopProgress, PartialProgress, PhaseSummary
from dliosim.model import Access, Checkpoint, Dataset, Restore, Split, Stage, Workload
from dliosim.model.verbs import flatten_verbs, list_saved_checkpoints
from dliosim.plan.samples.places import Places

if TYPE_CHECKING:
    from dliosim.execute.backends.modelled_reader import ModelledStorage
    from dliosim.formats.protocols import ExistingFiles


class Progress(Protocol):
    """A display of the progress of a phase, as in `report.progress`; this base class shows nothing."""

    def start(self, phase: str, epoch: int, epochs: int, steps: int, unit: str = "step") -> None:
        """Begin an epoch of `steps` steps, or of what `unit` says."""
        return

    def track_bytes(self, phase: str, total: Callable[[], int]) -> AbstractContextManager[None]:
        """Show a block in which this rank moves `total` bytes without steps; it may be inside an epoch."""
        return nullcontext()

    def tick(self, now_ns: int, step: int, done_bytes: int) -> None:
        """Show that a step or a call is done; cheap when no update is due."""
        return

    def end(self) -> None:
        """End the epoch."""
        return


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a run."""

    #: without files
    null: bool = False
    #: with a check of every byte read
    verify: bool = False


@dataclass(frozen=True, slots=True)
class DatasetFiles:
    """The files of a data set, written or not."""

    #: the data set
    dataset: Dataset
    #: directory of the files
    directory: Path
    #: function from the number of a file to its path below that
    name: Callable[[int], str]

    @property
    def root(self) -> str:
        """Return the root of the data set."""
        return self.dataset.root

    @property
    def count(self) -> int:
        """Return the number of files."""
        return self.dataset.layout.files

    def path(self, file: int) -> Path:
        """Return the path of a file."""
        return self.directory / self.name(file)


@dataclass(frozen=True, slots=True)
class OpenDataset(DatasetFiles):
    """A data set whose samples' places are known."""

    #: places of its samples, and its format
    places: Places
    #: note for the report on how the places were found
    note: str = ""


@dataclass(frozen=True, slots=True)
class LocalCopy:
    """The copy of a data set on this rank's node, complete or not."""

    #: root that it is on
    root: str
    #: its files
    files: DatasetFiles
    #: numbers of the files that are copied, in ascending order; (copied,)
    numbers: NDArray[np.int64]
    #: returns whether it is complete, as far as this rank knows
    is_complete: Callable[[], bool] = lambda: True
    #: returns the bytes that this rank has read so far to make it
    count_bytes: Callable[[], int] = lambda: 0

    @property
    def dataset(self) -> Dataset:
        """Return the data set that it is a copy of."""
        return self.files.dataset

    @property
    def count(self) -> int:
        """Return the number of files that are copied."""
        return len(self.numbers)

    def path(self, place: int) -> Path:
        """Return the path of a copied file by its place in `numbers`."""
        return self.files.path(int(self.numbers[place]))


#: The files of one data set that the ranks of a node read.
ReadFiles = DatasetFiles | LocalCopy


@dataclass(frozen=True, slots=True)
class Session:
    """One run of one workload on one rank."""

    #: the pattern that is run
    workload: Workload
    #: the ranks
    world: World
    #: directory of each root, by its name
    roots: Mapping[str, Path]
    #: how to run
    options: Options
    #: the display of how far the run is
    progress: Progress
    #: data sets whose samples' places are known; `datasets.open_dataset` fills it
    opened: dict[Dataset, OpenDataset] = field(default_factory=dict)
    #: files found for data sets `from files`, by `Dataset.found`; on rank 0 only
    sources: Mapping[str, ExistingFiles] = field(default_factory=dict)
    #: locked directories of checkpoints, on rank 0; the code that made the table releases them
    stores: CheckpointStores = field(default_factory=CheckpointStores)
    #: returns the text of a pattern that prepares a data set; empty if none is kept
    describe: Callable[[Dataset], str] = lambda dataset: ""
    #: returns the error of a verb that a node has no memory for: its number, message, what it needs, what to type
    shortage: Callable[[int, str, str, str], DliosimError] = lambda number, message, why, cure: ExecutionError(
        f"{message} ({why}){HELP}{cure}", "R402"
    )
    #: the described storage on which calls wait, in a run without files
    modelled: ModelledStorage | None = None
    #: times of all steps of this rank; None if they are not kept
    log: StepLog | None = None
    #: the phases so far
    finished: PhaseLog = field(default_factory=lambda: PhaseLog())
    #: copies of data sets on this node, by the names of data sets
    copies: dict[str, LocalCopy] = field(default_factory=dict)

    @property
    def reads_nothing(self) -> bool:
        """Return True if reads take no time."""
        return self.options.null and self.modelled is None

    def files(self, dataset: Dataset) -> DatasetFiles:
        """Return the files of a data set; of one `from files` after it was opened."""
        if dataset.source:
            return self.opened[dataset]
        directory = self.directory(dataset.root, dataset.path, dataset.digest())
        return DatasetFiles(dataset, directory, dataset.file_name)

    def directory(self, root: str, path: str, digest: str) -> Path:
        """Return the directory of data of one description.

        Raises UsageError if the root is unknown, [E208] if the path leaves it.
        """
        if root not in self.roots:
            raise UsageError(f"no place is given for `root {root}`: add --root {root}=DIR")
        return resolve_in_root(self.roots[root], f"{path}/{digest}")

    def copy_directory(self, verb: Stage) -> Path:
        """Return the directory of the copy that a `stage` verb makes on this rank's node. Raises as `directory`.

        It has the name of the node, so that nodes which share the root do not write the same files.
        """
        dataset = self.workload.dataset(verb.dataset)
        node = re.sub(r"[^A-Za-z0-9_.-]", "_", self.world.name)
        # `dliosim verify` looks into directories with the name of a digest alone.
        end = ".share" if verb.holds == "own share" else ".found" if dataset.source else ""
        return self.directory(verb.root, f"staged/{node}/{dataset.path}", (dataset.found or dataset.digest()) + end)

    def place_directory(self, root: str, folder: Path) -> Path:
        """Return the directory of a root, or of the mount below it that a folder or file is on.

        For a missing folder, the nearest existing parent counts.
        """
        directory = self.roots[root]
        try:
            near = next(each for each in (folder, *folder.parents) if each.exists())
            if near.stat().st_dev == directory.stat().st_dev:
                return directory
        except OSError:
            return directory
        mount = find_mount(near).mount_point
        return directory if mount == find_mount(directory).mount_point else Path(mount)

    def place_name(self, root: str, folder: Path) -> str:
        """Return the place of a folder or file: its root, `ROOT at DIR` for a mount, or a described storage."""
        if self.modelled is not None:
            return f"storage {self.modelled.model.name}"
        place = self.place_directory(root, folder)
        return root if place == self.roots[root] else f"{root} at {place}"

    def check_directories(self) -> None:
        """Raise UsageError for a data set or checkpoint whose root is unknown, or whose path leaves it."""
        for dataset in self.workload.datasets:
            if not dataset.source:
                self.directory(dataset.root, dataset.path, dataset.digest())
        for checkpoint in self.workload.checkpoints:
            self.checkpoint_directories(checkpoint)
        for verb in self.workload.stages():
            self.copy_directory(verb)

    def save_directory(self, checkpoint: Checkpoint, split: Split | None = None) -> Path:
        """Return the directory of the checkpoints that ranks of this split save (None: the split of this job)."""
        return self.directory(
            checkpoint.root, checkpoint.path, checkpoint.digest(split or checkpoint.split(self.world.size))
        )

    def drain_directory(self, checkpoint: Checkpoint, split: Split | None = None) -> Path | None:
        """Return the directory that complete checkpoints are drained to; None without `drain to`."""
        digest = checkpoint.digest(split or checkpoint.split(self.world.size))
        return self.directory(checkpoint.drain, checkpoint.path, digest) if checkpoint.drain is not None else None

    def checkpoint_directories(self, checkpoint: Checkpoint, split: Split | None = None) -> list[Path]:
        """Return the directory that ranks of this split save to, and with `drain to` that of the copies."""
        found = (self.save_directory(checkpoint, split), self.drain_directory(checkpoint, split))
        return [base for base in found if base is not None]

    def lock_checkpoints(self) -> None:
        """Lock the checkpoints that this job will save, and those that it will restore.

        Then no other job saves there. For rank 0. Raises ExecutionError [R405] if another job is there before,
        OSError as the calls do.
        """
        workload = self.workload
        for checkpoint in map(workload.checkpoint, list_saved_checkpoints(workload.verbs)):
            for base in self.checkpoint_directories(checkpoint):
                self.stores.open_to_save(base)
        for verb, _ in flatten_verbs(workload.verbs):
            if isinstance(verb, Restore):
                for base in self.checkpoint_directories(workload.checkpoint(verb.checkpoint), verb.written_by):
                    self.stores.open_to_restore(base)

    def make_roots(self) -> None:
        """Make the directories of the roots that the workload uses.

        Raises UsageError if the directory above one is missing: a mistyped path would be made on another file
        system, and that one would be measured.
        """
        for root in sorted(self.workload.roots & self.roots.keys()):
            self.make_root(root)

    def make_root(self, root: str) -> None:
        """Make the directory of a root; raises as `make_roots`."""
        place = self.roots[root]
        if not place.parent.is_dir():
            option = "--dir" if root == "data" else f"--root {root}="
            raise UsageError(f"{option} {place}: there is no {place.parent}; make it first, if that is meant")
        place.mkdir(exist_ok=True)


@dataclass(frozen=True, slots=True)
class Phase:
    """The result of a phase."""

    #: its figures
    summary: PhaseSummary
    #: figures of every rank (`gather_ranks`), if rank 0 has them
    rank_rows: NDArray[np.int64] | None = None
    #: its timeline, if rank 0 has one
    timeline: Timeline | None = None


@dataclass(frozen=True, slots=True)
class RunningLoop:
    """A loop that is running."""

    #: returns its phase of the epochs that are done
    so_far: Callable[[], LoopPhase]
    #: number of epochs; None: time decides
    epochs: int | None


@dataclass(slots=True)
class PhaseLog:
    """The phases of a run so far; another thread of rank 0 may read it at any time."""

    #: phases in the order of the verbs; only appended to, but the place of a save (None) is filled when it is over
    phases: list[Phase | None] = field(default_factory=list)
    #: number of verbs that are over, number of their phases, running loops; only replaced as a whole
    _now: tuple[int, int, tuple[RunningLoop, ...]] = (0, 0, ())
    #: called on rank 0 when an epoch or a verb has ended, between its clocks and those of the next
    keep: Callable[[], None] = lambda: None

    def begin_loops(self, loops: tuple[RunningLoop, ...]) -> None:
        """Note that the current verb is a loop, and its inner loops."""
        self._now = (self._now[0], len(self.phases), loops)

    def end_verb(self) -> None:
        """Note that a verb is over and that `phases` has its phases."""
        self._now = (self._now[0] + 1, len(self.phases), ())
        self.keep()

    def partial_phases(self, signal: str, verbs: int) -> tuple[tuple[PhaseSummary, ...], PartialProgress]:
        """Return the finished phases, the running loops so far, and how much of `verbs` verbs is missing."""
        done, count, loops = self._now
        phases = [phase.summary for phase in self.phases[:count] if phase is not None]
        running = [(loop.so_far(), loop.epochs) for loop in loops]
        progress = (LoopProgress(phase.name, len(phase.epochs), epochs) for phase, epochs in running)
        phases += [phase for phase, _ in running if phase.epochs]
        return tuple(phases), PartialProgress(signal, done, verbs, tuple(progress))


_Hints = tuple[tuple[str, str], ...]


def verb_phase(
    session: Session,
    name: str,
    kind: str,
    record: VerbRecord,
    access: Access | None,
    notes: tuple[str, ...] = (),
    **more: Any,
) -> Phase:
    """Return the phase of a verb, with figures, and `more` of a save or restore, on rank 0 only. Collective."""
    asked, granted = ((), ()) if access is None else share_granted_hints(session.world, access, record.hints)
    from dliosim.measure.figures.summary import summarise_verb  # not all commands run verbs

    verb = summarise_verb(record, session.world)
    if verb is None:
        return Phase(PhaseSummary(name, kind, record.wall_ns * 1e-9))
    from dliosim.measure.results.run_summary import FILE_PHASES

    return Phase(
        FILE_PHASES[kind](
            name,
            kind,
            verb.seconds,
            verb=verb,
            resident_share=verb.resident_share,
            api=access.api if access is not None else None,
            hints_asked=asked,
            hints_granted=granted,
            hint_set=access.hint_set if access is not None else "library",
            notes=notes,
            root=record.root,
            **more,
        )
    )


def share_granted_hints(world: World, access: Access, granted: dict[str, str] | None) -> tuple[_Hints, _Hints]:
    """Return the hints asked for, and those of the first rank that opened a file; none if no rank did. Collective."""
    found = world.broadcast_first(granted)
    return ((), ()) if found is None else (access.hints, tuple(sorted(found.items())))
