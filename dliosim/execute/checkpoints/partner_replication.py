"""Keep a second copy of what each rank saves on a partner; it is stored in the checkpoint and complete with it."""

from __future__ import annotations

import zlib
from itertools import zip_longest
from pathlib import Path

from mpi4py import MPI

from dliosim.errors import DliosimError
from dliosim.execute.backends.buffers import allocate
from dliosim.execute.backends.contract import Writer, close_writer
from dliosim.execute.backends.registry import open_writer
from dliosim.execute.checkpoints.state_writer import Made, Run, largest_call, pieces_of
from dliosim.execute.phases.context import Session
from dliosim.measure.rank.records import VerbRecord
from dliosim.measure.rank.stopwatch import Stopwatch
from dliosim.model import Access
from dliosim.plan.checkpoints.layout import StateFiles, partner_file


def copy_to_partner(
    session: Session, files: StateFiles, distance: int, directory: Path, made: Made, record: VerbRecord
) -> list[Run]:
    """Send what this rank saves to rank r + `distance`, write what rank r - `distance` sends, and return its run.

    Calls are exchanged one by one, so that at most one call of each rank is in memory. Collective; raises DliosimError
    on every rank.
    """
    world, checkpoint = session.world, files.checkpoint
    target, source = (world.rank + distance) % world.size, (world.rank - distance) % world.size
    with Stopwatch(record, "partner_ns"):
        keeping = _PartnerFile(checkpoint.access, directory / partner_file(source))
        buffer = allocate(largest_call(files, source))
        # In each ring of partners some rank must send first and some receive first, or all would wait for each other.
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
    world.agree_on_error(keeping.error)
    return [(partner_file(source), 0, keeping.size, keeping.checksum)] if keeping.size else []


class _PartnerFile:
    """A file that accepts calls even after an `error`, since other ranks wait to send and to receive."""

    def __init__(self, access: Access, path: Path) -> None:
        self.size = self.checksum = 0
        self.error: DliosimError | None = None
        self._writer: Writer | None = None
        try:
            self._writer = open_writer(access, path, MPI.COMM_SELF)
        except DliosimError as error:
            self.error = error

    def write(self, data: memoryview) -> None:
        """Append bytes; after an error only count them."""
        if self._writer is not None and self.error is None:
            try:
                self._writer.write(self.size, data)
            except DliosimError as error:
                self.error = error
        self.size += len(data)
        self.checksum = zlib.crc32(data, self.checksum)

    def close(self, fsync: bool) -> None:
        """Sync and close the file; keep the first error."""
        if self._writer is None:
            return
        try:
            if fsync and self.error is None:
                self._writer.sync()
            close_writer(self._writer, VerbRecord())
        except DliosimError as error:
            self.error = self.error or error
