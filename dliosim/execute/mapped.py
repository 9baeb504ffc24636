"""Reading out of files that are mapped into memory (`engine mmap`), a batch at a time."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import ExecutionError
from dliosim.execute.buffers import only_file
from dliosim.execute.faults import failed, truncated
from dliosim.execute.openfiles import OpenFiles
from dliosim.measure.meter import Meter
from dliosim.model import Access
from dliosim.plan.extents import Calls

Bytes = NDArray[np.uint8]

# Below this many samples to looking at how they lie costs more than it saves.
_FEW = 8


@dataclass(frozen=True, slots=True)
class _Mapping:
    """A file in memory: what keeps it there, its bytes, and how many there were when it was mapped."""

    held: mmap.mmap | None
    data: Bytes
    size: int


class MappedReader:
    """Copies samples out of mappings that live as long as `Access.open` says.

    A mapping reaches as far as its file did when it was mapped, and no copy beyond that. A file that is cut short
    afterwards would end the process (SIGBUS), so sizes are looked at again when an epoch begins, and when it ends.
    """

    def __init__(
        self, access: Access, directory: Path, file_name: Callable[[int], str], file_size: Callable[[int], int]
    ) -> None:
        """See `OpenFiles` for what the files are."""
        self.meter = Meter()
        self._files = OpenFiles(access, directory, file_name, file_size, self.meter)
        self._lifetime = access.open
        self._mapped: dict[int, _Mapping] = {}

    def begin_epoch(self) -> None:
        """See that no file that stays mapped was cut short. Raises ExecutionError."""
        self._look_again()

    def read(self, calls: Calls, into: memoryview) -> int:
        """See `Reader.read`; all calls together are counted as one, those of each file with `open each sample`."""
        if not len(calls.file):
            return 0
        out = np.frombuffer(into, np.uint8)
        if self._lifetime == "each sample":
            for row in range(len(calls.file)):
                self._gather(calls.round(0, row, row + 1), out)
                self._unmap()
        else:
            self._gather(calls, out)
        moved = int(calls.length.sum())
        self.meter.moved += moved
        return moved

    def end_epoch(self) -> None:
        """See that no file was cut short meanwhile, and unmap what `open each epoch` closes. Raises ExecutionError."""
        self._look_again()
        if self._lifetime == "each epoch":
            self._unmap()

    def granted(self) -> dict[str, str]:
        """Nothing: there are no hints."""
        return {}

    def close(self) -> None:
        """Unmap every file."""
        self._unmap()

    def _gather(self, calls: Calls, out: Bytes) -> None:
        file = only_file(calls)
        if file is not None:
            mapping = self._mapping(file)
            self._within(calls, mapping.size)
            source = mapping.data
            began = perf_counter_ns()
            if not _take(source, calls, out):
                _copy([source] * len(calls.file), calls, out)
        else:
            numbers = calls.file.tolist()
            mappings = {number: self._mapping(number) for number in dict.fromkeys(numbers)}
            self._within(calls, np.array([mappings[number].size for number in numbers]))
            sources = [mappings[number].data for number in numbers]
            began = perf_counter_ns()
            _copy(sources, calls, out)
        self.meter.stamps.extend([-began, perf_counter_ns()])
        self.meter.calls += 1

    def _within(self, calls: Calls, size: int | NDArray[np.int64]) -> None:
        beyond = calls.offset + calls.length > size
        if beyond.any():
            row = int(np.argmax(beyond))
            file, offset, length = (int(column[row]) for column in (calls.file, calls.offset, calls.length))
            found = int(np.broadcast_to(size, len(beyond))[row])
            raise truncated("copy", self._files.path(file), offset, length, max(0, found - offset))

    def _mapping(self, file: int) -> _Mapping:
        mapping = self._mapped.get(file)
        if mapping is None:
            descriptor = self._files.open(file)
            before = perf_counter_ns()
            try:
                size = os.fstat(descriptor).st_size
                held = mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ) if size else None
            except OSError as error:
                hint = f"{len(self._mapped)} files are mapped: `open each sample` maps one at a time"
                raise failed("mmap", self._files.path(file), error, hint=hint, reading=True) from error
            finally:
                os.close(descriptor)
            data = np.frombuffer(held, np.uint8) if held is not None else np.empty(0, np.uint8)
            mapping = self._mapped[file] = _Mapping(held, data, size)
            self.meter.open_ns += perf_counter_ns() - before
        return mapping

    def _look_again(self) -> None:
        for file, mapping in self._mapped.items():
            size = mapping.held.size() if mapping.held is not None else 0
            if size < mapping.size:
                text = f"{self._files.path(file)} has {size} bytes, and had {mapping.size} when it was mapped"
                raise ExecutionError(f"{text}: the file was cut short while it was read", "R401")

    def _unmap(self) -> None:
        # The last view of a mapping that goes takes the mapping with it.
        before = perf_counter_ns()
        self._mapped.clear()
        self.meter.close_ns += perf_counter_ns() - before


def _take(source: Bytes, calls: Calls, out: Bytes) -> bool:
    """Copy samples of one size, which lie at multiples of it, by one numpy call; whether they do."""
    offset, length, start = calls.offset, int(calls.length[0]), calls.start
    count, first = len(offset), int(offset[0]) % length
    if count < _FEW or (calls.length != length).any():
        return False
    row, rest = np.divmod(offset - first, length)
    if rest.any() or int(start[-1]) - int(start[0]) != (count - 1) * length or (np.diff(start) != length).any():
        return False
    rows = source[first : first + (len(source) - first) // length * length].reshape(-1, length)
    target = out[int(start[0]) : int(start[0]) + count * length].reshape(count, length)
    # Where every place is known to exist, `clip` is the mode that copies straight into `out`.
    np.take(rows, row, axis=0, out=target, mode="clip")
    return True


def _copy(sources: list[Bytes], calls: Calls, out: Bytes) -> None:
    """Copy samples one after the other; large ones with the interpreter free, which slices of memory would not be."""
    columns = (calls.offset.tolist(), calls.length.tolist(), calls.start.tolist())
    for source, offset, length, start in zip(sources, *columns, strict=True):
        np.copyto(out[start : start + length], source[offset : offset + length])
