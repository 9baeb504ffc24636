"""The command `dliosim saturate`: how many accelerators a storage feeds, by passes of a loop on more and more ranks."""

from __future__ import annotations

import gc
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from dliosim.commands.job.terminal import print_text
from dliosim.commands.run import RunCommand
from dliosim.errors import HELP, UsageError
from dliosim.execute.datasets.open_dataset import open_dataset
from dliosim.execute.mpi.world import NodeLoad, fullest_node, run_on_some
from dliosim.execute.phases.context import Phase, PhaseLog, Session
from dliosim.execute.run.benchmark_pass import prepare_datasets
from dliosim.execute.run.workload_runner import require_all, run_verbs
from dliosim.measure.results.phase import LoopPhase
from dliosim.measure.results.run_summary import RunSummary
from dliosim.measure.saturation import Point, Saturation, find_most, is_decided, make_saturation
from dliosim.model import Convert, DropCaches, Job, Loop, Prepare, Verb, Workload
from dliosim.model.expectation import GOAL, goals_of
from dliosim.model.verbs import flatten_verbs, names_read
from dliosim.plan.forecast.layout_forecast import mean_compute
from dliosim.readable import count

T = TypeVar("T")

#: A pass takes this time, or this many steps without waits if they take longer; passes of a number of accelerators.
_PASS_SECONDS, _PASS_STEPS, _MOST_PASSES = 5.0, 20, 6

#: Passes without I/O of a number of accelerators that miss the goal at first; their median counts.
_IDLE_PASSES = 3


class SaturateCommand(RunCommand):
    """A search for the most accelerators that a storage feeds. An accelerator is a rank."""

    unfinished = "there is no answer"
    kind = "saturate"

    loop: Loop  #: the loop that is run, without saves and evaluations
    goal: float  #: the storage-limited utilization that is asked for
    most: int  #: the most accelerators that are tried
    found: Saturation  #: the answer
    finished: Path | None = None  #: directory of the results of numbers that are finished, on rank 0

    def read(self) -> None:
        """Compile the pattern, and choose the loop."""
        super().read()
        self.most = self.setup.parsed.most or self.setup.world.size

        def choose() -> tuple[Workload, Loop]:
            if self.most > self.setup.world.size:
                text = f"--most {self.most}: an accelerator is a rank, and {count(self.setup.world.size, 'rank')} run"
                raise UsageError(f"{text}{HELP}start more: `mpiexec -n {self.most} dliosim saturate ...`")
            return self._reduce(self.workload)

        goals = goals_of(self.workload.expectations)
        self.workload, self.loop = self.setup.world.run_on_rank_0("choose the loop", choose)
        self.goal = self.setup.parsed.until or goals.get(self.loop.name, GOAL)

    def open(self) -> None:
        """Open what a run opens; on a signal, numbers that are finished are named."""
        super().open()
        if self.record is not None:
            self.setup.partial.begin(lambda signal: self.finished)

    def run(self) -> None:
        """Prepare the data, and try numbers of accelerators."""
        require_all([self.session])
        prepare_datasets(self.session, set())
        open_dataset(self.session, self.workload.dataset(self.loop.dataset))  # on ranks that wait at first, too
        points: dict[int, Point] = {}
        idle: dict[int, float] = {}

        def reaches(number: int) -> bool:
            point = self._run_on(number, self._run_passes)
            assert point is not None
            points[number] = point
            return point.reaches

        def is_busy_without_io(number: int) -> bool:
            passes = [self._run_on(number, self._run_without_io)]
            while passes[0] < self.goal and len(passes) < _IDLE_PASSES:  # a miss may be other work's
                passes.append(self._run_on(number, self._run_without_io))
            idle[number] = statistics.median(passes)
            return idle[number] >= self.goal

        fed = find_most(reaches, self.most)
        # Ranks that could not keep accelerators busy by themselves did not ask storage for as much as accelerators do.
        ceiling = max(fed, 1)
        if not is_busy_without_io(ceiling):
            ceiling = find_most(is_busy_without_io, ceiling)
        self.found = make_saturation(list(points.values()), self.most, ceiling, idle)
        self.setup.progress.stage("")

    def report(self) -> int:
        """Print the answer on rank 0; return the exit status."""

        def show() -> None:
            from dliosim.report.run.saturation_lines import saturation_content, saturation_report

            assert self.record is not None
            place, begun = self.record.directory.make(), self.record.begun
            if self.setup.parsed.json:
                text = json.dumps(saturation_content(begun, self.found) | {"results": str(place)}) + "\n"
            else:
                text = saturation_report(begun, self.found, place)
            print_text(text)

        self.setup.world.run_on_rank_0("print the answer", show)
        return 0

    def _reduce(self, workload: Workload) -> tuple[Workload, Loop]:
        """Return the workload that prepares the data of a loop and runs it for one pass; and this loop.

        Raises UsageError if no loop can be asked.
        """
        for stage in workload.stages():
            cure = f'`-D "stage {stage.dataset}.copy=off"` measures the place of {stage.dataset} itself'
            raise UsageError(f"{workload.name}: saturate copies nothing to the nodes{HELP}{cure}")
        name = self.setup.parsed.loop
        verbs = [verb for verb, _ in flatten_verbs(workload.verbs)]
        loops = [one for one in verbs if isinstance(one, Loop) and one.dataset and not one.arrivals]
        loop = next((one for one in loops if name in (None, one.name)), None)
        if loop is None:
            names = ", ".join(one.name for one in loops)
            what = f"no loop `{name}`" if name else "no loop"
            raise UsageError(
                f"{workload.name}: {what} that reads step after step{HELP}loops that do: {names or 'none'}"
            )
        computed = mean_compute(loop.compute, loop.batch)
        if computed <= 0:
            raise UsageError(f"{loop.name} has no compute, so there is no utilization to reach{HELP}give it `compute`")
        took = self.setup.parsed.pass_time or max(_PASS_SECONDS, _PASS_STEPS * computed)
        loop = replace(loop, epochs=1, seconds=took, checkpoints=(), evaluations=())
        needed, prepares = {*names_read(loop)}, list[Verb]()
        for verb in reversed(verbs):
            if isinstance(verb, Prepare) and verb.dataset in needed:
                needed |= {verb.source} if isinstance(verb, Convert) else set()
                prepares.insert(0, verb)
        return replace(workload, verbs=(*prepares, loop), checkpoints=(), expectations=()), loop

    def _compile(self, number: int, nodes: int) -> Workload:
        """Return the workload for a number of accelerators, which read the data of all ranks; on rank 0."""
        from dliosim.commands.command_line.pattern_files import locate_pattern
        from dliosim.language.compile import compile_pattern

        path = locate_pattern(self.setup.parsed.pattern)
        assert self.finder is not None and path is not None
        compiled = compile_pattern(path, self.setup.parsed.values, Job(number, nodes), self.finder.find_known)[0]
        return replace(self._reduce(compiled)[0], datasets=self.workload.datasets)

    def _run_on(self, number: int, work: Callable[[Session], T]) -> T:
        """Call `work` on some ranks, spread evenly over the nodes, with their session; return its result on all ranks.

        Collective.
        """
        world, nodes = self.setup.world, min(number, self.setup.world.nodes)
        workload = world.run_on_rank_0("read the pattern", lambda: self._compile(number, nodes))
        return run_on_some(world, number, lambda part: work(replace(self.session, world=part, workload=workload)))

    def _run_passes(self, session: Session) -> Point:
        """Run passes until they decide, and write their results; return the point. Collective."""
        world, phases = session.world, list[Phase]()
        node = fullest_node(world, self.setup.load)
        for passes in range(1, _MOST_PASSES + 1):
            phases.extend(self._run_pass(session, f"pass {passes}"))
            run = world.run_on_rank_0("judge the passes", lambda: self._summarize(session, node, phases))
            if is_decided(run.answers[0]):
                break
        world.run_on_rank_0("write the results", lambda: self._write(run, phases))
        return Point(world.size, world.nodes, run.answers[0], passes)

    def _run_pass(self, session: Session, name: str) -> list[Phase]:
        """Run the loop once, from cold caches if reads go through them; return its phases. Collective."""
        loop = session.workload.verbs[-1]
        assert isinstance(loop, Loop)
        is_cached = loop.access.cache != "off" and not session.options.null
        self.setup.progress.stage(f"{count(session.world.size, 'accelerator')}, {name}")
        gc.collect()  # no pass pays for the garbage of the one before
        verbs: tuple[Verb, ...] = (DropCaches(), loop) if is_cached else (loop,)
        return run_verbs(replace(session, finished=PhaseLog()), verbs, timelines=0)

    def _run_without_io(self, session: Session) -> float:
        """Run a pass that reads nothing; return the utilization with all waits, on rank 0. Collective."""
        options = replace(session.options, null=True)
        phases = self._run_pass(replace(session, options=options, modelled=None), "without I/O")
        epochs = [epoch for phase in phases if isinstance(phase.summary, LoopPhase) for epoch in phase.summary.epochs]
        found = [epoch.utilization for epoch in epochs if epoch.utilization is not None]
        return statistics.fmean(found) if found else 0.0

    def _summarize(self, session: Session, node: NodeLoad, phases: Sequence[Phase]) -> RunSummary:
        """Return the passes of a number of accelerators with their answer, on rank 0; UsageError if it says nothing."""
        from dliosim.commands.job.environment import describe_environment
        from dliosim.measure.answers.answer import answer_run
        from dliosim.report.phase_titles import group_phases

        assert self.record is not None
        summaries = tuple(phase.summary for phase in phases)
        run = replace(
            self.record.begun,
            digest=session.workload.digest(),
            ranks=session.world.size,
            nodes=session.world.nodes,
            environment=describe_environment(session, node, summaries, self.setup.parsed.output),
            seconds=self.setup.seconds,
            phases=summaries,
        )
        answers = answer_run(run, group_phases(run.loops), {self.loop.name: self.goal}, lambda override: None)
        if answers[0].storage_utilization is None:
            more = " ".join(f"-D {name}.samples=..." for name in names_read(self.loop))
            ran, data = count(run.ranks, "accelerator"), self.loop.dataset
            cure = f"give `{data}` more samples, as `{more}`, a longer `--pass-time`, or a lower `--most`"
            raise UsageError(f"{ran}: a pass has one step, which says nothing{HELP}{cure}")
        return replace(run, answers=answers)

    def _write(self, run: RunSummary, phases: Sequence[Phase]) -> None:
        """Write the results of a number of accelerators, on rank 0."""
        from dliosim.commands.run_results import write_phases

        assert self.record is not None
        place = self.record.directory.make() / f"{run.ranks:04d}"
        place.mkdir()
        write_phases(place, run, phases)
        self.finished = place.parent
