"""`dliosim compare`: variants made on rank 0, their passes run in turn on all ranks, the verdict on rank 0."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from time import perf_counter_ns

from mpi4py import MPI

from dliosim.commands.describe import describe
from dliosim.commands.job import Rendered, as_job, print_out
from dliosim.commands.options import overrides, roots
from dliosim.commands.output import check_output, results_directory
from dliosim.commands.terminal import user_terminal
from dliosim.compare.design import parse_varied, running_order
from dliosim.compare.outcome import Measured, Outcome
from dliosim.compare.rows import Pass, pass_of
from dliosim.compare.variants import Comparables, NotRun, Variant, comparables
from dliosim.errors import DliosimError, ExecutionError
from dliosim.execute.compute import wake_on_time
from dliosim.execute.faults import failed_on
from dliosim.execute.passes import prepare_data, run_pass
from dliosim.execute.room import require_room
from dliosim.execute.session import Options, Phase, Session
from dliosim.execute.striping import NO_STRIPING, read_striping
from dliosim.execute.totals import share_prefixes
from dliosim.execute.world import World
from dliosim.measure.figures import PhaseSummary
from dliosim.model import DropCaches, Job, Repeat, Verb, ranks_together
from dliosim.readable import seconds
from dliosim.report.compare_results import write_comparison
from dliosim.report.compare_tables import compare_report
from dliosim.report.progress import Progress


@dataclass(slots=True)
class _Running:
    """A variant while the comparison runs: its session, its passes so far, and why it was given up."""

    variant: Variant
    session: Session
    passes: list[Pass] = field(default_factory=list)
    hints: PhaseSummary | None = None
    failed: str = ""


def compare_command(comm: MPI.Intracomm, parsed: argparse.Namespace, arguments: Sequence[str]) -> int:
    """Compare variants of a pattern's loop on all ranks of `comm`; returns the exit status, the same on every rank."""
    return as_job(comm, lambda world: _compare(world, parsed, arguments))


def _compare(world: World, parsed: argparse.Namespace, arguments: Sequence[str]) -> int:
    started, begun, load = datetime.now(timezone.utc), perf_counter_ns(), os.getloadavg()[0]
    found = world.on_rank_0("read the pattern", lambda: _comparables(parsed, Job(world.size, world.nodes)))
    first = found.variants[0].workload
    places = world.on_rank_0("find the directories", lambda: roots(parsed, first))
    progress = Progress(user_terminal() if world.rank == 0 else None)
    running = [_Running(one, Session(one.workload, world, places, Options(), progress)) for one in found.variants]
    for one in running:
        world.on_rank_0("find the directories", one.session.check_directories)
    world.on_rank_0("make the results directory", lambda: check_output(parsed.output))
    world.on_rank_0("make the data directory", running[0].session.make_roots)
    prepared = _prepared(running)
    cold = _is_cold(first.verbs) if parsed.caches is None else parsed.caches == "cold"
    _run_all(running, parsed.repeat, parsed.seed, cold, progress)
    phases = [one.hints for one in running if one.hints is not None]
    environment = describe(running[0].session, phases, load)
    status = 0
    if world.rank == 0:
        outcome = Outcome(
            name=first.name,
            title=first.title,
            pattern=first.pattern,
            overrides=tuple(overrides(parsed)),
            arguments=tuple(arguments),
            loop=found.loop,
            varied=found.varied,
            ranks=world.size,
            nodes=world.nodes,
            environment=environment,
            started=started.isoformat(timespec="seconds"),
            total_seconds=(perf_counter_ns() - begun) * 1e-9,
            repetitions=parsed.repeat,
            seed=parsed.seed,
            caches="cold" if cold else "warm",
            measured=tuple(_measured(one) for one in running if not one.failed),
            not_run=(*found.not_run, *_given_up(running)),
            prepared=tuple(phase.summary for phase in prepared),
        )
        status = _report(outcome, parsed.output, started)
    return world.share(status)


def _comparables(parsed: argparse.Namespace, job: Job) -> Comparables:
    from pathlib import Path

    from dliosim.language.diagnostics import PatternError, render

    try:
        return comparables(Path(parsed.pattern), overrides(parsed), job, parse_varied(parsed.vary), parsed.loop)
    except PatternError as error:
        raise Rendered(render(error.diagnostics, sys.stderr.isatty())) from error


def _is_cold(verbs: Sequence[Verb]) -> bool:
    """Whether a pattern drops the caches, wherever it does."""
    return any(isinstance(verb, DropCaches) or (isinstance(verb, Repeat) and _is_cold(verb.body)) for verb in verbs)


def _prepared(running: Sequence[_Running]) -> list[Phase]:
    """Prepare what each variant needs, once, if there is room for all of it."""
    sessions = [one.session for one in running]
    wake_on_time()
    share_prefixes(sessions)
    sessions[0].world.on_rank_0("look for room", lambda: require_room(sessions))
    done: set[str] = set()
    return [phase for session in sessions for phase in prepare_data(session, done)]


def _run_all(running: Sequence[_Running], repetitions: int, seed: int, cold: bool, progress: Progress) -> None:
    """The warm-ups, then every block, each variant once in each; a variant that fails is given up. Collective."""
    blocks = running_order(len(running), repetitions + 1, seed)
    total, position, begun = len(running) * len(blocks), 0, perf_counter_ns()
    for block, order in enumerate(blocks):
        for number in order:
            one = running[number]
            left = ""
            if position:
                spent = (perf_counter_ns() - begun) * 1e-9
                left = f", {seconds(spent / position * (total - position), 2)} left"
            progress.stage(f"pass {position + 1} of {total}{left}: {one.variant.label}")
            if not one.failed:
                _one_pass(one, block, position, number, cold)
            position += 1
    progress.stage("")


def _one_pass(one: _Running, block: int, position: int, number: int, cold: bool) -> None:
    try:
        phase = run_pass(one.session, one.variant.loop, cold)
    except DliosimError as error:
        # What all ranks know of has left none of them waiting, and the other variants are not lost with this one.
        if not error.shared and one.session.world.size > 1:
            raise
        one.failed = f"failed in {'its warm-up' if block == 0 else f'block {block}'}: {error.message}"
        return
    one.hints = phase.summary
    if phase.summary.epochs:
        together = ranks_together(one.variant.loop.access.communicator, one.variant.workload.job)
        one.passes.append(pass_of(phase.summary, phase.rank_rows, together, block, position, number))


def _given_up(running: Sequence[_Running]) -> list[NotRun]:
    """The variants that failed; of the first one also which takes its place as the reference."""
    gone = [NotRun(one.variant.label, one.failed) for one in running if one.failed]
    left = [one.variant.label for one in running if not one.failed]
    if running[0].failed and left:
        gone[0] = replace(gone[0], reason=f"{gone[0].reason} (so all others are held against {left[0]})")
    return gone


def _measured(one: _Running) -> Measured:
    asked, granted = (one.hints.hints_asked, one.hints.hints_granted) if one.hints is not None else ((), ())
    variant = one.variant
    return Measured(
        variant.label,
        variant.values,
        variant.workload.digest(),
        variant.loop.access.api,
        variant.added,
        asked,
        granted,
        _striping(one),
        tuple(one.passes),
    )


def _striping(one: _Running) -> str:
    """What a file system granted of the striping asked, read back; for rank 0."""
    dataset = one.variant.workload.dataset(one.variant.loop.dataset)
    if dataset.stripe is None:
        return ""
    return read_striping(one.session.directory(dataset.root, dataset.path, dataset.digest())) or NO_STRIPING


def _report(outcome: Outcome, given: str | None, started: datetime) -> int:
    """Write the results to the directory `given`, or a new one, and print them; the exit status."""
    if len(outcome.measured) < 2:
        reasons = "".join(f"\n  {one.label}: {one.reason}" for one in outcome.not_run)
        sys.stderr.write(f"error: {len(outcome.measured)} variant ran, which is no comparison{reasons}\n")
        return ExecutionError.exit_code
    failures: list[str] = []
    written = ""
    try:
        with results_directory(given, outcome.name, started, "compare") as output:
            write_comparison(output, outcome)
        written = f"results: {output}\n"
    except OSError as error:
        failures.append(f"{failed_on('write the results', error)}\n")
    finally:
        unprinted = print_out(compare_report(outcome) + written)
    if unprinted is not None:
        failures.append(f"{failed_on('print the tables', unprinted)}\n{written}")
    if failures:
        sys.stderr.write("".join(failures))
        return ExecutionError.exit_code
    return 0
