"""Read arrays as applications do: by `numpy.load`, which reads a whole array even where only a part is needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dliosim.errors import ExecutionError
from dliosim.formats.numpy_files.npy_header import Array, sample_rows, split_rows
from dliosim.formats.protocols import Bytes
from dliosim.lazy_numpy import np
from dliosim.model import Dataset

if TYPE_CHECKING:
    from numpy.typing import NDArray

T = TypeVar("T")

MEMBER: Final = "x"
"""Name of the array of an archive where the data set has no `names`."""


class ArrayFile:
    """A file that `numpy.load` has opened; its arrays are read with the first sample, and kept.

    Only numpy reads, as its way of reading a file is what is measured. So the arrays are checked after they were read.
    Files of other writers were checked by their index before the run.
    """

    def __init__(self, path: Path, dataset: Dataset) -> None:
        """Open the file. Raises ExecutionError [R401] where numpy cannot open it, OSError as the calls do."""
        self._path = path
        self._dataset = dataset
        self._samples = 0
        self._rows: list[Bytes] | None = None
        self._loaded: Any = self._wrap_errors(lambda: np.load(path, allow_pickle=False))

    def read(self, first: int, count: int, into: memoryview) -> int:
        """Copy `count` samples from `first` to the front of `into`; return the bytes. ExecutionError [R401]."""
        if self._rows is None:
            self._rows = self._wrap_errors(lambda: self._view_rows(self._load_arrays()))
        rows = [array[first : first + count] for array in self._rows]
        each: int = sum(array.shape[1] for array in rows)
        if first < 0 or first + count > self._samples or count * each > len(into):
            text = f"samples {first} to {first + count - 1} into {len(into)} bytes"
            raise ExecutionError(f"{self._path} has {self._samples} samples of {each} bytes: not {text}", "R401")
        out = np.frombuffer(into, np.uint8, count * each).reshape(count, each)
        np.concatenate(rows, axis=1, out=out)
        return count * each

    def close(self) -> None:
        """Close the archive and free the arrays."""
        self._rows = None
        if hasattr(self._loaded, "close"):
            self._loaded.close()

    def _load_arrays(self) -> dict[str, NDArray[Any]]:
        if isinstance(self._loaded, np.ndarray):
            return {str(self._path): self._loaded}
        names = self._dataset.names
        if not names:
            there = [name.removesuffix(".npy") for name in self._loaded.zip.namelist() if name.endswith(".npy")]
            names = tuple(there) if len(there) == 1 else (MEMBER,)
        return {f"`{name[:60]}` in {self._path}": self._loaded[name] for name in names}

    def _view_rows(self, arrays: dict[str, NDArray[Any]]) -> list[Bytes]:
        """Return the bytes of each array, (samples, bytes of a sample); the first array gives the number of samples."""
        found: list[Bytes] = []
        counted = False
        for where, data in arrays.items():
            array = Array(0, data.shape, data.dtype, data.flags.f_contiguous and not data.flags.c_contiguous)
            if found and counted:
                split_rows(array, self._samples, where)
            else:
                rows = sample_rows(array, self._dataset, where)
                self._samples, counted = rows.samples, rows.counted
            found.append(np.ascontiguousarray(data).view(np.uint8).reshape(self._samples, -1))
        return found

    def _wrap_errors(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except (OSError, ExecutionError):
            raise
        except Exception as error:  # numpy's parser may raise nearly anything for hostile headers, also MemoryError
            raise ExecutionError(f"numpy cannot read {self._path}: {type(error).__name__}: {error}", "R401") from error
