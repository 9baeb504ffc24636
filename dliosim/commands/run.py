"""`dliosim run`: compile on rank 0, run on all, report on rank 0; and every way in which that can end."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from time import perf_counter_ns

from mpi4py import MPI

from dliosim.commands.describe import describe
from dliosim.commands.launcher import launcher_rank
from dliosim.commands.options import overrides, roots
from dliosim.commands.output import check_output, results_directory
from dliosim.commands.terminal import user_terminal
from dliosim.errors import DliosimError, ExecutionError, ExpectationMissed, UsageError
from dliosim.execute.ending import end_job, end_on_interrupt, follow_launcher, job_name
from dliosim.execute.environment import check_launcher, mpi_library, node_cores
from dliosim.execute.faults import failed_on
from dliosim.execute.phases import run_with_null, run_workload
from dliosim.execute.session import Options, Phase, Session
from dliosim.execute.world import World, make_world
from dliosim.measure.expectations import evaluate
from dliosim.measure.figures import RunSummary
from dliosim.model import Job, Workload
from dliosim.readable import count
from dliosim.report.progress import Progress
from dliosim.report.results import write_results
from dliosim.report.tables import run_report


def run_command(comm: MPI.Intracomm, parsed: argparse.Namespace, arguments: Sequence[str]) -> int:
    """Run a pattern on all ranks of `comm`; returns the exit status, the same on every rank."""
    follow_launcher()
    try:
        check_launcher(os.environ, comm.size, mpi_library())
    except UsageError as error:
        if launcher_rank(os.environ) == 0:
            sys.stderr.write(f"{error}\n")
        return error.exit_code
    end_on_interrupt(comm)
    world = make_world(comm, node_cores, job_name(comm))
    try:
        return _run(world, parsed, arguments)
    except DliosimError as error:
        if not error.shared and comm.size > 1:
            # Only this rank knows, and the others may wait for it anywhere.
            world.abort(error)
        if comm.rank == 0:
            sys.stderr.write(f"{error}\n")
        return error.exit_code
    except MemoryError as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"out of memory: {error}" if str(error) else "out of memory"
        where = f"in {place.name}, {place.filename}:{place.lineno}"
        end_job(comm, world.job, f"error[R402]: rank {comm.rank}: {reason} ({where})")
    except Exception:
        text = f"rank {comm.rank}: a fault in dliosim itself; please report it\n{traceback.format_exc()}"
        end_job(comm, world.job, text)


def _run(world: World, parsed: argparse.Namespace, arguments: Sequence[str]) -> int:
    started, begun, load = datetime.now(timezone.utc), perf_counter_ns(), os.getloadavg()[0]
    workload = _compile(world, parsed)
    # Names come from rank 0: other ranks may stand in another directory.
    places = world.on_rank_0("find the directories", lambda: roots(parsed, workload))
    terminal = user_terminal() if world.rank == 0 else None
    options = Options(parsed.null, parsed.verify)
    session = Session(workload, world, places, options, Progress(terminal))
    world.on_rank_0("find the directories", session.check_directories)
    world.on_rank_0("make the results directory", lambda: check_output(parsed.output))
    if not options.null:
        world.on_rank_0("make the data directory", session.make_roots)
    phases = run_with_null(session) if parsed.with_null else run_workload(session)
    environment = describe(session, [phase.summary for phase in phases], load)
    status = 0
    if world.rank == 0:
        summaries = tuple(phase.summary for phase in phases)
        run = RunSummary(
            workload.name,
            workload.title,
            workload.pattern,
            workload.overrides,
            workload.digest(),
            world.size,
            world.nodes,
            environment,
            started.isoformat(timespec="seconds"),
            (perf_counter_ns() - begun) * 1e-9,
            summaries,
            arguments=tuple(arguments),
            null=options.null,
            verify=options.verify,
        )
        run = replace(run, expectations=evaluate(workload.expectations, run))
        status = _report(run, phases, parsed.output, started)
    return world.share(status)


def _compile(world: World, parsed: argparse.Namespace) -> Workload:
    """Compile on rank 0, so that 512 ranks do not each read the pattern and build a parser."""

    def compile_here() -> Workload:
        from dliosim.language.compile import compile_pattern
        from dliosim.language.diagnostics import PatternError, render

        colour = sys.stderr.isatty()
        job = Job(world.size, world.nodes)
        try:
            workload, warnings = compile_pattern(Path(parsed.pattern), overrides(parsed), job)
        except PatternError as error:
            raise _Rendered(render(error.diagnostics, colour)) from error
        if warnings:
            sys.stderr.write(render(warnings, colour) + "\n")
        return workload

    return world.on_rank_0("read the pattern", compile_here)


class _Rendered(UsageError):
    """Diagnostics as text: the other ranks need not load the language to raise them."""

    def __str__(self) -> str:
        return self.message


def _report(run: RunSummary, phases: Sequence[Phase], given: str | None, started: datetime) -> int:
    """Write the results to the directory `given`, or a new one, and print them; the exit status."""
    loops = [(phase.summary, phase.rank_rows) for phase in phases if phase.rank_rows is not None]
    failures: list[str] = []
    written = ""
    try:
        with results_directory(given, run.name, started) as output:
            write_results(output, run, loops, [phase.timeline for phase in phases if phase.rank_rows is not None])
        written = f"results: {output}\n"
    except OSError as error:
        failures.append(f"{failed_on('write the results', error)}\n")
    finally:
        # Whatever became of the files, and why: what a long run has measured is shown.
        unprinted = _print(run_report(run) + written)
    if unprinted is not None:
        failures.append(f"{failed_on('print the tables', unprinted)}\n{written}")
    if failures:
        sys.stderr.write("".join(failures))
        return ExecutionError.exit_code
    missed = [result for result in run.expectations if result.missed]
    if missed:
        sys.stderr.write(f"error: {len(missed)} of {count(len(run.expectations), 'expect line')} missed\n")
        return ExpectationMissed.exit_code
    return 0


def _print(text: str) -> OSError | None:
    """Print; the error where that fails but for a reader who has seen enough, as the files have all of it."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # What Python still holds back is not to fail a second time when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return None if isinstance(error, BrokenPipeError) else error
    return None
