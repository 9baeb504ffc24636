"""All ranks read each file through a parallel HDF5, at their own pace and together, and compare it with its bytes.

Arguments: a directory with pairs of files, NAME.hdf5 and NAME.bin with the bytes that its samples should have.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mpi4py import MPI

from dliosim.formats.hdf5.library import open_library
from tests.formats.hdf5_sample import ANY

BATCH = 2


def read_all(path: Path, comm: MPI.Intracomm, collective: bool) -> int:
    """This rank's share in batches; ranks without samples left read none. Returns how many samples it compared."""
    expected = path.with_suffix(".bin").read_bytes()
    handle = open_library(path, ANY, comm, collective)
    first = comm.rank * handle.samples // comm.size
    last = (comm.rank + 1) * handle.samples // comm.size
    rounds = comm.allreduce(-(-(last - first) // BATCH), MPI.MAX)
    into = bytearray(BATCH * handle.row_bytes)
    for number in range(rounds):
        begin = min(first + number * BATCH, last)
        count = min(BATCH, last - begin)
        length = handle.read(begin, count, memoryview(into))
        at = begin * handle.row_bytes
        assert bytes(into[:length]) == expected[at : at + count * handle.row_bytes], (
            f"{path.name}: samples from {begin}"
        )
    handle.close()
    return last - first


def main(comm: MPI.Intracomm, where: str) -> None:
    paths = sorted(Path(where).glob("*.hdf5"))
    for path in paths:
        for collective in (False, True):
            read = comm.gather(read_all(path, comm, collective))
            if read is not None:
                print(path.stem, "together" if collective else "alone", *read)


if __name__ == "__main__":
    main(MPI.COMM_WORLD, sys.argv[1])
