"""The passes of a comparison, block after block, and the functions that loops, saves and restores need for theirs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any, Generic, TypeAlias

from dliosim.compare.checkpoint_pass import StallPass, make_stall_pass
from dliosim.compare.experiment import Variant, draw_pass_order
from dliosim.compare.loop_pass import LoopPass, make_loop_pass
from dliosim.compare.result import Outcome, P
from dliosim.errors import DliosimError
from dliosim.execute.context import Session
from dliosim.execute.run.benchmark_pass import run_loop_pass, run_restore_pass, run_save_pass, save_for_restore
from dliosim.measure.phase import PhaseSummary
from dliosim.model import Loop, Save, communicator_size
from dliosim.readable import count, seconds
from dliosim.report.compare.checkpoint_results import STALL_FIGURES, stall_content
from dliosim.report.compare.checkpoint_tables import stall_report
from dliosim.report.compare.loop_tables import compare_report
from dliosim.report.compare.results import ROW_FIGURES, loop_content
from dliosim.report.progress import ProgressLine


@dataclass(slots=True)
class VariantRun(Generic[P]):
    """A variant while the comparison runs."""

    variant: Variant  #: what is run
    session: Session  #: session of its workload
    passes: list[P] = field(default_factory=list)  #: passes until now, on the rank that has them
    last: PhaseSummary | None = None  #: summary of the last pass; None before the first
    failed: str = ""  #: why the variant failed; empty while it runs


@dataclass(frozen=True, slots=True)
class PassIndex:
    """The position of a pass."""

    block: int  #: block; 0: the warm-ups
    position: int  #: number among all passes
    variant: int  #: index of the variant


RunPass: TypeAlias = Callable[[Session, Variant, PassIndex], tuple[PhaseSummary, "P | None"]]
"""Function that runs one pass of a variant; gives its phase, and its figures where this rank has them. Collective."""


def run_blocks(
    running: Sequence[VariantRun[P]],
    repetitions: int,
    seed: int,
    run_pass: RunPass[P],
    progress: ProgressLine,
    after_block: Callable[[], None],
) -> None:
    """Run the warm-ups, then every block, with each variant once; a variant that fails is not run again. Collective.

    `after_block` is called on every rank after each block, the warm-ups included. Rank 0 prints on standard error how
    many passes there will be and, after the warm-ups, how long they will take, as a log has no progress line.
    """
    blocks = draw_pass_order(len(running), repetitions + 1, seed)
    total, position, begun = len(running) * len(blocks), 0, perf_counter_ns()
    first = running[0].session.world.rank == 0
    if first:
        each = f"{count(repetitions, 'pass', 'passes')} of each that count"
        sys.stderr.write(f"comparing {count(len(running), 'variant')}: a warm-up and {each}\n")
    for block, order in enumerate(blocks):
        for number in order:
            one = running[number]
            left = ""
            if position:
                spent = (perf_counter_ns() - begun) * 1e-9
                left = f", {seconds(spent / position * (total - position), 2)} left"
            progress.stage(f"pass {position + 1} of {total}{left}: {one.variant.label}")
            if not one.failed:
                _run_variant_pass(one, PassIndex(block, position, number), run_pass)
            position += 1
        after_block()
        if first and block == 0:
            took = (perf_counter_ns() - begun) * 1e-9
            left = seconds(took * repetitions, 2)
            sys.stderr.write(f"the warm-ups took {seconds(took, 2)}: about {left} to go\n")
    progress.stage("")


def _run_variant_pass(one: VariantRun[P], place: PassIndex, run_pass: RunPass[P]) -> None:
    try:
        phase, found = run_pass(one.session, one.variant, place)
    except DliosimError as error:
        # An error that all ranks share leaves no rank waiting: the other variants can still run.
        if not error.shared and one.session.world.size > 1:
            raise
        one.failed = f"failed in {'its warm-up' if place.block == 0 else f'block {place.block}'}: {error.message}"
        return
    one.last = phase
    if found is not None:
        one.passes.append(found)


@dataclass(frozen=True, slots=True)
class ComparisonKind(Generic[P]):
    """The functions for comparing verbs of one kind."""

    run_pass: RunPass[P]  #: runs one pass
    figures: Mapping[str, Callable[[P], Any]]  #: {column: figure} of a pass in rows.csv
    content: Callable[[Outcome[P]], dict[str, Any]]  #: content of compare.json
    report: Callable[[Outcome[P]], str]  #: text that is printed


def loop_comparison(cold: bool) -> ComparisonKind[LoopPass]:
    """Return the functions for loops, with cold or warm caches before each pass."""

    def run_variant(session: Session, variant: Variant, place: PassIndex) -> tuple[PhaseSummary, LoopPass | None]:
        assert isinstance(variant.verb, Loop)
        phase = run_loop_pass(session, variant.verb, cold)
        if not phase.summary.epochs:
            return phase.summary, None
        together = communicator_size(variant.access.communicator, variant.workload.job)
        found = make_loop_pass(phase.summary, phase.rank_rows, together, place.block, place.position, place.variant)
        return phase.summary, found

    return ComparisonKind(run_variant, ROW_FIGURES, loop_content, compare_report)


def stall_comparison(cold: bool) -> ComparisonKind[StallPass]:
    """Return the functions for saves, or for restores with cold or warm caches before each pass."""

    def run_variant(session: Session, variant: Variant, place: PassIndex) -> tuple[PhaseSummary, StallPass | None]:
        assert not isinstance(variant.verb, Loop)
        completing: dict[str, float] = {}
        if isinstance(variant.verb, Save):
            phase, completing = run_save_pass(session, variant.verb)
        else:
            if place.block == 0:
                save_for_restore(session, variant.verb)
            phase = run_restore_pass(session, variant.verb, cold)
        return phase.summary, make_stall_pass(phase.summary, completing, place.block, place.position, place.variant)

    return ComparisonKind(run_variant, STALL_FIGURES, stall_content, stall_report)
