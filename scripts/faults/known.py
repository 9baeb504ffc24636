"""Faults that are known and not yet mended: an entry each, to be taken away with the fault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from faults.judging import Complaint
from faults.running import Done


@dataclass(frozen=True)
class Known:
    """A fault of the program: what is complained of, where which calls are hit, on what; nothing named is any."""

    what: str
    words: frozenset[str]
    calls: frozenset[str] = frozenset()
    things: frozenset[str] = frozenset()

    def explains(self, done: Done, complaint: Complaint) -> bool:
        """Whether a complaint about a run is this fault."""
        return complaint.word in self.words and any(
            (not self.calls or hit.title in self.calls) and (not self.things or hit.thing in self.things)
            for hit in done.hit
        )


def _known(what: str, words: str, calls: str = "", things: str = "") -> Known:
    named = (frozenset(each for each in text.split(", ") if each) for text in (words, calls, things))
    return Known(what, *named)


#: KNOWN: what fails now.
KNOWN: Final = (
    _known(
        "an error that a descriptor of a manifest or directory gives names neither",
        "place",
        "write, fsync, fstat, close, close for writing",
        "manifest, directory",
    ),
    _known(
        "what cannot be read counts as damaged or not there",
        "reason, changed, older, lost, silent",
        "open, read, pread, fstat, stat, close, opendir",
        "manifest, directory, checkpoint",
    ),
    _known(
        "a close that fails, and opening and syncing of files beside data, are a fault in dliosim itself",
        "itself",
        "open, close, close for writing, mincore",
    ),
    _known(
        "a collective open that fails on another rank than the first does not say why",
        "reason",
        "open, open for writing, statfs, stat, fstat",
        "data, checkpoint",
    ),
    _known("the status of an error in a thread is lost", "status"),
    _known("the first close of a file that MPI-IO makes", "hang", "close for writing", "data, checkpoint"),
)


def is_known(done: Done, complaint: Complaint) -> bool:
    """Whether one of the known faults is what does not hold."""
    return any(known.explains(done, complaint) for known in KNOWN)
