"""Write one rank's share of a checkpoint: to files of its own, to one file of all ranks, or through another rank."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from time import perf_counter_ns

import numpy as np
from mpi4py import MPI

from dliosim.errors import DliosimError
from dliosim.execute.backends.contract import allocate, close_writer
from dliosim.execute.backends.registry import open_writer
from dliosim.execute.mpi.world import World
from dliosim.execute.node.compute import keep_core_busy
from dliosim.execute.node.striping import add_striping_hints
from dliosim.execute.payload.payload_format import fill_segment
from dliosim.execute.phases.context import Session
from dliosim.execute.store.manifest import make_directory
from dliosim.measure.rank.meter import Stopwatch
from dliosim.measure.rank.records import VerbRecord
from dliosim.model import Checkpoint
from dliosim.plan.checkpoints.layout import Piece, StateFiles, count_pieces, cut_pieces

#: The calls of a rank, with their bytes; the memory of one call may be reused for the next
Made = Iterator[tuple[Piece, memoryview]]

#: A range that a rank has written without a gap: file, offset, bytes, and their CRC-32
Run = tuple[str, int, int, int]


def pieces_of(files: StateFiles, rank: int) -> Iterator[Piece]:
    """Return what a rank saves, call by call."""
    checkpoint = files.checkpoint
    return cut_pieces(files.shards(rank), checkpoint.access.transfer, checkpoint.pieces == "whole")


def largest_call(files: StateFiles, rank: int) -> int:
    """Return the bytes of the largest call of what a rank saves."""
    checkpoint = files.checkpoint
    return count_pieces(files.shards(rank), checkpoint.access.transfer, checkpoint.pieces == "whole")[1]


def fill_piece(files: StateFiles, keys: list[int], piece: Piece, out: memoryview) -> None:
    """Make the bytes of a call in `out`."""
    at = 0
    for segment in piece.segments:
        row = files.parts[segment.part].row_bytes
        fill_segment(keys[segment.part], row, segment, out[at : at + segment.length])
        at += segment.length


def generate_pieces(files: StateFiles, keys: list[int], rank: int, record: VerbRecord) -> Made:
    """Yield a rank's calls with their contents, made one at a time in one buffer; `content_ns` counts that."""
    buffer = allocate(largest_call(files, rank))
    for piece in pieces_of(files, rank):
        data = buffer[: piece.length]
        with Stopwatch(record, "content_ns", aside=True):
            fill_piece(files, keys, piece, data)
        yield piece, data


def serialize_pieces(made: Made, checkpoint: Checkpoint, total: int, record: VerbRecord) -> Made:
    """Yield the calls, each after its share of the CPU time that `serialize` asks for `total` bytes."""
    pace = checkpoint.serialize
    for piece, data in made:
        if pace is not None:
            with Stopwatch(record, "serialize_ns"):
                keep_core_busy(round(pace.duration(total) * 1e9 * piece.length / total))
        yield piece, data


def write_state(session: Session, files: StateFiles, directory: Path, made: Made, record: VerbRecord) -> list[Run]:
    """Write what this rank saves, or send it to its writer; return what this rank has written. Collective.

    Files are synced if the checkpoint says so. Raises DliosimError, on this rank alone unless it is `shared`.
    """
    world, rank, checkpoint = session.world, session.world.rank, files.checkpoint
    made = serialize_pieces(made, checkpoint, files.owner_bytes(rank), record)
    if files.writer(rank) != rank:
        with take_turn(session, files, record):
            _send_pieces(session, files.writer(rank), made, record)
        return []
    if checkpoint.writers.kind == "shared file":
        return _write_shared_file(session, files, directory, made, record)
    written: list[Run] = []
    try:
        with take_turn(session, files, record):
            for name, own in _group_by_file(files, rank, made):
                written += _write_file(session, files, directory, name, own, record)
    except DliosimError as failure:
        if checkpoint.writers.kind in ("one per", "rank"):
            # Other ranks wait for their turn to send, so that they could not receive the error.
            world.abort(failure)
        raise
    return written


@contextmanager
def take_turn(session: Session, files: StateFiles, record: VerbRecord) -> Iterator[None]:
    """Wait until one of the writers `at most` places before this one is done, and let the next one begin after a block.

    A rank that sends to a writer waits with it. `turn_ns` counts the wait, except what other ranks needed to make
    contents meanwhile, which is added to `content_ns`: it is no time of the save.
    """
    ranks, turns, most = session.world.ranks, files.turns(), files.checkpoint.at_most
    writer = files.writer(ranks.rank)
    if most is None or writer not in turns:
        yield
        return
    place, before = turns.index(writer), record.content_ns
    source = writer if writer != ranks.rank else turns[place - most] if place >= most else None
    making = np.zeros(1, np.int64)  # contents of the writers before, in ns; sent from turn to turn
    if source is not None:
        with Stopwatch(record, "turn_ns"):
            ranks.receive(making.data.cast("B"), source)
        aside = min(int(making[0]), record.turn_ns)
        record.turn_ns -= aside
        record.wall_ns -= aside
        record.content_ns += aside
    try:
        if writer == ranks.rank:
            for sender in files.senders(writer):
                ranks.send(making.data.cast("B"), sender)
        yield
    finally:
        if writer == ranks.rank and place + most < len(turns):
            making[0] = record.content_ns - before
            ranks.send(making.data.cast("B"), turns[place + most])


def _group_by_file(files: StateFiles, rank: int, made: Made) -> Iterator[tuple[str, Made]]:
    """Yield each file that a rank makes with its calls; files without bytes come last."""
    left = dict.fromkeys(files.file_names(rank))
    for name, own in groupby(made, lambda call: call[0].file):
        del left[name]
        yield name, own
    for name in left:
        yield name, iter(())


def _write_file(
    session: Session, files: StateFiles, directory: Path, name: str, made: Made, record: VerbRecord
) -> list[Run]:
    checkpoint = files.checkpoint
    if checkpoint.folder:
        make_directory((directory / name).parent, exist_ok=True)
    written = _FileRuns(session, files, directory, name, MPI.COMM_SELF, record)
    try:
        for piece, data in made:
            written.write(piece.offset, data)
        for sender in files.senders(session.world.rank):
            _receive_pieces(session.world, files, sender, written, record)
        if checkpoint.fsync:
            written.writer.sync()
    finally:
        close_writer(written.writer, record)
        record.files += 1
    return written.runs


def _write_shared_file(
    session: Session, files: StateFiles, directory: Path, made: Made, record: VerbRecord
) -> list[Run]:
    world, checkpoint = session.world, files.checkpoint
    written = _FileRuns(session, files, directory, files.shared_file_name(), world.comm, record)
    error: DliosimError | None = None
    try:
        empty = 0
        if checkpoint.access.collective:
            # Each rank makes as many calls as the largest share needs, the last ones without bytes.
            own = sum(1 for _ in pieces_of(files, world.rank))
            empty = world.allreduce_number(own, "max") - own
        for piece, data in made:
            written.write(piece.offset, data)
        for _ in range(empty):
            written.writer.write(0, memoryview(b""))
    except DliosimError as failure:
        if checkpoint.access.collective:
            # Other ranks wait for this rank in a collective write, so that they could not receive the error.
            world.abort(failure)
        error = failure
    try:
        # Syncing and closing are collective: all agree on errors first, so that no rank closes while others sync.
        if world.size > 1:
            world.agree_on_error(error)
        elif error is not None:
            raise error
        if checkpoint.fsync:
            written.writer.sync()
    except DliosimError as failure:
        if checkpoint.access.collective and not failure.shared and world.size > 1:
            # Open MPI reports an earlier write's failure here, on a rank that does not meet the others any more.
            world.abort(failure)
        raise
    finally:
        close_writer(written.writer, record)
        record.files += world.rank == 0
    return written.runs


class _FileRuns:
    """A file that this rank writes, and the runs that it has written, with checksums.

    Calls that follow each other are one run.
    """

    def __init__(
        self, session: Session, files: StateFiles, directory: Path, name: str, comm: MPI.Intracomm, record: VerbRecord
    ) -> None:
        """Make the file. Collective over `comm`."""
        checkpoint = files.checkpoint
        self.writer = open_writer(add_striping_hints(checkpoint.access, checkpoint.stripe), directory / name, comm)
        self.runs: list[Run] = []
        self._name, self._progress, self._record = name, session.progress, record

    def write(self, offset: int, data: memoryview) -> None:
        """Write bytes."""
        self.writer.write(offset, data)
        self._record.bytes += len(data)
        with Stopwatch(self._record, "content_ns", aside=True):
            self.add_call(offset, data)
        self._progress.tick(perf_counter_ns(), 0, self._record.bytes)

    def add_call(self, offset: int, data: memoryview) -> None:
        if self.runs:
            _, begin, length, value = self.runs[-1]
            if begin + length == offset:
                self.runs[-1] = (self._name, begin, length + len(data), zlib.crc32(data, value))
                return
        self.runs.append((self._name, offset, len(data), zlib.crc32(data)))


def _send_pieces(session: Session, writer: int, made: Made, record: VerbRecord) -> None:
    sent = 0
    for piece, data in made:
        with Stopwatch(record, "send_ns"):
            session.world.ranks.send(data, writer)
        sent += piece.length
        session.progress.tick(perf_counter_ns(), 0, sent)


def _receive_pieces(world: World, files: StateFiles, sender: int, written: _FileRuns, record: VerbRecord) -> None:
    buffer = allocate(largest_call(files, sender))
    for piece in pieces_of(files, sender):
        data = buffer[: piece.length]
        with Stopwatch(record, "send_ns"):
            world.ranks.receive(data, sender)
        written.write(piece.offset, data)
