"""The experiment that `--vary` asks for: names and values, their combinations, and the order of passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, Union

import numpy as np

from dliosim.errors import HELP, UsageError
from dliosim.model import Access, Loop, Restore, Save, Workload

#: Verb that a pass runs.
Compared: TypeAlias = Union[Loop, Save, Restore]

_OPENING, _CLOSING = "([{", ")]}"


@dataclass(frozen=True, slots=True)
class VariedSetting:
    """A setting that differs between variants."""

    name: str  #: name as -D takes it, or a short one, see `variants.full_setting_name`
    values: tuple[str, ...]  #: phrases that it takes in turn


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run the verb that is compared."""

    label: str  #: text for tables
    values: tuple[tuple[str, str], ...]  #: (name, value) of each varied setting
    workload: Workload  #: workload with these values
    verb: Compared  #: verb of that workload which is run
    added: str = ""  #: why a variant is there that the user did not ask for; empty for all others

    @property
    def access(self) -> Access:
        """Access of the loop to its data, or of the checkpoint."""
        if isinstance(self.verb, Loop):
            return self.verb.access
        return self.workload.checkpoint(self.verb.checkpoint).access


@dataclass(frozen=True, slots=True)
class ExcludedVariant:
    """A combination that is impossible, or a variant that failed."""

    label: str  #: text for tables
    reason: str  #: why it did not run


@dataclass(frozen=True, slots=True)
class ComparisonPlan:
    """The variants of one loop or verb, and those left out."""

    what: str  #: title of the loop or verb
    varied: tuple[VariedSetting, ...]  #: settings that differ
    variants: tuple[Variant, ...]  #: variants to run; the first is the reference
    not_run: tuple[ExcludedVariant, ...]  #: combinations that were left out
    without_saves: bool  #: true for a loop whose checkpoints are left out


def verb_title(verb: Compared) -> str:
    """Return a short title of what is compared: the name of a loop, `save NAME`, `restore NAME`."""
    if isinstance(verb, Loop):
        return verb.name
    return f"{'save' if isinstance(verb, Save) else 'restore'} {verb.checkpoint}"


def parse_varied(texts: Sequence[str]) -> tuple[VariedSetting, ...]:
    """Return the --vary options; UsageError for one that is no NAME=a,b or gives a value or a name twice."""
    found: list[VariedSetting] = []
    for text in texts:
        name, equals, values = text.partition("=")
        name, phrases = " ".join(name.split()), split_values(values)
        if not equals or not name or not all(phrases):
            hint = "give its values, as in `--vary api=posix,mpi-independent`"
            raise UsageError(f"--vary {text}: expected NAME=VALUE,VALUE,...{HELP}{hint}")
        twice = next((one for number, one in enumerate(phrases) if one in phrases[:number]), None)
        if twice is not None:
            raise UsageError(f"--vary {text}: `{twice}` is given twice")
        if any(other.name == name for other in found):
            raise UsageError(f"--vary {name} is given twice: put all of its values into one")
        found.append(VariedSetting(name, phrases))
    return tuple(found)


def split_values(text: str) -> tuple[str, ...]:
    """Return the phrases between commas, without splitting inside brackets or quotation marks."""
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


def draw_pass_order(variants: int, blocks: int, seed: int) -> list[list[int]]:
    """Return for each block the order in which variants run, random in each block; it depends only on the seed."""
    generator = np.random.Generator(np.random.PCG64(seed))
    return [generator.permutation(variants).tolist() for _ in range(blocks)]
