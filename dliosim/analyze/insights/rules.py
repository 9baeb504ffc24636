"""Insights: possible improvements, each with its figure, its threshold, the threshold's source, and the remedy."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from dliosim.analyze.figures.job import Figures
from dliosim.analyze.insights import measures
from dliosim.analyze.insights.measures import Measure, Measuring
from dliosim.report.cells import percent_cell, time_cell
from dliosim.report.prose import read_sections

#: Share of the job's time below which an insight is worth a line only.
_LITTLE: Final = 0.01


@dataclass(frozen=True, slots=True)
class Insight:
    """One thing that may be wrong."""

    name: str  #: for `--explain`
    about: str  #: the fault in a few words
    figure: str  #: definition of the figure
    limit: float  #: value above which it is found
    source: str  #: where figure and threshold are from
    measure: Measuring  #: None if the trace cannot say
    cure: str  #: what to try
    own: str = ""  #: option for runs of dliosim; `{loop}`, `{checkpoint}` are names, `{readers}` their phrase
    least: int = 0  #: it is found only above this number of operations
    at_limit: bool = False  #: True if it is found at the limit, too
    unit: Callable[[float], str] = percent_cell  #: a value as text

    @property
    def threshold(self) -> str:
        """The threshold as text."""
        more = f" and > {self.least} operations" if self.least else ""
        limit = re.sub(r"\.0+(?= )", "", self.unit(self.limit))
        return f"{'>=' if self.at_limit else '>'} {limit}{more}"

    def is_met(self, found: Measure) -> bool:
        """Return True if a figure is beyond the threshold."""
        value = round(found.value, 9)  # a quotient that is the threshold may be a hair above it
        above = value >= self.limit if self.at_limit else value > self.limit
        return above and (not self.least or found.count > self.least)


@dataclass(frozen=True, slots=True)
class Finding:
    """An insight that was looked at."""

    insight: Insight  #: which
    found: Measure | None  #: its figure; None if the trace cannot say
    is_met: bool  #: True if it is beyond its threshold


def judge(figures: Figures) -> tuple[Finding, ...]:
    """Return all insights as they are in a trace: those that are met first, the most costly before the others."""
    measured = ((one, one.measure(figures)) for one in INSIGHTS)
    found = (Finding(one, figure, figure is not None and one.is_met(figure)) for one, figure in measured)
    return tuple(sorted(found, key=_costs_least))


def is_costly(one: Finding, figures: Figures) -> bool:
    """Return True if an insight concerns enough of the job's time to be worth a change."""
    cost = one.found.cost if one.found else 0.0
    return cost is None or cost > _LITTLE * figures.job.seconds


def _costs_least(one: Finding) -> tuple[bool, float]:
    """Return a key that is smallest for what is met and costs most, or puts all figures in doubt."""
    cost = one.found.cost if one.found else -1.0
    return not one.is_met, -math.inf if cost is None else -cost


#: A part of calls, those that tell, and what the part does.
_SMALL = ("small", "sized", "move less than 1 MiB")
_MISALIGNED = ("misaligned", "placed", "start at an offset that is not a multiple of 4 KiB")
_RANDOM = ("random", "placed", "begin before the end of the one before in their file")

_SECTIONS: Final = read_sections(Path(__file__).with_name("insights.txt"))


def _make_insight(name: str, limit: float, measure: Measuring, **more: Any) -> Insight:
    """Return an insight with its texts, which insights.txt has."""
    about, fields = _SECTIONS[name]
    texts = {key: " ".join(text.split()) for key, text in re.findall(r"(?m)^(\w+): (.*\n(?: .*\n)*)", fields)}
    own = texts.get("dliosim", "")
    return Insight(name, about, texts["figure"], limit, texts["from"], measure, texts["try"], own, **more)


def _pair_insights(
    name: str, limit: float, measure: Callable[[str, Figures], Measure | None], least: int = 0
) -> Iterator[Insight]:
    """Yield the insights on reads and on writes."""
    for side in ("read", "write"):
        yield _make_insight(name.format(side), limit, partial(measure, side), least=least)


_CALLS: Final = measures.share_of_calls
_COLLECTIVE: Final = ("collective", "shared_mpi_calls", " on shared files", "io")
_NONBLOCKING: Final = ("nonblocking", "mpi_calls", "", "unoverlapped_io")

#: All insights. Order is that of the page; a report has the most costly first.
INSIGHTS: Final = (
    _make_insight("incomplete", 0.0, measures.missing_events, unit=lambda value: f"{value:.0f}"),
    _make_insight("unoverlapped-io", 0.5, measures.io_alone),
    _make_insight("unoverlapped-writes", 0.1, measures.writes_alone),
    _make_insight("data-wait", 0.1, measures.data_wait),
    _make_insight("straggler", 0.15, measures.straggler_lag),
    _make_insight("mpi-io-wait", 0.5, measures.mpi_wait_share),
    _make_insight("uneven-bytes", 0.3, measures.bytes_spread),
    _make_insight("uneven-time", 0.3, measures.time_spread),
    *_pair_insights("small-{}s", 0.1, partial(_CALLS, *_SMALL), least=1000),
    *_pair_insights("slow-small-{}s", 0.5, measures.small_time_share),
    *_pair_insights("misaligned-{}s", 0.1, partial(_CALLS, *_MISALIGNED)),
    *_pair_insights("random-{}s", 0.2, partial(_CALLS, *_RANDOM), least=1000),
    _make_insight("read-again", 0.1, partial(measures.again_share, "read", "read")),
    _make_insight("written-again", 0.1, partial(measures.again_share, "write", "written")),
    _make_insight("metadata-seconds", 30.0, measures.metadata_seconds, unit=time_cell),
    _make_insight("metadata-share", 0.5, measures.metadata_share, at_limit=True),
    _make_insight("independent-mpi-io", 0.5, partial(measures.share_of_mpi_calls, *_COLLECTIVE), least=1000),
    _make_insight("blocking-mpi-io", 0.999, partial(measures.share_of_mpi_calls, *_NONBLOCKING), least=1000),
    _make_insight("stdio", 0.1, measures.stdio_share),
    _make_insight("operation-mix", 0.1, partial(measures.mix_share, "count", "the calls that move bytes")),
    _make_insight("size-mix", 0.1, partial(measures.mix_share, "bytes", "the bytes")),
)
