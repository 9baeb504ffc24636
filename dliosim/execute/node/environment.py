"""The environment of a run: launcher, MPI library, nodes, cores, file systems, and the room that they have."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mpi4py import MPI

from dliosim.errors import ExecutionError, UsageError, install_hint
from dliosim.execute.node.memory import available_memory, find_free_memory
from dliosim.measure.results.machine import MEMORY_KINDS
from dliosim.readable import count, size


@dataclass(frozen=True, slots=True)
class Mount:
    """The file system of a path."""

    #: type of the file system
    kind: str
    #: where it is mounted
    mount_point: str
    #: device or server that it is mounted from
    source: str
    #: mount options, separated by commas
    options: str

    @property
    def is_memory_backed(self) -> bool:
        """Return whether files there take memory."""
        return self.kind in MEMORY_KINDS


def check_launcher(started: int | None, size: int, library: str) -> None:
    """Raise UsageError if the launcher started more processes than MPI sees, each as a job of its own."""
    if started is None or started <= size:
        return
    raise UsageError(
        f"the launcher started {started} processes, but in each of them mpi4py sees a job of {size}: the launcher "
        f"belongs to another MPI than the one that mpi4py uses ({library})\n"
        f"  = help: use the mpiexec of the environment that dliosim is installed in (one comes with: "
        f"{install_hint('mpich')}), or make mpi4py use the MPI of the launcher: `python -m pip install "
        "--no-binary=mpi4py --force-reinstall mpi4py` with its mpicc on the PATH"
    )


def mpi_library() -> str:
    """Return name and version of the MPI library, on one line."""
    text = MPI.Get_library_version().rstrip("\0").strip()
    first = re.sub(r"\s+", " ", text.splitlines()[0]) if text else "unknown"
    return first.split(", package:")[0].replace("MPICH Version: ", "MPICH ")


def mpi_io(granted: Mapping[str, str], environ: Mapping[str, str]) -> str:
    """Return the MPI-IO that a file was opened with, as far as its hints and the library show; else an empty text."""
    if "romio_filesystem_type" in granted:
        return f"ROMIO, {granted['romio_filesystem_type']}"
    if any(name.startswith("romio_") for name in granted):
        return "ROMIO"
    if MPI.Get_library_version().startswith("Open MPI") and "romio" not in environ.get("OMPI_MCA_io", ""):
        return "OMPIO"
    return ""


def own_cores() -> set[int]:
    """Return the cores that this process may run on."""
    return os.sched_getaffinity(0)


def node_name() -> str:
    """Return a name that is the same for processes of a node that see each other: host and process namespace."""
    try:
        numbering = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        numbering = ""
    return f"{MPI.Get_processor_name()} {numbering}"


def find_mount(path: Path) -> Mount:
    """Return the file system of a path, or of the nearest of its parents that exists."""
    real = Path(os.path.realpath(path))
    best = Mount("unknown", "/", "unknown", "")
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return best
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, (kind, source, super_options) = before.split(" "), after.split(" ", 2)
        mount_point = _unescape_path(fields[4])
        # If two file systems are mounted in one place, the later one is visible.
        if real.is_relative_to(mount_point) and len(mount_point) >= len(best.mount_point):
            options = ",".join(dict.fromkeys([*fields[5].split(","), *super_options.split(",")]))
            best = Mount(kind, mount_point, _unescape_path(source), options)
    return best


def free_bytes(path: Path) -> int:
    """Return the bytes that a user can still write to the file system of an existing path. Raises OSError."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def _unescape_path(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def require_space(directory: Path, needed: int, what: str) -> None:
    """Raise ExecutionError [R402] unless the file system of `directory` has room for `needed` bytes.

    A file system in memory (tmpfs) has no more room than the machine has memory.
    """
    room = free_bytes(directory)
    place = f"the file system of {directory}"
    mount = find_mount(directory)
    if mount.is_memory_backed:
        memory = available_memory()
        if memory is not None and memory < room:
            room, place = memory, f"memory, which holds the {mount.kind} of {directory},"
    if needed > room:
        raise ExecutionError(f"{what} needs {size(needed)} and {place} has {size(room)}", "R402")


def require_memory(needed: int, ranks: int, what: str) -> None:
    """Raise ExecutionError [R402] unless this node has `needed` bytes of memory for its `ranks` ranks together."""
    memory, place = find_free_memory()
    if memory is not None and needed > memory:
        text = f"{what} need {size(needed)} of memory for {count(ranks, 'rank')} on a node"
        raise ExecutionError(f"{text}, and {place} has {size(memory)} free", "R402")


def link_speed(devices: Path = Path("/sys/class")) -> int:
    """Return the speed of all network links of this node together, in Mb/s; 0 if the kernel does not know each.

    Cards that are Ethernet and InfiniBand at the same time count once. Virtual links without a card do not count.
    """
    cards = [card for card in (devices / "net").glob("*") if (card / "device").exists()]
    speeds = [_read_speed(card / "speed") for card in cards]
    if any(_read_speed(card / "carrier") and not speed for card, speed in zip(cards, speeds, strict=True)):
        return 0
    return max(sum(speeds), sum(1000 * _read_speed(rate) for rate in (devices / "infiniband").glob("*/ports/*/rate")))


def _read_speed(path: Path) -> int:
    """Return the number at the start of a file; 0 if there is none, as for a card without a cable (-1)."""
    try:
        return max(int(float(path.read_text().split()[0])), 0)
    except (OSError, ValueError, IndexError, OverflowError):
        return 0
