"""What a comparison has found: the passes of every variant, and how each stands against the first."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dliosim.compare.experiment import ExcludedVariant, VariedSetting
from dliosim.compare.loop_pass import LoopPass
from dliosim.compare.statistics import VariantComparison, compare_variants
from dliosim.measure.histogram import Quantiles, merge_histograms
from dliosim.measure.machine import Environment
from dliosim.measure.phase import PhaseSummary


class VariantPass(Protocol):
    """One pass of a variant, whatever was run."""

    @property
    def block(self) -> int:
        """Its number, 0 that of the warm-ups."""
        ...

    @property
    def position(self) -> int:
        """Its number among the passes of all variants, as they ran."""
        ...

    @property
    def comparison_time(self) -> float:
        """The figure that is compared: a time in seconds, above 0."""
        ...

    @property
    def resident_share(self) -> float | None:
        """How much of what it read was in the page cache when it began; None if unknown, or if nothing was read."""
        ...

    @property
    def core_wait_share(self) -> float | None:
        """What of its time a rank waited for a core; None where nobody counts that."""
        ...


P = TypeVar("P", bound=VariantPass)


@dataclass(frozen=True, slots=True)
class VariantResult(Generic[P]):
    """A variant with its passes: the warm-up first, then one of every block. `digest` is that of its workload, and
    `root` the place of what it reads or writes, None if unknown.

    `striping` is what was granted of the striping that its data set asks for, empty where it asks for none; `notes` is
    what its loop had to say, such as by which queue of the kernel it read.
    """

    label: str
    values: tuple[tuple[str, str], ...]
    digest: str
    root: str | None
    api: str
    added: str
    hints_asked: tuple[tuple[str, str], ...]
    hints_granted: tuple[tuple[str, str], ...]
    striping: str
    notes: tuple[str, ...]
    passes: tuple[P, ...]

    @property
    def block_passes(self) -> tuple[P, ...]:
        """The passes without the warm-up, in the order of blocks."""
        return self.passes[1:]

    def median(self, figure: Callable[[P], float | None]) -> float | None:
        """The median of a figure over the passes that count; None where one of them has none."""
        values = [value for one in self.block_passes if (value := figure(one)) is not None]
        return statistics.median(values) if values and len(values) == len(self.block_passes) else None

    # What follows is of loops alone.

    def share(self: VariantResult[LoopPass], part: Callable[[LoopPass], float]) -> float:
        """How much of the time of all ranks a part took, over all passes that count."""
        whole = sum(
            one.data_wait + one.compute + one.sync_wait + one.arrival_wait + one.checkpoint + one.processing + one.tool
            for one in self.block_passes
        )
        return sum(part(one) for one in self.block_passes) / whole if whole > 0 else 0.0

    @property
    def latency(self: VariantResult[LoopPass]) -> Quantiles | None:
        """What the steps of all passes that count waited for a batch."""
        return merge_histograms(one.latency for one in self.block_passes).quantiles()

    @property
    def two_phase(self: VariantResult[LoopPass]) -> str:
        """Whether two-phase engaged in the passes that count: one word for all, or `in some passes`."""
        said = {one.two_phase for one in self.block_passes}
        return said.pop() if len(said) == 1 else "in some passes"


@dataclass(frozen=True)
class Outcome(Generic[P]):
    """A comparison at rank 0. `measured` are the variants that ran, the first of which the others are held against.

    `what` is the name of a loop, `save NAME` or `restore NAME`. `caches` is how caches were treated before each pass:
    `cold` (dropped), `warm` (read through), or empty where nothing is read. `passes` has the label of every variant
    with its passes, also of those that failed in the middle.
    """

    name: str
    title: str
    pattern: str
    overrides: tuple[tuple[str, str], ...]
    arguments: tuple[str, ...]
    what: str
    varied: tuple[VariedSetting, ...]
    ranks: int
    nodes: int
    environment: Environment
    started: str
    total_seconds: float
    repetitions: int
    seed: int
    caches: str
    measured: tuple[VariantResult[P], ...]
    not_run: tuple[ExcludedVariant, ...]
    passes: tuple[tuple[str, tuple[P, ...]], ...]
    prepared: tuple[PhaseSummary, ...]

    @cached_property
    def comparisons(self) -> tuple[VariantComparison, ...]:
        """Each variant but the first against the first."""
        return tuple(compare_variants(self.times()))

    def times(self) -> NDArray[np.float64]:
        """What is compared of every pass that counts, (blocks, variants)."""
        return block_figures(self.measured, lambda one: one.comparison_time)

    def comparison_of(self, variant: int) -> VariantComparison | None:
        """How a variant stands against the first; None for the first itself."""
        return self.comparisons[variant - 1] if variant else None


def block_figures(measured: Sequence[VariantResult[P]], figure: Callable[[P], float]) -> NDArray[np.float64]:
    """A figure of every pass that counts, (blocks, variants)."""
    figures = [[figure(one) for one in variant.block_passes] for variant in measured]
    return np.ascontiguousarray(np.array(figures, np.float64).T)
