"""A second copy of what each rank saves, kept by a partner: it lies in the checkpoint, and is complete with it."""

from __future__ import annotations

import zlib
from itertools import zip_longest
from pathlib import Path
from time import perf_counter_ns

from mpi4py import MPI

from dliosim.errors import DliosimError
from dliosim.execute.backends.buffers import allocate
from dliosim.execute.backends.contract import Writer, close_writer
from dliosim.execute.backends.registry import open_writer
from dliosim.execute.checkpoints.state_writer import Made, Run, largest_call, pieces_of
from dliosim.execute.context import Session
from dliosim.measure.records import VerbRecord
from dliosim.model import Access
from dliosim.plan.checkpoints.layout import StateFiles, partner_file


def copy_to_partner(
    session: Session, files: StateFiles, distance: int, directory: Path, made: Made, record: VerbRecord
) -> list[Run]:
    """Send what this rank saves to rank r + `distance`, and write what rank r - `distance` sends; what was written.

    Calls go to and fro one by one, so that there is one of each in memory. Collective; raises DliosimError on every
    rank.
    """
    world, checkpoint = session.world, files.checkpoint
    target, source = (world.rank + distance) % world.size, (world.rank - distance) % world.size
    begun, made_before = perf_counter_ns(), record.content_ns
    keeping = _PartnerFile(checkpoint.access, directory / partner_file(source))
    buffer = allocate(largest_call(files, source))
    # Who is in an odd group of so many neighbours receives first: in every ring of partners there is one of each.
    sends_first = world.rank // distance % 2 == 0
    for own, coming in zip_longest(made, pieces_of(files, source)):
        if own is not None and sends_first:
            world.ranks.send(own[1], target)
        if coming is not None:
            data = buffer[: coming.length]
            world.ranks.receive(data, source)
            keeping.write(data)
        if own is not None and not sends_first:
            world.ranks.send(own[1], target)
    keeping.close(checkpoint.fsync)
    record.partner_bytes = keeping.size
    record.partner_ns = perf_counter_ns() - begun - (record.content_ns - made_before)
    world.agree_on_error(keeping.error)
    return [(partner_file(source), 0, keeping.size, keeping.checksum)] if keeping.size else []


class _PartnerFile:
    """A file that goes on after an error (`error`) as if nothing were, since others wait to send and to receive."""

    def __init__(self, access: Access, path: Path) -> None:
        self.size = self.checksum = 0
        self.error: DliosimError | None = None
        self._writer: Writer | None = None
        try:
            self._writer = open_writer(access, path, MPI.COMM_SELF)
        except DliosimError as error:
            self.error = error

    def write(self, data: memoryview) -> None:
        """Add bytes at the end."""
        if self._writer is not None and self.error is None:
            try:
                self._writer.write(self.size, data)
            except DliosimError as error:
                self.error = error
        self.size += len(data)
        self.checksum = zlib.crc32(data, self.checksum)

    def close(self, fsync: bool) -> None:
        """Sync and close."""
        if self._writer is None:
            return
        try:
            if fsync and self.error is None:
                self._writer.sync()
            close_writer(self._writer, VerbRecord())
        except DliosimError as error:
            self.error = self.error or error
