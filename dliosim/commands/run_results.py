"""The work of rank 0 alone for `dliosim run`: read the pattern, write and print the results.

Other ranks do not import this module, nor the modules that only it needs: the finder of files, reports and figures.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from time import perf_counter_ns

from dliosim.commands.environment import describe_environment
from dliosim.commands.mpi_entry import compile_workload, write_and_print
from dliosim.commands.options import parse_overrides, parse_roots
from dliosim.commands.partial import PartialResults
from dliosim.commands.results_dir import results_directory
from dliosim.errors import ExecutionError, ExpectationMissed
from dliosim.execute.context import Phase, Session
from dliosim.execute.datasets.discovery import FileFinder
from dliosim.execute.mpi.node_cores import NodeLoad
from dliosim.formats.protocols import ExistingFiles
from dliosim.measure.expectations import evaluate
from dliosim.measure.run_summary import RunSummary
from dliosim.model import Job, Workload
from dliosim.model.verbs import flatten_verbs
from dliosim.readable import count
from dliosim.report.progress import ProgressLine
from dliosim.report.results import write_partial, write_results
from dliosim.report.run_report import run_report


def read_pattern(
    parsed: argparse.Namespace, job: Job, progress: ProgressLine
) -> tuple[Workload, dict[str, ExistingFiles]]:
    """Return the workload, and the files found for its data sets `from files`. Raises UsageError and ExecutionError."""
    finder = FileFinder(parse_roots(parsed), progress)
    return compile_workload(parsed.pattern, parse_overrides(parsed), job, finder), finder.sources


@contextmanager
def collect_results(
    session: Session,
    parsed: argparse.Namespace,
    arguments: Sequence[str],
    begun: tuple[datetime, int],
    node: NodeLoad,
    unfinished: PartialResults,
) -> Iterator[Callable[[Sequence[Phase]], int]]:
    """Yield a function that writes and prints the results of all phases and returns the status; verbs run in the block.

    `begun` is the start of the command, as date and as clock (ns). From the beginning of the block `unfinished` has the
    partial results.
    """
    workload, world = session.workload, session.world
    started, begun_ns = begun
    nothing_yet = RunSummary(
        workload.name,
        workload.title,
        workload.pattern,
        workload.overrides,
        workload.digest(),
        world.size,
        world.nodes,
        describe_environment(session, node, ()),
        started.isoformat(timespec="seconds"),
        seconds=0.0,
        phases=(),
        arguments=tuple(arguments),
        null=session.options.null,
        verify=session.options.verify,
        mtbf=parsed.mtbf,
        restart_time=parsed.restart_time,
    )
    verbs = sum(times for _, times in flatten_verbs(workload.verbs))

    def summarize_partial(signal: str) -> RunSummary:
        phases, missing = session.finished.partial_phases(signal, verbs)
        return replace(nothing_yet, seconds=(perf_counter_ns() - begun_ns) * 1e-9, phases=phases, partial=missing)

    with results_directory(parsed.output, workload.name, started) as directory:

        def finish(phases: Sequence[Phase]) -> int:
            summaries = tuple(phase.summary for phase in phases)
            run = replace(
                nothing_yet,
                environment=describe_environment(session, node, summaries),
                seconds=(perf_counter_ns() - begun_ns) * 1e-9,
                phases=summaries,
            )
            run = replace(run, expectations=evaluate(workload.expectations, run))
            with unfinished.final_write():
                return _write_report(run, phases, directory)

        unfinished.begin(summarize_partial, lambda run: write_partial(directory(), run))
        yield finish


def _write_report(run: RunSummary, phases: Sequence[Phase], directory: Callable[[], Path]) -> int:
    """Write the results to `directory`, made if it is not there yet, and print them; return the exit status."""
    loops = [(phase.summary, phase.rank_rows) for phase in phases if phase.rank_rows is not None]

    def write() -> Path:
        output = directory()
        write_results(output, run, loops, [phase.timeline for phase in phases if phase.rank_rows is not None])
        return output

    if not write_and_print(write, lambda: run_report(run)):
        return ExecutionError.exit_code
    missed = [result for result in run.expectations if result.is_missed]
    if missed:
        sys.stderr.write(f"error: {len(missed)} of {count(len(run.expectations), 'expect line')} missed\n")
        return ExpectationMissed.exit_code
    return 0
