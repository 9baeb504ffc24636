"""Read what this rank needs of a checkpoint, step by step into one buffer, and compare every byte.

Some ranks may read for a group of ranks and broadcast to it. The clock counts reading and broadcasting; it does not
count planning a step and comparing its bytes, on whichever rank of the group that is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter_ns
from typing import NamedTuple

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from dliosim.errors import ExecutionError
from dliosim.execute.backends.contract import Files, Reader, allocate, record_meter
from dliosim.execute.backends.registry import open_readers
from dliosim.execute.checkpoints.selection import FoundCheckpoint
from dliosim.execute.mpi.distinct_bytes import distinct_bytes
from dliosim.execute.mpi.ranks import Ranks
from dliosim.execute.node.page_cache import process_io_since, read_process_io
from dliosim.execute.payload.payload_format import find_segment_mismatch, part_keys
from dliosim.execute.phases.context import Session
from dliosim.measure.rank.meter import Stopwatch
from dliosim.measure.rank.records import VerbRecord
from dliosim.model import Restore
from dliosim.plan.checkpoints.layout import StateFiles
from dliosim.plan.checkpoints.reshard import Reads, ReadStep, ReadTotals, count_steps, cut_steps
from dliosim.plan.checkpoints.shards import StoredBlock
from dliosim.plan.samples.io_requests import Calls, Extents, empty_ranges, plan_calls
from dliosim.plan.samples.read_ranges import MOST_RANGES, ByteRanges, union_ranges

#: Bytes that the reading rank of a group sends after those of a step: whether it has failed (int64), and for how many
#: ns it has planned and compared (int64).
_WORD = np.dtype(np.int64)
_TRAILER = 2 * _WORD.itemsize


class ReadPass(NamedTuple):
    """Reads of shards, in their order."""

    #: return the reads of each rank that reads, from the first again each time; the same on all ranks of `group`
    streams: list[Reads]
    #: the ranks that need these bytes; its first ranks read a stream each, and broadcast. None: this rank reads alone
    group: Ranks | None

    @property
    def stream(self) -> int:
        """Return the number of the stream that this rank reads; there is none of this number if it only receives."""
        return 0 if self.group is None else self.group.rank

    def own_reads(self) -> Iterator[StoredBlock]:
        """Return the reads of this rank."""
        return next(iter(self.streams[self.stream : self.stream + 1]), lambda: iter(()))()


def read_state(
    session: Session,
    files: StateFiles,
    found: FoundCheckpoint,
    passes: list[ReadPass],
    record: VerbRecord,
    verb: Restore,
) -> None:
    """Read passes of a checkpoint. Collective.

    All ranks must give the same number of passes. Raises DliosimError on every rank.
    """
    world, access = session.world, files.checkpoint.access
    counts = world.run_on_all(lambda: [[_count_reads(files, found, each) for each in one.streams] for one in passes])
    rounds = np.array([max(count.steps for count in each) for each in counts], np.int64)
    if access.collective:
        world.allreduce(rounds, "max")
    largest = max(count.largest for each in counts for count in each) + _TRAILER
    # What is received needs a buffer of its own if this rank has read something else meanwhile.
    several = any(len(one.streams) > 1 for one in passes)
    buffer, *other = world.run_on_all(lambda: [allocate(largest) for _ in range(1 + several)])
    sizes = found.saved.files
    names = [files.shared_file_name()] if files.is_one_file else sorted(sizes)
    of_files = Files(
        found.directory, names.__getitem__, lambda file: sizes[names[file]][0], files.is_one_file, world.comm
    )
    engine = "mmap" if verb.through == "mmap" else access.engine
    reader = open_readers(replace(access, engine=engine), of_files)[0]
    ahead = open_readers(access, of_files)[0] if verb.ahead else None
    numbers = {name: number for number, name in enumerate(names)}
    keys, received = part_keys(files.checkpoint, files.parts, found.number), other[0] if other else buffer
    reading = _StateReader(
        session, files, found.directory, keys, sizes, numbers, reader, ahead, buffer, received, record
    )
    total = sum(count.bytes for each, one in zip(counts, passes, strict=True) for count in each[one.stream :][:1])
    before = read_process_io()
    try:
        with session.progress.track_bytes(f"restore {files.checkpoint.name}", lambda: total):
            world.run_on_all(lambda: reading.read_passes(passes, rounds.tolist()))
            # After all ranks have read: ending may be collective, and a wait in it for slower ranks would count.
            world.run_on_all(reading.end)
        read = process_io_since(before)
        counts_reads = verb.through == "calls" and access.counts_reads
        record.rchar, record.read_bytes = read.called_read if counts_reads else -1, read.storage_read
        record.distinct_bytes = distinct_bytes(world, reading.asked.merge_ranges(reading.numbers))
    finally:
        if reader.meter.opens:
            record.hints = reader.active_hints()
        for each in filter(None, (reader, ahead)):
            with Stopwatch(record, "wall_ns"):
                each.close()
            record_meter(each.meter, record)
    record.files = len(reading.asked.steps)


class _ReadRanges:
    """The ranges of bytes of each file that were read, merged if they follow each other; or too many of them."""

    def __init__(self) -> None:
        #: those of each file, by its name, in parts (n, 2) of begins and ends
        self.steps: dict[str, list[NDArray[np.int64]]] = {}
        self._count = 0

    def add_step(self, step: ReadStep) -> None:
        """Add the ranges of a step; one that begins where the last one ended is merged with it."""
        some, begin, end = self.steps.setdefault(step.file, []), step.offset, step.offset + step.length
        if len(begin) == 1 and some and some[-1][-1, 1] == begin[0]:
            some[-1][-1, 1] = end[0]
        elif self._count <= MOST_RANGES:
            some.append(np.column_stack([begin, end]))
            self._count += len(begin)

    def merge_ranges(self, number: Mapping[str, int]) -> ByteRanges | None:
        """Return all ranges, with the `number` of each file; None if there are more than `MOST_RANGES`."""
        if self._count > MOST_RANGES:
            return None
        pairs = [(number[name], np.concatenate(some)) for name, some in self.steps.items()]
        file = np.repeat([i for i, _ in pairs], [len(some) for _, some in pairs])
        both = np.concatenate([np.empty((0, 2), np.int64), *(some for _, some in pairs)])
        return union_ranges(file.astype(np.int64), both[:, 0], both[:, 1])


@dataclass(slots=True)
class _StateReader:
    """The state of this rank during all passes."""

    #: the session of the run
    session: Session
    #: the plan of the checkpoint's files
    files: StateFiles
    #: the directory of the checkpoint
    directory: Path
    #: key of the contents of each part
    keys: list[int]
    #: bytes and checksum of each file
    sizes: Mapping[str, tuple[int, int]]
    #: the number of each file, the same on every rank
    numbers: Mapping[str, int]
    #: the reader of the access's backend
    reader: Reader
    #: the reader that reads whole files before their ranges; None if nothing is read ahead
    ahead: Reader | None
    #: bytes of one step and the trailer
    buffer: memoryview
    #: the same for steps that are received; `buffer` itself if no rank reads and receives in turn
    received: memoryview
    #: times and counts of the restore
    record: VerbRecord
    #: the ranges that were read
    asked: _ReadRanges = field(default_factory=_ReadRanges)
    #: time that was spent on other things than reading; ns
    aside_ns: int = 0
    #: whether reading failed here, or on the rank that reads for this one
    given_up: bool = False
    #: the first error of this rank
    failure: ExecutionError | None = None

    def read_passes(self, passes: list[ReadPass], rounds: list[int]) -> None:
        """Read all passes. Raises DliosimError on this rank alone, unless it is `shared`."""
        with Stopwatch(self.record, "wall_ns"):
            self.reader.begin_epoch()
            for one, count in zip(passes, rounds, strict=True):
                self._read_pass(one, count)
        self.record.wall_ns -= self.aside_ns
        if self.failure is not None:
            raise self.failure

    def end(self) -> None:
        """End the reads, after all ranks have read."""
        with Stopwatch(self.record, "wall_ns"):
            self.reader.end_epoch()

    def _read_pass(self, one: ReadPass, rounds: int) -> None:
        checkpoint = self.files.checkpoint
        access, whole = checkpoint.access, checkpoint.pieces == "whole"
        planned = [cut_steps(stream(), access.transfer, whole, access.page) for stream in one.streams]
        before, failed = self.aside_ns, [False] * len(planned)
        # All ranks of a collective access run the same number of rounds, also without a step: a rank that leaves early
        # would let the others hang in their read. With other accesses `rounds` is that of the longest stream.
        for _ in range(rounds):
            begun = perf_counter_ns()
            steps = [next(each, None) for each in planned]
            plans = [
                _NOTHING if one is None else _step_calls(self.numbers[one.file], one, access.page) for one in steps
            ]
            self.aside_ns += perf_counter_ns() - begun
            own = one.stream if one.stream < len(steps) and not self.given_up else None
            if (own is not None and steps[own] is not None) or access.collective:
                self._read_round(*((_NOTHING, None) if own is None else (plans[own], steps[own])))
            # Every rank of the group plans the same steps, so each knows the bytes to receive without another message.
            # Broadcasts stop at the one that says that the reading rank failed: it sends no further ones.
            for source, plan in enumerate(plans):
                if one.group is not None and steps[source] is not None and not failed[source]:
                    failed[source] = self._broadcast_step(one.group, source, plan.buffer_size, before)
            if self.given_up and not access.collective:
                return

    def _read_round(self, plan: Calls, step: ReadStep | None) -> None:
        """Read a step, or call the reader without one, which other ranks need if reads are collective.

        A failed read is kept in `failure` and raised after all passes. A rank that fails before its collective call
        ends the job: the others already wait in that call.
        """
        calls = self.reader.meter.calls
        try:
            if step is None:
                self.reader.read(_NOTHING, self.buffer)
            else:
                self._read_step(plan, step)
        except ExecutionError as failure:
            took_part = self.reader.meter.calls > calls or _is_storage_error(failure)
            if self.files.checkpoint.access.collective and not took_part:
                if not failure.shared:
                    self.session.world.abort(failure)
                raise
            self.failure = self.failure or failure
            self.given_up = True

    def _read_ahead(self, ahead: Reader, file: int, size: int) -> None:
        """Read a file from start to end, in calls as large as the buffer takes."""
        most = len(self.buffer) - _TRAILER
        with Stopwatch(self.record, "ahead_ns"):
            for offset in range(0, size, most):
                ahead.read(_plan_calls(file, np.array([offset]), np.array([min(most, size - offset)])), self.buffer)

    def _read_step(self, plan: Calls, step: ReadStep) -> None:
        if self.ahead is not None and step.file not in self.asked.steps:
            self._read_ahead(self.ahead, self.numbers[step.file], self.sizes[step.file][0])
        self.reader.read(plan, self.buffer)
        # Compared now, while the bytes are in the one buffer; its time goes to `aside_ns`, which the clock leaves out.
        begun = perf_counter_ns()
        wrong = self._find_mismatch(plan, step)
        self.asked.add_step(step)
        ended = perf_counter_ns()
        self.record.content_ns += ended - begun
        self.aside_ns += ended - begun
        if wrong is not None:
            place = self.directory / step.file
            raise ExecutionError(f"{place} differs from what was saved, at byte {wrong}", "R401")
        self.record.bytes += int(step.length.sum())
        self.session.progress.tick(ended, 0, self.record.bytes)

    def _find_mismatch(self, plan: Calls, step: ReadStep) -> int | None:
        """Return the offset in its file of the first byte that is not what was saved; None if all are."""
        starts, length = plan.sample_start.tolist(), int(step.length[0])
        if self.files.checkpoint.access.page == 1 or len(starts) == 1:
            data = self.buffer[starts[0] : starts[0] + int(step.length.sum())]
        else:  # whole pages were read around each row: take the rows out
            data = np.concatenate([np.frombuffer(self.buffer, np.uint8, length, start) for start in starts]).data
        at = 0
        for segment in step.segments:
            row = self.files.parts[segment.part].row_bytes
            wrong = find_segment_mismatch(self.keys[segment.part], row, segment, data[at : at + segment.length])
            if wrong is not None:
                call, inside = divmod(at + wrong, length)
                return int(step.offset[call]) + inside
            at += segment.length
        return None

    def _broadcast_step(self, group: Ranks, source: int, size: int, before: int) -> bool:
        """Send what rank `source` read to the group, or receive it; return whether it failed and sends no more."""
        # The trailer goes with the data in one message: a message of its own would add its latency to each step.
        data = (self.buffer if group.rank == source else self.received)[: size + _TRAILER]
        status = np.frombuffer(data, np.uint8)[size:]
        if group.rank == source:
            status[:] = np.array([self.given_up, self.aside_ns - before], _WORD).view(np.uint8)
        begun = perf_counter_ns()
        group.broadcast(data, source)
        ended = perf_counter_ns()
        self.record.broadcast_ns += ended - begun
        failed, aside = np.frombuffer(status.tobytes(), _WORD).tolist()
        if group.rank != source:
            # This rank waited while the reading rank planned and compared; that time does not count.
            waited = max(0, before + aside - self.aside_ns)
            self.aside_ns += waited
            self.record.broadcast_ns -= min(waited, ended - begun)
            self.given_up = self.given_up or bool(failed)
            self.session.progress.tick(ended, 0, self.record.bytes)
        return bool(failed)


def _is_storage_error(failure: ExecutionError) -> bool:
    """Return whether storage failed in a collective read: then the other ranks were in that call too; none hangs."""
    cause = failure.__cause__
    return isinstance(cause, MPI.Exception) and cause.Get_error_class() == MPI.ERR_IO


def _count_reads(files: StateFiles, found: FoundCheckpoint, reads: Reads) -> ReadTotals:
    """Count what a stream reads. Raises ExecutionError [R401] for a file that the manifest does not list."""
    checkpoint = files.checkpoint
    access, whole = checkpoint.access, checkpoint.pieces == "whole"

    def check_fetches() -> Iterator[StoredBlock]:
        for fetch in reads():
            if fetch.file not in found.saved.files:
                raise ExecutionError(f"{found.directory / fetch.file} is not in the manifest", "R401")
            yield fetch

    return count_steps(check_fetches(), access.transfer, whole, access.page)


def _step_calls(file: int, step: ReadStep, page: int) -> Calls:
    return _plan_calls(file, step.offset, step.length, page)


def _plan_calls(file: int, offset: NDArray[np.int64], length: NDArray[np.int64], page: int = 1) -> Calls:
    count = len(offset)
    extents = Extents(np.arange(count), np.full(count, file), offset, length, np.array([0, count]))
    return plan_calls(extents, None, page)


#: The calls of a rank in a collective round for which it has no step left: none
_NOTHING = plan_calls(empty_ranges(1).extents, None)
