"""The shipped checks of backends notice what is wrong: each is tried on a backend with one fault."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from mpi4py import MPI

from dliosim.errors import ExecutionError
from dliosim.execute.backends.posix import PosixReader, PosixWriter
from dliosim.execute.backends.registry import Backend, backend_of
from dliosim.execute.testing.backend_contract import check_backend
from dliosim.model import Access
from dliosim.plan.samples.io_requests import Calls


class Shifted(PosixReader):
    def read(self, calls: Calls, into: memoryview) -> int:
        got = super().read(calls, into)
        into[:1] = bytes([into[0] ^ 1]) if len(into) and got else into[:1]
        return got


class Beyond(PosixReader):
    def read(self, calls: Calls, into: memoryview) -> int:
        got = super().read(calls, into)
        into[got : got + 1] = b"!" if got < len(into) else b""
        return got


class Miscounted(PosixReader):
    def read(self, calls: Calls, into: memoryview) -> int:
        return super().read(calls, into) + 1


class Unmeasured(PosixReader):
    def read(self, calls: Calls, into: memoryview) -> int:
        got = super().read(calls, into)
        self.meter.stamps.clear()
        return got


class Forgetful(PosixReader):
    def read(self, calls: Calls, into: memoryview) -> int:
        got = super().read(calls, into)
        self.meter.moved -= min(got, 1)
        return got


class KeepsOpen(PosixReader):
    def end_epoch(self) -> None:
        pass


class Leaking(PosixReader):
    def close(self) -> None:
        self._table.kept.clear()


class Lenient(PosixReader):
    def read(self, calls: Calls, into: memoryview) -> int:
        try:
            return super().read(calls, into)
        except ExecutionError:
            return int(calls.length.sum())


class Nameless(PosixReader):
    def read(self, calls: Calls, into: memoryview) -> int:
        try:
            return super().read(calls, into)
        except ExecutionError as error:
            raise ExecutionError("something failed", error.code) from error


class Unsynced(PosixWriter):
    def sync(self) -> None:
        pass


class Truncating(PosixWriter):
    def __init__(self, access: Access, path: Path, create: bool) -> None:
        super().__init__(access, path, create)
        if path.is_file():
            os.truncate(path, 0)


class Appending(PosixWriter):
    def write(self, offset: int, data: memoryview) -> None:
        super().write(self.meter.moved, data)


class StaysOpen(PosixWriter):
    def close(self) -> None:
        pass


class Silent(PosixWriter):
    def write(self, offset: int, data: memoryview) -> None:
        try:
            super().write(offset, data)
        except ExecutionError:
            return


def writing(make: type[PosixWriter]) -> Callable[[Access, Path, MPI.Intracomm], PosixWriter]:
    return lambda access, path, comm: make(access, path, False)


def test_a_backend_that_does_all_of_it_passes(tmp_path: Path) -> None:
    check_backend(backend_of("posix"), tmp_path)


def test_one_that_only_reads_passes_too(tmp_path: Path) -> None:
    check_backend(Backend("theirs", PosixReader), tmp_path)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (Shifted, "the bytes of each call are where it says"),
        (Beyond, "nothing else is written to"),
        (Miscounted, "a read returns the bytes of its calls"),
        (Unmeasured, "calls have 0 latencies"),
        (Forgetful, "`moved` counts the bytes read"),
        (KeepsOpen, "`open each epoch` opens 8 times, not 4"),
        (Leaking, "files stay open after an error and `close`"),
        (Lenient, "no ExecutionError was raised"),
        (Nameless, "an error names `.*raw`: .*something failed"),
    ],
)
def test_a_reader_with_a_fault_fails(tmp_path: Path, make: type[PosixReader], text: str) -> None:
    with pytest.raises(AssertionError, match=text):
        check_backend(Backend("theirs", make), tmp_path)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (Unsynced, "`sync_ns` is the time that syncing took"),
        (Truncating, "opening a file that is there leaves it as it is"),
        (Appending, "the bytes are at their offsets"),
        (StaysOpen, "the file stays open after `close`"),
        (Silent, "no ExecutionError was raised"),
    ],
)
def test_a_writer_with_a_fault_fails(tmp_path: Path, make: type[PosixWriter], text: str) -> None:
    with pytest.raises(AssertionError, match=text):
        check_backend(Backend("theirs", PosixReader, writing(make)), tmp_path)
