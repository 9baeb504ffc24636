"""Errors of MPI-IO whose text names no reason, as those of Open MPI: the last failed system call has it."""

from __future__ import annotations

import ctypes
import errno

import pytest
from mpi4py import MPI

from dliosim.execute.backends.mpiio_files import mpiio_error


@pytest.mark.parametrize(
    ("kind", "last", "begins", "code"),
    [
        (MPI.ERR_OTHER, errno.ENOSPC, "No space left on device (", "R402"),
        (MPI.ERR_OTHER, errno.EIO, "Input/output error (", None),
        (MPI.ERR_OTHER, errno.EAGAIN, MPI.Exception(MPI.ERR_OTHER).Get_error_string().strip(), None),  # not of the call
        (MPI.ERR_IO, errno.ENOSPC, MPI.Exception(MPI.ERR_IO).Get_error_string().strip(), None),  # has a reason
    ],
)
def test_an_error_without_a_reason_has_that_of_the_system_call(
    kind: int, last: int, begins: str, code: str | None
) -> None:
    error = MPI.Exception(kind)
    place = ctypes.CDLL(None).__errno_location
    place.restype = ctypes.POINTER(ctypes.c_int)
    place().contents.value = last
    found = mpiio_error("MPI_File_write_at", "/data/d.raw", error, " of 9 bytes at offset 7")
    assert found.message.startswith(f"MPI_File_write_at of 9 bytes at offset 7 failed on /data/d.raw: {begins}")
    assert found.code == code
