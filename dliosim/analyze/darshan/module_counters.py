"""Counters of one module of Darshan by file and rank, without the waits that are no work of a file system."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dliosim.analyze.figures import Figures, pipe_notes
from dliosim.analyze.view import find_pipes
from dliosim.readable import count as count_words
from dliosim.readable import seconds as time_words
from dliosim.trace.events import FileCounters

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
MPI_CALLS: Final = tuple(f"{how}_{side}" for how in ("INDEP", "COLL", "SPLIT", "NB") for side in ("READS", "WRITES"))

#: Seconds above which a mean open or stat waits for something else than a file system.
_LONGEST_OPEN: Final = 10.0


@dataclass(frozen=True, slots=True)
class ModuleCounters:
    """Counters of a module, 0 where Darshan has none."""

    table: FileCounters  #: the counters

    def select(self, rows: NDArray[np.bool_]) -> ModuleCounters:
        """Return some rows of the counters, with their files alone."""
        table = self.table
        numbers, file = np.unique(table.file[rows], return_inverse=True)
        return ModuleCounters(
            FileCounters(
                table.module,
                file.astype(np.int32),
                table.rank[rows],
                {name: column[rows] for name, column in table.counts.items()},
                {name: column[rows] for name, column in table.seconds.items()},
                tuple(table.files[number] for number in numbers.tolist()),
            )
        )

    def count(self, *names: str) -> NDArray[np.int64]:
        """Return the sum of some counters in each row; Darshan's -1 for unknown counts 0."""
        columns = [np.maximum(self.table.counts[name], 0) for name in names if name in self.table.counts]
        return sum(columns, np.zeros(len(self.table), np.int64))

    def time(self, *names: str) -> NDArray[np.float64]:
        """Return the sum of some times in each row, s."""
        columns = [np.nan_to_num(self.table.seconds[name]) for name in names if name in self.table.seconds]
        return sum(columns, np.zeros(len(self.table)))

    def calls(self, side: str) -> NDArray[np.int64]:
        """Return the reads or writes in each row; of MPI-IO, of all its ways."""
        name = SIDES[side][0]
        ways = [one for one in MPI_CALLS if one.endswith(name)]
        return self.count(*(ways if self.table.module == "MPI-IO" else [name, *_DAOS_CALLS[side]]))

    def add_up(self, values: NDArray[Any], groups: int, ranks: int) -> NDArray[np.float64]:
        """Return the sum of each group, with each rank's equal part of what all ranks have together; (groups,)."""
        own = self.table.rank >= 0
        total = np.zeros(groups) + np.bincount(self.table.rank[own], values[own], groups)
        total[:ranks] += values[~own].sum() / max(ranks, 1)
        return total


def leave_out_waits(whole: dict[str, ModuleCounters], figures: Figures) -> tuple[dict[str, ModuleCounters], list[str]]:
    """Return the counters without pipes and without opens longer than any file system's, and sentences on both.

    An open of a named pipe waits for its peer, on any number of threads at once. Where the log does not show the names,
    opens and stats of a rank together are longer than the job then.
    """
    tables, pipes, waited, odd, lost = {}, set(), 0.0, 0, 0.0
    for name, one in whole.items():
        is_pipe = np.append(find_pipes(one.table.files), False)[one.table.file]
        pipes |= {one.table.files[number] for number in np.unique(one.table.file[is_pipe]).tolist()}
        waited += float(one.time(*TIMES)[is_pipe].sum())
        one = one.select(~is_pipe)
        metadata = one.time("F_META_TIME")
        if metadata.sum() > max(figures.job.ranks, 1) * figures.job.seconds:
            is_long = metadata > _LONGEST_OPEN * np.maximum(one.count(*METADATA), 1)
            odd, lost = odd + int(is_long.sum()), lost + float(metadata[is_long].sum())
            one = ModuleCounters(
                replace(one.table, seconds={**one.table.seconds, "F_META_TIME": np.where(is_long, 0.0, metadata)})
            )
        tables[name] = one
    notes = list(pipe_notes(pipes, waited, figures.job.seconds))
    if odd:
        notes.append(
            f"not counted: {time_words(lost, 4)} of opens and stats of {count_words(odd, 'file')}, above "
            f"{_LONGEST_OPEN:.0f} s a call, in a job of {time_words(figures.job.seconds, 4)}: no file system takes so "
            "long; opens of named pipes wait for their peer"
        )
    return tables, notes
