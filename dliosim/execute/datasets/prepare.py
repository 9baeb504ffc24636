"""Prepare a data set: every rank writes its parts; a manifest that is written last marks all of them as complete."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from functools import partial
from itertools import chain, islice, repeat
from pathlib import Path
from time import perf_counter_ns
from typing import TypeVar

import numpy as np
from mpi4py import MPI

from dliosim.errors import DliosimError, ExecutionError, UsageError
from dliosim.execute.backends.contract import allocate, close_writer
from dliosim.execute.backends.registry import open_writer
from dliosim.execute.datasets.file_writer import (
    Chunks,
    FileWriter,
    PreallocatedWriter,
    RawWriter,
    SampleSource,
    WriteJob,
)
from dliosim.execute.datasets.framed_writer import FramedWriter
from dliosim.execute.datasets.library_writer import build_files, build_shared_files, lay_out_files, write_sidecars
from dliosim.execute.datasets.open_dataset import estimate_bytes, forget_dataset, open_dataset, open_planned
from dliosim.execute.io_errors import call_error, is_damage, unreadable_error
from dliosim.execute.node.environment import require_space
from dliosim.execute.node.striping import add_striping_hints, request_striping, striping_hint_note
from dliosim.execute.phases.context import OpenDataset, Session
from dliosim.execute.safe_open import file_kind_error
from dliosim.execute.store import manifest
from dliosim.formats.protocols import Built, GroupEncoder, Preallocated
from dliosim.formats.registry import bind, import_libraries
from dliosim.measure.rank.records import VerbRecord
from dliosim.model import Access, Dataset, Prepare
from dliosim.plan.samples.places import FilePart, FramedPlaces, IndexedPlaces, Places, sample_parts
from dliosim.plan.samples.sample_to_file import sample_sizes
from dliosim.readable import number, size

T = TypeVar("T")

#: Files whose size a rank checks before it trusts a manifest: enough to notice a purge, too few to warm the storage.
_PROBES = 8

#: Files whose size differs from that of their contents by no more than this share get no note.
_SAME_SIZE = 0.01


def prepare(
    session: Session, verb: Prepare, dataset: Dataset, source: SampleSource | None = None
) -> tuple[VerbRecord, tuple[str, ...]]:
    """Write a data set unless a complete one exists; return the record and notes. `source`: what is read for it.

    The notes say whether data were kept, what was not granted, and the bytes in files. Collective. Raises
    ExecutionError on every rank, or ends the job if only this rank knows of a failure.
    """
    world, record = session.world, VerbRecord()
    if session.options.null:
        return record, ("nothing written (--null)" if session.modelled is None else "nothing written (--storage)",)
    job, why = WriteJob(session, verb, session.files(dataset), bind(dataset), record, source), ""
    directory = job.files.directory
    planned = open_planned(session, dataset)
    if not verb.afresh:
        wrong = world.run_on_rank_0("read the manifest", lambda: manifest.find_dataset_fault(dataset, directory))
        if wrong is None:
            if planned is not None:  # the indexes of others are read before any loop
                world.agree_on_error(_find_size_fault(session, planned))
            return record, (f"kept: complete data of the same description are in {directory}",)
        why = f"written again: what was there {wrong.rstrip(',')}" if wrong != manifest.ABSENT else ""
    doing = f"make room for data set `{dataset.name}`"
    refused, pattern = world.run_on_rank_0(
        doing, lambda: (_prepare_directory(job, planned is not None), session.describe(dataset))
    )
    import_libraries(job.form)
    started = perf_counter_ns()
    # The others may have hours of writing left after an error, and no user could use the result: end the job then.
    with world.abort_on_error(), session.progress.track_bytes(f"prepare {dataset.name}", lambda: _bytes_to_write(job)):
        _write_files(job)
    world.barrier()
    world.agree_on_error(_find_missing_file(job))
    opened = open_dataset(session, dataset)
    doing = f"complete data set `{dataset.name}`"
    files = world.run_on_rank_0(doing, lambda: _complete_dataset(opened, pattern, verb.fsync))
    record.wall_ns = perf_counter_ns() - started
    took = size_note(_content_bytes(session, dataset), files)
    notes = (why, refused, striping_hint_note(verb.access, dataset.stripe, record.hints), took)
    return record, tuple(note for note in notes if note)


def open_prepared(session: Session, dataset: Dataset) -> OpenDataset:
    """Open a data set that must be complete; ExecutionError [R401] on every rank if it is not. Collective."""
    for one in dataset.members:
        if not one.source and not session.options.null:
            look = partial(_require_complete, one, session.files(one).directory)
            session.world.run_on_rank_0(f"look for data set `{one.name}`", look)
    return open_dataset(session, dataset)


def _require_complete(dataset: Dataset, directory: Path) -> None:
    wrong = manifest.find_dataset_fault(dataset, directory)
    if wrong is None:
        return
    others = manifest.find_preparing_ranks(dataset, directory)
    if others:
        text = f"data set `{dataset.name}` was prepared by {others} ranks, but this job expects"
        raise ExecutionError(f"{text} {dataset.layout.files}: say `prepared by {others} ranks` in the data set", "R401")
    raise ExecutionError(
        f"data set `{dataset.name}` {wrong} in {directory}: put `prepare {dataset.name}` in front", "R401"
    )


def _find_size_fault(session: Session, opened: OpenDataset) -> ExecutionError | None:
    """Return the error of the first bad file among a few of this rank's, spread evenly over all files."""
    dataset, world = opened.dataset, session.world
    files = dataset.layout.files
    probes = min(files, _PROBES * world.size)
    mine = np.arange(world.rank, probes, world.size, dtype=np.int64) * files // probes
    for file, planned in zip(mine.tolist(), opened.places.file_sizes(mine).tolist(), strict=True):
        path = opened.path(file)
        try:
            about = path.lstat()
        except OSError as error:
            return _missing_file_error(dataset, path, error)
        if not stat.S_ISREG(about.st_mode):
            return file_kind_error("open", path, about.st_mode)  # no `prepare` overwrites it
        if about.st_size != planned:
            return manifest.damage_error(dataset, f"{path} has {about.st_size} bytes, not {planned}")
    return None


def _find_missing_file(job: WriteJob) -> ExecutionError | None:
    """Return the error of the first file of this rank that was removed since it was written; None if all are there.

    This takes 2 us a file if names are cached. Sizes are not checked: on NFS those of other nodes' files are seen
    only later.
    """
    for file in job.own_files():
        path = job.files.path(file)
        for one in (path, *(path.with_suffix(f".{suffix}") for suffix in job.form.sidecars)):
            try:
                os.lstat(one)
            except OSError as error:
                return _missing_file_error(job.dataset, one, error, " (was it removed meanwhile?)")
    return None


def _missing_file_error(dataset: Dataset, path: Path, error: OSError, why: str = "") -> ExecutionError:
    """Return the error of a file that is missing (`why`, if that is known), or that cannot be looked at."""
    failure = call_error("lstat", str(path), error)
    if is_damage(error):
        return manifest.damage_error(dataset, f"{failure.message}{why}")
    return unreadable_error(failure, f"`prepare {dataset.name} afresh` writes it again")


def _content_bytes(session: Session, dataset: Dataset) -> int:
    """Return the bytes of the contents of all samples.

    Collective: if sizes vary, each rank draws its share of them.
    """
    if dataset.constant_size is not None:
        return dataset.samples * dataset.constant_size
    world, step = session.world, 1 << 18
    first, last = (dataset.samples * rank // world.size for rank in (world.rank, world.rank + 1))
    blocks = (np.arange(begin, min(begin + step, last), dtype=np.int64) for begin in range(first, last, step))
    own = np.array([sum(int(sample_sizes(dataset, block).sum()) for block in blocks)], np.int64)
    return int(world.allreduce(own, "sum")[0])


def size_note(contents: int, files: int) -> str:
    """Return a note of the bytes in files of samples of `contents` bytes; empty if both are about the same."""
    if abs(files - contents) <= _SAME_SIZE * contents:
        return ""
    return f"contents of {size(contents)} took {size(files)} in files ({number(contents / files, 3)} : 1)"


def _prepare_directory(job: WriteJob, create: bool) -> str:
    """Remove the manifest, make the folders, and check the space; return what was not granted, or an empty text.

    `create`: create the files, too, if others will open them.
    """
    dataset, directory = job.dataset, job.files.directory
    manifest.remove_manifest(directory)
    directory.mkdir(parents=True, exist_ok=True)
    # Folders and files inherit the striping only if they are made afterwards.
    refused = request_striping(directory, dataset.stripe)
    for folder in range(dataset.layout.folders):
        made = directory / dataset.folder_name(folder)
        made.mkdir(exist_ok=True)
        if made.is_symlink():
            raise UsageError(f"{made} is a symbolic link: data are written only to real directories", "E208")
    needed, what = estimate_bytes(job.session, dataset), f"data set `{dataset.name}`"
    try:
        require_space(directory, needed, what)
    except ExecutionError:
        # Only now count the files that will be overwritten: they may be millions.
        require_space(directory, needed - present_bytes(dataset, directory), what)
    if create:
        _create_files(job)
    return refused


def present_bytes(dataset: Dataset, directory: Path) -> int:
    """Return the bytes on storage of the files of a data set, complete or not."""
    return sum(
        path.lstat().st_blocks * 512
        for folder in range(dataset.layout.folders)
        for path in (directory / dataset.folder_name(folder)).glob("*")
        if path.is_file()
    )


def _bytes_to_write(job: WriteJob) -> int:
    """Return the bytes that this rank writes."""
    opened, world = job.session.opened.get(job.dataset), job.session.world
    parts = sample_parts(job.dataset, world.size, world.rank) if opened is None else job.parts(opened.places)
    return sum(part.length for part in parts)


def _complete_dataset(opened: OpenDataset, pattern: str, durable: bool) -> int:
    """Write the manifest that marks the data as complete; return the bytes of all files."""
    dataset, directory, total = opened.dataset, opened.directory, opened.places.total_bytes
    if durable:
        for folder in range(dataset.layout.folders):
            manifest.sync_directory(directory / dataset.folder_name(folder))
    manifest.write_dataset_manifest(dataset, directory, total, pattern, durable)
    return total


def _write_files(job: WriteJob) -> None:
    """Write this rank's share of a data set, with sidecars. Collective. Raises DliosimError, mostly on one rank.

    A writer is an iterator: it writes this rank's share, and yields each file that the rank began once that file is
    closed. A failure leaves files without a manifest, which no command reads.
    """
    for file in _bind_writer(job):
        write_sidecars(job, file)


def _bind_writer(job: WriteJob) -> Iterator[int]:
    """Return the writer for the kind of the format. Collective."""
    form = job.form
    if isinstance(form, Built):
        forget_dataset(job.session, job.dataset)
        few = job.dataset.layout.files < job.session.world.size
        if isinstance(form, GroupEncoder) and few and job.source is None:
            return build_shared_files(job, form)
        return build_files(job, form)
    if isinstance(form, Preallocated):
        lay_out_files(job, form)
    writer = make_writer(open_dataset(job.session, job.dataset).places)
    access = add_striping_hints(job.verb.access, job.dataset.stripe)
    return (_write_shared_file if job.is_shared_open else _write_own_files)(job, writer, access)


def make_writer(places: Places) -> FileWriter:
    """Return the writer of files that no library builds."""
    if isinstance(places, FramedPlaces):
        return RawWriter(places) if places.form.bare else FramedWriter(places)
    assert isinstance(places, IndexedPlaces)
    return PreallocatedWriter(places)


def _create_files(job: WriteJob) -> None:
    """Create the files that several ranks will open, each alone. For one rank."""
    if job.is_precreated:
        access = add_striping_hints(job.verb.access, job.dataset.stripe)
        for file in range(job.dataset.layout.files):
            open_writer(access, job.files.path(file), MPI.COMM_SELF).close()


def _write_own_files(job: WriteJob, writer: FileWriter, access: Access) -> Iterator[int]:
    """Write the parts of this rank, one file after the other."""
    create = writer.makes_files and not job.is_precreated
    buffer = memoryview(b"")
    for placed in _time_items(writer.place(job.parts(writer.places)), job.record):
        part = placed.part
        needed = writer.largest_chunk(part, access.transfer)
        if len(buffer) < needed:
            buffer = allocate(needed)
        chunks = placed.chunks(access.transfer, buffer)
        if job.source is not None:
            job.source.begin_part(part.first_sample, part.last_sample)
        _write_chunks(job, access, part.file, create, chunks, part)
        if job.source is not None:
            job.source.end_part()
        if part.first:
            job.record.files += 1
            yield part.file
    writer.count_encoding(job.record)


def _write_shared_file(job: WriteJob, writer: FileWriter, access: Access) -> Iterator[int]:
    """Write a file that all ranks open together.

    If the access is collective, all ranks take part in as many calls as the rank with most chunks has.
    """
    world = job.session.world
    parts = list(writer.places.parts(world.size, world.rank))
    needed = max((writer.largest_chunk(part, access.transfer) for part in parts), default=0)
    buffer = world.run_on_all(lambda: allocate(needed))
    chunks: Chunks = (chunk for placed in writer.place(parts) for chunk in placed.chunks(access.transfer, buffer))
    if access.collective:
        rounds = np.array([sum(writer.chunk_count(part, access.transfer) for part in parts)], np.int64)
        world.allreduce(rounds, "max")
        chunks = islice(chain(chunks, repeat((0, buffer[:0]))), int(rounds[0]))
    _write_chunks(job, access, 0, writer.makes_files, chunks)
    if any(part.first for part in parts):
        job.record.files += 1
        yield 0
    writer.count_encoding(job.record)


def _write_chunks(
    job: WriteJob, access: Access, file: int, create: bool, chunks: Chunks, part: FilePart | None = None
) -> None:
    """Open a file, write chunks, and close it; on all ranks together unless they are those of one `part`.

    If samples are read, those that a chunk of the `part` holds are read before it is written.
    """
    record, world, tick = job.record, job.session.world, job.session.progress.tick
    comm = world.comm if part is None else MPI.COMM_SELF
    opened = open_writer(access, job.files.path(file), comm, create=create)
    error: DliosimError | None = None
    try:
        for offset, data in _time_items(chunks, record):
            if job.source is not None and part is not None:
                job.source.read_until(_sample_at(part, offset + len(data)))
            opened.write(offset, data)
            record.bytes += len(data)
            tick(perf_counter_ns(), 0, record.bytes)
    except DliosimError as failure:
        error = failure
    try:
        if part is None:
            # Syncing and closing are collective: all agree on errors first, so that no rank closes while others sync.
            if error is not None and access.collective:
                world.abort(error)
            world.agree_on_error(error)
        elif error is not None:
            raise error
        if job.verb.fsync:
            opened.sync()
    finally:
        close_writer(opened, record)


def _sample_at(part: FilePart, offset: int) -> int:
    """Return about the sample that begins at an offset of a part; the end of the part is that of its last sample."""
    count = part.last_sample - part.first_sample
    return part.first_sample + -(-count * (offset - part.offset) // max(part.length, 1))


def _time_items(made: Iterator[T], record: VerbRecord) -> Iterator[T]:
    """Yield the items, and add the time that making each takes to `content_ns`."""
    while True:
        begun = perf_counter_ns()
        one = next(made, None)
        record.content_ns += perf_counter_ns() - begun
        if one is None:
            return
        yield one
