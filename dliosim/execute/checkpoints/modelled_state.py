"""Saves and restores on a storage that a file describes: ranks wait for their calls, and no byte is made or moved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, groupby, islice, pairwise
from pathlib import Path
from time import perf_counter_ns

from dliosim.errors import HELP
from dliosim.execute.backends.contract import record_meter
from dliosim.execute.backends.modelled_reader import ModelledCalls, ModelledStorage, refuse_first, require_calls
from dliosim.execute.checkpoints.state_reader import ReadPass
from dliosim.execute.checkpoints.state_writer import pieces_of, take_turn
from dliosim.execute.phases.context import Session
from dliosim.measure.rank.meter import Meter, Stopwatch
from dliosim.measure.rank.records import VerbRecord
from dliosim.model import Checkpoint, Restore, StorageModel, Verb, Workload
from dliosim.model.verbs import flatten_verbs, list_saved_checkpoints
from dliosim.plan.checkpoints.layout import StateFiles, count_pieces, state_files
from dliosim.plan.checkpoints.reshard import count_steps, cut_steps, restore_passes
from dliosim.plan.predict.saves import list_restore_refusals
from dliosim.trace.calls import Call

#: Calls that are waited for at a time.
_CALLS = 1024


def require_modelled_states(workload: Workload, verbs: tuple[Verb, ...], storage: StorageModel) -> None:
    """Raise PlanError, on every rank, if no description says what a save or a restore of some verbs takes."""
    ranks = workload.job.ranks
    for name in list_saved_checkpoints(verbs):
        checkpoint = workload.checkpoint(name)
        files = state_files(checkpoint, checkpoint.split(ranks))
        _require_parts(checkpoint)
        owner = next((rank for rank in range(files.split.present_ranks) if files.owner_bytes(rank)), 0)
        calls, _ = count_pieces(files.shards(owner), checkpoint.access.transfer, checkpoint.pieces == "whole")
        _require_mean(name, files.owner_bytes(owner), calls, storage, storage.write_rate)
    for verb, _ in flatten_verbs(verbs):
        if isinstance(verb, Restore):
            checkpoint = workload.checkpoint(verb.checkpoint)
            _require_parts(checkpoint)
            refuse_first(verb.checkpoint, list_restore_refusals(verb))
            split = checkpoint.split(ranks)
            passes = restore_passes(
                state_files(checkpoint, verb.written_by or split), verb.parallel or split, verb, ranks, 0
            )
            access, whole = checkpoint.access, checkpoint.pieces == "whole"
            totals = [count_steps(reads[0](), access.transfer, whole, access.page) for reads in passes]
            calls, size = sum(total.calls for total in totals), sum(total.bytes for total in totals)
            _require_mean(checkpoint.name, size, calls, storage, storage.servers.rate)


def _require_parts(checkpoint: Checkpoint) -> None:
    access, name = checkpoint.access, checkpoint.name
    refused = (
        (access.collective, f"the two phases of collective calls are not modelled{HELP}`-D {name}.api=posix` is"),
        (checkpoint.drain is not None, f"draining to another storage is not modelled{HELP}leave `drain to` out"),
        (checkpoint.partner is not None, f"copies of partners are not modelled{HELP}leave `partner` out"),
        (checkpoint.metadata, f"the file of all plans is not modelled{HELP}`-D {name}.metadata=off` is"),
    )
    refuse_first(name, refused)


def _require_mean(name: str, size: int, calls: int, storage: StorageModel, rate: float) -> None:
    if calls:
        require_calls(name, size / calls, storage, rate)


def write_modelled(
    session: Session, files: StateFiles, directory: Path, storage: ModelledStorage, record: VerbRecord
) -> None:
    """Wait as long as the calls take that write this rank's files; a trace has them in `directory`.

    Ranks that send their state to a writer send nothing: its calls alone take time.
    """
    rank, checkpoint = session.world.rank, files.checkpoint
    is_shared = checkpoint.writers.kind == "shared file"
    makers = [rank, *files.senders(rank)] if files.writer(rank) == rank else []
    pieces = chain.from_iterable(pieces_of(files, maker) for maker in makers)
    ranges = ((piece.file, [(piece.offset, piece.length)]) for piece in pieces)
    waiting = _CheckpointCalls(session, files, directory, storage, record)
    call = Call.MPI_WRITE if checkpoint.access.is_mpi else Call.WRITE
    names = [files.shared_file_name()] if is_shared else files.file_names(rank)
    with take_turn(session, files, record):
        waiting.wait(ranges, call, storage.model.write_rate, names)
    record.wall_ns += record.turn_ns
    if is_shared:
        record.files = int(rank == 0)


def read_modelled(session: Session, files: StateFiles, passes: list[ReadPass], storage: ModelledStorage) -> VerbRecord:
    """Wait as long as the calls take that this rank reads, and for the slowest rank. Collective.

    Ranks that others read for receive nothing.
    """
    access, record, whole = files.checkpoint.access, VerbRecord(), files.checkpoint.pieces == "whole"
    fetches = chain.from_iterable(each.own_reads() for each in passes)
    ranges = (
        (step.file, list(zip(step.offset.tolist(), step.length.tolist(), strict=True)))
        for step in cut_steps(fetches, access.transfer, whole, access.page)
    )
    waiting = _CheckpointCalls(session, files, session.save_directory(files.checkpoint, files.split), storage, record)
    session.world.barrier()
    waiting.wait(ranges, Call.MPI_READ if access.is_mpi else Call.READ, storage.model.servers.rate)
    with Stopwatch(record, "wall_ns"):
        session.world.barrier()
    return record


@dataclass(frozen=True, slots=True)
class _CheckpointCalls:
    """The calls of one rank for a checkpoint."""

    session: Session
    files: StateFiles
    directory: Path
    storage: ModelledStorage
    record: VerbRecord

    def wait(
        self, ranges: Iterable[tuple[str, list[tuple[int, int]]]], call: Call, rate: float, empty: Iterable[str] = ()
    ) -> None:
        """Wait for calls by the name of their file, with their offsets and bytes; planning them is not timed.

        A file is opened once, those of `empty` also without calls.
        """
        record = self.record
        names = [name for name, _ in self.files.files()]
        numbers = {name: number for number, name in enumerate(names)}
        meter = Meter(lambda file: f"{self.directory / names[file]}", call)
        calls = ModelledCalls(self.storage, self.session.world.rank, rate, meter)
        opened = set[int]()
        for name, same in groupby(chain(ranges, ((name, []) for name in empty)), key=lambda some: some[0]):
            file = numbers[name]
            each = ((file, offset, length) for _, some in same for offset, length in some)
            while (part := list(islice(each, _CALLS))) or file not in opened:
                with Stopwatch(record, "wall_ns"):
                    stamps = calls.wait([file] if file not in opened else [], part)
                opened.add(file)
                _note_calls(meter, call, part, stamps)
                record.bytes = meter.moved
                self.session.progress.tick(perf_counter_ns(), 0, record.bytes)
        record.files = len(opened)
        record_meter(meter, record)


def _note_calls(meter: Meter, call: Call, ranges: list[tuple[int, int, int]], stamps: list[int]) -> None:
    """Note the latencies of calls, and in a run that is recorded the calls."""
    for (file, offset, length), (began, ended) in zip(ranges, pairwise(stamps), strict=True):
        meter.call_ns.append(ended - began)
        if meter.log is not None:
            meter.log.add_call(call, began, file, offset, length, length, ended)
    if meter.log is not None:
        meter.log.make_room()
