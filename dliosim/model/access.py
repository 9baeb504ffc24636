"""How bytes are read or written: the api, the size of a call, who issues it and how far ahead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from dliosim.model.job import Job

#: Bytes to multiples of which O_DIRECT (`cache off`) wants offsets, lengths and memory aligned.
PAGE: Final = 4096

Api: TypeAlias = str
"""posix, mpi-independent, mpi-collective, or the name of a backend that another package brings."""

MPI_APIS: Final = ("mpi-independent", "mpi-collective")
"""The apis by which MPI-IO reads and writes; any other name but posix is that of another package's backend."""

Through = Literal["direct", "library"]
By = Literal["batch", "batch in turn", "sample"]
Engine = Literal["preadv", "mmap", "queued"]
HintSet = Literal["library", "two-phase", "no-aggregation"]
Order = Literal["as planned", "by offset"]
Communicator: TypeAlias = Literal["world", "node"] | int


@dataclass(frozen=True, slots=True)
class Access:
    """An access method with nothing left to default.

    `transfer` is the largest single call in bytes; None is a call a sample. `readers` threads keep `prefetch` batches
    ahead; 0 readers read inside the step. `open` is the lifetime of a handle. `memory` is the bytes that each rank
    keeps in RAM with `cache memory`, and 0 otherwise. `engine` is how each reader issues its calls: one after the other
    (`preadv`, which with mpi-independent means MPI_File_read_at), out of a mapping, or with up to `depth` of them in
    flight (`queued`; 0 otherwise). `hints` are MPI_Info pairs, untouched, with those of `hint_set` among them.
    `order` is how the samples of a step follow each other in calls and in memory; by offset with mpi-collective,
    whatever it says. `communicator` is which ranks open a shared file together, and read it together where that is
    collective: all, those of a node, or as many neighbours. With `scatter` the first rank of each node reads for all of
    its ranks. `through` library means that the format's own library reads; direct, that the ranges of samples are read.
    """

    api: Api = "posix"
    transfer: int | None = None
    readers: int = 0
    by: By = "batch"
    prefetch: int = 0
    open: Literal["each sample", "each epoch", "once"] = "once"
    cache: Literal["page", "off", "memory"] = "page"
    memory: int = 0
    hints: tuple[tuple[str, str], ...] = ()
    engine: Engine = "preadv"
    depth: int = 0
    hint_set: HintSet = "library"
    order: Order = "as planned"
    communicator: Communicator = "world"
    scatter: bool = False
    through: Through = "direct"

    @property
    def batches(self) -> int:
        """Batches that each rank needs memory for: one in use, those ahead, and its share of who reads for it."""
        return 1 + (self.prefetch if self.readers else 0) + self.scatter

    @property
    def is_file_ordered(self) -> bool:
        """Whether the samples of a step are read in the order of the files, and not of the plan."""
        return self.order == "by offset" or self.collective

    @property
    def is_mpi(self) -> bool:
        """Whether MPI-IO reads and writes: ranks may open a file together, and there are hints.

        With posix, and with the backends of other packages, each rank opens its files for itself.
        """
        return self.api in MPI_APIS

    @property
    def collective(self) -> bool:
        """Whether all ranks make each call together, from one thread of each."""
        return self.api == "mpi-collective"

    @property
    def page(self) -> int:
        """Bytes to multiples of which reading calls are widened."""
        return PAGE if self.cache == "off" else 1

    @property
    def counts_reads(self) -> bool:
        """Whether the kernel counts what is read as bytes of read calls: not out of a mapping or a queue.

        How another package's backend reads, nobody knows here.
        """
        return self.is_mpi or (self.api == "posix" and self.engine == "preadv")


def communicator_size(communicator: Communicator, job: Job) -> int:
    """How many ranks open a shared file together: neighbours, of whom the last may be fewer."""
    if communicator == "world":
        return job.ranks
    return job.ranks_per_node if communicator == "node" else min(communicator, job.ranks)
