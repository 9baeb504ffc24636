"""Checkpoints: the saved parts, the ranks that hold and write them, and the way a checkpoint becomes complete."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Annotated, Final, Literal

from dliosim.hashes import sha256
from dliosim.model.access import Access
from dliosim.model.dataset import STRIPE, Stripe
from dliosim.model.phrase import PathBelow, Phrase, Root, Switch
from dliosim.model.transformer import Part, Split, Transformer, parts_of

Commit = Literal["rename", "metadata", "none"]
Replicas = Literal["once", "dealt", "all"]
#: Data-parallel rank that saves a replica: the rank of this number, each rank in turn, or all ranks
Copies = int | Literal["dealt", "all"]


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

    #: pace of that copy, only with `async on`. `memory`: as fast as memory is; `simulated`: no buffers, the copy only
    #: takes its time, and contents are made again for the flush
    staging: Annotated[Pace | None, Phrase("memory | simulated [PACE] | PACE")] = None
    simulated: bool = False  #: true: no buffers
    #: most saves that are incomplete at a time; the next save waits; only with `async on`
    in_flight: Annotated[int, Phrase("COUNT<=1024", "in flight")] = 1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint without any default left open."""

    name: str  #: name in the pattern
    seed: int  #: of the contents
    #: saved state; may be repeated under other names. `weights 100 MB whole`: every rank holds all of it. `moments 100
    #: MB total`: split over the ranks. `rng 16 kB per rank`. `w1 4096 x 14336 of bf16 split by rows`, `... split by
    #: columns`, `... whole`: a tensor, split over the tensor-parallel ranks (all dimensions but the first are columns)
    #: or held by each of them. `... on stage 3`: its pipeline stage, from 0; required if there are several. Default:
    #: required, or a `model`
    parts: Annotated[tuple[Part, ...], Phrase(keyword="part", rule="part")]
    #: ranks that write. `into file per rank`: each rank its own file. `all ranks into shared file`: each rank its
    #: ranges of one file. `one per 4 ranks`, `one per node`, `rank 0`: the other ranks send to their writer. Default:
    #: `into file per rank`
    writers: Annotated[Writers, Phrase(rule="writers")]
    access: Access  #: how it is written and read
    path: PathBelow  #: directory under the root, as in data sets
    root: Root = "data"  #: tier where it is saved, as in data sets
    #: model whose tensors are saved before those of `part`
    model: Annotated[Transformer | None, Phrase("NAME")] = None
    #: how the ranks hold the state: `tensor 8 pipeline 4 data 2`, in this order, each 1 if absent; the product is the
    #: number of ranks. `... order tp-dp-pp`: neighbours are tensor-parallel, then data-parallel, then stages; `...
    #: order tp-pp-dp`: stages come before data. `... subset`: this job's ranks are the first ones of a larger job and
    #: save only their share. Default: `data $ranks`
    parallel: Annotated[Split | None, Phrase(rule="parallel")] = None
    #: writer of state that several data-parallel ranks hold: the first of them (with `writers rank N` those that share
    #: its data rank), each in turn, or all, which needs files per rank
    replicas: Annotated[Replicas, Phrase()] = "once"
    #: `by tensor`: a call ends where a tensor ends; `whole`: it continues into the next
    pieces: Annotated[Literal["by tensor", "whole"], Phrase()] = "by tensor"
    #: ranks whose files share a folder within a checkpoint; not if all ranks share one file. Default: `off`
    folder: Annotated[int, Phrase("off | per rank | per node")] = 0
    #: as in data sets; notes are those of the save. Default: the file system's
    stripe: Annotated[Stripe | None, Phrase(STRIPE)] = None
    #: rank 0 first gathers the plans of all ranks, and last writes a file that says where everything is, as PyTorch's
    #: distributed checkpoints do
    metadata: Switch = False
    #: what completes it: renaming its directory, a manifest written last, or a manifest that is not synced, see
    #: [checkpoints.md](checkpoints.md)
    commit: Annotated[Commit, Phrase()] = "rename"
    fsync: Switch = True  #: fsync, or MPI_File_sync, before the clock stops and the checkpoint is complete
    keep: Annotated[int | None, Phrase("all | COUNT")] = None  #: complete checkpoints to keep; older ones are deleted
    #: most ranks that write files at a time: the next begins when an earlier one has synced and closed its files; with
    #: files per rank and `one per N` only
    at_most: Annotated[int | None, Phrase("off | COUNT writer(s) at a time", "at most")] = None
    #: CPU time to turn objects into bytes before they are written
    serialize: Annotated[Pace | None, Phrase("PACE")] = None
    #: a save copies the state to buffers, which are flushed while steps continue. Default: `off`
    background: Annotated[Background | None, Phrase("on | off", "async")] = None
    #: another root, to which complete checkpoints are copied in the background
    drain: Annotated[str | None, Phrase("NAME", "drain to")] = None
    #: rank r + N keeps a copy of what rank r saved; N below the number of ranks
    partner: Annotated[int | None, Phrase("COUNT rank(s)")] = None

    def split(self, ranks: int) -> Split:
        """Return the split of the state over a job of `ranks` ranks."""
        return self.parallel or Split(1, 1, ranks)

    def describe_part(self, split: Split) -> str:
        """Return a text for the part of the checkpoint that a split saves; empty if it saves all of it."""
        phrases = []
        if self.model is not None and self.model.scale > 1:
            phrases.append(f"1/{self.model.scale} of the bytes of {self.model.name}")
        if split.played:
            phrases.append(f"the first {split.played} of its {split.ranks} ranks alone")
        return " and ".join(phrases)

    def complete(self, ranks: int) -> Checkpoint:
        """Return the full checkpoint, if a job of `ranks` ranks saves a part of it: at full scale and by all ranks."""
        model = self.model and replace(self.model, scale=1)
        return replace(self, model=model, parallel=replace(self.split(ranks), played=0))

    def copies(self, split: Split) -> Copies:
        """Return which data-parallel rank saves a replica: the first one, or that of a rank that writes alone."""
        if self.replicas != "once":
            return self.replicas
        own = self.writers.kind == "rank" and split.has_all_copies
        return split.coordinates(self.writers.number)[2] if own else 0

    def parts_for(self, split: Split) -> tuple[Part, ...]:
        """Return all parts in the order in which they are saved; every split has the same number of parts and sizes."""
        return _parts_for(self.model, self.parts, split)

    def digest(self, split: Split) -> str:
        """Return 16 hexadecimal digits of everything that determines the bytes and files written with this split."""
        described = {
            "name": self.name,
            "seed": self.seed,
            "parts": [asdict(part) for part in self.parts],
            "model": asdict(self.model) if self.model else None,
            "writers": asdict(self.writers),
            "split": split.describe(),
            "replicas": self.replicas,
            "folder": self.folder,
            "metadata": self.metadata,
        }
        return sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]


@lru_cache(maxsize=64)
def _parts_for(model: Transformer | None, parts: tuple[Part, ...], split: Split) -> tuple[Part, ...]:
    return (*(parts_of(model, split) if model else ()), *parts)


#: What else the field calls these settings: `language/suggest/synonyms.py` says how it is read.
OTHER_WORDS: Final = """
path
    data_folder, data_dir, data_path, dir, directory, folder, filename, file, output
    checkpoint_folder, checkpoint_dir, save_dir
root
    tier, mount, file_system
part: weights 100 MB whole | moments 100 MB total | rng 16 kB per rank | w1 4096 x 14336 of bf16 split by rows
    size, checkpoint_size, model_size -> state {} B total
    weights -> weights {}
    tensor, parts
writers: into file per rank | all ranks into shared file | one per 4 ranks | one per node | rank 0
    writer, save_by, mode
model
    model_name
parallel: tensor 8 pipeline 4 data 2 | data 8
    tensor_parallelism, tensor_parallel, tp -> tensor {}
    pipeline_parallelism, pipeline_parallel, pp -> pipeline {}
    data_parallelism, dp -> data {}
    parallelism
folder
    num_folders
at most: 4 writers at a time
    max_writers, concurrent_writers, num_writers -> {} writers at a time
keep
    max_to_keep, keep_last, save_total_limit, num_checkpoints
serialize
    serialization, pickle
async
    asynchronous, async_save, background, non_blocking
drain to
    drain, copy_to, flush_to
in flight
    max_in_flight, outstanding
fsync
    flush, sync, sync_on_close
"""
