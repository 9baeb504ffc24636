"""Pages of a file that are in the page cache, by mincore."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_LIBC = ctypes.CDLL(None, use_errno=True)


def find_resident_pages(descriptor: int, first: int, length: int) -> NDArray[np.intp]:
    """Return the numbers, from 0, of those pages of a window that are in memory.

    `first` is a multiple of the page size; the window ends within the file. The kernel answers only a process that owns
    the file or may write it; to others it claims that all pages are in memory. Raises OSError, and ValueError for a
    file that was cut short.
    """
    import numpy as np

    pages = np.empty(-(-length // mmap.PAGESIZE), np.uint8)
    with mmap.mmap(descriptor, length, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ, offset=first) as mapped:
        window = np.frombuffer(mapped, np.uint8)
        window_at, pages_at = (ctypes.c_void_p(array.ctypes.data) for array in (window, pages))
        outcome = _LIBC.mincore(window_at, ctypes.c_size_t(length), pages_at)
        del window
    if outcome != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return np.flatnonzero(pages & 1)
