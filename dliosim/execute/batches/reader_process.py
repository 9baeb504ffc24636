"""A reader process of a rank (`readers K processes`): it reads, decodes and preprocesses batches, one after the other.

The rank executes it with the descriptors of a socket, of the buffers and of the set-up. It has no MPI. It ends with its
rank, whatever ends that: the kernel kills it, or its socket has no other end.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import replace
from typing import Final

import numpy as np

from dliosim.errors import DliosimError
from dliosim.execute.backends.contract import Reader
from dliosim.execute.backends.registry import open_readers
from dliosim.execute.batches.decode_preprocess import BatchProcessor, unpack_rows
from dliosim.execute.batches.messages import Header, ReaderSetup, read_setup, receive_message, send_message, take_meter
from dliosim.execute.node.compute import keep_core_busy
from dliosim.execute.node.memory_file import map_shared
from dliosim.formats.protocols import Ints
from dliosim.formats.registry import bind, import_libraries, import_modules
from dliosim.plan.samples.io_requests import Calls
from dliosim.trace.recorder import CallCollector, record_by

_SET_DEATH_SIGNAL: Final = 1  # PR_SET_PDEATHSIG of linux/prctl.h

#: M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h, at the most that glibc itself raises them to in a long life.
_MALLOC: Final = {-1: 64 << 20, -3: 32 << 20}

_NONE: Final = np.empty(0, np.int64)


def main() -> None:
    """Serve the rank that executed this process; the arguments are its process and the descriptors."""
    rank, connection, *shared = map(int, sys.argv[1:])
    library = ctypes.CDLL(None)
    library.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    with suppress(AttributeError):
        # A young heap returns its end to the kernel after each sample, and each page of the next one is a fault.
        for setting, size in _MALLOC.items():
            library.mallopt(setting, size)
    if os.getppid() == rank:  # it may have ended before that call
        serve_rank(socket.socket(fileno=connection), *shared)


def serve_rank(connection: socket.socket, slots: int, given: int) -> None:
    """Do what the rank asks for until it closes the connection; the numbers are descriptors of buffers and set-up."""
    try:
        buffers, setup = map_shared(slots), read_setup(given)
        reader = _make_reader(setup)
    except Exception as error:  # the rank raises it
        send_message(connection, _pack_error(error))
        return
    batches = [buffers[at : at + setup.slot] for at in range(0, len(buffers), setup.slot)]
    processor: BatchProcessor | None = None
    answer: Header = {"call": None if reader.meter.log is None else int(reader.meter.log.call)}
    gc.disable()
    while True:
        header, arrays = take_meter(reader.meter)
        send_message(connection, answer | header, arrays)
        try:
            asked, arrays = receive_message(connection)
        except (EOFError, OSError):
            return
        try:
            if asked["run"] == "read":
                answer = _read_share(reader, processor, asked, arrays, batches[asked["slot"]])
            else:
                answer = {}
                getattr(reader, asked["run"])()
                # Its tables of files and columns serve all batches of an epoch, and are not kept longer.
                processor = setup.processor() if setup.processor and asked["run"] == "begin_epoch" else None
        except DliosimError as error:
            answer = _pack_error(error)


def _make_reader(setup: ReaderSetup) -> Reader:
    """Make the reader, and prepare what its reads need. Raises DliosimError, or what a library raises."""
    if setup.recorded:
        record_by(CallCollector())
    # Its share of the open descriptors is that of a process with one reader.
    [reader] = open_readers(replace(setup.access, readers=1), setup.files)
    if setup.files is not None and setup.files.dataset is not None:
        import_modules(setup.files.dataset.members)
        for dataset in setup.files.dataset.members:
            import_libraries(bind(dataset))
        if len(setup.files.dataset.members) > 1:
            reader.meter.source_of = np.zeros_like  # notes the rows that calls read: the rank knows their data sets
    keep_core_busy(0)  # finds the speed of this core, before any clock runs
    return reader


def _pack_error(error: Exception) -> Header:
    if isinstance(error, DliosimError):
        return {"error": [type(error).__name__, error.message, error.code]}
    return {"error": ["", f"a reader process cannot start: {type(error).__name__}: {error}", None]}


def _read_share(
    reader: Reader, processor: BatchProcessor | None, asked: Header, arrays: list[Ints], slot: memoryview
) -> Header:
    """Read a batch, or a share of one, into its buffer, decode and preprocess it; return bytes and times."""
    file, offset, length, start, continues, *rows = arrays
    edges = np.array([0, len(file)])
    calls = Calls(file, offset, length, start, edges, _NONE, _NONE, edges, continues != 0 if len(continues) else None)
    got = reader.read(calls, slot)
    if processor is None:
        return {"got": got, "processed": 0, "decode": [], "preprocess": []}
    stored, starts = unpack_rows(rows)
    taken = processor.take_rows(stored, starts, asked["times"]).process_batch(0, 0, len(starts), 1, slot)
    return {"got": got, "processed": taken, "decode": processor.decode_ns, "preprocess": processor.preprocess_ns}
