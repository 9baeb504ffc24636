"""Whole small files of a framed format, made many at a time in one buffer."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from dliosim.execute.backends.buffers import allocate
from dliosim.execute.datasets.frame_encoder import extend_checksum, make_bodies
from dliosim.formats.protocols import EncodeTime
from dliosim.measure.rank.stopwatch import Stopwatch
from dliosim.plan.forecast.rank_memory import MADE_TOGETHER, SMALL_FILE
from dliosim.plan.samples.places import FramedPlaces
from dliosim.plan.samples.prepare_partition import FilePart
from dliosim.plan.samples.sample_to_file import align_up
from dliosim.plan.samples.sizes import sample_sizes, sample_strides

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
