"""Results of verbs that touch files; only rank 0 has them, and only it imports them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final

from dliosim.measure.figures.epoch_summaries import VerbSummary
from dliosim.measure.results.phase import PhaseSummary

#: Times of a rank in a verb that do not overlap.
_PARTS: Final = (
    *("wait", "stage", "content", "encode", "serialize", "send", "broadcast", "open", "view", "call", "file_sync"),
    *("plan", "partner", "commit", "rename", "source", "decode", "preprocess"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePhase(PhaseSummary):
    """A verb that touches files: `prepare`, `convert`, `stage`, `drop caches`, and those below."""

    #: its figures
    verb: VerbSummary = field(metadata={"key": "files"})

    #: times that are not in the clock of such a verb, or are in the time of another part
    _apart: ClassVar[tuple[str, ...]] = ()

    @property
    def parts(self) -> dict[str, float]:
        """Return the parts of the time of the rank that took longest, in s, by the names of figures.

        They add up to its `seconds`: `rest_seconds` is the remainder, such as waiting for other ranks. If several calls
        are in flight, the time in calls is limited to what the other parts leave.
        """
        known, whole = self.verb.slowest_rank_seconds, self.verb.seconds
        found = {f"{name}_seconds": known.get(f"{name}_seconds", 0.0) for name in _PARTS if name not in self._apart}
        others = sum(found.values()) - found["call_seconds"]
        found["call_seconds"] = max(0.0, min(found["call_seconds"], whole - others))
        return found | {"rest_seconds": max(0.0, whole - others - found["call_seconds"])}


@dataclass(frozen=True, slots=True, kw_only=True)
class SavePhase(FilePhase):
    """A save."""

    #: name of the loop that made it; None for the verb
    within: str | None = None
    #: setting `fsync`
    fsync: bool = True
    #: setting `commit`
    commit: str = "rename"
    #: why it holds less than the whole checkpoint (`scale`, `subset`)
    part_of: str = ""
    #: bytes of all of it / bytes of the part
    whole_times: float = 1.0
    #: ranks that save all of it; 0 if it holds all
    whole_ranks: int = 0

    _apart = ("content", "rename")


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePhase(FilePhase):
    """A restore."""

    #: its options, which differ between restores of one checkpoint
    how: str = ""

    _apart = ("content",)


#: The phase of each verb.
FILE_PHASES: dict[str, type[FilePhase]] = dict.fromkeys(("prepare", "convert", "stage", "drop caches"), FilePhase)
FILE_PHASES |= {"save": SavePhase, "restore": RestorePhase}
