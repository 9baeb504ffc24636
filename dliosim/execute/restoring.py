"""Restoring: read the newest complete checkpoint, whoever wrote it, and check what was read."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter_ns

import numpy as np

from dliosim.errors import DliosimError, ExecutionError
from dliosim.execute import versions
from dliosim.execute.backend import Reader
from dliosim.execute.backends import Files, open_readers
from dliosim.execute.buffers import allocate
from dliosim.execute.residency import resident_before_reading
from dliosim.execute.session import Session
from dliosim.execute.shardcontent import first_wrong, part_keys
from dliosim.execute.space import require_memory
from dliosim.execute.statewriting import account
from dliosim.measure.records import VerbRecord
from dliosim.model import Checkpoint, Restore, Split
from dliosim.plan.extents import Calls, Extents, calls
from dliosim.plan.reassembly import Step, fetches, steps
from dliosim.plan.statefiles import StateFiles, state_files


def restore(session: Session, checkpoint: Checkpoint, verb: Restore) -> tuple[VerbRecord, tuple[str, ...]]:
    """Read a checkpoint as `verb` says; the record, and notes on newer ones that do not count.

    Collective. Raises ExecutionError on every rank, [R404] if there is no complete checkpoint.
    """
    world, record = session.world, VerbRecord()
    if session.options.null:
        return record, ()
    written = verb.written_by or checkpoint.split(world.size)
    files = state_files(checkpoint, written)
    base = session.directory(checkpoint.root, checkpoint.path, checkpoint.digest(written))
    number, directory, passed_over = world.on_rank_0(
        f"find checkpoint `{checkpoint.name}`", lambda: _newest(checkpoint, base, written)
    )
    names = world.on_rank_0("list its files", lambda: [name for name, _ in files.files()])
    record.resident_bytes, record.examined_bytes = world.together(
        lambda: resident_before_reading(session, len(names), lambda file: directory / names[file])
    )
    holder = verb.parallel or checkpoint.split(world.size)
    found = fetches(files, holder, (world.rank + verb.shift) % world.size, verb.everything)
    started = perf_counter_ns()
    _read(session, files, directory, list(steps(found, checkpoint.access.transfer)), number, record)
    record.wall_ns = perf_counter_ns() - started
    return record, tuple(f"passed over {text}" for text in passed_over)


def _read(
    session: Session, files: StateFiles, directory: Path, own: list[Step], number: int, record: VerbRecord
) -> None:
    world, access = session.world, files.checkpoint.access
    makers = {step.file: step.maker for step in own}
    names = list(makers)
    shared = files.regions
    if shared:
        names = [files.name_of_shared()]

    def size(file: int) -> int:
        return files.size(names[file], makers.get(names[file], 0))

    readable = Files(directory, lambda file: names[file], size, shared, world.comm)
    rounds = np.array([len(own)], np.int64)
    if access.collective:
        world.allreduce(rounds, "max")
    numbers = {name: place for place, name in enumerate(names)}
    plans = [_calls(numbers[step.file], step, access.page) for step in own]
    largest = max((plan.buffer_size for plan in plans), default=0)
    buffer = world.together(lambda: _buffer(session, largest))
    error: DliosimError | None = None
    reader = open_readers(access, readable)[0]
    keys = part_keys(files.checkpoint, files.parts, number)
    try:
        with session.progress.during(
            f"restore {files.checkpoint.name}", lambda: sum(step.segment.length for step in own)
        ):
            reader.begin_epoch()
            for place in range(int(rounds[0])):
                if place >= len(own):
                    reader.read(_nothing(), buffer)
                    continue
                _step(session, files, reader, plans[place], own[place], keys, directory, buffer, record)
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
    record.files = len(names)


def _step(
    session: Session,
    files: StateFiles,
    reader: Reader,
    plan: Calls,
    step: Step,
    keys: list[int],
    directory: Path,
    buffer: memoryview,
    record: VerbRecord,
) -> None:
    reader.read(plan, buffer)
    begun = perf_counter_ns()
    segment = step.segment
    row, at = files.parts[segment.part].row_bytes, 0
    for begin, length in zip(plan.sample_start.tolist(), step.length.tolist(), strict=True):
        part = segment._replace(begin=segment.begin + at, length=length)
        wrong = first_wrong(keys[segment.part], row, part, buffer[begin : begin + length])
        if wrong is not None:
            raise ExecutionError(f"{directory / step.file} differs from what was saved", "R401")
        at += length
    record.content_ns += perf_counter_ns() - begun
    record.bytes += segment.length
    session.progress.tick(perf_counter_ns(), 0, record.bytes)


def _calls(file: int, step: Step, page: int) -> Calls:
    count = len(step.offset)
    rows = np.arange(count)
    extents = Extents(rows, np.full(count, file), step.offset, step.length, np.array([0, count]))
    return calls(extents, None, page)


def _newest(checkpoint: Checkpoint, base: Path, written: Split) -> tuple[int, Path, list[str]]:
    """As `versions.newest_complete`, whose error also says what other jobs have saved."""
    try:
        return versions.newest_complete(base, checkpoint.name, written.present)
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


def _nothing() -> Calls:
    """What a rank brings to a collective round for which it has no more."""
    none = np.empty(0, np.int64)
    edge = np.zeros(2, np.int64)
    return Calls(none, none, none, none, edge, edge[:1], none, edge)
