"""The samples that a rank keeps in its own memory (`cache memory S`): the first S bytes that it ever read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class KeptSamples:
    """Bytes of samples by their number, up to a budget; nothing is ever evicted.

    Filled while the first epoch is read; from the next one on, what is kept is copied instead of read.
    """

    def __init__(self, budget: int) -> None:
        self._left = budget
        self._data: dict[int, NDArray[np.uint8]] = {}
        self._numbers = np.empty(0, np.int64)
        self._scratch = np.empty(0, np.uint8)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is kept, as of the last `seal`."""
        return len(self._numbers) == 0

    @property
    def has_room(self) -> bool:
        """Whether samples are still taken."""
        return self._left > 0

    @property
    def room(self) -> int:
        """Bytes that may still be taken."""
        return self._left

    def keep(
        self, samples: NDArray[np.int64], starts: NDArray[np.int64], lengths: NDArray[np.int64], data: memoryview
    ) -> None:
        """Copy samples, which lie at `starts` of `data`, until the first that no longer fits."""
        for sample, start, length in zip(samples.tolist(), starts.tolist(), lengths.tolist(), strict=True):
            if sample in self._data:
                continue
            if length > self._left:
                self._left = 0
                return
            self._data[sample] = np.frombuffer(data, np.uint8, length, start).copy()
            self._left -= length

    def seal(self) -> None:
        """After the first epoch: take no more, and let the next one know what is kept."""
        self._left = 0
        self._numbers = np.sort(np.fromiter(self._data, np.int64, len(self._data)))
        self._scratch = np.empty(max((len(bytes_) for bytes_ in self._data.values()), default=0), np.uint8)

    def holds(self, samples: NDArray[np.int64]) -> NDArray[np.bool_]:
        """For each sample, whether it is kept."""
        place = np.searchsorted(self._numbers, samples)
        place[place == len(self._numbers)] = 0
        held: NDArray[np.bool_] = self._numbers[place] == samples
        return held

    def copy_out(self, samples: NDArray[np.int64]) -> None:
        """Copy the kept ones among `samples`, as a training job would have to, one after the other."""
        for sample in samples.tolist():
            data = self._data.get(sample)
            if data is not None:
                np.copyto(self._scratch[: len(data)], data)
