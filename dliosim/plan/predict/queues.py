"""First-come queues in virtual time: when each of many jobs is done, all queues at once."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dliosim.model import Distribution, StorageModel, constant
from dliosim.model.counter_rng import uniforms

#: Rounds after which the mean wait in a queue changes no more, by formula and simulated; the greatest load of a queue.
_ROUNDS: Final = 60
_SIMULATED: Final = 3
_FULL: Final = 0.999

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def serve_queues(arrival: Floats, service: Floats, queue: Ints, free: Floats) -> Floats:
    """Return when each job is done in its queue, where jobs are served one after the other as they arrive; seconds.

    `arrival` and `service` are seconds, `queue` the number of each job's queue, all of shape (jobs,), at least one.
    `free` has the time from which on each queue is free, shape (queues,); it becomes the time after these jobs. Of jobs
    that arrive together the first in the arrays is first.

    In one queue job i is done at S_i + max over j <= i of (arrival_j - S_(j-1)), S being the sum of service times.
    """
    order = np.lexsort((arrival, queue))
    number, took = queue[order], service[order]
    first = np.flatnonzero(np.diff(number, prepend=-1))
    place = np.cumsum(np.diff(number, prepend=number[0]) > 0)
    served = np.cumsum(took)
    served -= (served[first] - took[first])[place]
    begun = arrival[order]
    begun[first] = np.maximum(begun[first], free[number[first]])
    ready = begun - (served - took)
    # Each queue gets a range of its own, so that one running maximum serves all.
    apart = (ready.max() - ready.min() + 1.0) * place
    done = np.maximum.accumulate(ready + apart) - apart + served
    last = np.append(first[1:], len(number)) - 1
    free[number[last]] = done[last]
    ordered: Floats = np.empty_like(done)
    ordered[order] = done
    return ordered


def sum_latencies(storage: StorageModel, requests: float, uniform: Floats) -> Floats:
    """Return the sum of the latencies of some requests, one after the other; seconds, the shape of `uniform`.

    `uniform` has a draw in (0, 1) for each sum. With a tail the draw decides the longest latency of the sum. The others
    have the mean of latencies that are shorter, so that the mean of all sums is exact.
    """
    least, power = storage.latency, storage.tail
    if power is None:
        return np.full(uniform.shape, least * requests)
    drawn = max(requests, 1.0)
    longest: Floats = least * (-np.expm1(np.log(uniform) / drawn)) ** (-1 / power)
    ratio = least / longest
    shorter = least * power / (power - 1) * (1 - ratio ** (power - 1)) / (1 - ratio**power)
    return (longest + (drawn - 1.0) * shorter) * min(requests, 1.0)


@dataclass(frozen=True, slots=True)
class Rhythm:
    """The calls of a few customers of the same servers."""

    latency: Floats  #: latencies of calls, s; shape (customers, calls)
    calls: int  #: calls of a batch, one after the other
    stay: int  #: calls that a customer makes to one server before it goes to the next one
    hops: bool  #: the next server is any server; else it is the one after


def simulate_waits(service: float, rhythm: Rhythm, think: float, servers: int) -> tuple[float, float]:
    """Return the mean wait of a call and its standard deviation, s, if customers call as `rhythm` says.

    Their calls are events in the order of their arrival. `think` is the mean time from a call's end to the next call:
    what latencies leave of it follows each batch.
    """
    customers, calls = rhythm.latency.shape
    drawn = np.random.default_rng(0)
    turns = -(-calls // rhythm.stay)
    first = drawn.integers(servers, size=(customers, turns if rhythm.hops else 1))
    called = np.repeat(first if rhythm.hops else first + np.arange(turns), rhythm.stay, axis=1) % servers
    pause = rhythm.latency.copy()
    pause[:, rhythm.calls - 1 :: rhythm.calls] += rhythm.calls * max(think - float(rhythm.latency.mean()), 0.0)
    server_of, pause_after = called.tolist(), pause.tolist()  # lists: numbers of arrays take longer one by one
    free, waits = [0.0] * servers, []
    cycle = rhythm.calls * (think + service)
    events = [(begin, customer, 0) for customer, begin in enumerate((cycle * drawn.random((customers,))).tolist())]
    heapq.heapify(events)
    while events:
        now, customer, call = events[0]
        server = server_of[customer][call]
        begun = max(free[server], now)
        free[server] = begun + service
        waits.append(begun - now)
        if call + 1 == calls:
            heapq.heappop(events)
        else:
            heapq.heapreplace(events, (free[server] + pause_after[customer][call], customer, call + 1))
    return float(np.mean(waits)), float(np.std(waits))


def wait_of_calls(
    service: float, think: Callable[[float], float], customers: float, servers: float, rhythm: Rhythm | None = None
) -> Distribution:
    """Return the wait of a call in the queue of its server, in s, if customers call one after the other.

    Each call takes `service` seconds on one of some equal servers; `think` is the time from a call's end to the next
    call of its customer, for a mean time of calls. The mean is that of approximate mean value analysis (Schweitzer
    1979): a call finds the queue that the others would have without its customer, and half of the call that is served
    is left, as all take the same time. The spread is that of a queue M/D/1 with the same load, at most that of the
    number of the others that are at the server, each by the same chance: a full queue hardly varies.

    A few customers with a `rhythm` are simulated: they fall into step, and then wait less than at random.
    """
    if service <= 0 or customers < 2:
        return constant(0.0)
    others, whole, load, present = customers - 1, service, 0.0, 0.0
    for _ in range(_ROUNDS):
        cycle = think(whole) + whole
        load = min(others / servers * service / cycle, _FULL)
        present = whole / cycle / servers
        ahead = others / servers * (whole - service / 2) / cycle
        whole = (whole + service * (1 + ahead)) / 2  # half a step, so that it does not swing
    if rhythm is not None:
        for _ in range(_SIMULATED):
            mean, stdev = simulate_waits(service, rhythm, think(whole), round(servers))
            whole = (whole + service + mean) / 2
        return Distribution("gamma", (mean, stdev)) if mean > 0 else constant(0.0)
    mean = whole - service
    most = service * math.sqrt(others * present * (1 - present) + 1 / 12)  # and a call that is served is anywhere
    return Distribution("gamma", (mean, min(mean * math.sqrt(1 + 4 * (1 - load) / (3 * load)), most)))


@dataclass(frozen=True, slots=True)
class Backlog:
    """The calls of others on a server, as a read finds them; seconds."""

    mean: float  #: mean wait of a read that comes at any time
    spread: float  #: standard deviation of that wait
    pause: float  #: time from the end of a call to the next one of its caller
    back_to_back: float  #: time from the end of a call to that of the next one of each caller

    def wait_of_batch(self, calls: float, between: float, has_pause: bool) -> Distribution:
        """Return the wait of the calls of a batch, one after the other; s.

        Each comes `between` seconds after the last one was served, the first at any time if the reader `has_pause`.
        """
        if not self.mean:
            return constant(0.0)
        first = min(calls, 1.0) if has_pause else 0.0
        # A read that comes before the next call of the others waits for none of them more than any read.
        later = self.back_to_back - between if between >= self.pause else 0.0
        mean = first * self.mean + (calls - first) * max(later, self.mean)
        return Distribution("gamma", (mean, self.spread * math.sqrt(calls)))


def find_backlog(service: float, pause: float, callers: float) -> Backlog:
    """Return the backlog of some callers, a mean, on a server.

    They call one after the other, each call for `service` seconds and `pause` after the last one's end. A read that
    comes at any time waits for half of the call that is served and for all that wait, as in `wait_of_calls`. A read
    that follows one that was served, by more than their pause, comes behind the next call of each of them.
    """
    whole = service + wait_of_calls(service, lambda _: pause, callers, 1).nonnegative_mean()
    mean = service * callers * (whole - service / 2) / (whole + pause) if service else 0.0
    # Most reads find one call or none: then the mean square is that of a part of a call, drawn evenly.
    spread = math.sqrt(max(mean * service * 2 / 3 - mean * mean, service * service / 12))
    return Backlog(mean, spread, pause, min(callers, 1.0) * (service * max(callers, 1.0) + pause))


def draw_step_times(storage: StorageModel, stream: int, counter: Ints) -> Floats:
    """Return a rank's own time for each step; seconds."""
    if storage.step_tail is None:
        return np.full(len(counter), storage.step_time)
    return storage.step_time * uniforms(stream, counter) ** (-1 / storage.step_tail)


class StorageQueues:
    """The queues of a storage: its metadata, its servers, and its client nodes."""

    def __init__(self, storage: StorageModel, nodes: int, even_servers: float = 0.0) -> None:
        """Begin with empty queues; `even_servers` as `StorageModel.even_servers`, 0 if all have equally many files."""
        self._storage = storage
        self._even_servers = even_servers or storage.servers.number
        self._servers = np.zeros(storage.servers.number)
        self._clients = np.zeros(nodes)
        self._metadata = np.zeros(1)

    def open(self, arrival: Floats, opens: float) -> Floats:
        """Return when the opens of some ranks, equally many, are served, without their latency; s, shape (ranks,)."""
        if self._storage.metadata is None:
            return arrival
        service = np.full(len(arrival), opens / self._storage.metadata)
        return serve_queues(arrival, service, np.zeros(len(arrival), np.int64), self._metadata)

    def read(self, arrival: Floats, size: Floats, node: Ints, server: Ints | None, width: int = 1) -> Floats:
        """Return when the calls of some ranks are served, without their latency; seconds, shape (ranks,).

        `size` is bytes. `server` has the first server of each request, whose bytes are spread over it and the next
        ones, `width` in all; None: over all servers.
        """
        storage, done = self._storage, arrival
        if storage.client is not None:
            done = serve_queues(arrival, size / storage.client, node, self._clients)
        return np.maximum(done, self._read_from_servers(arrival, size, server, width))

    def _read_from_servers(self, arrival: Floats, size: Floats, server: Ints | None, width: int) -> Floats:
        servers = self._storage.servers
        if server is None:  # all servers are one: each has an equal share of every request
            whole = np.full(1, self._servers.max())
            took, one = size / (self._even_servers * servers.rate), np.zeros(len(size), np.int64)
            done = serve_queues(arrival, took, one, whole)
            self._servers[:] = whole
            return done
        queue = (server[:, None] + np.arange(width)) % servers.number
        each = np.repeat(size / width / servers.rate, width)
        done = serve_queues(np.repeat(arrival, width), each, queue.ravel(), self._servers)
        longest: Floats = done.reshape(-1, width).max(axis=1)
        return longest
