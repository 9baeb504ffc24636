"""The plans and written runs of all ranks, gathered on rank 0 before and after a checkpoint is written.

The file of all plans is written last, as PyTorch's distributed checkpoint does it: rank 0 gathers the local plans,
makes one plan of them, and sends each rank its own; when all data are written, it writes the file.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import ExecutionError
from dliosim.execute.checkpoints.state_writer import Run
from dliosim.execute.mpi.world import World
from dliosim.execute.payload.payload_crc import crc32_combine
from dliosim.execute.safe_open import write_file
from dliosim.plan.checkpoints.layout import METADATA, StateFiles, partner_file

_SHARD, _RUN = 7, 4


SavedFile = tuple[int, int]
"""Bytes of a file of a checkpoint, and their CRC-32."""


def exchange_plans(world: World, files: StateFiles) -> NDArray[np.int64] | None:
    """Gather the plans of all ranks on rank 0 and send each rank its own. Collective.

    Returns on rank 0 an array (shards, 7) of int64: part, row0, row1, col0, col1, file (its index in
    `StateFiles.files`), offset in bytes; None on other ranks. Raises ExecutionError on this rank alone where its plan
    came back different.
    """
    own = _shard_rows(files, world.rank)
    gathered = _gather_rows(world, own)
    received = own.ravel().copy()
    world.ranks.scatter([_byte_view(part) for part in gathered] if gathered is not None else None, _byte_view(received))
    if not np.array_equal(received, own.ravel()):
        raise ExecutionError("the plan that rank 0 sent to this rank differs from the plan of this rank")
    return None if gathered is None else _number_files(files, gathered)


def write_metadata(files: StateFiles, plan: NDArray[np.int64], directory: Path) -> SavedFile:
    """Write the file of all plans, durably where the checkpoint says so. For rank 0; raises ExecutionError."""
    content = {
        "parts": [part.name for part in files.parts],
        "files": [name for name, _ in files.files()],
        "shards": plan.tolist(),
    }
    data = json.dumps(content, separators=(",", ":")).encode()
    write_file(directory / METADATA, [data], files.checkpoint.fsync)
    return len(data), zlib.crc32(data)


def gather_runs(world: World, files: StateFiles, written: Sequence[Run]) -> list[NDArray[np.int64]] | None:
    """Gather what each rank has written, for `join_runs`, on rank 0; None on other ranks. Collective."""
    made = _writer_files(files, world.rank)
    rows = [(made.index(name), offset, length, value) for name, offset, length, value in written]
    return _gather_rows(world, np.array(rows, np.int64).reshape(-1, _RUN))


def join_runs(files: StateFiles, gathered: Sequence[NDArray[np.int64]]) -> dict[str, SavedFile]:
    """Return bytes and checksum of every file, joined from the runs of all ranks.

    Raises ExecutionError where the runs of a file leave a gap, overlap, or end before its size.
    """
    runs: dict[str, list[list[int]]] = defaultdict(list)
    for rank, own in enumerate(gathered):
        names = _writer_files(files, rank)
        for file, *run in own.reshape(-1, _RUN).tolist():
            runs[names[file]].append(run)
    found = {name: _join_file_runs(name, files.size(name, maker), runs[name]) for name, maker in files.files()}
    copies = {name: _join_file_runs(name, files.owner_bytes(rank), runs[name]) for name, rank in files.partner_files()}
    return found | copies


def _writer_files(files: StateFiles, rank: int) -> tuple[str, ...]:
    """Return the files that a rank writes to: its own or the shared one, and the copy that it keeps of its partner."""
    checkpoint = files.checkpoint
    own = (files.shared_file_name(),) if checkpoint.writers.kind == "shared file" else files.file_names(rank)
    if checkpoint.partner is None:
        return own
    return (*own, partner_file((rank - checkpoint.partner) % files.split.present_ranks))


def _join_file_runs(name: str, size: int, runs: list[list[int]]) -> SavedFile:
    end = value = 0
    for offset, length, checksum in sorted(runs):
        if offset != end:
            raise ExecutionError(f"{name}: byte {min(offset, end)} was not written, or written twice")
        value = crc32_combine(value, checksum, length)
        end += length
    if end != size:
        raise ExecutionError(f"{name} was written up to byte {end} of {size}")
    return size, value


def _shard_rows(files: StateFiles, rank: int) -> NDArray[np.int64]:
    made = {name: number for number, name in enumerate(files.file_names(files.writer(rank)))}
    rows = [(shard.part, *shard.block, made.get(shard.file, 0), shard.offset) for shard in files.shards(rank)]
    return np.array(rows, np.int64).reshape(-1, _SHARD)


def _number_files(files: StateFiles, gathered: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the rows of all ranks, with the file numbers of each rank replaced by those of `StateFiles.files`."""
    first: dict[int, int] = {}
    for number, (_, maker) in enumerate(files.files()):
        first.setdefault(maker, number)
    rows = [own.reshape(-1, _SHARD).copy() for own in gathered]
    for rank, own in enumerate(rows):
        own[:, _SHARD - 2] += 0 if files.regions else first.get(files.writer(rank), 0)
    return np.concatenate(rows)


def _byte_view(numbers: NDArray[np.int64]) -> memoryview:
    return memoryview(cast(bytes, numbers.view(np.uint8).ravel()))


def _gather_rows(world: World, rows: NDArray[np.int64]) -> list[NDArray[np.int64]] | None:
    """Gather the rows of all ranks, each flat, on rank 0; None on other ranks. Collective."""
    counts = world.gather(np.array([rows.size], np.int64))
    lengths = counts.ravel().tolist() if counts is not None else [0] * world.rank + [rows.size]
    return world.gather_parts(rows.ravel(), lengths)
