"""Reads on a storage that a file describes: nothing is read, and each call takes as long as the description says."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from time import perf_counter_ns

import numpy as np
from mpi4py import MPI

from dliosim.errors import HELP, PlanError
from dliosim.execute.backends.contract import FileReader, Files
from dliosim.execute.mpi.shared_memory import SharedMemory, wait
from dliosim.execute.node.compute import sleep_until
from dliosim.model import Access, Dataset, Loop, StorageModel
from dliosim.model.counter_rng import key, uniforms
from dliosim.plan.predict.queues import mean_latency
from dliosim.plan.samples.io_requests import Calls, sample_heads
from dliosim.readable import seconds

#: A reader sleeps once its calls are this far ahead of the clock, ns: each sleep is late by some 20 us.
_AHEAD = 1_000_000

#: The shortest mean time of a call, in s: the arithmetic of a call takes a few microseconds.
_SHORTEST_CALL = 20e-6

#: Servers that may have a part of a call: the arithmetic of each takes a microsecond.
_MOST_PARTS = 1000

#: The longest mean time of a call, in s; and the latest time in the queues, ns.
_LONGEST_CALL, _NEVER = 3600.0, 1 << 62

#: Bytes of the semaphore in front of the queues: one cache line. A sem_t has 32 bytes on 64-bit Linux.
_LINE = 64

#: Queues in front of those of the servers.
_METADATA, _CLIENT, _SERVERS = range(3)

_libc = ctypes.CDLL(None, use_errno=True)
for _function in (_libc.sem_init, _libc.sem_wait, _libc.sem_post):
    _function.argtypes = (ctypes.c_void_p,)  # of the semaphore; ctypes takes what follows as it is


class ModelledStorage:
    """The queues of a described storage, in memory that the ranks of a node share.

    The entry of a queue is the time (perf_counter_ns) from which on it is free. Making it is collective.
    """

    def __init__(self, comm: MPI.Intracomm, model: StorageModel, seed: int) -> None:
        self.model = model
        self._seed, self._readers = seed, 0
        self._shared = SharedMemory(comm, _LINE + 8 * (_SERVERS + model.servers.number))
        self._lock = np.frombuffer(self._shared.view, np.uint8).ctypes.data
        self._free = self._shared.view[_LINE:].cast("q")
        if comm.rank == 0:
            _libc.sem_init(self._lock, 1, 1)
        wait(comm.Ibarrier(), comm.size)

    def key_of_reader(self, rank: int) -> int:
        """Return the key for the latencies of the next reader of a rank: no two readers of a run draw the same."""
        self._readers += 1
        return key(self._seed, "latency of a call", rank, self._readers)

    def serve_open(self, arrival: int) -> int:
        """Return when an open that arrives at a time is served, without its latency; ns."""
        rate = self.model.metadata
        return self._serve([(_METADATA, 1 / rate)], arrival) if rate is not None else arrival

    def serve_read(self, arrival: int, file: int, offset: int, length: int) -> int:
        """Return when a read that arrives at a time is served by its node and its servers, without latency; ns."""
        model = self.model
        work = [(_SERVERS + server, size / model.servers.rate) for server, size in self._divide(file, offset, length)]
        if model.client is not None:
            work.append((_CLIENT, length / model.client))
        alone = 0 if model.stream is None else round(length / model.stream * 1e9)
        return max(self._serve(work, arrival), arrival + alone)

    def _serve(self, work: list[tuple[int, float]], arrival: int) -> int:
        """Return when the last of some queues has served its seconds of work, which arrives at a time; ns."""
        free, last = self._free, arrival
        while _libc.sem_wait(self._lock):  # interrupted by a signal
            pass
        try:
            for queue, service in work:
                done = free[queue] = min(max(free[queue], arrival) + round(service * 1e9), _NEVER)
                last = max(last, done)
        finally:
            _libc.sem_post(self._lock)
        return last

    def _divide(self, file: int, offset: int, length: int) -> Iterator[tuple[int, int]]:
        """Yield the servers that have a part of a range of a file, and its bytes; files begin round robin."""
        number, stripe = self.model.servers.number, self.model.stripe
        if stripe is None:
            yield file % number, length
            return
        first, last = offset // stripe.size, (offset + length - 1) // stripe.size
        for place in range(first, min(last + 1, first + stripe.targets)):
            whole = (last - place) // stripe.targets + 1  # stripes of the range on this server
            size = whole * stripe.size
            size -= (offset - first * stripe.size) * (place == first)
            size -= ((last + 1) * stripe.size - offset - length) * ((last - place) % stripe.targets == 0)
            yield (file + place % stripe.targets) % number, size


class ModelledReader(FileReader):
    """Waits for each call as long as it would take on a described storage, and does not change the buffer."""

    def __init__(self, access: Access, files: Files, storage: ModelledStorage, rank: int) -> None:
        super().__init__(access, files)
        self._storage, self._opened = storage, set[int]()
        self._key, self._drawn = storage.key_of_reader(rank), 0

    def read(self, calls: Calls, into: memoryview) -> int:
        """Wait for every call; return the bytes that they ask for."""
        count = len(calls.file)
        if not count:
            return 0
        storage, meter, opens = self._storage, self.meter, self._count_opens(calls)
        latencies = iter(self._draw_latencies(opens + count))
        began = now = perf_counter_ns()
        for _ in range(opens):
            now = _pace(storage.serve_open(now) + next(latencies))
        meter.opens += opens
        meter.open_ns += now - began
        stamps, opened = list[int](), now
        for file, offset, length in zip(calls.file.tolist(), calls.offset.tolist(), calls.length.tolist(), strict=True):
            now = _pace(storage.serve_read(now, file, offset, length) + next(latencies))
            stamps.append(now)
        sleep_until(now, False)
        meter.add_run(opened, stamps)
        moved = int(np.add.reduce(calls.length))
        meter.calls += count
        meter.moved += moved
        return moved

    def _count_opens(self, calls: Calls) -> int:
        """Return the number of files that these calls open."""
        if self._lifetime == "each sample":
            return int(np.count_nonzero(sample_heads(calls, self._merged)))
        before = len(self._opened)
        self._opened.update(calls.file.tolist())
        return len(self._opened) - before

    def _draw_latencies(self, count: int) -> list[int]:
        """Return what some requests take besides their transfer, the client's own time included; ns."""
        model = self._storage.model
        latency = np.full(count, model.latency)
        if model.tail is not None:
            latency *= uniforms(self._key, np.arange(self._drawn, self._drawn + count)) ** (-1 / model.tail)
        self._drawn += count
        drawn: list[int] = np.rint(np.minimum((latency + model.call_time) * 1e9, _NEVER)).astype(np.int64).tolist()
        return drawn

    def _close_files(self) -> None:
        self._opened.clear()


def _pace(ahead: int) -> int:
    """Return a time in the future, not long before it comes; perf_counter_ns."""
    if ahead - perf_counter_ns() > _AHEAD:
        sleep_until(ahead, False)
    return ahead


def require_modelled(loop: Loop, dataset: Dataset, model: StorageModel) -> None:
    """Raise PlanError, on every rank, if no description says what the reads of a loop take."""
    access, name = loop.access, loop.name
    size = dataset.size.nonnegative_mean()
    call = min(size, access.transfer or size)
    took = mean_latency(model) + model.call_time + max(model.server_seconds(call), call / (model.client or math.inf))
    short = f"a call of {seconds(took, 2)} is too short to be waited for; it may be {seconds(_SHORTEST_CALL, 2)}"
    refused = (
        (access.collective, f"the two phases of a collective read are not modelled{HELP}`-D {name}.api=posix` is"),
        (access.scatter, f"ranks that read for others are not modelled{HELP}`-D {name}.scatter=off` is"),
        (access.through == "library", f"a library's own calls are not modelled{HELP}`-D {name}.through=direct` is"),
        (access.engine not in ("preadv", "pread"), f"this engine is not modelled{HELP}`-D {name}.engine=preadv` is"),
        (
            took > _LONGEST_CALL,
            f"a call would take {seconds(took, 2)}{HELP}describe faster servers, or smaller calls",
        ),
        (took < _SHORTEST_CALL, f"{short}{HELP}describe a longer `latency`, or read more bytes in a call"),
        (
            model.count_servers(call) > _MOST_PARTS,
            f"a call has parts on {model.count_servers(call):_} servers{HELP}describe larger stripes, or fewer servers",
        ),
        (bool(dataset.source), f"existing files are not modelled{HELP}describe data like them by a data set"),
    )
    for is_refused, reason in refused:
        if is_refused:
            raise PlanError(f"{name}: {reason}").mark_shared()
