"""Ranks of a job of which nothing moves: what is known of each, who keeps the others waiting, and that as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields

from dliosim.boundedjson import parse_json
from dliosim.readable import printable

#: What is kept of a text that somebody else may have written.
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class RankStatus:
    """What is known of a rank. `quiet` is since when nothing of it has ended, in seconds.

    `state` is that of `thread_calls.ProcessState`, "?" where nobody may look, and `call` its call. `is_watched` says that its
    own watcher has said so; else it was asked from outside, or that is the last that was known. `meeting` is the
    meeting of all ranks in which it waits, if it is in one, and `arrived` how many it has come to. `action` is another
    call in which ranks wait for each other.
    """

    rank: int
    host: str
    pid: int
    phase: str
    epoch: int
    step: int
    done: int
    quiet: float
    state: str
    call: str
    is_watched: bool
    meeting: str
    arrived: int
    action: str

    @property
    def blame(self) -> int:
        """How likely it is that others wait for this rank, more than it for them; 0 where it has arrived."""
        if self.state in ("T", "t", "Z", "X", ""):
            return 4
        if self.meeting:
            return 0
        if self.state in ("c", "D"):
            return 3
        return 1 if self.action else 2


@dataclass(frozen=True, slots=True)
class JobStall:
    """A job of `ranks` ranks of which nothing has moved for `quiet` seconds.

    `seen` are those that are known, in the order of ranks, and `silent` the hosts of nodes from which nothing comes.
    `alone` says that this node cannot hear of the others.
    """

    ranks: int
    quiet: float
    seen: tuple[RankStatus, ...]
    silent: tuple[str, ...] = ()
    alone: bool = False

    @property
    def late_ranks(self) -> list[RankStatus]:
        """Whom the others wait for, as far as can be known; those first of whom it is most likely."""
        most = max((one.blame for one in self.seen), default=0)
        if most == 0 and not self.silent and self.seen:
            # All have arrived at some meeting: those are late that are still in an earlier one.
            last = max(one.arrived for one in self.seen)
            return [one for one in self.seen if one.arrived < last]
        if most < 2 and self.silent:
            return []
        return sorted((one for one in self.seen if one.blame >= min(most, 2) > 0), key=lambda one: -one.blame)

    @property
    def waiting_ranks(self) -> list[RankStatus]:
        """The others that are known."""
        late = {one.rank for one in self.late_ranks}
        return [one for one in self.seen if one.rank not in late]

    @property
    def unknown_ranks(self) -> list[int]:
        """Ranks of which nothing is known."""
        known = {one.rank for one in self.seen}
        return [rank for rank in range(self.ranks) if rank not in known] if self.silent or self.alone else []


def format_statuses(quiet: float, seen: Iterable[RankStatus]) -> bytes:
    """What a node knows of its ranks."""
    return json.dumps({"quiet": quiet, "ranks": [asdict(one) for one in seen]}).encode()


def parse_statuses(data: bytes) -> tuple[float, tuple[RankStatus, ...]]:
    """What another node knows of its ranks; ValueError where it is anything else."""
    content = parse_json(data)
    if not isinstance(content, dict) or not isinstance(content.get("ranks"), list):
        raise ValueError("no ranks")
    return _parse_time(content.get("quiet")), tuple(_parse_status(each) for each in content["ranks"])


def format_ranks(ranks: Sequence[int]) -> str:
    """`0-3, 7`."""
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
