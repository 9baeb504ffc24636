"""Messages between a rank and its reader processes: numbers and text as JSON, and arrays; the set-up of a process.

Only the set-up is pickled. A reader process decodes files of any origin, so nothing that it sends is unpickled.
"""

from __future__ import annotations

import json
import mmap
import pickle
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, cast

import numpy as np

from dliosim.execute.backends.contract import Files
from dliosim.execute.batches.decode_preprocess import BatchProcessor
from dliosim.execute.node.memory_file import allocate_shared
from dliosim.formats.protocols import Ints
from dliosim.measure.rank.meter import Meter
from dliosim.model import Access
from dliosim.plan.samples.io_requests import Calls
from dliosim.trace.calls import CALLS
from dliosim.trace.recorder import collector

#: Numbers and text by name.
Header = dict[str, Any]

#: Bytes of the header, and int64 numbers of all arrays.
_SIZES: Final = struct.Struct("qq")

#: Numbers of a meter that a message adds to those of another one.
_COUNTS: Final = ("calls", "moved", "opens", "open_ns", "close_ns", "read_ns")

#: Arrays in a set-up begin at multiples of this, bytes.
_ALIGNMENT: Final = 64


def send_message(connection: socket.socket, header: Header, arrays: Sequence[Ints] = ()) -> None:
    """Send a message. Raises OSError if the other process has ended."""
    text = json.dumps(header | {"arrays": [len(one) for one in arrays]}).encode()
    numbers = np.concatenate(arrays) if arrays else np.empty(0, np.int64)
    connection.sendall(b"".join([_SIZES.pack(len(text), len(numbers)), text, numbers.tobytes()]))


def receive_message(connection: socket.socket) -> tuple[Header, list[Ints]]:
    """Wait for a message. Raises EOFError or OSError if the other process has ended."""
    length, numbers = _SIZES.unpack(_receive_bytes(connection, _SIZES.size))
    header = json.loads(_receive_bytes(connection, length))
    whole = np.frombuffer(_receive_bytes(connection, 8 * numbers), np.int64)
    ends = np.cumsum([0, *header.pop("arrays")]).tolist()
    return header, [whole[begin:end] for begin, end in pairwise(ends)]


def _receive_bytes(connection: socket.socket, size: int) -> bytearray:
    # By recv, not by read: the kernel counts its bytes as none that the rank read.
    into = bytearray(size)
    rest = memoryview(into)
    while rest:
        got = connection.recv_into(rest)
        if got == 0:
            raise EOFError
        rest = rest[got:]
    return into


@dataclass(frozen=True, slots=True)
class ReaderSetup:
    """The parts of a loop that its reader processes need."""

    #: how to read
    access: Access
    #: None if nothing is read
    files: Files | None
    #: makes the processor of an epoch; None for neither decoding nor preprocessing
    processor: Callable[[], BatchProcessor] | None
    #: bytes of each of `Access.batches` buffers, whole pages, at least one
    slot: int
    #: calls and spans are noted
    recorded: bool


def share_setup(setup: ReaderSetup) -> int:
    """Return the descriptor of a file in memory with a set-up. Raises ExecutionError [R402]."""
    buffers: list[pickle.PickleBuffer] = []
    text = pickle.dumps(setup, protocol=5, buffer_callback=buffers.append)
    parts = [memoryview(text), *(one.raw() for one in buffers)]
    sizes = [8 * (len(parts) + 1), *map(len, parts)]
    descriptor, view = allocate_shared(sum(-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes))
    at = 0
    for part in (memoryview(np.array([len(parts), *sizes[1:]], np.int64).tobytes()), *parts):
        view[at : at + len(part)] = part
        at += -(-len(part) // _ALIGNMENT) * _ALIGNMENT
    return descriptor


def read_setup(descriptor: int) -> ReaderSetup:
    """Return the set-up that `share_setup` stored; its arrays stay where they are."""
    data = memoryview(mmap.mmap(descriptor, 0, prot=mmap.PROT_READ))
    count = int(np.frombuffer(data, np.int64, 1)[0])
    sizes = np.frombuffer(data, np.int64, count, 8)
    begins = np.cumsum(-(-np.append(8 * (count + 1), sizes) // _ALIGNMENT) * _ALIGNMENT).tolist()
    text, *buffers = (data[begin : begin + size] for begin, size in zip(begins, sizes.tolist(), strict=False))
    return cast(ReaderSetup, pickle.loads(text, buffers=buffers))


def take_meter(meter: Meter) -> tuple[Header, list[Ints]]:
    """Return what a meter, and the collector of this process, have since the last time; they have none of it then."""
    spans, single = meter.spans, np.array(meter.stamps, np.int64)
    header: Header = {name: getattr(meter, name) for name in _COUNTS}
    header |= {"how": meter.how, "until": [until for _, _, until in spans]}
    header["read"] = [None if run is None else run[1:] for run in meter.read_rows]
    arrays = [single, *(one for begin, end, _ in spans for one in (begin, end))]
    noted = collector()
    if meter.log is not None and noted is not None:
        header["rows"], header["short"] = meter.log.take_rows()
        header["single"], header["spans"] = noted.take_noted()
    for name in _COUNTS:
        setattr(meter, name, 0)
    meter.read_rows.clear()
    meter.stamps.clear()
    meter.spans.clear()
    return header, arrays


def add_meter(meter: Meter, header: Header, arrays: list[Ints], calls: Calls | None, step: int) -> None:
    """Add what `take_meter` returned in another process, for `calls`, to a meter and its log."""
    stamps, *spans = arrays
    for name in _COUNTS:
        setattr(meter, name, getattr(meter, name) + header[name])
    meter.how = header["how"] or meter.how
    log, notes = meter.log, collector()
    if log is not None and notes is not None:
        short = header["short"]
        for run, (first, size) in enumerate(header["rows"]):
            for _, *rest in [one for one in short if one[0] == run]:
                log.add_short(*rest)
            log.add_rows(cast(Calls, calls).part(first, first + size))
        for call, *numbers in header["single"]:
            log.add_call(CALLS[call], *numbers)
        for kind, begin, end in header["spans"]:
            notes.note_span(kind, begin, end, step)
    for rows in header["read"]:
        meter.note_sources(None if rows is None else cast(Calls, calls).part(rows[0], sum(rows)))
    # Last, as `Meter.add_run` does: the rank's main thread takes them at any time, with their rows.
    meter.stamps.extend(stamps.tolist())
    meter.spans.extend(zip(spans[::2], spans[1::2], header["until"], strict=True))
