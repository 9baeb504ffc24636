"""Samples of a framed format as a file stores them, contents and framing, and the checksum over them."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

from dliosim.execute.payload.payload_crc import WORTH_WHILE, crc32_of_samples
from dliosim.execute.payload.payload_format import dress_function, dress_samples
from dliosim.execute.payload.sample_bytes import fill_batch, sample_keys
from dliosim.formats.protocols import EncodeTime, Framed
from dliosim.measure.rank.stopwatch import Stopwatch

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
