"""A window of requests; the checks themselves are in inflight_program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mpi4py import MPI

from dliosim.errors import ExecutionError
from dliosim.execute.backends.contract import Files, allocate
from dliosim.execute.backends.mpiio_files import Spec
from dliosim.execute.backends.mpiio_nonblocking import QueuedIndependentReader
from dliosim.model import Access
from tests.execute.calls import make_calls
from tests.mpi.waiting import run_main


def test_a_window_is_as_wide_as_asked_and_leaves_nothing_in_flight() -> None:
    assert run_main(1, "tests.mpi.inflight_program") == "nothing is in flight\n"


class _Limited:
    """An open file; a request reads 10 bytes at most, as one of ROMIO reads less than 2 GiB."""

    def __init__(self, file: MPI.File) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def Iread_at(self, offset: int, spec: Spec) -> MPI.Request:
        return self._file.Iread_at(offset, (spec[0], min(spec[1], 10), spec[2]))


@pytest.mark.parametrize("lifetime", ["once", "each sample"])
def test_a_call_longer_than_one_request_reads_is_gone_on_with(tmp_path: Path, lifetime: str) -> None:
    class Reader(QueuedIndependentReader):
        def _open(self, file: int) -> MPI.File:
            return _Limited(super()._open(file))  # type: ignore[return-value]

    (tmp_path / "0.raw").write_bytes(bytes(range(100)))
    access = Access("mpi-independent", engine="queued", depth=2, open=lifetime)  # type: ignore[arg-type]
    one = Reader(access, Files(tmp_path, lambda file: f"{file}.raw", lambda file: 100, False, MPI.COMM_SELF))
    into = allocate(60)
    assert one.read(make_calls([[(0, 5, 30), (0, 50, 10), (0, 80, 20)]]), into) == 60
    assert into == bytes([*range(5, 35), *range(50, 60), *range(80, 100)])
    assert one.meter.calls == 5
    with pytest.raises(ExecutionError, match=r"of 30 bytes at offset 80 returned 20 on .*shorter than planned"):
        one.read(make_calls([[(0, 80, 30)]]), into)
    one.close()
