"""Files that a library has laid out, made again without it: a library takes half a millisecond for a small one."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dliosim.execute.safe_open import reading, write_at, writing
from dliosim.formats.header_scanner import read_at
from dliosim.formats.protocols import FileIndex, Resolved
from dliosim.model import Dataset

#: A file of which more than this lies outside of samples, or in more pieces, is left to the library.
_MOST_BYTES, _MOST_PIECES = 1 << 20, 64


@dataclass(frozen=True, slots=True)
class LaidOut:
    """A file with room for samples and none written: its index, and all that lies around the room, by offset.

    `around` is None where that is too much to be kept.
    """

    index: FileIndex
    around: tuple[tuple[int, bytes], ...] | None


def laid_out(path: Path, form: Resolved, dataset: Dataset) -> LaidOut:
    """What a file is that `form.lay_out` has just made. Raises OSError, and ExecutionError as `Format.index`."""
    index = form.index(path, dataset)
    offset = np.concatenate([column.offset for column in index.columns])
    length = np.concatenate([column.length for column in index.columns])
    order = np.argsort(offset)
    ends = np.append(0, (offset + length)[order])
    begins = np.append(offset[order], index.size)
    gaps = [(first, last) for first, last in zip(ends.tolist(), begins.tolist(), strict=True) if first < last]
    if len(gaps) > _MOST_PIECES or sum(last - first for first, last in gaps) > _MOST_BYTES:
        return LaidOut(index, None)
    with reading(path) as descriptor:
        around = tuple((first, read_at(descriptor, last - first, first)) for first, last in gaps)
    return LaidOut(index, around)


def make_alike(known: LaidOut, path: Path, by_library: Callable[[], None]) -> None:
    """Make another file like that one, which must not be there yet; by the library where that is all we have."""
    if known.around is None:
        by_library()
        return
    with writing(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
        os.truncate(descriptor, known.index.size)
        for offset, data in known.around:
            write_at(descriptor, data, offset)
