"""Results of verbs that touch files; only rank 0 has them, and only it imports them."""

from __future__ import annotations

from dataclasses import dataclass

from dliosim.measure.epoch_summaries import VerbSummary
from dliosim.measure.phase import PhaseSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePhase(PhaseSummary):
    """A verb that touches files: `prepare`, `drop caches`, and those below."""

    #: its figures
    verb: VerbSummary


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePhase(FilePhase):
    """A restore."""

    #: its options, which differ between restores of one checkpoint
    how: str = ""


#: The phase of each verb.
FILE_PHASES: dict[str, type[FilePhase]] = {
    "prepare": FilePhase,
    "drop caches": FilePhase,
    "save": SavePhase,
    "restore": RestorePhase,
}
