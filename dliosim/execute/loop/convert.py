"""Convert: read each sample of a data set before it is written as one of another, file by file.

Each output file is written whole, by one rank, which reads what becomes of it. What is written has the contents that
`prepare` would give it, so that later verbs can check it.
"""

from __future__ import annotations

from time import perf_counter_ns

import numpy as np

from dliosim.execute.backends.contract import Files, allocate
from dliosim.execute.backends.registry import open_readers
from dliosim.execute.batches.decode_preprocess import BatchProcessor, EpochCalls, SampleCache
from dliosim.execute.batches.prefetch import InlineBatches
from dliosim.execute.datasets.prepare import open_prepared, prepare
from dliosim.execute.loop.epoch_plan import EpochSource, EpochWork, make_processor
from dliosim.execute.phases.context import Session
from dliosim.formats.registry import bind, import_libraries
from dliosim.measure.rank.records import VerbRecord
from dliosim.model import Convert, Dataset
from dliosim.plan.samples.io_requests import plan_calls
from dliosim.plan.samples.read_ranges import plan_part, plan_reads

_NONE = np.empty(0, np.int64)


def convert(session: Session, verb: Convert) -> tuple[VerbRecord, tuple[str, ...]]:
    """Read a data set and write another one; return the record and notes. Collective.

    Raises as `prepare` does, and ExecutionError [R401] if what is read is missing, damaged or not what was prepared.
    """
    dataset, source = session.workload.dataset(verb.dataset), session.workload.dataset(verb.source)
    if session.options.null:
        return prepare(session, verb, dataset)
    if verb.decode:
        import_libraries(bind(source))
    reading = SampleReader(session, verb, source)
    record, notes = prepare(session, verb, dataset, reading)
    reading.account(record)
    return record, notes


class SampleReader:
    """Reads the samples of a data set in their order, as far as a writer asks, part by part."""

    def __init__(self, session: Session, verb: Convert, source: Dataset) -> None:
        self._session = session
        self._loop = verb.reading_loop(source)
        self._data = open_prepared(session, source)
        data, layout = self._data, source.layout
        files = Files(data.directory, data.name, data.places.file_size, layout.files == 1, session.world.comm, source)
        self._readers = open_readers(self._loop.access, files)
        self._buffer = memoryview(b"")
        self._batches: InlineBatches | None = None
        self._source: EpochSource | None = None
        self._processing: BatchProcessor | None = None
        self._step, self._ends = 0, _NONE
        self._bytes = self._elapsed = 0
        self._decode = self._preprocess = 0

    def begin_part(self, first: int, last: int) -> None:
        """Begin with the samples [first, last)."""
        begun = perf_counter_ns()
        session, access = self._session, self._loop.access
        extents = plan_part(self._data.places, first, last)
        stored = plan_reads(extents, access, _NONE, self._data.places)
        calls = plan_calls(stored.extents, access.transfer, access.page)
        if len(self._buffer) < calls.buffer_size:
            self._buffer = allocate(calls.buffer_size)
        keeps = np.zeros(len(stored.extents.sample), np.bool_)
        work = EpochWork(extents, stored, keeps, calls, None, None, [0] * extents.steps, [])
        self._processing = make_processor(session, self._loop, self._data, work, 0)
        self._batches = InlineBatches(self._readers, [self._buffer])
        self._source = EpochSource(session, self._data, self._batches, work, SampleCache())
        self._batches.begin(EpochCalls(calls, processing=self._processing))
        self._source.start()
        self._step, self._ends = 0, extents.sample[np.minimum(extents.step_start[1:], last - first) - 1] + 1
        self._bytes += int(stored.extents.length.sum())
        self._elapsed += perf_counter_ns() - begun

    def read_until(self, sample: int) -> None:
        """Read all samples of the part before `sample`, and those of the same step. Raises ExecutionError."""
        begun = perf_counter_ns()
        source = self._source
        assert source is not None
        while self._step < len(self._ends) and (self._ends[self._step - 1] if self._step else -1) < sample:
            source.wait(self._step)
            source.check(self._step)
            self._step += 1
        self._elapsed += perf_counter_ns() - begun

    def end_part(self) -> None:
        """Read what is left of the part."""
        if not len(self._ends):
            return
        self.read_until(int(self._ends[-1]) + 1)
        begun, source, batches = perf_counter_ns(), self._source, self._batches
        assert source is not None and batches is not None
        source.collect()
        batches.end()
        if self._processing is not None:
            self._decode += sum(self._processing.decode_ns)
            self._preprocess += sum(self._processing.preprocess_ns)
        self._elapsed += perf_counter_ns() - begun

    def account(self, record: VerbRecord) -> None:
        """Close the files, and add the reads and their times to a record."""
        begun = perf_counter_ns()
        for reader in self._readers:
            reader.close()
        meters = [reader.meter for reader in self._readers]
        self._elapsed += perf_counter_ns() - begun
        record.source_bytes = self._bytes
        record.source_calls = sum(meter.calls for meter in meters)
        record.source_opens = sum(meter.opens for meter in meters)
        record.decode_ns, record.preprocess_ns = self._decode, self._preprocess
        record.source_ns = self._elapsed - self._decode - self._preprocess
