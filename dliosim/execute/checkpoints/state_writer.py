"""Write one rank's share of a checkpoint: to files of its own, to one file of all ranks, or through another rank."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from time import perf_counter_ns

import numpy as np
from mpi4py import MPI

from dliosim.errors import DliosimError
from dliosim.execute.backends.contract import Writer, allocate, close_writer
from dliosim.execute.backends.registry import open_writer
from dliosim.execute.mpi.world import World
from dliosim.execute.node.compute import keep_core_busy
from dliosim.execute.node.striping import add_striping_hints
from dliosim.execute.payload.payload_format import fill_segment
from dliosim.execute.phases.context import Session
from dliosim.execute.store.manifest import make_directory
from dliosim.measure.rank.meter import Stopwatch
from dliosim.measure.rank.records import VerbRecord
from dliosim.model import Access, Checkpoint
from dliosim.plan.checkpoints.layout import Piece, StateFiles, count_pieces, cut_pieces

Made = Iterator[tuple[Piece, memoryview]]
"""The calls of a rank, with their bytes; the memory of one call may be reused for the next."""

Run = tuple[str, int, int, int]
"""A range that a rank has written without a gap: file, offset, bytes, and their CRC-32."""


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
        _send_pieces(session, files.writer(rank), made, record)
        return []
    if checkpoint.writers.kind == "shared file":
        return _write_shared_file(session, files, directory, made, record)
    written: list[Run] = []
    try:
        for name, own in _group_by_file(files, rank, made):
            senders = files.senders(rank)
            written += _write_file(session, files, directory, name, own, senders, record)
    except DliosimError as failure:
        if checkpoint.writers.kind in ("one per", "rank"):
            # Other ranks wait for their turn to send, so that they could not receive the error.
            world.abort(failure)
        raise
    return written


def _group_by_file(files: StateFiles, rank: int, made: Made) -> Iterator[tuple[str, Made]]:
    """Yield each file that a rank makes with its calls; files without bytes come last."""
    left = dict.fromkeys(files.file_names(rank))
    for name, own in groupby(made, lambda call: call[0].file):
        del left[name]
        yield name, own
    for name in left:
        yield name, iter(())


def _write_file(
    session: Session,
    files: StateFiles,
    directory: Path,
    name: str,
    made: Made,
    senders: Iterable[int],
    record: VerbRecord,
) -> list[Run]:
    checkpoint, path, written = files.checkpoint, directory / name, _FileRuns(name)
    if checkpoint.folder:
        make_directory(path.parent, exist_ok=True)
    writer = open_writer(_write_access(checkpoint), path, MPI.COMM_SELF)
    try:
        for piece, data in made:
            _write_piece(session, writer, piece, data, written, record)
        for sender in senders:
            _receive_pieces(session, files, sender, writer, written, record)
        if checkpoint.fsync:
            writer.sync()
    finally:
        close_writer(writer, record)
        record.files += 1
    return written.runs


def _write_shared_file(
    session: Session, files: StateFiles, directory: Path, made: Made, record: VerbRecord
) -> list[Run]:
    world, checkpoint = session.world, files.checkpoint
    name = files.shared_file_name()
    written = _FileRuns(name)
    writer = open_writer(_write_access(checkpoint), directory / name, world.comm)
    error: DliosimError | None = None
    try:
        if checkpoint.access.collective:
            _write_rounds(session, files, writer, made, written, record)
        else:
            for piece, data in made:
                _write_piece(session, writer, piece, data, written, record)
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
            writer.sync()
    except DliosimError as failure:
        if checkpoint.access.collective and not failure.shared and world.size > 1:
            # Open MPI reports an earlier write's failure here, on a rank that does not meet the others any more.
            world.abort(failure)
        raise
    finally:
        close_writer(writer, record)
        record.files += world.rank == 0
    return written.runs


def _write_access(checkpoint: Checkpoint) -> Access:
    return add_striping_hints(checkpoint.access, checkpoint.stripe)


class _FileRuns:
    """The runs of one file that this rank has written, with checksums; calls that follow each other are one run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.runs: list[Run] = []

    def add_call(self, offset: int, data: memoryview) -> None:
        if self.runs:
            _, begin, length, value = self.runs[-1]
            if begin + length == offset:
                self.runs[-1] = (self.name, begin, length + len(data), zlib.crc32(data, value))
                return
        self.runs.append((self.name, offset, len(data), zlib.crc32(data)))


def _write_piece(
    session: Session, writer: Writer, piece: Piece, data: memoryview, written: _FileRuns, record: VerbRecord
) -> None:
    writer.write(piece.offset, data)
    record.bytes += len(data)
    with Stopwatch(record, "content_ns", aside=True):
        written.add_call(piece.offset, data)
    session.progress.tick(perf_counter_ns(), 0, record.bytes)


def _write_rounds(
    session: Session, files: StateFiles, writer: Writer, made: Made, written: _FileRuns, record: VerbRecord
) -> None:
    """Write in as many rounds on every rank as the largest share needs; ranks without a call left write no bytes."""
    own = sum(1 for _ in pieces_of(files, session.world.rank))
    rounds = int(session.world.allreduce(np.array([own], np.int64), "max")[0])
    for number in range(rounds):
        if number < own:
            piece, data = next(made)
            _write_piece(session, writer, piece, data, written, record)
        else:
            writer.write(0, memoryview(b""))


def _send_pieces(session: Session, writer: int, made: Made, record: VerbRecord) -> None:
    world: World = session.world
    sent = 0
    for piece, data in made:
        with Stopwatch(record, "send_ns"):
            world.ranks.send(data, writer)
        sent += piece.length
        session.progress.tick(perf_counter_ns(), 0, sent)


def _receive_pieces(
    session: Session, files: StateFiles, sender: int, writer: Writer, written: _FileRuns, record: VerbRecord
) -> None:
    world = session.world
    buffer = allocate(largest_call(files, sender))
    for piece in pieces_of(files, sender):
        data = buffer[: piece.length]
        with Stopwatch(record, "send_ns"):
            world.ranks.receive(data, sender)
        _write_piece(session, writer, piece, data, written, record)
