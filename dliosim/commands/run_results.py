"""The work of rank 0 alone for `dliosim run`: read the pattern, write and print the results.

Other ranks do not import this module, nor the modules that only it needs: the finder of files, reports and figures.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from dliosim.commands.command_line.options import parse_roots, read_storage
from dliosim.commands.command_line.pattern_files import find_pattern, locate_pattern
from dliosim.commands.job.environment import describe_environment, find_disk
from dliosim.commands.job.results_dir import ResultsDirectory, results_line, write_and_print
from dliosim.commands.job.setup import Setup, compile_or_explain
from dliosim.commands.job.terminal import has_colours
from dliosim.errors import DamageDiagnosticsError, DliosimError, ExecutionError, ExpectationMissed
from dliosim.execute.datasets.discovery import FileFinder
from dliosim.execute.mpi.world import NodeLoad
from dliosim.execute.phases.context import Phase, Session
from dliosim.language.compile import compile_document, compile_pattern
from dliosim.language.diagnostics import Diagnostic, Label, render
from dliosim.language.syntax.ast import PatternBlock
from dliosim.measure.answers.answer import answer_run, evaluate
from dliosim.measure.results.phase import LoopPhase, PhaseSummary
from dliosim.measure.results.run_summary import RunSummary, SavePhase
from dliosim.model import Job, Loop, StorageModel, Workload
from dliosim.model.expectation import goals_of
from dliosim.model.verbs import flatten_verbs
from dliosim.plan.forecast.checkpoint_footprint import complete_times
from dliosim.readable import count
from dliosim.report.files.results import answer_json, write_partial, write_results
from dliosim.report.phase_titles import group_phases
from dliosim.report.run.loops import latencies_by_loop
from dliosim.report.run.screen import run_report, run_screen


def read_pattern(setup: Setup) -> tuple[Workload, FileFinder, StorageModel | None]:
    """Return the workload, the finder of its existing files, and the described storage, if there is one.

    Raises UsageError and ExecutionError.
    """
    parsed, job = setup.parsed, Job(setup.world.size, setup.world.nodes)
    finder = FileFinder(parse_roots(parsed), setup.progress)
    storage, parsed.values = read_storage(parsed)
    workload = compile_or_explain(
        lambda: compile_pattern(find_pattern(parsed.pattern, parsed.override), parsed.values, job, finder)
    )
    return workload, finder, storage


def shortage_error(setup: Setup, finder: FileFinder, number: int, message: str, why: str, cure: str) -> DliosimError:
    """Return the error of verb `number` of the pattern, which a node has no memory for, with its line.

    The pattern is compiled again: no run keeps its lines.
    """
    path = find_pattern(setup.parsed.pattern, setup.parsed.override)
    job = Job(setup.world.size, setup.world.nodes)
    document = compile_document(path, setup.parsed.values, job, finder).context.document
    block = next(islice(_flatten_blocks(document.verbs), number, None))
    found = Diagnostic("R402", message, (Label(block.place, why),), (cure,))
    return DamageDiagnosticsError(render([found], has_colours(sys.stderr, 2)))


def _flatten_blocks(blocks: Sequence[PatternBlock]) -> Iterator[PatternBlock]:
    """Yield the blocks of verbs in the order of `flatten_verbs`."""
    for block in blocks:
        yield from _flatten_blocks(block.body) if block.kind == "repeat" else [block]


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The facts of a run that its results need."""

    setup: Setup  #: the command
    session: Session  #: the run on this rank
    node: NodeLoad  #: load of the node with the most ranks for its cores
    finder: FileFinder  #: looks for existing files
    directory: ResultsDirectory  #: takes the results
    begun: RunSummary  #: the run before its first verb

    def write_finished(self, signal: str) -> Path | None:
        """Write results.partial.json with the finished part; return its path, or None if there is nothing yet."""
        workload = self.session.workload
        verbs = sum(times for _, times in flatten_verbs(workload.verbs))
        phases, missing = self.session.finished.partial_phases(signal, verbs)
        if not phases:
            return None
        run = replace(
            self.begun,
            seconds=self.setup.seconds,
            phases=tuple(_add_whole(phase, workload) for phase in phases),
            partial=missing,
        )
        return write_partial(self.directory.make, run)

    def report(self, run: RunSummary, phases: Sequence[Phase]) -> tuple[int, Path | None]:
        """Write and print the results of all phases; return the status and their directory, as `report_run`."""
        parsed = self.setup.parsed
        with self.setup.partial.final_write():
            return report_run(self.directory, run, phases, parsed.json, parsed.strict)

    def summarize(self, phases: Sequence[Phase]) -> RunSummary:
        """Return the run with its answers and expectations."""
        workload = self.session.workload
        summaries = tuple(_add_whole(phase.summary, workload) for phase in phases)
        run = replace(
            self.begun,
            environment=describe_environment(self.session, self.node, summaries, self.setup.parsed.output),
            seconds=self.setup.seconds,
            phases=summaries,
        )
        answers = answer_run(
            run,
            group_phases(run.loops),
            goals_of(workload.expectations),
            lambda override: _find_needless(self.setup, self.finder, override),
            dict(_sample_settings(workload)),
            find_disk(workload.datasets),
        )
        run = replace(run, answers=answers)
        return replace(run, expectations=evaluate(workload.expectations, run))


def begin_record(setup: Setup, session: Session, node: NodeLoad, finder: FileFinder, kind: str) -> RunRecord:
    """Return the record of a run whose verbs begin now; from now on partial results can be written.

    `kind` is a part of the name of a new directory for results, see `ResultsDirectory`.
    """
    workload, world, parsed = session.workload, session.world, setup.parsed
    begun = RunSummary(
        workload.name,
        workload.title,
        workload.pattern,
        workload.overrides,
        workload.digest(),
        world.size,
        world.nodes,
        describe_environment(session, node, (), parsed.output),
        setup.started.isoformat(timespec="seconds"),
        seconds=0.0,
        phases=(),
        program=setup.program,
        arguments=setup.arguments,
        null=session.reads_nothing,
        modelled="" if session.modelled is None else session.modelled.model.name,
        verify=session.options.verify,
        mtbf=parsed.mtbf,
        restart_time=parsed.restart_time,
    )
    directory = setup.stack.enter_context(ResultsDirectory(parsed.output, workload.name, setup.started, kind))
    record = RunRecord(setup, session, node, finder, directory, begun)
    setup.partial.begin(record.write_finished)
    session.finished.keep = setup.partial.keep
    return record


def _sample_settings(workload: Workload) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield each loop with the setting that says how many samples it has, and that number; not for existing files."""
    for verb, _ in flatten_verbs(workload.verbs):
        if isinstance(verb, Loop) and verb.dataset:
            read = workload.dataset(verb.dataset).members
            known = len(read) == 1 and not read[0].source  # more samples of one of several data sets may not be read
            yield verb.name, {f"{one.name}.samples": one.samples for one in read} if known else {}


def _add_whole(phase: PhaseSummary, workload: Workload) -> PhaseSummary:
    """Return a phase, with how much all of the checkpoint is if it is a save of a part."""
    if not isinstance(phase, SavePhase) or not phase.part_of:
        return phase
    times, ranks = complete_times(workload.checkpoint(phase.name), workload.job.ranks)
    return replace(phase, whole_times=times, whole_ranks=ranks)


def _find_needless(setup: Setup, finder: FileFinder, override: tuple[str, str]) -> list[str] | None:
    """Return the names of -D that say nothing next to one more override.

    None if the pattern cannot run with it, so that advice works when it is typed.
    """
    parsed, job = setup.parsed, Job(setup.world.size, setup.world.nodes)
    path = locate_pattern(parsed.pattern)
    others = [given for given in parsed.values if given[0] != override[0]]

    def digest(overrides: list[tuple[str, str]]) -> str:
        """Return the digest with some overrides; empty if the pattern cannot run with them."""
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


def write_phases(place: Path, run: RunSummary, phases: Sequence[Phase]) -> None:
    """Write the results of a run, with the arrays of its phases, into an existing directory. Raises OSError."""
    measured = [(phase, phase.rank_rows) for phase in phases if phase.rank_rows is not None]
    loops = [(phase.summary, rows) for phase, rows in measured if isinstance(phase.summary, LoopPhase)]
    write_results(place, run, loops, [phase.timeline for phase, _ in measured])


def report_run(
    directory: ResultsDirectory, run: RunSummary, phases: Sequence[Phase], as_json: bool, is_strict: bool
) -> tuple[int, Path | None]:
    """Write and print results; return the exit status and their directory, None if they could not be written.

    `phases` have the arrays. A missed `expect` line is a failure only if `is_strict`.
    """

    def report(place: Path | None) -> str:
        """Return the first screen; all tables if the files could not be written."""
        if as_json:
            return answer_json(run, place)
        if place is None:
            return run_report(run, latencies_by_loop(run))
        more = f"all tables: {shlex.join([run.program, 'report', str(place), '--full'])}\n"
        return run_screen(run) + more + results_line(place)

    place, done = write_and_print(directory, lambda place: write_phases(place, run, phases), report)
    if not done:
        return ExecutionError.exit_code, place
    missed = sum(result.is_missed for result in run.expectations)
    unjudged = sum(result.reported_only is not None for result in run.expectations)
    if unjudged and is_strict:
        sys.stderr.write(f"note: {unjudged} of {count(len(run.expectations), 'expect line')} not judged: no failure\n")
    if missed and is_strict:
        sys.stderr.write(f"error: {missed} of {count(len(run.expectations), 'expect line')} missed\n")
        return ExpectationMissed.exit_code, place
    return 0, place
