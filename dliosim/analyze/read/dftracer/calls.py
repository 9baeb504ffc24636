"""Kinds and layers of calls by the names that DFTracer gives them: of libraries, of DLIO and of PyTorch programs."""

from __future__ import annotations

import re
from typing import Final

from dliosim.trace.events import KINDS, LAYERS, kind_number, layer_number

#: Functions by kind, without `64` at their ends and without glibc's `__x`, `__fx` and `__lx`.
_FUNCTIONS: Final = {
    "open": "open openat creat fopen freopen fdopen opendir",
    "close": "close fclose closedir",
    "read": "read pread readv preadv preadv2 fread fgets getline",
    "write": "write pwrite writev pwritev pwritev2 fwrite fputs fprintf sendfile",
    "fsync": "fsync fdatasync sync_file_range msync sync syncfs fflush",
    "seek": "lseek fseek fseeko rewind fsetpos ftell ftello",
    "metadata": "stat fstat lstat fstatat newfstatat statx access faccessat ftruncate truncate fallocate "
    "posix_fallocate link linkat symlink unlink unlinkat remove rename renameat mkdir mkdirat rmdir chdir readlink "
    "readdir scandir chmod fchmod chown fchown utime utimes utimensat fcntl dup dup2 dup3 umask statfs "
    "fstatfs getxattr setxattr",
}
_KIND_OF_CALL: Final = {name: kind for kind, names in _FUNCTIONS.items() for name in names.split()}
_VARIANT: Final = re.compile(r"^__[fl]?x|64$|_unlocked$|^__")

#: Calls whose `count` is of buffers, not of bytes.
VECTOR_CALLS: Final = frozenset(("readv", "preadv", "preadv2", "writev", "pwritev", "pwritev2"))

#: Calls whose `count` and `ret` are of items of `size` bytes.
ITEM_CALLS: Final = frozenset(("fread", "fwrite"))


def kind_of_call(name: str) -> str:
    """Return the kind of a call by its name, as in `trace.events.KINDS`; `other` if the name is not known."""
    return _KIND_OF_CALL.get(plain_call(name), "other")


def plain_call(name: str) -> str:
    """Return the name of a call without what marks its variants: `stat` for `__xstat64`."""
    return _VARIANT.sub("", name)


#: Rules for everything else, the first that matches: category, end of the name, kind, layer.
_RULES: Final = tuple(
    (re.compile(category), re.compile(rf"(?:^|[.:])(?:{ends})$"), kind, layer)
    for category, ends, kind, layer in (
        ("hdf5", "H5[DA]?read|read", "read", "library"),
        ("hdf5", "H5[DA]?write|write", "write", "library"),
        ("hdf5", "H5[FD]?(?:open|create)|open", "open", "library"),
        ("hdf5", "H5[FD]?close|close", "close", "library"),
        ("hdf5", ".*", "other", "library"),
        ("mpi", ".*MPI_File_(?:i?read)(?:_at|_shared)?_(?:all|ordered).*", "read", "mpi-io collective"),
        ("mpi", ".*MPI_File_(?:i?write)(?:_at|_shared)?_(?:all|ordered).*", "write", "mpi-io collective"),
        ("mpi", ".*MPI_File_(?:i?read).*", "read", "mpi-io"),
        ("mpi", ".*MPI_File_(?:i?write).*", "write", "mpi-io"),
        ("mpi", ".*MPI_File_open", "open", "mpi-io collective"),
        ("mpi", ".*MPI_File_close", "close", "mpi-io collective"),
        ("mpi", ".*MPI_File_sync", "fsync", "mpi-io collective"),
        ("mpi", ".*MPI_File_.*", "metadata", "mpi-io"),
        ("mpi", ".*", "sync", "application"),
        ("reader", "preprocess", "preprocess", "reader"),
        ("reader", ".*", "load", "reader"),
        ("data_?loader|data", "(?:loop|fetch|fetch-data|<module>)[.]iter", "data wait", "application"),
        ("data_?loader|data", ".*(?:yield|block)", "other", "application"),
        ("data_?loader|data", "__getitem__|__next__|item", "load", "loader"),
        ("data_?loader|data", "preprocess", "preprocess", "loader"),
        ("data_?loader|data", ".*", "other", "loader"),
        ("ai_framework|checkpoint", "checkpoint|save_checkpoint|save|capture", "save", "checkpoint"),
        ("checkpoint", "load_checkpoint|load|restore|restart", "restore", "checkpoint"),
        ("checkpoint", ".*", "other", "checkpoint"),
        ("ai_framework|compute", "compute|cpu|forward|backward|step", "compute", "application"),
        ("comm", ".*", "sync", "application"),
        ("dlio_benchmark", "_train", "epoch", "application"),
        ("dlio_benchmark", "run|_eval", "phase", "application"),
        ("pipeline", "epoch|epoch[.]block", "epoch", "application"),
        ("pipeline", "(?:train|evaluate|test)(?:[.]block)?", "phase", "application"),
    )
)


def classify_call(category: str, name: str) -> tuple[int, int]:
    """Return the numbers of the kind and of the layer of an event by its category and its name."""
    layer, _, kind = category.partition(": ")
    if layer in LAYERS and kind in KINDS:
        # An export of dliosim, of what category and name would not say otherwise.
        return kind_number(kind), layer_number(layer)
    category = category.lower()
    if category in ("posix", "stdio"):
        kind, layer = kind_of_call(name), category
    else:
        rules = (rule for rule in _RULES if rule[0].fullmatch(category) and rule[1].search(name))
        *_, kind, layer = next(rules, ("other", "application"))
    return kind_number(kind), layer_number(layer)
