"""fio and IOR as peers of dliosim: their command lines for the same work, and their times from what they print.

Times are seconds of the loop of calls by the slowest process, from its first call to its last, without start and
without opening.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

#: What fio writes: one buffer filled once and changed a little for each call, buffers filled for each call, and blocks
#: with a checksum of their own, which fio could verify.
FIO_BUFFERS = {
    "filled once": (),
    "refilled for each call": ("--refill_buffers=1",),
    "with checksums": ("--verify=crc32c", "--do_verify=0", "--verify_state_save=0"),
}

# Cheap clocks are kept (latencies are measured), nothing is read or dropped beforehand, and nothing laid out.
_FIO = ("fio", "--ioengine=psync", "--invalidate=0", "--fallocate=none", "--group_reporting", "--output-format=json")


def fio_reads(file: Path, size: int, transfer: int, ranks: int, passes: int, direct: bool) -> list[str]:
    """Return fio's command of random reads of `size` bytes: each of `ranks` processes reads its part in some passes."""
    return [
        *_FIO,
        "--name=read",
        f"--filename={file}",
        "--readonly",
        "--rw=randread",
        f"--bs={transfer}",
        f"--size={size}",
        f"--io_size={size // ranks * passes}",
        # Keeping account of what was read already would cost fio memory and time; offsets may come again instead.
        "--norandommap",
        "--randrepeat=0",
        f"--numjobs={ranks}",
        f"--direct={int(direct)}",
    ]


def fio_writes(directory: Path, size: int, file_size: int, transfer: int, ranks: int, buffers: str) -> list[str]:
    """Return a command that writes `size` bytes in files of `file_size`, from begin to end, and syncs each file.

    There is one file, or each rank has its own.
    """
    own = size // ranks
    if file_size == size:
        place = [f"--filename={directory / 'fio'}", f"--size={own}", f"--offset_increment={own}", "--end_fsync=1"]
    else:
        files = own // file_size
        place = [f"--directory={directory}", f"--size={own}", f"--nrfiles={files}", f"--filesize={file_size}"]
        place += ["--file_service_type=sequential", "--openfiles=1", "--fsync_on_close=1"]
    return [
        *_FIO,
        "--name=write",
        *place,
        "--create_on_open=1",
        "--rw=write",
        f"--bs={transfer}",
        f"--numjobs={ranks}",
        *FIO_BUFFERS[buffers],
    ]


def fio_seconds(printed: str, direction: str, size: int) -> float:
    """Return the time of fio's slowest process; ValueError unless `size` bytes were moved in whole calls."""
    report = json.loads(printed[printed.index("{") :])  # notes may stand in front
    (job,) = report["jobs"]
    found = job[direction]
    if found["io_bytes"] != size or found["short_ios"] or job["error"]:
        raise ValueError(f"fio moved {found['io_bytes']} bytes of {size}, {found['short_ios']} calls of it short")
    if not found["runtime"]:
        raise ValueError("fio took less than the millisecond that it measures in: have it move more")
    return float(found["runtime"]) / 1000


#: How IOR is asked for what an api of dliosim does; it has no collective reads at random offsets.
IOR_WAYS = {
    "posix": ("-a", "POSIX", "-z"),
    "mpi-independent": ("-a", "MPIIO", "-z"),
    "mpi-collective": ("-a", "MPIIO", "-c"),
}


def ior_reads(file: Path, size: int, transfer: int, ranks: int, way: tuple[str, ...], direct: bool) -> list[str]:
    """Return IOR's command that reads a whole file, equal on all ranks, in one of `IOR_WAYS`; the file is kept."""
    past_cache = ["--posix.odirect"] if direct else []
    blocks = ["-s", "1", "-b", str(size // ranks), "-t", str(transfer)]
    return ["ior", *way, *past_cache, "-r", "-k", "-o", str(file), *blocks]


def ior_seconds(printed: str) -> float:
    """Return the time `wr/rd(s)` of the line `read` in IOR's table of results; ValueError if there is none.

    Versions differ in the columns, so that the table's own head says which one it is.
    """
    lines = printed.splitlines()
    heads = [line.split() for line in lines if re.match(r"\s*access\s+bw\(MiB/s\)", line)]
    rows = [line.split() for line in lines if re.match(r"\s*read\s+[0-9.]+\s", line)]
    if not heads or not rows or "wr/rd(s)" not in heads[0] or len(rows[0]) != len(heads[0]):
        raise ValueError(f"ior printed no table of results with `wr/rd(s)`:\n{printed}")
    return float(rows[0][heads[0].index("wr/rd(s)")])
