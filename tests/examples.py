"""The number of examples of a property test: few while one works, many at night.

`quick` is the profile where none is named, and draws the same examples each time: what passes here passes on any clone.
`--hypothesis-profile=nightly` (scripts/nightly.sh) draws other ones each time, and 16 times as many.
Property tests are never timed: machines that run them are busy.
"""

from __future__ import annotations

from hypothesis import settings

#: Examples of a property test that asks for no number of its own; those that do are scaled by the same.
_QUICK, _USUAL, _NIGHTLY = 25, 100, 400

#: A test draws no fewer than these, or as many as it asks for.
_LEAST = 10

settings.register_profile("quick", deadline=None, max_examples=_QUICK, derandomize=True)
settings.register_profile("nightly", deadline=None, max_examples=_NIGHTLY, derandomize=False)


def examples(usual: int) -> int:
    """The number for a test that asks for `usual` ones, in the profile that is loaded."""
    return max(min(usual, _LEAST), usual * settings().max_examples // _USUAL)
