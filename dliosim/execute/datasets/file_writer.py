"""Writers of files by calls: they make the bytes of parts of files, cut into chunks, one a call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, TypeAlias

import numpy as np

from dliosim.execute.phases.context import DatasetFiles, Session
from dliosim.formats.protocols import EncodeTime, Format
from dliosim.measure.rank.records import VerbRecord
from dliosim.model import Dataset, Prepare
from dliosim.plan.samples.places import FilePart, Places
from dliosim.plan.samples.sample_to_file import first_samples

Chunks: TypeAlias = Iterator[tuple[int, memoryview]]
"""(offset in the file, data) of calls that together write a part without holes."""


class SampleSource(Protocol):
    """The samples that a conversion reads, part by part, while it writes them."""

    def begin_part(self, first: int, last: int) -> None:
        """Begin with the samples [first, last)."""

    def read_until(self, sample: int) -> None:
        """Read all samples of the part before `sample`. Raises ExecutionError."""

    def end_part(self) -> None:
        """Read what is left of the part."""


@dataclass(frozen=True, slots=True)
class WriteJob:
    """A data set that is written."""

    #: the session of the run
    session: Session
    #: how it is written
    verb: Prepare
    #: its files
    files: DatasetFiles
    #: its format
    form: Format
    #: figures of this rank
    record: VerbRecord
    #: what is read for the samples; None if they are made
    source: SampleSource | None = None

    @property
    def dataset(self) -> Dataset:
        """The data set."""
        return self.files.dataset

    @property
    def is_shared_open(self) -> bool:
        """True if all ranks open the one file together."""
        return self.verb.access.is_mpi and self.dataset.layout.files == 1 and self.source is None

    @property
    def is_precreated(self) -> bool:
        """True if one rank creates the files: then no rank truncates what another, which opens it too, has written."""
        few = self.dataset.layout.files < self.session.world.size
        return few and not self.is_shared_open and self.source is None

    def parts(self, places: Places) -> Iterator[FilePart]:
        """Return the parts of files that this rank writes: whole files where samples are read."""
        ranks, rank = self.session.world.size, self.session.world.rank
        if self.source is None:
            return places.parts(ranks, rank)
        return (part for part in places.parts(1, 0) if part.file % ranks == rank)

    def own_files(self) -> range:
        """Return the files that this rank makes if it makes whole ones."""
        return range(self.session.world.rank, self.dataset.layout.files, self.session.world.size)

    def samples_of(self, file: int) -> tuple[int, int]:
        """Return the first sample of a file, and that of the next file."""
        samples, files = self.dataset.samples, self.dataset.layout.files
        first, last = first_samples(np.array([file, file + 1]), samples, files).tolist()
        return first, last

    def count_samples(self, file: int) -> int:
        """Return the number of samples of a file."""
        first, last = self.samples_of(file)
        return last - first


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
        """Count the time of framing as encoding, not as making contents."""
        record.encode_ns += self.encoding.encode_ns
        record.content_ns -= self.encoding.encode_ns
