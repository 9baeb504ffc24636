"""`dliosim run`: compile on rank 0, run on all, report on rank 0."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from time import perf_counter_ns

from mpi4py import MPI

from dliosim.commands.describe import describe
from dliosim.commands.job import as_job, compile_for, write_and_print
from dliosim.commands.options import given_roots, overrides, roots
from dliosim.commands.output import check_output, results_directory
from dliosim.commands.partial import Unfinished
from dliosim.commands.stalls import watch_of
from dliosim.commands.terminal import user_terminal
from dliosim.errors import ExecutionError, ExpectationMissed, UsageError
from dliosim.execute.finding import FileFinder
from dliosim.execute.locking import Locks
from dliosim.execute.phases import run_with_null, run_workload
from dliosim.execute.session import Options, Phase, Session
from dliosim.execute.world import World
from dliosim.measure.board import own
from dliosim.measure.expectations import evaluate
from dliosim.measure.figures import RunSummary
from dliosim.model import Job, Workload
from dliosim.plan.saves import flat
from dliosim.readable import count
from dliosim.report.progress import Progress
from dliosim.report.results import write_results
from dliosim.report.tables import run_report


def run_command(comm: MPI.Intracomm, parsed: argparse.Namespace, arguments: Sequence[str]) -> int:
    """Run a pattern on all ranks of `comm`; returns the exit status, the same on every rank."""

    unfinished = Unfinished()

    def run(world: World) -> int:
        with Locks() as locks:
            return _run(world, parsed, arguments, locks, unfinished)

    return as_job(comm, run, unfinished.save, watch_of(parsed))


def _run(
    world: World, parsed: argparse.Namespace, arguments: Sequence[str], locks: Locks, unfinished: Unfinished
) -> int:
    started, begun, load = datetime.now(timezone.utc), perf_counter_ns(), os.getloadavg()[0]
    # On rank 0, so that 512 ranks do not each read the pattern and build a parser.
    job = Job(world.size, world.nodes)
    progress = Progress(user_terminal() if world.rank == 0 else None, row=own())
    finder = FileFinder(given_roots(parsed), progress)
    workload = world.on_rank_0("read the pattern", lambda: compile_for(parsed.pattern, overrides(parsed), job, finder))
    options = Options(parsed.null, parsed.verify)
    world.on_rank_0("look at the options", lambda: _check_options(workload, options))
    # Names come from rank 0: other ranks may stand in another directory.
    places = world.on_rank_0("find the directories", lambda: roots(parsed, [workload]))
    session = Session(workload, world, places, options, progress, sources=finder.sources, locks=locks)
    world.on_rank_0("find the directories", session.check_directories)
    world.on_rank_0("make the results directory", lambda: check_output(parsed.output))
    if not options.null:
        world.on_rank_0("make the data directory", session.make_roots)
    nothing_yet = RunSummary(
        workload.name,
        workload.title,
        workload.pattern,
        workload.overrides,
        workload.digest(),
        world.size,
        world.nodes,
        describe(session, (), load),
        started.isoformat(timespec="seconds"),
        seconds=0.0,
        phases=(),
        arguments=tuple(arguments),
        null=options.null,
        verify=options.verify,
        mtbf=parsed.mtbf,
        restart_time=parsed.restart_time,
    )
    verbs = sum(times for _, times in flat(workload.verbs))

    def so_far(signal: str) -> RunSummary:
        phases, missing = session.finished.so_far(signal, verbs)
        return replace(nothing_yet, seconds=(perf_counter_ns() - begun) * 1e-9, phases=phases, partial=missing)

    status = 0
    with results_directory(parsed.output, workload.name, started) as directory:
        unfinished.begin(so_far, directory)
        phases = run_with_null(session) if parsed.with_null else run_workload(session)
        environment = describe(session, [phase.summary for phase in phases], load)
        if world.rank == 0:
            run = replace(
                nothing_yet,
                environment=environment,
                seconds=(perf_counter_ns() - begun) * 1e-9,
                phases=tuple(phase.summary for phase in phases),
            )
            run = replace(run, expectations=evaluate(workload.expectations, run))
            with unfinished.over():
                status = _report(run, phases, directory)
    return world.share(status)


def _check_options(workload: Workload, options: Options) -> None:
    """UsageError for `--verify` where nobody knows what the bytes should be."""
    given = [f"`{dataset.name}`" for dataset in workload.datasets if dataset.source]
    if options.verify and given:
        text = (
            f"--verify: {', '.join(given)}: existing files cannot be verified, since nobody knows what they should hold"
        )
        raise UsageError(f"{text}; `decode on` runs the checks that their format has")


def _report(run: RunSummary, phases: Sequence[Phase], directory: Callable[[], Path]) -> int:
    """Write the results to `directory`, which is made if it is not there yet, and print them; the exit status."""
    loops = [(phase.summary, phase.rank_rows) for phase in phases if phase.rank_rows is not None]

    def write() -> Path:
        output = directory()
        write_results(output, run, loops, [phase.timeline for phase in phases if phase.rank_rows is not None])
        return output

    if not write_and_print(write, lambda: run_report(run)):
        return ExecutionError.exit_code
    missed = [result for result in run.expectations if result.missed]
    if missed:
        sys.stderr.write(f"error: {len(missed)} of {count(len(run.expectations), 'expect line')} missed\n")
        return ExpectationMissed.exit_code
    return 0
