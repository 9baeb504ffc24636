"""A checkpoint: the parts that are saved, and the ranks that write them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Literal

from dliosim.model.access import Access


@dataclass(frozen=True, slots=True)
class Part:
    """`size` bytes in total, split over the ranks, or of every rank."""

    name: str
    size: int
    scope: Literal["total", "per rank"]


@dataclass(frozen=True, slots=True)
class Writers:
    """Who writes: every rank a file, all ranks one file, one rank of each `number`, or the rank `number` alone."""

    kind: Literal["file per rank", "shared file", "one per", "rank"]
    number: int = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint with nothing left to default; `keep` is how many complete ones stay, None all."""

    name: str
    seed: int
    parts: tuple[Part, ...]
    writers: Writers
    access: Access
    path: str
    root: str = "data"
    fsync: bool = True
    keep: int | None = None

    def digest(self, ranks: int) -> str:
        """16 hexadecimal digits of what decides the bytes when `ranks` ranks write it."""
        described = {
            "name": self.name,
            "seed": self.seed,
            "parts": [asdict(part) for part in self.parts],
            "writers": asdict(self.writers),
            "ranks": ranks,
        }
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]
