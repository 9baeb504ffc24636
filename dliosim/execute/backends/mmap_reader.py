"""Reading from files that are mapped into memory (`engine mmap`), a batch at a time."""

from __future__ import annotations

import ctypes
import mmap
import os
from dataclasses import dataclass
from time import perf_counter_ns

import numpy as np
from numpy.typing import NDArray

from dliosim.errors import ExecutionError
from dliosim.execute.backends.contract import FileReader, Files, only_file
from dliosim.execute.backends.fd_table import OpenFiles
from dliosim.execute.io_errors import call_error, truncation_error
from dliosim.execute.safe_open import close_read
from dliosim.model import Access
from dliosim.plan.samples.io_requests import Calls
from dliosim.trace.calls import Call

Bytes = NDArray[np.uint8]

# Unlike the madvise of Python's mappings it releases Python's global lock while the kernel asks storage for pages.
_C = ctypes.CDLL(None)
_C.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

# For fewer samples than this, checking their layout costs more than it saves.
_FEW = 16


@dataclass(slots=True)
class _Mapping:
    """A file that is mapped into memory."""

    #: the mapping; None for an empty file
    held: mmap.mmap | None
    #: the bytes of the file, as many as it had when it was mapped
    data: Bytes
    #: memory address of the first byte
    address: int
    #: the advice about readahead that the kernel was given last
    advice: int = mmap.MADV_NORMAL
    #: offset in the file where the last batch ended, bytes
    reached: int = 0


class MappedReader(FileReader):
    """Copies samples from mappings, which stay as long as `Access.open` says.

    A mapping has the size that its file had when it was mapped, and no copy goes beyond that. A file that is cut short
    later would end the process (SIGBUS), so sizes are checked again when an epoch begins and when it ends.
    """

    _recorded = Call.COPY

    def __init__(self, access: Access, files: Files) -> None:
        super().__init__(access, files)
        self._table = OpenFiles(access, files, self.meter)
        self._mapped: dict[int, _Mapping] = {}

    def begin_epoch(self) -> None:
        """Check that no mapped file was cut short. Raises ExecutionError [R401]."""
        self._check_sizes()

    def read(self, calls: Calls, into: memoryview) -> int:
        """Copy every call from its mapping; return the bytes. Raises ExecutionError.

        The meter counts all calls together as one; with `open each sample` it counts one for each sample.
        """
        if not len(calls.file):
            return 0
        out = np.frombuffer(into, np.uint8)
        if self._lifetime == "each sample":
            for first, last in self._sample_bounds(calls):
                self._copy_calls(calls.part(first, last), out)
                self._close_files()
        else:
            self._copy_calls(calls, out)
        moved = int(calls.length.sum())
        self.meter.moved += moved
        return moved

    def end_epoch(self) -> None:
        """Check that no file was cut short, and unmap all with `open each epoch`. Raises ExecutionError [R401]."""
        self._check_sizes()
        super().end_epoch()

    def _copy_calls(self, calls: Calls, out: Bytes) -> None:
        file = only_file(calls)
        if file is not None:
            mapping = self._map_file(file)
            self._check_bounds(calls, len(mapping.data))
            began = perf_counter_ns()
            if not _advise_sequential(mapping, calls):
                _advise_random([mapping] * len(calls.file), calls)
            if not _copy_uniform(mapping.data, calls, out):
                _copy_each([mapping.data] * len(calls.file), calls, out)
        else:
            numbers = calls.file.tolist()
            mapped = {number: self._map_file(number) for number in dict.fromkeys(numbers)}
            mappings = [mapped[number] for number in numbers]
            self._check_bounds(calls, np.array([len(mapping.data) for mapping in mappings]))
            began = perf_counter_ns()
            _advise_random(mappings, calls)
            _copy_each([mapping.data for mapping in mappings], calls, out)
        self.meter.add_run(began, (perf_counter_ns(),), calls)
        self.meter.calls += 1

    def _check_bounds(self, calls: Calls, size: int | NDArray[np.int64]) -> None:
        beyond = calls.offset + calls.length > size
        if beyond.any():
            row = int(np.argmax(beyond))
            file, offset, length = (int(column[row]) for column in (calls.file, calls.offset, calls.length))
            found = int(np.broadcast_to(size, len(beyond))[row])
            raise truncation_error("copy", self._table.path(file), offset, length, max(0, found - offset))

    def _map_file(self, file: int) -> _Mapping:
        mapping = self._mapped.get(file)
        if mapping is None:
            descriptor = self._table.open(file)
            before = perf_counter_ns()
            try:
                size = os.fstat(descriptor).st_size
                held = mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ) if size else None
            except ValueError as error:  # from Python itself, which checks the size before it maps
                raise truncation_error("mmap", self._table.path(file), 0, size, os.fstat(descriptor).st_size) from error
            except OSError as error:
                hint = f"{len(self._mapped)} files are mapped: `open each sample` maps one at a time"
                raise call_error("mmap", self._table.path(file), error, hint=hint, reading=True) from error
            finally:
                self.meter.log_call(Call.MAP, before, file)
                closing = perf_counter_ns()
                close_read([descriptor])
                self.meter.log_call(Call.CLOSE, closing, file)
            data = np.frombuffer(held, np.uint8) if held is not None else np.empty(0, np.uint8)
            mapping = self._mapped[file] = _Mapping(held, data, data.__array_interface__["data"][0])
            self.meter.open_ns += perf_counter_ns() - before
        return mapping

    def _check_sizes(self) -> None:
        for file, mapping in self._mapped.items():
            size = mapping.held.size() if mapping.held is not None else 0
            if size < len(mapping.data):
                text = f"{self._table.path(file)} has {size} bytes, and had {len(mapping.data)} when it was mapped"
                raise ExecutionError(f"{text}: the file was cut short while it was read", "R401")

    def _close_files(self) -> None:
        # A mapping is unmapped with its last view.
        before = perf_counter_ns()
        while self._mapped:
            begun = perf_counter_ns()
            file, mapping = self._mapped.popitem()
            del mapping
            self.meter.log_call(Call.UNMAP, begun, file)
        self.meter.close_ns += perf_counter_ns() - before


def _advise_sequential(mapping: _Mapping, calls: Calls) -> bool:
    """Let the kernel read ahead if samples follow each other in the file; return whether they do."""
    first, before_last = int(calls.offset[0]), int(calls.length[:-1].sum())
    in_order = int(calls.offset[-1]) - first == before_last if len(calls.file) > 1 else first == mapping.reached
    mapping.reached = int(calls.offset[-1] + calls.length[-1])
    _advise(mapping, mmap.MADV_NORMAL if in_order else mmap.MADV_RANDOM)
    return in_order


def _advise_random(mappings: list[_Mapping], calls: Calls) -> None:
    """Let the kernel read only what is asked for: a single page by its fault, several pages of a sample at once."""
    for mapping in mappings:
        _advise(mapping, mmap.MADV_RANDOM)
    if int(calls.length.max()) > mmap.PAGESIZE:
        first = calls.offset // mmap.PAGESIZE * mmap.PAGESIZE
        for mapping, at, size in zip(
            mappings, first.tolist(), (calls.offset + calls.length - first).tolist(), strict=True
        ):
            _C.madvise(mapping.address + at, size, mmap.MADV_WILLNEED)


def _advise(mapping: _Mapping, advice: int) -> None:
    if mapping.advice != advice and mapping.held is not None:
        mapping.held.madvise(advice)
        mapping.advice = advice


def _copy_uniform(source: Bytes, calls: Calls, out: Bytes) -> bool:
    """Copy samples of one size, at multiples of it in the file, by one numpy call; return whether it was possible."""
    offset, length, start = calls.offset, int(calls.length[0]), calls.start
    count, first = len(offset), int(offset[0]) % length
    if count < _FEW or (calls.length != length).any():
        return False
    row, rest = np.divmod(offset - first, length)
    # Calls fill the buffer in their order, so the place of the last one shows whether there are gaps.
    if rest.any() or int(start[-1]) - int(start[0]) != (count - 1) * length:
        return False
    rows = source[first : first + (len(source) - first) // length * length].reshape(-1, length)
    target = out[int(start[0]) : int(start[0]) + count * length].reshape(count, length)
    # All indices exist, so `clip` changes none; with it numpy copies into `out` without a buffer in between.
    np.take(rows, row, axis=0, out=target, mode="clip")
    return True


def _copy_each(sources: list[Bytes], calls: Calls, out: Bytes) -> None:
    """Copy samples one after the other. Unlike slices of memory, numpy releases Python's global lock for large ones."""
    columns = (calls.offset.tolist(), calls.length.tolist(), calls.start.tolist())
    for source, offset, length, start in zip(sources, *columns, strict=True):
        np.copyto(out[start : start + length], source[offset : offset + length])
