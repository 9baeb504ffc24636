"""Reading arrays as applications do: `numpy.load`, which reads a whole array whatever of it is wanted."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import ExecutionError
from dliosim.formats.contract import Bytes, FileIndex


class ArrayFile:
    """A file that `numpy.load` has opened; its arrays are read when the first sample is asked for, and kept.

    `index` is what the file's own index says; `names` are the arrays of an archive, none for a single array.
    """

    def __init__(self, path: Path, index: FileIndex, names: tuple[str, ...]) -> None:
        self._path = path
        self._index = index
        self._names = names
        self._rows: list[Bytes] | None = None
        self._loaded: Any = self._try(lambda: np.load(path, allow_pickle=False))

    def read(self, first: int, count: int, into: memoryview) -> int:
        """See `contract.LibraryFile`."""
        if self._rows is None:
            self._rows = self._try(self._arrays)
        rows = [array[first : first + count] for array in self._rows]
        each: int = sum(array.shape[1] for array in rows)
        if first < 0 or first + count > self._index.samples or count * each > len(into):
            text = f"samples {first} to {first + count - 1} into {len(into)} bytes"
            raise ExecutionError(f"{self._path} has {self._index.samples} samples of {each} bytes: not {text}", "R401")
        out = np.frombuffer(into, np.uint8, count * each).reshape(count, each)
        np.concatenate(rows, axis=1, out=out)
        return count * each

    def close(self) -> None:
        """Close the archive; forget the arrays."""
        self._rows = None
        if hasattr(self._loaded, "close"):
            self._loaded.close()

    def _arrays(self) -> list[Bytes]:
        arrays: list[NDArray[Any]] = [self._loaded[name] for name in self._names] if self._names else [self._loaded]
        return [np.ascontiguousarray(one).view(np.uint8).reshape(self._index.samples, -1) for one in arrays]

    def _try(self, action: Any) -> Any:
        try:
            return action()
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile, NotImplementedError) as error:
            raise ExecutionError(f"numpy cannot read {self._path}: {type(error).__name__}: {error}", "R401") from error
