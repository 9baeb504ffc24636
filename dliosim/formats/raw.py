"""Raw files: a header of zeros, then samples one after the other, without a frame."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dliosim.errors import ExecutionError
from dliosim.formats.defaults import ContiguousFormat, refuse_unused
from dliosim.formats.protocols import Bytes, Column, FileIndex
from dliosim.lazy_numpy import np
from dliosim.model import Dataset


class Raw(ContiguousFormat):
    """The format `raw`; see `protocols.Framed`."""

    name: Final = "raw"

    def variant(self, dataset: Dataset) -> Raw:
        """Return the format itself."""
        return self

    def refuse(self, dataset: Dataset) -> tuple[str, str] | None:
        """Refuse settings that need a frame around samples, or a structure in them."""
        return refuse_unused(dataset, self.name, ("header", "align", "shape"))

    def needs(self, dataset: Dataset) -> tuple[str, str] | None:
        """Return None: no module is needed."""
        return None

    def index(self, path: Path, dataset: Dataset) -> FileIndex:
        """Return the places of the samples: one sample for the whole file, or as many as fit where all have one size.

        Raises ExecutionError [R401] where the file is no whole number of samples.
        """
        size = path.stat().st_size
        each, header = dataset.constant_size, self.header(dataset)
        if each is None:
            return FileIndex(1, size, (Column(1, 1, size, size, np.zeros(1, np.int64), np.array([size], np.int64)),))
        stride = -(-each // dataset.align) * dataset.align
        count, rest = divmod(size - header + stride - each, stride)
        if count < 0 or (rest > stride - each):
            raise ExecutionError(f"{path} has {size} bytes, which is no whole number of samples of {each}", "R401")
        unit = Column(1, 1, each, each, header + np.arange(count) * stride, np.full(count, each, np.int64))
        return FileIndex(count, size, (unit,))

    def decode(self, dataset: Dataset, column: Column | None, data: memoryview) -> Bytes | None:
        """Return the bytes as they are."""
        return np.frombuffer(data, np.uint8)

    def header(self, dataset: Dataset) -> int:
        """Return `header` of the data set, rounded up to `align`."""
        return -(-dataset.header // dataset.align) * dataset.align

    def align(self, dataset: Dataset) -> int:
        """Return `align` of the data set."""
        return dataset.align

    def write_header(self, dataset: Dataset, count: int, end: int, checksum: int) -> bytes:
        """Return zeros."""
        return bytes(self.header(dataset))


RAW = Raw()
