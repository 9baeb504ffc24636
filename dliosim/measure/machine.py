"""The machine, the libraries and the file systems of a run, as values."""

from __future__ import annotations

from dataclasses import dataclass

#: File systems on block devices, of which the kernel counts what is read.
DISK_KINDS = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs"})

#: File systems on which what is written takes memory.
MEMORY_KINDS = frozenset({"tmpfs", "ramfs", "hugetlbfs", "devtmpfs"})


@dataclass(frozen=True, slots=True)
class FileSystem:
    """Where data lie: the root's name, its directory, the type of file system, its mount options and striping."""

    root: str
    directory: str
    kind: str
    options: str = ""
    striping: str = ""


@dataclass(frozen=True, slots=True)
class Environment:
    """The machine and the libraries: what must be known to compare two results.

    `cores_per_node` are the cores that the fullest node's ranks may use, `memory_per_node` bytes. `load_average` is how
    many processes wanted a core in the minute before the run, on the busiest node. `details` are further names and
    values, such as versions, kernel and host.
    """

    mpi_library: str
    cores_per_node: int
    ranks_per_node: int
    memory_per_node: int
    load_average: float
    mpi_io: str = ""
    file_systems: tuple[FileSystem, ...] = ()
    details: tuple[tuple[str, str], ...] = ()

    @property
    def is_oversubscribed(self) -> bool:
        """Whether the fullest node has more ranks than cores."""
        return self.ranks_per_node > self.cores_per_node

    def is_stored_on(self, root: str | None, kinds: frozenset[str]) -> bool:
        """Whether a root is on a file system of some kinds; whether all roots are, where it is unknown which."""
        own = [place for place in self.file_systems if place.root == root] or self.file_systems
        return bool(own) and all(place.kind in kinds for place in own)
