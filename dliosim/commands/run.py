"""The command `dliosim run`: compile on rank 0, run on all ranks, report on rank 0."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import datetime, timezone
from time import perf_counter_ns
from typing import TYPE_CHECKING

from mpi4py import MPI

from dliosim.commands.garbage import freeze_objects
from dliosim.commands.mpi_entry import run_job
from dliosim.commands.options import parse_used_roots
from dliosim.commands.partial import PartialResults
from dliosim.commands.stalls import parse_stall_options
from dliosim.commands.terminal import user_terminal
from dliosim.errors import UsageError
from dliosim.execute.context import Options, Session
from dliosim.execute.mpi.node_cores import fullest_node
from dliosim.execute.mpi.world import World
from dliosim.execute.run.workload_runner import run_with_null, run_workload
from dliosim.execute.store.checkpoint_store import CheckpointStores
from dliosim.measure.board import process_row
from dliosim.model import Job, Workload
from dliosim.report.progress import ProgressLine

if TYPE_CHECKING:
    from dliosim.formats.protocols import ExistingFiles


def run_command(comm: MPI.Intracomm, parsed: argparse.Namespace, arguments: Sequence[str]) -> int:
    """Run a pattern on all ranks of `comm`; return the exit status, the same on every rank."""
    unfinished = PartialResults()

    def run(world: World) -> int:
        with CheckpointStores() as stores:
            return _run(world, parsed, arguments, stores, unfinished)

    return run_job(comm, run, unfinished.save, parse_stall_options(parsed))


def _run(
    world: World,
    parsed: argparse.Namespace,
    arguments: Sequence[str],
    stores: CheckpointStores,
    unfinished: PartialResults,
) -> int:
    begun, load = (datetime.now(timezone.utc), perf_counter_ns()), os.getloadavg()[0]
    if world.rank == 0:
        with freeze_objects():
            from dliosim.commands import run_results
            from dliosim.commands.results_dir import check_output_directory
    job = Job(world.size, world.nodes)
    progress = ProgressLine(user_terminal() if world.rank == 0 else None, row=process_row())
    sources: dict[str, ExistingFiles] = {}

    def read_pattern() -> Workload:
        workload, found = run_results.read_pattern(parsed, job, progress)
        sources.update(found)
        return workload

    # Rank 0 alone reads the pattern, so that 512 ranks do not each build a parser.
    workload = world.run_on_rank_0("read the pattern", read_pattern)
    options = Options(parsed.null, parsed.verify)
    world.run_on_rank_0("look at the options", lambda: _check_options(workload, options))
    # Paths come from rank 0: other ranks may have another working directory.
    places = world.run_on_rank_0("find the directories", lambda: parse_used_roots(parsed, [workload]))
    session = Session(workload, world, places, options, progress, sources=sources, stores=stores)
    world.run_on_rank_0("find the directories", session.check_directories)
    world.run_on_rank_0("make the results directory", lambda: check_output_directory(parsed.output))
    if not options.null:
        world.run_on_rank_0("make the data directory", session.make_roots)
    node = fullest_node(world, load)
    with (
        run_results.collect_results(session, parsed, arguments, begun, node, unfinished)
        if world.rank == 0
        else nullcontext()
    ) as finish:
        phases = run_with_null(session) if parsed.with_null else run_workload(session)
        status = finish(phases) if finish is not None else 0
    return world.broadcast_object(status)


def _check_options(workload: Workload, options: Options) -> None:
    """Raise UsageError for `--verify` with existing files, whose correct bytes are not known."""
    given = [f"`{dataset.name}`" for dataset in workload.datasets if dataset.source]
    if options.verify and given:
        text = f"--verify: {', '.join(given)}: existing files cannot be verified, since their right bytes are not known"
        raise UsageError(f"{text}; `decode on` runs the checks that their format has")
