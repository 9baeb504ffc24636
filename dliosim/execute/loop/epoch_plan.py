"""One epoch of one rank, planned outside the clock: its calls, the expected contents of samples, and its compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import ExecutionError
from dliosim.execute.batches.decode_preprocess import (
    BatchProcessor,
    SampleCache,
    UnitVerifier,
    make_verifier,
    sample_times,
)
from dliosim.execute.batches.prefetch import Batches
from dliosim.execute.node.compute import sleep_until
from dliosim.execute.payload.payload_format import Dress, content_edge_words, dress_function, find_bad_content
from dliosim.execute.payload.sample_bytes import edges_match, sample_keys, word_windows
from dliosim.execute.phases.context import OpenDataset, Session
from dliosim.measure.rank.histogram import Histogram
from dliosim.measure.rank.meter import MeterGroup
from dliosim.measure.rank.records import EpochRecord
from dliosim.measure.rank.time_series import EpochSeries
from dliosim.model import Loop
from dliosim.model.counter_rng import draw, key
from dliosim.plan.samples.io_requests import Calls, Extents, ReadRanges, Rounds, deal_rounds, empty_ranges, plan_calls
from dliosim.plan.samples.places import Member, Places
from dliosim.plan.samples.read_ranges import plan_reads, rows_to_keep
from dliosim.plan.samples.sampler import plan_epoch
from dliosim.trace.recorder import collect_calls, count_unseen


@dataclass(frozen=True, slots=True)
class EpochWork:
    """The work of a rank in one epoch."""

    #: all samples of the epoch, also those that are copied from `cache memory`
    extents: Extents
    #: the rows that are read from storage
    stored: ReadRanges
    #: the rows of `stored` that `cache memory` keeps, none after the first epoch; shape (rows of `stored`,)
    keeps: NDArray[np.bool_]
    #: the calls that read `stored`
    calls: Calls
    #: the collective rounds of each step; None for one round a step
    rounds: Rounds | None
    #: the largest number of rounds that any rank needs; shape (steps,); None without `rounds`, or before ranks agree
    most: NDArray[np.int64] | None
    #: compute of each step, ns
    compute_ns: list[int]
    #: time from the arrival of the request before to that of each request, ns, one a step; empty for closed loops
    gap_ns: list[int]
    #: what the rank of a described storage takes for each step besides compute, ns; empty without one
    own_ns: list[int] = field(default_factory=list)
    #: rows of `extents` that make a sample of the loop: one of each data set
    rows: int = 1

    @property
    def steps(self) -> int:
        """Number of steps of this epoch."""
        return len(self.compute_ns)

    @property
    def samples(self) -> Extents:
        """Return the samples of the loop; of a sample of several data sets, that of the first."""
        return self.extents.every(self.rows)

    @property
    def cumulative_bytes(self) -> list[int]:
        """Bytes of the samples of all steps up to each."""
        total: list[int] = np.cumsum(_step_bytes(self.extents)).tolist()
        return total


def plan_work(
    session: Session, loop: Loop, data: OpenDataset | None, epoch: int, steps: int, kept: SampleCache
) -> EpochWork:
    """Plan `steps` steps from the first step of an epoch (from 0); they read nothing without `data`. Local.

    If `steps` is more than an epoch has (open-loop requests), the plan continues with the next epochs. There is no
    break between them, in which requests would accumulate. Raises PlanError, see `plan_reads` and `plan_calls`.
    """
    world, workload = session.world, session.workload
    access = loop.access
    if data is None:
        stored = empty_ranges(steps)
        extents = stored.extents
    else:
        extents = _plan_passes(session, loop, data, epoch, steps)
        stored = plan_reads(extents, access, kept.numbers, data.places)
    keeps = rows_to_keep(stored.extents, access.memory if epoch == 0 else 0)
    planned = plan_calls(stored.extents, access.transfer, access.page)
    dealt = deal_rounds(planned, access.transfer) if access.collective and access.transfer else None
    counters = np.arange(extents.steps, dtype=np.int64)
    rows = 1 if data is None else data.dataset.rows
    if loop.compute.per_sample:
        compute_key = key(workload.seed, "compute of samples", loop.name, epoch)
        compute = sample_times(loop.compute.time, compute_key, extents.every(rows)).tolist()
    else:
        compute_key = key(workload.seed, "compute", loop.name, epoch, world.rank)
        compute = _convert_to_ns(draw(loop.compute.time, compute_key, counters))
    gaps: list[int] = []
    if loop.arrivals is not None:
        gap_key = key(workload.seed, "arrivals", loop.name, epoch, world.rank)
        gaps = _convert_to_ns(draw(loop.arrivals.gap, gap_key, counters))
    own: list[int] = []
    if session.modelled is not None and session.modelled.model.step_time:
        from dliosim.plan.predict.queues import draw_step_times  # most runs need none of it

        own_key = key(workload.seed, "step", loop.name, epoch, world.rank)
        own = _convert_to_ns(draw_step_times(session.modelled.model, own_key, counters))
    return EpochWork(extents, stored, keeps, planned, dealt, None, compute, gaps, own, rows)


def _plan_passes(session: Session, loop: Loop, data: OpenDataset, epoch: int, steps: int) -> Extents:
    """Return the samples of `steps` steps, from an epoch (from 0) and where needed from those that follow it."""
    job, rank = session.workload.job, session.world.rank
    passes = [plan_epoch(loop, data.places, job, rank, epoch)]
    while sum(each.steps for each in passes) < steps:
        passes.append(plan_epoch(loop, data.places, job, rank, epoch + len(passes)))
    found = _concatenate_epochs(passes)
    if found.steps == steps:
        return found
    return found.select_rows(np.arange(found.step_start[steps]), found.step_start[: steps + 1])


def make_processor(
    session: Session, loop: Loop, data: OpenDataset | None, work: EpochWork, epoch: int
) -> BatchProcessor | None:
    """Make the processor that decodes and preprocesses each batch after it is read; None if the loop does neither."""
    if data is None or (not loop.decode and loop.preprocess is None):
        return None
    times: list[int] = []
    if loop.preprocess is not None:
        drawn = key(session.workload.seed, "preprocess", loop.name, epoch)
        times = sample_times(loop.preprocess.time, drawn, work.samples).tolist()
    processor = bind_processor(session, loop, data.places, data.path)()
    return processor.take_rows(work.stored, work.calls.sample_start, times)


def bind_processor(
    session: Session, loop: Loop, places: Places, path: Callable[[int], Path | str]
) -> Callable[[], BatchProcessor]:
    """Return the function that makes the processor of an epoch."""
    decoded = replace(loop, decode=loop.decode and not session.options.null)
    return partial(BatchProcessor, decoded, places, path)


def _concatenate_epochs(passes: Sequence[Extents]) -> Extents:
    """Join the steps of several epochs, one epoch after the other."""
    if len(passes) == 1:
        return passes[0]
    rows = np.cumsum([0, *(len(each.sample) for each in passes)])
    starts = [each.step_start[:-1] + first for each, first in zip(passes, rows[:-1], strict=True)]
    columns = zip(*((each.sample, each.file, each.offset, each.length) for each in passes), strict=True)
    sample, file, offset, length = map(np.concatenate, columns)
    return Extents(sample, file, offset, length, np.concatenate([*starts, rows[-1:]]))


def _convert_to_ns(seconds: NDArray[np.float64]) -> list[int]:
    """Convert seconds to whole nanoseconds; negative values become 0."""
    whole: list[int] = np.rint(np.maximum(seconds, 0) * 1e9).astype(np.int64).tolist()
    return whole


def _step_bytes(extents: Extents) -> list[int]:
    """Return the bytes of the samples of each step."""
    total = np.zeros(len(extents.length) + 1, np.int64)
    np.cumsum(extents.length, out=total[1:])
    whole: list[int] = np.diff(total[extents.step_start]).tolist()
    return whole


@dataclass(frozen=True, slots=True)
class _ExpectedRows:
    """The rows of `ReadRanges` with known contents, and these contents. Arrays have one entry a row.

    The rows of step s are bounds[s]:bounds[s + 1].
    """

    #: the index of the row in `ReadRanges`
    row: NDArray[np.int64]
    #: the first row of each step, and the number of rows; steps + 1 entries
    bounds: list[int]
    #: the offsets of the row's contents, and of their last eight bytes, in the buffer of its step, bytes; (rows, 2)
    at: NDArray[np.int64]
    #: bytes of the contents
    length: NDArray[np.int64]
    #: the key of the row's sample, from which its contents are computed
    key: NDArray[np.uint64]
    #: the offset of the row's contents in those of its sample, bytes
    begin: NDArray[np.int64]
    #: the first eight bytes of the contents, and the last; (rows, 2)
    edges: NDArray[np.uint64]
    #: the function that makes random bytes fit the format; None for raw ones
    dress: Dress | None
    #: some contents are shorter than eight bytes
    short: bool

    def find_bad_edge(self, first: int, last: int, data: memoryview) -> int | None:
        """Return the first of rows [first, last) whose first or last eight bytes in `data` are wrong; None if none."""
        at, edges = self.at[first:last], self.edges[first:last]
        # Compared as bytes: `all` of a comparison would take longer than the rest of a step's check.
        if not self.short and word_windows(data)[at].tobytes() == edges.tobytes():
            return None
        good = edges_match(edges[:, 0], edges[:, 1], self.length[first:last], at[:, 0], data)
        return None if good.all() else first + int(np.argmin(good))


def _find_expected_rows(member: Member, rows: NDArray[np.int64] | slice, work: EpochWork) -> _ExpectedRows:
    """Return the rows with known contents of one data set, which has `rows` of what is read."""
    stored, form = work.stored, member.places.form
    row = np.arange(len(stored.held))[rows]
    row = row[stored.held[row] > 0]
    bounds = np.searchsorted(row, stored.extents.step_start).tolist()
    begin, held = stored.begin[row], stored.held[row]
    key, dress = sample_keys(form.dataset, stored.extents.sample[row] - member.first_sample), dress_function(form)
    start = work.calls.sample_start[row] + stored.at[row]
    at = np.stack([start, start + held - 8], axis=1)
    edges = np.stack(content_edge_words(dress, key, begin, held), axis=1)
    return _ExpectedRows(row, bounds, at, held, key, begin, edges, dress, bool(held.min(initial=8) < 8))


class EpochSource:
    """The batches of one epoch for `step_loop.run_steps`: waited for, compared with what was prepared, and metered."""

    def __init__(
        self, session: Session, data: OpenDataset | None, batches: Batches, work: EpochWork, kept: SampleCache
    ) -> None:
        #: the course of the epoch, with the read calls as far as they are collected
        self.series = EpochSeries()
        #: of the last step waited for, ns: as in `Batches`
        self.called = self.decoded = self.processed = 0
        # Bytes that `--verify` should check but cannot, because their contents are not known.
        self._unchecked = 0
        several = 0 if data is None or len(data.places.members) == 1 else len(data.places.members)
        self._meters = MeterGroup([reader.meter for reader in batches.readers], several)
        self._counted = self._meters.sum_counts()
        self._busy_ns, self._latencies = 0, Histogram()
        self._batches = batches
        self._work = work
        self._kept = kept
        self._data = cast(OpenDataset, data)  # only errors about samples need it
        self._whole = session.options.verify
        self._own_ns = work.own_ns
        self._buffer = memoryview(b"")
        self._needed = _step_bytes(work.stored.extents)
        self._bounds: list[int] = work.stored.extents.step_start.tolist()
        self._keeping = bool(work.keeps.any())
        self._hits = not kept.is_empty
        self._expected: list[_ExpectedRows] = []
        self._encoded: list[UnitVerifier | None] = []
        if data is None or session.options.null:
            return
        places, read = data.places, work.stored.extents
        self._expected = [_find_expected_rows(*found, work) for found in places.split_rows(read.sample)]
        if self._whole:
            made = [make_verifier(member, work.stored) for member in places.members]
            self._encoded = made if any(made) else []
            self._owner = places.member_of_files(read.file)

    @property
    def latencies(self) -> list[Histogram]:
        """Return the latencies of the read calls so far of each of several data sets; empty for one."""
        return self._meters.by_source

    def start(self) -> None:
        """Start the reads that are ahead of the steps."""
        self._batches.start()

    def wait(self, step: int) -> None:
        """Wait until all samples of a step are in memory. Raises ExecutionError."""
        self._buffer, got = self._batches.wait(step)
        self.called, self.decoded = self._batches.called, self._batches.decoded
        self.processed = self._batches.processed
        if self._own_ns:
            sleep_until(perf_counter_ns() + self._own_ns[step], False)
        if got < self._needed[step]:
            self._batches.release(step)
            # Checked here for every backend: a step that read too little would count as a fast step.
            raise ExecutionError(f"step {step}: calls returned {got} bytes where {self._needed[step]} were planned")
        if self._hits:
            starts = self._work.extents.step_start
            self._kept.copy_hits(self._work.extents.sample[int(starts[step]) : int(starts[step + 1])])

    def check(self, step: int) -> None:
        """Compare the batch of a step with what was prepared; fill `cache memory`; free its buffer for the next read.

        Raises ExecutionError [R401].
        """
        try:
            if not self._expected:
                return
            for expected in self._expected:
                self._check_contents(expected, expected.bounds[step], expected.bounds[step + 1])
            if self._whole:
                self._unchecked += self._needed[step]
            if self._encoded:
                self._verify_encoded(step)
            if self._keeping:
                self._fill_cache(step)
        finally:
            self._batches.release(step)

    def _check_contents(self, expected: _ExpectedRows, first: int, last: int) -> None:
        """Compare rows [first, last) with what was prepared: their edges, with `--verify` all bytes."""
        if first == last:
            return
        bad = expected.find_bad_edge(first, last, self._buffer)
        if bad is None and self._whole:
            keys, begins = expected.key[first:last], expected.begin[first:last]
            lengths, starts = expected.length[first:last], expected.at[first:last, 0]
            found = find_bad_content(expected.dress, keys, begins, lengths, starts, self._buffer)
            bad = None if found is None else first + found
            self._unchecked -= int(lengths.sum())
        if bad is not None:
            raise self._mismatch_error(int(expected.row[bad]))

    def collect(self) -> None:
        """Collect the clock readings of the read calls so far."""
        self._busy_ns += self._meters.collect_busy(self._latencies, self.series)
        collect_calls()

    def record_reads(self, record: EpochRecord) -> None:
        """Add the reads of the epoch to its record, once no reader makes calls any more."""
        self.collect()
        record.io_busy_ns = self._busy_ns + self._meters.collect_rest(self.series)
        record.call_latency, record.unchecked_bytes = self._latencies, self._unchecked
        for name, count in self._meters.sum_counts().items():
            setattr(record, name, count - self._counted[name])
        if any(reader.meter.log is None for reader in self._batches.readers):
            count_unseen(record.calls)

    def _verify_encoded(self, step: int) -> None:
        stored, start = self._work.stored, self._work.calls.sample_start
        for row in range(self._bounds[step], self._bounds[step + 1]):
            encoded = self._encoded[self._owner[row]]
            if stored.held[row] == 0 and encoded is not None:
                begin, length = int(start[row]), int(stored.extents.length[row])
                right = encoded.verify_unit(row, self._buffer[begin : begin + length])
                if right is False:
                    raise self._mismatch_error(row)
                self._unchecked -= length if right else 0

    def _fill_cache(self, step: int) -> None:
        first, last = self._bounds[step], self._bounds[step + 1]
        rows, stored = self._work.keeps[first:last], self._work.stored.extents
        start, length = self._work.calls.sample_start[first:last], stored.length[first:last]
        self._kept.store_samples(stored.sample[first:last][rows], start[rows], length[rows], self._buffer)

    def _mismatch_error(self, row: int) -> ExecutionError:
        stored, file = self._work.stored.extents, int(self._work.stored.extents.file[row])
        member, path = self._data.places.member_of(file), self._data.path(file)
        name = member.places.dataset.name
        begin, end = int(stored.offset[row]), int(stored.offset[row] + stored.length[row])
        number = stored.sample[row] - member.first_sample
        text = f"sample {number} of data set `{name}`, bytes [{begin}, {end}) of {path}, is not what was"
        why = ""
        # After a collective read only the size of the file shows that the file ended too early.
        with suppress(OSError):
            if (size := path.stat().st_size) < end:
                why = f": the file has {size} bytes, and was cut short"
        return ExecutionError(f"{text} prepared{why}; `prepare {name} afresh` writes it again", "R401")
