"""Samples that lie in their files one right after the other with nothing around them: that part of `Framed`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from dliosim.formats.contract import Ints
from dliosim.model import Dataset


class Bare:
    """What formats of bare samples say alike; each says for itself what stands before and after all of them."""

    checksum: Callable[[memoryview, int], int] | None = None

    def align(self, dataset: Dataset) -> int:
        """Anywhere."""
        return 1

    def stride(self, dataset: Dataset, sizes: Ints) -> Ints:
        """The samples' own bytes."""
        return sizes

    def length(self, dataset: Dataset, sizes: Ints) -> Ints:
        """The samples' own bytes."""
        return sizes

    def content(self, dataset: Dataset, sizes: Ints) -> tuple[Ints, Ints]:
        """All of it."""
        return np.zeros_like(sizes), sizes

    def trailer(self, dataset: Dataset, counts: Ints, ends: Ints) -> Ints:
        """None."""
        return np.zeros_like(counts)

    def frame(self, dataset: Dataset, samples: Ints, sizes: Ints, starts: Ints, out: memoryview) -> None:
        """Nothing."""

    def start_checksum(self, dataset: Dataset, count: int, end: int) -> int:
        """There is none."""
        return 0

    def write_trailer(self, dataset: Dataset, count: int, end: int, checksum: int) -> bytes:
        """Nothing."""
        return b""

    def sidecars(self, dataset: Dataset) -> tuple[str, ...]:
        """None."""
        return ()

    def write_sidecar(self, dataset: Dataset, suffix: str, first: int, sizes: Ints) -> Iterator[bytes]:
        """Never asked for."""
        return iter(())
