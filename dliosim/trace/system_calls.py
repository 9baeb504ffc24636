"""Functions of the C library by what they do, as traces name them."""

from __future__ import annotations

import re
from typing import Final

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
