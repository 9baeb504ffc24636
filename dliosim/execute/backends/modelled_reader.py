"""Calls on a storage that a file describes: nothing is moved, and each takes as long as the description says."""

from __future__ import annotations

import ctypes
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count
from time import perf_counter_ns

import numpy as np
from mpi4py import MPI

from dliosim.errors import HELP, PlanError
from dliosim.execute.backends.contract import FileReader, Files
from dliosim.execute.mpi.shared_memory import SharedMemory, wait
from dliosim.execute.node.compute import sleep_until
from dliosim.measure.rank.meter import Meter
from dliosim.model import Access, Dataset, Loop, StorageModel
from dliosim.model.counter_rng import key, uniforms
from dliosim.plan.samples.io_requests import Calls, sample_heads
from dliosim.readable import seconds
from dliosim.trace.calls import Call

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

#: The calls that open files for those of MPI-IO.
_OPENS = {Call.MPI_READ: Call.MPI_OPEN, Call.MPI_WRITE: Call.MPI_OPEN}

#: Queues in front of those of the servers.
_METADATA, _CLIENT, _SERVERS = range(3)

_libc = ctypes.CDLL(None, use_errno=True)
for _function in (_libc.sem_init, _libc.sem_wait, _libc.sem_post):
    _function.argtypes = (ctypes.c_void_p,)  # of the semaphore; ctypes takes what follows as it is


class ModelledStorage:
    """The queues of a described storage, in memory that the ranks of a node share.

    Of each queue it has the time (perf_counter_ns) from which on it is free, and the ends of the time in which it last
    was idle before that: calls are made up to `_AHEAD` before they arrive, so one that arrives earlier may come later.
    Making it is collective.
    """

    def __init__(self, comm: MPI.Intracomm, model: StorageModel, seed: int) -> None:
        self.model = model
        self._seed, self._threads, self._saves = seed, count(1), Counter[str]()
        queues = 8 * (_SERVERS + model.servers.number)
        self._shared = SharedMemory(comm, _LINE + 3 * queues)
        self._lock = np.frombuffer(self._shared.view, np.uint8).ctypes.data
        self._free, self._idle, self._idle_until = (
            self._shared.view[_LINE + place * queues : _LINE + (place + 1) * queues].cast("q") for place in range(3)
        )
        if comm.rank == 0:
            _libc.sem_init(self._lock, 1, 1)
        wait(comm.Ibarrier(), comm.size)

    def key_of_thread(self, rank: int) -> int:
        """Return the key for the latencies of the next thread of a rank: no two threads of a run draw the same."""
        return key(self._seed, "latency of a call", rank, next(self._threads))

    def number_save(self, checkpoint: str) -> int:
        """Return the number of the next save of a checkpoint, from 1."""
        self._saves[checkpoint] += 1
        return self._saves[checkpoint]

    def serve_open(self, arrival: int) -> int:
        """Return when an open that arrives at a time is served, without its latency; ns."""
        rate = self.model.metadata
        return self._serve([(_METADATA, 1 / rate)], arrival) if rate is not None else arrival

    def serve_call(self, arrival: int, file: int, offset: int, length: int, rate: float) -> int:
        """Return when a call that arrives at a time is served by its node and its servers, without latency; ns.

        Each server serves it at `rate` bytes per second.
        """
        model = self.model
        work = [(_SERVERS + server, size / rate) for server, size in self._divide(file, offset, length)]
        if model.client is not None:
            work.append((_CLIENT, length / model.client))
        alone = 0 if model.stream is None else round(length / model.stream * 1e9)
        return max(self._serve(work, arrival), arrival + alone)

    def _serve(self, work: list[tuple[int, float]], arrival: int) -> int:
        """Return when the last of some queues has served its seconds of work, which arrives at a time; ns."""
        free, idle, until, last = self._free, self._idle, self._idle_until, arrival
        while _libc.sem_wait(self._lock):  # interrupted by a signal
            pass
        try:
            for queue, service in work:
                took = round(service * 1e9)
                begin = max(idle[queue], arrival)
                if begin + took <= until[queue]:
                    done = idle[queue] = begin + took
                else:
                    begin = max(free[queue], arrival)
                    if begin > free[queue]:
                        idle[queue], until[queue] = free[queue], begin
                    done = free[queue] = min(begin + took, _NEVER)
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


class ModelledCalls:
    """The calls of one thread of a rank on a described storage, one after the other."""

    def __init__(self, storage: ModelledStorage, rank: int, rate: float, meter: Meter) -> None:
        """Begin with no call; `rate` is the bytes per second at which each server serves these calls."""
        self.meter = meter
        self._storage, self._rate = storage, rate
        self._key, self._drawn = storage.key_of_thread(rank), 0

    def wait(self, opens: list[int], ranges: list[tuple[int, int, int]]) -> list[int]:
        """Wait for opens of files, and then for a call for each range: its file, offset and bytes.

        The meter counts both, and has the times of the opens; return the clock before the first call, and after each.
        """
        storage, meter = self._storage, self.meter
        latencies = iter(self._draw_latencies(len(opens) + len(ranges)))
        began = now = perf_counter_ns()
        for file in opens:
            before, now = now, _pace(storage.serve_open(now) + next(latencies))
            if meter.log is not None:
                meter.log.add_call(_OPENS.get(meter.log.call, Call.OPEN), before, file, ended=now)
        meter.opens += len(opens)
        meter.open_ns += now - began
        stamps = [now]
        for file, offset, length in ranges:
            now = _pace(storage.serve_call(now, file, offset, length, self._rate) + next(latencies))
            stamps.append(now)
            meter.moved += length
        sleep_until(now, False)
        meter.calls += len(ranges)
        return stamps

    def _draw_latencies(self, count: int) -> list[int]:
        """Return what some requests take besides their transfer, the client's own time included; ns."""
        model = self._storage.model
        latency = np.full(count, model.latency)
        if model.tail is not None:
            latency *= uniforms(self._key, np.arange(self._drawn, self._drawn + count)) ** (-1 / model.tail)
        self._drawn += count
        drawn: list[int] = np.rint(np.minimum((latency + model.call_time) * 1e9, _NEVER)).astype(np.int64).tolist()
        return drawn


class ModelledReader(FileReader):
    """Waits for each call as long as it would take on a described storage, and does not change the buffer."""

    def __init__(self, access: Access, files: Files, storage: ModelledStorage, rank: int) -> None:
        self._recorded = Call.MPI_READ if access.is_mpi else Call.READ
        super().__init__(access, files)
        self._calls, self._opened = ModelledCalls(storage, rank, storage.model.servers.rate, self.meter), set[int]()

    def read(self, calls: Calls, into: memoryview) -> int:
        """Wait for every call; return the bytes that they ask for."""
        if not len(calls.file):
            return 0
        ranges = list(zip(calls.file.tolist(), calls.offset.tolist(), calls.length.tolist(), strict=True))
        began, *ended = self._calls.wait(self._list_opens(calls), ranges)
        self.meter.add_run(began, ended, calls)
        return int(np.add.reduce(calls.length))

    def _list_opens(self, calls: Calls) -> list[int]:
        """Return the files that these calls open."""
        if self._lifetime == "each sample":
            each: list[int] = calls.file[sample_heads(calls, self._merged)].tolist()
            return each
        some = [file for file in dict.fromkeys(calls.file.tolist()) if file not in self._opened]
        self._opened.update(some)
        return some

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
    refused = (
        (access.collective, f"the two phases of a collective read are not modelled{HELP}`-D {name}.api=posix` is"),
        (access.scatter, f"ranks that read for others are not modelled{HELP}`-D {name}.scatter=off` is"),
        (access.through == "library", f"a library's own calls are not modelled{HELP}`-D {name}.through=direct` is"),
        (access.processes, f"reader processes are not modelled{HELP}`-D {name}.readers={access.readers}` is"),
        (access.engine not in ("preadv", "pread"), f"this engine is not modelled{HELP}`-D {name}.engine=preadv` is"),
        (
            any(one.source for one in dataset.members),
            f"existing files are not modelled{HELP}describe data like them by a data set",
        ),
    )
    refuse_first(name, refused)
    for one in dataset.members:
        size = one.size.nonnegative_mean()
        require_calls(name, min(size, access.transfer or size), model, model.servers.rate)


def require_calls(name: str, call: float, model: StorageModel, rate: float) -> None:
    """Raise PlanError, on every rank, if calls of `call` bytes, at `rate` a server, cannot be waited for."""
    took = model.request_latency + model.server_seconds(call, rate)
    took = max(took, call / (model.client or math.inf))
    short = f"a call of {seconds(took, 2)} is too short to be waited for; it may be {seconds(_SHORTEST_CALL, 2)}"
    long, parts = f"a call would take {seconds(took, 2)}", model.count_servers(call)
    refused = (
        (took > _LONGEST_CALL, f"{long}{HELP}describe faster servers, or smaller calls"),
        (took < _SHORTEST_CALL, f"{short}{HELP}describe a longer `latency`, or move more bytes in a call"),
        (parts > _MOST_PARTS, f"a call has parts on {parts:_} servers{HELP}describe larger stripes, or fewer servers"),
    )
    refuse_first(name, refused)


def refuse_first(name: str, refused: Iterable[tuple[bool, str]]) -> None:
    """Raise PlanError, on every rank, for the first reason that holds."""
    for is_refused, reason in refused:
        if is_refused:
            raise PlanError(f"{name}: {reason}").mark_shared()
