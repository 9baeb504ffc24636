"""What `--vary` asks for: names and their values, all combinations of them, and the order in which passes run."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, Union

import numpy as np

from dliosim.errors import UsageError
from dliosim.model import Access, Loop, Restore, Save, Workload

#: What a pass does.
Compared: TypeAlias = Union[Loop, Save, Restore]

#: More variants than this are no comparison that anyone could read.
MOST_VARIANTS: Final = 64

_OPENING, _CLOSING = "([{", ")]}"


@dataclass(frozen=True, slots=True)
class VariedSetting:
    """A name as -D takes it (or short, see `variants.named`) and the phrases that it takes in turn."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Variant:
    """One way of doing it: what is varied, as (name, value), the workload that comes of it, and what of that is run.

    `added` says why a variant that nobody asked for is there.
    """

    label: str
    values: tuple[tuple[str, str], ...]
    workload: Workload
    verb: Compared
    added: str = ""

    @property
    def access(self) -> Access:
        """How the loop reads its data, or how the checkpoint is written and read."""
        if isinstance(self.verb, Loop):
            return self.verb.access
        return self.workload.checkpoint(self.verb.checkpoint).access


@dataclass(frozen=True, slots=True)
class ExcludedVariant:
    """A combination that cannot be, or a variant that failed, and why."""

    label: str
    reason: str


@dataclass(frozen=True, slots=True)
class ComparisonPlan:
    """What is compared: variants of one loop or verb, the first of which is the reference, and what was left out."""

    what: str
    varied: tuple[VariedSetting, ...]
    variants: tuple[Variant, ...]
    not_run: tuple[ExcludedVariant, ...]


def verb_title(verb: Compared) -> str:
    """What is compared, in a word or two: the name of a loop, `save NAME`, `restore NAME`."""
    if isinstance(verb, Loop):
        return verb.name
    return f"{'save' if isinstance(verb, Save) else 'restore'} {verb.checkpoint}"


def parse_varied(texts: Sequence[str]) -> tuple[VariedSetting, ...]:
    """The --vary options; UsageError for one that is no NAME=a,b or gives a value or a name twice."""
    found: list[VariedSetting] = []
    for text in texts:
        name, equals, values = text.partition("=")
        name, phrases = " ".join(name.split()), split_values(values)
        if not equals or not name or not all(phrases):
            raise UsageError(f"--vary {text}: expected NAME=VALUE,VALUE,...")
        twice = next((one for number, one in enumerate(phrases) if one in phrases[:number]), None)
        if twice is not None:
            raise UsageError(f"--vary {text}: `{twice}` is given twice")
        if any(other.name == name for other in found):
            raise UsageError(f"--vary {name} is given twice: put all of its values into one")
        found.append(VariedSetting(name, phrases))
    return tuple(found)


def split_values(text: str) -> tuple[str, ...]:
    """Phrases between commas, but for those within brackets or quotation marks."""
    parts, depth, quoted = [""], 0, False
    for letter in text:
        if letter == '"':
            quoted = not quoted
        elif not quoted:
            depth += (letter in _OPENING) - (letter in _CLOSING)
        if letter == "," and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += letter
    return tuple(part.strip() for part in parts)


def combine_values(varied: Sequence[VariedSetting]) -> list[tuple[tuple[str, str], ...]]:
    """Every combination as (name, value) pairs, the last name's values changing fastest.

    UsageError where there are more than `MOST_VARIANTS`.
    """
    total = int(np.prod([len(one.values) for one in varied], dtype=np.int64))
    if total > MOST_VARIANTS:
        raise UsageError(
            f"--vary: {total} combinations, and at most {MOST_VARIANTS} can be compared: vary less at a time"
        )
    named = [[(one.name, value) for value in one.values] for one in varied]
    return [tuple(pairs) for pairs in itertools.product(*named)]


def draw_pass_order(variants: int, blocks: int, seed: int) -> list[list[int]]:
    """For each block the variants in the order in which they run, a fresh random one each; from the seed alone."""
    generator = np.random.Generator(np.random.PCG64(seed))
    return [generator.permutation(variants).tolist() for _ in range(blocks)]
