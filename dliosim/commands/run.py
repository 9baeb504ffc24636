"""`dliosim run`: compile on rank 0, run on all, report on rank 0; and every way in which that can end."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from time import perf_counter_ns

from mpi4py import MPI

from dliosim.commands.describe import describe
from dliosim.commands.options import overrides, roots
from dliosim.commands.terminal import user_terminal
from dliosim.errors import DliosimError, ExecutionError, ExpectationMissed, UsageError
from dliosim.execute.ending import end_job, end_on_interrupt, follow_launcher, job_name
from dliosim.execute.environment import check_launcher, launcher_rank, mpi_library, node_cores
from dliosim.execute.faults import failed_on
from dliosim.execute.phases import run_with_null, run_workload
from dliosim.execute.session import Options, Phase, Session
from dliosim.execute.world import World, make_world
from dliosim.measure.expectations import evaluate
from dliosim.measure.figures import RunSummary
from dliosim.model import Job, Workload
from dliosim.report.progress import Progress
from dliosim.report.results import write_ranks, write_results
from dliosim.report.tables import expectation_line, run_report


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
    except MemoryError:
        trace = traceback.format_exc().splitlines()
        end_job(comm, world.job, f"error[R402]: rank {comm.rank}: out of memory in {trace[-3].strip()}")
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
    output, is_new = world.on_rank_0("make the results directory", lambda: _make_output(parsed, workload, started))
    try:
        if not options.null:
            world.on_rank_0("make the data directory", session.make_roots)
        phases = run_with_null(session) if parsed.with_null else run_workload(session)
    except DliosimError:
        if world.rank == 0 and is_new:
            with suppress(OSError):
                output.rmdir()
        raise
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
        status = _report(run, phases, output)
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


def _make_output(parsed: argparse.Namespace, workload: Workload, started: datetime) -> tuple[Path, bool]:
    """Make the directory of the results, and see that a file can be made in it; whether it is a new one."""
    from tempfile import TemporaryFile  # for rank 0 alone

    if parsed.output is not None:
        directory = Path(parsed.output).absolute()
        if (directory / "results.json").exists():
            text = f"--output {parsed.output} has the results of another run"
            raise UsageError(f"{text}: name another, or move them away")
        is_new = not directory.exists()
        directory.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=directory):
            return directory, is_new
    stem = f"dliosim-results-{workload.name}-{started.strftime('%Y%m%dT%H%M%S')}"
    number = 0
    while True:
        directory = Path(f"{stem}-{number}" if number else stem).absolute()
        try:
            directory.mkdir()
        except FileExistsError:
            number += 1
        else:
            return directory, True


def _report(run: RunSummary, phases: Sequence[Phase], output: Path) -> int:
    """Print and write the results; the exit status."""
    failure: OSError | None = None
    try:
        write_results(output, run)
        write_ranks(output, [(phase.summary, phase.rank_rows) for phase in phases if phase.rank_rows is not None])
    except OSError as error:
        failure = error
    try:
        sys.stdout.write(run_report(run))
        if failure is None:
            sys.stdout.write(f"results: {output}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the tables has seen enough; the files have all of it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if failure is not None:
        sys.stderr.write(f"{failed_on('write the results', failure)}\n")
        return ExecutionError.exit_code
    missed = [result for result in run.expectations if result.missed]
    if missed:
        sys.stderr.write("".join(f"{expectation_line(result)}\n" for result in missed))
        return ExpectationMissed.exit_code
    return 0
