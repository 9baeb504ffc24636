"""Files that a format's library makes: laid out for all ranks to write into, or built whole, with their sidecars.

Many small HDF5 files of one layout are copies of a template: h5py takes half a millisecond to make each.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import ExecutionError
from dliosim.execute.datasets.file_writer import SampleSource, WriteJob
from dliosim.execute.datasets.open_dataset import forget_dataset, open_indexed
from dliosim.execute.io_errors import storage_full_code, wrap_call
from dliosim.execute.node.page_cache import WriteCounter
from dliosim.execute.payload.payload_format import dress_function, fill_samples
from dliosim.execute.payload.sample_bytes import sample_keys
from dliosim.execute.phases.context import Session
from dliosim.execute.safe_open import open_for_read, open_for_write, remove_file, write_at, write_file
from dliosim.formats.header_scanner import read_at
from dliosim.formats.protocols import Built, EncodeTime, FileIndex, Format, GroupEncoder, Preallocated
from dliosim.measure.rank.meter import Stopwatch
from dliosim.measure.rank.records import VerbRecord
from dliosim.model import Prepare
from dliosim.plan.samples.sample_to_file import bind_file, sample_sizes
from dliosim.trace.recorder import count_unseen

#: A file with more bytes than this outside of samples, or in more pieces, is made by the library, not by a copy.
_MOST_BYTES, _MOST_PIECES = 1 << 20, 64


@dataclass(frozen=True, slots=True)
class FileTemplate:
    """A file with space for its samples and none written yet."""

    #: its index
    index: FileIndex
    #: (offset, bytes) of all pieces around that space; None if they are too many or too large to keep
    around: tuple[tuple[int, bytes], ...] | None


def read_template(path: Path, form: Preallocated) -> FileTemplate:
    """Read a file that `form.lay_out` has just made. Raises OSError, and ExecutionError as `Format.index`."""
    index = form.index(path)
    offset = np.concatenate([column.offset for column in index.columns])
    length = np.concatenate([column.length for column in index.columns])
    order = np.argsort(offset)
    ends = np.append(0, (offset + length)[order])
    begins = np.append(offset[order], index.size)
    gaps = [(first, last) for first, last in zip(ends.tolist(), begins.tolist(), strict=True) if first < last]
    if len(gaps) > _MOST_PIECES or sum(last - first for first, last in gaps) > _MOST_BYTES:
        return FileTemplate(index, None)
    with open_for_read(path) as descriptor:
        around = tuple((first, read_at(descriptor, last - first, first)) for first, last in gaps)
    return FileTemplate(index, around)


def copy_template(known: FileTemplate, path: Path, by_library: Callable[[], None]) -> None:
    """Make another file like a template, which must not exist yet; by the library if the template has no bytes."""
    if known.around is None:
        by_library()
        return
    with open_for_write(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
        os.truncate(descriptor, known.index.size)
        for offset, data in known.around:
            write_at(descriptor, data, offset)


T = TypeVar("T")


class LibraryCalls(EncodeTime):
    """The time and the writes of formats' libraries on this thread during a block, without those in `exclude`.

    After the block, `ns` is its time; `calls` and `bytes` are the writes that the kernel counted, None if it cannot.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ns = 0
        self.calls: int | None = 0
        self.bytes: int | None = 0

    def __enter__(self) -> LibraryCalls:
        self._count = WriteCounter()
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._count.close()

    def exclude(self, made: Iterator[T]) -> Iterator[T]:
        """Yield items that are made outside of the measured block: making one may write too (progress, a message)."""
        while True:
            self._end()
            one = next(made, None)
            self._begin()
            if one is None:
                return
            yield one

    def _begin(self) -> None:
        self._before = self._count.read()
        self._begun = perf_counter_ns()

    def _end(self) -> None:
        self.ns += perf_counter_ns() - self._begun
        now = self._count.read()
        if now is None or self._before is None or self.calls is None or self.bytes is None:
            self.calls = self.bytes = None
        else:
            self.calls += now[0] - self._before[0]
            self.bytes += now[1] - self._before[1]


def lay_out_files(job: WriteJob, form: Preallocated) -> None:
    """Make all files with space for their samples, each by one rank, and share the index of that space. Collective.

    The bytes of a file outside of samples count as written by the rank that makes it. Before samples are written, files
    with equal numbers of samples of one size are equal. So on each rank the library makes one file of each such kind.
    """
    patterns: dict[tuple[int, int], FileTemplate] = {}

    def own_form(file: int) -> Preallocated:
        return cast(Preallocated, bind_file(form, job.samples_of(file)[0]))

    def lay_out_own() -> None:
        for file in job.own_files():
            own = own_form(file)
            path, count = job.files.path(file), job.count_samples(file)
            known, make = patterns.get((count, own.size)), partial(own.lay_out, path, count)
            remove_file(str(path))  # so that the library makes a new one and follows no link to another
            with LibraryCalls() as made:
                call_library(path, make if known is None else partial(copy_template, known, path, make))
            if known is None:
                known = call_library(path, partial(read_template, path, own))
                # Files of drawn sizes are hardly ever equal: their indexes are kept alone.
                known = known if form.dataset.constant_size is not None else replace(known, around=None)
                patterns[count, own.size] = known
            _account_calls(made, job.record)
            job.record.bytes += known.index.size - count * own.size

    job.session.world.run_on_all(lay_out_own)
    forget_dataset(job.session, form.dataset)
    job.session.opened[form.dataset] = open_indexed(
        job.session, form, job.files, lambda file: patterns[job.count_samples(file), own_form(file).size].index
    )


def build_files(job: WriteJob, form: Built) -> Iterator[int]:
    """Let the format's library write this rank's files, whole, from batches of contents; yield each."""
    done = 0
    for file in job.own_files():
        first, last = job.samples_of(file)
        own = cast(Built, bind_file(form, first))
        batches = generate_contents(job.session, own, own.batch, first, last, job.record, done)
        if job.source is not None:
            job.source.begin_part(first, last)
            batches = _read_ahead(job.source, first, batches)
        write_whole(job, file, own.build, batches)
        if job.source is not None:
            job.source.end_part()
        done += last - first
        yield file


def _read_ahead(source: SampleSource, first: int, batches: Iterator[NDArray[np.uint8]]) -> Iterator[NDArray[np.uint8]]:
    """Yield batches of samples from `first` on, and read before what each is made of."""
    for batch in batches:
        first += len(batch)
        source.read_until(first)
        yield batch


def write_whole(
    job: WriteJob, file: int, write: Callable[[Path, int, Iterator[T], EncodeTime], None], made: Iterator[T]
) -> None:
    """Let a library write a file of what `made` yields. Raises ExecutionError."""
    path = job.files.path(file)
    remove_file(str(path))  # as above
    with LibraryCalls() as calls:
        call_library(path, partial(write, path, job.count_samples(file), calls.exclude(made), calls))
    account_file(path, calls, job.verb, job.record)


def account_file(path: Path, made: LibraryCalls, verb: Prepare, record: VerbRecord) -> None:
    """Count a file that a library has written, and sync it if that is asked. Raises ExecutionError."""
    size = call_library(path, path.stat).st_size
    if made.bytes is not None and made.bytes < size // 2:
        # The library writes on its own threads or into a mapping, which the kernel's count of this thread misses.
        made.calls = made.bytes = None
    record.files += 1
    record.bytes += size
    record.encode_ns += made.encode_ns
    _account_calls(made, record)
    if verb.fsync:
        _sync_file(path, record)


def _account_calls(made: LibraryCalls, record: VerbRecord) -> None:
    """Count how a file was made."""
    record.opens += 1
    record.call_ns += made.ns - made.encode_ns
    if made.calls is None or made.bytes is None:
        record.uncounted_files += 1
        count_unseen(1)  # at least
        return
    record.calls += made.calls
    count_unseen(made.calls)
    record.bytes_moved += made.bytes


def write_sidecars(job: WriteJob, file: int) -> None:
    """Write the sidecars of a file. Raises ExecutionError."""
    for suffix, pieces in make_sidecars(job.form, *job.samples_of(file)) if job.form.sidecars else ():
        other = job.files.path(file).with_suffix(f".{suffix}")
        with LibraryCalls() as made:
            job.record.bytes += write_file(other, pieces, durable=False)
        job.record.files += 1
        _account_calls(made, job.record)
        if job.verb.fsync:
            _sync_file(other, job.record)


def make_sidecars(form: Format, first: int, last: int) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield the suffix and the contents of each sidecar of the file of samples [first, last)."""
    for suffix in form.sidecars:
        yield suffix, form.write_sidecar(suffix, first, sample_sizes(form.dataset, np.arange(first, last)))


def generate_contents(
    session: Session, form: Built, most: int, first: int, last: int, record: VerbRecord, before: int
) -> Iterator[NDArray[np.uint8]]:
    """Yield the contents of samples [first, last), up to `most` at a time, in one array that each batch overwrites.

    Each batch is (samples, bytes) of uint8. `before`: the number of samples that this rank has made before, for the
    line of progress.
    """
    size, dress = form.size, dress_function(form)
    most = max(1, min(most, last - first))
    data: NDArray[np.uint8] = np.empty((most, size), np.uint8)
    for begin in range(first, last, most):
        count = min(most, last - begin)
        lengths, rows = np.full(count, size, np.int64), data[:count]
        with Stopwatch(record, "content_ns"):
            keys = sample_keys(form.dataset, np.arange(begin, begin + count))
            fill_samples(dress, keys, lengths, np.arange(count) * size, rows.data.cast("B"))
        yield rows
        session.progress.tick(perf_counter_ns(), 0, (before + begin + count - first) * size)


def call_library(path: Path, action: Callable[[], T]) -> T:
    """Call a format's library; an error of the operating system is raised with the name of the file.

    HDF5 raises some of these as a RuntimeError of many lines, when it writes what it has buffered.
    """
    with wrap_call("write", path):
        try:
            return action()
        except RuntimeError as error:
            text = " ".join(str(error).split())
            raise ExecutionError(f"write failed on {path}: {text}", storage_full_code(text)) from error


def _sync_file(path: Path, record: VerbRecord) -> None:
    with wrap_call("fsync", path), Stopwatch(record, "file_sync_ns"), open_for_read(path) as descriptor:
        os.fsync(descriptor)


#: Bytes of the number that says how long a message is.
_LENGTH = 8


def build_shared_files(job: WriteJob, form: GroupEncoder) -> Iterator[int]:
    """Build the files of a data set that has fewer files than there are ranks; yield those of this rank. Collective.

    Group g of a file is encoded by rank g % R, which keeps it until its turn to send it to the rank that writes the
    file. Raises ExecutionError on a rank that fails: others may then wait for it for ever, so the caller ends the job.
    """
    world = job.session.world
    for file in range(job.dataset.layout.files):
        first, last = job.samples_of(file)
        own = cast(GroupEncoder, bind_file(form, first))
        shared = _SharedFile(job, own, range(first, last, own.group_size(last - first)), file % world.size)
        if world.rank == shared.owner:
            write_whole(job, file, shared.assemble, shared.collect_groups())
            yield file
        else:
            shared.send_groups()


@dataclass(frozen=True, slots=True)
class _SharedFile:
    """A file of groups of samples, which rank `owner` writes."""

    #: the data set that is written
    job: WriteJob
    #: the format of the file
    form: GroupEncoder
    #: first sample of each group; it ends at the first sample of the next file
    groups: range
    #: rank that writes the file
    owner: int

    def assemble(self, path: Path, count: int, groups: Iterator[list[bytes]], _: EncodeTime) -> None:
        """Write the file of encoded groups."""
        self.form.assemble(path, count, groups)

    def encode_samples(self, begin: int) -> list[bytes]:
        """Encode one group on this rank, and return its units."""
        job, groups = self.job, self.groups
        end = min(begin + groups.step, groups.stop)
        # This rank has encoded one group of R in this file and in those before, so about 1/R of all samples so far.
        before = begin // job.session.world.size
        (rows,) = generate_contents(job.session, self.form, groups.step, begin, end, job.record, before)
        with Stopwatch(job.record, "encode_ns"):
            return self.form.encode_group(groups.stop - groups.start, rows)

    def send_groups(self) -> None:
        """Encode every group of this rank, and send it when the owner asks for it."""
        world = self.job.session.world
        for begin in self.groups[world.rank :: world.size]:
            units = self.encode_samples(begin)
            with Stopwatch(self.job.record, "send_ns"):
                data = pickle.dumps(units)
                world.ranks.send(memoryview(len(data).to_bytes(_LENGTH, "little")), self.owner)
                world.ranks.send(memoryview(data), self.owner)

    def collect_groups(self) -> Iterator[list[bytes]]:
        """Yield all groups in order, from the ranks that encode them."""
        world = self.job.session.world
        for number, begin in enumerate(self.groups):
            source = number % world.size
            if source == world.rank:
                yield self.encode_samples(begin)
                continue
            with Stopwatch(self.job.record, "send_ns"):
                length = bytearray(_LENGTH)
                world.ranks.receive(memoryview(length), source)
                data = bytearray(int.from_bytes(length, "little"))
                world.ranks.receive(memoryview(data), source)
                units: list[bytes] = pickle.loads(data)  # sent by this program
            yield units
