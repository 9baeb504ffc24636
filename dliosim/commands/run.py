"""The command `dliosim run`: compile on rank 0, run on all ranks, report on rank 0."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from mpi4py import MPI

from dliosim.commands.job.garbage import freeze_objects
from dliosim.commands.job.partial import PartialResults
from dliosim.commands.job.setup import Setup, open_sessions, run_on_ranks
from dliosim.commands.job.terminal import print_text
from dliosim.errors import ExecutionError, UsageError
from dliosim.execute.io_errors import rank_0_error
from dliosim.execute.mpi.node_cores import fullest_node
from dliosim.execute.phases.context import Options
from dliosim.execute.run.workload_runner import run_with_null, run_workload
from dliosim.model import Loop, Workload
from dliosim.model.verbs import flatten_verbs
from dliosim.readable import count

if TYPE_CHECKING:
    from dliosim.execute.datasets.discovery import FileFinder
    from dliosim.execute.run.trace_recording import Recording
    from dliosim.trace.cut import TraceCut


def run_command(comm: MPI.Intracomm, arguments: Sequence[str], parsed: SimpleNamespace | None) -> int:
    """Run a pattern on all ranks of `comm`; return the exit status, the same on every rank."""
    unfinished = PartialResults()
    return run_on_ranks(comm, arguments, parsed, unfinished.save, lambda setup: _run(setup, unfinished))


def _run(setup: Setup, unfinished: PartialResults) -> int:
    world, parsed = setup.world, setup.parsed
    if world.rank == 0:
        with freeze_objects():
            from dliosim.commands import run_results
    finder: FileFinder | None = None

    def read_pattern() -> Workload:
        nonlocal finder
        workload, finder = run_results.read_pattern(setup)
        return workload

    # Rank 0 alone reads the pattern, so that 512 ranks do not each build a parser.
    workload = world.run_on_rank_0("read the pattern", read_pattern)
    options = Options(parsed.null, parsed.verify)
    world.run_on_rank_0("look at the options", lambda: _check_options(workload, options, parsed.trace, world.size))
    (session,) = open_sessions(setup, [workload], [workload], {} if finder is None else finder.sources, options)
    if finder is not None:
        session = replace(session, shortage=partial(run_results.shortage_error, setup, finder))
    node = fullest_node(world, setup.load)
    with (
        nullcontext()
        if finder is None
        else run_results.collect_results(setup, session, node, unfinished, finder) as finish,
        _begin_recording(setup) as recording,
    ):
        with _show_live(setup, workload) if parsed.live else nullcontext():
            phases = run_with_null(session) if parsed.with_null else run_workload(session)
        if recording is not None:
            recording.stop()
        status, place = finish(phases) if finish is not None else (0, None)
        if recording is not None:
            line = recording.write(place, _describe_run(setup, session.workload))
            if line and finish is not None and not _print_line(line, parsed.json):
                status = ExecutionError.exit_code
    return world.broadcast_object(status)


def _print_line(line: str, as_json: bool) -> bool:
    """Print what the last line says; return whether that worked. A reader may have closed the pipe before."""
    if as_json:
        sys.stderr.write(f"{line}\n")
        return True
    error = print_text(f"{line}\n")
    if error is not None:
        sys.stderr.write(f"{rank_0_error('print the line about the trace', error)}\n")
    return error is None


def _show_live(setup: Setup, workload: Workload) -> AbstractContextManager[None]:
    """Return the screen of `--live`; runs without it do not load the module."""
    from dliosim.commands.job.live import show_live

    return show_live(setup, workload.name)


def _begin_recording(setup: Setup) -> AbstractContextManager[Recording | None]:
    """Begin to record, if that is asked for. Collective."""
    if setup.parsed.trace is None:
        return nullcontext()
    from dliosim.execute.run.trace_recording import Recording  # most runs need none of it

    return Recording(setup.world, setup.parsed.trace, _spill_folder(setup))


def _describe_run(setup: Setup, workload: Workload) -> dict[str, str]:
    """Return what the trace says of the run."""
    loops = [verb for verb, _ in flatten_verbs(workload.verbs) if isinstance(verb, Loop)]
    return {
        "command": shlex.join([setup.program, *setup.arguments]),
        "started": setup.started.isoformat(timespec="seconds"),
        "settings": json.dumps({loop.name: _list_settings(loop) for loop in loops}),
    }


def _list_settings(loop: Loop) -> dict[str, str]:
    """Return the settings of a loop that an analysis may advise to change, as -D gives them."""
    access = loop.access
    found = {"api": access.api, "open": access.open, "order": access.order, "engine": access.engine}
    found |= {"readers": str(access.readers), "shard": loop.shard, "cache": access.cache}
    found["transfer"] = "whole sample" if access.transfer is None else str(access.transfer)
    return found | {"checkpoint": loop.checkpoints[0].checkpoint if loop.checkpoints else ""}


def _spill_folder(setup: Setup) -> Path:
    """Return the folder on each rank for what of a trace memory has no room for: near the results."""
    given = Path(setup.parsed.output or ".").absolute()
    return next(each for each in (given, *given.parents) if each.is_dir())


def _check_options(workload: Workload, options: Options, cut: TraceCut | None, ranks: int) -> None:
    """Raise UsageError for `--verify` with existing files, whose bytes are not known, and for `--trace` of no rank."""
    if cut is not None and not cut.count_ranks(ranks):
        text = f"--trace: none of its ranks is in this job, which has {count(ranks, 'rank')}"
        raise UsageError(f'{text}\n  = help: --trace "ranks 0 to {ranks - 1}" records all of them')
    given = [f"`{dataset.name}`" for dataset in workload.datasets if dataset.source]
    if options.verify and given:
        text = f"--verify: {', '.join(given)}: existing files cannot be verified, since their right bytes are not known"
        raise UsageError(f"{text}; `decode on` runs the checks that their format has")
