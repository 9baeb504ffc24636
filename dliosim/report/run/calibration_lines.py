"""The file and the table of a calibration: each parameter of a storage with its interval."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from dliosim.measure.calibration import Calibration
from dliosim.measure.results.machine import MEMORY_KINDS
from dliosim.measure.results.run_summary import RunSummary, Spread
from dliosim.readable import count
from dliosim.report.answer_sentences import sentence
from dliosim.report.cells import rate_cell, time_cell
from dliosim.report.text_table import SCREEN, Column, format_columns

#: Parameters that each loop measures.
_MEASURED_BY: Final = {
    "latency": ("latency", "tail"),
    "stream": ("stream",),
    "single_opens": ("metadata",),
    "rate": ("servers",),
    "opens": ("metadata",),
}


#: A parameter that may be this far from its value, as a share of it, is not uncertain; none is more uncertain.
_NARROWEST: Final = 0.001
_WIDEST: Final = 0.95


@dataclass(frozen=True, slots=True)
class _Parameter:
    setting: str  #: setting of a storage, up to its value
    spread: Spread  #: value
    show: Callable[[float], str]  #: returns a value as the language has it
    source: str  #: what was measured


def calibration_table(found: Calibration) -> str:
    """Return a row for each parameter with its 95 % interval, and what one node cannot tell."""
    columns: list[Column[_Parameter]] = [
        Column("value", lambda one: one.show(one.spread.mean), str),
        Column("at least", lambda one: one.show(one.spread.low), str),
        Column("at most", lambda one: one.show(one.spread.high), str),
    ]
    rows = [(one.setting, one) for one in _list_parameters(found)]
    table = format_columns(
        "storage on one node, with 95 % intervals", "setting", rows, [[one] for one in columns], SCREEN
    )
    return "\n".join([table, "", *list_unknowns(found), ""])


def storage_text(found: Calibration, run: RunSummary, name: str) -> str:
    """Return the text of a file that describes the storage of a calibration."""
    place = next(one for one in run.environment.file_systems if one.root == "data")
    what = f"{run.modelled}, which a file describes" if run.modelled else place.kind
    title = f"{what}, by dliosim calibrate, {count(run.ranks, 'rank')} on one node"
    settings = []
    for one in _list_parameters(found):
        low, high = one.show(one.spread.low), one.show(one.spread.high)
        settings.append(f"    {one.setting} {one.show(one.spread.mean)}    # {low} to {high}: {one.source}")
    lines = [f"# {line}" for line in (*list_doubts(found, run), *list_unknowns(found))]
    settings.append("    measured 4 KiB to 1 MiB")
    shares = {one.setting.split()[0]: _half_width(one.spread) for one in _list_parameters(found)}
    uncertain = ", ".join(f"{name} {100 * share:.2g} %" for name, share in shares.items() if share)
    settings += [f"    uncertain {uncertain}"] if uncertain else []
    return "\n".join(["dlio 1", *lines, f'storage {name} "{title}" {{', *settings, "}", ""])


def _half_width(one: Spread) -> float:
    """Return how far a parameter may be from its value, as a share of it: above 0.1 %, below 100 %, else 0."""
    share = max(one.high - one.mean, one.mean - one.low) / one.mean if one.mean > 0 else 0.0
    return min(share, _WIDEST) if share >= _NARROWEST else 0.0


def list_doubts(found: Calibration, run: RunSummary) -> list[str]:
    """Return lines on why the parameters should not be relied on; none if there is no doubt."""
    place = next(one for one in run.environment.file_systems if one.root == "data")
    doubts = (
        [f"MEMORY: {place.kind} is memory, not storage."] if place.kind in MEMORY_KINDS and not run.modelled else []
    )
    if found.waits:
        name, wait = found.waits[0]
        doubts.append(f"UNRELIABLE: {sentence(wait)} while `{', '.join(_MEASURED_BY[name])}` was measured.")
    if found.unreliable:
        doubts.append(f"UNRELIABLE: the interval of {', '.join(found.unreliable)} is wider than 30 % to either side.")
    return [
        *doubts,
        *(["Repeat this on a quiet machine, with a core for each rank."] if found.waits or found.unreliable else []),
    ]


def list_unknowns(found: Calibration) -> list[str]:
    """Return sentences about what the ranks of one node could not tell."""
    unknown = ["One node cannot measure the rate of all servers: for several nodes write the rate above as"]
    unknown += ["`client`, and `servers N of RATE` by hand."]
    if not found.is_rate_reached:
        unknown += ["`servers` is at least this: reads did not slow each other. Measure with more ranks."]
    if not found.are_opens_reached:
        unknown += [
            f"`metadata` is left out, as its limit is higher: {found.opens.mean:_.0f} opens/s did not slow each other."
        ]
        unknown += ["Measure with more ranks, on more cores."]
    return unknown


def _list_parameters(found: Calibration) -> Iterator[_Parameter]:
    yield _Parameter("servers  1 of", found.rate, rate_cell, "many large reads at a time")
    if found.writes is not None:
        yield _Parameter("writes  ", found.writes, rate_cell, "saves of 64 MiB per rank, with fsync")
    yield _Parameter("stream  ", found.stream, rate_cell, "large reads, one at a time")
    yield _Parameter("latency ", found.latency, time_cell, "reads of 4 KiB, one at a time")
    if found.tail is not None:
        yield _Parameter("tail     pareto", found.tail, lambda value: f"{value:.2f}", "the same: mean / median")
    if found.are_opens_reached:
        yield _Parameter("metadata", found.opens, lambda value: f"{value:_.0f} opens/s", "many opens at a time")
