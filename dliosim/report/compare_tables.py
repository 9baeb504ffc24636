"""What a comparison prints: conditions, a row for each variant, the verdict, and what was not run."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace

from dliosim.compare.outcome import Measured, Outcome
from dliosim.compare.rows import Pass
from dliosim.compare.statistics import Comparison
from dliosim.compare.verdict import verdict
from dliosim.readable import ABSENT, count, number, seconds
from dliosim.report.grid import WIDTH, grid
from dliosim.report.header import aligned, environment_rows

_HEADINGS = [
    "variant",
    "samples\n/s",
    "GB/s",
    "times as\nfast",
    "from",
    "to",
    "p",
    "would\nshow",
    "verdict",
]


@dataclass(frozen=True, slots=True)
class _Column:
    """A figure of a variant, and how it is shown; an `optional` one is left out where it is nothing in all of them."""

    heading: str
    figure: Callable[[Measured], float | None]
    show: Callable[[float | None], str]
    optional: bool = False


def _tail(name: str) -> Callable[[Measured], float | None]:
    return lambda one: None if one.latency is None else float(getattr(one.latency, name))


def _share(part: Callable[[Pass], float]) -> Callable[[Measured], float | None]:
    return lambda one: one.share(part)


def _median(figure: Callable[[Pass], float | None]) -> Callable[[Measured], float | None]:
    return lambda one: one.median(figure)


def _time(value: float | None) -> str:
    return seconds(value, 3)


def _percent(share: float | None) -> str:
    return ABSENT if share is None else number(100 * share, 3)


def _plain(value: float | None) -> str:
    return number(value, 3)


_MORE = (
    _Column("batch\np50", _tail("p50"), _time),
    _Column("p99", _tail("p99"), _time),
    _Column("max", _tail("max"), _time),
    _Column("utili-\nzation %", _median(lambda each: each.utilization), _percent, optional=True),
    _Column("data\nwait %", _share(lambda each: each.data_wait), _percent),
    _Column("compute\n%", _share(lambda each: each.compute), _percent, optional=True),
    _Column("sync\nwait %", _share(lambda each: each.sync_wait), _percent),
    _Column("arrival\nwait %", _share(lambda each: each.arrival_wait), _percent, optional=True),
    _Column("check-\npoint %", _share(lambda each: each.checkpoint), _percent, optional=True),
    _Column("proces-\nsing %", _share(lambda each: each.processing), _percent, optional=True),
    _Column("decode", _median(lambda each: each.decode), _time, optional=True),
    _Column("pre-\nprocess", _median(lambda each: each.preprocess), _time, optional=True),
    _Column("tool\n%", _share(lambda each: each.tool), _percent),
    _Column("in\nflight", _median(lambda each: each.depth), _plain),
    _Column("read()\n/ asked", _median(lambda each: each.amplification), number),
    _Column("device\n/ asked", _median(lambda each: each.storage_amplification), _plain, optional=True),
    _Column("cached\n%", _median(lambda each: each.resident_share), _percent),
)


def compare_report(outcome: Outcome) -> str:
    """Everything that a comparison prints at its end, at most `grid.WIDTH` columns wide but for long labels."""
    labels = _names(outcome)
    named = zip(outcome.measured, labels, strict=True)
    short = replace(outcome, measured=tuple(replace(one, label=label) for one, label in named))
    sections = [
        _header(outcome),
        _legend(outcome, labels),
        _rates(outcome, labels),
        _times(outcome, labels),
        _sweep(outcome),
        "\n".join(textwrap.fill(sentence, WIDTH, subsequent_indent="    ") for sentence in verdict(short)),
        _not_run(outcome),
        f"whole comparison: {seconds(outcome.total_seconds)}",
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _header(outcome: Outcome) -> str:
    passes = count(outcome.repetitions, "pass", "passes")
    rows = [
        (
            "comparison",
            f"{outcome.name}: loop {outcome.loop}, {count(len(outcome.measured), 'variant')}, {passes} of each",
        ),
        *(("override", f"-D {name}={value}") for name, value in outcome.overrides),
        (
            "order",
            f"random in each of {count(outcome.repetitions, 'block')}, seed {outcome.seed}; a warm-up each before",
        ),
        ("caches", f"{outcome.caches} before each pass"),
        *environment_rows(outcome.environment, outcome.ranks, outcome.nodes),
    ]
    for phase in outcome.prepared:
        rows += [("note", f"{phase.name}: {note}") for note in phase.notes]
    return aligned(rows)


def _names(outcome: Outcome) -> list[str]:
    """Labels as they fit into a table: long ones as letters, which a legend explains."""
    labels = [one.label for one in outcome.measured]
    if max(map(len, labels)) <= 44:
        return labels
    return [f"({number + 1})" for number in range(len(labels))]


def _legend(outcome: Outcome, names: list[str]) -> str:
    lines = []
    # What holds for all of them is said once.
    common = [note for note in outcome.measured[0].notes if all(note in one.notes for one in outcome.measured)]
    for name, one in zip(names, outcome.measured, strict=True):
        added = f" (added: {one.added})" if one.added else ""
        label = "" if name == one.label else f" {one.label}"
        alone = "" if not _no_aggregation(one) else ": independent reads in a collective call, no aggregation"
        notes = "".join(f"; {note}" for note in one.notes if note not in common)
        if label or added or alone or notes:
            lines.append(f"{name}{label}{added}{alone}{notes}")
    lines += [textwrap.fill(f"all variants: {note}", WIDTH, subsequent_indent=" " * 4) for note in common]
    return "\n".join(lines)


def _no_aggregation(one: Measured) -> bool:
    return one.api == "mpi-collective" and dict(one.hints_asked).get("romio_cb_read") == "disable"


def _rates(outcome: Outcome, names: list[str]) -> str:
    rows = []
    for number_, (name, one) in enumerate(zip(names, outcome.measured, strict=True)):
        rate = one.median(lambda each: each.samples_per_second)
        moved = one.median(lambda each: each.bytes_per_second)
        rows.append(
            [
                name,
                number(rate),
                number(None if moved is None else moved * 1e-9),
                *_judged(outcome.comparison_of(number_)),
            ]
        )
    title = (
        f"{outcome.loop}: medians of {count(outcome.repetitions, 'pass', 'passes')}; times as fast as the first "
        "variant from the ratios within each block (not of the medians), 95 % intervals (wider where Holm's correction "
        "asks), p corrected"
    )
    return grid(title, _HEADINGS, rows)


def _judged(found: Comparison | None) -> list[str]:
    if found is None:
        return ["1", "", "", "", "", "reference"]
    p = ABSENT if found.p_adjusted is None else "< 0.0001" if found.p_adjusted < 1e-4 else number(found.p_adjusted, 2)
    return [number(found.ratio), number(found.low), number(found.high), p, number(found.smallest, 3), found.verdict]


def _times(outcome: Outcome, names: list[str]) -> str:
    columns = [one for one in _MORE if not one.optional or any(one.figure(each) for each in outcome.measured)]
    rows = [
        [name, *(column.show(column.figure(one)) for column in columns)]
        for name, one in zip(names, outcome.measured, strict=True)
    ]
    title = f"{outcome.loop}: batch latency, where the time of all ranks went, and what was read"
    return grid(title, ["variant", *(column.heading for column in columns)], rows, [1] * len(columns))


def _sweep(outcome: Outcome) -> str:
    """Two varied names as a table of rates, the first downwards and the second across."""
    if len(outcome.varied) != 2 or min(len(one.values) for one in outcome.varied) < 2:
        return ""
    down, across = outcome.varied
    found = {tuple(one.values): one for one in outcome.measured}
    rows = []
    for first in down.values:
        cells = [found.get(((down.name, first), (across.name, second))) for second in across.values]
        rates = [None if one is None else one.median(lambda each: each.samples_per_second) for one in cells]
        rows.append([first, *(number(rate) for rate in rates)])
    title = f"{outcome.loop}: samples/s by {down.name} (down) and {across.name} (across)"
    return grid(title, [down.name, *across.values], rows, [1] * len(across.values))


def _not_run(outcome: Outcome) -> str:
    reasons: dict[str, list[str]] = {}
    for one in outcome.not_run:
        reasons.setdefault(one.reason, []).append(one.label)
    lines = [f"not run: {reason}: {'; '.join(labels)}" for reason, labels in reasons.items()]
    return "\n".join(textwrap.fill(line, WIDTH, subsequent_indent="    ") for line in lines)
