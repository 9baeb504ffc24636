"""Write the files of a data set: this module alone asks for the kind of the format, and drives the writers.

A writer is an iterator: it writes this rank's share, and yields each file that the rank began once that file is closed.
A failure leaves files without a manifest, which no command reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice, repeat
from time import perf_counter_ns
from typing import TypeVar

import numpy as np
from mpi4py import MPI

from dliosim.errors import DliosimError
from dliosim.execute.backends.contract import allocate, close_writer
from dliosim.execute.backends.registry import open_writer
from dliosim.execute.datasets.content_writer import PreallocatedWriter, RawWriter
from dliosim.execute.datasets.file_writer import Chunks, FileWriter, WriteJob
from dliosim.execute.datasets.framed_writer import FramedWriter
from dliosim.execute.datasets.library_writer import build_files, build_shared_files, lay_out_files, write_sidecars
from dliosim.execute.datasets.open_dataset import forget_dataset, open_dataset
from dliosim.execute.node.striping import add_striping_hints
from dliosim.formats.protocols import Built, GroupEncoder, Preallocated
from dliosim.measure.rank.records import VerbRecord
from dliosim.model import Access
from dliosim.plan.samples.places import FramedPlaces, IndexedPlaces, Places
from dliosim.plan.samples.prepare_partition import FilePart

_Made = TypeVar("_Made")


def write_files(job: WriteJob) -> None:
    """Write this rank's share of a data set, with sidecars. Collective. Raises DliosimError, mostly on one rank."""
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


def create_files(job: WriteJob) -> None:
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
        _write_chunks(job, access, part.file, MPI.COMM_SELF, create, chunks, _raise_error, part)
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

    def agree(error: DliosimError | None) -> None:
        # Syncing and closing are collective: all agree on errors first, so that no rank closes while others sync.
        if error is not None and access.collective:
            world.abort(error)
        world.agree_on_error(error)

    _write_chunks(job, access, 0, world.comm, writer.makes_files, chunks, agree)
    if any(part.first for part in parts):
        job.record.files += 1
        yield 0
    writer.count_encoding(job.record)


def _write_chunks(
    job: WriteJob,
    access: Access,
    file: int,
    comm: MPI.Intracomm,
    create: bool,
    chunks: Chunks,
    settle: Callable[[DliosimError | None], None],
    part: FilePart | None = None,
) -> None:
    """Open a file on all ranks of `comm`, write chunks, and close it; `settle` raises the error of the calls.

    If samples are read, those that a chunk of the `part` holds are read before it is written.
    """
    record, tick = job.record, job.session.progress.tick
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
        settle(error)
        if job.verb.fsync:
            opened.sync()
    finally:
        close_writer(opened, record)


def _sample_at(part: FilePart, offset: int) -> int:
    """Return about the sample that begins at an offset of a part; the end of the part is that of its last sample."""
    count = part.last_sample - part.first_sample
    return part.first_sample + -(-count * (offset - part.offset) // max(part.length, 1))


def _raise_error(error: DliosimError | None) -> None:
    if error is not None:
        raise error


def _time_items(made: Iterator[_Made], record: VerbRecord) -> Iterator[_Made]:
    """Yield the items, and add the time that making each takes to `content_ns`."""
    while True:
        begun = perf_counter_ns()
        one = next(made, None)
        record.content_ns += perf_counter_ns() - begun
        if one is None:
            return
        yield one
