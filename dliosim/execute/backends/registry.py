"""Which backend reads or writes: one entry an api, and those that other packages bring by an entry point."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from mpi4py import MPI

from dliosim.errors import UsageError
from dliosim.execute.backends.async_reader import QueuedReader
from dliosim.execute.backends.contract import Reader, Writer
from dliosim.execute.backends.library_reader import LibraryReader
from dliosim.execute.backends.mmap_reader import MappedReader
from dliosim.execute.backends.mpiio_nonblocking import QueuedIndependentReader
from dliosim.execute.backends.mpiio_reader import CollectiveReader, IndependentReader
from dliosim.execute.backends.mpiio_writer import CollectiveWriter, IndependentWriter
from dliosim.execute.backends.null import NullReader
from dliosim.execute.backends.posix import PosixReader, PosixWriter
from dliosim.execute.mpi.world import run_on_first_rank
from dliosim.execute.safe_open import create_file, remove_file
from dliosim.formats.registry import find_entry_points
from dliosim.model import Access, Dataset, Engine, Loop, Prepare, Restore, Save, Workload
from dliosim.model.verbs import flatten_verbs

GROUP: Final = "dliosim.backends"


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


@dataclass(frozen=True, slots=True)
class Backend:
    """How files are read and written by one api.

    `reader` makes what one thread of one rank reads with. `writer` opens a file that is there already, empty or laid
    out (with MPI-IO it makes it), for all ranks of the communicator, of which each may write anywhere; None where this
    api only reads: then data are prepared by another one.

    Another package's backend opens for each rank alone: `Files.shared`, `Files.comm` and the writer's communicator are
    none of its business. `Access.open` and `Access.readers` are; it is never given `cache off`, an engine or hints to
    act on.
    """

    name: str
    reader: Callable[[Access, Files], Reader]
    writer: Callable[[Access, Path, MPI.Intracomm], Writer] | None = None


_ENGINES: dict[Engine, Callable[[Access, Path, Callable[[int], str], Callable[[int], int]], Reader]] = {
    "preadv": PosixReader,
    "mmap": MappedReader,
    "queued": QueuedReader,
}

_INDEPENDENT: dict[Engine, Callable[[Access, Path, Callable[[int], str], bool, MPI.Intracomm], Reader]] = {
    "preadv": IndependentReader,
    "queued": QueuedIndependentReader,
}

_BUILT_IN: Final = {
    backend.name: backend
    for backend in (
        Backend(
            "posix",
            lambda access, files: _ENGINES[access.engine](access, files.directory, files.name, files.size),
            lambda access, path, comm: PosixWriter(access, path, create=False),
        ),
        Backend(
            "mpi-independent",
            lambda access, files: _INDEPENDENT[access.engine](
                access, files.directory, files.name, files.shared, files.comm
            ),
            IndependentWriter,
        ),
        Backend(
            "mpi-collective",
            lambda access, files: CollectiveReader(access, files.directory, files.name, files.comm),
            CollectiveWriter,
        ),
    )
}

#: What a phase is said to have read by where it is none of an api.
_RESERVED: Final = {"null", "library"}


def backend_names() -> tuple[str, ...]:
    """Names of all apis, those of other packages last."""
    others = {point.name for point in find_entry_points(GROUP)} - _RESERVED - set(_BUILT_IN)
    return (*_BUILT_IN, *sorted(others))


@cache
def backend_of(name: str) -> Backend:
    """The backend of an api; KeyError where there is none.

    UsageError [R403] where the package that brings it cannot be loaded, or brings something else.
    """
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    point = next((point for point in find_entry_points(GROUP) if point.name == name), None)
    if point is None or name in _RESERVED:
        raise KeyError(name)
    try:
        found = point.load()
    except Exception as error:  # whatever another package's import raises
        text = f"api `{name}` cannot be loaded from `{point.value}`: {type(error).__name__}: {error}"
        raise UsageError(text, "R403") from error
    if not isinstance(found, Backend) or found.name != name:
        text = f"api `{name}`: {found!r}, from `{point.value}`, is no backend of that name, see docs/extending.md"
        raise UsageError(text, "R403")
    return found


def require_backends(workloads: Iterable[Workload]) -> None:
    """Load every backend that workloads name. Raises UsageError [R403] where one is missing or cannot do its part."""
    for workload in workloads:
        for access, writes in _list_accesses(workload):
            _require_backend(access, writes)


def _list_accesses(workload: Workload) -> Iterator[tuple[Access, bool]]:
    """How the verbs of a workload read and write, and which of the two."""
    for verb, _ in flatten_verbs(workload.verbs):
        if isinstance(verb, Loop):
            for loop in (verb, *(evaluation.loop for evaluation in verb.evaluations)):
                yield loop.access, False
                for cadence in loop.checkpoints:
                    yield workload.checkpoint(cadence.checkpoint).access, True
        elif isinstance(verb, Prepare):
            yield verb.access, True
        elif isinstance(verb, Save | Restore):
            yield workload.checkpoint(verb.checkpoint).access, isinstance(verb, Save)


def _require_backend(access: Access, writes: bool) -> None:
    try:
        backend = backend_of(access.api)
    except KeyError:
        text = f"api `{access.api}` is not available: apis are {', '.join(backend_names())}"
        raise UsageError(text, "R403") from None
    if writes and backend.writer is None:
        raise UsageError(_read_only_message(backend), "R403")


def _read_only_message(backend: Backend) -> str:
    return f"api `{backend.name}` only reads: prepare data and save checkpoints by another api, like `api posix`"


def open_readers(access: Access, files: Files, null: bool = False) -> list[Reader]:
    """A reader for each of the threads that `access` asks for, or one; on every rank in the same order.

    Collective calls come from one thread, so mpi-collective has one reader however many are asked for.
    """
    count = 1 if access.collective else max(1, access.readers)
    if null:
        return [NullReader() for _ in range(count)]
    if access.through == "library":
        directory, name, comm, dataset = files.directory, files.name, files.comm, files.dataset
        return [LibraryReader(access, directory, name, comm, dataset) for _ in range(count)]
    backend = backend_of(access.api)
    return [backend.reader(access, files) for _ in range(count)]


def open_writer(access: Access, path: Path, comm: MPI.Intracomm, create: bool = True) -> Writer:
    """Open a file that the ranks of `comm` write; with `create` its first rank makes or empties it before. Collective.

    Raises ExecutionError, on every rank if the file cannot be made.
    """
    if create and access.api == "posix" and comm.size == 1:
        return PosixWriter(access, path, create=True)
    return make_writer(backend_of(access.api), access, path, comm, create)


def make_writer(backend: Backend, access: Access, path: Path, comm: MPI.Intracomm, create: bool = True) -> Writer:
    """As `open_writer`, by a backend at hand. UsageError [R403] where it only reads."""
    if backend.writer is None:
        raise UsageError(_read_only_message(backend), "R403")
    if create:
        # MPI makes its files itself, because some hints (of striping) count only then.
        make = remove_file if access.is_mpi else create_file
        run_on_first_rank(comm, lambda: make(str(path)))
    return backend.writer(access, path, comm)
