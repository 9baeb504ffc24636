"""A pattern that is mutated by a seed, and the job that it is for."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from harness import ROOT

from dliosim.language.syntax import declarations
from dliosim.units import SIZES, TIMES, UNITS

PATTERNS = ROOT / "patterns"
_MANUAL, _REFERENCE = ROOT / "docs" / "language.md", ROOT / "docs" / "reference.md"

_MOST_RANKS = 65_536
_RANKS = (1, 2, 3, 4, 5, 7, 8, 64, 512, 1024, 4096, 65_535, _MOST_RANKS)
_TOKEN = re.compile(r'"[^"\n]*"|#[^\n]*|[^\W\d][\w/-]*|[0-9][0-9_.]*|\$\w+|[^\S\n]+|\n|.')
_WORDS = (head for kind in declarations.SETTINGS.values() for head in kind)
_HEADS = sorted({*declarations.STATEMENTS, *_WORDS}, key=len)

_NUMBERS = (
    *(
        "0",
        "1",
        "2",
        "3",
        "7",
        "0.5",
        "0.1",
        "1.5",
        "99",
        "100",
        "1000",
        "4096",
        "65_535",
        "65_536",
        "65_537",
        "10_007",
    ),
    *(str(2**power + change) for power in (16, 31, 32, 40, 48, 53, 60, 63, 64) for change in (-1, 0, 1)),
    *(f"1{'0' * zeros}" for zeros in (6, 7, 8, 9, 10, 12, 15, 18, 24, 40, 58, 61, 300)),
    *(f"0.{'0' * zeros}1" for zeros in (2, 6, 9, 12, 18, 30, 50, 57, 320)),
    *("9" * 18, "9" * 59, "1_000_000", "16_777_216", "123456789.987654321", "00", "1__0", "1e9", "-1", "-0", "0x10"),
)
_LETTERS = (
    *("\u202e", "\u200b", "\ufeff", "\u2028", "\x00", "\x1b[2J", "\r", "\t", "\x0b", "\u00a0", "e\u0301", "\U0001f4be"),
    *("\u0661", "\u00b2", "\uff11", "\u2163", "\u00bd", "\u00b5", "\u03bc", "\u212a", "\u00d7", "\u0130", "\u01c5"),
    *('"', "#", "{", "}", "(", ")", "$", "%", "\\", "\ud800", "=", ",", "..", "\U0010ffff"),
)
_OPERATIONS = ("+", "-", "*", "/")
_DISTRIBUTIONS = ("normal", "lognormal", "gamma", "uniform", "exponential", "poisson")


@dataclass(frozen=True)
class Mutant:
    """A pattern's text, the job that it is for, and the rank and epoch that are listed; all drawn by `seed`."""

    seed: int
    source: str
    text: str
    ranks: int
    nodes: int
    rank: int
    epoch: int


@lru_cache(maxsize=1)
def sources() -> dict[str, str]:
    """Return patterns by their names: those that are shipped, and the blocks of the manual."""
    found = {path.name: path.read_text(encoding="utf-8") for path in sorted(PATTERNS.glob("*.dlio"))}
    manual = _MANUAL.read_text(encoding="utf-8")
    for number, block in enumerate(re.findall(r"^```(?:dlio)?\n(.*?)^```$", manual, re.MULTILINE | re.DOTALL)):
        if block.startswith("dlio"):
            found[f"block {number}"] = block
        elif block.startswith("dataset"):
            found[f"block {number}"] = f"dlio 1\nworkload block\n{block}"
    return found


def draw(seed: int) -> Mutant:
    """Return the mutant of a seed."""
    source = random.Random(seed)
    name = source.choice(sorted(sources()))
    text = sources()[name]
    kinds = source.choice(_MIXTURES)
    for _ in range(source.choice((1, 1, 2, 3, 5)) if kinds is _SENSIBLE else source.choice((1, 1, 1, 2, 3, 6))):
        text = source.choice(kinds)(source, text)
    ranks = source.choice(_RANKS) if source.random() < 0.6 else round(2 ** source.uniform(0, 16))
    nodes = 1 if source.random() < 0.5 else source.randint(1, ranks)
    if source.random() < 0.3:
        nodes = max(1, ranks // source.choice((1, 2, 3, 4, 8, 64, 128)))
    rank = source.choice((0, ranks - 1, source.randrange(ranks)))
    return Mutant(seed, name, text, ranks, nodes, rank, source.choice((0, 0, 1, 3, 10**6)))


# ---- lines --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _lines() -> dict[str, list[str]]:
    """Return lines of the sources, and those that the reference's tables name, by the words that they begin with."""
    found: dict[str, list[str]] = defaultdict(list)
    texts = list(sources().values())
    tables = re.findall(r"^\| (`.*?`[^|]*) \|", _REFERENCE.read_text(encoding="utf-8"), re.MULTILINE)
    texts.append("\n".join(line for row in tables for line in re.findall(r"`([^`\u2026]+)`", row)))
    for line in (line.strip() for text in texts for line in text.splitlines()):
        if _head(line) and not line.endswith("{"):
            found[_head(line)].append(line)
    return dict(found)


def _head(line: str) -> str:
    return next((head for head in reversed(_HEADS) if re.match(rf"{head}\b", line.strip())), "")


def _another_line(source: random.Random, text: str) -> str:
    """Replace a line by another one that begins with the same words."""
    lines = text.split("\n")
    places = [place for place, line in enumerate(lines) if _head(line) in _lines() and not line.endswith("{")]
    if places:
        place = source.choice(places)
        indent = lines[place][: len(lines[place]) - len(lines[place].lstrip())]
        lines[place] = indent + source.choice(_lines()[_head(lines[place])])
    return "\n".join(lines)


def _one_line_more(source: random.Random, text: str) -> str:
    """Insert a setting that the block may have before its others."""
    lines = text.split("\n")
    places = [place for place, line in enumerate(lines) if line.endswith("{") and _head(line) in declarations.SETTINGS]
    if places:
        place = source.choice(places)
        heads = [head for head in declarations.SETTINGS[_head(lines[place])] if head in _lines()]
        if heads:
            lines.insert(place + 1, source.choice(_lines()[source.choice(heads)]))
    return "\n".join(lines)


def _move_lines(source: random.Random, text: str) -> str:
    """Delete, double or swap lines, or insert a stretch of them from another pattern."""
    lines = text.split("\n")
    one, other = source.randrange(len(lines)), source.randrange(len(lines))
    what = source.randrange(4)
    if what == 0:
        del lines[one]
    elif what == 1:
        lines.insert(other, lines[one])
    elif what == 2:
        lines[one], lines[other] = lines[other], lines[one]
    else:
        others = source.choice(list(sources().values())).split("\n")
        start = source.randrange(len(others))
        lines[one:one] = others[start : start + source.randint(1, 20)]
    return "\n".join(lines)


def _number(source: random.Random) -> str:
    """Return a number, mostly one that chance would not draw."""
    return source.choice(_NUMBERS) if source.random() < 0.5 else str(round(2 ** source.uniform(0, 24)))


# ---- words --------------------------------------------------------------------------------------------------------


def _change_tokens(
    source: random.Random, text: str, wanted: Callable[[str], bool], change: Callable[[str], str], most: int = 1
) -> str:
    """Return the text with up to this number of wanted tokens changed."""
    tokens = _TOKEN.findall(text)
    places = [place for place, token in enumerate(tokens) if wanted(token)]
    for place in source.sample(places, min(most, len(places))):
        tokens[place] = change(tokens[place])
    return "".join(tokens)


def _is_word(token: str) -> bool:
    return not token.isspace() and token[0] != "#"


def _is_number(token: str) -> bool:
    return token[0].isdecimal()


def _move_words(source: random.Random, text: str) -> str:
    """Delete or double a token, or swap it with another."""
    tokens = _TOKEN.findall(text)
    places = [place for place, token in enumerate(tokens) if _is_word(token)]
    one, other = source.choice(places), source.choice(places)
    what = source.randrange(4)
    if what == 0:
        tokens[one] = ""
    elif what == 1:
        tokens[one] += f" {tokens[one]}"
    elif what == 2:
        tokens[one], tokens[other] = tokens[other], tokens[one]
    else:
        tokens[one] = tokens[other]
    return "".join(tokens)


def _extreme_number(source: random.Random, text: str) -> str:
    return _change_tokens(source, text, _is_number, lambda _: source.choice(_NUMBERS), source.choice((1, 1, 2, 4)))


def _other_number(source: random.Random, text: str) -> str:
    """Replace numbers by others of any magnitude; most of them are valid in their place."""

    def scale(token: str) -> str:
        number = float(token.replace("_", "").rstrip(".") or 0) if token.count(".") < 2 else 1.0
        return str(max(round(number * 2 ** source.triangular(-8, 30, 0)), 1) % 2**59)

    return _change_tokens(source, text, _is_number, scale, source.choice((1, 1, 2, 4)))


def _other_unit(source: random.Random, text: str) -> str:
    def swap_unit(token: str) -> str:
        kind = next((units for units in (SIZES, TIMES) if token in units), UNITS)
        return source.choice(sorted(kind if source.random() < 0.7 else UNITS))

    return _change_tokens(source, text, lambda token: token in UNITS, swap_unit, source.choice((1, 1, 3)))


def _expression(source: random.Random, depth: int, unit: str) -> str:
    if depth <= 0:
        return f"{_number(source)}{unit}" if source.random() < 0.8 else "$ranks"
    inner = _expression(source, depth - 1, unit)
    other = _expression(source, source.randint(0, min(depth, 3)) - 1, source.choice((unit, "")))
    shapes = (
        f"({inner})",
        f"-{inner}",
        f"{inner} {source.choice(_OPERATIONS)} {other}",
        f"{source.choice(('min', 'max'))}({inner}, {other})",
        f"{source.choice(('floor', 'ceil', 'log2'))}({inner})",
    )
    return source.choice(shapes)


def _replace_quantity(source: random.Random, text: str, made: Callable[[str], str]) -> str:
    """Replace a number, with its unit if it has one, by another one for this unit."""
    places = list(re.finditer(r"\b[0-9][0-9_.]*( [A-Za-z%/]+)?", text))
    if not places:
        return text
    place = source.choice(places)
    unit = place[1] if place[1] and place[1].strip() in UNITS else ""
    end = place.end() if unit or not place[1] else place.start(1)
    return text[: place.start()] + made(unit) + text[end:]


def _deep_expression(source: random.Random, text: str) -> str:
    depth = source.choice((1, 1, 2, 2, 3, 8, 15, 17, 40, 120))
    return _replace_quantity(source, text, lambda unit: _expression(source, depth, unit))


def _distribution(source: random.Random, text: str) -> str:
    def draw_distribution(unit: str) -> str:
        kind = source.choice(_DISTRIBUTIONS)
        values = [f"{_number(source)}{unit}" for _ in range(1 if kind in ("exponential", "poisson") else 2)]
        made = f"{kind}({', '.join(values)})"
        if source.random() < 0.3:
            made += f" clipped to {_number(source)}{unit} and {_number(source)}{unit}"
        return made

    return _replace_quantity(source, text, draw_distribution)


def _deep_blocks(source: random.Random, text: str) -> str:
    """Put verbs within verbs, or add a chain of parameters, each by the value of the one before."""
    depth = source.choice((1, 2, 5, 15, 17, 200))
    times = source.choice(("1", "2", "3", "10", "1_000_000", str(2**31), str(2**48)))
    if source.random() < 0.3:
        lines = [f"param p{number} = $p{number - 1} * {source.choice(('1', '2', times))}" for number in range(1, depth)]
        return _replace_quantity(source, text, lambda _: f"$p{depth - 1}") + "\n".join(["", "param p0 = 3", *lines])
    lines = text.split("\n")
    start = source.randrange(len(lines))
    end = source.randint(start, len(lines))
    head = source.choice((f"repeat {times} {{", "evaluate every 2 epochs {", "train {", f"repeat {times} {{"))
    return "\n".join([*lines[:start], *[head] * depth, *lines[start:end], *["}"] * depth, *lines[end:]])


def _strange_letter(source: random.Random, text: str) -> str:
    place = source.randint(0, len(text))
    return text[:place] + source.choice(_LETTERS) * source.choice((1, 1, 1, 40, 5000)) + text[place:]


_SENSIBLE = (_other_number, _other_number, _another_line, _another_line, _one_line_more, _one_line_more)
_EXTREME = (_extreme_number, _other_unit, _deep_expression, _distribution, _deep_blocks)
_BROKEN = (_move_words, _move_lines, _strange_letter)
_MIXTURES: Sequence[Sequence[Callable[[random.Random, str], str]]] = (
    _SENSIBLE,
    _SENSIBLE,
    _SENSIBLE,
    (*_SENSIBLE, *_EXTREME),
    (*_SENSIBLE, _extreme_number, _other_unit),
    _EXTREME,
    (*_SENSIBLE, *_EXTREME, *_BROKEN),
    _BROKEN,
)
