"""Build a file by all ranks: each rank encodes groups of samples, and one rank writes them in order."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from dliosim.execute.datasets.file_writer import WriteJob
from dliosim.execute.datasets.library_writer import generate_contents, write_whole
from dliosim.formats.protocols import EncodeTime, GroupEncoder
from dliosim.measure.rank.stopwatch import Stopwatch
from dliosim.plan.samples.sizes import bind_file

#: Bytes of the number that says how long a message is.
_LENGTH = 8


def build_shared_files(job: WriteJob, form: GroupEncoder) -> Iterator[int]:
    """Build the files of a data set that has fewer files than there are ranks; yield those of this rank. Collective.

    Group g of a file is encoded by rank g % R, which keeps it until its turn to send it to the rank that writes the
    file. Raises ExecutionError on a rank that fails: others may then wait for it for ever, so the caller ends the job.
    """
    world = job.session.world
    for file in range(job.dataset.layout.files):
        first, last = job.samples_of(file)
        shared = _SharedFile(job, cast(GroupEncoder, bind_file(form, first)), first, last, file % world.size)
        if world.rank == shared.owner:
            write_whole(job, file, shared.assemble, shared.collect_groups())
            yield file
        else:
            shared.send_groups()


@dataclass(frozen=True, slots=True)
class _SharedFile:
    """Samples [first, last) of a data set, which rank `owner` writes."""

    #: the data set that is written
    job: WriteJob
    #: the format of the file
    form: GroupEncoder
    #: first sample of the file
    first: int
    #: first sample of the next file
    last: int
    #: rank that writes the file
    owner: int

    def assemble(self, path: Path, count: int, groups: Iterator[list[bytes]], _: EncodeTime) -> None:
        """Write the file of encoded groups."""
        self.form.assemble(path, count, groups)

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
        before = (self.first + number * size) // self.job.session.world.size
        (rows,) = generate_contents(self.job.session, self.form, size, begin, end, self.job.record, before)
        with Stopwatch(self.job.record, "encode_ns"):
            return self.form.encode_group(count, rows)

    def send_groups(self) -> None:
        """Encode every group of this rank, and send it when the owner asks for it."""
        world = self.job.session.world
        for number in range(world.rank, self.group_count, world.size):
            units = self.encode_samples(number)
            with Stopwatch(self.job.record, "send_ns"):
                data = pickle.dumps(units)
                world.ranks.send(memoryview(len(data).to_bytes(_LENGTH, "little")), self.owner)
                world.ranks.send(memoryview(data), self.owner)

    def collect_groups(self) -> Iterator[list[bytes]]:
        """Yield all groups in order, from the ranks that encode them."""
        world = self.job.session.world
        for number in range(self.group_count):
            source = number % world.size
            if source == world.rank:
                yield self.encode_samples(number)
                continue
            with Stopwatch(self.job.record, "send_ns"):
                length = bytearray(_LENGTH)
                world.ranks.receive(memoryview(length), source)
                data = bytearray(int.from_bytes(length, "little"))
                world.ranks.receive(memoryview(data), source)
                units: list[bytes] = pickle.loads(data)  # sent by this program
            yield units
