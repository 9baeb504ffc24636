"""The result of a comparison: the passes of every variant, and each variant against the first."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dliosim.compare.experiment import ExcludedVariant, VariedSetting
from dliosim.compare.pass_figures import LOOP, STALL, Pass, Subject
from dliosim.compare.statistics import VariantComparison, compare_variants
from dliosim.measure.rank.histogram import Quantiles, merge_histograms
from dliosim.measure.results.machine import Environment
from dliosim.measure.results.phase import PhaseSummary
from dliosim.measure.results.run_summary import Advice, Reason


@dataclass(frozen=True, slots=True)
class VariantResult:
    """A variant with its passes."""

    label: str  #: text for tables
    values: tuple[tuple[str, str], ...]  #: (name, value) of each varied setting
    digest: str  #: digest of its workload
    root: str | None  #: root of what it reads or writes; None if not known
    api: str  #: api of its access
    added: str  #: why it is there though the user did not ask for it; empty for all others
    hints_asked: tuple[tuple[str, str], ...]  #: pairs of MPI_Info as given
    hints_granted: tuple[tuple[str, str], ...]  #: pairs of MPI_Info as the library has them
    cache: str  #: cache between calls and storage, as its access says
    epochs: int  #: epochs of a pass; 1 for a save or restore
    #: format whose samples a loop reads without the format's library; empty if the library reads, and for others
    raw_format: str
    #: true if a loop does not decompress samples that are compressed, or may be (files that existed)
    is_left_compressed: bool
    striping: str  #: striping that was granted to its data set; empty if none is asked for
    notes: tuple[str, ...]  #: notes of its loop, such as the queue of the kernel that it used
    passes: tuple[Pass, ...]  #: the warm-up, then one of every block

    @property
    def block_passes(self) -> tuple[Pass, ...]:
        """The passes without the warm-up, in the order of blocks."""
        return self.passes[1:]

    def values_of(self, figure: str) -> list[Any]:
        """Return a figure of every pass that counts; None if passes of this subject have none, else KeyError."""
        if figure not in LOOP.figures and figure not in STALL.figures:
            raise KeyError(figure)
        return [one.figures.get(figure) for one in self.block_passes]

    def median(self, figure: str) -> float | None:
        """Return the median of a figure over the passes that count; None if one of them has none."""
        values = self.values_of(figure)
        return statistics.median(values) if values and None not in values else None

    def mean(self, figure: str) -> float | None:
        """Return the geometric mean of a figure over the passes that count; None if one of them has none.

        Quotients of these are the ratios of a comparison, the means within blocks.
        """
        values = self.values_of(figure)
        if not values or None in values:
            return None
        return statistics.geometric_mean(values) if min(values) > 0 else 0.0

    @property
    def core_wait(self) -> float | None:
        """Share of the time in which a rank, or each of its readers, waited for a core; None if not counted."""
        own = self.median("core_wait_share")
        return own if own is None else max(own, self.median("reader_core_wait_share") or 0.0)

    def share(self, part: str) -> float:
        """Return the share of a part in the time of all ranks in a loop, over all passes that count."""
        whole = sum(sum(self.values_of(each)) for each in LOOP.shares.values())
        return sum(self.values_of(part)) / whole if whole > 0 else 0.0

    @property
    def latency(self) -> Quantiles | None:
        """Quantiles of the latencies of all passes that count."""
        return merge_histograms(one.latency for one in self.block_passes).quantiles()

    @property
    def two_phase(self) -> str | None:
        """State of two-phase in the passes that count: the same word for all, or `in some passes`."""
        states = set(self.values_of("two_phase"))
        return states.pop() if len(states) == 1 else "in some passes"


@dataclass(frozen=True, slots=True)
class ComparisonAnswer:
    """The answer of a comparison. A ratio above 1 is faster, or stalls less."""

    #: `use`; `use any` (all intervals end within 3 % of 1); or why nothing can be said: `not judged` (too few
    #: repetitions), `no difference shown`, `cannot say` (the difference may be waiting for a core), `not a
    #: storage result` (memory gave the bytes, all or in part)
    verdict: str
    #: why it is so
    reasons: tuple[Reason, ...]
    #: label of the variant to use, the first one if none is shown to be better; None if no difference is shown
    use: str | None
    #: label of the variant that `ratio` is against: the first one, or if that is to be used the best of the worse ones
    against: str | None
    #: how many times as fast as `against`, or how many times shorter its stalls are
    ratio: float | None
    #: lower end of its interval of 95 %
    ratio_low: float | None
    #: upper end of its interval
    ratio_high: float | None
    #: labels of the variants that are not shown to differ from `use`, the fastest first
    tied: tuple[str, ...]
    #: those of `tied` whose mean is better than that of `use`, maybe by chance
    ahead: tuple[str, ...]
    #: where the bytes came from: `device`, `memory`, `mixed`, `unknown` (not counted); of saves where they went to
    source: str
    #: what such a comparison cannot show
    limits: tuple[Reason, ...]
    #: what to do next
    advice: tuple[Advice, ...]

    def place(self, outcome: Outcome) -> int | None:
        """Return the number of the variant to use; None if no difference is shown."""
        return next((number for number, one in enumerate(outcome.measured) if one.label == self.use), None)


@dataclass(frozen=True)
class Outcome:
    """A comparison at rank 0."""

    subject: Subject  #: the figures that are compared
    name: str  #: name of the workload
    title: str  #: title of the workload
    pattern: str  #: text of the main file
    overrides: tuple[tuple[str, str], ...]  #: pairs of -D (name, phrase)
    program: str  #: what was typed for dliosim
    arguments: tuple[str, ...]  #: command line
    what: str  #: name of a loop, `save NAME` or `restore NAME`
    without_saves: bool  #: true for a loop whose checkpoints are left out
    modelled: str  #: name of the described storage on which calls waited; empty if there were files
    varied: tuple[VariedSetting, ...]  #: settings that differ
    ranks: int  #: ranks of the job
    nodes: int  #: nodes of the job
    environment: Environment  #: machine and libraries
    started: str  #: date and time, ISO 8601
    total_seconds: float  #: wall time of the whole comparison
    repetitions: int  #: passes of each variant that count
    seed: int  #: of the order of passes
    caches: str  #: caches before each pass: `cold` (dropped), `warm` (read through), or empty if nothing is read
    measured: tuple[VariantResult, ...]  #: variants that ran; the first is the reference
    not_run: tuple[ExcludedVariant, ...]  #: variants that did not run, or failed
    passes: tuple[tuple[str, tuple[Pass, ...]], ...]  #: (label, passes) of every variant, also of those that failed
    prepared: tuple[PhaseSummary, ...]  #: phases that prepared data sets

    @property
    def is_stall_comparison(self) -> bool:
        """True if stalls of the job are compared, False if rates of a loop are."""
        return self.subject is STALL

    @cached_property
    def comparisons(self) -> tuple[VariantComparison, ...]:
        """Each variant but the first against the first."""
        return tuple(compare_variants(self.times()))

    def times(self) -> NDArray[np.float64]:
        """Return the compared time of every pass that counts, float64 seconds (blocks, variants)."""
        return block_figures(self.measured, self.subject.time)


def block_figures(measured: Sequence[VariantResult], figure: Callable[[Pass], float]) -> NDArray[np.float64]:
    """Return a figure of every pass that counts, float64 (blocks, variants)."""
    figures = [[figure(one) for one in variant.block_passes] for variant in measured]
    return np.ascontiguousarray(np.array(figures, np.float64).T)
