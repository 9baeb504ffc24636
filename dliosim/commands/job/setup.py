"""The set-up that all commands on ranks share: the start of the command, the pattern, sessions and directories."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from threading import Lock
from time import monotonic, perf_counter_ns
from types import SimpleNamespace
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np
from mpi4py import MPI

from dliosim.commands.command_line.options import describe_dataset, parse_used_roots
from dliosim.commands.command_line.program import find_program
from dliosim.commands.job.garbage import freeze_objects
from dliosim.commands.job.mpi_entry import run_job, watch_stalls
from dliosim.commands.job.signals import OVER
from dliosim.commands.job.terminal import colour_choice, has_colours, user_terminal
from dliosim.errors import HELP, DamageDiagnosticsError, DiagnosticsError, UsageError
from dliosim.execute.backends.registry import list_accesses
from dliosim.execute.io_errors import rank_0_error
from dliosim.execute.mpi.job_abort import RESULTS_DUE
from dliosim.execute.mpi.world import World
from dliosim.execute.node.statx import find_alignment, set_alignment
from dliosim.execute.phases.context import OpenDataset, Options, Session
from dliosim.execute.stalls import StallLimits
from dliosim.execute.store.checkpoint_store import CheckpointStores
from dliosim.measure.progress.board import process_row
from dliosim.model import Dataset, StorageModel, Workload
from dliosim.model.direct_io import DIRECT_ALIGNMENT
from dliosim.readable import count
from dliosim.report.progress.progress_line import ProgressLine

#: Seconds without a write, at least, and how many times as long as the last write took: writing takes 2 % at most.
_PAUSE, _SPARSE = 5.0, 50


class PartialResults:
    """The partial results of a run, which are written between `begin` and `final_write` of the main thread.

    No MPI is needed. The last write survives however the run ends: launchers may kill the ranks before any of them can
    write its results. Without `begin`, `save` only returns `otherwise`.
    """

    def __init__(self, otherwise: str) -> None:
        self._due = 0.0
        self._lock = Lock()
        self._write: Callable[[str], Path | None] | None = None
        self.otherwise = otherwise  #: what is said where nothing is written

    def begin(self, write: Callable[[str], Path | None]) -> None:
        """Allow results to be written from now on by `write`, which returns the file, or None if nothing is finished.

        It takes the name of the signal, which is empty for `keep`.
        """
        self._write = write
        self._due = monotonic() + _PAUSE

    @contextmanager
    def final_write(self) -> Iterator[None]:
        """Write results.json in this block; partial results are not written during it or later."""
        with self._lock:
            self._write, self.otherwise = None, OVER
            yield

    def keep(self) -> None:
        """Write results.partial.json unless it is recent; an epoch or a verb has ended, and no clock runs.

        A failed write is not reported: the run may well end with results.
        """
        began = monotonic()
        if self._write is not None and began >= self._due and self._lock.acquire(blocking=False):
            try:
                with suppress(OSError):
                    self._write("")
            finally:
                self._lock.release()
                self._due = monotonic() + max(_PAUSE, _SPARSE * (monotonic() - began))

    def save(self, signal: str) -> str:
        """Write results.partial.json if anything is finished; return a sentence about it."""
        if not self._lock.acquire(timeout=RESULTS_DUE):
            return f"{OVER}, and its results were still being written"
        try:
            if self._write is None:
                return self.otherwise
            place = self._write(signal)
            return f"what was finished is in {place}" if place else f"{self.otherwise}, because nothing was finished"
        except OSError as error:
            return str(rank_0_error("write the partial results", error))
        except Exception as error:  # the job must end, even if its results cannot be made
            return f"the partial results could not be made: {error!r}"
        finally:
            self._lock.release()


if TYPE_CHECKING:
    from dliosim.formats.protocols import ExistingFiles
    from dliosim.language.diagnostics import Diagnostic

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setup:
    """A command on the ranks of a job, from its start."""

    world: World  #: the ranks
    parsed: SimpleNamespace  #: options
    arguments: tuple[str, ...]  #: command line
    stores: CheckpointStores  #: checkpoints that the command uses
    progress: ProgressLine  #: the display of how far it is
    stack: ExitStack  #: what is closed when the command ends
    partial: PartialResults  #: results of what is finished, for a signal
    started: datetime  #: when it began
    begun_ns: int  #: the same by the clock
    load: float  #: load average before

    @property
    def program(self) -> str:
        """Command or path to type for dliosim."""
        return find_program()

    @property
    def seconds(self) -> float:
        """Wall time since the command began."""
        return (perf_counter_ns() - self.begun_ns) * 1e-9


class RankCommand(ABC):
    """A command on all ranks of a job.

    `run_on_ranks` calls `read`, `open`, `run` and `report` in this order on every rank. Each is collective, and what it
    raises ends the command.
    """

    #: what is said when a signal comes before there are results to write
    unfinished: ClassVar[str]

    def __init__(self, setup: Setup) -> None:
        self.setup = setup

    @abstractmethod
    def read(self) -> None:
        """Read the task on rank 0: pattern, options, files."""

    def open(self) -> None:
        """Check and open everything that is needed until the end, in `setup.stack`."""
        return

    @abstractmethod
    def run(self) -> None:
        """Do it."""

    @abstractmethod
    def report(self) -> int:
        """Write and print the results on rank 0; return the exit status, the same on every rank."""


def run_on_ranks(
    comm: MPI.Intracomm, arguments: Sequence[str], parsed: SimpleNamespace | None, command: type[RankCommand]
) -> int:
    """Run a command on all ranks of `comm` as `run_job`; return the exit status, the same on every rank.

    `parsed` are the parsed `arguments`; without it rank 0 parses them, and the others receive the result.
    """
    unfinished = PartialResults(command.unfinished)

    def run(world: World) -> int:
        given = parsed if parsed is not None else world.run_on_rank_0("read the command line", lambda: _read(arguments))
        limits = StallLimits(given.stall_report, given.stall_timeout)
        with ExitStack() as stack:
            stack.enter_context(watch_stalls(world, limits, unfinished.save))
            stores = stack.enter_context(CheckpointStores())
            begun = datetime.now(timezone.utc), perf_counter_ns(), os.getloadavg()[0]
            live = sys.stderr if getattr(given, "live", False) else None
            shown = (user_terminal() or live) if world.rank == 0 else None
            progress = ProgressLine(shown, row=process_row(), live=live is not None)
            job = command(Setup(world, given, tuple(arguments), stores, progress, stack, unfinished, *begun))
            job.read()
            job.open()
            job.run()
            return job.report()

    return run_job(comm, run, unfinished.save)


@freeze_objects()
def _read(arguments: Sequence[str]) -> SimpleNamespace:
    from dliosim.commands.command_line.line import parse_line

    line = parse_line(arguments)
    colour_choice[0] = line.colour  # on rank 0 alone, which prints
    return line


@freeze_objects()
def compile_or_explain(compile_pattern: Callable[[], tuple[T, Iterable[Diagnostic]]]) -> T:
    """Return the result of compiling on rank 0, and print the warnings; UsageError with all mistakes as text."""
    from dliosim.language.diagnostics import PatternError, render

    colour = has_colours(sys.stderr, 2)
    try:
        found, warnings = compile_pattern()
    except PatternError as error:
        text = render(error.diagnostics, colour)
        damaged = error.exit_code == DamageDiagnosticsError.exit_code
        raise (DamageDiagnosticsError if damaged else DiagnosticsError)(text) from error
    if warnings:
        sys.stderr.write(render(warnings, colour) + "\n")
    return found


def require_one_node(nodes: int) -> None:
    """Raise UsageError, on every rank, if ranks of several nodes would wait on a described storage."""
    if nodes > 1:
        text = f"--storage: {count(nodes, 'node')} share no memory, in which ranks wait for each other's calls"
        raise UsageError(f"{text}{HELP}run all ranks on one node")


def check_output(given: str | None) -> None:
    """Check that the results can go to the directory `given`, or to a new one below the current one.

    Raises UsageError if it has the results of another run or comparison, and OSError if no file can be made.
    """
    from dliosim.commands.job.results_dir import ANY, check_directory  # rank 0 alone imports what writes results

    check_directory("--output", given, "the results of another run", ANY)


def open_sessions(
    setup: Setup,
    used: Sequence[Workload],
    workloads: Sequence[Workload],
    sources: Mapping[str, ExistingFiles],
    options: Options,
    storage: StorageModel | None,
) -> list[Session]:
    """Return a session for each workload, with all directories made or checked. Collective.

    `used` are the workloads whose roots may be given. With a described storage there is no I/O. Raises UsageError and
    ExecutionError on every rank.
    """
    options = replace(options, null=options.null or storage is not None)
    world, parsed = setup.world, setup.parsed
    # Paths come from rank 0: other ranks may have another working directory.
    roots = world.run_on_rank_0("find the directories", lambda: parse_used_roots(parsed, used))
    opened: dict[Dataset, OpenDataset] = {}  # what several sessions read is opened once
    sessions = [
        Session(each, world, roots, options, setup.progress, opened, sources, setup.stores, describe_dataset)
        for each in workloads
    ]
    for session in sessions:
        world.run_on_rank_0("find the directories", session.check_directories)
    cure = "write `--output DIR`, with a directory that you may write to"
    world.run_on_rank_0("make the results directory", lambda: check_output(parsed.output), cure)
    for session in [] if options.null else sessions:
        cure = "write `--dir DIR`, with a directory that you may write to, or one that can be made"
        world.run_on_rank_0("make the data directory", session.make_roots, cure)
    if storage is not None:
        from dliosim.execute.backends.modelled_reader import ModelledStorage  # most commands need none of it

        modelled = ModelledStorage(world.node.comm, storage, workloads[0].seed)
        return [replace(each, modelled=modelled) for each in sessions]
    return sessions if options.null else _align_direct_io(sessions)


def _align_direct_io(sessions: list[Session]) -> list[Session]:
    """Return the sessions with the alignment that file systems ask of O_DIRECT, the same on all ranks. Collective.

    The first rank of each node asks, as nodes may have disks of their own. Nothing is asked where all use the cache.
    """
    if not any(access.cache == "off" for each in sessions for access, _ in list_accesses(each.workload)):
        return sessions
    world, places = sessions[0].world, list(sessions[0].roots.values())
    for dataset in [one for each in sessions for one in each.workload.datasets if one.found in each.sources]:
        places.append(sessions[0].roots[dataset.root] / sessions[0].sources[dataset.found].names[0])
    asked = np.array([find_alignment(places) if world.node.rank == 0 else 0], np.int64)
    alignment = int(world.allreduce(asked, "max")[0])
    if alignment <= DIRECT_ALIGNMENT:  # plans have it
        return sessions
    return [replace(each, workload=set_alignment(each.workload, alignment)) for each in sessions]
