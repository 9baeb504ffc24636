"""Host buffers of background saves: the state is copied to them and flushed while ranks continue; they are reused."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import NamedTuple

import numpy as np

from dliosim.execute.backends.contract import allocate
from dliosim.execute.checkpoints.state_writer import Made, fill_piece, generate_pieces, largest_call, pieces_of
from dliosim.execute.node.compute import sleep_until
from dliosim.execute.payload.payload_format import part_keys
from dliosim.execute.phases.context import Progress
from dliosim.measure.rank.records import VerbRecord
from dliosim.model.checkpoint import Background
from dliosim.plan.checkpoints.layout import StateFiles
from dliosim.plan.samples.sample_to_file import align_up


class StagedSave(NamedTuple):
    """The copy of one save."""

    #: returns its calls, from the first again each time
    made: Callable[[], Made]
    #: time by which the copy was slower than its pace; ns
    late_ns: int
    #: gives the buffer back, if there is one
    release: Callable[[], None]
    #: nothing was copied, and contents are made during the flush
    simulated: bool


class StagingBuffers:
    """The staging buffers of one rank for one checkpoint: one a save in flight, none if simulated."""

    def __init__(self, files: StateFiles, rank: int, background: Background) -> None:
        """Allocate and touch the buffers. Raises ExecutionError [R402]."""
        self._files = files
        self._rank = rank
        self._background = background
        self._align = files.checkpoint.access.page
        size = _buffer_bytes(files, rank)
        self._source = memoryview(b"")
        self._free: deque[memoryview] = deque()
        if not background.simulated:
            # The state that a device would hold is made here, one call at a time.
            self._source = allocate(largest_call(files, rank))
            self._free.extend(allocate(size) for _ in range(background.in_flight))

    def stage(self, number: int, may_spin: bool, progress: Progress, record: VerbRecord) -> StagedSave:
        """Copy what this rank saves in save `number`, in the time that its pace asks for; a buffer must be free.

        `record.stage_ns` counts the copy alone, `record.content_ns` making what is copied.
        """
        keys = part_keys(self._files.checkpoint, self._files.parts, number)
        if self._background.simulated:
            late = self._wait_for_pace(perf_counter_ns(), 0, may_spin, record)
            return StagedSave(lambda: generate_pieces(self._files, keys, self._rank, record), late, lambda: None, True)
        buffer = self._free.popleft()
        at = copied = done = 0
        ended = perf_counter_ns()
        for piece in pieces_of(self._files, self._rank):
            begun = perf_counter_ns()
            source, target = self._source[: piece.length], buffer[at : at + piece.length]
            fill_piece(self._files, keys, piece, source)
            made = perf_counter_ns()
            # Not a slice assignment: numpy releases the interpreter lock, so that reader threads can continue.
            np.copyto(np.frombuffer(target, np.uint8), np.frombuffer(source, np.uint8))
            ended = perf_counter_ns()
            record.content_ns += made - begun
            copied += ended - made
            at += align_up(piece.length, self._align)
            done += piece.length
            progress.tick(ended, 0, done)
        late = self._wait_for_pace(ended, copied, may_spin, record)
        return StagedSave(lambda: self._buffer_pieces(buffer), late, lambda: self._free.append(buffer), False)

    def _wait_for_pace(self, now: int, copied: int, may_spin: bool, record: VerbRecord) -> int:
        """Sleep for the rest of the time that the copy should take; return by how many ns it took longer."""
        pace = self._background.staging
        due = round(pace.duration(self._files.owner_bytes(self._rank)) * 1e9) if pace is not None else copied
        if due > copied:
            sleep_until(now + due - copied, may_spin)
        record.stage_ns += copied + perf_counter_ns() - now
        return max(0, copied - due)

    def _buffer_pieces(self, buffer: memoryview) -> Made:
        at = 0
        for piece in pieces_of(self._files, self._rank):
            yield piece, buffer[at : at + piece.length]
            at += align_up(piece.length, self._align)


def staging_bytes(files: StateFiles, rank: int, background: Background) -> int:
    """Return the bytes of all buffers that `StagingBuffers` of a rank allocates."""
    if background.simulated:
        return 0
    return background.in_flight * _buffer_bytes(files, rank) + largest_call(files, rank)


def _buffer_bytes(files: StateFiles, rank: int) -> int:
    # O_DIRECT writes a buffer without another copy only if it begins at a page.
    align = files.checkpoint.access.page
    if align == 1:
        return files.owner_bytes(rank)
    return sum(align_up(piece.length, align) for piece in pieces_of(files, rank))
