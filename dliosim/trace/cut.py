"""The recorded part of a run, and the exported part of a trace.

`steps 1 to 100, ranks 0 to 7, at most 1 GB`, and `steps 1 to 100, ranks 0 to 7, from 1 s to 2 s`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from dliosim.units import parse_seconds, parse_size

#: A trace that would be larger is cut, loudly.
MOST_BYTES: Final = 1_000_000_000

_EVERY: Final = 1 << 62
_RANGE = re.compile(r"(epochs?|steps?|ranks?)\s+(\d{1,12})(?:\s*(?:to|-)\s*(\d{1,12}))?", re.IGNORECASE)
_LIMIT = re.compile(r"at\s+most\s+(\S.*)", re.IGNORECASE)
_WORDS = re.compile(r"\b(?:epochs?|steps?|ranks?|most)\b", re.IGNORECASE)
_EXAMPLE = '--trace "steps 1 to 100, ranks 0 to 7, at most 1 GB"'
_TIMES = re.compile(r"from\s+(\S.*?)\s+to\s+(\S.*)", re.IGNORECASE)
_PART_EXAMPLE = '--part "steps 1 to 100, ranks 0 to 7, from 1 s to 2 s"'


@dataclass(frozen=True, slots=True)
class TraceCut:
    """The part of a run that is recorded; ranges are inclusive."""

    #: numbers of epochs, from 1
    epochs: tuple[int, int] = (1, _EVERY)
    #: numbers of the steps of each epoch, from 1; what belongs to no step is recorded, too
    steps: tuple[int, int] = (1, _EVERY)
    #: ranks, from 0
    ranks: tuple[int, int] = (0, _EVERY)
    #: bytes of the whole trace as it is stored
    most_bytes: int = MOST_BYTES

    def count_ranks(self, size: int) -> int:
        """Return the number of ranks that are recorded, in a job of `size` ranks."""
        return max(0, min(self.ranks[1], size - 1) - self.ranks[0] + 1)


def parse_cut(text: str) -> TraceCut:
    """Return the cut that a text asks for; an empty text asks for all. Raises ValueError with the accepted forms."""
    ranges: dict[str, tuple[int, int]] = {}
    most: int | None = None
    for part in filter(None, (each.strip() for each in text.split(","))):
        if found := _LIMIT.fullmatch(part):
            if most is not None:
                raise ValueError(f"`{part}`: there is one limit, like {_EXAMPLE}")
            most = int(parse_size(found[1]))
            if most <= 0:
                raise ValueError(f"`{part}`: a limit is above 0 B, like {_EXAMPLE}")
        elif found := _RANGE.fullmatch(part):
            first = int(found[2])
            last = first if found[3] is None else int(found[3])
            name = found[1].lower().rstrip("s") + "s"
            if last < first or (first == 0 and name != "ranks"):
                least = "0" if name == "ranks" else "1"
                raise ValueError(f"`{part}`: {name} count from {least}, the smaller number first, like {name} 1 to 8")
            if name in ranges:
                raise ValueError(f"`{part}`: {name} are one range, from the first to the last, like {_EXAMPLE}")
            ranges[name] = first, last
        else:
            raise ValueError(f"`{part}` is no part of a trace: steps, epochs, ranks or at most, like {_EXAMPLE}")
    return TraceCut(**ranges, most_bytes=MOST_BYTES if most is None else most)


@dataclass(frozen=True, slots=True)
class TracePart:
    """A part of a trace."""

    #: epochs, steps and ranks
    cut: TraceCut = field(default_factory=TraceCut)
    #: the part in words; empty for all
    text: str = ""
    #: first ns, and the ns behind the last one; None for all times
    times: tuple[int, int] | None = None


def parse_part(text: str) -> TracePart:
    """Return the part that a text asks for; an empty text asks for all. Raises ValueError with the accepted forms."""
    others: list[str] = []
    times: tuple[int, int] | None = None
    for piece in filter(None, (each.strip() for each in text.split(","))):
        if found := _TIMES.fullmatch(piece):
            first, last = (round(parse_seconds(each) * 1e9) for each in found.groups())
            if not 0 <= first < last < 1 << 62:
                raise ValueError(f"`{piece}`: the earlier time first, like from 1 s to 2 s")
            if times is not None:
                raise ValueError(f"`{piece}`: times are one range, from the first to the last, like {_PART_EXAMPLE}")
            times = first, last
        elif re.match(r"(?:epoch|step|rank)s?\s", piece, re.IGNORECASE):
            others.append(piece)
        else:
            raise ValueError(f"`{piece}` is no part of an export: steps, epochs, ranks or times, like {_PART_EXAMPLE}")
    return TracePart(parse_cut(", ".join(others)), text.strip(), times)


def is_cut(text: str) -> bool:
    """Return whether a word of the command line means a part of a run, and not the pattern that follows --trace."""
    return text == "" or (" " in text.strip() and not text.endswith(".dlio") and _WORDS.search(text) is not None)
