"""Short labels of result directories for headings and axes, each with the part that differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from dliosim.readable import printable

#: The longest label, characters. Labels are not cut again later.
LONGEST_LABEL = 26

# Where a variant's label is longer, tables have numbers, as in `dliosim compare`.
_LONGEST_VARIANT = 44


def label_paths(given: Sequence[str]) -> list[str]:
    """Return a label for each path, all different.

    A label is the last part of the path, or all of it where two have the same last part. Of labels too long for a
    heading, the last words are kept if these contain all differences; else a label is its number, `(2)`.
    """
    last = [Path(one).absolute().name or one for one in given]
    often = Counter(last)
    names = [printable(name if often[name] == 1 else one) for name, one in zip(last, given, strict=True)]
    labels = _shorten_names(names)
    often = Counter(labels)
    return [label if often[label] == 1 else f"{label} #{i + 1}" for i, label in enumerate(labels)]


def variant_names(labels: Sequence[str]) -> list[str]:
    """Return the names of variants in tables: their labels, or `(1)`, `(2)`, ... where any label is too long."""
    if max(map(len, labels), default=0) <= _LONGEST_VARIANT:
        return list(labels)
    return [f"({i + 1})" for i in range(len(labels))]


def variant_legend(labels: Sequence[str]) -> list[str]:
    """Return number and label of each variant, where tables have numbers."""
    names = variant_names(labels)
    return [f"{name} {label}" for name, label in zip(names, labels, strict=True) if name != label]


def _shorten_names(names: Sequence[str]) -> list[str]:
    long = {name for name in names if len(name) > LONGEST_LABEL}
    kept = LONGEST_LABEL - 3
    if len(long) == 1:
        return [f"{name[: kept // 2]}...{name[kept // 2 - kept :]}" if name in long else name for name in names]
    least, greatest = min(long, default=""), max(long, default="")
    alike = next((i for i, (one, other) in enumerate(zip(least, greatest, strict=False)) if one != other), len(least))
    # Cut before the last word that begins the same in all, so that columns are narrow.
    begin = 1 + max(least.rfind(mark, 0, alike) for mark in "-_./ ")
    if all(len(name) - kept <= alike for name in long):
        return [f"...{name[max(begin, len(name) - kept) :]}" if name in long else name for name in names]
    return [f"({i + 1})" if name in long else name for i, name in enumerate(names)]
