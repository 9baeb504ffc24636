"""The samples that a rank keeps in its own memory (`cache memory S`): of the first epoch, as `plan.stored` says."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class SampleCache:
    """Bytes of samples by their number; nothing is ever evicted.

    Filled while the first epoch is read; from the next one on, what is kept is copied instead of read.
    """

    def __init__(self) -> None:
        self.numbers = np.empty(0, np.int64)
        self._data: dict[int, NDArray[np.uint8]] = {}
        self._scratch = np.empty(0, np.uint8)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is kept, as of the last `seal`."""
        return len(self.numbers) == 0

    def store_samples(
        self, samples: NDArray[np.int64], starts: NDArray[np.int64], lengths: NDArray[np.int64], data: memoryview
    ) -> None:
        """Copy samples, which lie at `starts` of `data`."""
        for sample, start, length in zip(samples.tolist(), starts.tolist(), lengths.tolist(), strict=True):
            self._data[sample] = np.frombuffer(data, np.uint8, length, start).copy()

    def seal(self) -> None:
        """After the first epoch: let the next one know, by `numbers` in order, what is kept."""
        self.numbers = np.sort(np.fromiter(self._data, np.int64, len(self._data)))
        self._scratch = np.empty(max((len(bytes_) for bytes_ in self._data.values()), default=0), np.uint8)

    def copy_hits(self, samples: NDArray[np.int64]) -> None:
        """Copy the kept ones among `samples`, as a training job would have to, one after the other."""
        for sample in samples.tolist():
            data = self._data.get(sample)
            if data is not None:
                np.copyto(self._scratch[: len(data)], data)
