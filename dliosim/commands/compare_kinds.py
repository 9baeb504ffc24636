"""The two kinds of comparison, of loops and of stalls: how a pass is run, and what becomes of its figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic

from dliosim.commands.compare_schedule import Place, RunPass
from dliosim.compare.checkpoint_pass import StallPass, stall_of
from dliosim.compare.experiment import Variant
from dliosim.compare.loop_pass import Pass, pass_of
from dliosim.compare.result import Outcome, P
from dliosim.execute.context import Session
from dliosim.execute.run.benchmark_pass import restore_pass, run_pass, save_pass, save_to_restore
from dliosim.measure.phase import PhaseSummary
from dliosim.model import Loop, Save, ranks_together
from dliosim.report.compare.checkpoint_results import STALL_FIGURES, stalls_of
from dliosim.report.compare.checkpoint_tables import stall_report
from dliosim.report.compare.loop_tables import compare_report
from dliosim.report.compare.results import ROW_FIGURES, compare_of


@dataclass(frozen=True, slots=True)
class Kind(Generic[P]):
    """A pass, the columns of its row, what compare.json holds, and what is printed."""

    run_pass: RunPass[P]
    figures: Mapping[str, Callable[[P], Any]]
    content: Callable[[Outcome[P]], dict[str, Any]]
    report: Callable[[Outcome[P]], str]


def of_loops(cold: bool) -> Kind[Pass]:
    """Loops, each pass from caches that are cold or warm."""

    def one_pass(session: Session, variant: Variant, place: Place) -> tuple[PhaseSummary, Pass | None]:
        assert isinstance(variant.verb, Loop)
        phase = run_pass(session, variant.verb, cold)
        if not phase.summary.epochs:
            return phase.summary, None
        together = ranks_together(variant.access.communicator, variant.workload.job)
        found = pass_of(phase.summary, phase.rank_rows, together, place.block, place.position, place.variant)
        return phase.summary, found

    return Kind(one_pass, ROW_FIGURES, compare_of, compare_report)


def of_stalls(cold: bool) -> Kind[StallPass]:
    """Saves, or restores from caches that are cold or warm."""

    def one_pass(session: Session, variant: Variant, place: Place) -> tuple[PhaseSummary, StallPass | None]:
        assert not isinstance(variant.verb, Loop)
        completing: dict[str, float] = {}
        if isinstance(variant.verb, Save):
            phase, completing = save_pass(session, variant.verb)
        else:
            if place.block == 0:
                save_to_restore(session, variant.verb)
            phase = restore_pass(session, variant.verb, cold)
        return phase.summary, stall_of(phase.summary, completing, place.block, place.position, place.variant)

    return Kind(one_pass, STALL_FIGURES, stalls_of, stall_report)
