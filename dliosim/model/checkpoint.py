"""Checkpoints: the parts that are saved, the ranks that hold and write them, and how a checkpoint becomes complete."""

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
"""Data-parallel rank that saves a replica: the rank of this number, each rank in turn, or all ranks."""


@dataclass(frozen=True, slots=True)
class Writers:
    """The ranks that write, and to which files."""

    #: each rank to its own files, all ranks to one file, one rank of each `number`, or rank `number` alone
    kind: Literal["file per rank", "shared file", "one per", "rank"]
    number: int = 0  #: ranks for each writer (`one per`), or the only writer (`rank`)


@dataclass(frozen=True, slots=True)
class Pace:
    """The duration of an operation: fixed, or by a rate; one of the fields is None."""

    seconds: float | None = None  #: for any number of bytes
    bytes_per_second: float | None = None  #: rate in B/s

    def duration(self, size: int) -> float:
        """Return the seconds for `size` bytes."""
        if self.seconds is not None:
            return self.seconds
        return size / self.bytes_per_second if self.bytes_per_second else 0.0


@dataclass(frozen=True, slots=True)
class Background:
    """Saves with `async on`: a save copies to buffers, and these are flushed while steps continue."""

    staging: Pace | None = None  #: pace of the copy; None: as fast as memory
    #: true: no buffers; the copy only takes its time, and contents are made again when they are flushed
    simulated: bool = False
    in_flight: int = 1  #: largest number of saves that are not complete; the next save waits


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint without any default left open."""

    name: str  #: name in the pattern
    seed: int  #: of the contents
    parts: tuple[Part, ...]  #: parts that the pattern names; those of `model` come before them, see `parts_for`
    writers: Writers  #: ranks that write
    access: Access  #: how it is written and read
    path: str  #: directory below the root
    root: str = "data"  #: tier where it is saved
    fsync: bool = True  #: true: files are synced before the checkpoint is complete
    keep: int | None = None  #: number of complete checkpoints that are kept; None: all
    model: Transformer | None = None  #: transformer whose state is saved; None without
    parallel: Split | None = None  #: how the ranks of the job hold the state; None: only data parallel
    #: `by tensor`: a call ends with its tensor; `whole`: it may continue with the next one
    pieces: Literal["by tensor", "whole"] = "by tensor"
    #: data-parallel ranks that write a replica: one (see `copies`), in turn (`dealt`), or all
    replicas: Replicas = "once"
    metadata: bool = False  #: true: rank 0 gathers plans before the save, and writes them to a file after it
    folder: int = 0  #: ranks whose files share a folder; 0: no folders
    stripe: Stripe | None = None  #: striping of the files; None: as the file system has it
    commit: Commit = "rename"  #: how a written checkpoint becomes complete
    background: Background | None = None  #: settings of `async on`; None: a save blocks
    serialize: Pace | None = None  #: CPU time before writing; None without
    drain: str | None = None  #: root to which a complete checkpoint is copied in the background; None without
    partner: int | None = None  #: distance: rank r keeps a copy of what rank r - `partner` saved; None without

    def split(self, ranks: int) -> Split:
        """Return how the state is held by the ranks of a job of `ranks` ranks."""
        return self.parallel or Split(1, 1, ranks)

    def describe_part(self, split: Split) -> tuple[str, str]:
        """Return which part of the checkpoint a split saves, and how to save all of it; empty texts where it saves all.

        The time of a part does not give the time of the whole: the number of calls, syncs and renames does not shrink
        with the bytes.
        """
        phrases, whole = [], []
        if self.model is not None and self.model.scale > 1:
            phrases.append(f"1/{self.model.scale} of the bytes of {self.model.name}")
            whole.append(f"-D {self.model.name}.scale=1")
        if split.played:
            phrases.append(f"the first {split.played} of its {split.ranks} ranks alone")
            whole.append(f"{split.ranks} ranks")
        return " and ".join(phrases), " and ".join(whole)

    def copies(self, split: Split) -> Copies:
        """Return which data-parallel rank saves a replica: the first one, or a rank that writes alone saves its own."""
        if self.replicas != "once":
            return self.replicas
        own = self.writers.kind == "rank" and split.has_all_copies
        return split.coordinates(self.writers.number)[2] if own else 0

    def parts_for(self, split: Split) -> tuple[Part, ...]:
        """Return all parts in the order in which they are saved; every split has the same number of parts and sizes."""
        return _parts_for(self.model, self.parts, split)

    def digest(self, split: Split) -> str:
        """Return 16 hexadecimal digits of all that decides bytes and files when ranks split like this write them."""
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
