"""Growth of a pattern: with the ranks, by several traces of a job, or by a parameter, for one trace."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final

from dliosim.analyze.infer.facts import Block, Fact, Line, Setting, list_settings
from dliosim.errors import TraceError
from dliosim.units import SIZES, TIMES, format_bytes, format_seconds

#: A number in a value, with its unit.
_NUMBER: Final = re.compile(rf"(\d[\d_]*(?:\.\d+)?)(?: ({'|'.join([*SIZES, *TIMES])})\b)?")
#: The units of one kind by each of them.
_UNIT_KINDS: Final = {**dict.fromkeys(SIZES, "B"), **dict.fromkeys(TIMES, "s")}
#: A distribution of sizes.
_FITTED: Final = re.compile(r"[a-z]+\(")
#: Numbers within this share of each other are the same.
_SAME: Final = 0.02


def merge_lines(patterns: Mapping[int, Sequence[Line]]) -> list[Line]:
    """Return the lines of one pattern for those of runs of a job, by their ranks: as those of the run on most ranks.

    A number that is proportional to the ranks, or to their inverse, is written so; one that is neither, and what is not
    in all runs, is a guess. Raises TraceError if the runs have different blocks.
    """
    patterns = dict(sorted(patterns.items()))
    merged = list(_merge_blocks(list(patterns.values()), list(patterns)))
    heads = ([line.head for line in lines if isinstance(line, Block)] for lines in patterns.values())
    times = [re.findall(r"(?m)^repeat (\d+)$", "\n".join(each)) for each in heads]
    if any(each != times[-1] for each in times):
        shown = "; ".join(map(", ".join, times))
        merged.append(
            f"# ? `repeat` is that of {max(patterns)} ranks: {shown} on {', '.join(map(str, patterns))} ranks"
        )
    return merged


def _merge_blocks(runs: Sequence[Sequence[Line]], ranks: Sequence[int]) -> Iterator[Line]:
    """Yield the lines of a block, or of all, as those of the last run; at its end what it has in other runs alone."""
    blocks = [[line for line in lines if isinstance(line, Block)] for lines in runs]
    # The number of a `repeat` is a value.
    heads = [[re.sub(r"repeat \d+", "repeat", block.head) for block in each] for each in blocks]
    if other := next((many for many, each in zip(ranks, heads, strict=True) if each != heads[-1]), None):
        raise TraceError(
            f"the runs on {max(ranks)} and {other} ranks have different data sets, checkpoints or loops: "
            "they did different things, so each needs a pattern of its own"
        )
    facts, same_blocks = [dict(_number_settings(lines)) for lines in runs], zip(*blocks, strict=True)

    def merge(key: tuple[str, int]) -> Setting:
        values = [one.get(key, Fact("", "")) for one in facts]
        return Setting(key[0], _merge_facts(values[-1], values, ranks))

    own = iter(facts[-1])
    for line in runs[-1]:
        if isinstance(line, Block):
            yield Block(line.head, [*_merge_blocks([block.lines for block in next(same_blocks)], ranks)])
        else:
            yield line if isinstance(line, str) else merge(next(own))
    others = dict.fromkeys(key for each in facts for key in each if key not in facts[-1] and each[key].value)
    yield from map(merge, others)


def _number_settings(lines: Sequence[Line]) -> Iterator[tuple[tuple[str, int], Fact]]:
    """Yield the head of each setting and how many of that head are before it in its block, and its fact."""
    times = Counter[str]()
    for line in lines:
        if isinstance(line, Setting):
            yield (line.head, times[line.head]), line.fact
            times[line.head] += 1


def add_scale(lines: Sequence[Line]) -> Iterator[Line]:
    """Yield the lines of a pattern of one run, with a parameter that multiplies the samples and files of its data."""
    has_data = any(one.head == "samples" for one in list_settings(lines))
    for line in map(_scale_data, lines):
        yield line
        if has_data and isinstance(line, str) and line.startswith("workload"):
            yield from ("", 'param scale = 1 "multiplies samples and files; one run does not show what grows: a guess"')


def _scale_data(line: Line) -> Line:
    if isinstance(line, Block):
        return replace(line, lines=[*map(_scale_data, line.lines)])
    if isinstance(line, str) or line.head not in ("samples", "layout"):
        return line
    scaled = re.sub(r"^(\d+)", r"ceil(\1 * $scale)", line.fact.value)
    return replace(line, fact=replace(line.fact, value=scaled))


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
    if all(_FITTED.match(value) for value in values):
        return Fact(known.value, f"fitted to each run, this to that on {max(ranks)} ranks", is_sure=False)
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
            if unit is not None:
                text = format_bytes(round(mean)) if unit in SIZES else format_seconds(float(f"{mean:.3g}"))
                return form.format(text)
            is_whole = power > 0 or abs(mean - round(mean)) <= _SAME * mean
            return form.format(round(mean)) if is_whole else f"max(floor({mean:.6f} * $ranks), 1)"
    return ""
