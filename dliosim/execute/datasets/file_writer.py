"""Writers of files by calls: they make the bytes of parts of files, cut into chunks, one a call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from dliosim.formats.protocols import EncodeTime
from dliosim.measure.records import VerbRecord
from dliosim.plan.samples.places import Places
from dliosim.plan.samples.prepare_partition import FilePart

Chunks: TypeAlias = Iterator[tuple[int, memoryview]]
"""(offset in the file, data) of calls that together write a part without holes."""


@dataclass(frozen=True, slots=True)
class PlacedPart:
    """A part whose samples have their places in the file."""

    #: the part
    part: FilePart
    #: makes its chunks, from the most bytes of a call (None: a call a sample, with what is around it) and a buffer that
    #: each chunk overwrites and that must hold the largest
    chunks: Callable[[int | None, memoryview], Chunks]


@dataclass(frozen=True, eq=False)
class FileWriter(ABC):
    """Base of the writers: it makes the bytes of the files of one data set."""

    #: places of the samples
    places: Places
    #: time of framing
    encoding: EncodeTime = field(default_factory=EncodeTime)

    #: True if writing makes the files; False if a library has laid them out
    makes_files: ClassVar[bool] = True

    @abstractmethod
    def place(self, parts: Iterable[FilePart]) -> Iterator[PlacedPart]:
        """Yield the parts with the function that makes their chunks; small ones are prepared many at a time."""

    @abstractmethod
    def chunk_count(self, part: FilePart, transfer: int | None) -> int:
        """Return the number of chunks of a part."""

    @abstractmethod
    def largest_chunk(self, part: FilePart, transfer: int | None) -> int:
        """Return the bytes of the largest chunk of a part, or a little more: the size that its buffer must have."""

    def count_encoding(self, record: VerbRecord) -> None:
        """Count the time of framing as such, and no longer as that of making contents."""
        record.encode_ns += self.encoding.encode_ns
        record.content_ns -= self.encoding.encode_ns
