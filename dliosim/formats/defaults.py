"""What most framed formats lack, said once: a checksum, a trailer, files beside; and anything around their samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from dliosim.formats.protocols import Ints
from dliosim.model import Dataset


class Simple:
    """Formats whose files end with their last sample, and need nothing that runs through them or lies beside them."""

    checksum: Callable[[memoryview, int], int] | None = None

    def trailer(self, dataset: Dataset, counts: Ints, ends: Ints) -> Ints:
        """None."""
        return np.zeros_like(counts)

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


class Bare(Simple):
    """Formats whose samples lie one right after the other; each says for itself what stands before all of them."""

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

    def frame(self, dataset: Dataset, samples: Ints, sizes: Ints, starts: Ints, out: memoryview) -> None:
        """Nothing."""
