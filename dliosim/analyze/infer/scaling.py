"""One pattern of several traces of a job: what grows with its ranks, and what does not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final

from dliosim.analyze.infer.facts import Fact, Line, Setting
from dliosim.errors import TraceError
from dliosim.units import SIZES, TIMES, format_bytes, format_seconds

#: A number in a value, with its unit.
_NUMBER: Final = re.compile(rf"(\d[\d_]*(?:\.\d+)?)(?: ({'|'.join([*SIZES, *TIMES])})\b)?")
#: The units of one kind by each of them.
_UNIT_KINDS: Final = {**dict.fromkeys(SIZES, "B"), **dict.fromkeys(TIMES, "s")}
#: Numbers within this share of each other are the same.
_SAME: Final = 0.02


def merge_lines(patterns: Mapping[int, Sequence[Line]]) -> list[Line]:
    """Return the lines of one pattern for those of runs of a job, by their ranks: as those of the run on most ranks.

    A number that is proportional to the ranks, or to their inverse, is written so; one that is neither is a guess.
    Raises TraceError if the runs have different blocks.
    """
    most = max(patterns)
    known = [
        {key: line.fact for key, line in _find_keys(lines) if isinstance(line, Setting)} for lines in patterns.values()
    ]
    blocks = [key for key, line in _find_keys(patterns[most]) if isinstance(line, str)]
    for ranks, lines in patterns.items():
        if [key for key, line in _find_keys(lines) if isinstance(line, str)] != blocks:
            raise TraceError(
                f"the runs on {most} and {ranks} ranks have different data sets, checkpoints or loops: "
                "they did different things, so each needs a pattern of its own"
            )
    merged = []
    for key, line in _find_keys(patterns[most]):
        if isinstance(line, Setting):
            facts = [each.get(key, Fact("", "")) for each in known]
            line = replace(line, fact=_merge_facts(line.fact, facts, list(patterns)))
        merged.append(line)
    return merged


def _find_keys(lines: Sequence[Line]) -> Iterator[tuple[tuple[str, ...], Line]]:
    """Yield each line with the blocks around it and its head."""
    blocks: list[str] = []
    for line in lines:
        yield (*blocks, line.head if isinstance(line, Setting) else ""), line
        if isinstance(line, str) and line.endswith("{"):
            blocks.append(_name_block(line))
        elif isinstance(line, str) and line.strip() == "}":
            blocks.pop()


def _name_block(line: str) -> str:
    """Return the first line of a block without the number of a `repeat`, which is a value."""
    return re.sub(r"repeat \d+", "repeat", line)


def _merge_facts(known: Fact, facts: Sequence[Fact], ranks: Sequence[int]) -> Fact:
    """Return the fact for those of some runs; `known` is that of the run on most ranks."""
    values, are_sure = [fact.value for fact in facts], all(fact.is_sure for fact in facts)
    parts = [list(_NUMBER.finditer(value)) for value in values]
    columns = list(zip(*([_read_number(part) for part in each] for each in parts), strict=False))
    other = [place for place, column in enumerate(columns) if not _are_near(column)]
    is_one_form = len({_NUMBER.sub(lambda part: _UNIT_KINDS.get(part[2], "#"), value) for value in values}) == 1
    if is_one_form and not other:
        return replace(known, is_sure=are_sure)
    on = f"on {', '.join(map(str, ranks))} ranks"
    if is_one_form and len(other) == 1:
        part = list(_NUMBER.finditer(known.value))[other[0]]
        if scaled := _scale(columns[other[0]], ranks, part[2]):
            value = known.value[: part.start()] + scaled + known.value[part.end() :]
            return Fact(value, f"{', '.join(each[other[0]][0] for each in parts)} {on}", are_sure)
    return Fact(known.value, f"{'; '.join(value or 'unknown' for value in values)} {on}", is_sure=False)


def _read_number(part: re.Match[str]) -> float:
    """Return a number in B, in s or without a unit."""
    factor = SIZES.get(part[2]) or TIMES.get(part[2]) or 1
    return float(Fraction(part[1].replace("_", "")) * factor)


def _are_near(numbers: Sequence[float]) -> bool:
    return max(numbers) - min(numbers) <= _SAME * max(numbers)


def _scale(numbers: Sequence[float], ranks: Sequence[int], unit: str | None) -> str:
    """Return the expression for numbers that ranks multiply or divide; empty if they are others."""
    for power, form in (-1, "{} * $ranks"), (1, "max(floor({} / $ranks), 1)" if unit is None else "{} / $ranks"):
        each = [number * rank**power for number, rank in zip(numbers, ranks, strict=True)]
        mean = sum(each) / len(each)
        if _are_near(each):
            near = round(mean) if abs(mean - round(mean)) <= _SAME * mean else mean
            is_size, is_time = unit in SIZES, unit in TIMES
            number = format_bytes(round(mean)) if is_size else format_seconds(float(f"{mean:.3g}")) if is_time else ""
            return form.format(number or f"{near:.10g}")
    return ""
