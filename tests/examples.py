"""The number of examples and of cases in matrices: few while one works, many at night.

`quick` is the profile where none is named, and draws the same examples each time: what passes here passes on any clone.
`--hypothesis-profile=nightly` (scripts/dev/nightly.sh) draws other ones each time, and 16 times as many.
Property tests are never timed: machines that run them are busy.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import HealthCheck, settings

T = TypeVar("T")
U = TypeVar("U")

#: True at night (scripts/dev/nightly.sh): matrices are full. By day they have each pair of values once.
ALL = os.environ.get("DLIOSIM_TESTS") == "all"

#: Examples of a property test that asks for no number of its own; those that do are scaled by the same.
_QUICK, _USUAL, _NIGHTLY = 25, 100, 400

#: A test draws no fewer than these, or as many as it asks for.
_LEAST = 10

settings.register_profile(
    "quick", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=_QUICK, derandomize=True
)
settings.register_profile(
    "nightly", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=_NIGHTLY, derandomize=False
)


def examples(usual: int) -> int:
    """The number for a test that asks for `usual` ones, in the profile that is loaded."""
    return max(min(usual, _LEAST), usual * settings().max_examples // _USUAL)


def in_turn(first: Sequence[T], second: Sequence[U]) -> list[tuple[T, U]]:
    """Each value of `first` with the next one of `second`, from its begin again; at night every pair."""
    if ALL:
        return [(one, other) for one in first for other in second]
    return [(one, second[number % len(second)]) for number, one in enumerate(first)]
