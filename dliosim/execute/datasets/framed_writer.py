"""The bytes of files of a framed format: whole samples at a time, since a frame may depend on its whole sample."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dliosim.execute.datasets.file_writer import Chunks, FileWriter, PlacedPart
from dliosim.execute.datasets.frame_encoder import extend_checksum, make_bodies
from dliosim.execute.datasets.small_files import SmallFileBuffer, group_small_parts, is_small
from dliosim.measure.rank.stopwatch import Stopwatch
from dliosim.plan.samples.places import FramedPlaces
from dliosim.plan.samples.prepare_partition import SAMPLES_AT_ONCE, FilePart
from dliosim.plan.samples.sizes import sample_sizes


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
    """Makes files of a framed format; small files many at a time: to frame one sample takes as long as hundreds."""

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

        Where `transfer` is None, each sample is a group.
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
