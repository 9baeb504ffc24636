"""The backends by api: the built-in ones, and those that other packages provide by an entry point."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from dliosim.errors import UsageError
from dliosim.execute.backends.contract import Files, Reader, Writer
from dliosim.execute.backends.posix import PosixWriter
from dliosim.execute.safe_open import create_file, remove_file
from dliosim.measure.rank.meter import Meter
from dliosim.model import Access, Engine, Loop, Prepare, Restore, Save, Workload
from dliosim.model.verbs import flatten_verbs
from dliosim.plan.samples.io_requests import Calls
from dliosim.plugins import APIS

if TYPE_CHECKING:
    from mpi4py import MPI  # reader processes have no MPI

    from dliosim.execute.backends.modelled_reader import ModelledStorage


class NullReader(Reader):
    """Reads nothing, and reports all bytes as read. It does not change the buffer, and its meter counts nothing."""

    def __init__(self) -> None:
        self.meter = Meter()

    def begin_epoch(self) -> None:
        """Do nothing: there are no files."""

    def read(self, calls: Calls, into: memoryview) -> int:
        """Return the bytes that the calls ask for."""
        return int(np.add.reduce(calls.length))

    def end_epoch(self) -> None:
        """Do nothing: there are no files."""

    def close(self) -> None:
        """Do nothing: there are no files."""


@dataclass(frozen=True, slots=True)
class Backend:
    """The readers and writers of one api.

    A backend of another package opens files for each rank separately: it ignores `Files.shared`, `Files.comm` and the
    writer's communicator. It must follow `Access.open` and `Access.readers`; it never gets `cache off`, an engine or
    hints.
    """

    #: the api, as in the setting `api`
    name: str
    #: makes the reader of one thread of one rank
    reader: Callable[[Access, Files], Reader]
    #: opens an existing file, empty or laid out, for all ranks of the communicator (MPI-IO creates it); each rank may
    #: write anywhere. None if this api only reads: another one prepares the data
    writer: Callable[[Access, Path, MPI.Intracomm], Writer] | None = None


#: The classes of the built-in readers and writers; each is imported when a workload names it.
_READERS: Final[dict[tuple[str, Engine], str]] = {
    ("posix", "preadv"): "posix:PosixReader",
    ("posix", "pread"): "posix:PreadReader",
    ("posix", "mmap"): "mmap_reader:MappedReader",
    ("posix", "queued"): "async_reader:QueuedReader",
    ("mpi-independent", "preadv"): "mpiio_reader:IndependentReader",
    ("mpi-independent", "queued"): "mpiio_nonblocking:QueuedIndependentReader",
    ("mpi-collective", "preadv"): "mpiio_reader:CollectiveReader",
}
_WRITERS: Final = {"mpi-independent": "mpiio_files:IndependentWriter", "mpi-collective": "mpiio_files:CollectiveWriter"}


def _load_class(place: str) -> Any:
    module, name = place.split(":")
    return getattr(import_module(f"dliosim.execute.backends.{module}"), name)


def _make_reader(access: Access, files: Files) -> Reader:
    return cast(Reader, _load_class(_READERS[access.api, access.engine])(access, files))


def _make_writer(access: Access, path: Path, comm: MPI.Intracomm) -> Writer:
    return cast(Writer, _load_class(_WRITERS[access.api])(access, path, comm))


_BUILT_IN: Final = {
    "posix": Backend("posix", _make_reader, lambda access, path, comm: PosixWriter(access, path, create=False)),
    **{name: Backend(name, _make_reader, _make_writer) for name in _WRITERS},
}


def backend_names() -> tuple[str, ...]:
    """Return the names of all apis, those of other packages last."""
    return APIS.names()


@cache
def backend_of(name: str) -> Backend:
    """Return the backend of an api. Raises KeyError if there is none.

    Raises UsageError [R403] if the package that provides it cannot be loaded, or provides something else.
    """
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    found, origin = APIS.load(name)
    if not isinstance(found, Backend) or found.name != name:
        text = f"api `{name}`: {found!r}, from `{origin}`, is no backend of that name, see docs/dev/extending.md"
        raise UsageError(text, "R403")
    return found


def require_backends(workloads: Iterable[Workload]) -> None:
    """Load every backend that workloads name. Raises UsageError [R403] if one is missing or cannot write as needed."""
    for access, writes in chain.from_iterable(map(list_accesses, workloads)):
        try:
            backend = backend_of(access.api)
        except KeyError:
            text = f"api `{access.api}` is not available: apis are {', '.join(backend_names())}"
            raise UsageError(text, "R403") from None
        if writes:
            _require_writer(backend)
        for place in (_READERS.get((access.api, access.engine)), _WRITERS.get(access.api) if writes else None):
            if place is not None:
                _load_class(place)  # before any clock runs


def list_accesses(workload: Workload) -> Iterator[tuple[Access, bool]]:
    """Yield the access of each verb of a workload, and whether it writes."""
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


def _require_writer(backend: Backend) -> Callable[[Access, Path, MPI.Intracomm], Writer]:
    if backend.writer is None:
        text = f"api `{backend.name}` only reads: prepare data and save checkpoints by another api, like `api posix`"
        raise UsageError(text, "R403")
    return backend.writer


def open_readers(access: Access, files: Files | None, null: bool = False) -> list[Reader]:
    """Make one reader for each thread that `access` asks for, or one; in the same order on every rank.

    With `null`, and without files, they read nothing.
    """
    if null or files is None:
        return [NullReader() for _ in range(access.handles)]
    library = access.through == "library"
    make = _load_class("library_reader:LibraryReader") if library else backend_of(access.api).reader
    readers = [make(access, files) for _ in range(access.handles)]
    for number, reader in enumerate(readers):
        if reader.meter.log is not None and access.readers:
            reader.meter.log.thread = number + 1
    return readers


def model_readers(access: Access, files: Files, storage: ModelledStorage, rank: int) -> list[Reader]:
    """Make readers as `open_readers` does, which wait as on a described storage."""
    from dliosim.execute.backends.modelled_reader import ModelledReader  # most runs need none of it

    return [ModelledReader(access, files, storage, rank) for _ in range(access.handles)]


def open_writer(access: Access, path: Path, comm: MPI.Intracomm, create: bool = True) -> Writer:
    """Open a file that the ranks of `comm` write; with `create` the first rank creates or truncates it. Collective.

    Raises ExecutionError, on every rank if the file cannot be created.
    """
    if create and access.api == "posix" and comm.size == 1:
        return PosixWriter(access, path, create=True)
    return make_writer(backend_of(access.api), access, path, comm, create)


def make_writer(backend: Backend, access: Access, path: Path, comm: MPI.Intracomm, create: bool = True) -> Writer:
    """Open a writer of a given backend, as `open_writer` does. Raises UsageError [R403] if the backend only reads."""
    writer = _require_writer(backend)
    if create:
        # MPI creates its files itself, because some hints (striping) have an effect only then.
        from dliosim.execute.mpi.world import run_on_first_rank  # as above

        make = remove_file if access.is_mpi else create_file
        run_on_first_rank(comm, lambda: make(str(path)))
    return writer(access, path, comm)
