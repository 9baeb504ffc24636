"""The file and the table of a calibration: each parameter of a storage with its interval."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dliosim.measure.calibration import Calibration
from dliosim.measure.results.run_summary import RunSummary, Spread
from dliosim.readable import count, seconds, size
from dliosim.report.text_table import SCREEN, Column, format_columns


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
    return f"{table}\n\n{_UNKNOWN}\n"


def storage_text(found: Calibration, run: RunSummary, name: str) -> str:
    """Return the text of a file that describes the storage of a calibration."""
    place = next(one for one in run.environment.file_systems if one.root == "data")
    what = f"{run.modelled}, which a file describes" if run.modelled else place.kind
    title = f"{what}, by dliosim calibrate, {count(run.ranks, 'rank')} on one node"
    settings = []
    for one in _list_parameters(found):
        low, high = one.show(one.spread.low), one.show(one.spread.high)
        settings.append(f"    {one.setting} {one.show(one.spread.mean)}    # {low} to {high}: {one.source}")
    lines = [f"# {line}" for line in _UNKNOWN.splitlines()]
    return "\n".join(["dlio 1", *lines, f'storage {name} "{title}" {{', *settings, "}", ""])


_UNKNOWN = """Not identifiable on one node: the rate of all servers, as this node may be slower.
For several nodes write the rate above as `client`, and `servers N of RATE` by hand."""


def _list_parameters(found: Calibration) -> Iterator[_Parameter]:
    def rate(value: float) -> str:
        return f"{size(value, 3)}/s"

    def time(value: float) -> str:
        return seconds(value, 3)

    yield _Parameter("servers  1 of", found.rate, rate, "many large reads at a time")
    yield _Parameter("stream  ", found.stream, rate, "large reads, one at a time")
    yield _Parameter("latency ", found.latency, time, "reads of 4 KiB, one at a time")
    if found.tail is not None:
        yield _Parameter("tail     pareto", found.tail, lambda value: f"{value:.2f}", "the same: mean / median")
    yield _Parameter("metadata", found.opens, lambda value: f"{value:_.0f} opens/s", "many opens at a time")
