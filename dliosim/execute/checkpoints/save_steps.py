"""The steps of one save: begun, written and completed, old ones deleted. Times do not count making contents.

The file of all plans is written last, as PyTorch's distributed checkpoint does it: rank 0 gathers the local plans,
makes one plan of them, and sends each rank its own; when all data are written, it writes the file. A partner's second
copy of what a rank saves is stored in the checkpoint and complete with it.
"""

from __future__ import annotations

import json
import os
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from pathlib import Path
from time import perf_counter_ns
from typing import TypeAlias, cast

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from dliosim.errors import DliosimError, ExecutionError
from dliosim.execute.backends.contract import Writer, allocate, close_writer
from dliosim.execute.backends.registry import open_writer
from dliosim.execute.checkpoints.background import BackgroundTask
from dliosim.execute.checkpoints.state_writer import Made, Run, largest_call, pieces_of, write_state
from dliosim.execute.mpi.world import World
from dliosim.execute.node.environment import require_space
from dliosim.execute.node.striping import request_striping
from dliosim.execute.payload.payload_format import crc32_combine
from dliosim.execute.phases.context import Session
from dliosim.execute.safe_open import open_for_read, write_file
from dliosim.execute.store.checkpoint_store import highest_number
from dliosim.execute.store.manifest import CheckpointManifest
from dliosim.measure.rank.meter import Stopwatch
from dliosim.measure.rank.records import VerbRecord
from dliosim.model import Access
from dliosim.plan.checkpoints.layout import METADATA, StateFiles, partner_file

#: Bytes of a file of a checkpoint, and their CRC-32.
SavedFile: TypeAlias = tuple[int, int]

#: Columns of the rows of shards, the one with the file, and columns of the rows of runs.
_SHARD, _FILE, _RUN = 7, 5, 4


@dataclass(slots=True)
class CheckpointSave:
    """One save: its directory, its record, and its tasks in the background."""

    #: the plan of its files
    files: StateFiles
    #: its times and counts; final when the save `is_over`
    record: VerbRecord = field(default_factory=VerbRecord)
    #: number of the checkpoint
    number: int = 0
    #: the directory that it is written in
    directory: Path = Path()
    #: name of the loop that it belongs to; None outside of loops
    within: str | None = None
    #: time that the caller spent on making contents; ns
    content_ns: int = 0
    #: time that it held this rank: of a save that blocks the longest `stall_ns` of any rank, else its own; ns
    held_ns: int = 0
    #: time by which staging was slower than its pace; ns
    late_ns: int = 0
    #: its flush; None if it is saved while the ranks wait
    flush: BackgroundTask | None = None
    #: its drain; None without `drain to`
    drain: BackgroundTask | None = None
    #: notes for the report: why it is not striped as asked, what was removed of earlier jobs
    notes: list[str] = field(default_factory=list)
    #: the runs that this rank has written, kept until they are drained
    runs: list[Run] = field(default_factory=list)

    @property
    def base(self) -> Path:
        """Return the directory of all numbers of this checkpoint."""
        return self.directory.parent

    @property
    def is_over(self) -> bool:
        """Return whether no task of this save is running or waiting on this rank."""
        return all(job is None or job.is_over for job in (self.flush, self.drain))

    @property
    def error(self) -> DliosimError | None:
        """Return the error that ended it, as far as this rank knows."""
        found = (job.error for job in (self.flush, self.drain) if job is not None and job.is_over)
        return next((error for error in found if error is not None), None)


def begin_save(session: Session, save: CheckpointSave, failed: DliosimError | None) -> None:
    """Make the directory in which the next checkpoint is written. Collective; raises DliosimError on every rank.

    `failed` is the error that ended an earlier save of this checkpoint, as far as rank 0 knows; every rank raises it
    then.
    """
    files, checkpoint = save.files, save.files.checkpoint
    base = session.save_directory(checkpoint, files.split)
    if session.modelled is not None:
        save.number = session.modelled.number_save(checkpoint.name)
        save.directory = base / f"{save.number:06d}"
        return

    def make_directory() -> tuple[int, Path, list[str]]:
        if failed is not None:
            raise failed
        store = session.stores.open_to_save(base)
        copies = 1 if checkpoint.partner is None else 2
        require_space(base, copies * files.total(), f"checkpoint `{checkpoint.name}`")
        drained = session.drain_directory(checkpoint, files.split)
        # If the faster root was emptied, the other root may still hold copies with higher numbers.
        number, directory = store.begin(checkpoint.commit, highest_number(drained) if drained is not None else 0)
        if checkpoint.drain is not None:
            store.add_pin(number)  # until it is drained
        refused = request_striping(directory, checkpoint.stripe)
        swept = [f"removed {name}, which an earlier job had not finished" for name in store.swept]
        store.swept.clear()
        return number, directory, [*filter(None, [refused]), *swept]

    doing = f"make room for checkpoint `{checkpoint.name}`"
    with Stopwatch(save.record, "wall_ns"):
        save.number, save.directory, notes = session.world.run_on_rank_0(doing, make_directory)
    save.notes += notes


def write_checkpoint(session: Session, save: CheckpointSave, made: Callable[[], Made]) -> None:
    """Write the share of each rank, and that of its partner, and make the checkpoint complete. Collective.

    Raises DliosimError on every rank; nothing is left of the checkpoint then. `made` returns the calls of this rank;
    each time it is called, they begin again. `wall_ns` counts neither the making of contents nor the time in which this
    rank waits for others to have written: it counts from then on until the checkpoint is complete.
    """
    world, files, record = session.world, save.files, save.record
    if session.modelled is not None:
        from dliosim.execute.checkpoints.modelled_state import write_modelled  # most runs need none of it

        write_modelled(session, files, save.directory, session.modelled, record)
        world.barrier()
        return
    checkpoint = files.checkpoint
    error: DliosimError | None = None
    runs: list[Run] = []
    plan: NDArray[np.int64] | None = None
    try:
        try:
            with Stopwatch(record, "wall_ns"):
                if checkpoint.metadata:
                    with Stopwatch(record, "plan_ns"):
                        plan = exchange_plans(world, files)
                runs = write_state(session, files, save.directory, made(), record)
        except DliosimError as failure:
            if failure.shared:
                raise
            if checkpoint.writers.kind in ("one per", "rank"):
                world.abort(failure)
            error = failure
        world.agree_on_error(error)
        if checkpoint.partner is not None:
            runs += copy_to_partner(session, files, checkpoint.partner, save.directory, made(), record)
            record.wall_ns += record.partner_ns
        planned = record.plan_ns
        with Stopwatch(record, "commit_ns"):
            gathered = gather_runs(world, files, runs)
            doing = f"complete checkpoint `{checkpoint.name}`"
            world.run_on_rank_0(doing, lambda: _commit(session, save, plan, gathered or []))
        record.wall_ns += record.commit_ns + record.plan_ns - planned
    except DliosimError:
        if world.rank == 0:
            session.stores.open_to_save(save.base).abandon(save.number)
        raise
    if checkpoint.drain is not None:  # else they are not kept: in a shared file, that is a run a tensor
        save.runs = runs


def _commit(
    session: Session, save: CheckpointSave, plan: NDArray[np.int64] | None, gathered: list[NDArray[np.int64]]
) -> None:
    """Join what all ranks have written, and commit it; for rank 0."""
    files, record, checkpoint = save.files, save.record, save.files.checkpoint
    found = join_runs(files, gathered)
    if checkpoint.access.collective:
        # Open MPI reports success of a collective write whose system call has failed.
        for name, (size, _) in found.items():
            path = save.directory / name
            with open_for_read(path) as descriptor:  # opening a file makes NFS ask for its size again
                has = os.fstat(descriptor).st_size
            if has < size:
                text = f"MPI_File_write_at_all reported no error, but wrote {has} of {size} bytes of {path}"
                raise ExecutionError(text, "R402")
    if plan is not None:
        with Stopwatch(record, "plan_ns", aside=True):
            found[METADATA] = write_metadata(files, plan, save.directory)
    ranks = files.split.present_ranks
    saved = CheckpointManifest(checkpoint.name, save.base.name, checkpoint.commit, ranks, files.split, found)
    times = session.stores.open_to_save(save.base).commit(save.number, saved)
    record.directory_sync_ns, record.manifest_ns, record.rename_ns = times.sync_ns, times.manifest_ns, times.rename_ns


def delete_old(session: Session, save: CheckpointSave, base: Path, what: str = "checkpoints") -> int:
    """Delete what `keep` does not keep in `base`; return the time that it took, in ns. Collective.

    Raises DliosimError on every rank.
    """
    checkpoint, keep = save.files.checkpoint, save.files.checkpoint.keep
    if keep is None or session.modelled is not None:
        return 0
    begun = perf_counter_ns()
    doing = f"delete old {what} `{checkpoint.name}`"
    session.world.run_on_rank_0(doing, lambda: session.stores.open_to_save(base).delete_old(keep))
    return perf_counter_ns() - begun


def write_buffer_bytes(files: StateFiles, rank: int) -> int:
    """Return the bytes of write buffers of a rank: one for its own calls, one for those of its senders in turn."""
    return largest_call(files, rank) + sum(largest_call(files, sender) for sender in islice(files.senders(rank), 1))


def copy_to_partner(
    session: Session, files: StateFiles, distance: int, directory: Path, made: Made, record: VerbRecord
) -> list[Run]:
    """Send what this rank saves to rank r + `distance`, write what rank r - `distance` sends, and return its run.

    Calls are exchanged one by one, so that at most one call of each rank is in memory. Collective; raises DliosimError
    on every rank.
    """
    world, checkpoint = session.world, files.checkpoint
    target, source = (world.rank + distance) % world.size, (world.rank - distance) % world.size
    with Stopwatch(record, "partner_ns"):
        keeping = _PartnerFile(checkpoint.access, directory / partner_file(source))
        buffer = allocate(largest_call(files, source))
        # In each ring of partners some rank must send first and some receive first, or all would wait for each other.
        sends_first = world.rank // distance % 2 == 0
        for own, coming in zip_longest(made, pieces_of(files, source)):
            if own is not None and sends_first:
                world.ranks.send(own[1], target)
            if coming is not None:
                data = buffer[: coming.length]
                world.ranks.receive(data, source)
                keeping.write(data)
            if own is not None and not sends_first:
                world.ranks.send(own[1], target)
        keeping.close(checkpoint.fsync)
    record.partner_bytes = keeping.size
    world.agree_on_error(keeping.error)
    return [(partner_file(source), 0, keeping.size, keeping.checksum)] if keeping.size else []


class _PartnerFile:
    """A file that accepts calls even after an `error`, since other ranks wait to send and to receive."""

    def __init__(self, access: Access, path: Path) -> None:
        self.size = self.checksum = 0
        self.error: DliosimError | None = None
        self._writer: Writer | None = None
        try:
            self._writer = open_writer(access, path, MPI.COMM_SELF)
        except DliosimError as error:
            self.error = error

    def write(self, data: memoryview) -> None:
        """Append bytes; after an error only count them."""
        if self._writer is not None and self.error is None:
            try:
                self._writer.write(self.size, data)
            except DliosimError as error:
                self.error = error
        self.size += len(data)
        self.checksum = zlib.crc32(data, self.checksum)

    def close(self, fsync: bool) -> None:
        """Sync and close the file; keep the first error."""
        if self._writer is None:
            return
        try:
            if fsync and self.error is None:
                self._writer.sync()
            close_writer(self._writer, VerbRecord())
        except DliosimError as error:
            self.error = self.error or error


def exchange_plans(world: World, files: StateFiles) -> NDArray[np.int64] | None:
    """Gather the plans of all ranks on rank 0 and send each rank its own. Collective.

    Returns on rank 0 an array (shards, 7) of int64: part, row0, row1, col0, col1, file (its index in
    `StateFiles.files`), offset in bytes; None on other ranks. Raises ExecutionError on every rank if the
    plan of one came back different.
    """
    own = _shard_rows(files, world.rank)
    gathered = _gather_rows(world, own)
    received = own.copy()
    world.ranks.scatter([_byte_view(part) for part in gathered] if gathered is not None else None, _byte_view(received))
    is_same = np.array_equal(received, own)
    wrong = ExecutionError("the plan that rank 0 sent to this rank differs from the plan of this rank")
    world.agree_on_error(None if is_same else wrong)  # ranks that take turns would wait for one that leaves
    return None if gathered is None else _number_files(files, gathered)


def write_metadata(files: StateFiles, plan: NDArray[np.int64], directory: Path) -> SavedFile:
    """Write the file of all plans, durably if the checkpoint says so. For rank 0; raises ExecutionError."""
    content = {
        "parts": [part.name for part in files.parts],
        "files": [name for name, _ in files.files()],
        "shards": plan.tolist(),
    }
    data = json.dumps(content, separators=(",", ":")).encode()
    write_file(directory / METADATA, [data], files.checkpoint.fsync)
    return len(data), zlib.crc32(data)


def gather_runs(world: World, files: StateFiles, written: Sequence[Run]) -> list[NDArray[np.int64]] | None:
    """Gather what each rank has written, for `join_runs`, on rank 0; None on other ranks. Collective."""
    made = _writer_files(files, world.rank)
    rows = [(made.index(name), offset, length, value) for name, offset, length, value in written]
    return _gather_rows(world, np.array(rows, np.int64).reshape(-1, _RUN))


def join_runs(files: StateFiles, gathered: Sequence[NDArray[np.int64]]) -> dict[str, SavedFile]:
    """Return bytes and checksum of every file, joined from the runs of all ranks.

    Raises ExecutionError if the runs of a file leave a gap, overlap, or end before its size.
    """
    runs: dict[str, list[list[int]]] = defaultdict(list)
    for rank, own in enumerate(gathered):
        names = _writer_files(files, rank)
        for file, *run in own.tolist():
            runs[names[file]].append(run)
    found = {name: _join_file_runs(name, files.size(name, maker), runs[name]) for name, maker in files.files()}
    copies = {name: _join_file_runs(name, files.owner_bytes(rank), runs[name]) for name, rank in files.partner_files()}
    return found | copies


def _writer_files(files: StateFiles, rank: int) -> tuple[str, ...]:
    """Return the files that a rank writes to: its own or the shared one, and the copy that it keeps of its partner."""
    checkpoint = files.checkpoint
    own = (files.shared_file_name(),) if checkpoint.writers.kind == "shared file" else files.file_names(rank)
    if checkpoint.partner is None:
        return own
    return (*own, partner_file((rank - checkpoint.partner) % files.split.present_ranks))


def _join_file_runs(name: str, size: int, runs: list[list[int]]) -> SavedFile:
    end = value = 0
    for offset, length, checksum in sorted(runs):
        if offset != end:
            raise ExecutionError(f"{name}: byte {min(offset, end)} was not written, or written twice")
        value = crc32_combine(value, checksum, length)
        end += length
    if end != size:
        raise ExecutionError(f"{name} was written up to byte {end} of {size}")
    return size, value


def _shard_rows(files: StateFiles, rank: int) -> NDArray[np.int64]:
    made = {name: number for number, name in enumerate(files.file_names(files.writer(rank)))}
    rows = [(shard.part, *shard.block, made.get(shard.file, 0), shard.offset) for shard in files.shards(rank)]
    return np.array(rows, np.int64).reshape(-1, _SHARD)


def _number_files(files: StateFiles, gathered: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the rows of all ranks, with the file numbers of each rank replaced by those of `StateFiles.files`."""
    rows = np.concatenate(gathered)
    if not files.regions:
        first: dict[int, int] = {}
        for number, (_, maker) in enumerate(files.files()):
            first.setdefault(maker, number)
        makers = [first.get(files.writer(rank), 0) for rank in range(len(gathered))]
        rows[:, _FILE] += np.repeat(makers, [len(own) for own in gathered])
    return rows


def _byte_view(numbers: NDArray[np.int64]) -> memoryview:
    return memoryview(cast(bytes, numbers.view(np.uint8).ravel()))


def _gather_rows(world: World, rows: NDArray[np.int64]) -> list[NDArray[np.int64]] | None:
    """Gather the rows of all ranks on rank 0; None on other ranks. Collective."""
    counts = world.gather(np.array([rows.size], np.int64))
    lengths = counts.ravel().tolist() if counts is not None else [0] * world.rank + [rows.size]
    parts = world.gather_parts(rows.ravel(), lengths)
    return None if parts is None else [part.reshape(-1, rows.shape[1]) for part in parts]
