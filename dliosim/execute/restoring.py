"""Restoring: read the newest complete checkpoint, whoever wrote it, and check what was read."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from time import perf_counter_ns

import numpy as np

from dliosim.errors import DliosimError, ExecutionError
from dliosim.execute import versions
from dliosim.execute.backends import Files, open_readers
from dliosim.execute.buffers import allocate
from dliosim.execute.checkpointing import Piece, account, part_keys, pieces
from dliosim.execute.content import first_mismatch
from dliosim.execute.residency import resident_before_reading
from dliosim.execute.session import Session
from dliosim.execute.space import require_memory
from dliosim.measure.records import VerbRecord
from dliosim.model import Access, Checkpoint, Split
from dliosim.plan.extents import Calls, Extents, calls
from dliosim.plan.writing import checkpoint_file_count, checkpoint_file_size, restore_slices

#: Bytes looked at on either end of what a call read, unless all are checked.
_EDGE = 8


def restore(session: Session, checkpoint: Checkpoint, written_by: int) -> tuple[VerbRecord, tuple[str, ...]]:
    """Read a checkpoint that `written_by` ranks wrote; the record, and notes on newer ones that do not count.

    Collective. Raises ExecutionError on every rank, [R404] if there is no complete checkpoint.
    """
    world, record = session.world, VerbRecord()
    if session.options.null:
        return record, ()
    base = session.directory(checkpoint.root, checkpoint.path, checkpoint.digest(Split(1, 1, written_by)))
    number, directory, passed_over = world.on_rank_0(
        f"find checkpoint `{checkpoint.name}`", lambda: _newest(checkpoint, base, written_by)
    )
    count = checkpoint_file_count(checkpoint, written_by)
    record.resident_bytes, record.examined_bytes = world.together(
        lambda: resident_before_reading(session, count, lambda file: directory / versions.file_name(file))
    )
    access = checkpoint.access
    shared = checkpoint.writers.kind in ("shared file", "rank")
    size = partial(checkpoint_file_size, checkpoint, written_by)
    files = Files(directory, versions.file_name, size, shared, world.comm)
    own = list(pieces(restore_slices(checkpoint, written_by, world.size, world.rank), access.transfer))
    plan = _one_call_a_step(own, access)
    rounds = np.array([len(own)], np.int64)
    record.files = len({piece.file for piece in own if piece.offset == 0})
    if access.collective:
        world.allreduce(rounds, "max")
    buffer = world.together(lambda: _buffer(session, plan.buffer_size))
    started = perf_counter_ns()
    error: DliosimError | None = None
    reader = open_readers(access, files)[0]
    progress = session.progress
    try:
        with progress.during(f"restore {checkpoint.name}", lambda: sum(piece.length for piece in own)):
            reader.begin_epoch()
            keys = part_keys(checkpoint, number)
            for step in range(int(rounds[0])):
                if step >= len(own):
                    reader.read(_nothing(plan), buffer)
                    continue
                reader.read(plan.step(step), buffer)
                at = int(plan.sample_start[step])
                _check(session, directory, own[step], keys, buffer[at : at + own[step].length], record)
                record.bytes += own[step].length
                progress.tick(perf_counter_ns(), 0, record.bytes)
            reader.end_epoch()
    except DliosimError as failure:
        if access.collective and not failure.shared:
            world.abort(failure)
        error = failure
    finally:
        if reader.meter.opens:
            record.hints = reader.granted()
        reader.close()
        account(reader.meter, record)
    world.agree(error)
    record.wall_ns = perf_counter_ns() - started
    return record, tuple(f"passed over {text}" for text in passed_over)


def _newest(checkpoint: Checkpoint, base: Path, written_by: int) -> tuple[int, Path, list[str]]:
    """As `versions.newest_complete`, whose error also says what other jobs have saved."""
    try:
        return versions.newest_complete(base, checkpoint.name, written_by)
    except ExecutionError as error:
        found = list(versions.writers_beside(base, checkpoint.name))
        ranks = next((ranks for digest, ranks in found if digest == checkpoint.digest(Split(1, 1, ranks))), None)
        if ranks is not None:
            there = f"one written by {ranks} ranks is there: say `restore {checkpoint.name} written by {ranks} ranks`"
        elif found:
            there = f"one of another description is there, in {base.with_name(found[0][0])}"
        else:
            raise
        raise ExecutionError(f"{error.message}; {there}", error.code) from None


def _buffer(session: Session, size: int) -> memoryview:
    require_memory(size, session.world.node.size, "buffers of `restore`")
    return allocate(size)


def _one_call_a_step(own: list[Piece], access: Access) -> Calls:
    """Pieces as calls, each a step of its own, widened to pages where reads go past the cache."""
    columns = np.array([(piece.file, piece.offset, piece.length) for piece in own], np.int64).reshape(-1, 3)
    rows = np.arange(len(own) + 1)
    extents = Extents(rows[:-1], columns[:, 0], columns[:, 1], columns[:, 2], rows)
    return calls(extents, None, access.page)


def _nothing(plan: Calls) -> Calls:
    """What a rank brings to a collective round for which it has no more."""
    none = plan.length[:0]
    edge = np.zeros(2, np.int64)
    return Calls(none, none, none, none, edge, edge[:1], none, edge)


def _check(
    session: Session, directory: Path, piece: Piece, keys: list[int], data: memoryview, record: VerbRecord
) -> None:
    """Compare what was read with what was saved: all of it with --verify, else its first and last bytes."""
    begun = perf_counter_ns()
    content = keys[piece.part]
    wrong = None
    if session.options.verify or len(data) <= 2 * _EDGE:
        wrong = first_mismatch(content, piece.part_offset, data)
    else:
        wrong = first_mismatch(content, piece.part_offset, data[:_EDGE])
        if wrong is None:
            last = len(data) - _EDGE
            found = first_mismatch(content, piece.part_offset + last, data[last:])
            wrong = None if found is None else last + found
    record.content_ns += perf_counter_ns() - begun
    if wrong is not None:
        path, place = directory / versions.file_name(piece.file), piece.offset + wrong
        raise ExecutionError(f"{path} differs from what was saved, at byte {place}", "R401")
