"""The work of rank 0 alone for `dliosim run`: read the pattern, write and print the results.

Other ranks do not import this module, nor the modules that only it needs: the finder of files, reports and figures.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path

from dliosim.commands.command_line.command_table import DATA_DIRECTORY
from dliosim.commands.command_line.options import parse_roots, parse_values
from dliosim.commands.command_line.pattern_files import find_pattern, locate_pattern
from dliosim.commands.job.environment import describe_environment
from dliosim.commands.job.mpi_entry import results_line, write_and_print
from dliosim.commands.job.partial import PartialResults
from dliosim.commands.job.results_dir import results_directory
from dliosim.commands.job.setup import Setup, compile_or_explain
from dliosim.commands.job.terminal import has_colours
from dliosim.errors import DamageDiagnosticsError, DliosimError, ExecutionError, ExpectationMissed
from dliosim.execute.datasets.discovery import FileFinder
from dliosim.execute.mpi.node_cores import NodeLoad
from dliosim.execute.node.environment import find_mount
from dliosim.execute.phases.context import Phase, Session
from dliosim.language.compile import compile_document, compile_pattern
from dliosim.language.diagnostics import Diagnostic, Label, render
from dliosim.language.syntax.ast import PatternBlock
from dliosim.measure.answers.answer import answer_run
from dliosim.measure.answers.expectations import evaluate
from dliosim.measure.results.file_phases import SavePhase
from dliosim.measure.results.phase import LoopPhase, PhaseSummary
from dliosim.measure.results.run_summary import RunSummary
from dliosim.model import Job, Loop, Workload
from dliosim.model.expectation import goals_of
from dliosim.model.verbs import flatten_verbs
from dliosim.plan.forecast.checkpoint_footprint import complete_times
from dliosim.readable import count
from dliosim.report.files.results import answer_json, write_partial, write_results
from dliosim.report.phase_titles import group_phases
from dliosim.report.run.all_tables import run_report
from dliosim.report.run.loops import latencies_by_loop
from dliosim.report.run.screen import run_screen


def read_pattern(setup: Setup) -> tuple[Workload, FileFinder]:
    """Return the workload, and what found files that exist. Raises UsageError and ExecutionError."""
    parsed, job = setup.parsed, Job(setup.world.size, setup.world.nodes)
    finder = FileFinder(parse_roots(parsed), setup.progress)
    overrides = parse_values(parsed)
    return compile_or_explain(
        lambda: compile_pattern(find_pattern(parsed.pattern, parsed.override), overrides, job, finder)
    ), finder


def shortage_error(setup: Setup, finder: FileFinder, number: int, message: str, why: str, cure: str) -> DliosimError:
    """Return the error of verb `number` of the pattern, which a node has no memory for, with its line.

    The pattern is compiled again: no run keeps its lines.
    """
    path = find_pattern(setup.parsed.pattern, setup.parsed.override)
    job = Job(setup.world.size, setup.world.nodes)
    document = compile_document(path, parse_values(setup.parsed), job, finder).context.document
    block = next(islice(_flatten_blocks(document.verbs), number, None))
    found = Diagnostic("R402", message, (Label(block.place, why),), (cure,))
    return DamageDiagnosticsError(render([found], has_colours(sys.stderr, 2)))


def _flatten_blocks(blocks: Sequence[PatternBlock]) -> Iterator[PatternBlock]:
    """Yield the blocks of verbs in the order of `flatten_verbs`."""
    for block in blocks:
        yield from _flatten_blocks(block.body) if block.kind == "repeat" else [block]


@contextmanager
def collect_results(
    setup: Setup, session: Session, node: NodeLoad, unfinished: PartialResults, finder: FileFinder
) -> Iterator[Callable[[Sequence[Phase]], tuple[int, Path | None]]]:
    """Yield a function that writes and prints the results of all phases; verbs run in the block.

    It returns the exit status and the folder of the results, None where these could not be written.

    From the beginning of the block `unfinished` has the partial results.
    """
    workload, world, parsed = session.workload, session.world, setup.parsed
    nothing_yet = RunSummary(
        workload.name,
        workload.title,
        workload.pattern,
        workload.overrides,
        workload.digest(),
        world.size,
        world.nodes,
        describe_environment(session, node, ()),
        setup.started.isoformat(timespec="seconds"),
        seconds=0.0,
        phases=(),
        program=setup.program,
        arguments=setup.arguments,
        null=session.options.null,
        verify=session.options.verify,
        mtbf=parsed.mtbf,
        restart_time=parsed.restart_time,
    )
    verbs = sum(times for _, times in flatten_verbs(workload.verbs))

    def summarize_partial(signal: str) -> RunSummary:
        phases, missing = session.finished.partial_phases(signal, verbs)
        summaries = tuple(_add_whole(phase, workload) for phase in phases)
        return replace(nothing_yet, seconds=setup.seconds, phases=summaries, partial=missing)

    with results_directory(parsed.output, workload.name, setup.started) as directory:

        def finish(phases: Sequence[Phase]) -> tuple[int, Path | None]:
            summaries = tuple(_add_whole(phase.summary, workload) for phase in phases)
            run = replace(
                nothing_yet,
                environment=describe_environment(session, node, summaries),
                seconds=setup.seconds,
                phases=summaries,
            )
            answers = answer_run(
                run,
                group_phases(run.loops),
                goals_of(workload.expectations),
                lambda override: _find_needless(setup, finder, override),
                dict(_sample_settings(workload)),
                "" if find_mount(Path()).is_memory_backed else DATA_DIRECTORY,
            )
            run = replace(run, answers=answers)
            run = replace(run, expectations=evaluate(workload.expectations, run))
            with unfinished.final_write():
                return _write_report(run, phases, directory, parsed.json, parsed.strict)

        unfinished.begin(summarize_partial, lambda run: write_partial(directory, run))
        session.finished.keep = unfinished.keep
        yield finish


def _sample_settings(workload: Workload) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield each loop with the setting that says how many samples it has, and that number; not for existing files."""
    for verb, _ in flatten_verbs(workload.verbs):
        if isinstance(verb, Loop) and verb.dataset:
            dataset = workload.dataset(verb.dataset)
            yield verb.name, {} if dataset.source else {f"{dataset.name}.samples": dataset.samples}


def _add_whole(phase: PhaseSummary, workload: Workload) -> PhaseSummary:
    """Return a phase, with how much all of the checkpoint is if it is a save of a part."""
    if not isinstance(phase, SavePhase) or not phase.part_of:
        return phase
    times, ranks = complete_times(workload.checkpoint(phase.name), workload.job.ranks)
    return replace(phase, whole_times=times, whole_ranks=ranks)


def _find_needless(setup: Setup, finder: FileFinder, override: tuple[str, str]) -> list[str] | None:
    """Return the names of -D that say nothing next to one more override.

    None where the pattern cannot run with it, so that advice works when it is typed.
    """
    parsed, job = setup.parsed, Job(setup.world.size, setup.world.nodes)
    path = locate_pattern(parsed.pattern)
    others = [given for given in parse_values(parsed) if given[0] != override[0]]

    def digest(overrides: list[tuple[str, str]]) -> str:
        """Return the digest with some overrides; empty where the pattern cannot run with them."""
        try:
            return compile_pattern(path, overrides, job, finder.find_known)[0].digest() if path is not None else ""
        except (DliosimError, OSError):  # the pattern may have changed since
            return ""

    changed = digest([*others, override])
    needless: list[str] = []
    for name in dict.fromkeys(name for name, _ in others):
        rest = [given for given in others if given[0] != name]
        if digest([*rest, override]) == changed and digest(rest) != digest(others):
            needless, others = [*needless, name], rest
    return needless if changed else None


def _write_report(
    run: RunSummary, phases: Sequence[Phase], directory: Callable[[], Path], as_json: bool, is_strict: bool
) -> tuple[int, Path | None]:
    """Write the results to `directory`, made if it is not there yet, and print them; return the exit status and it.

    Where they cannot be written, all tables are printed, and the directory is None. A missed `expect` line is a failure
    only if `is_strict`.
    """
    loops = [
        (phase.summary, phase.rank_rows)
        for phase in phases
        if isinstance(phase.summary, LoopPhase) and phase.rank_rows is not None
    ]

    places: list[Path] = []

    def write(place: Path) -> None:
        write_results(place, run, loops, [phase.timeline for phase in phases if phase.rank_rows is not None])
        places.append(place)

    def show(place: Path | None) -> str:
        if as_json:
            return answer_json(run, place)
        if place is None:
            return run_report(run, latencies_by_loop(run))
        more = f"all tables: {shlex.join([run.program, 'report', str(place), '--full'])}\n"
        return run_screen(run) + more + results_line(place)

    if not write_and_print(directory, write, show):
        return ExecutionError.exit_code, places[0] if places else None
    missed = [result for result in run.expectations if result.is_missed]
    if missed and is_strict:
        sys.stderr.write(f"error: {len(missed)} of {count(len(run.expectations), 'expect line')} missed\n")
        return ExpectationMissed.exit_code, places[0]
    return 0, places[0]
