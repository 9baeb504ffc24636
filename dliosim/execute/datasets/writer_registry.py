"""Who makes the bytes that preparing writes: raw parts, framed files, or rows of files that a library has laid out."""

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
    """`place` gives parts what makes their chunks; `largest_chunk` and `chunk_count` say what that will need.

    Time that a format takes to surround samples goes into the `Encoding`.
    """

    place: Callable[[Dataset, Places, Iterable[FilePart], EncodeTime], Iterator[PlacedPart]]
    chunk_count: Callable[[Dataset, Places, FilePart, int | None], int]
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
    """Who makes a data set's files; those that a library builds whole have none."""
    if dataset.format == "raw":
        return _RAW
    return _FRAMED if is_framed(dataset) else _IN_PLACE
