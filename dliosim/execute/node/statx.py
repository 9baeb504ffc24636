"""The alignment that file systems ask of O_DIRECT, by statx (STATX_DIOALIGN, Linux 6.1)."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Final

from dliosim.model import Access
from dliosim.model.direct_io import DIRECT_ALIGNMENT

#: From linux/stat.h and linux/fcntl.h: the mask, the flag for a file that is open, the bytes of `struct statx`.
_DIOALIGN, _EMPTY_PATH, _STATX_BYTES = 0x2000, 0x1000, 256
#: `stx_mask`, and at byte 0x98 `stx_dio_mem_align` and `stx_dio_offset_align`.
_MASK, _ALIGNMENTS, _AT = struct.Struct("=I"), struct.Struct("=II"), 0x98
#: The largest alignment that is believed: the greatest record of ZFS.
_LARGEST: Final = 16 << 20


def find_alignment(places: Iterable[Path]) -> int:
    """Return the largest alignment that the file systems of some files and directories ask for; at least 4096.

    Reads and writes stay whole pages of 4 KiB where less would do, so that a pattern makes the same calls there, and
    those that were planned. In a directory a file without a name is made, as directories have no alignment.
    """
    found = [DIRECT_ALIGNMENT]
    for place in places:
        with suppress(OSError):
            if place.is_dir():
                from tempfile import TemporaryFile  # for one rank of a node

                with TemporaryFile(dir=place) as file:
                    found.append(ask_alignment(file.fileno()))
            else:
                descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
                try:
                    found.append(ask_alignment(descriptor))
                finally:
                    os.close(descriptor)
    return max(found)


def ask_alignment(descriptor: int) -> int:
    """Return the alignment of offsets, lengths and memory that the kernel asks of a regular file; 0 if it says none."""
    try:
        statx = ctypes.CDLL(None).statx
    except (OSError, AttributeError):
        return 0  # a C library before glibc 2.28
    found = ctypes.create_string_buffer(_STATX_BYTES)
    if statx(descriptor, b"", _EMPTY_PATH, _DIOALIGN, found) != 0:
        return 0
    (mask,), alignments = _MASK.unpack_from(found), _ALIGNMENTS.unpack_from(found, _AT)
    alignment = max(alignments) if mask & _DIOALIGN else 0
    return alignment if alignment.bit_count() == 1 and alignment <= _LARGEST else 0


def set_alignment(value: Any, alignment: int) -> Any:
    """Return a workload, or a part of one, with this alignment in each access method."""
    if isinstance(value, Access):
        return replace(value, alignment=alignment)
    if type(value) is tuple:
        return tuple(set_alignment(each, alignment) for each in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    parts = {each.name: getattr(value, each.name) for each in fields(value)}
    aligned = {name: set_alignment(part, alignment) for name, part in parts.items() if part}
    changed = {name: part for name, part in aligned.items() if part is not parts[name]}
    return replace(value, **changed) if changed else value
