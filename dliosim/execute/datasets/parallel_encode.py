"""Build a file by all ranks: each rank encodes groups of samples, and one rank writes them in order."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from dliosim.execute.datasets.library_writer import (
    LibraryCalls,
    account_file,
    call_library,
    generate_contents,
    remove_existing,
)
from dliosim.execute.phases.context import Session
from dliosim.formats.protocols import GroupEncoder
from dliosim.measure.records import VerbRecord
from dliosim.measure.stopwatch import Stopwatch
from dliosim.model import Prepare
from dliosim.plan.samples.sample_to_file import first_samples

#: Bytes of the number that says how long a message is.
_LENGTH = 8


def build_collectively(session: Session, form: GroupEncoder, verb: Prepare, record: VerbRecord) -> None:
    """Build the files of a data set that has fewer files than there are ranks. Collective.

    Group g of a file is encoded by rank g % R, which keeps it until its turn to send it to the rank that writes the
    file. Raises ExecutionError on a rank that fails: others may then wait for it for ever, so the caller ends the job.
    """
    files, world = form.dataset.layout.files, session.world
    for file in range(files):
        first, last = first_samples(np.array([file, file + 1]), form.dataset.samples, files).tolist()
        shared = _SharedFile(session, form, record, first, last, file % world.size)
        if world.rank != shared.owner:
            shared.send_groups()
            continue
        path = session.files(form.dataset).path(file)
        remove_existing(path)
        with LibraryCalls() as made:
            call_library(path, partial(form.assemble, path, last - first, made.exclude(shared.collect_groups())))
        account_file(path, made, verb, record)


@dataclass(frozen=True, slots=True)
class _SharedFile:
    """Samples [first, last) of a data set, which rank `owner` writes."""

    #: the session of the run
    session: Session
    #: the format, bound to the data set
    form: GroupEncoder
    #: times of this rank
    record: VerbRecord
    #: first sample of the file
    first: int
    #: first sample of the next file
    last: int
    #: rank that writes the file
    owner: int

    @property
    def group_count(self) -> int:
        """Return the number of groups of the file."""
        return -(-(self.last - self.first) // self.form.group_size(self.last - self.first))

    def encode_samples(self, number: int) -> list[bytes]:
        """Encode one group on this rank, and return its units."""
        count = self.last - self.first
        size = self.form.group_size(count)
        begin = self.first + number * size
        end = min(begin + size, self.last)
        # This rank has encoded one group of R in this file and in those before, so about 1/R of all samples so far.
        before = (self.first + number * size) // self.session.world.size
        (rows,) = generate_contents(self.session, self.form, size, begin, end, self.record, before)
        with Stopwatch(self.record, "encode_ns"):
            return self.form.encode_group(count, rows)

    def send_groups(self) -> None:
        """Encode every group of this rank, and send it when the owner asks for it."""
        world = self.session.world
        for number in range(world.rank, self.group_count, world.size):
            units = self.encode_samples(number)
            with Stopwatch(self.record, "send_ns"):
                data = pickle.dumps(units)
                world.ranks.send(memoryview(len(data).to_bytes(_LENGTH, "little")), self.owner)
                world.ranks.send(memoryview(data), self.owner)

    def collect_groups(self) -> Iterator[list[bytes]]:
        """Yield all groups in order, from the ranks that encode them."""
        world = self.session.world
        for number in range(self.group_count):
            source = number % world.size
            if source == world.rank:
                yield self.encode_samples(number)
                continue
            with Stopwatch(self.record, "send_ns"):
                length = bytearray(_LENGTH)
                world.ranks.receive(memoryview(length), source)
                data = bytearray(int.from_bytes(length, "little"))
                world.ranks.receive(memoryview(data), source)
                units: list[bytes] = pickle.loads(data)  # sent by this program
            yield units
