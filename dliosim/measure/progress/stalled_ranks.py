"""Ranks of a job without progress: their state, which of them the others wait for, and both as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields

from dliosim.boundedjson import parse_json
from dliosim.readable import printable

#: Characters that are kept of a text from another process.
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class RankStatus:
    """The known state of one rank."""

    #: number of the rank
    rank: int
    #: name of its node
    host: str
    #: process id on that node
    pid: int
    #: what it does
    phase: str
    #: from 1; 0 where the phase has none
    epoch: int
    #: steps of the epoch that are done
    step: int
    #: bytes of the phase that are done
    done: int
    #: seconds since its last progress
    quiet: float
    #: state of `thread_calls.ProcessState`; "?" where it cannot be read
    state: str
    #: call of `thread_calls.ProcessState`
    call: str
    #: True where its own watcher reports this; else it was read from outside, or is the last known state
    is_watched: bool
    #: the meeting of all ranks in which it waits, or empty
    meeting: str
    #: number of meetings that it has arrived at
    arrived: int
    #: another call in which ranks wait for each other, or empty
    action: str

    @property
    def blame(self) -> int:
        """Return how likely it is that others wait for this rank, 0 to 4.

        0 is a rank that waits in a meeting itself; 4 is a stopped or dead process.
        """
        if self.state in ("T", "t", "Z", "X", ""):
            return 4
        if self.meeting:
            return 0
        if self.state in ("c", "D"):
            return 3
        return 1 if self.action else 2


@dataclass(frozen=True, slots=True)
class JobStall:
    """A job without progress."""

    #: ranks of the job
    ranks: int
    #: seconds without any progress
    quiet: float
    #: known ranks, in the order of ranks
    seen: tuple[RankStatus, ...]
    #: hosts of nodes that send nothing
    silent: tuple[str, ...] = ()
    #: True where this node cannot receive from the others
    alone: bool = False

    @property
    def late_ranks(self) -> list[RankStatus]:
        """Return the ranks that the others wait for, as far as is known; the most likely ones first."""
        most = max((one.blame for one in self.seen), default=0)
        if most == 0 and not self.silent and self.seen:
            # All wait in a meeting: late ranks are those in an earlier meeting.
            last = max(one.arrived for one in self.seen)
            return [one for one in self.seen if one.arrived < last]
        if most < 2 and self.silent:
            return []
        return sorted((one for one in self.seen if one.blame >= min(most, 2) > 0), key=lambda one: -one.blame)

    @property
    def waiting_ranks(self) -> list[RankStatus]:
        """Return the other known ranks."""
        late = {one.rank for one in self.late_ranks}
        return [one for one in self.seen if one.rank not in late]

    @property
    def unknown_ranks(self) -> list[int]:
        """Return the ranks without any known state."""
        known = {one.rank for one in self.seen}
        return [rank for rank in range(self.ranks) if rank not in known] if self.silent or self.alone else []


def format_statuses(quiet: float, seen: Iterable[RankStatus]) -> bytes:
    """Return the JSON of a node's ranks."""
    return json.dumps({"quiet": quiet, "ranks": [asdict(one) for one in seen]}).encode()


def parse_statuses(data: bytes) -> tuple[float, tuple[RankStatus, ...]]:
    """Return the seconds without progress and the ranks of another node; ValueError for any other content."""
    content = parse_json(data)
    if not isinstance(content, dict) or not isinstance(content.get("ranks"), list):
        raise ValueError("no ranks")
    return _parse_time(content.get("quiet")), tuple(_parse_status(each) for each in content["ranks"])


def format_ranks(ranks: Sequence[int]) -> str:
    """Return ranks as a text: `0-3, 7`."""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and rank == parts[-1][1] + 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    return ", ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in parts)


def _parse_status(content: object) -> RankStatus:
    if not isinstance(content, dict):
        raise ValueError("a rank is no object")
    found: dict[str, object] = {}
    for field in fields(RankStatus):
        value = content.get(field.name)
        if field.type == "float":
            value = _parse_time(value)
        elif field.type == "str" and isinstance(value, str):
            value = printable(value[:_LONGEST])
        elif type(value).__name__ != field.type:
            raise ValueError(f"{field.name} of a rank is {type(value).__name__}")
        found[field.name] = value
    return RankStatus(**found)  # type: ignore[arg-type]


def _parse_time(value: object) -> float:
    if not isinstance(value, int | float) or not 0 <= value < 1e18:
        raise ValueError("a time is no number")
    return float(value)
