"""Building a file by all ranks: each encodes groups of samples, and one writes them, in their order."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter_ns

import numpy as np

from dliosim.execute.context import Session
from dliosim.execute.datasets.library_writer import LibraryCalls, account_built, anew, by_library, contents_of
from dliosim.formats.protocols import BuiltInGroups
from dliosim.measure.records import VerbRecord
from dliosim.model import Dataset, Prepare
from dliosim.plan.samples.sample_to_file import first_samples

#: Bytes of the length of what is sent.
_LENGTH = 8


def build_together(
    session: Session, dataset: Dataset, form: BuiltInGroups, verb: Prepare, directory: Path, record: VerbRecord
) -> None:
    """Build fewer files than there are ranks. Collective.

    Group g of a file is encoded by rank g % R, which holds what it has encoded until it is its turn to send that to the
    rank that writes the file. Raises ExecutionError on a rank that fails: others may then wait for it for ever.
    """
    files, world = dataset.layout.files, session.world
    for file in range(files):
        first, last = first_samples(np.array([file, file + 1]), dataset.samples, files).tolist()
        shared = _SharedFile(session, dataset, form, record, first, last, file % world.size)
        if world.rank != shared.owner:
            shared.send_own()
            continue
        path = directory / dataset.file_name(file)
        anew(path)
        with LibraryCalls() as made:
            by_library(path, partial(form.assemble, dataset, path, last - first, made.apart(shared.in_order())))
        account_built(path, made, verb, record)


@dataclass(frozen=True, slots=True)
class _SharedFile:
    """Samples [first, last) of a data set, which rank `owner` writes."""

    session: Session
    dataset: Dataset
    form: BuiltInGroups
    record: VerbRecord
    first: int
    last: int
    owner: int

    @property
    def groups(self) -> int:
        return -(-(self.last - self.first) // self.form.group(self.dataset, self.last - self.first))

    def encoded(self, number: int) -> list[bytes]:
        """One group, encoded here."""
        count = self.last - self.first
        size = self.form.group(self.dataset, count)
        begin = self.first + number * size
        end = min(begin + size, self.last)
        # Every R-th group is this rank's, and of the files before this one as large a part.
        before = (self.first + number * size) // self.session.world.size
        (rows,) = contents_of(self.session, self.dataset, size, begin, end, self.record, before)
        begun = perf_counter_ns()
        units = self.form.encode_group(self.dataset, count, rows)
        self.record.encode_ns += perf_counter_ns() - begun
        return units

    def send_own(self) -> None:
        """Encode every group of this rank, and send it when it is wanted."""
        world = self.session.world
        for number in range(world.rank, self.groups, world.size):
            units = self.encoded(number)
            begun = perf_counter_ns()
            data = pickle.dumps(units)
            world.ranks.send(memoryview(len(data).to_bytes(_LENGTH, "little")), self.owner)
            world.ranks.send(memoryview(data), self.owner)
            self.record.send_ns += perf_counter_ns() - begun

    def in_order(self) -> Iterator[list[bytes]]:
        """All groups, from whoever encodes them."""
        world = self.session.world
        for number in range(self.groups):
            source = number % world.size
            if source == world.rank:
                yield self.encoded(number)
                continue
            begun = perf_counter_ns()
            length = bytearray(_LENGTH)
            world.ranks.receive(memoryview(length), source)
            data = bytearray(int.from_bytes(length, "little"))
            world.ranks.receive(memoryview(data), source)
            units: list[bytes] = pickle.loads(data)  # made by this very program
            self.record.send_ns += perf_counter_ns() - begun
            yield units
