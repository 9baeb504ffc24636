"""Counters of one module of Darshan by file and rank, and the trace that has them."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dliosim.analyze.arrays import Bools, Floats, Ints
from dliosim.trace.events import Trace

#: Darshan's names of both directions: calls, bytes, the byte furthest behind, time.
SIDES: Final = {
    "read": ("READS", "BYTES_READ", "MAX_BYTE_READ", "F_READ_TIME"),
    "write": ("WRITES", "BYTES_WRITTEN", "MAX_BYTE_WRITTEN", "F_WRITE_TIME"),
}
#: Names of calls of DFS and DAOS, next to those.
_DAOS_CALLS: Final = {
    "read": ("READXS", "ARRAY_READS", "OBJ_FETCHES", "KV_GETS"),
    "write": ("WRITEXS", "ARRAY_WRITES", "OBJ_UPDATES", "KV_PUTS"),
}
TIMES: Final = ("F_READ_TIME", "F_WRITE_TIME", "F_META_TIME")
METADATA: Final = (
    *("OPENS", "STATS", "SEEKS", "FSYNCS", "FDSYNCS", "FLUSHES", "SYNCS", "INDEP_OPENS", "COLL_OPENS"),
    *("GLOBAL_OPENS", "LOOKUPS", "DUPS", "GET_SIZES", "PUNCHES", "REMOVES"),
    *("OBJ_OPENS", "OBJ_PUNCHES", "ARRAY_OPENS", "ARRAY_GET_SIZES", "ARRAY_SET_SIZES", "ARRAY_STATS", "KV_OPENS"),
)
#: Darshan's names of bins of sizes; `figures.access` has their ends.
BINS: Final = ["0_100", "100_1K", "1K_10K", "10K_100K", "100K_1M", "1M_4M", "4M_10M", "10M_100M", "100M_1G", "1G_PLUS"]
MPI_CALLS: Final = tuple(f"{how}_{side}" for how in ("INDEP", "COLL", "SPLIT", "NB") for side in ("READS", "WRITES"))


@dataclass(frozen=True, slots=True)
class FileCounters:
    """Counters of one module of Darshan; each row is a file as one rank used it, or all ranks together."""

    #: the module: POSIX, MPI-IO, STDIO, H5F or H5D
    module: str
    #: index into `files`; (n,)
    file: NDArray[np.int32]
    #: rank; -1 for a file that all ranks used, whose counters Darshan has added up; (n,)
    rank: NDArray[np.int32]
    #: counters by Darshan's names without the module's, such as READS and SIZE_READ_0_100; (n,)
    counts: Mapping[str, Ints]
    #: times in s by Darshan's names without the module's, such as F_READ_TIME; (n,)
    seconds: Mapping[str, Floats]
    #: paths
    files: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.file)

    def select(self, rows: Bools) -> FileCounters:
        """Return some rows of the counters, with their files alone."""
        numbers, file = np.unique(self.file[rows], return_inverse=True)
        return FileCounters(
            self.module,
            file.astype(np.int32),
            self.rank[rows],
            {name: column[rows] for name, column in self.counts.items()},
            {name: column[rows] for name, column in self.seconds.items()},
            tuple(self.files[number] for number in numbers.tolist()),
        )

    def count(self, *names: str) -> Ints:
        """Return the sum of some counters in each row; Darshan's -1 for unknown counts 0."""
        columns = [np.maximum(self.counts[name], 0) for name in names if name in self.counts]
        return sum(columns, np.zeros(len(self), np.int64))

    def time(self, *names: str) -> Floats:
        """Return the sum of some times in each row, s."""
        columns = [np.nan_to_num(self.seconds[name]) for name in names if name in self.seconds]
        return sum(columns, np.zeros(len(self)))

    def calls(self, side: str) -> Ints:
        """Return the reads or writes in each row; of MPI-IO, of all its ways."""
        name = SIDES[side][0]
        ways = [one for one in MPI_CALLS if one.endswith(name)]
        return self.count(*(ways if self.module == "MPI-IO" else [name, *_DAOS_CALLS[side]]))

    def common_sizes(self) -> list[tuple[Ints, Ints]]:
        """Return the commonest four sizes in each row, of reads and writes together, each with its calls."""
        return [(self.count(f"ACCESS{slot}_ACCESS"), self.count(f"ACCESS{slot}_COUNT")) for slot in range(1, 5)]

    def is_of(self, paths: Set[str]) -> Bools:
        """Return which rows are of some files; (n,)."""
        return np.isin(self.file, [number for number, path in enumerate(self.files) if path in paths])

    def sum_files(self, values: NDArray[Any]) -> list[float]:
        """Return the sum of each file."""
        sums: list[float] = np.bincount(self.file, values, len(self.files)).tolist()
        return sums

    def add_up(self, values: NDArray[Any], groups: int, ranks: int) -> Floats:
        """Return the sum of each group, with each rank's equal part of what all ranks have together; (groups,)."""
        own = self.rank >= 0
        total = np.zeros(groups) + np.bincount(self.rank[own], values[own], groups)
        total[:ranks] += values[~own].sum() / max(ranks, 1)
        return total


@dataclass(frozen=True, slots=True)
class LogTrace(Trace):
    """The trace of a job from its logs."""

    #: counters of files: one table for each module
    counters: tuple[FileCounters, ...] = ()
