"""Raw files: a header of zeros, then samples one after the other, without a frame."""

from __future__ import annotations

from pathlib import Path

from dliosim.formats.header_scanner import data_error
from dliosim.formats.protocols import Column, FileIndex, Framed, index_ranges
from dliosim.lazy_numpy import np


class Raw(Framed):
    """The format `raw`; see `protocols.Framed`."""

    name = "raw"
    uses = ("header", "align", "shape")
    bare = True

    def index(self, path: Path) -> FileIndex:
        """Return the places of the samples: one sample for the whole file, or as many as fit where all have one size.

        Raises ExecutionError [R401] if the file is no whole number of samples.
        """
        size = path.stat().st_size
        each, header = self.dataset.constant_size, self.header
        if each is None:
            return index_ranges(size, np.zeros(1, np.int64), np.array([size]), 0, size)
        stride = -(-each // self.align) * self.align
        count, rest = divmod(size - header + stride - each, stride)
        if count < 0 or (rest > stride - each):
            raise data_error(f"{path} has {size} bytes, which is no whole number of samples of {each}")
        unit = Column(1, 1, each, each, header + np.arange(count) * stride, np.full(count, each, np.int64))
        return FileIndex(count, size, (unit,))

    @property
    def header(self) -> int:
        """`header` of the data set, rounded up to `align`."""
        return -(-self.dataset.header // self.dataset.align) * self.dataset.align

    @property
    def align(self) -> int:
        """`align` of the data set."""
        return self.dataset.align
