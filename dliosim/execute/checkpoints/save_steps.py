"""The steps of one save: begun, written and completed, old ones deleted. Times do not count making contents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from time import perf_counter_ns

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import DliosimError, ExecutionError
from dliosim.execute.checkpoints.partner_replication import copy_to_partner
from dliosim.execute.checkpoints.plan_metadata import exchange_plans, gather_runs, join_runs, write_metadata
from dliosim.execute.checkpoints.state_writer import Made, Run, largest_call, write_state
from dliosim.execute.checkpoints.worker_thread import BackgroundTask
from dliosim.execute.node.free_space import require_space
from dliosim.execute.node.striping import request_striping
from dliosim.execute.phases.context import Session
from dliosim.execute.store.checkpoint_manifest import CheckpointManifest
from dliosim.execute.store.checkpoint_store import highest_number
from dliosim.measure.rank.records import VerbRecord
from dliosim.measure.rank.stopwatch import Stopwatch
from dliosim.plan.checkpoints.layout import METADATA, StateFiles


@dataclass(slots=True)
class CheckpointSave:
    """One save: where it is written, its record, and its tasks in the background."""

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
        """Return whether no task of it is running or waiting on this rank."""
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
            if (has := (path := save.directory / name).stat().st_size) < size:
                text = f"MPI_File_write_at_all reported no error, but wrote {has} of {size} bytes of {path}"
                raise ExecutionError(text, "R402")
    if plan is not None:
        with Stopwatch(record, "plan_ns", aside=True):
            found[METADATA] = write_metadata(files, plan, save.directory)
    ranks = files.split.present_ranks
    saved = CheckpointManifest(checkpoint.name, save.base.name, checkpoint.commit, ranks, files.split, found)
    times = session.stores.open_to_save(save.base).commit(save.number, saved)
    record.directory_sync_ns, record.manifest_ns, record.rename_ns = times


def delete_old(session: Session, save: CheckpointSave, base: Path, what: str = "checkpoints") -> int:
    """Delete what `keep` does not keep in `base`; return the time that it took, in ns. Collective.

    Raises DliosimError on every rank.
    """
    checkpoint, keep = save.files.checkpoint, save.files.checkpoint.keep
    if keep is None:
        return 0
    begun = perf_counter_ns()
    doing = f"delete old {what} `{checkpoint.name}`"
    session.world.run_on_rank_0(doing, lambda: session.stores.open_to_save(base).delete_old(keep))
    return perf_counter_ns() - begun


def write_buffer_bytes(files: StateFiles, rank: int) -> int:
    """Return the bytes of write buffers of a rank: one for its own calls, one for those of its senders in turn."""
    return largest_call(files, rank) + sum(largest_call(files, sender) for sender in islice(files.senders(rank), 1))
