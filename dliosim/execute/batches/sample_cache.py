"""The samples that a rank keeps in its own memory (`cache memory S`), as `read_ranges.rows_to_keep` chooses them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class SampleCache:
    """Bytes of samples by their number, without eviction.

    The first epoch fills it. In later epochs the samples in it are copied, not read.
    """

    def __init__(self) -> None:
        self.numbers = np.empty(0, np.int64)
        self._data: dict[int, NDArray[np.uint8]] = {}
        self._scratch = np.empty(0, np.uint8)

    @property
    def is_empty(self) -> bool:
        """True if no sample was kept at the last `seal`."""
        return len(self.numbers) == 0

    def store_samples(
        self, samples: NDArray[np.int64], starts: NDArray[np.int64], lengths: NDArray[np.int64], data: memoryview
    ) -> None:
        """Copy samples into the cache: sample i is `lengths[i]` bytes of `data` from byte `starts[i]`."""
        for sample, start, length in zip(samples.tolist(), starts.tolist(), lengths.tolist(), strict=True):
            self._data[sample] = np.frombuffer(data, np.uint8, length, start).copy()

    def seal(self) -> None:
        """End the filling, after the first epoch: sort the kept numbers into `numbers`, for later epochs' plans."""
        self.numbers = np.sort(np.fromiter(self._data, np.int64, len(self._data)))
        self._scratch = np.empty(max((len(bytes_) for bytes_ in self._data.values()), default=0), np.uint8)

    def copy_hits(self, samples: NDArray[np.int64]) -> None:
        """Copy those of `samples` that are kept, one after the other, as a training job must."""
        for sample in samples.tolist():
            data = self._data.get(sample)
            if data is not None:
                np.copyto(self._scratch[: len(data)], data)
