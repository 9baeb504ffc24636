"""The bytes of files of a framed format: whole samples at a time, since a frame may depend on its whole sample.

Small files are made many at a time in one buffer.
"""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dliosim.execute.backends.contract import allocate
from dliosim.execute.datasets.file_writer import Chunks, FileWriter, PlacedPart
from dliosim.execute.payload.payload_format import WORTH_WHILE, crc32_of_samples, dress_function, dress_samples
from dliosim.execute.payload.sample_bytes import fill_batch, sample_keys
from dliosim.formats.protocols import EncodeTime, Framed
from dliosim.measure.rank.meter import Stopwatch
from dliosim.plan.forecast.rank_memory import MADE_TOGETHER, SMALL_FILE
from dliosim.plan.samples.places import SAMPLES_AT_ONCE, FilePart, FramedPlaces
from dliosim.plan.samples.sample_to_file import align_up, sample_sizes, sample_strides

Ints = NDArray[np.int64]


def make_bodies(form: Framed, samples: Ints, sizes: Ints, starts: Ints, out: memoryview, encoding: EncodeTime) -> None:
    """Fill `out[starts[i]:starts[i] + stride]` with sample i, and what `align` adds after it with zeros.

    Other bytes stay as they are. Samples are in order and do not overlap. `encoding` counts the time of the format, not
    that of making contents.
    """
    at, length = form.content(sizes)
    fill_batch(sample_keys(form.dataset, samples), length, starts + at, out)
    with Stopwatch(encoding, "encode_ns"):
        dress_samples(dress_function(form), length, starts + at, out)
        form.frame(samples, sizes, starts, out)
    align = form.align
    if align > 1:
        stride = form.stride(sizes)
        gaps = -stride % align
        for end, gap in zip((starts + stride)[gaps > 0].tolist(), gaps[gaps > 0].tolist(), strict=True):
            out[end : end + gap] = bytes(gap)


def extend_checksum(form: Framed, samples: Ints, sizes: Ints, body: memoryview, value: int) -> int:
    """Return the format's checksum continued from `value` over whole samples that `make_bodies` made."""
    sums = form.checksum
    if sums is None:
        return value
    size = form.dataset.constant_size or 0
    if sums is zlib.crc32 and size >= WORTH_WHILE and len(body) == size * len(samples) and dress_function(form) is None:
        _, length = form.content(sizes)
        if (length == size).all():  # only contents: their checksum follows from the keys, without reading `body`
            return crc32_of_samples(sample_keys(form.dataset, samples), size, value)
    return sums(body, value)


@dataclass(frozen=True, slots=True)
class _SampleGroup:
    """Consecutive samples that are made together, and the region [start, stop) of the file that they fill."""

    #: numbers of the samples; (samples,)
    samples: NDArray[np.int64]
    #: size of each; (samples,)
    size: NDArray[np.int64]
    #: offset of each in the file; (samples,)
    offset: NDArray[np.int64]
    #: offset at which the region begins
    start: int
    #: offset at which it ends
    stop: int
    #: whether the region includes the file's header
    header: bool
    #: whether it includes the file's trailer
    trailer: bool


@dataclass(frozen=True, eq=False)
class FramedWriter(FileWriter):
    """Makes files of a framed format; small ones many at a time: framing one takes as long as hundreds."""

    #: places of the samples
    places: FramedPlaces

    def place(self, parts: Iterable[FilePart]) -> Iterator[PlacedPart]:
        """Yield the parts; small ones are made in runs."""
        memory = SmallFileBuffer(self.places, self.encoding)
        for run in group_small_parts(parts):
            for number, part in enumerate(run):
                chunks = partial(self._run_chunks, memory, run, number) if is_small(part) else self._part_chunks
                yield PlacedPart(part, partial(chunks, part))

    def chunk_count(self, part: FilePart, transfer: int | None) -> int:
        """Return the number of chunks of a part."""
        groups, total = 0, 0
        for group in self._group_samples(part, transfer):
            groups += 1
            length = group.stop - group.start
            total += -(-length // (transfer or max(1, length)))
        return total + (groups > 1 and part.first and self.places.form.checksum is not None)

    def largest_chunk(self, part: FilePart, transfer: int | None) -> int:
        """Return the bytes of the largest group of a part."""
        if is_small(part):
            return part.length
        return max(group.stop - group.start for group in self._group_samples(part, transfer))

    def _run_chunks(
        self,
        memory: SmallFileBuffer,
        run: list[FilePart],
        number: int,
        part: FilePart,
        transfer: int | None,
        buffer: memoryview,
    ) -> Chunks:
        if part.length <= transfer if transfer is not None else part.last_sample - part.first_sample == 1:
            yield 0, memory.file_view(run, number)
        else:
            yield from self._part_chunks(part, transfer, buffer)

    def _part_chunks(self, part: FilePart, transfer: int | None, buffer: memoryview) -> Chunks:
        form, encoding = self.places.form, self.encoding
        first, last = self.places.samples_of(part.file)
        count, end = last - first, self.places.samples_end(part.file)
        sums, header = form.checksum, form.header
        value = form.start_checksum(count, end)
        again = False
        for group in self._group_samples(part, transfer):
            out = buffer[: group.stop - group.start]
            make_bodies(form, group.samples, group.size, group.offset - group.start, out, encoding)
            with Stopwatch(encoding, "encode_ns"):
                body = out[header if group.header else 0 : min(end, group.stop) - group.start]
                value = extend_checksum(form, group.samples, group.size, body, value)
                if group.header:
                    again = sums is not None and not group.trailer
                    out[:header] = bytes(header) if again else form.write_header(count, end, value)
                if group.trailer:
                    out[end - group.start :] = form.write_trailer(count, end, value)
            size = transfer or max(1, len(out))  # a file without samples may be empty
            for at in range(0, len(out), size):
                yield group.start + at, out[at : at + size]
        if again:  # the checksum over the whole file is known only now
            yield 0, memoryview(form.write_header(count, end, value))

    def _group_samples(self, part: FilePart, transfer: int | None) -> Iterator[_SampleGroup]:
        """Yield the groups of a part: samples that fit into one call of `transfer`, or one sample that does not.

        If `transfer` is None, each sample is a group.
        """
        end = part.offset + part.length
        none = np.empty(0, np.int64)
        if part.first_sample == part.last_sample:
            yield _SampleGroup(none, none, none, part.offset, end, part.first, part.last)
            return
        start = part.offset
        for first in range(part.first_sample, part.last_sample, SAMPLES_AT_ONCE):
            last = min(first + SAMPLES_AT_ONCE, part.last_sample)
            # One sample more than the group has, since the space of a sample ends where the next begins.
            samples = np.arange(first, min(last + 1, part.last_sample))
            _, offset, _ = self.places.locate(samples)
            bounds = np.append(offset[: last - first], end if last == part.last_sample else offset[-1])
            size = sample_sizes(self.places.dataset, samples[: last - first])
            row = 0
            while row < last - first:
                until = row + 1
                if transfer is not None:
                    until = max(until, int(np.searchsorted(bounds, start + transfer, side="right")) - 1)
                stop, rows = int(bounds[until]), slice(row, until)
                begins, ends = first + row == part.first_sample, first + until == part.last_sample
                yield _SampleGroup(
                    samples[rows], size[rows], offset[rows], start, stop, part.first and begins, part.last and ends
                )
                row, start = until, stop


#: The most files and samples that are made together, and the most samples of a small file.
_FILES: Final = 1024
_SAMPLES: Final = 1 << 16
_SMALL_SAMPLES: Final = 4096


def is_small(part: FilePart) -> bool:
    """Return whether a part is a whole file, with samples in it, that is made together with others."""
    samples = part.last_sample - part.first_sample
    return part.first and part.last and 0 < samples <= _SMALL_SAMPLES and part.length <= SMALL_FILE


def group_small_parts(parts: Iterable[FilePart]) -> Iterator[list[FilePart]]:
    """Yield the parts in their order: small ones in runs that are made together, each other part alone."""
    run: list[FilePart] = []
    size = samples = 0
    for part in parts:
        small = is_small(part)
        size += align_up(part.length, mmap.PAGESIZE)
        samples += part.last_sample - part.first_sample
        if run and (not small or size > MADE_TOGETHER or samples > _SAMPLES or len(run) == _FILES):
            yield run
            run, size, samples = [], align_up(part.length, mmap.PAGESIZE), part.last_sample - part.first_sample
        run.append(part)
        if not small:
            yield run
            run, size, samples = [], 0, 0
    if run:
        yield run


class SmallFileBuffer:
    """The bytes of the files of one run, made when the first of them is asked for."""

    def __init__(self, places: FramedPlaces, encoding: EncodeTime) -> None:
        """Keep what is needed to make files; `encoding` counts the time of framing."""
        self._places, self._encoding = places, encoding
        self._run: list[FilePart] = []
        self._buffer = memoryview(b"")
        self._starts: list[int] = []

    def file_view(self, run: list[FilePart], number: int) -> memoryview:
        """Return the bytes of file `number` of a run; they are valid until a file of another run is asked for."""
        if run is not self._run:
            self._run = run
            self._encode_run()
        start = self._starts[number]
        return self._buffer[start : start + run[number].length]

    def _encode_run(self) -> None:
        run, places, form = self._run, self._places, self._places.form
        # Each file begins at a page of memory, from which O_DIRECT writes without another copy.
        taken = np.array([align_up(part.length, mmap.PAGESIZE) for part in run], np.int64)
        ends = np.cumsum(taken)
        if len(self._buffer) < ends[-1]:
            self._buffer = allocate(int(ends[-1]))
        counts = np.array([part.last_sample - part.first_sample for part in run], np.int64)
        last = np.cumsum(counts)
        first = np.array([part.first_sample for part in run], np.int64)
        samples = np.repeat(first - last + counts, counts) + np.arange(counts.sum())
        _, offset, _ = places.locate(samples)
        sizes = sample_sizes(places.dataset, samples)
        make_bodies(form, samples, sizes, offset + np.repeat(ends - taken, counts), self._buffer, self._encoding)
        with Stopwatch(self._encoding, "encode_ns"):
            self._starts = (ends - taken).tolist()
            bodies = (offset[last - 1] + sample_strides(form, sizes[last - 1])).tolist()
            header = form.header
            rows = zip(run, self._starts, bodies, counts.tolist(), last.tolist(), strict=True)
            for part, start, end, count, until in rows:
                own = slice(until - count, until)
                out = self._buffer[start : start + part.length]
                value = form.start_checksum(count, end)
                value = extend_checksum(form, samples[own], sizes[own], out[header:end], value)
                out[:header] = form.write_header(count, end, value)
                out[end:] = form.write_trailer(count, end, value)
