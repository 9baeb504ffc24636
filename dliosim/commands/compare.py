"""`dliosim compare`: variants made on rank 0, their passes run in turn on all ranks, the verdict on rank 0."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from time import perf_counter_ns

from mpi4py import MPI

from dliosim.commands.blocks import Running, run_blocks
from dliosim.commands.describe import describe
from dliosim.commands.job import as_job, rendered, write_and_print
from dliosim.commands.options import given_roots, overrides, roots
from dliosim.commands.output import check_output, results_directory
from dliosim.commands.terminal import user_terminal
from dliosim.compare.design import Comparables, NotRun, parse_varied
from dliosim.compare.outcome import Measured, Outcome
from dliosim.errors import ExecutionError
from dliosim.execute.backends import require_backends
from dliosim.execute.compute import wake_on_time
from dliosim.execute.finding import FileFinder
from dliosim.execute.locking import Locks
from dliosim.execute.passes import prepare_data
from dliosim.execute.room import require_room
from dliosim.execute.session import Options, Phase, Session
from dliosim.execute.striping import NO_STRIPING, read_striping
from dliosim.execute.totals import share_totals
from dliosim.execute.world import World
from dliosim.model import DropCaches, Job, Repeat, Verb
from dliosim.report.compare_results import write_comparison, write_rows
from dliosim.report.compare_tables import compare_report
from dliosim.report.progress import Progress

_INTERRUPTED = "interrupted: there is no verdict; rows.csv, if it is there, has the blocks that were done"


def compare_command(comm: MPI.Intracomm, parsed: argparse.Namespace, arguments: Sequence[str]) -> int:
    """Compare variants of a pattern's loop on all ranks of `comm`; returns the exit status, the same on every rank."""

    def compare(world: World) -> int:
        with Locks() as locks:
            return _compare(world, parsed, arguments, locks)

    return as_job(comm, compare, _INTERRUPTED)


def _compare(world: World, parsed: argparse.Namespace, arguments: Sequence[str], locks: Locks) -> int:
    started, begun, load = datetime.now(timezone.utc), perf_counter_ns(), os.getloadavg()[0]
    progress = Progress(user_terminal() if world.rank == 0 else None)
    job, finder = Job(world.size, world.nodes), FileFinder(given_roots(parsed), progress)
    found = world.on_rank_0("read the pattern", lambda: _comparables(parsed, job, finder))
    first = found.variants[0].workload
    places = world.on_rank_0("find the directories", lambda: roots(parsed, first))
    options, sources = Options(), finder.sources
    running = [
        Running(one, Session(one.workload, world, places, options, progress, sources=sources, locks=locks))
        for one in found.variants
    ]
    for one in running:
        world.on_rank_0("find the directories", one.session.check_directories)
    world.on_rank_0("make the results directory", lambda: check_output(parsed.output))
    world.on_rank_0("make the data directory", running[0].session.make_roots)
    prepared = _prepared(running)
    cold = _is_cold(first.verbs) if parsed.caches is None else parsed.caches == "cold"
    status = 0
    with ExitStack() as stack:
        made: list[Path] = []

        def directory() -> Path:
            if not made:
                made.append(stack.enter_context(results_directory(parsed.output, first.name, started, "compare")))
            return made[0]

        def keep() -> None:
            # What Ctrl-C or a limit of time leaves. Where that cannot be written, the end will say so.
            if world.rank == 0 and sum(not one.failed for one in running) > 1:
                with suppress(OSError):
                    write_rows(directory(), [(one.variant.label, one.passes) for one in running])

        run_blocks(running, parsed.repeat, parsed.seed, cold, progress, keep)
        environment = describe(running[0].session, [one.last for one in running if one.last is not None], load)
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
                passes=tuple((one.variant.label, tuple(one.passes)) for one in running),
                prepared=tuple(phase.summary for phase in prepared),
            )
            status = _report(outcome, directory)
    return world.share(status)


def _comparables(parsed: argparse.Namespace, job: Job, finder: FileFinder) -> Comparables:
    """On rank 0, which alone loads the language."""
    from dliosim.compare.variants import comparables
    from dliosim.language.diagnostics import PatternError, render

    colour = sys.stderr.isatty()
    try:
        found, warnings = comparables(
            Path(parsed.pattern), overrides(parsed), job, parse_varied(parsed.vary), parsed.loop, finder
        )
    except PatternError as error:
        raise rendered(render(error.diagnostics, colour), error.exit_code) from error
    if warnings:
        sys.stderr.write(render(warnings, colour) + "\n")
    return found


def _is_cold(verbs: Sequence[Verb]) -> bool:
    """Whether a pattern drops the caches, wherever it does."""
    return any(isinstance(verb, DropCaches) or (isinstance(verb, Repeat) and _is_cold(verb.body)) for verb in verbs)


def _prepared(running: Sequence[Running]) -> list[Phase]:
    """Prepare what each variant needs, once, if there is room for all of it."""
    sessions = [one.session for one in running]
    wake_on_time()
    sessions[0].world.together(lambda: require_backends([session.workload for session in sessions]))
    share_totals(sessions)
    sessions[0].world.on_rank_0("look for room", lambda: require_room(sessions))
    for session in sessions:
        session.world.on_rank_0("lock the checkpoints", session.lock_checkpoints)
    done: set[str] = set()
    return [phase for session in sessions for phase in prepare_data(session, done)]


def _given_up(running: Sequence[Running]) -> list[NotRun]:
    """The variants that failed; of the first one also which takes its place as the reference."""
    gone = [NotRun(one.variant.label, one.failed) for one in running if one.failed]
    left = [one.variant.label for one in running if not one.failed]
    if running[0].failed and left:
        gone[0] = replace(gone[0], reason=f"{gone[0].reason} (so all others are held against {left[0]})")
    return gone


def _measured(one: Running) -> Measured:
    last, variant = one.last, one.variant
    asked, granted = (last.hints_asked, last.hints_granted) if last is not None else ((), ())
    return Measured(
        variant.label,
        variant.values,
        variant.workload.digest(),
        variant.loop.access.api,
        variant.added,
        asked,
        granted,
        _striping(one),
        # What reading an index took differs from variant to variant, and is in none of the passes.
        tuple(note for note in (last.notes if last is not None else ()) if not note.startswith("index:")),
        tuple(one.passes),
    )


def _striping(one: Running) -> str:
    """What a file system granted of the striping asked, read back; for rank 0."""
    dataset = one.variant.workload.dataset(one.variant.loop.dataset)
    if dataset.stripe is None:
        return ""
    return read_striping(one.session.directory(dataset.root, dataset.path, dataset.digest())) or NO_STRIPING


def _report(outcome: Outcome, directory: Callable[[], Path]) -> int:
    """Write the results to `directory`, which is made if it is not there yet, and print them; the exit status."""
    if len(outcome.measured) < 2:
        reasons = "".join(f"\n  {one.label}: {one.reason}" for one in outcome.not_run)
        sys.stderr.write(f"error: {len(outcome.measured)} variant ran, which is no comparison{reasons}\n")
        return ExecutionError.exit_code

    def write() -> Path:
        write_comparison(directory(), outcome)
        return directory()

    return 0 if write_and_print(write, lambda: compare_report(outcome)) else ExecutionError.exit_code
