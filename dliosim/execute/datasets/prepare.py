"""Prepare a data set: every rank writes its parts; a manifest that is written last marks all of them as complete."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter_ns
from typing import TypeVar

import numpy as np
from mpi4py import MPI

from dliosim.errors import DliosimError, ExecutionError, UsageError
from dliosim.execute.backends.buffers import allocate
from dliosim.execute.backends.contract import close_writer
from dliosim.execute.backends.registry import open_writer
from dliosim.execute.datasets.content_writer import PreallocatedWriter, RawWriter
from dliosim.execute.datasets.dataset_manifest import (
    ABSENT,
    damage_error,
    find_dataset_fault,
    find_preparing_ranks,
    write_dataset_manifest,
)
from dliosim.execute.datasets.file_writer import FileWriter
from dliosim.execute.datasets.framed_writer import FramedWriter
from dliosim.execute.datasets.library_writer import build_files, lay_out_files, write_sidecars
from dliosim.execute.datasets.open_dataset import estimate_bytes, forget_dataset, open_dataset
from dliosim.execute.datasets.parallel_encode import build_collectively
from dliosim.execute.io_errors import call_error, is_damage, unreadable_error
from dliosim.execute.node.free_space import require_space
from dliosim.execute.node.striping import add_striping_hints, request_striping, striping_hint_note
from dliosim.execute.phases.context import OpenDataset, Session
from dliosim.execute.safe_open import file_kind_error
from dliosim.execute.store.manifest import remove_manifest, sync_directory
from dliosim.formats.protocols import Built, Format, Framed, GroupEncoder, Preallocated
from dliosim.formats.registry import bind, import_libraries
from dliosim.measure.records import VerbRecord
from dliosim.model import Dataset, Prepare
from dliosim.plan.samples.places import FramedPlaces, IndexedPlaces, Places
from dliosim.plan.samples.prepare_partition import FilePart, file_parts, sample_parts
from dliosim.plan.samples.sizes import sample_sizes
from dliosim.readable import number, size

#: Files whose size a rank checks before it trusts a manifest: enough to notice a purge, too few to warm the storage.
_PROBES = 8

#: Files whose size differs from that of their contents by no more than this share get no note.
_SAME_SIZE = 0.01

_Made = TypeVar("_Made")


def prepare(session: Session, verb: Prepare, dataset: Dataset) -> tuple[VerbRecord, tuple[str, ...]]:
    """Write a data set unless a complete one exists; return the record and notes.

    The notes say whether data were kept, what was not granted, and the bytes in files. Collective. Raises
    ExecutionError on every rank, or ends the job where only this rank knows of a failure.
    """
    world, record = session.world, VerbRecord()
    if session.options.null:
        return record, ("nothing written (--null)",)
    directory = session.directory(dataset.root, dataset.path, dataset.digest())
    form, why = bind(dataset), ""
    if isinstance(form, Framed):  # others are known when they are written
        open_dataset(session, dataset)
    if not verb.afresh:
        wrong = world.run_on_rank_0("read the manifest", lambda: find_dataset_fault(dataset, directory))
        if wrong is None:
            if isinstance(form, Framed):  # the indexes of others are read before any loop
                world.agree_on_error(_find_size_fault(session, open_dataset(session, dataset)))
            return record, (f"kept: complete data of the same description are in {directory}",)
        why = f"written again: what was there {wrong.rstrip(',')}" if wrong != ABSENT else ""
    doing = f"make room for data set `{dataset.name}`"
    refused, pattern = world.run_on_rank_0(
        doing, lambda: (_prepare_directory(session, verb, form, directory), session.describe(dataset))
    )
    import_libraries(form)
    started = perf_counter_ns()
    try:
        with session.progress.track_bytes(f"prepare {dataset.name}", lambda: _bytes_to_write(session, dataset)):
            _write_files(session, verb, form, record)
    except DliosimError as failure:
        if not failure.shared and world.size > 1:
            # The others may have hours of writing left, and no user could use the result: end the job now.
            world.abort(failure)
        raise
    world.barrier()
    world.agree_on_error(_find_missing_file(session, form))
    opened = open_dataset(session, dataset)
    doing = f"complete data set `{dataset.name}`"
    files = world.run_on_rank_0(doing, lambda: _complete_dataset(opened, pattern, verb.fsync))
    record.wall_ns = perf_counter_ns() - started
    took = size_note(_content_bytes(session, dataset), files)
    notes = (why, refused, striping_hint_note(verb.access, dataset.stripe, record.hints), took)
    return record, tuple(note for note in notes if note)


def _write_files(session: Session, verb: Prepare, form: Format, record: VerbRecord) -> None:
    """Write all files of a data set, by the kind of its format."""
    if isinstance(form, Built):
        forget_dataset(session, form.dataset)
        if isinstance(form, GroupEncoder) and form.dataset.layout.files < session.world.size:
            build_collectively(session, form, verb, record)
        else:
            build_files(session, form, verb, record)
        return
    if isinstance(form, Preallocated):
        lay_out_files(session, form, record)
    opened = open_dataset(session, form.dataset)
    write = _write_shared_file if _is_shared_open(form.dataset, verb) else _write_parts
    write(session, opened, verb, make_writer(opened.places), record)


def make_writer(places: Places) -> FileWriter:
    """Return what makes the bytes of files that no library builds."""
    if isinstance(places, IndexedPlaces):
        return PreallocatedWriter(places)
    assert isinstance(places, FramedPlaces)
    return RawWriter(places) if places.form.bare else FramedWriter(places)


def _own_parts(session: Session, dataset: Dataset) -> Iterator[FilePart]:
    """Return the parts that this rank writes."""
    opened, world = session.opened.get(dataset), session.world
    if opened is None:
        return sample_parts(dataset, world.size, world.rank)
    return file_parts(opened.places, world.size, world.rank)


def check_prepared(session: Session, dataset: Dataset) -> Path:
    """Return the directory of a complete data set; ExecutionError [R401] on every rank if there is none. Collective."""
    directory = session.directory(dataset.root, dataset.path, dataset.digest())
    if not session.options.null:
        session.world.run_on_rank_0(
            f"look for data set `{dataset.name}`", lambda: _require_complete(dataset, directory)
        )
    return directory


def _require_complete(dataset: Dataset, directory: Path) -> None:
    wrong = find_dataset_fault(dataset, directory)
    if wrong is None:
        return
    others = find_preparing_ranks(dataset, directory)
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
            return damage_error(dataset, f"{path} has {about.st_size} bytes, not {planned}")
    return None


def _find_missing_file(session: Session, form: Format) -> ExecutionError | None:
    """Return the error of the first file of this rank that was removed since it was written; None if all are there.

    This takes 2 us a file where names are cached. Sizes are not checked: on NFS those of other nodes' files are seen
    only later.
    """
    files = session.files(form.dataset)
    for file in range(session.world.rank, form.dataset.layout.files, session.world.size):
        path = files.path(file)
        for one in (path, *(path.with_suffix(f".{suffix}") for suffix in form.sidecars)):
            try:
                os.lstat(one)
            except OSError as error:
                return _missing_file_error(form.dataset, one, error, " (was it removed meanwhile?)")
    return None


def _missing_file_error(dataset: Dataset, path: Path, error: OSError, why: str = "") -> ExecutionError:
    """Return the error of a file that is missing (`why`, if that is known), or that cannot be looked at."""
    failure = call_error("lstat", str(path), error)
    if is_damage(error):
        return damage_error(dataset, f"{failure.message}{why}")
    return unreadable_error(failure, f"`prepare {dataset.name} afresh` writes it again")


def _content_bytes(session: Session, dataset: Dataset) -> int:
    """Return the bytes of the contents of all samples.

    Collective: where sizes vary, each rank draws its share of them.
    """
    if dataset.constant_size is not None:
        return dataset.samples * dataset.constant_size
    world, step = session.world, 1 << 18
    first, last = (dataset.samples * rank // world.size for rank in (world.rank, world.rank + 1))
    blocks = (np.arange(begin, min(begin + step, last), dtype=np.int64) for begin in range(first, last, step))
    own = np.array([sum(int(sample_sizes(dataset, block).sum()) for block in blocks)], np.int64)
    return int(world.allreduce(own, "sum")[0])


def size_note(contents: int, files: int) -> str:
    """Return a note of the bytes in files of samples of `contents` bytes; empty where both are about the same."""
    if abs(files - contents) <= _SAME_SIZE * contents:
        return ""
    return f"contents of {size(contents)} took {size(files)} in files ({number(contents / files, 3)} : 1)"


def _is_shared_open(dataset: Dataset, verb: Prepare) -> bool:
    """Return whether all ranks open the one file together."""
    return verb.access.is_mpi and dataset.layout.files == 1


def _is_precreated(dataset: Dataset, verb: Prepare, ranks: int) -> bool:
    """Return whether rank 0 creates the files, so that no rank truncates a file that another already writes."""
    return dataset.layout.files < ranks and not _is_shared_open(dataset, verb)


def _prepare_directory(session: Session, verb: Prepare, form: Format, directory: Path) -> str:
    """Remove the manifest, make the folders, and check the space; return what was not granted, or an empty text."""
    dataset = form.dataset
    remove_manifest(directory)
    directory.mkdir(parents=True, exist_ok=True)
    # Folders and files inherit the striping only if they are made afterwards.
    refused = request_striping(directory, dataset.stripe)
    for folder in range(dataset.layout.folders):
        made = directory / dataset.folder_name(folder)
        made.mkdir(exist_ok=True)
        if made.is_symlink():
            raise UsageError(f"{made} is a symbolic link: data are written only to real directories", "E208")
    needed, what = estimate_bytes(session, dataset), f"data set `{dataset.name}`"
    try:
        require_space(directory, needed, what)
    except ExecutionError:
        # Only now count the files that will be overwritten: they may be millions.
        require_space(directory, needed - present_bytes(dataset, directory), what)
    if _is_precreated(dataset, verb, session.world.size) and isinstance(form, Framed):
        access = add_striping_hints(verb.access, dataset.stripe)
        for file in range(dataset.layout.files):
            open_writer(access, directory / dataset.file_name(file), MPI.COMM_SELF).close()
    return refused


def present_bytes(dataset: Dataset, directory: Path) -> int:
    """Return the bytes on storage of the files of a data set, complete or not."""
    return sum(
        path.lstat().st_blocks * 512
        for folder in range(dataset.layout.folders)
        for path in (directory / dataset.folder_name(folder)).glob("*")
        if path.is_file()
    )


def _bytes_to_write(session: Session, dataset: Dataset) -> int:
    """Return the bytes that this rank writes."""
    return sum(part.length for part in _own_parts(session, dataset))


def _write_parts(session: Session, opened: OpenDataset, verb: Prepare, writer: FileWriter, record: VerbRecord) -> None:
    """Write the parts of this rank, one file after the other."""
    dataset, access = opened.dataset, add_striping_hints(verb.access, opened.dataset.stripe)
    create = writer.makes_files and not _is_precreated(dataset, verb, session.world.size)
    buffer = memoryview(b"")
    for placed in _time_items(writer.place(_own_parts(session, dataset)), record):
        part = placed.part
        needed = writer.largest_chunk(part, access.transfer)
        if len(buffer) < needed:
            buffer = allocate(needed)
        file = open_writer(access, opened.path(part.file), MPI.COMM_SELF, create=create)
        try:
            for offset, data in _time_items(placed.chunks(access.transfer, buffer), record):
                file.write(offset, data)
                record.bytes += len(data)
                session.progress.tick(perf_counter_ns(), 0, record.bytes)
            if verb.fsync:
                file.sync()
        finally:
            close_writer(file, record)
            record.files += part.first
        if part.first:
            write_sidecars(opened, part.file, verb.fsync, record)
    writer.count_encoding(record)


def _write_shared_file(
    session: Session, opened: OpenDataset, verb: Prepare, writer: FileWriter, record: VerbRecord
) -> None:
    """Write a file that all ranks open together.

    If the access is collective, all ranks take part in as many calls as the rank with most chunks has.
    """
    world, access = session.world, add_striping_hints(verb.access, opened.dataset.stripe)
    parts = list(_own_parts(session, opened.dataset))
    needed = max((writer.largest_chunk(part, access.transfer) for part in parts), default=0)
    buffer = world.run_on_all(lambda: allocate(needed))
    rounds = np.array([sum(writer.chunk_count(part, access.transfer) for part in parts)], np.int64)
    if access.collective:
        world.allreduce(rounds, "max")
    file = open_writer(access, opened.path(0), world.comm, create=writer.makes_files)
    error: DliosimError | None = None
    try:
        made = (chunk for placed in writer.place(parts) for chunk in placed.chunks(access.transfer, buffer))
        calls = _time_items(made, record)
        for _ in range(int(rounds[0])):
            offset, data = next(calls, (0, buffer[:0]))
            file.write(offset, data)
            record.bytes += len(data)
            session.progress.tick(perf_counter_ns(), 0, record.bytes)
    except DliosimError as failure:
        if access.collective:
            world.abort(failure)
        error = failure
    try:
        # Syncing and closing are collective: all agree on errors first, so that no rank closes while others sync.
        world.agree_on_error(error)
        if verb.fsync:
            file.sync()
    finally:
        close_writer(file, record)
        record.files += any(part.first for part in parts)
    if any(part.first for part in parts):
        write_sidecars(opened, 0, verb.fsync, record)
    writer.count_encoding(record)


def _time_items(made: Iterator[_Made], record: VerbRecord) -> Iterator[_Made]:
    """Yield the items, and add the time that making each takes to `content_ns`."""
    while True:
        begun = perf_counter_ns()
        one = next(made, None)
        record.content_ns += perf_counter_ns() - begun
        if one is None:
            return
        yield one


def _complete_dataset(opened: OpenDataset, pattern: str, durable: bool) -> int:
    """Write the manifest that marks the data as complete; return the bytes of all files."""
    dataset, directory, total = opened.dataset, opened.directory, opened.places.total_bytes
    if durable:
        for folder in range(dataset.layout.folders):
            sync_directory(directory / dataset.folder_name(folder))
    write_dataset_manifest(dataset, directory, total, pattern, durable)
    return total
