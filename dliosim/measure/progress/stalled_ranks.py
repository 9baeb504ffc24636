"""Ranks of a job without progress: their state, and the ranks that the others wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RankStatus:
    """The known state of one rank."""

    #: number of the rank
    rank: int
    #: its process id
    pid: int
    #: what it does
    phase: str
    #: from 1; 0 if the phase has none
    epoch: int
    #: steps of the epoch that are done
    step: int
    #: bytes of the phase that are done
    done: int
    #: seconds since its last progress
    quiet: float
    #: state of `stalls.ProcessState`; "?" if it cannot be read
    state: str
    #: call of `stalls.ProcessState`
    call: str
    #: True if its own watcher reports this; else it was read from outside, or is the last known state
    is_watched: bool
    #: the meeting of all ranks in which it waits, or empty
    meeting: str
    #: number of meetings that it has arrived at
    arrived: int
    #: another call in which ranks wait for each other, or empty
    action: str
    #: process ids of its reader processes that are stopped
    stopped_readers: tuple[int, ...] = ()

    @property
    def blame(self) -> int:
        """Return the likelihood that others wait for this rank, 0 to 4.

        0 is a rank that waits in a meeting itself; 4 is one that is stopped or dead, or has a stopped reader process.
        """
        if self.stopped_readers or self.state in ("T", "t", "Z", "X", ""):
            return 4
        if self.meeting:
            return 0
        if self.state in ("c", "D"):
            return 3
        return 1 if self.action else 2


@dataclass(frozen=True, slots=True)
class JobStall:
    """A node without progress."""

    #: ranks of the job
    ranks: int
    #: seconds without any progress
    quiet: float
    #: ranks of this node, in their order
    seen: tuple[RankStatus, ...]
    #: name of the node
    host: str
    #: True if no other node has ranks of the job
    is_whole_job: bool = True

    @property
    def late_ranks(self) -> list[RankStatus]:
        """Return the ranks that the others wait for, the most likely ones first; none if they are on other nodes."""
        most = max((one.blame for one in self.seen), default=0)
        if most == 0 and self.seen:
            # All wait in a meeting: late ranks are those in an earlier meeting.
            last = max(one.arrived for one in self.seen)
            return [one for one in self.seen if one.arrived < last]
        if most < 2 and not self.is_whole_job:
            return []
        return sorted((one for one in self.seen if one.blame >= min(most, 2) > 0), key=lambda one: -one.blame)

    @property
    def waiting_ranks(self) -> list[RankStatus]:
        """Return the other ranks of the node."""
        late = {one.rank for one in self.late_ranks}
        return [one for one in self.seen if one.rank not in late]

    @property
    def is_elsewhere(self) -> bool:
        """Return True if all ranks of this node wait for ranks of other nodes."""
        return not self.is_whole_job and not self.late_ranks

    @property
    def may_wait_elsewhere(self) -> bool:
        """Return True unless it is certain that a rank of this node is late: one may wait in MPI for another node."""
        return not self.is_whole_job and all(one.blame <= 2 for one in self.seen)


def format_ranks(ranks: Sequence[int]) -> str:
    """Return ranks as a text: `0-3, 7`."""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and rank == parts[-1][1] + 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    return ", ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in parts)
