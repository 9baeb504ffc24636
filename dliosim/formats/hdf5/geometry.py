"""How a data set of samples is cut into chunks, and what of a sample lies in each: numbers only, no file."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from dliosim.formats.protocols import Ints
from dliosim.lazy_numpy import np
from dliosim.model import ELEMENTS, Dataset


@dataclass(frozen=True, slots=True)
class RecordPart:
    """One of the data sets of a record, as this format writes it: its name, and what each sample has in it."""

    name: str
    extents: tuple[int, ...]
    element: str

    @property
    def row_bytes(self) -> int:
        """Bytes of a sample in it."""
        return prod(self.extents) * ELEMENTS[self.element]


@dataclass(frozen=True, slots=True)
class ChunkGrid:
    """Chunks of a data set, in the order of C; `samples`, `pieces`, `row_bytes`, `unit_bytes` as in `contract.Column`.

    `row_bytes` is 0 where the bytes of a sample in a chunk are no run of the sample's own (`tiled`), and `samples` is 0
    where chunks hold several samples, but none of them whole. A sample's run is cut along one dimension into `along`
    chunks, of whose last `last` bytes belong to the sample.
    """

    grid: tuple[int, ...]
    samples: int
    pieces: int
    row_bytes: int
    unit_bytes: int
    along: int = 1
    last: int = 0

    @property
    def is_tiled(self) -> bool:
        """Whether chunks of a sample would have to be put together element by element."""
        return self.row_bytes == 0

    @property
    def units(self) -> int:
        """Chunks of the whole data set, whether the file has them or not."""
        return prod(self.grid)

    def run_bytes(self) -> Ints:
        """Of each chunk the bytes that belong to samples, padding of the last samples apart."""
        length = np.full(self.units, self.unit_bytes, np.int64)
        if self.pieces > 1:
            length[self.along - 1 :: self.along] = self.last
        return length


def record_parts(dataset: Dataset) -> tuple[RecordPart, ...]:
    """The data sets of a record: `records`, or with several parts `records_0`, `records_1`, ... as DLIO calls them."""
    names = ("records",) if dataset.parts == 1 else tuple(f"records_{part}" for part in range(dataset.parts))
    if dataset.shape is not None:
        return tuple(RecordPart(name, dataset.shape.extents, dataset.shape.element) for name in names)
    size = dataset.constant_size
    assert size is not None, "refused before"
    return tuple(RecordPart(name, (size // dataset.parts,), "uint8") for name in names)


def chunk_shape(dataset: Dataset, part: RecordPart, count: int) -> tuple[int, ...] | None:
    """Chunks of a file of `count` samples, in elements; None where the data set is one run.

    HDF5 refuses chunks longer than a data set that cannot grow: a file of few samples has shorter ones. With
    compression and nothing said, a chunk is a sample.
    """
    if count == 0 or (dataset.chunk is None and dataset.compress is None):
        return None
    if dataset.chunk is None:
        return (1, *part.extents)
    if dataset.chunk.unit == "samples":
        return (min(dataset.chunk.number, count), *part.extents)
    rows = dataset.chunk.number // part.row_bytes
    if rows:
        return (min(rows, count), *part.extents)
    return (1, *_longest_run(part, dataset.chunk.number, whole=dataset.compress is not None))


def chunk_grid(shape: tuple[int, ...], chunk: tuple[int, ...], element_bytes: int) -> ChunkGrid:
    """What chunks of a data set (samples first) hold; all extents are 1 or more."""
    grid = tuple(-(-extent // length) for extent, length in zip(shape, chunk, strict=True))
    unit_bytes = prod(chunk) * element_bytes
    row_bytes = prod(shape[1:]) * element_bytes
    if chunk[1:] == shape[1:]:
        return ChunkGrid(grid, chunk[0], 1, row_bytes, unit_bytes)
    if chunk[0] > 1:
        return ChunkGrid(grid, 0, 0, 0, unit_bytes)
    pieces = prod(grid[1:])
    axis = next(axis for axis in range(1, len(shape)) if chunk[axis] > 1 or axis == len(shape) - 1)
    if chunk[axis + 1 :] != shape[axis + 1 :]:
        return ChunkGrid(grid, 1, pieces, 0, unit_bytes)
    along = grid[axis]
    rest = shape[axis] - (along - 1) * chunk[axis]
    return ChunkGrid(grid, 1, pieces, row_bytes, unit_bytes, along, rest * prod(shape[axis + 1 :]) * element_bytes)


def _longest_run(part: RecordPart, size: int, whole: bool) -> tuple[int, ...]:
    """The longest run of a sample, in elements of each dimension, that is no longer than `size` bytes, 1 element least.

    With `whole` it has no padding inside a sample: that of encoded chunks would be decoded amid its contents. So only
    the first dimension, whose last chunk is a sample's last, is cut in lengths that do not divide it.
    """
    inner = part.row_bytes
    for axis, extent in enumerate(part.extents):
        inner //= extent
        if inner <= size or axis == len(part.extents) - 1:
            length = min(extent, max(1, size // inner))
            if whole and axis > 0:
                length = next(divisor for divisor in range(length, 0, -1) if extent % divisor == 0)
            return (1,) * axis + (length,) + part.extents[axis + 1 :]
    return ()
