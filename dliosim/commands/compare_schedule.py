"""The passes of a comparison, block after block."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns

from dliosim.compare.experiment import Variant, draw_pass_order
from dliosim.compare.pass_figures import Measured, Pass, Subject, make_pass
from dliosim.errors import DliosimError
from dliosim.execute.phases.context import Session
from dliosim.execute.run.benchmark_pass import run_pass
from dliosim.measure.results.phase import PhaseSummary
from dliosim.model import communicator_size
from dliosim.readable import count, seconds
from dliosim.report.progress.progress_line import ProgressLine


@dataclass(slots=True)
class VariantRun:
    """A variant while the comparison runs."""

    variant: Variant  #: what is run
    session: Session  #: session of its workload
    passes: list[Pass] = field(default_factory=list)  #: passes until now, on the rank that has them
    last: PhaseSummary | None = None  #: summary of the last pass; None before the first
    failed: str = ""  #: why the variant failed; empty while it runs


def run_blocks(
    running: Sequence[VariantRun],
    repetitions: int,
    seed: int,
    subject: Subject,
    cold: bool,
    progress: ProgressLine,
    after_block: Callable[[], None],
) -> None:
    """Run the warm-ups, then every block, with each variant once; a variant that fails is not run again. Collective.

    Caches are dropped before each pass if `cold`, else read through. `after_block` is called on every rank after each
    block, the warm-ups included. Rank 0 prints on standard error how many passes there will be and, after the warm-ups,
    how long they will take, as a log has no progress line.
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
                _run_variant_pass(one, subject, cold, block, position)
            position += 1
        after_block()
        if first and block == 0:
            took = (perf_counter_ns() - begun) * 1e-9
            left = seconds(took * repetitions, 2)
            sys.stderr.write(f"the warm-ups took {seconds(took, 2)}: about {left} to go\n")
    progress.stage("")


def _run_variant_pass(one: VariantRun, subject: Subject, cold: bool, block: int, position: int) -> None:
    variant, session = one.variant, one.session
    try:
        phase = run_pass(session, variant.verb, cold, first=block == 0)
    except DliosimError as error:
        # An error that all ranks share leaves no rank waiting: the other variants can still run.
        if not error.shared and session.world.size > 1:
            raise
        one.failed = f"failed in {'its warm-up' if block == 0 else f'block {block}'}: {error.message}"
        return
    one.last = phase.summary
    together = communicator_size(variant.access.communicator, variant.workload.job)
    found = make_pass(subject, Measured(phase.summary, phase.rank_rows, together), block, position)
    if found is not None:
        one.passes.append(found)
