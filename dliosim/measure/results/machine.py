"""The machine, the libraries and the file systems of a run, as values."""

from __future__ import annotations

from dataclasses import dataclass

#: File systems that store their files in memory.
MEMORY_KINDS = frozenset({"tmpfs", "ramfs", "hugetlbfs", "devtmpfs"})

#: File systems that may keep files in the memory of this node outside of the page cache, whatever that has of them; and
#: those of these that do so with O_DIRECT as well. The names of FUSE file systems begin with `fuse.`.
OWN_CACHE_KINDS = frozenset({"fuse", "fuseblk", "zfs", "gpfs"})
OWN_CACHE_WITH_DIRECT_KINDS = OWN_CACHE_KINDS - {"gpfs"}

#: File systems in user space that may show files of another file system of this node.
STACKED_KINDS = frozenset({"fuse", "fuse.bindfs", "fuse.encfs", "fuse.gocryptfs", "fuse.mergerfs", "fuse.unionfs"})

#: File systems of servers, whose own memory may have the files.
SERVER_KINDS = frozenset({"nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "virtiofs", "lustre", "gpfs", "beegfs"})

#: Details that are judged later, and the value of the second: the speed of all network links of the node of rank 0
#: (`25000 Mb/s`), and where the results are.
LINK_SPEED, RESULTS_ON, OTHER_MOUNT = "network links", "results on", "another file system than the data"


@dataclass(frozen=True, slots=True)
class FileSystem:
    """The file system of one root, or of a mount below it that data are on."""

    #: name of the root; of a mount below it `ROOT at DIR`
    root: str
    #: its directory
    directory: str
    #: type of the file system: `ext4`
    kind: str
    #: mount options
    options: str = ""
    #: stripe size and targets; empty if unknown
    striping: str = ""


@dataclass(frozen=True, slots=True)
class Environment:
    """The machine and the libraries: what must be known to compare two results."""

    #: name and version
    mpi_library: str
    #: cores that the ranks of the fullest node may use
    cores_per_node: int
    #: ranks of the fullest node
    ranks_per_node: int
    #: bytes that the node of rank 0 can still give when the run ends, what its page cache has included
    memory_per_node: int
    #: processes that wanted a core in the minute before the run, on the busiest node
    load_average: float
    #: implementation of MPI-IO
    mpi_io: str = ""
    #: one for each root
    file_systems: tuple[FileSystem, ...] = ()
    #: further names and values: versions, kernel, host
    details: tuple[tuple[str, str], ...] = ()
    #: bytes of memory of the node of rank 0, or the limit of its control groups; 0 if unknown
    whole_memory_per_node: int = 0

    @property
    def is_oversubscribed(self) -> bool:
        """Return True if the fullest node has more ranks than cores."""
        return self.ranks_per_node > self.cores_per_node

    @property
    def was_busy(self) -> bool:
        """Return True if more processes than cores wanted a core in the minute before."""
        return self.load_average > self.cores_per_node

    def is_stored_on(self, root: str | None, kinds: frozenset[str]) -> bool:
        """Return True if a root is on a file system of these kinds; for an unknown root, if all roots are."""
        names = (root or "").split(", ")  # a loop may read several
        own = [place for place in self.file_systems if place.root in names] or self.file_systems
        return bool(own) and all(place.kind.partition(".")[0] in kinds for place in own)
