"""Restore a checkpoint: read the newest complete one, also of another job; pass over one that proves damaged."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter_ns

from dliosim.errors import ExecutionError
from dliosim.execute.checkpoints.selection import CheckpointSearch, FoundCheckpoint
from dliosim.execute.checkpoints.state_reader import ReadPass, read_state
from dliosim.execute.io_errors import unreadable_error, wrap_call
from dliosim.execute.mpi.world import World, split_world
from dliosim.execute.phases.context import Session
from dliosim.execute.phases.residency import find_uncounted_reads, measure_file_residency
from dliosim.execute.safe_open import open_for_read, read_pieces
from dliosim.execute.store.manifest import OLDER
from dliosim.measure.rank.meter import Stopwatch
from dliosim.measure.rank.records import VerbRecord
from dliosim.model import Checkpoint, Restore, Split
from dliosim.plan.checkpoints.layout import METADATA, StateFiles, state_files
from dliosim.plan.checkpoints.reshard import count_steps, restore_passes
from dliosim.readable import seconds

#: Codes of errors of the checkpoint, and not of this job: a call failed, or returned other bytes.
_OF_DATA = (None, "R401")


def list_each(session: Session, checkpoint: Checkpoint, verb: Restore) -> list[int]:
    """Return the numbers of the checkpoints that a restore of `each` reads, the oldest first.

    They are the ones that this run has saved, or else all that exist. Collective. Raises ExecutionError [R404] on
    every rank if there are fewer than `verb.each`.
    """
    if session.options.null:
        return list(range(1, verb.each + 1))
    written = verb.written_by or checkpoint.split(session.world.size)

    def find_numbers() -> list[int]:
        own = session.stores.open_to_restore(session.save_directory(checkpoint, written)).completed
        return CheckpointSearch(session, checkpoint, written).list_oldest(verb.each, own)

    return session.world.run_on_rank_0(f"find checkpoints `{checkpoint.name}`", find_numbers)


def restore(
    session: Session, checkpoint: Checkpoint, verb: Restore, number: int | None = None
) -> tuple[VerbRecord, tuple[str, ...]]:
    """Read a checkpoint as `verb` says; return the record, and notes on newer checkpoints that do not count.

    Every byte is compared with what was saved. If a byte differs, or a file is missing or cut, on any rank, the
    checkpoint before is read instead, unless it is the one of `number` that is wanted. Collective. Raises
    ExecutionError on every rank: [R404] if no checkpoint is complete, [R401] if one cannot be read, since nothing
    proves that it is damaged.
    """
    world = session.world
    if session.reads_nothing:
        return VerbRecord(), ()
    written = verb.written_by or checkpoint.split(world.size)
    files = state_files(checkpoint, written)
    holder = verb.parallel or checkpoint.split(world.size)
    if session.modelled is not None:
        from dliosim.execute.checkpoints.modelled_state import read_modelled  # most runs need none of it

        with _plan_passes(session, files, holder, verb) as passes:
            record = read_modelled(session, files, passes, session.modelled)
        record.root = session.place_name(checkpoint.root, session.save_directory(checkpoint, written))
        return record, ("nothing was read (--storage)",)
    newest = CheckpointSearch(session, checkpoint, written, number) if world.rank == 0 else None
    while True:
        found = world.run_on_rank_0(f"find checkpoint `{checkpoint.name}`", lambda: _hold_newest(session, newest))
        try:
            record, found, residency = _read_checkpoint(session, files, found, holder, verb)
        except _DamagedCheckpoint as damage:
            if newest is not None:
                newest.pass_over(found, damage.message)
        else:
            return record, (
                *world.broadcast_object(newest.restore_notes(found) if newest is not None else None),
                *residency,
            )
        finally:
            if world.rank == 0:
                session.stores.open_to_restore(found.directory.parent).remove_pin(found.number)


class _DamagedCheckpoint(ExecutionError):
    """A checkpoint differs from what was saved, with the reason; raised on every rank."""


def _read_checkpoint(
    session: Session, files: StateFiles, found: FoundCheckpoint, holder: Split, verb: Restore
) -> tuple[VerbRecord, FoundCheckpoint, tuple[str, ...]]:
    """Read what this rank needs, from the copies of partners where a file is lost.

    Returns the record, the checkpoint with its lost files, and notes on what the kernel does not say of the reads.
    Collective. Raises _DamagedCheckpoint, and DliosimError for what is no damage, on every rank.
    """
    while True:
        begun, record = perf_counter_ns(), VerbRecord()
        sound = files.redirect_to_partners(found.lost)
        try:
            with _plan_passes(session, sound, holder, verb) as passes:
                residency, uncounted = _inspect_checkpoint(session, sound, found, record)
                read_state(session, sound, found, passes, record, verb)
            record.root = session.place_name(found.root, found.directory)
            if uncounted:
                record.read_bytes = -1
            return record, found, (*residency, *uncounted)
        except ExecutionError as error:
            if not error.shared or error.code not in _OF_DATA:
                raise
            took = seconds((perf_counter_ns() - begun) * 1e-9)
            # Rank 0's text, with its time, for all: the reason of each lost file must be the same on every rank.
            plain = re.sub(r"^rank \d+: ", "", error.message).replace(f"{found.directory}/", "")
            why = session.world.broadcast_object(f"{plain} (found after {took})")
            lost = _find_lost_file(error, files, found)
            if lost is None and error.code is None:
                raise unreadable_error(error, OLDER).mark_shared() from error
            if lost is None:
                raise _DamagedCheckpoint(why) from error
            # Read all again: ranks may have read different parts before the loss was known, and the plan has changed.
            found = replace(found, lost={**found.lost, lost: why})


def _find_lost_file(error: ExecutionError, files: StateFiles, found: FoundCheckpoint) -> str | None:
    """Return the file that an error is about, if partners keep copies of it and it is not known to be lost yet."""
    copies = {name for name, _ in files.partner_files()}
    if not copies or not found.saved.files.keys() >= copies:
        return None
    own = found.saved.files.keys() - copies - found.lost.keys() - {METADATA}
    return next((name for name in sorted(own) if f"{found.directory}/{name}" in error.message), None)


def _hold_newest(session: Session, newest: CheckpointSearch | None) -> FoundCheckpoint:
    """Return the newest checkpoint that was not passed over, pinned so that it is not deleted; for rank 0."""
    assert newest is not None
    found = newest.find()
    session.stores.open_to_restore(found.directory.parent).add_pin(found.number)
    return found


def restore_buffer_bytes(world: World, checkpoint: Checkpoint, verb: Restore) -> int:
    """Return the bytes of the buffer of this rank that `restore` allocates. Not collective."""
    files = state_files(checkpoint, verb.written_by or checkpoint.split(world.size))
    holder, access = verb.parallel or checkpoint.split(world.size), checkpoint.access
    passes = restore_passes(files, holder, verb, world.size, world.rank)
    whole, streams = checkpoint.pieces == "whole", [stream for each in passes for stream in each]
    buffers = 2 if verb.by_file else 1  # of what this rank reads, and of what it receives
    return buffers * max(count_steps(each(), access.transfer, whole, access.page).largest for each in streams)


@contextmanager
def _plan_passes(session: Session, files: StateFiles, holder: Split, verb: Restore) -> Iterator[list[ReadPass]]:
    """Yield the passes that this rank reads or receives. Collective, both at the start and at the end of the block."""
    world = session.world
    first, *others = restore_passes(files, holder, verb, world.size, world.rank)
    if not others:
        is_sent = verb.by_file or (verb.everything and verb.once and verb.sent)
        yield [ReadPass(first, world.ranks if is_sent else None)]
        return
    tensor, stage, data = holder.coordinates((world.rank + verb.shift) % world.size)
    # Ranks with the same tensor and pipeline coordinates hold equal shards: one rank reads them for this group.
    with split_world(world, tensor + holder.tensor * stage, data, world.polite) as group:
        yield [ReadPass(first, group.ranks), *(ReadPass(each, None) for each in others)]


def _inspect_checkpoint(
    session: Session, files: StateFiles, found: FoundCheckpoint, record: VerbRecord
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Measure how much of it is in the page cache, and read its file of plans.

    Returns notes: why the share in the page cache is unknown, and why the bytes from the device are.
    """
    excluded = {METADATA, *found.lost, *(name for name, _ in files.partner_files())}
    names = sorted(found.saved.files.keys() - excluded)
    record.resident_bytes, record.examined_bytes, notes = measure_file_residency(
        session, len(names), lambda file: found.directory / names[file]
    )
    uncounted = find_uncounted_reads(session, found.directory / names[0]) if names else ""
    if files.checkpoint.metadata:
        session.world.run_on_all(lambda: _read_metadata(found, record))
    return notes, (uncounted,) if uncounted else ()


def _read_metadata(found: FoundCheckpoint, record: VerbRecord) -> None:
    """Read the file of all plans, as every rank of PyTorch's distributed checkpoint does before anything else.

    Raises ExecutionError [R401] if it is not what was written.
    """
    path = found.directory / METADATA
    if METADATA not in found.saved.files:
        raise ExecutionError(f"{path} is not in the manifest", "R401")
    size, checksum = found.saved.files[METADATA]
    value = 0
    with Stopwatch(record, "plan_ns"), wrap_call("read", path, reading=True), open_for_read(path) as descriptor:
        for data in read_pieces(descriptor, size):
            value = zlib.crc32(data, value)
    record.wall_ns += record.plan_ns
    record.opens += 1
    if value != checksum:
        raise ExecutionError(f"{path} differs from what was saved", "R401")
