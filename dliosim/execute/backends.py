"""Which backend reads or writes: one entry an api, and for reading those of posix's engines and the null backend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mpi4py import MPI

from dliosim.execute.backend import Reader, Writer
from dliosim.execute.libraryreading import LibraryReader
from dliosim.execute.mapped import MappedReader
from dliosim.execute.mpiio import CollectiveWriter, IndependentWriter
from dliosim.execute.mpiqueued import QueuedIndependentReader
from dliosim.execute.mpireading import CollectiveReader, IndependentReader
from dliosim.execute.null import NullReader
from dliosim.execute.opening import create_file, first_alone, remove_file
from dliosim.execute.posix import PosixReader, PosixWriter
from dliosim.execute.queued import QueuedReader
from dliosim.model import Access, Dataset, Engine


@dataclass(frozen=True, slots=True)
class Files:
    """The files that a reader reads: paths below `directory` and planned bytes, both by number.

    `shared` is whether there is one file only, which all ranks of `comm` open together. With mpi-collective nobody may
    use `comm` on another thread than the one that reads. `dataset` is what a format's library is told; None where the
    files are no data set's.
    """

    directory: Path
    name: Callable[[int], str]
    size: Callable[[int], int]
    shared: bool
    comm: MPI.Intracomm
    dataset: Dataset | None = None


_ENGINES: dict[Engine, Callable[[Access, Path, Callable[[int], str], Callable[[int], int]], Reader]] = {
    "preadv": PosixReader,
    "mmap": MappedReader,
    "queued": QueuedReader,
}

_INDEPENDENT: dict[Engine, Callable[[Access, Path, Callable[[int], str], bool, MPI.Intracomm], Reader]] = {
    "preadv": IndependentReader,
    "queued": QueuedIndependentReader,
}

_READERS: dict[str, Callable[[Access, Files], Reader]] = {
    "posix": lambda access, files: _ENGINES[access.engine](access, files.directory, files.name, files.size),
    "mpi-independent": lambda access, files: _INDEPENDENT[access.engine](
        access, files.directory, files.name, files.shared, files.comm
    ),
    "mpi-collective": lambda access, files: CollectiveReader(access, files.directory, files.name, files.comm),
    "library": lambda access, files: LibraryReader(access, files.directory, files.name, files.comm, files.dataset),
    "null": lambda access, files: NullReader(),
}

_WRITERS: dict[str, Callable[[Access, Path, MPI.Intracomm], Writer]] = {
    "posix": lambda access, path, comm: PosixWriter(access, path, create=False),
    "mpi-independent": IndependentWriter,
    "mpi-collective": CollectiveWriter,
}


def open_readers(access: Access, files: Files, null: bool = False) -> list[Reader]:
    """A reader for each of the threads that `access` asks for, or one; on every rank in the same order.

    Collective calls come from one thread, so mpi-collective has one reader however many are asked for.
    """
    count = 1 if access.api == "mpi-collective" else max(1, access.readers)
    make = _READERS["null" if null else "library" if access.through == "library" else access.api]
    return [make(access, files) for _ in range(count)]


def open_writer(access: Access, path: Path, comm: MPI.Intracomm, create: bool = True) -> Writer:
    """Open a file that the ranks of `comm` write; with `create` its first rank makes or empties it before. Collective.

    Raises ExecutionError, on every rank if the file cannot be made.
    """
    if create and access.api == "posix" and comm.size == 1:
        return PosixWriter(access, path, create=True)
    if create:
        # MPI makes its files itself, because some hints (of striping) count only then.
        make = create_file if access.api == "posix" else remove_file
        first_alone(comm, lambda: make(str(path)))
    return _WRITERS[access.api](access, path, comm)
