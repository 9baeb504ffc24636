"""Select the module that makes the bytes of a data set: raw, framed, or inside of files that a library has laid out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from dliosim.execute.datasets import framed_writer, preallocated_writer, raw_writer
from dliosim.execute.datasets.raw_writer import PlacedPart
from dliosim.formats.protocols import EncodeTime
from dliosim.model import Dataset
from dliosim.plan.samples.prepare_partition import FilePart
from dliosim.plan.samples.sample_index import Places
from dliosim.plan.samples.sizes import is_framed


@dataclass(frozen=True, slots=True)
class ChunkMaker:
    """The functions that make the bytes of one kind of format."""

    #: yields parts with the function that makes their chunks; the `EncodeTime` counts the time of framing
    place: Callable[[Dataset, Places, Iterable[FilePart], EncodeTime], Iterator[PlacedPart]]
    #: returns the number of chunks of a part, for a largest call in bytes (None: a call a sample)
    chunk_count: Callable[[Dataset, Places, FilePart, int | None], int]
    #: returns the bytes of the buffer that these chunks need
    largest_chunk: Callable[[Dataset, Places, FilePart, int | None], int]


_RAW = ChunkMaker(
    lambda dataset, places, parts, _: raw_writer.place_parts(dataset, places, parts),
    raw_writer.chunk_count,
    raw_writer.largest_chunk,
)
_FRAMED = ChunkMaker(framed_writer.place_parts, framed_writer.chunk_count, framed_writer.largest_chunk)
_IN_PLACE = ChunkMaker(
    lambda dataset, places, parts, _: preallocated_writer.place_parts(dataset, places, parts),
    preallocated_writer.chunk_count,
    preallocated_writer.largest_chunk,
)


def find_chunk_maker(dataset: Dataset) -> ChunkMaker:
    """Return the maker of a data set's bytes; do not call it for files that a library builds whole."""
    if dataset.format == "raw":
        return _RAW
    return _FRAMED if is_framed(dataset) else _IN_PLACE
