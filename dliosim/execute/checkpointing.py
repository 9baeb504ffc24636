"""Saving and restoring checkpoints: written aside, synced, and renamed when whole."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import perf_counter_ns

import numpy as np
from mpi4py import MPI

from dliosim.errors import DliosimError
from dliosim.execute import versions
from dliosim.execute.backend import Writer
from dliosim.execute.backends import open_writer
from dliosim.execute.content import fill
from dliosim.execute.session import Session
from dliosim.execute.space import require_memory, require_space
from dliosim.execute.world import World
from dliosim.measure.meter import Meter
from dliosim.measure.records import VerbRecord
from dliosim.model import Checkpoint
from dliosim.plan.streams import key
from dliosim.plan.writing import CheckpointSlice, checkpoint_file_size, checkpoint_files, checkpoint_slices

_TAG = 77


@dataclass(frozen=True, slots=True)
class Piece:
    """One call's worth of a slice: `length` bytes at `offset` of `file`, at `part_offset` of a part's stream."""

    file: int
    offset: int
    length: int
    part: int
    part_offset: int


def pieces(slices: tuple[CheckpointSlice, ...], transfer: int | None) -> Iterator[Piece]:
    """Slices cut into calls of at most `transfer` bytes (None: a call a slice)."""
    for found in slices:
        step = transfer or max(found.length, 1)
        for done in range(0, found.length, step):
            length = min(step, found.length - done)
            yield Piece(found.file, found.offset + done, length, found.part, found.part_offset + done)


def part_keys(checkpoint: Checkpoint, number: int) -> list[int]:
    """The content key of each part in the checkpoint of that number: no two saves hold the same bytes."""
    return [key(checkpoint.seed, "checkpoint", checkpoint.name, part.name, number) for part in checkpoint.parts]


def save(session: Session, checkpoint: Checkpoint) -> VerbRecord:
    """Write a checkpoint and make it complete; collective. Raises DliosimError on every rank."""
    world, record = session.world, VerbRecord()
    if session.options.null:
        return record
    base = session.directory(checkpoint.root, checkpoint.path, checkpoint.digest(checkpoint.split(world.size)))

    def prepare() -> tuple[int, Path]:
        base.mkdir(parents=True, exist_ok=True)
        needed = int(checkpoint_files(checkpoint, world.size).sum())
        require_space(base, needed, f"checkpoint `{checkpoint.name}`")
        return versions.begin(base)

    def complete() -> None:
        versions.commit(aside, checkpoint.name, checkpoint_files(checkpoint, world.size).tolist(), world.size)

    # Asked before anything is made, so that nothing is left where it fails.
    world.together(lambda: _require_buffers(session, checkpoint))
    number, aside = world.on_rank_0(f"make room for checkpoint `{checkpoint.name}`", prepare)
    started = perf_counter_ns()
    error: DliosimError | None = None
    try:
        try:
            with session.progress.during(f"save {checkpoint.name}", lambda: _bytes_to_do(checkpoint, world)):
                _write(session, checkpoint, part_keys(checkpoint, number), aside, record)
        except DliosimError as failure:
            if failure.shared:
                raise
            if _sends(checkpoint):
                world.abort(failure)
            error = failure
        world.agree(error)
    except DliosimError:
        if world.rank == 0:
            shutil.rmtree(aside, ignore_errors=True)
        raise
    renaming = perf_counter_ns()
    world.on_rank_0(f"complete checkpoint `{checkpoint.name}`", complete)
    ended = perf_counter_ns()
    record.rename_ns = ended - renaming
    record.wall_ns = ended - started
    keep = checkpoint.keep
    if keep is not None:
        world.on_rank_0(f"delete old checkpoints `{checkpoint.name}`", lambda: versions.delete_old(base, keep))
        record.delete_ns = perf_counter_ns() - ended
    return record


def _bytes_to_do(checkpoint: Checkpoint, world: World) -> int:
    """What this rank writes, or sends to the rank that writes."""
    alone = checkpoint.writers.kind != "shared file" and _writer_of(checkpoint, world.rank) == world.rank
    if alone:
        return checkpoint_file_size(checkpoint, world.size, _file_of(checkpoint, world.rank))
    return sum(found.length for found in checkpoint_slices(checkpoint, world.size, world.rank))


def _require_buffers(session: Session, checkpoint: Checkpoint) -> None:
    world, transfer = session.world, checkpoint.access.transfer
    writes = _writer_of(checkpoint, world.rank) == world.rank
    # One's own pieces are made in a buffer, and those of the others come into another, one sender at a time.
    owners = (world.rank, *islice(_senders(checkpoint, world) if writes else (), 1))
    needed = [
        max((piece.length for piece in pieces(checkpoint_slices(checkpoint, world.size, owner), transfer)), default=0)
        for owner in owners
    ]
    require_memory(sum(needed), world.node.size, f"buffers of checkpoint `{checkpoint.name}`")


def _sends(checkpoint: Checkpoint) -> bool:
    return checkpoint.writers.kind in ("one per", "rank")


def _write(session: Session, checkpoint: Checkpoint, keys: list[int], aside: Path, record: VerbRecord) -> None:
    world = session.world
    own = checkpoint_slices(checkpoint, world.size, world.rank)
    transfer = checkpoint.access.transfer
    writer_rank = _writer_of(checkpoint, world.rank)
    shared = checkpoint.writers.kind == "shared file"
    largest = max((piece.length for piece in pieces(own, transfer)), default=0)
    buffer = memoryview(bytearray(largest))
    if writer_rank != world.rank:
        _send(session, writer_rank, pieces(own, transfer), keys, buffer, record)
        return
    file = own[0].file if own else _file_of(checkpoint, world.rank)
    path = aside / versions.file_name(0 if shared else file)
    comm = world.comm if shared else MPI.COMM_SELF
    writer = open_writer(checkpoint.access, path, comm)
    error: DliosimError | None = None
    try:
        if shared and checkpoint.access.collective:
            _write_rounds(session, writer, list(pieces(own, transfer)), keys, buffer, record)
        else:
            for piece in pieces(own, transfer):
                _write_piece(session, writer, piece, _made(keys, piece, buffer, record), record)
            for sender in _senders(checkpoint, world):
                _receive(session, checkpoint, sender, writer, record)
    except DliosimError as failure:
        if (shared and checkpoint.access.collective) or _sends(checkpoint):
            # Others wait for this rank in a collective write, or for its turn, so that nobody could hear of the error.
            world.abort(failure)
        error = failure
    try:
        # Syncing and closing are collective: a rank that failed may not begin with the next before all are there.
        if comm.size > 1:
            world.agree(error)
        elif error is not None:
            raise error
        if checkpoint.fsync:
            writer.sync()
    finally:
        finish(writer, record)
        record.files += not shared or world.rank == 0


def _made(keys: list[int], piece: Piece, buffer: memoryview, record: VerbRecord) -> memoryview:
    begun = perf_counter_ns()
    data = buffer[: piece.length]
    fill(keys[piece.part], piece.part_offset, data)
    record.content_ns += perf_counter_ns() - begun
    return data


def _write_piece(session: Session, writer: Writer, piece: Piece, data: memoryview, record: VerbRecord) -> None:
    writer.write(piece.offset, data)
    record.bytes += len(data)
    session.progress.tick(perf_counter_ns(), 0, record.bytes)


def _write_rounds(
    session: Session, writer: Writer, own: list[Piece], keys: list[int], buffer: memoryview, record: VerbRecord
) -> None:
    """As many rounds on every rank as the one with most needs; the others take part with nothing."""
    rounds = int(session.world.allreduce(np.array([len(own)], np.int64), "max")[0])
    for number in range(rounds):
        if number < len(own):
            _write_piece(session, writer, own[number], _made(keys, own[number], buffer, record), record)
        else:
            writer.write(0, buffer[:0])


def _writer_of(checkpoint: Checkpoint, rank: int) -> int:
    writers = checkpoint.writers
    if writers.kind == "rank":
        return writers.number
    return rank // writers.number * writers.number if writers.kind == "one per" else rank


def _file_of(checkpoint: Checkpoint, rank: int) -> int:
    """The file that a writing rank makes, even if it owns no byte of it."""
    writers = checkpoint.writers
    if writers.kind == "one per":
        return rank // writers.number
    return rank if writers.kind == "file per rank" else 0


def _senders(checkpoint: Checkpoint, world: World) -> Iterator[int]:
    if checkpoint.writers.kind == "rank":
        yield from (rank for rank in range(world.size) if rank != world.rank)
    elif checkpoint.writers.kind == "one per":
        yield from range(world.rank + 1, min(world.rank + checkpoint.writers.number, world.size))


def _send(
    session: Session, writer: int, own: Iterator[Piece], keys: list[int], buffer: memoryview, record: VerbRecord
) -> None:
    world, sent = session.world, 0
    begun = perf_counter_ns()
    world.wait_for_turn(writer, _TAG)
    record.send_ns += perf_counter_ns() - begun
    for piece in own:
        data = _made(keys, piece, buffer, record)
        begun = perf_counter_ns()
        world.send(data, writer, _TAG)
        ended = perf_counter_ns()
        record.send_ns += ended - begun
        sent += piece.length
        session.progress.tick(ended, 0, sent)


def _receive(session: Session, checkpoint: Checkpoint, sender: int, writer: Writer, record: VerbRecord) -> None:
    world = session.world
    owned = checkpoint_slices(checkpoint, world.size, sender)
    transfer = checkpoint.access.transfer
    buffer = memoryview(bytearray(max((piece.length for piece in pieces(owned, transfer)), default=0)))
    world.give_turn(sender, _TAG)
    for piece in pieces(owned, transfer):
        begun = perf_counter_ns()
        data = buffer[: piece.length]
        world.receive(data, sender, _TAG)
        record.send_ns += perf_counter_ns() - begun
        _write_piece(session, writer, piece, data, record)


def finish(writer: Writer, record: VerbRecord) -> None:
    """Close a file that was written, and add to the record what was done to it. Collective where opening it was."""
    try:
        if record.hints is None:
            record.hints = writer.granted()
    finally:
        writer.close()
        account(writer.meter, record)


def account(meter: Meter, record: VerbRecord) -> None:
    """Add to the record what the reader or writer of one or more files has done."""
    record.opens += meter.opens
    record.calls += meter.calls
    record.bytes_moved += meter.moved
    record.open_ns += meter.open_ns + meter.close_ns
    record.view_ns += meter.view_ns
    record.file_sync_ns += meter.sync_ns
    latencies = meter.take_latencies()
    record.call_ns += int(latencies.sum())
    record.call_latency.add(latencies)
