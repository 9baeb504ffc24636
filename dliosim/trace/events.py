"""The table of events: what happened, where, when; the same for runs of dliosim and for traces of other tools.

Columns are numpy arrays of one length, so that ten million events are analysed without a Python object each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

#: What an event is, by `Events.kind`. The first seven are operations on files; "other" is what no analysis knows.
KINDS: Final = (
    "open", "close", "read", "write", "fsync", "seek", "metadata", "compute", "data wait", "sync", "decode",
    "preprocess", "save", "restore", "phase", "epoch", "load", "other",
)  # fmt: skip

#: Operations on files.
OPERATIONS: Final = KINDS[: KINDS.index("compute")]

#: The layer that an event belongs to, by `Events.layer`, from the application down to the system's calls.
LAYERS: Final = (
    "application", "loader", "reader", "checkpoint", "library", "mpi-io collective", "mpi-io", "stdio", "posix",
)  # fmt: skip

#: The value of `file`, `offset`, `asked`, `moved`, `epoch` and `step` that is not known, or does not apply.
UNKNOWN: Final = -1


def kind_number(kind: str) -> int:
    """Return the number of a kind in `KINDS`."""
    return KINDS.index(kind)


def layer_number(layer: str) -> int:
    """Return the number of a layer in `LAYERS`."""
    return LAYERS.index(layer)


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the job."""

    #: rank in the job; -1 if the trace does not say
    rank: int
    #: id of the process; -1 if the trace does not say
    pid: int
    #: name of its node; empty if the trace does not say
    host: str = ""


@dataclass(frozen=True, slots=True)
class Events:
    """Events, one row each, in order of process and, in each process, of `begin`. `COLUMNS` are (n,)."""

    #: index into `KINDS`
    kind: NDArray[np.int8]
    #: index into `LAYERS`
    layer: NDArray[np.int8]
    #: index into `names`
    name: NDArray[np.int16]
    #: index into `processes`
    process: NDArray[np.int32]
    #: thread of the process: for a run, 0 its main thread, from 1 on its readers
    thread: NDArray[np.int32]
    #: ns since the job's start, on one clock
    begin: NDArray[np.int64]
    #: ns
    duration: NDArray[np.int64]
    #: index into `files`
    file: NDArray[np.int32]
    #: first byte in the file
    offset: NDArray[np.int64]
    #: bytes asked for
    asked: NDArray[np.int64]
    #: bytes that the call returned
    moved: NDArray[np.int64]
    #: number of the epoch, from 1
    epoch: NDArray[np.int32]
    #: number of the step in its epoch, from 1
    step: NDArray[np.int32]
    #: what the source calls its events, such as pread64
    names: tuple[str, ...] = ()
    #: paths
    files: tuple[str, ...] = ()
    #: the processes
    processes: tuple[Process, ...] = ()

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def end(self) -> NDArray[np.int64]:
        """The end of each event, ns since the job's start; (n,)."""
        return self.begin + self.duration

    def select(self, rows: NDArray[np.bool_] | NDArray[np.int64] | slice) -> Events:
        """Return some rows."""
        return replace(self, **{column: getattr(self, column)[rows] for column in COLUMNS})

    def is_kind(self, *kinds: str) -> NDArray[np.bool_]:
        """Return which rows are of one of the kinds; (n,)."""
        return np.isin(self.kind, [kind_number(kind) for kind in kinds])

    def is_layer(self, *layers: str) -> NDArray[np.bool_]:
        """Return which rows are of one of the layers; (n,)."""
        return np.isin(self.layer, [layer_number(layer) for layer in layers])


#: The columns of `Events`, and the types of their numbers.
COLUMNS: Final[dict[str, np.dtype[Any]]] = {
    name: np.dtype(get_args(get_args(hint)[1])[0])
    for name, hint in get_type_hints(Events).items()
    if get_origin(hint) is np.ndarray
}


@dataclass(frozen=True, slots=True)
class Trace:
    """The events of one job, from one source, and the known gaps in them."""

    #: what wrote it: dliosim, DFTracer, Darshan counters, Darshan DXT
    source: str
    #: the file or folder that it was read from
    path: str
    #: all events; of a log that has only counters no rows, but its processes
    events: Events
    #: length of the job, ns
    duration: int
    #: events of the source that are no row here, such as metadata; by what they are
    left_out: dict[str, int] = field(default_factory=dict)
    #: sentences about what is missing or damaged; a trace with any is incomplete
    incomplete: tuple[str, ...] = ()
    #: sentences about what a reader of the figures should know
    notes: tuple[str, ...] = ()
    #: command line of the job; empty if it is not known
    command: str = ""
    #: settings of each loop of a run of dliosim, as -D gives them, by its name
    settings: dict[str, dict[str, str]] = field(default_factory=dict)


def make_events(
    columns: Mapping[str, NDArray[Any]],
    names: tuple[str, ...] = (),
    files: tuple[str, ...] = (),
    processes: tuple[Process, ...] = (),
) -> Events:
    """Return a table; columns that are not given are 0, or `UNKNOWN` if 0 is a value. `kind` must be given."""
    rows = len(columns["kind"])
    whole: dict[str, Any] = {}
    for column, kind in COLUMNS.items():
        absent = 0 if column in ("thread", "name", "layer", "process", "begin", "duration") else UNKNOWN
        whole[column] = np.asarray(columns.get(column, np.full(rows, absent)), kind)
    return Events(**whole, names=names, files=files, processes=processes)
