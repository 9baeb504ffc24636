"""Access methods: the api, the size of a call, the readers that issue it, and how far they read ahead."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, TypeAlias

from dliosim.model.direct_io import DIRECT_ALIGNMENT
from dliosim.model.job import MAX_RANKS, Job
from dliosim.model.phrase import Phrase

#: posix, mpi-independent, mpi-collective, or the name of a backend of another package
Api: TypeAlias = str

#: The apis that read and write by MPI-IO. Any other name, except posix, is a backend of another package.
MPI_APIS: Final = ("mpi-independent", "mpi-collective")

Through = Literal["direct", "library"]
By = Literal["batch", "batch in turn", "sample"]
Engine = Literal["preadv", "pread", "mmap", "queued"]
HintSet = Literal["library", "two-phase", "no-aggregation"]
Order = Literal["as planned", "by offset"]
Communicator: TypeAlias = Literal["world", "node"] | int

#: The blocks that read. The others write, and take those settings alone that have no list of blocks.
READING: Final = ("access", "train", "evaluate", "infer")
DEPTH: Final = 32  # default calls in flight of `engine queued`; fast storage needs at least this many
MAX_DEPTH: Final = 32768  # entries of the largest io_uring of the kernel
MAX_TRANSFER: Final = (1 << 31) - 1  # of one call, in bytes


@dataclass(frozen=True, slots=True)
class Access:
    """An access method without any default left open."""

    #: backend. `posix`: preadv (see `engine`) and pwritev. `mpi-independent`: MPI_File_read_at, a call per sample, on a
    #: handle that all ranks open together if they share the file. `mpi-collective`: one view and one collective call
    #: per step for the whole batch, in file order; needs one file shared by all ranks. Any other name: a backend of
    #: another package, which refuses `engine`, `hint`, `hints`, `communicator` and `scatter`
    api: Annotated[Api, Phrase(rule="api")] = "posix"
    #: largest single call (below 2 GiB; with `cache off` at least 4 KiB); `whole sample`: one call per sample. Default:
    #: reading `whole sample`; writing `4 MiB`
    transfer: Annotated[int | None, Phrase(f"whole sample | SIZE>=1<={MAX_TRANSFER}")] = None
    #: threads per rank that read ahead; with 0 the step itself reads. `4 processes`: processes, with files and an
    #: interpreter of their own, as the workers of PyTorch's DataLoader; `api posix` alone. `4 by batch`: the next free
    #: reader reads a whole batch; `in turn`: reader k mod K reads batch k, as in that DataLoader; `by sample`: all
    #: readers share a batch. Default: 0, or 1 if only `prefetch` is given; `by batch`
    readers: Annotated[int, Phrase(rule="readers", blocks=READING)] = 0
    by: By = "batch"  #: share of a reader: whole batches, batches in turn, or samples of each batch
    #: batches that readers keep ahead; no effect without readers. Default: 2 if there are readers
    prefetch: Annotated[int, Phrase(f"COUNT<={1 << 20} batch(es)", blocks=READING)] = 0
    #: lifetime of a file handle, per reader. Default: `each sample` for `layout file per sample`, else `once`
    open: Annotated[Literal["each sample", "each epoch", "once"], Phrase(blocks=READING)] = "once"
    #: `page`: the page cache as it is. `off`: O_DIRECT, posix only. To read raw samples they must be aligned (`align 4
    #: KiB`); calls in other formats and in existing files are widened to whole pages, 4 KiB or what the file system
    #: asks for; unaligned parts of writes go through the page cache. `memory`: each rank keeps its first bytes in
    #: memory after the first epoch, up to this size; only for reading, and not if a sample is several ranges or shares
    #: stored units (`datasets` above 1, `compress`, a `chunk` smaller than a sample, `parquet`)
    cache: Annotated[Literal["page", "off", "memory"], Phrase("page | off | memory SIZE")] = "page"
    memory: int = 0  #: bytes that each rank keeps in RAM with `cache memory`, else 0
    #: `direct`: the `api` reads the ranges of the file that hold a sample. `library`: the format's own library reads
    #: (`hdf5`, `npy`, `npz`, `parquet`; `api posix`, `hdf5` also by MPI-IO if built for it). It makes its own calls, so
    #: it refuses `engine`, `transfer`, `cache off`, `hint`, `hints`, `scatter` and `readers ... by sample`
    through: Annotated[Through, Phrase(blocks=READING)] = "direct"
    #: how a reader makes its calls. `preadv`: one after the other (with `mpi-independent` MPI_File_read_at). `pread`,
    #: posix only: for libraries that intercept calls (DAOS) but do not see Python's preadv. `mmap`, posix only: batches
    #: are copied from mapped files; not with `cache off` or `transfer`. `queued`: up to `depth` calls per reader in
    #: flight (1 to 32768, default 32), mostly with `cache off`; with `mpi-independent` by MPI_File_iread_at, and MPICH
    #: then issues one call at a time per open file. `mpi-collective` takes no `engine`
    engine: Annotated[Engine, Phrase("preadv | pread | mmap | queued [depth COUNT]", blocks=READING)] = "preadv"
    depth: int = 0  #: calls in flight with `queued`, else 0
    #: set of hints. `library`: the MPI library's defaults. `two-phase`, `two-phase 4 aggregators buffer 16 MiB`:
    #: collective buffering on and data sieving off, for reads and writes; by default ROMIO takes one aggregator per
    #: node. `no-aggregation`: both off, so a collective call makes independent reads, and tables say so
    hint_set: Annotated[HintSet, Phrase(keyword="hints", rule="hints")] = "library"
    #: MPI_Info pair `"romio_cb_read" = "enable"`, passed on unchanged; no effect on `api posix`; may be repeated for
    #: other keys. Default: those of `hints`
    hints: Annotated[tuple[tuple[str, str], ...], Phrase(keyword="hint", rule="hint")] = ()
    #: order of a step's samples in calls and in memory: `as planned` by the shuffle, or `by offset` in file order, the
    #: only order of collective calls. Default: `as planned`; with `api mpi-collective` `by offset`
    order: Annotated[Order, Phrase(blocks=READING)] = "as planned"
    #: ranks that open a shared file together and, with `api mpi-collective`, read it together: all, those of a node, or
    #: groups of N neighbours (`1 rank`: as on MPI_COMM_SELF; the last group may be smaller). No effect with `api
    #: posix`; checkpoints use all ranks
    communicator: Annotated[Communicator, Phrase(f"world | node | COUNT<={MAX_RANKS} rank(s)", blocks=READING)] = (
        "world"
    )
    #: `by node`: the first rank of each node reads the batches of all its ranks and sends each its own (MPI_Scatterv);
    #: `api posix` and `mpi-independent`, without `readers`. Calls and bytes count on the rank that makes them; the
    #: others are in data wait meanwhile
    scatter: Annotated[bool, Phrase("by node | off", blocks=READING)] = False
    processes: bool = False  #: readers are processes, not threads

    #: alignment of O_DIRECT in bytes: what the file systems of a run ask for (`execute.node.statx`), else 4096
    alignment: int = field(default=DIRECT_ALIGNMENT, compare=False)

    @property
    def batches(self) -> int:
        """Batches that each rank has memory for: the batches that its readers read ahead, at least one."""
        return max(self.prefetch, 1) if self.readers else 1

    @property
    def handles(self) -> int:
        """Readers of a rank that have open files of their own; collective calls come from one thread."""
        return 1 if self.collective else max(1, self.readers)

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
        """Alignment of read calls in bytes; 1 if they are not widened."""
        return self.alignment if self.cache == "off" else 1

    @property
    def counts_reads(self) -> bool:
        """Return whether the kernel counts the bytes that are read as bytes of read calls.

        It does not for a mapping or a queue. For a backend of another package this is unknown, and taken as no.
        """
        return self.is_mpi or (self.api == "posix" and self.engine in ("preadv", "pread"))


def write_readers(number: int, processes: bool) -> str:
    """Return the setting `readers` for a number of readers, without `by`."""
    return f"{number} processes" if number and processes else str(number)


def communicator_size(communicator: Communicator, job: Job) -> int:
    """Return how many ranks open a shared file together; the last group of neighbours may be smaller."""
    if communicator == "world":
        return job.ranks
    return job.ranks_per_node if communicator == "node" else min(communicator, job.ranks)


#: What else the field calls these settings: `language/suggest/synonyms.py` says how it is read.
OTHER_WORDS: Final = """
api: posix | mpi-independent | mpi-collective
    ioapi, io_api, backend, interface, method, access_method, io_method
    collective -> mpi-collective | mpi-independent
    mpiio -> mpi-independent | posix
transfer
    transfer_size, bs, blocksize, io_size, read_size, request_size, call_size -> {} B
readers: 4 | 4 by batch | 4 by batch in turn | 4 by sample | 4 processes | 4 processes by batch in turn
    num_workers, read_threads, reader_threads, nthreads, num_threads, threads, workers
    num_parallel_calls, num_parallel_reads, num_readers, interleave, cycle_length
prefetch
    prefetch_size, prefetch_factor, prefetch_batches, prefetch_buffer_size, read_ahead -> {} batches
open
    file_open, keep_open
cache
    odirect, o_direct, direct, direct_io -> off | page
    buffered, page_cache -> page | off
    caching
through
    library, use_library -> library | direct
engine
    ioengine, io_engine
    iodepth, io_depth, queue_depth -> queued depth {}
    aio -> queued | preadv
    mmap -> mmap | preadv
hints: library | two-phase | two-phase 4 aggregators buffer 16 MiB | no-aggregation
    collective_buffering -> two-phase | no-aggregation
    aggregators -> two-phase {} aggregators
hint: "romio_cb_read" = "enable"
    mpi_info, mpi_hint
order
    sort, sort_by_offset -> by offset | as planned
communicator
    comm
scatter
    scatterv -> by node | off
"""
