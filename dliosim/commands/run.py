"""The command `dliosim run`: compile on rank 0, run on all ranks, report on rank 0."""

from __future__ import annotations

import json
import shlex
import sys
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from dliosim.commands.job.garbage import freeze_objects
from dliosim.commands.job.setup import RankCommand, Setup, check_output, open_sessions, require_one_node
from dliosim.commands.job.terminal import print_text
from dliosim.errors import HELP, ExecutionError, UsageError
from dliosim.execute.io_errors import rank_0_error
from dliosim.execute.mpi.world import fullest_node
from dliosim.execute.phases.context import Options, Phase, Session
from dliosim.execute.run.workload_runner import run_with_null, run_workload
from dliosim.measure.rank.records import StepLog
from dliosim.model import Loop, Restore, Save, StorageModel, Verb, Workload
from dliosim.model.access import write_readers
from dliosim.model.verbs import flatten_verbs
from dliosim.readable import count

if TYPE_CHECKING:
    from dliosim.commands.dlio_summary import DlioFiles
    from dliosim.commands.run_results import RunRecord
    from dliosim.execute.datasets.discovery import FileFinder
    from dliosim.execute.run.trace_recording import Recording
    from dliosim.measure.results.run_summary import RunSummary


#: Options of `run` that commands which run a pattern in their own way have not.
_OPTIONS: Final[dict[str, Any]] = {
    **dict.fromkeys(("null", "with_null", "verify", "strict", "json"), False),
    **dict.fromkeys(("output", "trace", "mtbf", "restart_time", "repeat", "warm_up", "dlio_summary", "dlio")),
    **dict.fromkeys(("override", "root"), ()),
}


class RunCommand(RankCommand):
    """One run of a pattern."""

    unfinished = "no results were written"
    kind: ClassVar[str] = "results"  #: part of the name of a new directory for results

    workload: Workload  #: what the pattern says
    storage: StorageModel | None  #: the described storage of a run without files
    given: Setup  #: the command as it was given; with --repeat `setup` is that of one run
    session: Session  #: the run of it on this rank
    phases: list[Phase]  #: what its verbs became
    finder: FileFinder | None = None  #: what looked for existing files, on rank 0
    record: RunRecord | None = None  #: what rank 0 keeps for the results
    recording: Recording | None = None  #: the trace, if it is asked for
    runs: tuple[str, ...] = ("",)  #: names of the runs with --repeat, which are folders below --output
    files: DlioFiles | None = None  #: the files of DLIO that are written, too

    def __init__(self, setup: Setup) -> None:
        vars(setup.parsed).update(_OPTIONS | vars(setup.parsed))
        super().__init__(setup)

    def read(self) -> None:
        """Compile the pattern. Rank 0 alone does it, so that 512 ranks do not each build a parser."""
        if self.setup.world.rank == 0:
            with freeze_objects():
                import dliosim.commands.run_results  # noqa: F401
        self.workload, self.storage = self.setup.world.run_on_rank_0("read the pattern", self._read_pattern)
        world, parsed = self.setup.world, self.setup.parsed
        world.run_on_rank_0("look at the options", self._check_options)
        if parsed.dlio_summary is not None:
            from dliosim.commands.dlio_summary import plan_files  # most runs need none of it

            self.files = world.run_on_rank_0("write DLIO's files", lambda: plan_files(self.setup, self.workload))
        if parsed.repeat is not None:
            self.runs = _name_runs(parsed)
            parsed.output = world.run_on_rank_0("make the results directory", self._make_base)

    def open(self) -> None:
        """Make the directories, and begin to keep results and to record."""
        self.given = self.setup
        self._open_run(self.runs[0])

    def _make_base(self) -> str:
        """Make and return the directory of several runs, on rank 0."""
        from dliosim.commands.job.results_dir import ResultsDirectory  # rank 0 alone imports what writes results

        check_output(self.setup.parsed.output)
        base = ResultsDirectory(self.setup.parsed.output, self.workload.name, self.setup.started, self.kind)
        return str(self.setup.stack.enter_context(base).make())

    def _open_run(self, name: str) -> None:
        if name:
            self.setup = _begin_run(self.given, name)
        setup, finder = self.setup, self.finder
        sources = {} if finder is None else finder.sources
        options = Options(setup.parsed.null, setup.parsed.verify)
        (self.session,) = open_sessions(setup, [self.workload], [self.workload], sources, options, self.storage)
        node = fullest_node(setup.world, setup.load)
        if self.files is not None:
            self.session = replace(self.session, log=StepLog())
        if finder is not None:
            from dliosim.commands.run_results import begin_record, shortage_error

            self.session = replace(self.session, shortage=partial(shortage_error, setup, finder))
            self.record = begin_record(setup, self.session, node, finder, self.kind)
        if setup.parsed.trace is not None:
            from dliosim.execute.run.trace_recording import Recording  # most runs need none of it

            # What memory has no room for is written near the results.
            given = Path(setup.parsed.output or ".").absolute()
            folder = next(each for each in (given, *given.parents) if each.is_dir())
            recording = Recording(setup.world, setup.parsed.trace, folder)
            self.recording = setup.stack.enter_context(recording)

    def run(self) -> None:
        """Run all verbs, and with --with-null each loop once more without I/O."""
        self.phases = (run_with_null if self.setup.parsed.with_null else run_workload)(self.session)
        if self.recording is not None:
            self.recording.stop()

    def report(self) -> int:
        """Write and print the results, then the trace; with --repeat run again, and report all runs at the end."""
        base, reported = self.given.parsed.output, [self._report_run(self.runs[0])]
        for name in self.runs[1:]:
            self.setup.stack.close()
            self.recording = None  # its buffers and files are not kept for the next run
            self.setup.partial.otherwise = f"earlier runs are in {base}, and no results of {name} were written"
            self._open_run(name)
            self.run()
            reported.append(self._report_run(name))
        status, warm_ups = max(status for status, _ in reported), self.given.parsed.warm_up or 0
        counted = [run for _, run in reported[warm_ups:] if run is not None]
        if len(counted) > 1:
            from dliosim.report.run.repeats import format_repeats, repeats_json

            text = repeats_json(counted, warm_ups) if self.given.parsed.json else format_repeats(counted)
            status = status if _print_line(text.rstrip(), False) else ExecutionError.exit_code
        return self.setup.world.broadcast_object(status)

    def _report_run(self, name: str) -> tuple[int, RunSummary | None]:
        status, place, run = 0, None, None
        if self.record is not None:
            run = self.record.summarize(self.phases)
            status, place = self.record.report(run, self.phases)
        lines = []
        if self.recording is not None:
            modelled = "" if self.storage is None else self.storage.name
            lines.append(self.recording.write(place, _describe_run(self.setup, self.session.workload, modelled)))
        if self.files is not None:
            from dliosim.commands.dlio_summary import write_dlio_files  # most runs need none of it

            lines.append(write_dlio_files(self.setup, self.session, run, self.files, name))
        for line in filter(None, lines):
            if self.record is not None and not _print_line(line, self.setup.parsed.json):
                status = ExecutionError.exit_code
        return status, run

    def _read_pattern(self) -> tuple[Workload, StorageModel | None]:
        from dliosim.commands.run_results import read_pattern

        workload, self.finder, storage = read_pattern(self.setup)
        return workload, storage

    def _check_options(self) -> None:
        """Raise UsageError for --verify of existing files, whose bytes are not known, and for --trace of no rank."""
        ranks, cut, nodes = self.setup.world.size, self.setup.parsed.trace, self.setup.world.nodes
        if self.storage is not None:
            require_one_node(nodes)
        verbs = [verb for verb, _ in flatten_verbs(self.workload.verbs)]
        if self.storage is not None and not any(map(_uses_storage, verbs)):
            text = f"--storage: {self.workload.name} neither reads in a loop nor saves nor restores"
            raise UsageError(f"{text}{HELP}`dliosim patterns` lists those that train")
        if cut is not None and not cut.count_ranks(ranks):
            text = f"--trace: none of its ranks is in this job, which has {count(ranks, 'rank')}"
            raise UsageError(f'{text}\n  = help: --trace "ranks 0 to {ranks - 1}" records all of them')
        given = ", ".join(f"`{dataset.name}`" for dataset in self.workload.datasets if dataset.source)
        if self.setup.parsed.verify and given:
            text = f"--verify: {given}: existing files cannot be verified, since their right bytes are not known"
            raise UsageError(f"{text}; `decode on` runs the checks that their format has")


def _name_runs(parsed: SimpleNamespace) -> tuple[str, ...]:
    """Return the names of the runs of --repeat, with those that warm up: as in MLPerf Storage `run_1` to `run_5`."""
    kinds = ("warm_up", parsed.warm_up or 0), ("run", parsed.repeat)
    return tuple(f"{kind}_{number}" for kind, last in kinds for number in range(1, last + 1))


def _begin_run(given: Setup, name: str) -> Setup:
    """Return the set-up of one of several runs, whose results are in a folder `name` below those of the command.

    Its load average is the first one: later ones have the runs before.
    """
    parsed = SimpleNamespace(**vars(given.parsed) | {"output": f"{given.parsed.output}/{name}"})
    now, stack = datetime.now(timezone.utc), given.stack.enter_context(ExitStack())
    return replace(given, parsed=parsed, started=now, begun_ns=perf_counter_ns(), stack=stack)


def _uses_storage(verb: Verb) -> bool:
    """Return whether a verb waits for a described storage."""
    return isinstance(verb, Save | Restore) or (isinstance(verb, Loop) and bool(verb.dataset or verb.checkpoints))


def _print_line(line: str, as_json: bool) -> bool:
    """Print what a line says; return whether that worked. A reader may have closed the pipe before."""
    if as_json:
        sys.stderr.write(f"{line}\n")
        return True
    try:
        print_text(f"{line}\n" if line else "")
    except OSError as error:
        sys.stderr.write(f"{rank_0_error('print the last lines', error)}\n")
        return False
    return True


def _describe_run(setup: Setup, workload: Workload, modelled: str) -> dict[str, str]:
    """Return what the trace says of the run."""
    loops = [verb for verb, _ in flatten_verbs(workload.verbs) if isinstance(verb, Loop)]
    return {
        "command": shlex.join([setup.program, *setup.arguments]),
        "started": setup.started.isoformat(timespec="seconds"),
        "modelled": modelled,
        "settings": json.dumps({loop.name: _list_settings(loop) for loop in loops}),
    }


def _list_settings(loop: Loop) -> dict[str, str]:
    """Return the settings of a loop that an analysis may advise to change, as -D gives them."""
    found = {name: getattr(loop.access, name) for name in ("api", "open", "order", "engine", "cache")}
    found |= {"readers": write_readers(loop.access.readers, loop.access.processes), "shard": loop.shard}
    found["transfer"] = "whole sample" if loop.access.transfer is None else str(loop.access.transfer)
    return found | {"checkpoint": loop.checkpoints[0].checkpoint if loop.checkpoints else ""}
