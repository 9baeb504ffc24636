"""Kinds and layers of what DFTracer records: calls of libraries, and functions of DLIO and of PyTorch programs."""

from __future__ import annotations

import re
from typing import Final

from dliosim.trace.events import KINDS, LAYERS, kind_number, layer_number
from dliosim.trace.system_calls import kind_of_call

#: Rules for everything else, the first that matches: category, end of the name, kind, layer.
_RULES: Final = tuple(
    (re.compile(category), re.compile(rf"(?:^|[.:])(?:{ends})$"), kind, layer)
    for category, ends, kind, layer in (
        ("hdf5", "H5[DA]?read|read", "read", "library"),
        ("hdf5", "H5[DA]?write|write", "write", "library"),
        ("hdf5", "H5[FD]?(?:open|create)|open", "open", "library"),
        ("hdf5", "H5[FD]?close|close", "close", "library"),
        ("hdf5", ".*", "other", "library"),
        ("mpi", ".*MPI_File_(?:i?read)(?:_at|_shared)?_(?:all|ordered).*", "read", "mpi-io collective"),
        ("mpi", ".*MPI_File_(?:i?write)(?:_at|_shared)?_(?:all|ordered).*", "write", "mpi-io collective"),
        ("mpi", ".*MPI_File_(?:i?read).*", "read", "mpi-io"),
        ("mpi", ".*MPI_File_(?:i?write).*", "write", "mpi-io"),
        ("mpi", ".*MPI_File_open", "open", "mpi-io collective"),
        ("mpi", ".*MPI_File_close", "close", "mpi-io collective"),
        ("mpi", ".*MPI_File_sync", "fsync", "mpi-io collective"),
        ("mpi", ".*MPI_File_.*", "metadata", "mpi-io"),
        ("mpi", ".*", "sync", "application"),
        ("reader", "preprocess", "preprocess", "reader"),
        ("reader", ".*", "load", "reader"),
        ("data_?loader|data", "(?:loop|fetch|fetch-data|<module>)[.]iter", "data wait", "application"),
        ("data_?loader|data", ".*(?:yield|block)", "other", "application"),
        ("data_?loader|data", "__getitem__|__next__|item", "load", "loader"),
        ("data_?loader|data", "preprocess", "preprocess", "loader"),
        ("data_?loader|data", ".*", "other", "loader"),
        ("ai_framework|checkpoint", "checkpoint|save_checkpoint|save|capture", "save", "checkpoint"),
        ("checkpoint", "load_checkpoint|load|restore|restart", "restore", "checkpoint"),
        ("checkpoint", ".*", "other", "checkpoint"),
        ("ai_framework|compute", "compute|cpu|forward|backward|step", "compute", "application"),
        ("comm", ".*", "sync", "application"),
        ("dlio_benchmark", "_train", "epoch", "application"),
        ("dlio_benchmark", "run|_eval", "phase", "application"),
        ("pipeline", "epoch|epoch[.]block", "epoch", "application"),
        ("pipeline", "(?:train|evaluate|test)(?:[.]block)?", "phase", "application"),
    )
)


def classify_call(category: str, name: str) -> tuple[int, int]:
    """Return the numbers of the kind and of the layer of an event by its category and its name."""
    layer, _, kind = category.partition(": ")
    if layer in LAYERS and kind in KINDS:
        # An export of dliosim, of what category and name would not say otherwise.
        return kind_number(kind), layer_number(layer)
    category = category.lower()
    if category in ("posix", "stdio"):
        kind, layer = kind_of_call(name), category
    else:
        rules = (rule for rule in _RULES if rule[0].fullmatch(category) and rule[1].search(name))
        *_, kind, layer = next(rules, ("other", "application"))
    return kind_number(kind), layer_number(layer)
