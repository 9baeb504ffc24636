"""Parameters of a storage, fitted to the loops of profiles/calibrate.dlio on one node."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from dliosim.measure.answers.intervals import mean_interval
from dliosim.measure.answers.validity import doubt_of_core_waits
from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.results.run_summary import Reason, RunSummary, Spread
from dliosim.model.storage import HEAVIEST_TAIL, UNRELIABLE

#: Bytes are at least this much longer under way than nothing, s: the clock's own resolution.
_SHORTEST: Final = 1e-7

#: How many times as long a call must take next to many others as alone, for them to be at the storage's limit.
_SLOWED: Final = 1.5

#: The exponent from which on latencies have no tail; halvings of what is between it and the heaviest.
_NO_TAIL: Final = 10.0
_HALVINGS: Final = 40


#: Tails of a greater exponent hardly differ.
_LIGHT: Final = 4.0

#: Loops that rank 0 alone runs, one call at a time.
SINGLE: Final = ("latency", "stream", "single_opens")


@dataclass(frozen=True, slots=True)
class Calibration:
    """The parameters of a storage as one node sees it, each with its 95 % interval."""

    latency: Spread  #: seconds of a call; the least one with a tail
    tail: Spread | None  #: exponent of the latencies' Pareto tail; None without one
    stream: Spread  #: bytes per second of a rank that reads one call after the other, without the latency
    rate: Spread  #: bytes per second of all ranks with many readers, or of one alone if that is more
    opens: Spread  #: opens per second, likewise
    writes: Spread | None  #: bytes per second of saves of all ranks; None if none was made
    is_rate_reached: bool  #: large reads slow each other, so that `rate` is the storage's limit
    are_opens_reached: bool  #: likewise for opens
    waits: tuple[tuple[str, Reason], ...]  #: loops in which ranks or readers waited for cores, and for how long

    @property
    def unreliable(self) -> list[str]:
        """Return the names of the parameters whose intervals are wide."""
        named = {"servers": self.rate, "stream": self.stream, "latency": self.latency}
        named |= {"tail": self.tail} if self.tail is not None and self.tail.low < _LIGHT else {}
        named |= {"metadata": self.opens} if self.are_opens_reached else {}
        named |= {"writes": self.writes} if self.writes is not None else {}
        return [
            name for name, one in named.items() if max(one.high - one.mean, one.mean - one.low) > UNRELIABLE * one.mean
        ]


def calibrate(run: RunSummary) -> Calibration:
    """Return the parameters from the loops of a run of profiles/calibrate.dlio."""
    loops = {loop.name: loop.epochs for loop in run.loops}
    small, large, single = (loops[name] for name in SINGLE)
    tail = _fit_tails(small)
    least = 0.5 ** (1 / tail.mean) if tail is not None else 1.0  # of the median
    mean = statistics.fmean(map(_mean_latency, small))
    size = large[0].bytes / large[0].calls
    rates = [_spread(some, lambda epoch: epoch.bytes / epoch.loop_seconds) for some in (loops["rate"], large)]
    opens = [
        _spread(loops["opens"], lambda epoch: epoch.opens / epoch.loop_seconds),
        _spread(single, lambda epoch: 1 / max(_mean_open(epoch), _SHORTEST)),  # between its opens it reads
    ]
    saves = [
        one.verb.bytes / one.verb.seconds for one in run.saves if one.verb.seconds
    ]  # a described one saves nothing
    is_metadata_found = _is_limit(opens, [statistics.fmean(map(_mean_open, some)) for some in (loops["opens"], single)])
    used = [phase for phase in run.loops if is_metadata_found or phase.name not in ("opens", "single_opens")]
    doubts = ((phase.name, doubt_of_core_waits(run.environment, [phase], None)) for phase in used)
    return Calibration(
        _spread(small, lambda epoch: _median_latency(epoch) * least),
        tail,
        _spread(large, lambda epoch: size / max(_mean_latency(epoch) - mean, _SHORTEST)),
        max(rates, key=lambda one: one.mean),
        max(opens, key=lambda one: one.mean),
        mean_interval(saves, [0.0] * len(saves)) if saves else None,
        _is_limit(rates, [statistics.fmean(map(_mean_latency, some)) for some in (loops["rate"], large)]),
        is_metadata_found,
        tuple((name, doubt) for name, doubt in doubts if doubt is not None),
    )


def _is_limit(rates: Sequence[Spread], times: Sequence[float]) -> bool:
    """Return whether many calls at a time are at the storage's limit; rates and times of many, and of one at a time.

    If many are no faster than one, the client is the limit.
    """
    many, one = rates
    return many.mean > one.mean and times[0] > _SLOWED * times[1]


def _mean_open(epoch: EpochSummary) -> float:
    return epoch.open_seconds.mean * epoch.ranks / epoch.opens


def _fit_tails(epochs: Sequence[EpochSummary]) -> Spread | None:
    """Return the exponent of the latencies' tail over epochs; None if they hardly differ."""
    powers = _spread(epochs, lambda epoch: fit_tail(_mean_latency(epoch) / _median_latency(epoch)))
    if powers.mean >= _NO_TAIL:
        return None
    return Spread(powers.mean, max(powers.low, HEAVIEST_TAIL), min(powers.high, _NO_TAIL))


def fit_tail(ratio: float) -> float:
    """Return the exponent of a Pareto distribution whose mean is `ratio` times its median, at most `_NO_TAIL`.

    The mean decides how fast calls follow each other, so it is kept, and not a quantile of the tail.
    """
    low, high = HEAVIEST_TAIL, _NO_TAIL
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_lighter = middle / (middle - 1) * 0.5 ** (1 / middle) < ratio
        low, high = (low, middle) if is_lighter else (middle, high)
    return high


def _median_latency(epoch: EpochSummary) -> float:
    return epoch.call_latency.quantile(0.5) * 1e-9


def _mean_latency(epoch: EpochSummary) -> float:
    return epoch.call_latency.sum_ns / epoch.call_latency.count * 1e-9


def _spread(epochs: Sequence[EpochSummary], figure: Callable[[EpochSummary], float]) -> Spread:
    return mean_interval([figure(epoch) for epoch in epochs], [0.0] * len(epochs))
