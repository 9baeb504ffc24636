"""The bytes of files of a framed format: whole samples at a time, since a frame may depend on its whole sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns

import numpy as np
from numpy.typing import NDArray

from dliosim.execute.datasets.frame_encoder import extend_checksum, make_bodies
from dliosim.execute.datasets.raw_writer import Chunks, PlacedPart
from dliosim.execute.datasets.small_files import SmallFileBuffer, group_small_parts, is_small
from dliosim.formats.protocols import EncodeTime
from dliosim.model import Dataset
from dliosim.plan.samples.io_requests import locate
from dliosim.plan.samples.prepare_partition import SAMPLES_AT_ONCE, FilePart
from dliosim.plan.samples.sample_index import Places
from dliosim.plan.samples.sample_to_file import first_samples
from dliosim.plan.samples.sizes import require_framed, sample_sizes, sample_strides


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


@dataclass(frozen=True, slots=True)
class _FileExtent:
    """The samples of a file, from which its header and trailer are made."""

    #: number of samples
    count: int
    #: offset at which the last one ends
    end: int


def place_parts(
    dataset: Dataset, places: Places, parts: Iterable[FilePart], encoding: EncodeTime
) -> Iterator[PlacedPart]:
    """Yield the parts with the function that makes their chunks; see `raw_writer.place_parts`.

    Small files are made many at a time: to frame one sample takes as long as hundreds. `encoding` counts the time of
    framing.
    """
    memory = SmallFileBuffer(dataset, places, encoding)
    for run in group_small_parts(parts):
        for number, part in enumerate(run):
            alone = partial(_part_chunks, dataset, places, part, encoding)
            yield PlacedPart(part, partial(_run_chunks, memory, run, number, alone) if is_small(part) else alone)


def _run_chunks(
    memory: SmallFileBuffer,
    run: list[FilePart],
    number: int,
    alone: Callable[[int | None, memoryview], Chunks],
    transfer: int | None,
    buffer: memoryview,
) -> Chunks:
    part = run[number]
    if part.length <= transfer if transfer is not None else part.last_sample - part.first_sample == 1:
        yield 0, memory.file_view(run, number)
    else:
        yield from alone(transfer, buffer)


def chunk_count(dataset: Dataset, places: Places, part: FilePart, transfer: int | None) -> int:
    """Return the number of chunks of a part."""
    groups, total = 0, 0
    for group in _group_samples(dataset, places, part, transfer):
        groups += 1
        length = group.stop - group.start
        total += -(-length // (transfer or max(1, length)))
    return total + (groups > 1 and part.first and require_framed(dataset).checksum is not None)


def largest_chunk(dataset: Dataset, places: Places, part: FilePart, transfer: int | None) -> int:
    """Return the bytes of the largest group of a part, or a little more: the size that its buffer must have."""
    if is_small(part):
        return part.length
    return max(group.stop - group.start for group in _group_samples(dataset, places, part, transfer))


def _part_chunks(
    dataset: Dataset, places: Places, part: FilePart, encoding: EncodeTime, transfer: int | None, buffer: memoryview
) -> Chunks:
    form, whole = require_framed(dataset), _file_extent(dataset, places, part.file)
    sums = form.checksum
    value = form.start_checksum(whole.count, whole.end)
    header = form.header
    again = False
    for group in _group_samples(dataset, places, part, transfer):
        out = buffer[: group.stop - group.start]
        make_bodies(form, group.samples, group.size, group.offset - group.start, out, encoding)
        begun = perf_counter_ns()
        body = out[header if group.header else 0 : min(whole.end, group.stop) - group.start]
        value = extend_checksum(form, group.samples, group.size, body, value)
        if group.header:
            again = sums is not None and not group.trailer
            out[:header] = bytes(header) if again else form.write_header(whole.count, whole.end, value)
        if group.trailer:
            out[whole.end - group.start :] = form.write_trailer(whole.count, whole.end, value)
        encoding.encode_ns += perf_counter_ns() - begun
        size = transfer or max(1, len(out))  # a file without samples may be empty
        for at in range(0, len(out), size):
            yield group.start + at, out[at : at + size]
    if again:  # the checksum over the whole file is known only now
        yield 0, memoryview(form.write_header(whole.count, whole.end, value))


def _file_extent(dataset: Dataset, places: Places, file: int) -> _FileExtent:
    first, last = first_samples(np.array([file, file + 1]), dataset.samples, dataset.layout.files).tolist()
    if first == last:
        return _FileExtent(0, require_framed(dataset).header)
    _, offset, _ = locate(dataset, places, np.array([last - 1]))
    return _FileExtent(
        last - first, int(offset[0] + sample_strides(dataset, sample_sizes(dataset, np.array([last - 1])))[0])
    )


def _group_samples(dataset: Dataset, places: Places, part: FilePart, transfer: int | None) -> Iterator[_SampleGroup]:
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
        _, offset, _ = locate(dataset, places, samples)
        bounds = np.append(offset[: last - first], end if last == part.last_sample else offset[-1])
        size = sample_sizes(dataset, samples[: last - first])
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
