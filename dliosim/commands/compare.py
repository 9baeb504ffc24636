"""`dliosim compare`: variants made on rank 0, their passes run in turn on all ranks, the verdict on rank 0."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from time import perf_counter_ns

from mpi4py import MPI

from dliosim.commands.compare_schedule import Kind, Running, of_loops, of_stalls, run_blocks
from dliosim.commands.environment import describe
from dliosim.commands.garbage import lasting
from dliosim.commands.mpi_entry import as_job, rendered, write_and_print
from dliosim.commands.options import given_roots, overrides, roots
from dliosim.commands.results_dir import check_output, results_directory
from dliosim.commands.stalls import watch_of
from dliosim.commands.terminal import user_terminal
from dliosim.compare.experiment import Comparables, NotRun, parse_varied
from dliosim.compare.result import Measured, Outcome, P
from dliosim.errors import ExecutionError, UsageError
from dliosim.execute.backends.registry import require_backends
from dliosim.execute.context import Options, Phase, Session
from dliosim.execute.datasets.discovery import FileFinder, Source
from dliosim.execute.datasets.offset_tables import share_totals
from dliosim.execute.mpi.node_cores import fullest_node
from dliosim.execute.mpi.world import World
from dliosim.execute.node.compute import wake_on_time
from dliosim.execute.node.striping import NO_STRIPING, read_striping
from dliosim.execute.run.benchmark_pass import apart, own_directories, prepare_data
from dliosim.execute.run.capacity_check import require_room
from dliosim.execute.store.locking import Locks
from dliosim.measure.board import own
from dliosim.model import DropCaches, Job, Loop, Restore, Save
from dliosim.model.verbs import flat
from dliosim.readable import printable
from dliosim.report.compare.results import write_comparison, write_rows
from dliosim.report.progress import Progress

_UNFINISHED = "there is no verdict; rows.csv, if it is there, has the blocks that were done"


def compare_command(comm: MPI.Intracomm, parsed: argparse.Namespace, arguments: Sequence[str]) -> int:
    """Compare variants of a pattern's loop, save or restore on all ranks of `comm`.

    Returns the exit status, the same on every rank.
    """

    def compare(world: World) -> int:
        with Locks() as locks:
            return _compare(world, parsed, arguments, locks)

    return as_job(comm, compare, lambda signal: _UNFINISHED, watch_of(parsed))


def _compare(world: World, parsed: argparse.Namespace, arguments: Sequence[str], locks: Locks) -> int:
    started, begun, load = datetime.now(timezone.utc), perf_counter_ns(), os.getloadavg()[0]
    progress = Progress(user_terminal() if world.rank == 0 else None, row=own())
    job, finder = Job(world.size, world.nodes), FileFinder(given_roots(parsed), progress)
    found = world.on_rank_0("read the pattern", lambda: _comparables(parsed, job, finder))
    caches = world.on_rank_0("look at the options", lambda: _caches(found, parsed.caches))
    begin = _Begin(
        world, parsed, tuple(arguments), found, finder.sources, locks, progress, caches, started, begun, load
    )
    cold = caches == "cold"
    return (
        _judged(begin, of_loops(cold)) if isinstance(found.variants[0].verb, Loop) else _judged(begin, of_stalls(cold))
    )


@dataclass(frozen=True)
class _Begin:
    """What is known before anything is run."""

    world: World
    parsed: argparse.Namespace
    arguments: tuple[str, ...]
    found: Comparables
    sources: Mapping[str, Source]
    locks: Locks
    progress: Progress
    caches: str
    started: datetime
    begun_ns: int
    load: float


def _judged(begin: _Begin, kind: Kind[P]) -> int:
    """Run all passes, judge them and write what came of them; the exit status, the same on every rank. Collective."""
    world, parsed, found, progress = begin.world, begin.parsed, begin.found, begin.progress
    first, started = found.variants[0].workload, begin.started
    places = world.on_rank_0("find the directories", lambda: roots(parsed, [one.workload for one in found.variants]))
    running: list[Running[P]] = []
    for number, one in enumerate(found.variants):
        workload = apart(one.workload, one.verb, number)
        session = Session(workload, world, places, Options(), progress, sources=begin.sources, locks=begin.locks)
        running.append(Running(one, session))
        world.on_rank_0("find the directories", session.check_directories)
    world.on_rank_0("make the results directory", lambda: check_output(parsed.output))
    for each in running:
        world.on_rank_0("make the data directories", each.session.make_roots)
    status = 0
    with ExitStack() as stack:
        stack.enter_context(own_directories([one.session for one in running]))
        prepared = _prepared(running)
        directory = stack.enter_context(results_directory(parsed.output, first.name, started, "compare"))

        def keep() -> None:
            # What Ctrl-C or a limit of time leaves. Where that cannot be written, the end will say so.
            if world.rank == 0 and sum(not one.failed for one in running) > 1:
                with suppress(OSError):
                    write_rows(directory(), [(one.variant.label, one.passes) for one in running], kind.figures)

        run_blocks(running, parsed.repeat, parsed.seed, kind.run_pass, progress, keep)
        node = fullest_node(world, begin.load)
        if world.rank == 0:
            outcome = Outcome(
                name=first.name,
                title=first.title,
                pattern=first.pattern,
                overrides=tuple(overrides(parsed)),
                arguments=begin.arguments,
                what=found.what,
                varied=found.varied,
                ranks=world.size,
                nodes=world.nodes,
                environment=describe(running[0].session, node, [one.last for one in running if one.last is not None]),
                started=started.isoformat(timespec="seconds"),
                total_seconds=(perf_counter_ns() - begin.begun_ns) * 1e-9,
                repetitions=parsed.repeat,
                seed=parsed.seed,
                caches=begin.caches,
                measured=tuple(_measured(one) for one in running if not one.failed),
                not_run=(*found.not_run, *_given_up(running)),
                passes=tuple((one.variant.label, tuple(one.passes)) for one in running),
                prepared=tuple(phase.summary for phase in prepared),
            )
            status = _report(outcome, kind, directory)
    return world.share(status)


@lasting()
def _comparables(parsed: argparse.Namespace, job: Job, finder: FileFinder) -> Comparables:
    """On rank 0, which alone loads the language."""
    from dliosim.compare.variants import comparables
    from dliosim.language.diagnostics import PatternError, render

    colour = sys.stderr.isatty()
    try:
        found, warnings = comparables(
            Path(parsed.pattern), overrides(parsed), job, parse_varied(parsed.vary), parsed.loop, parsed.what, finder
        )
    except PatternError as error:
        raise rendered(render(error.diagnostics, colour), error.exit_code) from error
    if warnings:
        sys.stderr.write(render(warnings, colour) + "\n")
    return found


def _caches(found: Comparables, asked: str | None) -> str:
    """How caches are treated before each pass: `cold`, `warm`, or empty where nothing is read.

    If --caches does not say, a restore is cold, since the page cache has all that was just saved; a loop is if the
    pattern drops the caches, wherever it does.
    """
    first = found.variants[0]
    if isinstance(first.verb, Save):
        if asked is not None:
            raise UsageError(f"--caches {asked}: a save reads nothing that caches could hold")
        return ""
    if asked is not None:
        return asked
    drops = any(isinstance(verb, DropCaches) for verb, _ in flat(first.workload.verbs))
    return "cold" if drops or isinstance(first.verb, Restore) else "warm"


def _prepared(running: Sequence[Running[P]]) -> list[Phase]:
    """Prepare what each variant needs, once, if there is room for all of it."""
    sessions = [one.session for one in running]
    wake_on_time()
    sessions[0].world.together(lambda: require_backends([session.workload for session in sessions]))
    share_totals(sessions)
    # What a pass saves is deleted before the next one, but the others keep what they prepare, or restore.
    alone = isinstance(running[0].variant.verb, Save)
    for together in [[session] for session in sessions] if alone else [sessions]:
        sessions[0].world.on_rank_0("look for room", partial(require_room, together))
    done: set[Path] = set()
    return [phase for session in sessions for phase in prepare_data(session, done)]


def _given_up(running: Sequence[Running[P]]) -> list[NotRun]:
    """The variants that failed; of the first one also which takes its place as the reference."""
    gone = [NotRun(one.variant.label, one.failed) for one in running if one.failed]
    left = [one.variant.label for one in running if not one.failed]
    if running[0].failed and left:
        gone[0] = replace(gone[0], reason=f"{gone[0].reason} (so all others are held against {left[0]})")
    return gone


def _measured(one: Running[P]) -> Measured[P]:
    last, variant = one.last, one.variant
    asked, granted = (last.hints_asked, last.hints_granted) if last is not None else ((), ())
    return Measured(
        variant.label,
        variant.values,
        variant.workload.digest(),
        last.root if last is not None else None,
        variant.access.api,
        variant.added,
        asked,
        granted,
        _striping(one),
        # What reading an index took differs from variant to variant, and is in none of the passes.
        tuple(note for note in (last.notes if last is not None else ()) if not note.startswith("index:")),
        tuple(one.passes),
    )


def _striping(one: Running[P]) -> str:
    """What a file system granted of the striping asked for a data set, read back; for rank 0."""
    if not isinstance(one.variant.verb, Loop):
        return ""
    dataset = one.variant.workload.dataset(one.variant.verb.dataset)
    if dataset.stripe is None:
        return ""
    return read_striping(one.session.directory(dataset.root, dataset.path, dataset.digest())) or NO_STRIPING


def _report(outcome: Outcome[P], kind: Kind[P], directory: Callable[[], Path]) -> int:
    """Write the results to `directory`, which is made if it is not there yet, and print them; the exit status."""
    if len(outcome.measured) < 2:
        reasons = "".join(f"\n  {one.label}: {one.reason}" for one in outcome.not_run)
        text = f"error: {len(outcome.measured)} variant ran, which is no comparison{reasons}\n"
        sys.stderr.write(printable(text, lines=True))
        return ExecutionError.exit_code

    def write() -> Path:
        place = directory()
        write_comparison(place, outcome, kind.figures, kind.content(outcome))
        return place

    return 0 if write_and_print(write, lambda: kind.report(outcome)) else ExecutionError.exit_code
