"""The data of a loop: the files, or the copy on this node, that it reads from an epoch on, and who reads them."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from dliosim.execute.backends.contract import Files, allocate
from dliosim.execute.backends.registry import model_readers, open_readers
from dliosim.execute.batches.node_reader import ScatteredBatches
from dliosim.execute.batches.prefetch import Batches, make_batches
from dliosim.execute.checkpoints.background import require_threads
from dliosim.execute.datasets.cold_pages import begin_cold
from dliosim.execute.datasets.open_dataset import measure_dataset_residency
from dliosim.execute.datasets.prepare import open_prepared
from dliosim.execute.loop.epoch_plan import bind_processor
from dliosim.execute.mpi.world import file_communicator, free_communicator
from dliosim.execute.phases.context import LocalCopy, OpenDataset, ReadFiles, Session
from dliosim.execute.phases.residency import Residency, find_uncounted_reads
from dliosim.formats.registry import bind, import_libraries
from dliosim.model import Access, Dataset, Loop
from dliosim.plan.samples.places import IndexedPlaces
from dliosim.plan.samples.sample_to_file import align_up
from dliosim.readable import count, seconds
from dliosim.trace.recorder import collector

if TYPE_CHECKING:
    from dliosim.measure.figures.epoch_summaries import EpochSummary

#: The note about bytes and rates of compressed samples.
_COMPRESSED = "bytes and GB/s are of samples as they are stored, compressed; samples/s compares with uncompressed ones"


@dataclass(frozen=True, slots=True)
class LoopData:
    """The data that a loop reads from an epoch on.

    All methods are collective, and raise the same DliosimError on every rank.
    """

    #: the run
    session: Session
    #: the loop
    loop: Loop
    #: places of samples, and names of the files that are read; None if the loop reads nothing
    data: OpenDataset | None = None
    #: the files of each data set, or the copy, that this rank's node reads
    sources: tuple[ReadFiles, ...] = ()
    #: files of the readers; None if the loop reads nothing
    files: Files | None = None
    #: names of the places that the loop has read
    roots: tuple[str, ...] = ()
    #: first epoch (from 1) that reads `sources`
    since: int = 1
    #: why the kernel's count of bytes from the device says nothing; empty if it counts them
    uncounted: str = ""

    @property
    def is_null(self) -> bool:
        """Return True if reads return nothing: without I/O, and without data, where there is nothing to open."""
        return self.session.options.null or self.data is None

    @property
    def copy(self) -> LocalCopy | None:
        """Return the copy on this node that is read; None if the data set's own files are."""
        return next((one for one in self.sources if isinstance(one, LocalCopy)), None)

    def find_copy(self) -> LocalCopy | None:
        """Return the copy on this node if all nodes have theirs, and it is not read already; else None."""
        copy = self.session.copies.get(str(self.loop.dataset))
        if copy is None or copy is self.copy or self.is_null:
            return None
        return copy if self.session.world.allreduce_number(copy.is_complete(), "min") else None

    def read_from(self, sources: Sequence[ReadFiles], epoch: int) -> LoopData:
        """Return the data as they are read from these files, from an epoch (from 1) on."""
        session, data, files = self.session, self.data, None
        self.close()
        if data is not None:
            if isinstance(copy := sources[0], LocalCopy):
                data = replace(data, directory=copy.files.directory, name=copy.files.name)
            together = file_communicator(session.world, self.loop.access)
            size, is_shared = data.places.file_size, data.count == 1
            files = Files(data.directory, data.name, size, is_shared, together, data.dataset)
        paths = [one.path(0) if one.count else None for one in sources]  # of a copy, this node may need no file
        roots = dict.fromkeys(self.roots if epoch > 1 else ())
        for one, path in zip(sources, paths, strict=True):
            roots[session.place_name(one.root, path or session.roots[one.root])] = None
        reasons: Iterator[str] = (find_uncounted_reads(session, path) for path in paths if not self.is_null)
        if session.modelled is not None:
            reasons = iter([f"no file was read: storage {session.modelled.model.name} is modelled"])
        uncounted = next(filter(None, reasons), "")
        return LoopData(session, self.loop, data, tuple(sources), files, tuple(roots), epoch, uncounted)

    def close(self) -> None:
        """Free what the ranks that open files together have."""
        if self.files is not None:
            free_communicator(self.session.world, self.files.comm)

    def measure_residency(self) -> list[Residency]:
        """Measure how much of each data set is in the page cache, unless epochs begin cold."""
        session = self.session
        if session.modelled is not None or self.loop.cold_within is not None:
            return []
        return [measure_dataset_residency(session, one) for one in self.sources]

    def begin_cold(self) -> list[Residency]:
        """Drop the pages of each data set, if the loop asks for that; return what is left of each."""
        session, within = self.session, self.loop.cold_within
        if within is None or self.is_null or session.modelled is not None:
            return []
        return [begin_cold(session, one, within) for one in self.sources]

    def build_batches(self, size: int) -> Batches:
        """Open files, and start threads or processes, with buffers of `size` bytes. Raises on this rank alone."""
        access, world, files, modelled = self.loop.access, self.session.world, self.files, self.session.modelled
        if access.scatter and not self.is_null and files is not None:
            return ScatteredBatches(world, access, files, size)
        if access.processes:
            return self._execute_readers(size)
        slots = [allocate(size) for _ in range(access.batches)]
        if modelled is not None and files is not None:
            return make_batches(access, model_readers(access, files, modelled, world.rank), slots)
        return make_batches(access, open_readers(access, files, self.is_null), slots)

    def _execute_readers(self, size: int) -> Batches:
        """Execute the reader processes of the loop, with buffers of `size` bytes."""
        from dliosim.execute.batches.messages import ReaderSetup  # most loops have no reader processes
        from dliosim.execute.batches.process_batches import ProcessBatches

        session, loop, files, processor = self.session, self.loop, None, None
        if self.data is not None and self.files is not None:
            places = self.data.places.drop_units()
            # A process has no communicator.
            files = replace(self.files, size=places.file_size, shared=False, comm=cast(Any, None))
            if loop.decode or loop.preprocess is not None:
                processor = bind_processor(session, loop, places, files.path)
        reads = None if self.is_null else files
        slot = align_up(max(size, 1), mmap.PAGESIZE)
        return ProcessBatches(ReaderSetup(loop.access, reads, processor, slot, collector() is not None))

    def list_notes(self, counted: bool, epochs: Sequence[EpochSummary]) -> Iterator[str]:
        """Yield notes for the report, some of them empty.

        `counted` is true if the kernel counted the bytes of all read calls; `epochs` are those of the loop, on rank 0.
        """
        access = self.loop.access
        yield _reader_note(access)
        if access.through == "library" and not self.is_null:
            from dliosim.execute.backends.library_reader import library_read_note  # few loops read through a library

            yield library_read_note(access, counted)
        if self.data is not None:
            if any(one.compress is not None for one in self.data.dataset.members):
                yield _COMPRESSED
            yield self.data.note
        yield self._describe_copy(epochs)

    def _describe_copy(self, epochs: Sequence[EpochSummary]) -> str:
        """Return the note about a copy that is read, and about the epochs before; empty without a copy."""
        copy, since = self.session.copies.get(str(self.loop.dataset)), self.since
        if copy is None or self.is_null:
            return ""
        if self.copy is None:
            return f"no epoch read the copy on root {copy.root}: it was not complete before the last one began"
        if since == 1:
            return f"read from the copies of the nodes on root {copy.root}"
        before, after = _mean_wait(epochs[: since - 1]), _mean_wait(epochs[since - 1 :])
        text = f"epochs from {since} on read the copies of the nodes on root {copy.root}"
        return f"{text}; a step waited {before} for data before, while these were made, and {after} since"


def open_loop_data(session: Session, loop: Loop) -> LoopData:
    """Open the data of a loop, which must be complete, or the copies on all nodes. Collective.

    Raises the same DliosimError on every rank.
    """
    dataset = session.workload.read_dataset(loop)
    if dataset is None:
        return LoopData(session, loop).read_from((), 1)
    if session.modelled is not None:
        from dliosim.execute.backends.modelled_reader import require_modelled

        require_modelled(loop, dataset, session.modelled.model)
    opened = LoopData(session, loop, _open_dataset(session, loop, dataset))
    copy = opened.find_copy()
    return opened.read_from([session.files(one) for one in dataset.members] if copy is None else [copy], 1)


def _open_dataset(session: Session, loop: Loop, dataset: Dataset) -> OpenDataset:
    """Return the data set of a loop; all that reading it needs is there. Collective."""
    access = loop.access
    for one in dataset.members if loop.decode or access.through == "library" else ():
        import_libraries(bind(one))
    data = open_prepared(session, dataset)
    if loop.columns is not None and isinstance(data.places, IndexedPlaces):
        places = data.places.first_columns(loop.columns)
        data = replace(data, dataset=places.dataset, places=places)
    if access.readers and access.is_mpi:
        require_threads(f"`readers` with {access.api} in `{loop.name}`")
    return data


def _mean_wait(epochs: Sequence[EpochSummary]) -> str:
    """Return the mean data wait of a step of a rank in some epochs."""
    return seconds(sum(one.data_wait_seconds.mean for one in epochs) / max(sum(one.steps for one in epochs), 1))


def _reader_note(access: Access) -> str:
    """Return a note about ranks that open or read for others; empty if all ranks open together and read their own."""
    together = access.communicator
    opening = ""
    if together != "world" and access.is_mpi:
        who = "the ranks of a node" if together == "node" else count(together, "rank")
        opening = "a shared file is opened by " + ("each rank for itself" if together == 1 else f"{who} together")
    reading = "one rank of each node reads for all of its ranks" if access.scatter else ""
    return "; ".join(filter(None, (opening, reading)))
