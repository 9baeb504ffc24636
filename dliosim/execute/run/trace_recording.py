"""Recording of a run on all ranks; rank 0 receives each rank's compressed columns in turn, and writes them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from time import perf_counter_ns

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from dliosim.errors import ExecutionError
from dliosim.execute.io_errors import call_error, wrap_call
from dliosim.execute.mpi.world import World
from dliosim.measure.progress.board import DONE, process_row
from dliosim.readable import size
from dliosim.trace import file
from dliosim.trace.columns import CALL_COLUMNS, SPAN_COLUMNS, ColumnBuffer, SpillFile
from dliosim.trace.cut import TraceCut
from dliosim.trace.recorder import Recorder, record_by

#: Round trips between two nodes: the fastest says most precisely how much their clocks differ.
_TRIPS = 32
_TAG = 81

#: The parts of a trace's bytes that calls may have; spans have the rest.
_CALLS_SHARE = 0.9


class Recording:
    """The recording of one run on one rank."""

    def __init__(self, world: World, cut: TraceCut, directory: Path) -> None:
        """Begin to record, on the ranks that the cut names. Collective.

        What memory has no room for goes to files without a name in `directory`.
        """
        self._world = world
        self._origin = perf_counter_ns()
        self._clocks = measure_clock(world)
        most = cut.most_bytes // max(1, cut.count_ranks(world.size))
        spill = SpillFile(str(directory))
        self._failure: ExecutionError | None = None
        self._spill_name = f"a file without a name in {directory}"
        calls, spans = int(most * _CALLS_SHARE), int(most * (1 - _CALLS_SHARE))
        self._recorder = Recorder(
            cut, self._origin, ColumnBuffer(CALL_COLUMNS, calls, spill), ColumnBuffer(SPAN_COLUMNS, spans, spill)
        )
        if cut.ranks[0] <= world.rank <= cut.ranks[1]:
            record_by(self._recorder)

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        record_by(None)

    def stop(self) -> None:
        """End the recording. Collective.

        If a rank could not set a part of it aside, all of it is dropped: the results may need the room.
        """
        record_by(None)
        one = self._recorder
        one.collect()
        self._clocks += measure_clock(self._world)
        for buffer in one.calls, one.spans:
            buffer.seal()
        if (failure := one.calls.spill.failure) is not None:  # spans have the same file
            hint = 'there is no trace; a part of the run, or --trace "at most 100 MB", needs less room'
            self._failure = call_error("write", self._spill_name, failure, hint=hint)
        if self._world.allreduce_number(self._failure is not None, "max"):
            one.calls.spill.close()

    def write(self, directory: Path | None, attributes: Mapping[str, str]) -> str:
        """Write the trace of all ranks to `directory`, on rank 0; return a sentence about it. Collective.

        With None there is no directory, and nothing is written.

        Raises ExecutionError on every rank if it cannot be written.
        """
        world, one = self._world, self._recorder
        world.agree_on_error(self._failure)
        process_row().begin("writing the trace", 0)  # what a report of a stall says
        counts = [one.calls.kept, one.calls.added, one.unseen, one.spans.kept, one.spans.added]
        head = np.array([world.rank, os.getpid(), *counts, self._origin, *self._clocks], np.int64)
        assert len(head) == len(file.HEAD)
        most = world.allreduce(np.array([one.calls.kept, one.spans.kept]), "max").tolist()
        heads = world.gather(head)
        if heads is None:
            self._send(most)
        return world.run_on_rank_0("write the trace", lambda: self._write_all(directory, heads, most, attributes))

    def _write_all(
        self, directory: Path | None, heads: NDArray[np.int64] | None, most: list[int], attributes: Mapping[str, str]
    ) -> str:
        """Write what all ranks send. Raises ExecutionError, after all have sent: they wait for that."""
        assert heads is not None, "rank 0 has what it gathered"
        failure: OSError | None = None
        writer: file.TraceWriter | None = None
        path = (directory or Path()) / file.FILE_NAME
        part = path.with_suffix(".part")  # nothing that looks whole is left by a run that is killed
        try:
            if directory is not None:
                part.unlink(missing_ok=True)
                writer = file.create_trace(part, heads, attributes)
        except OSError as error:
            failure = error
        for rank, head in enumerate(heads):
            of = dict(zip(file.HEAD, head.tolist(), strict=True))
            messages = self._receive(rank, of, most) if rank else self._messages(most)
            try:
                if writer is not None and failure is None:
                    _write_rank(writer, rank, of, most, messages)
            except OSError as error:
                failure = error
            if rank:
                _receive_rest(messages)
        try:
            if writer is not None:
                writer.close()
                if failure is None:
                    part.replace(path)
        except OSError as error:
            failure = failure or error
        if failure is not None:
            with suppress(OSError):
                part.unlink(missing_ok=True)
            raise call_error("write", str(failure.filename or path), failure) from failure
        return self._describe(heads, path) if writer is not None else ""

    def _describe(self, heads: NDArray[np.int64], path: Path) -> str:
        counts = {name: int(heads[:, place].sum()) for place, name in enumerate(file.HEAD)}
        kept, made, unseen = (counts[name] for name in ("calls", "calls_made", "unseen"))
        text = f"trace: recorded {kept:_} of {made + unseen:_} operations, {path.stat().st_size / 1e6:.1f} MB"
        if unseen:
            text += f"\n  {unseen:_} were not recorded ({file.UNSEEN})"
        spans, spans_made = counts["spans"], counts["spans_made"]
        if spans < spans_made:
            text += f"\n  recorded {spans:_} of {spans_made:_} spans of steps, phases and decoding"
        if kept < made or spans < spans_made:
            limit = size(self._recorder.cut.most_bytes, 3)
            text += f'\n  the rest is beyond the limit of {limit}: --trace "at most SIZE" with a larger one has more'
        return text

    def _send(self, most: list[int]) -> None:
        """Send what this rank has to rank 0: each message after its length, or -1 if it cannot be read."""
        ranks = self._world.ranks
        try:
            for message in self._messages(most):
                ranks.send(_encode_length(len(message)), 0)
                ranks.send(message, 0)
        except ExecutionError:
            ranks.send(_encode_length(-1), 0)

    def _messages(self, most: list[int]) -> Iterator[memoryview]:
        """Yield what this rank has, as messages. Raises ExecutionError."""
        one = self._recorder
        for buffer, rows in zip((one.calls, one.spans), most, strict=True):
            with wrap_call("read", self._spill_name):
                for group in file.group_columns(buffer.chunks(file.chunk_rows(rows)), len(buffer.types)):
                    yield _note_progress(file.join_message(group))
        yield file.join_message(
            [file.pack_names(list(one.files)), file.pack_names(list(one.names)), file.pack_names([os.uname().nodename])]
        )

    def _receive(self, rank: int, of: Mapping[str, int], most: list[int]) -> Iterator[memoryview]:
        """Yield the messages of another rank. Raises ExecutionError if it could not read what it had set aside."""
        ranks = self._world.ranks
        for _ in range(sum(_count_groups(of, most)) + 1):
            length = np.zeros(1, np.int64)
            ranks.receive(length.data.cast("B"), rank)
            if length[0] < 0:
                raise ExecutionError(f"rank {rank} cannot read what it had set aside in {self._spill_name}")
            data = memoryview(bytearray(int(length[0])))
            ranks.receive(data, rank)
            yield _note_progress(data)


def _write_rank(
    writer: file.TraceWriter, rank: int, of: Mapping[str, int], most: list[int], messages: Iterator[memoryview]
) -> None:
    """Write what one rank has. Raises OSError."""
    for table, rows, groups in zip(("calls", "spans"), most, _count_groups(of, most), strict=True):
        for number in range(groups):
            writer.write_chunks(table, rank, number * file.chunk_rows(rows), file.split_message(next(messages)))
    for what, names in zip(("files", "names", "host"), file.split_message(next(messages)), strict=True):
        writer.write_names(rank, what, names)


def _receive_rest(messages: Iterator[memoryview]) -> None:
    """Receive what another rank still sends, after a failure: it waits for that."""
    with suppress(ExecutionError):
        for _ in messages:
            pass


def _note_progress(message: memoryview) -> memoryview:
    """Store that this rank has a message more, so that a trace that takes long is no stall; return the message."""
    process_row().words[DONE] += len(message)
    return message


def _encode_length(length: int) -> memoryview:
    return memoryview(bytearray(np.array([length], np.int64).tobytes()))


def _count_groups(of: Mapping[str, int], most: list[int]) -> tuple[int, int]:
    """Return the numbers of messages with chunks of calls and of spans that a rank sends."""
    calls, spans = (
        -(-of[table] // file.chunk_rows(rows)) for table, rows in zip(("calls", "spans"), most, strict=True)
    )
    return calls, spans


def measure_clock(world: World) -> list[int]:
    """Return the clock of this rank's node, and how far it is ahead of that of rank 0's then; ns. Collective.

    Ranks of a node have the same clock.
    """
    ahead = np.zeros(1, np.int64)
    if world.nodes > 1:
        if world.node.rank == 0:
            ahead[0] = compare_clocks(world.leaders)
        world.allreduce_on_node(ahead, "sum")
    # Not before: this rank may have waited long for rank 0, and the clocks drift meanwhile.
    return [perf_counter_ns(), int(ahead[0])]


def compare_clocks(comm: MPI.Intracomm) -> int:
    """Return how far this rank's perf_counter_ns is ahead of that of rank 0 of `comm`, ns. Collective.

    The error is at most half of the fastest round trip.
    """
    ahead = np.zeros(1, np.int64)
    word = np.zeros(1, np.int64)
    for other in range(1, comm.size):
        if comm.rank == 0:
            best = 1 << 62
            for _ in range(_TRIPS):
                sent = perf_counter_ns()
                comm.Send(word, other, _TAG)
                comm.Recv(word, other, _TAG)
                came = perf_counter_ns()
                if came - sent < best:
                    best, ahead[0] = came - sent, int(word[0]) - (sent + came) // 2
            comm.Send(ahead, other, _TAG)
            ahead[0] = 0
        elif comm.rank == other:
            for _ in range(_TRIPS):
                comm.Recv(word, 0, _TAG)
                word[0] = perf_counter_ns()
                comm.Send(word, 0, _TAG)
            comm.Recv(ahead, 0, _TAG)
    return int(ahead[0])
