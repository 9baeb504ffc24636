"""Access methods: the api, the size of a call, the reader that issues it and how far ahead it reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from dliosim.model.job import Job

#: Alignment that O_DIRECT (`cache off`) needs for offsets, lengths and memory; bytes.
PAGE: Final = 4096

Api: TypeAlias = str
"""posix, mpi-independent, mpi-collective, or the name of a backend of another package."""

MPI_APIS: Final = ("mpi-independent", "mpi-collective")
"""The apis that read and write by MPI-IO. Any other name, except posix, is a backend of another package."""

Through = Literal["direct", "library"]
By = Literal["batch", "batch in turn", "sample"]
Engine = Literal["preadv", "mmap", "queued"]
HintSet = Literal["library", "two-phase", "no-aggregation"]
Order = Literal["as planned", "by offset"]
Communicator: TypeAlias = Literal["world", "node"] | int


@dataclass(frozen=True, slots=True)
class Access:
    """An access method without any default left open."""

    api: Api = "posix"  #: backend that reads and writes
    transfer: int | None = None  #: bytes of the largest call; None: one call for each sample
    readers: int = 0  #: threads of a rank that read ahead; 0: calls are made inside the step
    by: By = "batch"  #: share of a reader: whole batches, batches in turn, or samples of each batch
    prefetch: int = 0  #: batches that readers keep ahead
    open: Literal["each sample", "each epoch", "once"] = "once"  #: lifetime of a file handle
    cache: Literal["page", "off", "memory"] = "page"  #: cache between calls and storage; `off` is O_DIRECT
    memory: int = 0  #: bytes that each rank keeps in RAM with `cache memory`, else 0
    hints: tuple[tuple[str, str], ...] = ()  #: pairs of MPI_Info, unchanged; those of `hint_set` are among them
    #: how a reader issues its calls: one after another (`preadv`; with mpi-independent MPI_File_read_at), by copying
    #: out of a mapping (`mmap`), or with up to `depth` calls in flight (`queued`)
    engine: Engine = "preadv"
    depth: int = 0  #: calls in flight with `queued`, else 0
    hint_set: HintSet = "library"  #: named set of hints
    #: order of the samples of a step in calls and in memory; mpi-collective always reads by offset
    order: Order = "as planned"
    #: ranks that open a shared file together, and read it together where that is collective: all, those of a node, or
    #: groups of this many neighbours
    communicator: Communicator = "world"
    scatter: bool = False  #: true: the first rank of each node reads for all ranks of the node
    #: `library`: the format's own library reads; `direct`: dliosim reads the extents of samples
    through: Through = "direct"

    @property
    def batches(self) -> int:
        """Batches that each rank has memory for: one in use, those ahead, and with `scatter` one that a node reads."""
        return 1 + (self.prefetch if self.readers else 0) + self.scatter

    @property
    def is_file_ordered(self) -> bool:
        """Return whether the samples of a step are read in the order of the files, and not in the order of the plan."""
        return self.order == "by offset" or self.collective

    @property
    def is_mpi(self) -> bool:
        """Return whether MPI-IO reads and writes: then ranks may open a file together, and there are hints.

        With posix, and with backends of other packages, each rank opens its files alone.
        """
        return self.api in MPI_APIS

    @property
    def collective(self) -> bool:
        """Return whether all ranks make each call together, from one thread of each rank."""
        return self.api == "mpi-collective"

    @property
    def page(self) -> int:
        """Alignment of read calls in bytes; 1 where they are not widened."""
        return PAGE if self.cache == "off" else 1

    @property
    def counts_reads(self) -> bool:
        """Return whether the kernel counts the bytes that are read as bytes of read calls.

        It does not for a mapping or a queue. For a backend of another package this is not known, and taken as no.
        """
        return self.is_mpi or (self.api == "posix" and self.engine == "preadv")


def communicator_size(communicator: Communicator, job: Job) -> int:
    """Return how many ranks open a shared file together; the last group of neighbours may be smaller."""
    if communicator == "world":
        return job.ranks
    return job.ranks_per_node if communicator == "node" else min(communicator, job.ranks)
