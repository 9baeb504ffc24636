"""Faults that are known, and are being mended: a line each, to be taken away with the fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from faults.drawing import Fault, Phase
from faults.judging import Complaint
from faults.running import Done

Known = Callable[[str, Phase, Fault, Done, Complaint], bool]
"""Whether a complaint is this fault: of api, phase, fault, how the run ended, and the complaint."""

KNOWN: Final[tuple[Known, ...]] = ()


def is_known(api: str, phase: Phase, fault: Fault, done: Done, complaint: Complaint) -> bool:
    """Whether one of the known faults is what does not hold."""
    return any(known(api, phase, fault, done, complaint) for known in KNOWN)
