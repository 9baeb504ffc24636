"""One reader a node (`scatter by node`): its first rank reads the batches of all its ranks and sends them."""

from __future__ import annotations

import mmap
import struct

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import ExecutionError
from dliosim.execute.backends.contract import Files, allocate
from dliosim.execute.backends.registry import open_readers
from dliosim.execute.batches.decode_preprocess import EpochCalls
from dliosim.execute.batches.prefetch import Batches
from dliosim.execute.mpi.world import World
from dliosim.model import Access
from dliosim.plan.samples.io_requests import Calls
from dliosim.plan.samples.sample_to_file import align_up

# The ns that the reading rank was inside calls. It follows each rank's batch: one scatter carries both.
_CALLED = struct.Struct("q")


class ScatteredBatches(Batches):
    """Batches that the first rank of a node reads within the step; the other ranks of the node wait for their parts.

    The buffer of the reading rank has a slot for each rank of the node, its own first. The bytes sent to a rank end
    with `_CALLED`. The meter of the reading rank counts all calls; those of the other ranks stay at 0. A rank that
    fails ends the job, because the other ranks of its node wait for data.
    """

    def __init__(self, world: World, access: Access, files: Files, size: int) -> None:
        """Allocate the buffer; no rank's batch is larger than `size` bytes. Collective on the node.

        Raises ExecutionError, [R402] if there is no memory for the buffer.
        """
        reads = world.node.rank == 0
        self._node = world.node
        self._slot = align_up(size + _CALLED.size, max(access.page, mmap.PAGESIZE))
        self._buffer = allocate(self._slot * world.node.size if reads else self._slot)
        [self._reader] = open_readers(access, files, null=not reads)
        self._widened = access.page > 1
        super().__init__([self._reader])

    def begin(self, epoch: EpochCalls) -> None:
        """Begin an epoch: gather the calls of the node's ranks on the rank that reads. Collective on the node."""
        # Once an epoch, outside its clock: no step has to ask the other ranks for their calls.
        self._epoch, calls = epoch, epoch.calls
        before, steps = np.append(0, np.cumsum(calls.length)), calls.steps
        self._asked: list[int] = np.diff(before[calls.step_start]).tolist()
        self._sent = calls.step_bytes + _CALLED.size
        of_steps = np.stack([self._sent, np.diff(calls.step_start)], axis=1)
        per_step = self._gather_table(of_steps, np.full(self._node.size, steps))
        # Ranks have different numbers of calls, and the gather takes the sizes of all parts.
        rows = np.zeros(self._node.size, np.int64)
        rows[self._node.rank] = len(calls.file)
        self._node.allreduce(rows, "sum")
        continues = calls.continues if calls.continues is not None else np.zeros(len(calls.file), np.int64)
        columns = np.stack([calls.file, calls.offset, calls.length, calls.start, continues.astype(np.int64)], axis=1)
        found = self._gather_table(columns, rows)
        if self._node.rank == 0:
            sent, counts = per_step.reshape(self._node.size, steps, 2).transpose(2, 0, 1)
            self._ends = (sent.T + np.arange(self._node.size) * self._slot).tolist()
            self._calls = _merge_calls(found, rows, counts, self._slot)
        self._reader.begin_epoch()

    def start(self) -> None:
        """Do nothing: `wait` reads the batch."""

    def wait(self, step: int) -> tuple[memoryview, int]:
        """Read the batches of all ranks of the node, or wait for this rank's; return the buffer and the bytes read.

        Collective on the node. Raises ExecutionError if a call failed.
        """
        if self._node.rank == 0:
            inside = self._reader.meter.io_call_ns
            # One read for the whole node: a queue of calls is kept full, and not emptied after each rank.
            calls = self._calls.step(step)
            got, asked = self._reader.read(calls, self._buffer), int(calls.length.sum())
            # Calls that were widened to pages may end at the end of their file; the reader checks these itself.
            if got < asked and not self._widened:
                raise ExecutionError(f"calls for the ranks of a node returned {got} bytes where {asked} were planned")
            self.called = self._reader.meter.io_call_ns - inside
            ends = self._ends[step]
            for end in ends:
                _CALLED.pack_into(self._buffer, end - _CALLED.size, self.called)
            # Views of the one buffer: no copy before the scatter, and this rank's own part is already in place.
            parts = [self._buffer[number * self._slot : end] for number, end in enumerate(ends)]
            self._node.scatter(parts, self._buffer)
        else:
            own = self._buffer[: int(self._sent[step])]
            self._node.scatter(None, own)
            (self.called,) = _CALLED.unpack_from(own, len(own) - _CALLED.size)
        self.processed = self._epoch.process(step, self._buffer)
        return self._buffer[: self._slot], self._asked[step]

    def _gather_table(self, table: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Gather a table (n, width) of each rank of the node on its first rank, one below the other.

        `rows` has n of each rank. The other ranks return a table without rows. Collective on the node.
        """
        width = table.shape[1]
        parts = self._node.gather_parts(np.ascontiguousarray(table).ravel(), (rows * width).tolist())
        return np.concatenate(parts or [table.ravel()[:0]]).reshape(-1, width)


def _merge_calls(table: NDArray[np.int64], rows: NDArray[np.int64], per_step: NDArray[np.int64], slot: int) -> Calls:
    """Merge the calls of several ranks: by step, then by rank; the calls of each rank fill a slot of its own.

    `table` (calls, 5) has file, offset, length, start and `continues` of all calls of the first rank, then of the next.
    `rows` (ranks,) has the number of calls of each rank, `per_step` (ranks, steps) those of each step. `slot` is bytes.
    """
    ranks, steps = per_step.shape
    step = np.concatenate([np.repeat(np.arange(steps), counts) for counts in per_step])
    table[:, 3] += np.repeat(np.arange(ranks) * slot, rows)
    # A stable sort keeps the ranks in order within a step, and the calls of each rank in its own order.
    file, offset, length, start, continues = table[np.argsort(step, kind="stable")].T.copy()
    none = np.zeros(steps + 1, np.int64)
    return Calls(
        file,
        offset,
        length,
        start,
        np.append(0, np.cumsum(per_step.sum(axis=0))),
        np.full(steps, ranks * slot),
        none[:0],
        none,
        continues.astype(np.bool_) if continues.any() else None,
    )
