"""Stage data sets: each node copies files to a root of its own, and a manifest written last marks its copy as complete.

The ranks of a node deal the files among themselves, so that the node reads each file once. A copy in the background is
made by a thread of each rank, which has communicators of its own.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from threading import Event
from time import perf_counter_ns
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import ExecutionError, UsageError
from dliosim.execute.backends.contract import allocate
from dliosim.execute.checkpoints.background import BackgroundTask, Worker, require_threads
from dliosim.execute.datasets.prepare import open_prepared
from dliosim.execute.io_errors import wrap_call
from dliosim.execute.mpi.world import World
from dliosim.execute.node.environment import require_space
from dliosim.execute.phases.context import DatasetFiles, LocalCopy, OpenDataset, Phase, Session, verb_phase
from dliosim.execute.safe_open import CREATE_OR_TRUNCATE, open_for_read, read_pieces
from dliosim.execute.store import manifest
from dliosim.execute.store.copy_file import copy_file
from dliosim.formats.registry import bind
from dliosim.hashes import sha256
from dliosim.measure.rank.records import VerbRecord
from dliosim.model import Stage
from dliosim.model.epoch_size import steps_of_epoch
from dliosim.model.verbs import loops_after
from dliosim.plan.forecast.prepare_forecast import COPY_CALL
from dliosim.plan.samples.sampler import plan_epoch

#: Files whose size is checked before a copy that is there is trusted.
_PROBES = 64

#: What a manifest says that must be the same in a copy that is kept; the digest of existing files is of their names,
#: sizes and samples.
_SAME = ("copied", "bytes", "samples", "files")

#: Units in which file systems keep the time of a change; ns.
_TIME_UNITS = (1, 100, 1_000, 1_000_000_000)

#: Steps whose samples are planned at a time to find the files that a node reads.
_STEPS = 1 << 16


@dataclass(slots=True)
class NodeCopy:
    """One execution of a `stage` verb on this rank; `copy` may be called on another thread than the rest."""

    #: the run
    session: Session
    #: the verb
    verb: Stage
    #: the data set that is copied
    data: OpenDataset
    #: its copy on this node
    local: LocalCopy
    #: what this rank has copied
    record: VerbRecord
    #: sentences for the report
    notes: tuple[str, ...] = ()
    #: the task of a copy in the background
    task: BackgroundTask | None = None
    #: bytes that this rank has read to compare files
    compared: int = 0
    #: set when the run has failed, and the copy is not needed
    stopped: Event = field(default_factory=Event)

    @property
    def own(self) -> list[int]:
        """Return the files that this rank copies, each in its turn among the ranks of the node."""
        node = self.session.world.node
        mine: list[int] = self.local.numbers[node.rank :: node.size].tolist()
        return mine

    def copy(self, session: Session) -> None:
        """Copy what this node does not have, and complete the copy. Collective.

        `session` has the communicators of the calling threads. Raises DliosimError on every rank, or on this one alone
        if only it could not copy.
        """
        world, record, begun = session.world, self.record, perf_counter_ns()
        flags = np.array([world.run_on_all(partial(self._lead, self._begin))], np.int64)
        world.allreduce_on_node(flags, "max")
        if not (kept := bool(flags[0])):
            with _name_node(world), session.progress.track_bytes(f"stage {self.verb.dataset}", self._own_bytes):
                self._copy_own(session)
        amounts, copying = np.array([record.bytes], np.int64), np.array([perf_counter_ns() - begun], np.int64)
        world.barrier()
        world.allreduce_on_node(amounts, "sum")
        world.allreduce_on_node(copying, "max")
        stopped = world.allreduce_number(self.stopped.is_set(), "max")
        if not stopped:
            world.run_on_all(partial(self._lead, self._complete) if not kept else lambda: False)
        times = np.array([perf_counter_ns() - begun], np.int64)
        world.allreduce_on_node(times, "max")
        if not kept:
            record.wall_ns, record.node_rate = int(times[0]), int(amounts[0]) * 1_000_000_000 // int(copying[0])
        copied = world.allreduce_number(not kept and world.node.rank == 0, "sum")
        held = f"{world.nodes - copied} of {world.nodes} nodes"
        self.notes += (f"kept: {held} have a complete copy of the same description",) * (copied < world.nodes)

    def _lead(self, action: Callable[[], bool]) -> bool:
        """Return the result of an action of the first rank of the node, False on the others."""
        with _name_node(self.session.world):
            return self.session.world.node.rank == 0 and action()

    def _begin(self) -> bool:
        """Return whether this node has a complete copy; if not, make its directories, with room for the files.

        Raises ExecutionError [R405] if another job makes the copy, or reads one that must be made again.
        """
        directory, verb, data = self.local.files.directory, self.verb, self.data
        with wrap_call("mkdir", self.session.roots[verb.root]):
            self.session.make_root(verb.root)
        was_whole = self._is_whole()
        note = self._lock(writes=not was_whole)
        if self._is_whole():  # another job may have completed the copy before this one had the lock
            self._lock(writes=False)
            return True
        if was_whole:
            self._lock(writes=True)
        self.notes += (note,) * bool(note)
        manifest.remove_manifest(directory)
        for folder in self._folders():
            manifest.make_directory(folder, exist_ok=True)
            if folder.is_symlink():
                raise UsageError(f"{folder} is a symbolic link: data are written only to real directories", "E208")
        needed = int(data.places.file_sizes(self.local.numbers).sum())
        present = 0
        for place in range(len(self.local.numbers)):
            there = _find_status(self.local.path(place))
            present += there.st_blocks * 512 if there is not None else 0
        with wrap_call("statvfs", directory):
            require_space(directory, needed - present, f"the copy of data set `{verb.dataset}`")
        return False

    def _lock(self, writes: bool) -> str:
        """Lock the directory of the copy, to write it or to read it; return a note about the lock. Raises [R405]."""
        directory = self.local.files.directory
        with wrap_call("lock", directory):
            return self.session.stores.lock_copy(directory, writes)

    def _is_whole(self) -> bool:
        """Return whether the manifest of a complete copy is there, and a few of its files are as those they are of."""
        directory, numbers, about = self.local.files.directory, self.local.numbers, self._describe()
        found = manifest.find_manifest(directory, about["digest"])
        if found is None or not manifest.is_durable(found) or any(found.get(key) != about[key] for key in _SAME):
            return False
        some = numbers[:: max(len(numbers) // _PROBES, 1)]
        planned: list[int] = self.data.places.file_sizes(some).tolist()
        for file, size in zip(some.tolist(), planned, strict=True):
            target = _find_status(self.local.files.path(file))
            if target is None or target.st_size != size:
                return False
            if not all(_is_copy(_find_status(of), _find_status(to)) for of, to in self._pairs(file)):
                return False
        return True

    def _folders(self) -> list[Path]:
        return sorted({self.local.path(place).parent for place in range(len(self.local.numbers))})

    def _describe(self) -> dict[str, Any]:
        """Return what the manifest says: the data set's own, for a copy of all files."""
        dataset, numbers = self.data.dataset, self.local.numbers
        all_files = len(numbers) == dataset.layout.files
        return {
            "name": dataset.name,
            "digest": dataset.found or dataset.digest(),
            "files": dataset.layout.files,
            "samples": dataset.samples,
            "bytes": self.data.places.total_bytes,
            "pattern": self.session.describe(dataset).splitlines() if not dataset.source else [],
            "copied": "all" if all_files else sha256(numbers.tobytes()).hexdigest(),
        }

    def _own_bytes(self) -> int:
        return int(self.data.places.file_sizes(np.array(self.own, np.int64)).sum())

    def _copy_own(self, session: Session) -> None:
        """Copy the files of this rank. Raises DliosimError on this rank alone."""
        record, data, own = self.record, self.data, self.own
        buffer = allocate(COPY_CALL if own else 0)
        writes: list[int] = []

        def count(got: int, read_ns: int, write_ns: int) -> None:
            record.source_ns += read_ns
            record.call_ns += write_ns
            record.bytes += got
            record.source_calls += 1
            writes.append(write_ns)
            session.progress.tick(perf_counter_ns(), 0, record.bytes)

        for file in own:
            for place, (of, to) in enumerate(self._pairs(file)):
                found = _find_status(of)
                if place and found is None and data.dataset.source:  # existing files may have no sidecars
                    with wrap_call("unlink", to):
                        to.unlink(missing_ok=True)
                    continue
                runs = self._runs((found.st_size if found else 0) if place else data.places.file_size(file))
                record.file_sync_ns += copy_file(of, to, runs, buffer, count, self.verb.fsync, CREATE_OR_TRUNCATE)
                if session.options.verify:
                    record.content_ns += self._compare_files(of, to)
                if self.stopped.is_set():
                    return
                with suppress(OSError):  # without its time the copy is made again by the next run
                    if found is not None:  # as it was before, if it changes meanwhile
                        os.utime(to, ns=(found.st_atime_ns, found.st_mtime_ns), follow_symlinks=False)
                record.opens, record.source_opens = record.opens + 1, record.source_opens + 1
            record.files += 1
            record.call_latency.add(writes)
            writes.clear()
        record.calls, record.bytes_moved, record.source_bytes = record.source_calls, record.bytes, record.bytes

    def _pairs(self, file: int) -> list[tuple[Path, Path]]:
        """Return a file and its sidecars, each with its copy."""
        source, target = self.data.path(file), self.local.files.path(file)
        endings = [f".{one}" for one in bind(self.data.dataset).sidecars]
        return [(source, target), *((source.with_suffix(one), target.with_suffix(one)) for one in endings)]

    def _runs(self, size: int) -> Iterator[tuple[int, int]]:
        """Yield the runs (offset, bytes) of one call each of a file; no more of them when the copy is stopped."""
        for at in range(0, size, COPY_CALL):
            if self.stopped.is_set():
                return
            yield at, min(COPY_CALL, size - at)

    def _compare_files(self, source: Path, target: Path) -> int:
        """Read two files, unless stopped; return the ns that this took. Raises ExecutionError [R401] if they differ."""
        begun, at = perf_counter_ns(), 0
        for one, other in zip_longest(_read_file(source), _read_file(target), fillvalue=b""):
            if self.stopped.is_set():  # then the copy may be cut short
                break
            if one != other:
                raise ExecutionError(f"{target} differs from {source} after byte {at}", "R401")
            at += len(one)
            self.compared += len(one) + len(other)
        return perf_counter_ns() - begun

    def _complete(self) -> bool:
        if self.verb.fsync:
            for folder in self._folders():
                manifest.sync_directory(folder)
        manifest.complete_data(self.local.files.directory, self._describe(), self.verb.fsync)
        self._lock(writes=False)
        return True

    def make_phase(self) -> Phase:
        """Return the phase of the copy, which is over. Collective."""
        self.record.root = self.verb.root
        return verb_phase(self.session, self.verb.dataset, "stage", self.record, None, self.notes)


class Staging:
    """The `stage` verbs of a run; as a context it waits for all copies. All methods are collective."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._worker: Worker | None = None
        self._copies: list[NodeCopy] = []

    def __enter__(self) -> Staging:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in self._copies if error is not None else ():
            one.stopped.set()
        # Of an error on this rank alone the other threads do not know, which this rank's would wait for.
        if self._worker is not None and (error is None or getattr(error, "shared", False)):
            self._worker.close(free=error is None)

    def stage(self, verb: Stage) -> Phase | NodeCopy:
        """Copy a data set, or begin to copy it in the background. Raises as `NodeCopy.copy`."""
        session = self._session
        if session.options.null or verb.copy == "off":
            note = "nothing copied (`copy off`)" if verb.copy == "off" else "nothing copied (--null)"
            return verb_phase(session, verb.dataset, "stage", VerbRecord(), None, (note,))
        # Copies in the background are made one after another; loops must not wait for them.
        if verb.copy == "before" or any(one.verb.dataset == verb.dataset for one in self._copies):
            self.finish()
        made = _plan_copy(session, verb)
        if verb.copy == "in the background":
            require_threads("`stage … in the background`")
            self._worker = self._worker or Worker(session, "stage")
            task = made.task = self._worker.submit(made.copy)
            made.local = replace(made.local, is_complete=lambda: task.is_over and task.error is None)
            self._copies.append(made)
            session.copies[verb.dataset] = made.local
            return made
        with session.world.abort_on_error():  # the others may have hours of copying left
            made.copy(session)
        session.copies[verb.dataset] = made.local
        return made.make_phase()

    def finish(self) -> None:
        """Wait until all copies are complete."""
        with self._session.progress.track_bytes("stage data sets", lambda: 0):
            for one in self._copies:
                assert one.task is not None
                one.task.wait(self._session.progress)
        errors = [one.task.error for one in self._copies if one.task is not None and one.task.error is not None]
        self._copies = []
        if errors:
            raise errors[0]


def _plan_copy(session: Session, verb: Stage) -> NodeCopy:
    """Find the files that this node copies, and where to. Collective."""
    dataset = session.workload.dataset(verb.dataset)
    data = open_prepared(session, dataset)
    name: Callable[[int], str] = dataset.file_name
    if dataset.source:  # names may be of any length and depth, and links
        name = lambda file: f"{file:08}{Path(data.name(file)).suffix}"  # noqa: E731
    numbers = np.arange(dataset.layout.files) if verb.holds == "all" else _find_share(session, verb, data)
    files = DatasetFiles(dataset, session.copy_directory(verb), name)
    made = NodeCopy(session, verb, data, LocalCopy(verb.root, files, numbers), VerbRecord())
    made.local = replace(made.local, count_bytes=lambda: made.record.bytes + made.compared)
    return made


def _find_share(session: Session, verb: Stage, data: OpenDataset) -> NDArray[np.int64]:
    """Return the numbers of the files that this node's ranks read in the loops after the verb. Collective."""
    world, job, needed = session.world, session.workload.job, np.zeros(data.dataset.layout.files, np.int64)

    def find_own() -> None:
        for loop in loops_after(verb, session.workload.verbs):
            # All that a rank may read: other epochs may leave out other samples.
            last = "keep" if loop.last_batch == "drop" else loop.last_batch
            whole = replace(loop, steps=None, last_batch=last)
            steps = steps_of_epoch(whole, data.dataset, job.ranks)
            for first in range(0, steps, _STEPS):
                part = replace(whole, steps=min(first + _STEPS, steps))
                needed[plan_epoch(part, data.places, job, world.rank, 0, first).file] = 1

    world.run_on_all(find_own)
    world.allreduce_on_node(needed, "max")
    return np.flatnonzero(needed)


def _read_file(path: Path) -> Iterator[bytes]:
    """Yield the content of a file. Raises ExecutionError."""
    with wrap_call("read", path), open_for_read(path) as descriptor:
        yield from read_pieces(descriptor, 1 << 62)


def _is_copy(source: os.stat_result | None, target: os.stat_result | None) -> bool:
    """Return whether a file has the size and time of the one it is a copy of; True, too, if both are missing."""
    if source is None or target is None:
        return source is target
    time = source.st_mtime_ns
    same_time = target.st_mtime_ns in {time // unit * unit for unit in _TIME_UNITS}
    return stat.S_ISREG(target.st_mode) and target.st_size == source.st_size and same_time


def _find_status(path: Path) -> os.stat_result | None:
    """Return the status of a file, None if there is none. Raises ExecutionError."""
    with wrap_call("lstat", path), suppress(FileNotFoundError, NotADirectoryError):
        return path.lstat()
    return None


@contextmanager
def _name_node(world: World) -> Iterator[None]:
    """Add the name of this node to an ExecutionError of the block, unless another rank raised it."""
    try:
        yield
    except ExecutionError as error:
        if error.shared:
            raise
        raise ExecutionError(f"node {world.name}: {error.message}", error.code) from error
