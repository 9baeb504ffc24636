"""The interval between checkpoints at which failures cost least, and that cost.

All times are seconds. `interval` is the work between the end of one save and the beginning of the next, `stall` the
time that a save holds the ranks, `mtbf` the mean time between failures of the whole job. Failures are a Poisson
process.

- J. W. Young, "A first order approximation to the optimum checkpoint interval", Communications of the ACM 17(9), 1974,
  pp. 530-531.
- J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future Generation
  Computer Systems 22(3), 2006, pp. 303-312.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

#: Share of the time that saves and failures may cost, unless `--loss` says otherwise.
LOSS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Costs:
    """The time that a save and a failure cost; seconds."""

    mtbf: float  #: mean time between failures of the job
    stall: float  #: time that a save holds the ranks
    restart: float  #: from a failure until work continues
    #: from the end of the stall until the save is complete; 0 for a save that blocks. A failure in this time loses the
    #: work since the save began; there is one flush at a time
    flush: float = 0.0


@dataclass(frozen=True, slots=True)
class Waste:
    """Shares of the wall time that make no progress."""

    saving: float  #: in complete saves
    rework: float  #: in work done again
    restart: float  #: in restarting

    @property
    def total(self) -> float:
        """Sum of all shares."""
        return self.saving + self.rework + self.restart


def young_interval(stall: float, mtbf: float) -> float:
    """Return Young's interval, sqrt(2 stall mtbf): good while the stall is small against the MTBF."""
    return math.sqrt(2 * stall * mtbf)


def daly_interval(stall: float, mtbf: float) -> float:
    """Return Daly's higher-order estimate of the interval at which `compute_waste` is least.

    sqrt(2 stall mtbf) (1 + sqrt(x) / 3 + x / 9) - stall with x = stall / (2 mtbf), and the MTBF itself from x = 1 on.
    """
    share = stall / (2 * mtbf)
    if share >= 1:
        return mtbf
    return young_interval(stall, mtbf) * (1 + math.sqrt(share) / 3 + share / 9) - stall


def best_interval(costs: Costs) -> float:
    """Return the best interval: Daly's, but not shorter than a flush, since the next save would wait for it."""
    return possible_interval(daly_interval(costs.stall, costs.mtbf), costs)


def possible_interval(interval: float, costs: Costs) -> float:
    """Return the actual interval of saves planned at `interval`: no shorter than a flush, for which a save waits."""
    return max(interval, costs.flush)


def compute_waste(interval: float, costs: Costs) -> Waste:
    """Return the shares of the wall time that failures and saves cost, by Daly's complete model.

    An interval of work takes M e^((R + F) / M) (e^((interval + stall) / M) - 1) of wall time on average, M the MTBF and
    R the restart. Daly has no F: a failure loses the work since the newest *complete* save began. So the work during
    the flush F is done again each time, as if the restart took F longer. Failures come every M of wall time. Each one
    is in its restart for M (1 - e^(-R / M)) on average, as another failure may come during the restart.
    """
    going_on = math.exp(-(costs.restart + costs.flush) / costs.mtbf)
    segment = (interval + costs.stall) / costs.mtbf
    # segment / (e^segment - 1), which does not overflow.
    kept = segment * math.exp(-segment) / -math.expm1(-segment) if segment > 0 else 1.0
    useful_and_saving = going_on * kept
    saving = useful_and_saving * (costs.stall / (interval + costs.stall)) if costs.stall else 0.0
    restart = -math.expm1(-costs.restart / costs.mtbf)
    return Waste(saving, max(0.0, 1.0 - useful_and_saving - restart), restart)
