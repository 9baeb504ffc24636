"""The command `dliosim compare`: variants made on rank 0, passes run in turn on all ranks, the verdict on rank 0."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from dliosim.commands.command_line.options import parse_overrides, parse_roots, read_storage
from dliosim.commands.command_line.pattern_files import find_pattern, locate_pattern
from dliosim.commands.job.environment import describe_environment, find_disk, read_back_striping
from dliosim.commands.job.results_dir import ResultsDirectory, results_line, write_and_print
from dliosim.commands.job.setup import RankCommand, Setup, compile_or_explain, open_sessions, require_one_node
from dliosim.compare.answer import answer_comparison
from dliosim.compare.experiment import ComparisonPlan, ExcludedVariant, Variant, draw_pass_order, parse_varied
from dliosim.compare.pass_figures import LOOP, STALL, Measured, Pass, Subject, make_pass
from dliosim.compare.result import Outcome, VariantResult
from dliosim.errors import HELP, DliosimError, ExecutionError, PlanError, UsageError
from dliosim.execute.datasets.discovery import FileFinder
from dliosim.execute.mpi.world import NodeLoad, fullest_node
from dliosim.execute.phases.context import Options, Phase, Session
from dliosim.execute.run import benchmark_pass
from dliosim.execute.run.workload_runner import require_all
from dliosim.measure.results.phase import PhaseSummary
from dliosim.model import DropCaches, Finder, Job, Loop, Restore, Save, StorageModel, communicator_size
from dliosim.model.verbs import flatten_verbs
from dliosim.readable import count, printable, seconds
from dliosim.report.compare.results import comparison_json, write_comparison, write_rows
from dliosim.report.compare.tables import comparison_report


@dataclass(slots=True)
class VariantRun:
    """A variant while the comparison runs."""

    variant: Variant  #: what is run
    session: Session  #: session of its workload
    passes: list[Pass] = field(default_factory=list)  #: passes until now, on the rank that has them
    last: PhaseSummary | None = None  #: summary of the last pass; None before the first
    failed: str = ""  #: why the variant failed; empty while it runs


if TYPE_CHECKING:
    from dliosim.language.diagnostics import Diagnostic


class CompareCommand(RankCommand):
    """One comparison."""

    unfinished = "there is no verdict; rows.csv, if it is there, has the blocks that were done"

    plan: ComparisonPlan  #: the variants, and those that cannot run
    storage: StorageModel | None  #: the described storage of a comparison without files
    values: list[tuple[str, str]]  #: the pairs of -D about the pattern
    caches: str  #: how caches are treated before each pass
    running: list[VariantRun]  #: the variants with their passes
    prepared: list[Phase]  #: what was prepared before the first pass
    directory: ResultsDirectory

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.finder = FileFinder(parse_roots(setup.parsed), setup.progress)

    def read(self) -> None:
        """Compile the variants, and the storage if one is described."""
        world, parsed = self.setup.world, self.setup.parsed
        self.storage, self.values = world.run_on_rank_0("read the storage", lambda: read_storage(parsed))
        if self.storage is not None:
            require_one_node(world.nodes)

        def compile_plan() -> tuple[ComparisonPlan, str]:
            path = find_pattern(parsed.pattern, parsed.override)
            return compile_or_explain(lambda: self._compile_variants(path, self.finder))

        self.plan, self.caches = world.run_on_rank_0("read the pattern", compile_plan)

    def open(self) -> None:
        """Make the directories, and prepare what each variant needs."""
        setup, variants = self.setup, self.plan.variants
        run = [
            benchmark_pass.separate_checkpoints(one.workload, one.verb, number) for number, one in enumerate(variants)
        ]
        used, sources = [one.workload for one in variants], self.finder.sources
        sessions = open_sessions(setup, used, run, sources, Options(), self.storage)
        if self.storage is None:
            setup.stack.enter_context(benchmark_pass.lock_variant_directories(sessions))
        self.running = [VariantRun(one, session) for one, session in zip(variants, sessions, strict=True)]
        # Saves of a pass are deleted before the next pass, so each variant needs room alone; prepared data stay.
        require_all(sessions, at_once=not isinstance(variants[0].verb, Save))
        done: set[Path] = set()
        self.prepared = [phase for session in sessions for phase in benchmark_pass.prepare_datasets(session, done)]
        directory = ResultsDirectory(setup.parsed.output, variants[0].workload.name, setup.started, "compare")
        self.directory = setup.stack.enter_context(directory)

    def run(self) -> None:
        """Run the warm-ups, then every block, with each variant once; a variant that fails is not run again.

        Rank 0 prints on standard error how many passes there will be and, after the warm-ups, how long they will take,
        as a log has no progress line.
        """
        running, repeat, progress = self.running, self.setup.parsed.repeat, self.setup.progress
        blocks = draw_pass_order(len(running), repeat + 1, self.setup.parsed.seed)
        total, position, begun = len(running) * len(blocks), 0, perf_counter()
        is_first = self.setup.world.rank == 0
        if is_first:
            each = f"{count(repeat, 'pass', 'passes')} of each that count"
            sys.stderr.write(f"comparing {count(len(running), 'variant')}: a warm-up and {each}\n")
        for block, order in enumerate(blocks):
            for number in order:
                one, left = running[number], ""
                if position:
                    left = f", {seconds((perf_counter() - begun) / position * (total - position), 2)} left"
                progress.stage(f"pass {position + 1} of {total}{left}: {one.variant.label}")
                if not one.failed:
                    self._run_pass(one, block, position)
                position += 1
            self._write_rows()
            if is_first and block == 0:
                took = perf_counter() - begun
                sys.stderr.write(f"the warm-ups took {seconds(took, 2)}: about {seconds(took * repeat, 2)} to go\n")
        progress.stage("")

    def _run_pass(self, one: VariantRun, block: int, position: int) -> None:
        """Run a variant once. Caches are dropped before, or read through."""
        variant, session = one.variant, one.session
        try:
            phase = benchmark_pass.run_pass(session, variant.verb, self.caches == "cold", first=block == 0)
        except DliosimError as error:
            # An error that all ranks share leaves no rank waiting: the other variants can still run.
            if not error.shared and session.world.size > 1:
                raise
            one.failed = f"failed in {'its warm-up' if block == 0 else f'block {block}'}: {error.message}"
            return
        one.last = phase.summary
        together = communicator_size(variant.access.communicator, variant.workload.job)
        found = make_pass(self._subject, Measured(phase.summary, phase.rank_rows, together), block, position)
        if found is not None:
            one.passes.append(found)

    def report(self) -> int:
        """Judge the variants, write the results and print them; return the exit status."""
        world = self.setup.world
        node = fullest_node(world, self.setup.load)
        return world.broadcast_object(self._write_results(self._outcome(node)) if world.rank == 0 else 0)

    @property
    def _subject(self) -> Subject:
        return LOOP if isinstance(self.plan.variants[0].verb, Loop) else STALL

    def _write_rows(self) -> None:
        """Write the passes so far, which stay after Ctrl-C or a time limit.

        If they cannot be written, the end of the comparison says so.
        """
        if self.setup.world.rank == 0 and sum(not one.failed for one in self.running) > 1:
            with suppress(OSError):
                rows = [(one.variant.label, one.passes) for one in self.running]
                write_rows(self.directory.make(), rows, self._subject)

    def _outcome(self, node: NodeLoad) -> Outcome:
        """Return what all passes came to, on rank 0."""
        setup, plan, running = self.setup, self.plan, self.running
        first = plan.variants[0].workload
        summaries = [one.last for one in running if one.last is not None]
        return Outcome(
            subject=self._subject,
            name=first.name,
            title=first.title,
            pattern=first.pattern,
            overrides=tuple(parse_overrides(setup.parsed)),
            program=setup.program,
            arguments=setup.arguments,
            what=plan.what,
            without_saves=plan.without_saves,
            modelled="" if self.storage is None else self.storage.name,
            varied=plan.varied,
            ranks=setup.world.size,
            nodes=setup.world.nodes,
            environment=describe_environment(running[0].session, node, summaries, setup.parsed.output),
            started=setup.started.isoformat(timespec="seconds"),
            total_seconds=setup.seconds,
            repetitions=setup.parsed.repeat,
            seed=setup.parsed.seed,
            caches=self.caches,
            measured=tuple(_make_variant_result(one) for one in running if not one.failed),
            not_run=(*plan.not_run, *_list_failed_variants(running)),
            passes=tuple((one.variant.label, tuple(one.passes)) for one in running),
            prepared=tuple(phase.summary for phase in self.prepared),
        )

    def _write_results(self, outcome: Outcome) -> int:
        """Write the results, and print them, on rank 0; return the exit status."""
        if len(outcome.measured) < 2:
            reasons = "".join(f"\n  {one.label}: {one.reason}" for one in outcome.not_run)
            ran = "only one variant ran" if outcome.measured else "no variant ran"
            sys.stderr.write(printable(f"error: {ran}; nothing to compare{reasons}\n", lines=True))
            return ExecutionError.exit_code
        disk = find_disk(self.plan.variants[0].workload.datasets)
        answer = answer_comparison(outcome, self._accepts_override, disk)

        def report(place: Path | None) -> str:
            if self.setup.parsed.json:
                return comparison_json(outcome.name, answer, place)
            return comparison_report(outcome, answer) + results_line(place)

        _, done = write_and_print(self.directory, lambda place: write_comparison(place, outcome, answer), report)
        return 0 if done else ExecutionError.exit_code

    def _choose_caches(self, first: Variant, asked: str | None) -> str:
        """Return how caches are treated before each pass: `cold`, `warm`, or empty if nothing is read.

        Without --caches a restore is cold, since the page cache has all that was just saved; a loop is cold if the
        pattern has `drop caches` anywhere, or its epochs begin cold.
        """
        if isinstance(first.verb, Save) or self.storage is not None:
            if asked is not None:
                what = "a save" if self.storage is None else "a run on a described storage"
                raise UsageError(f"--caches {asked}: {what} reads nothing that caches could hold")
            return ""
        if asked is not None:
            return asked
        drops = any(isinstance(verb, DropCaches) for verb, _ in flatten_verbs(first.workload.verbs))
        cold = isinstance(first.verb, Restore) or (isinstance(first.verb, Loop) and first.verb.cold_within is not None)
        return "cold" if drops or cold else "warm"

    def _accepts_override(self, override: tuple[str, str]) -> bool:
        """Return whether the variants can run with one more override, so that advice works when it is typed."""
        path = locate_pattern(self.setup.parsed.pattern)
        try:
            return path is not None and bool(self._compile_variants(path, self.finder.find_known, [override]))
        except (DliosimError, OSError):  # the pattern may have changed since
            return False

    def _compile_variants(
        self, path: Path, finder: Finder, more: Sequence[tuple[str, str]] = ()
    ) -> tuple[tuple[ComparisonPlan, str], tuple[Diagnostic, ...]]:
        """Compile the variants on rank 0, as no other rank loads the language, and choose how caches are treated.

        `more` overrides are added.
        """
        from dliosim.compare.variants import compile_variants

        parsed, job = self.setup.parsed, Job(self.setup.world.size, self.setup.world.nodes)
        overrides, varied = [*self.values, *more], parse_varied(parsed.vary)
        plan, warnings = compile_variants(
            path, overrides, job, varied, parsed.loop, parsed.what, parsed.checkpoints, finder
        )
        plan = plan if self.storage is None else _leave_out_unmodelled(plan, self.storage)
        return (plan, self._choose_caches(plan.variants[0], parsed.caches)), warnings


def _leave_out_unmodelled(plan: ComparisonPlan, storage: StorageModel) -> ComparisonPlan:
    """Return the plan without variants that no description can time; PlanError if fewer than two are left."""
    from dliosim.execute.backends.modelled_reader import require_modelled  # most comparisons need none of it
    from dliosim.execute.checkpoints.modelled_state import require_modelled_states

    variants, refused = list[Variant](), list[tuple[str, str]]()
    for one in plan.variants:
        try:
            if isinstance(one.verb, Loop):
                require_modelled(one.verb, one.workload.dataset(one.verb.dataset), storage)
            require_modelled_states(one.workload, (one.verb,), storage)
            variants.append(one)
        except PlanError as error:
            refused.append((one.label, error.message))
    if len(variants) < 2:
        raise PlanError(f"nothing to compare: {': '.join(refused[0])}")
    gone = (ExcludedVariant(label, reason.partition(HELP)[0]) for label, reason in refused)
    return replace(plan, variants=tuple(variants), not_run=(*plan.not_run, *gone))


def _list_failed_variants(running: Sequence[VariantRun]) -> list[ExcludedVariant]:
    """Return the variants that failed; for the first one also the variant that replaces it as the reference."""
    gone = [ExcludedVariant(one.variant.label, one.failed) for one in running if one.failed]
    left = [one.variant.label for one in running if not one.failed]
    if running[0].failed and left:
        gone[0] = replace(gone[0], reason=f"{gone[0].reason} (so all others are compared with {left[0]})")
    return gone


def _make_variant_result(one: VariantRun) -> VariantResult:
    last, variant, loop = one.last, one.variant, one.variant.verb if isinstance(one.variant.verb, Loop) else None
    read = variant.workload.dataset(loop.dataset).members if loop is not None else ()
    direct = loop is not None and loop.access.through == "direct"
    asked, granted = (last.hints_asked, last.hints_granted) if last is not None else ((), ())
    return VariantResult(
        variant.label,
        variant.values,
        variant.workload.digest(),
        last.root if last is not None else None,
        variant.access.api,
        variant.added,
        asked,
        granted,
        variant.access.cache,
        loop.epochs if loop else 1,
        ", ".join(dict.fromkeys(each.format for each in read)) if direct else "",
        bool(direct and loop and not loop.decode and any(each.compress or each.source for each in read)),
        "; ".join(read_back_striping(one.session, each) for each in read if each.stripe is not None),
        # The time of reading an index differs between variants, and is in none of the passes.
        tuple(note for note in (last.notes if last is not None else ()) if not note.startswith("index:")),
        tuple(one.passes),
    )
