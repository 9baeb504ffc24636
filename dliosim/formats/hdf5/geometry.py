"""The chunks of a data set of samples, and the part of a sample in each: numbers only, no file."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from dliosim.formats.protocols import Ints
from dliosim.lazy_numpy import np
from dliosim.model import ELEMENTS, Dataset


@dataclass(frozen=True, slots=True)
class RecordPart:
    """One of the data sets of a record, as this format writes it."""

    name: str  #: name of the data set
    extents: tuple[int, ...]  #: shape of one sample in it, elements
    element: str  #: type of the elements, numpy's name

    @property
    def row_bytes(self) -> int:
        """Bytes of a sample in it."""
        return prod(self.extents) * ELEMENTS[self.element]


@dataclass(frozen=True, slots=True)
class ChunkGrid:
    """The chunks of a data set, in C order; `samples`, `pieces`, `row_bytes`, `unit_bytes` as in `protocols.Column`.

    The bytes of a sample are cut along one dimension into `along` chunks. The last of them holds `last` bytes of the
    sample; the rest is padding.
    """

    grid: tuple[int, ...]  #: chunks along each dimension
    samples: int  #: samples of one chunk; 0 if chunks hold several samples but none of them whole
    pieces: int  #: chunks of one sample; 1 if a chunk holds whole samples
    row_bytes: int  #: bytes of one sample; 0 if chunks hold tiles, not contiguous bytes of a sample (`is_tiled`)
    unit_bytes: int  #: bytes of a chunk after decoding
    along: int = 1  #: chunks that a run of a sample's bytes is cut into
    last: int = 0  #: bytes of the sample in the last of these chunks

    @property
    def is_tiled(self) -> bool:
        """Return True if a sample would have to be put together element by element from its chunks."""
        return self.row_bytes == 0

    @property
    def units(self) -> int:
        """Chunks of the whole data set, also those that the file does not have."""
        return prod(self.grid)

    def run_bytes(self) -> Ints:
        """Return the bytes that a sample takes of each chunk, with any padding after the last sample of all.

        A tile is taken whole.
        """
        length = np.full(self.units, self.unit_bytes, np.int64)
        if self.pieces > 1 and not self.is_tiled:
            length[self.along - 1 :: self.along] = self.last
        return length


def record_parts(dataset: Dataset) -> tuple[RecordPart, ...]:
    """Return the data sets of a record: `records`, or with several parts `records_0`, `records_1`, ... as in DLIO."""
    names = ("records",) if dataset.parts == 1 else tuple(f"records_{part}" for part in range(dataset.parts))
    if dataset.shape is not None:
        return tuple(RecordPart(name, dataset.shape.extents, dataset.shape.element) for name in names)
    size = dataset.constant_size
    assert size is not None, "refused before"
    return tuple(RecordPart(name, (size // dataset.parts,), "uint8") for name in names)


def chunk_shape(dataset: Dataset, part: RecordPart, count: int) -> tuple[int, ...] | None:
    """Return the shape of the chunks of a file of `count` samples, elements; None if the data set is contiguous.

    HDF5 refuses chunks longer than a data set that cannot grow: a file of few samples has shorter ones. With `compress`
    and without `chunk`, a chunk is a sample.
    """
    if count == 0 or (dataset.chunk is None and dataset.compress is None):
        return None
    if dataset.chunk is None:
        return (1, *part.extents)
    if dataset.chunk.unit == "samples":
        return (min(dataset.chunk.number, count), *part.extents)
    if dataset.chunk.unit == "elements":
        return (1, *dataset.chunk.extents)
    rows = dataset.chunk.number // part.row_bytes
    if rows:
        return (min(rows, count), *part.extents)
    return (1, *_longest_run(part, dataset.chunk.number, whole=dataset.compress is not None))


def refuse_chunk(dataset: Dataset) -> str | None:
    """Return why samples cannot be stored in chunks of the shape that the data set asks for; None if they can."""
    chunk, whole = dataset.chunk, dataset.shape
    if chunk is None or not chunk.extents:
        return None
    if whole is None:
        return "chunks of this shape need a `shape` of the sample"
    text = f"a sample is {' x '.join(map(str, whole.extents))}"
    if len(chunk.extents) != len(whole.extents):
        return f"{text}: a chunk of it has as many dimensions"
    if any(cut > extent for cut, extent in zip(chunk.extents, whole.extents, strict=True)):
        return f"{text}: no side of a chunk is longer"
    grid = chunk_grid((1, *whole.extents), (1, *chunk.extents), 1)
    axis = next((axis for axis, cut in enumerate(chunk.extents) if cut > 1), len(chunk.extents) - 1)
    padded = whole.extents[axis] % chunk.extents[axis]
    if dataset.compress is not None and not grid.is_tiled and axis > 0 and padded:  # as in `_longest_run`
        return f"{text}: with `compress`, {chunk.extents[axis]} must divide {whole.extents[axis]}"
    return None


def has_tiles(dataset: Dataset) -> bool:
    """Return True if chunks are tiles: a sample would have to be put together element by element."""
    chunk, whole = dataset.chunk, dataset.shape
    if chunk is None or whole is None or len(chunk.extents) != len(whole.extents):
        return False
    return chunk_grid((1, *whole.extents), (1, *chunk.extents), 1).is_tiled


def content_elements(part: RecordPart, chunk: tuple[int, ...]) -> Ints:
    """Return the elements of each chunk of a group of samples that are not padding, in C order; int64 (chunks,)."""
    held = np.full(1, chunk[0], np.int64)
    for extent, cut in zip(part.extents, chunk[1:], strict=True):
        starts = np.arange(0, extent, cut)
        held = np.multiply.outer(held, np.minimum(cut, extent - starts)).reshape(-1)
    return held


def group_size(dataset: Dataset, count: int) -> int:
    """Return the samples that are encoded together: those of a chunk."""
    chunks = [chunk_shape(dataset, part, count) for part in record_parts(dataset)]
    return next((chunk[0] for chunk in chunks if chunk is not None), 1)


def chunk_grid(shape: tuple[int, ...], chunk: tuple[int, ...], element_bytes: int) -> ChunkGrid:
    """Return the grid of chunks of a data set (samples first); all extents are 1 or more."""
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
    """Return the extents of the longest contiguous part of a sample: at most `size` bytes, at least 1 element.

    With `whole`, chunks inside a sample have no padding: an encoded chunk is decoded with its padding, which would then
    be inside the contents. So only the first dimension may be cut in lengths that do not divide it: its last chunk is
    the end of a sample.
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
