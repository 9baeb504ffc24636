"""`dliosim run`: compile on rank 0, run on all, report on rank 0; and every way in which that can end."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from time import perf_counter_ns

from mpi4py import MPI

from dliosim.commands.options import overrides, roots
from dliosim.errors import DliosimError, ExpectationMissed, UsageError
from dliosim.commands.describe import describe
from dliosim.execute.environment import check_launcher, mpi_library, node_cores
from dliosim.execute.phases import run_with_null, run_workload
from dliosim.execute.session import Options, Phase, Session
from dliosim.execute.world import World, make_world
from dliosim.measure.expectations import evaluate
from dliosim.measure.figures import RunSummary
from dliosim.model import Job, Workload
from dliosim.report.progress import Progress
from dliosim.report.results import write_ranks, write_results
from dliosim.report.tables import expectation_line, run_report

#: What a shell expects of a program that Ctrl-C ended.
_INTERRUPTED = 130


def run_command(comm: MPI.Intracomm, parsed: argparse.Namespace, arguments: Sequence[str]) -> int:
    """Run a pattern on all ranks of `comm`; returns the exit status, the same on every rank."""
    try:
        check_launcher(os.environ, comm.size, mpi_library())
        world = make_world(comm, node_cores)
        return _run(world, parsed, arguments)
    except KeyboardInterrupt:
        if comm.rank == 0:
            sys.stderr.write("\ninterrupted: no results were written; what was not complete will be made anew\n")
            sys.stderr.flush()
        comm.Abort(_INTERRUPTED)
        return _INTERRUPTED
    except DliosimError as error:
        if not error.shared and comm.size > 1:
            # Only this rank knows, and the others may wait for it anywhere.
            world.abort(error)
        if comm.rank == 0:
            sys.stderr.write(f"{error}\n")
        return error.exit_code
    except Exception:
        sys.stderr.write(f"rank {comm.rank}: a fault in dliosim itself; please report it\n{traceback.format_exc()}")
        sys.stderr.flush()
        comm.Abort(1)
        return 1


def _run(world: World, parsed: argparse.Namespace, arguments: Sequence[str]) -> int:
    started, begun = datetime.now(timezone.utc), perf_counter_ns()
    workload = _compile(world, parsed)
    # Names come from rank 0: other ranks may stand in another directory.
    places = world.on_rank_0(lambda: roots(parsed))
    _require_roots(workload, places)
    output = world.on_rank_0(lambda: _make_output(parsed, workload, started))
    for name in sorted(places):
        place = places[name]
        world.on_rank_0(lambda place=place: place.mkdir(parents=True, exist_ok=True))  # type: ignore[misc]
    shown = world.rank == 0 and sys.stderr.isatty()
    options = Options(parsed.null, parsed.verify)
    session = Session(workload, world, places, options, Progress(sys.stderr if shown else None))
    phases = run_with_null(session) if parsed.with_null else run_workload(session)
    environment = describe(session, [phase.summary for phase in phases])
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
            evaluate(workload.expectations, summaries),
            tuple(arguments),
        )
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

    return world.on_rank_0(compile_here)


class _Rendered(UsageError):
    """Diagnostics as text: the other ranks need not load the language to raise them."""

    def __str__(self) -> str:
        return self.message


def _require_roots(workload: Workload, known: Mapping[str, Path]) -> None:
    named = {dataset.name: dataset.root for dataset in workload.datasets}
    named |= {checkpoint.name: checkpoint.root for checkpoint in workload.checkpoints}
    for name, root in named.items():
        if root not in known:
            error = UsageError(f"`{name}` says `root {root}`: say where that is with --root {root}=DIR")
            error.shared = True
            raise error


def _make_output(parsed: argparse.Namespace, workload: Workload, started: datetime) -> Path:
    if parsed.output is not None:
        directory = Path(parsed.output).absolute()
        directory.mkdir(parents=True, exist_ok=True)
        return directory
    stem = f"dliosim-results-{workload.name}-{started.strftime('%Y%m%dT%H%M%S')}"
    number = 0
    while True:
        directory = Path(f"{stem}-{number}" if number else stem).absolute()
        try:
            directory.mkdir()
        except FileExistsError:
            number += 1
        else:
            return directory


def _report(run: RunSummary, phases: Sequence[Phase], output: Path) -> int:
    """Print and write the results; the exit status."""
    sys.stdout.write(run_report(run))
    try:
        write_results(output, run)
        write_ranks(output, [(phase.summary, phase.rank_rows) for phase in phases if phase.rank_rows is not None])
    except OSError as error:
        sys.stderr.write(f"error: the results could not be written: {error}\n")
        return 1
    sys.stdout.write(f"results: {output}\n")
    sys.stdout.flush()
    missed = [result for result in run.expectations if not result.held]
    if missed and not run.environment.oversubscribed:
        sys.stderr.write("".join(f"{expectation_line(result)}\n" for result in missed))
        return ExpectationMissed.exit_code
    return 0
