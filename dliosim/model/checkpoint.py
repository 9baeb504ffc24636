"""A checkpoint: the parts that are saved, who holds what of them, who writes it and how it becomes complete."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Literal

from dliosim.model.access import Access
from dliosim.model.dataset import Stripe
from dliosim.model.split import Split
from dliosim.model.transformer import Part, Transformer, parts_of

Commit = Literal["rename", "metadata", "none"]
Replicas = Literal["once", "dealt", "all"]
Copies = int | Literal["dealt", "all"]
"""Which of the data-parallel ranks saves what they hold alike: the one of a number, each in turn, or all of them."""


@dataclass(frozen=True, slots=True)
class Writers:
    """Who writes: every rank its own files, all ranks one file, one rank of each `number`, or rank `number` alone."""

    kind: Literal["file per rank", "shared file", "one per", "rank"]
    number: int = 0


@dataclass(frozen=True, slots=True)
class Pace:
    """How long something takes: `seconds` in all, or at a rate of `bytes_per_second`; one of them is None."""

    seconds: float | None = None
    bytes_per_second: float | None = None

    def duration(self, size: int) -> float:
        """Seconds for so many bytes."""
        if self.seconds is not None:
            return self.seconds
        return size / self.bytes_per_second if self.bytes_per_second else 0.0


@dataclass(frozen=True, slots=True)
class Background:
    """`async on`: a save copies to buffers, which are flushed while steps go on.

    `staging` is the pace of that copy (None: as fast as memory is). Where it is `simulated` there are no such buffers:
    the copy only takes its time, and contents are made again when they are flushed. At most `in_flight` saves are not
    complete; the next one waits.
    """

    staging: Pace | None = None
    simulated: bool = False
    in_flight: int = 1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint with nothing left to default; `keep` is how many complete ones stay, None all.

    `parts` are those the pattern names; those of `model` come before them (`parts_for`). `parallel` is how the job's
    ranks hold them (None: only data parallel). `replicas` is which of the data-parallel ranks that hold the same write
    it: one (`copies`), by turns (`dealt`), or all. `pieces` is whether a call ends with a tensor. `folder` is how many
    ranks' files share a folder, 0 without any. With `metadata` rank 0 gathers plans first, and a file of them is
    written last. `drain` names a root to which a complete checkpoint is copied in the background, `partner` a distance:
    rank r keeps a copy of what rank r - `partner` saved. `serialize` is time the CPU takes before writing.
    """

    name: str
    seed: int
    parts: tuple[Part, ...]
    writers: Writers
    access: Access
    path: str
    root: str = "data"
    fsync: bool = True
    keep: int | None = None
    model: Transformer | None = None
    parallel: Split | None = None
    pieces: Literal["by tensor", "whole"] = "by tensor"
    replicas: Replicas = "once"
    metadata: bool = False
    folder: int = 0
    stripe: Stripe | None = None
    commit: Commit = "rename"
    background: Background | None = None
    serialize: Pace | None = None
    drain: str | None = None
    partner: int | None = None

    def split(self, ranks: int) -> Split:
        """How the state lies on the ranks of a job that has so many."""
        return self.parallel or Split(1, 1, ranks)

    def describe_part(self, split: Split) -> tuple[str, str]:
        """What ranks split so save less than the checkpoint is named for, and where all of it is; empty if they do not.

        From what takes less time for that alone nothing follows for the whole: calls, syncs and renames are as many.
        """
        said, whole = [], []
        if self.model is not None and self.model.scale > 1:
            said.append(f"1/{self.model.scale} of the bytes of {self.model.name}")
            whole.append(f"-D {self.model.name}.scale=1")
        if split.played:
            said.append(f"the first {split.played} of its {split.ranks} ranks alone")
            whole.append(f"{split.ranks} ranks")
        return " and ".join(said), " and ".join(whole)

    def copies(self, split: Split) -> Copies:
        """Who saves what data-parallel ranks hold alike: the first; of a rank that writes alone, its own copy."""
        if self.replicas != "once":
            return self.replicas
        own = self.writers.kind == "rank" and split.has_all_copies
        return split.coordinates(self.writers.number)[2] if own else 0

    def parts_for(self, split: Split) -> tuple[Part, ...]:
        """All parts, in the order in which they are saved: their number and sizes are the same for every split."""
        return _parts_for(self.model, self.parts, split)

    def digest(self, split: Split) -> str:
        """16 hexadecimal digits of what decides the bytes and files when ranks split so write it."""
        described = {
            "name": self.name,
            "seed": self.seed,
            "parts": [asdict(part) for part in self.parts],
            "model": asdict(self.model) if self.model else None,
            "writers": asdict(self.writers),
            "split": asdict(split),
            "replicas": self.replicas,
            "folder": self.folder,
            "metadata": self.metadata,
        }
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]


@lru_cache(maxsize=64)
def _parts_for(model: Transformer | None, parts: tuple[Part, ...], split: Split) -> tuple[Part, ...]:
    return (*(parts_of(model, split) if model else ()), *parts)
