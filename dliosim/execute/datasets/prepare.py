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
from dliosim.execute.context import Session
from dliosim.execute.datasets.dataset_manifest import (
    ABSENT,
    damage_error,
    find_dataset_fault,
    find_preparing_ranks,
    write_dataset_manifest,
)
from dliosim.execute.datasets.library_writer import build_files, index_prepared, lay_out_files, write_sidecars
from dliosim.execute.datasets.parallel_encode import build_collectively
from dliosim.execute.datasets.writer_registry import find_chunk_maker
from dliosim.execute.io_errors import call_error, is_damage, unreadable_error
from dliosim.execute.node.free_space import require_space
from dliosim.execute.node.striping import add_striping_hints, request_striping, striping_hint_note
from dliosim.execute.safe_open import file_kind_error
from dliosim.execute.store.manifest import remove_manifest, sync_directory
from dliosim.formats.protocols import Built, EncodeTime, GroupEncoder, Preallocated
from dliosim.formats.registry import bind, import_libraries
from dliosim.measure.records import VerbRecord
from dliosim.model import Dataset, Prepare
from dliosim.plan.forecast.layout_forecast import guess_index
from dliosim.plan.samples.io_requests import file_sizes
from dliosim.plan.samples.prepare_partition import FilePart, file_parts
from dliosim.plan.samples.sizes import is_framed, require_framed, sample_sizes
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
    why = ""
    if not verb.afresh:
        wrong = world.run_on_rank_0("read the manifest", lambda: find_dataset_fault(dataset, directory))
        if wrong is None:
            world.agree_on_error(_find_size_fault(session, dataset, directory))
            return record, (f"kept: complete data of the same description are in {directory}",)
        why = f"written again: what was there {wrong.rstrip(',')}" if wrong != ABSENT else ""
    doing = f"make room for data set `{dataset.name}`"
    refused, pattern = world.run_on_rank_0(
        doing, lambda: (_prepare_directory(session, verb, dataset, directory), session.describe(dataset))
    )
    form = bind(dataset)
    import_libraries(form)
    started = perf_counter_ns()
    try:
        with session.progress.track_bytes(f"prepare {dataset.name}", lambda: _bytes_to_write(session, dataset)):
            shared = dataset.layout.files < world.size
            if isinstance(form, GroupEncoder) and shared:
                build_collectively(session, dataset, form, verb, directory, record)
            elif isinstance(form, Built):
                build_files(session, dataset, form, verb, directory, record)
            else:
                if isinstance(form, Preallocated):
                    lay_out_files(session, dataset, form, directory, record)
                _write_parts(session, dataset, verb, directory, record)
    except DliosimError as failure:
        if not failure.shared and world.size > 1:
            # The others may have hours of writing left, and no user could use the result: end the job now.
            world.abort(failure)
        raise
    world.barrier()
    world.agree_on_error(_find_missing_file(session, dataset, directory))
    if isinstance(form, Built):
        session.places[dataset.name] = index_prepared(session, dataset, directory)
    doing = f"complete data set `{dataset.name}`"
    files = world.run_on_rank_0(doing, lambda: _complete_dataset(session, dataset, directory, pattern, verb.fsync))
    record.wall_ns = perf_counter_ns() - started
    took = size_note(_content_bytes(session, dataset), files)
    notes = (why, refused, striping_hint_note(verb.access, dataset.stripe, record.hints), took)
    return record, tuple(note for note in notes if note)


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


def _find_size_fault(session: Session, dataset: Dataset, directory: Path) -> ExecutionError | None:
    """Return the error of the first bad file among a few of this rank's, spread evenly over all files."""
    files, world = dataset.layout.files, session.world
    probes = min(files, _PROBES * world.size)
    mine = np.arange(world.rank, probes, world.size, dtype=np.int64) * files // probes
    if not is_framed(dataset):
        return None  # the indexes of all these files are read before any loop
    sizes = file_sizes(dataset, session.places[dataset.name], mine)
    for file, planned in zip(mine.tolist(), sizes.tolist(), strict=True):
        path = directory / dataset.file_name(file)
        try:
            about = path.lstat()
        except OSError as error:
            return _missing_file_error(dataset, path, error)
        if not stat.S_ISREG(about.st_mode):
            return file_kind_error("open", path, about.st_mode)  # no `prepare` overwrites it
        if about.st_size != planned:
            return damage_error(dataset, f"{path} has {about.st_size} bytes, not {planned}")
    return None


def _find_missing_file(session: Session, dataset: Dataset, directory: Path) -> ExecutionError | None:
    """Return the error of the first file of this rank that was removed since it was written; None if all are there.

    This takes 2 us a file where names are cached. Sizes are not checked: on NFS those of other nodes' files are seen
    only later.
    """
    suffixes = require_framed(dataset).sidecars if is_framed(dataset) else ()
    for file in range(session.world.rank, dataset.layout.files, session.world.size):
        path = directory / dataset.file_name(file)
        for one in (path, *(path.with_suffix(f".{suffix}") for suffix in suffixes)):
            try:
                os.lstat(one)
            except OSError as error:
                return _missing_file_error(dataset, one, error, " (was it removed meanwhile?)")
    return None


def _missing_file_error(dataset: Dataset, path: Path, error: OSError, why: str = "") -> ExecutionError:
    """Return the error of a file that is missing (`why`, if that is known), or that cannot be looked at."""
    failure = call_error("lstat", str(path), error)
    if is_damage(error):
        return damage_error(dataset, f"{failure.message}{why}")
    return unreadable_error(failure, f"`prepare {dataset.name} afresh` writes it again")


def total_bytes(session: Session, dataset: Dataset) -> int:
    """Return the bytes of all files of a data set."""
    places, files = session.places[dataset.name], dataset.layout.files
    if places is None and not is_framed(dataset):
        places = guess_index(dataset)
    step = 1 << 18
    blocks = (np.arange(first, min(first + step, files), dtype=np.int64) for first in range(0, files, step))
    return sum(int(file_sizes(dataset, places, block).sum()) for block in blocks)


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


def _prepare_directory(session: Session, verb: Prepare, dataset: Dataset, directory: Path) -> str:
    """Remove the manifest, make the folders, and check the space; return what was not granted, or an empty text."""
    remove_manifest(directory)
    directory.mkdir(parents=True, exist_ok=True)
    # Folders and files inherit the striping only if they are made afterwards.
    refused = request_striping(directory, dataset.stripe)
    for folder in range(dataset.layout.folders):
        made = directory / dataset.folder_name(folder)
        made.mkdir(exist_ok=True)
        if made.is_symlink():
            raise UsageError(f"{made} is a symbolic link: data are written only to real directories", "E208")
    needed, what = total_bytes(session, dataset), f"data set `{dataset.name}`"
    try:
        require_space(directory, needed, what)
    except ExecutionError:
        # Only now count the files that will be overwritten: they may be millions.
        require_space(directory, needed - present_bytes(dataset, directory), what)
    if _is_precreated(dataset, verb, session.world.size) and is_framed(dataset):
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
    parts = file_parts(dataset, session.places[dataset.name], session.workload.job, session.world.rank)
    return sum(part.length for part in parts)


def _write_parts(session: Session, dataset: Dataset, verb: Prepare, directory: Path, record: VerbRecord) -> None:
    world, access = session.world, add_striping_hints(verb.access, dataset.stripe)
    places = session.places[dataset.name]
    parts = file_parts(dataset, places, session.workload.job, world.rank)
    laid_out = not is_framed(dataset)
    split = laid_out or _is_precreated(dataset, verb, world.size)
    maker, encoding = find_chunk_maker(dataset), EncodeTime()
    if _is_shared_open(dataset, verb):
        _write_shared_file(session, dataset, verb, directory / dataset.file_name(0), list(parts), record)
        return
    buffer = memoryview(b"")
    for placed in _time_items(maker.place(dataset, places, parts, encoding), record):
        part = placed.part
        needed = maker.largest_chunk(dataset, places, part, access.transfer)
        if len(buffer) < needed:
            buffer = allocate(needed)
        path = directory / dataset.file_name(part.file)
        writer = open_writer(access, path, MPI.COMM_SELF, create=not split)
        try:
            for offset, data in _time_items(placed.chunks(access.transfer, buffer), record):
                writer.write(offset, data)
                record.bytes += len(data)
                session.progress.tick(perf_counter_ns(), 0, record.bytes)
            if verb.fsync:
                writer.sync()
        finally:
            close_writer(writer, record)
            record.files += part.first
        if part.first and not laid_out:
            write_sidecars(dataset, directory, part.file, verb.fsync, record)
    record.encode_ns += encoding.encode_ns
    record.content_ns -= encoding.encode_ns


def _write_shared_file(
    session: Session, dataset: Dataset, verb: Prepare, path: Path, parts: list[FilePart], record: VerbRecord
) -> None:
    """Write a file that all ranks open together.

    If the access is collective, all ranks take part in as many calls as the rank with most chunks has.
    """
    world, access = session.world, add_striping_hints(verb.access, dataset.stripe)
    places = session.places[dataset.name]
    maker, encoding = find_chunk_maker(dataset), EncodeTime()
    needed = max((maker.largest_chunk(dataset, places, part, access.transfer) for part in parts), default=0)
    buffer = world.run_on_all(lambda: allocate(needed))
    rounds = np.array([sum(maker.chunk_count(dataset, places, part, access.transfer) for part in parts)], np.int64)
    if access.collective:
        world.allreduce(rounds, "max")
    writer = open_writer(access, path, world.comm, create=is_framed(dataset))
    error: DliosimError | None = None
    try:
        placed = maker.place(dataset, places, parts, encoding)
        made = (chunk for part in placed for chunk in part.chunks(access.transfer, buffer))
        calls = _time_items(made, record)
        for _ in range(int(rounds[0])):
            offset, data = next(calls, (0, buffer[:0]))
            writer.write(offset, data)
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
            writer.sync()
    finally:
        close_writer(writer, record)
        record.files += any(part.first for part in parts)
    if is_framed(dataset) and any(part.first for part in parts):
        write_sidecars(dataset, path.parent, 0, verb.fsync, record)
    record.encode_ns += encoding.encode_ns
    record.content_ns -= encoding.encode_ns


def _time_items(made: Iterator[_Made], record: VerbRecord) -> Iterator[_Made]:
    """Yield the items, and add the time that making each takes to `content_ns`."""
    while True:
        begun = perf_counter_ns()
        one = next(made, None)
        record.content_ns += perf_counter_ns() - begun
        if one is None:
            return
        yield one


def _complete_dataset(session: Session, dataset: Dataset, directory: Path, pattern: str, durable: bool) -> int:
    """Write the manifest that marks the data as complete; return the bytes of all files."""
    if durable:
        for folder in range(dataset.layout.folders):
            sync_directory(directory / dataset.folder_name(folder))
    total = total_bytes(session, dataset)
    write_dataset_manifest(dataset, directory, total, pattern, durable)
    return total
