"""The calls of an epoch, and what the thread that read a batch does with it, as a data loader's workers do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from time import perf_counter_ns

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import ExecutionError
from dliosim.execute.node.compute import keep_core_busy, sleep_until
from dliosim.execute.payload.payload_format import dress_function, fill_part
from dliosim.execute.payload.sample_bytes import sample_keys
from dliosim.model import Distribution, Loop
from dliosim.model.counter_rng import draw
from dliosim.plan.samples.io_requests import Calls, Extents, ReadRanges, Rounds, share_bounds
from dliosim.plan.samples.places import IndexedPlaces, Member, Places
from dliosim.plan.samples.sample_to_file import sample_sizes
from dliosim.trace.recorder import collector


@dataclass(frozen=True, slots=True)
class EpochCalls:
    """The calls of an epoch, and the processing of each batch after it is read."""

    #: the calls of this rank, all steps
    calls: Calls
    #: with mpi-collective: how the calls of each step are divided among rounds; None: one round a step, also on a rank
    #: without calls
    rounds: Rounds | None = None
    #: with `rounds`: the largest number of rounds that any rank needs; shape (steps,)
    most: NDArray[np.int64] | None = None
    #: decoding and preprocessing; None for neither
    processing: BatchProcessor | None = None

    @property
    def steps(self) -> int:
        """Number of steps of the epoch, empty ones included."""
        return self.calls.steps

    def step_rounds(self, step: int) -> list[Calls]:
        """Return the parts of a step that one reader reads in turn: one part, or one part for each round.

        Every rank returns `most[step]` parts, the last ones empty if it needs fewer: each is a collective call.
        """
        rounds, most = self.rounds, self.most
        if rounds is None or most is None:
            return [self.calls.step(step)]
        return [self.calls.part(*rounds.calls(step, number)) for number in range(int(most[step]))]

    def shares(self, step: int, groups: int) -> list[tuple[int, int]]:
        """Divide the calls of a step among `groups` readers; return the non-empty shares as [begin, end) of `calls`.

        Shares have the same number of calls, or differ by one.
        """
        first, last = int(self.calls.step_start[step]), int(self.calls.step_start[step + 1])
        return [(begin, end) for begin, end in pairwise(share_bounds(first, last, groups)) if begin < end]

    def process(self, step: int, slot: memoryview) -> int:
        """Decode and preprocess the step that is in `slot`; return the elapsed ns. Raises ExecutionError [R401]."""
        if self.processing is None:
            return 0
        rows = self.calls.row_start
        return self.processing.process_batch(step, int(rows[step]), int(rows[step + 1]), 1, slot)

    def process_share(self, step: int, first: int, last: int, shares: int, slot: memoryview) -> int:
        """Decode and preprocess one of `shares` shares of a step, calls [first, last); return the elapsed ns.

        Each call is one row here (`readers N by sample`). Raises ExecutionError [R401].
        """
        if self.processing is None:
            return 0
        return self.processing.process_batch(step, first, last, shares, slot)


def sample_times(time: Distribution, drawn: int, extents: Extents) -> NDArray[np.int64]:
    """Return the sum of the times of each step's samples, ns (steps,); a sample's is a draw of the key `drawn`."""
    each = np.rint(np.maximum(draw(time, drawn, extents.sample), 0) * 1e9).astype(np.int64)
    return np.diff(np.append(0, np.cumsum(each))[extents.step_start])


class BatchProcessor:
    """Decodes and preprocesses the batches of one epoch of one rank; several threads may use it at the same time.

    `decode_ns` and `preprocess_ns` list the ns of each batch, or of each share of a batch, since `take_rows`.
    """

    def __init__(self, loop: Loop, places: Places, path: Callable[[int], Path | str]) -> None:
        self._path = path
        self._decodes = loop.decode and loop.access.through == "direct"
        only = places.members[0] if len(places.members) == 1 else None
        self._find_member: Callable[[int], Member] = cache(places.member_of) if only is None else lambda _: only
        self._find_column = cache(places.decoder_column)
        self._busy = loop.preprocess is not None and loop.preprocess.busy
        self._trace = collector()

    def take_rows(self, stored: ReadRanges, start: NDArray[np.int64], times: list[int]) -> BatchProcessor:
        """Take the rows of the steps to come, and where each begins in the buffer of its step, bytes; return itself.

        `times` are those of preprocessing each step, ns, empty without preprocessing.
        """
        self._stored, self._start, self.times = stored, start, times
        self.decode_ns: list[int] = []
        self.preprocess_ns: list[int] = []
        return self

    def pack_rows(self, first: int, last: int) -> list[NDArray[np.int64]]:
        """Return what decoding rows [first, last) needs, for `unpack_rows`; nothing if they are not decoded."""
        if not self._decodes:
            return []
        rows = self._stored.extents
        columns = rows.sample, rows.file, rows.offset, rows.length, self._stored.column, self._start
        return [column[first:last] for column in columns]

    def process_batch(self, step: int, first: int, last: int, share: int, buffer: memoryview) -> int:
        """Decode and preprocess rows [first, last) of a step, whose bytes are in `buffer`; return the elapsed ns.

        The rows are one of `share` shares of the step, and take this part of its preprocessing time. Raises
        ExecutionError [R401] for a sample that cannot be decoded.
        """
        begun = perf_counter_ns()
        if self._decodes:
            for row in range(first, last):
                self._decode(row, buffer)
            decoded = perf_counter_ns()
            self.decode_ns.append(decoded - begun)
            if self._trace is not None:
                self._trace.note_span("decode", begun, decoded, step)
        if self.times:
            since, wanted = perf_counter_ns(), self.times[step] // share
            if wanted and self._busy:
                keep_core_busy(wanted)
            elif wanted:
                sleep_until(since + wanted, may_spin=False)
            ended = perf_counter_ns()
            self.preprocess_ns.append(ended - since)
            if self._trace is not None:
                self._trace.note_span("preprocess", since, ended, step)
        return perf_counter_ns() - begun

    def _decode(self, row: int, buffer: memoryview) -> None:
        rows = self._stored.extents
        member = self._find_member(int(rows.file[row]))
        start, length = int(self._start[row]), int(rows.length[row])
        column = self._find_column(int(self._stored.column[row]), int(rows.file[row]))
        try:
            member.places.form.decode(column, buffer[start : start + length])
        except ExecutionError as error:
            path, offset = self._path(int(rows.file[row])), int(rows.offset[row])
            where = f"bytes [{offset}, {offset + length}) of {path}"
            number, name = rows.sample[row] - member.first_sample, member.places.dataset.name
            text = f"sample {number} of data set `{name}`, {where}: {error.message}"
            raise ExecutionError(text, error.code) from error


def unpack_rows(rows: Sequence[NDArray[np.int64]]) -> tuple[ReadRanges, NDArray[np.int64]]:
    """Return the ranges of one step, and their first bytes in its buffer, that `BatchProcessor.pack_rows` packed."""
    sample, file, offset, length, column, start = rows or [_NO_ROWS] * 6
    extents = Extents(sample, file, offset, length, np.array([0, len(sample)]))
    return ReadRanges(extents, _NO_ROWS, _NO_ROWS, _NO_ROWS, column, _NO_ROWS), start


_NO_ROWS = np.empty(0, np.int64)


class UnitVerifier:
    """Checks rows of `ReadRanges` that are whole encoded units, in files that dliosim wrote (`--verify`)."""

    def __init__(self, places: IndexedPlaces, first_sample: int, first_file: int, stored: ReadRanges) -> None:
        """Begin an epoch; the numbers of the data set's samples and files in `stored` begin with the first ones."""
        self._first = first_sample, first_file
        self._dataset = places.dataset
        self._index = places.index
        self._stored = stored
        self._form = places.form
        self._find_column = cache(places.decoder_column)
        self._dress = dress_function(self._form)

    def verify_unit(self, row: int, data: memoryview) -> bool | None:
        """Return whether a unit decodes to the contents of its samples; None if its format decodes to other data."""
        rows, (first_sample, first_file) = self._stored.extents, self._first
        file, number = int(rows.file[row]) - first_file, int(self._stored.column[row])
        try:
            decoded = self._form.decode(self._find_column(number, file), data)
        except ExecutionError:
            return False
        if decoded is None:
            return None
        column, sample = self._index.columns[number], int(rows.sample[row]) - first_sample
        part = int(sample_sizes(self._dataset, np.array([sample]))[0]) // max(1, len(self._index.columns))
        if int(column.pieces[file]) > 1:
            begin = int(self._stored.piece[row]) * int(column.unit_bytes[file])
            length = min(int(column.unit_bytes[file]), part - begin)
            return self._matches_sample(sample, number * part + begin, decoded[:length], length)
        within = np.array([sample - int(self._index.first_sample[file])])
        _, inside, _ = column.locate_units(np.array([file]), within, np.array([sample]))
        first = sample - int(inside[0])
        last = min(first + len(decoded) // part, int(self._index.first_sample[file + 1]))
        return first < last and all(
            self._matches_sample(one, number * part, decoded[(one - first) * part :][:part], part)
            for one in range(first, last)
        )

    def _matches_sample(self, sample: int, begin: int, found: NDArray[np.uint8], length: int) -> bool:
        expected: NDArray[np.uint8] = np.empty(length, np.uint8)
        key = int(sample_keys(self._dataset, np.array([sample]))[0])
        fill_part(self._dress, key, begin, expected.data)
        return np.array_equal(found, expected)


def make_verifier(member: Member, stored: ReadRanges) -> UnitVerifier | None:
    """Make the verifier of a data set's encoded units; None if it has none that dliosim wrote."""
    places = member.places
    if places.dataset.source or not isinstance(places, IndexedPlaces):
        return None
    return UnitVerifier(places, member.first_sample, member.first_file, stored)


class SampleCache:
    """Bytes of samples by their number, without eviction.

    The first epoch fills it. In later epochs the samples in it are copied, not read.
    """

    def __init__(self) -> None:
        self.numbers = np.empty(0, np.int64)
        self._data: dict[int, NDArray[np.uint8]] = {}
        self._scratch = np.empty(0, np.uint8)

    @property
    def is_empty(self) -> bool:
        """True if no sample was kept at the last `seal`."""
        return len(self.numbers) == 0

    def store_samples(
        self, samples: NDArray[np.int64], starts: NDArray[np.int64], lengths: NDArray[np.int64], data: memoryview
    ) -> None:
        """Copy samples into the cache: sample i is `lengths[i]` bytes of `data` from byte `starts[i]`."""
        for sample, start, length in zip(samples.tolist(), starts.tolist(), lengths.tolist(), strict=True):
            self._data[sample] = np.frombuffer(data, np.uint8, length, start).copy()

    def seal(self) -> None:
        """End the filling, after the first epoch: sort the kept numbers into `numbers`, for later epochs' plans."""
        self.numbers = np.sort(np.fromiter(self._data, np.int64, len(self._data)))
        self._scratch = np.empty(max((len(bytes_) for bytes_ in self._data.values()), default=0), np.uint8)

    def copy_hits(self, samples: NDArray[np.int64]) -> None:
        """Copy those of `samples` that are kept, one after the other, as a training job must."""
        for sample in samples.tolist():
            data = self._data.get(sample)
            if data is not None:
                np.copyto(self._scratch[: len(data)], data)
