"""Reads and writes in the text of Darshan's DXT, as darshan-dxt-parser prints it: a block for each file and rank.

Times have nine digits, where Darshan has four: most reads from memory are shorter than its 0.1 ms.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

import numpy as np

from dliosim.analyze.arrays import Ints, find_starts
from dliosim.analyze.export.output import encode_text, open_text
from dliosim.analyze.export.rows import escape_percent, format_rows, rank_of, split_blocks, split_time
from dliosim.readable import printable
from dliosim.trace.events import UNKNOWN, Events, Trace, kind_number, layer_number

_MODULES: Final = {"X_POSIX": ("posix",), "X_MPIIO": ("mpi-io", "mpi-io collective")}
_NAMES: Final = {"X_POSIX": "DXT_POSIX", "X_MPIIO": "DXT_MPIIO"}
_VERBS: Final = ("read", "write")
_WRITE: Final = kind_number("write")
_SECOND: Final = 1_000_000_000
_COLUMNS: Final = "# Module    Rank  Wt/Rd  Segment          Offset       Length    Start(s)      End(s)\n"


def write_dxt(trace: Trace, path: str) -> list[str]:
    """Write the reads and writes of a trace; return sentences about those that are not in it. Raises ExecutionError."""
    events = trace.events
    written = 0
    with open_text(path) as out:
        out.write("".join(f"# {line}\n" for line in _describe(trace)))
        for module, layers in _MODULES.items():
            rows = _choose_rows(events, layers)
            written += len(rows)
            if len(rows):
                stars = "# ***************************************************\n"
                out.write(f"\n{stars}# {_NAMES[module]} module data\n{stars}")
            for text in _format_module(events.select(rows), module):
                out.write(text)
    transfers = int(events.is_kind(*_VERBS).sum())
    if written == transfers:
        return []
    return [
        f"{transfers - written:_} of {transfers:_} reads and writes are left out: DXT has those by POSIX and MPI-IO "
        "whose file and offset are known"
    ]


def _describe(trace: Trace) -> Iterator[str]:
    yield "dliosim trace export, in the form of darshan-dxt-parser"
    yield f"exe: {printable(trace.command)}"
    yield f"nprocs: {len(trace.events.processes)}"
    yield f"run time: {trace.duration / 1e9:.4f}"


def _choose_rows(events: Events, layers: tuple[str, ...]) -> Ints:
    """Return the reads and writes of some layers, by file, rank, writes first, and begin."""
    is_in = events.is_kind(*_VERBS) & np.isin(events.layer, [layer_number(each) for each in layers])
    rows = np.flatnonzero(is_in & (events.file >= 0) & (events.offset >= 0))
    is_read = events.kind[rows] != _WRITE
    return rows[np.lexsort((events.begin[rows], is_read, events.process[rows], events.file[rows]))]


def _format_module(events: Events, module: str) -> Iterator[str]:
    """Yield the text of all blocks, in pieces: a block's head is in front of its first row."""
    is_write, is_first = events.kind == _WRITE, find_starts(events.file, events.process)
    first = np.flatnonzero(is_first)
    block = np.cumsum(is_first) - 1
    writes, all_ = np.bincount(block, is_write, len(first)).astype(np.int64), np.bincount(block, minlength=len(first))
    segment = np.arange(len(events)) - first[block] - np.where(is_write, 0, writes[block])
    length = np.where(events.moved == UNKNOWN, np.maximum(events.asked, 0), events.moved)
    times = (*split_time(events.begin, _SECOND), *split_time(events.end, _SECOND))
    verbs = events.process.astype(np.int64) * 2 + is_write
    keys = np.where(is_first, -1 - block, verbs)

    def template(key: int) -> str:
        if key < 0:
            row, number = int(first[-1 - key]), -1 - key
            head = _describe_block(events, row, int(writes[number]), int(all_[number] - writes[number]))
            return escape_percent(head) + template(int(verbs[row]))
        verb = "write" if key % 2 else "read"
        return f"{module:>8}{rank_of(events, key // 2):8}{verb:>7}%9d %15d %15d %5d.%09d %5d.%09d\n"

    for rows in split_blocks(len(events)):
        values = np.column_stack([each[rows] for each in (segment, events.offset, length, *times)])
        yield format_rows(keys[rows], template, values, None)


def _describe_block(events: Events, first: int, writes: int, reads: int) -> str:
    process, path = int(events.process[first]), events.files[int(events.file[first])]
    identity = int.from_bytes(blake2b(encode_text(path), digest_size=8).digest(), "little")
    return (
        f"\n# DXT, file_id: {identity}, file_name: {printable(path)}\n"
        f"# DXT, rank: {rank_of(events, process)}, hostname: {printable(events.processes[process].host)}\n"
        f"# DXT, write_count: {writes}, read_count: {reads}\n"
        f"# DXT, mnt_pt: UNKNOWN, fs_type: UNKNOWN\n{_COLUMNS}"
    )
