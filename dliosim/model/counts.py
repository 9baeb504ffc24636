"""How many samples each file holds, where no closed form says it: files that somebody else has written."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class FileCounts:
    """Samples of each file, in order: unsigned little-endian integers of `width` bytes, as few as the largest needs.

    Every rank has a copy, so they are compact: a million files of less than 65536 samples take 2 MB.
    """

    width: int
    data: bytes

    @property
    def array(self) -> NDArray[np.int64]:
        """One entry a file."""
        return np.frombuffer(self.data, f"<u{self.width}").astype(np.int64)


def unless_even(counts: NDArray[np.int64]) -> FileCounts | None:
    """The counts, or None where sample i of N lies in file i * F // N, so that closed forms give them."""
    files = len(counts)
    whole, rest = divmod(int(counts.sum()), files)
    file = np.arange(files + 1)
    # file * N // F without the product, which may not fit: N is whole * F + rest.
    if (counts == whole + np.diff(-(-file * rest // files))).all():
        return None
    width = next(width for width in (1, 2, 4, 8) if int(counts.max()) < 1 << 8 * width)
    return FileCounts(width, counts.astype(f"<u{width}").tobytes())


@lru_cache(maxsize=16)
def dealt_by_file(counts: FileCounts, ranks: int) -> tuple[int, ...]:
    """Samples of each rank where rank r has the files r, r + ranks, r + 2 ranks, ..."""
    table = counts.array
    rows = np.zeros(-(-len(table) // ranks) * ranks, np.int64)
    rows[: len(table)] = table
    return tuple(rows.reshape(-1, ranks).sum(axis=0).tolist())
