"""A storage that is described rather than measured: servers, clients, metadata, latencies."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

from dliosim.model.dataset import Stripe
from dliosim.model.phrase import Phrase


@dataclass(frozen=True, slots=True)
class Servers:
    """The data servers of a storage, which are equal."""

    number: int  #: servers
    rate: float  #: bytes per second that each of them reads


@dataclass(frozen=True, slots=True)
class CallSizes:
    """Sizes of calls, from the smallest to the largest."""

    least: int  #: bytes
    greatest: int  #: bytes


#: How many times as large or as small as those measured calls may be for a prediction to be within what was measured.
_WITHIN: Final = 10


@dataclass(frozen=True, slots=True)
class StorageModel:
    """The rates and latencies of a storage. A request waits in the queue of its servers and of its client node."""

    name: str  #: name in the file
    #: data servers, and the rate at which each reads: `16 of 6.25 GB/s`. Measure with reads of many nodes: rate of all
    #: / number
    servers: Annotated[Servers, Phrase("COUNT<=100_000 of RATE")]
    #: rate at which each server writes. Measure with saves of many nodes: rate of all / number. Default: `off`, as it
    #: reads
    writes: Annotated[float | None, Phrase("off | RATE")] = None
    #: rate of one client node, all its ranks together. Measure with reads of one node, many at a time. Default: no
    #: limit
    client: Annotated[float | None, Phrase("off | RATE")] = None
    #: rate of one reader alone, which waits for each call. Measure with large reads, one at a time. Default: no limit
    stream: Annotated[float | None, Phrase("off | RATE")] = None
    #: time of a request besides its transfer. Measure with small reads, one at a time
    latency: Annotated[float, Phrase("TIME")] = 0.0
    #: spread of latencies: `pareto 2.1` makes `latency` the least one, and a latency longer than x with probability
    #: (latency / x)^2.1. Default: `off`, all latencies are equal
    tail: Annotated[float | None, Phrase("off | pareto NUMBER")] = None
    #: opens per second of all clients together: `80_000 opens/s`. Measure by opening different files on many nodes.
    #: Default: no limit
    metadata: Annotated[float | None, Phrase("off | OPENS")] = None
    #: servers over which a file is spread: `1 MiB over 4 servers`; files begin round robin. Default: `off`, each file
    #: is on one server
    stripe: Annotated[Stripe | None, Phrase(f"off | SIZE>=1 over COUNT<={1 << 20} server(s)")] = None
    #: the client's own time for each request, which no other rank feels
    call_time: Annotated[float, Phrase("TIME", "call time")] = 0.0
    #: the client's own time for each step, between data and compute: 730 us of cosmoflow's 3.5 ms with DLIO 2.0
    step_time: Annotated[float, Phrase("TIME", "step time")] = 0.0
    #: spread of `step time`, as `tail` of latencies: with a sync the slowest rank of a step holds all of them. Default:
    #: `off`, all steps are equal
    step_tail: Annotated[float | None, Phrase("off | pareto NUMBER", "step tail")] = None
    #: sizes of the calls that were measured: `4 KiB to 1 MiB`; predictions of calls beyond ten times these say so.
    #: Default: `off`
    measured: Annotated[CallSizes | None, Phrase("off | SIZE>=1 to SIZE>=1")] = None
    #: how far values may be from the truth: `uncertain latency 9 %, tail 20 %`; the range of a prediction reaches from
    #: all at their worse ends to all at their better ones. Default: `off`
    uncertain: Annotated[tuple[tuple[str, float], ...], Phrase(rule="uncertain")] = ()

    def has_measured(self, call: float) -> bool:
        """Return whether calls of `call` bytes are about as large as those measured; True if that is not known."""
        known = self.measured
        return known is None or known.least / _WITHIN <= call <= known.greatest * _WITHIN

    def step_overhead(self, ranks: int) -> float:
        """Return the mean of the longest of the ranks' own times for a step; seconds."""
        if self.step_tail is None:
            return self.step_time
        # The mean of the greatest of n Pareto draws is n B(n, 1 - 1/a).
        power = 1 / self.step_tail
        longest = math.exp(math.lgamma(ranks + 1) + math.lgamma(1 - power) - math.lgamma(ranks + 1 - power))
        return self.step_time * longest

    @property
    def request_latency(self) -> float:
        """Mean latency of a request, with the client's own time for it; s."""
        return self.latency * (self.tail / (self.tail - 1) if self.tail is not None else 1.0) + self.call_time

    @property
    def write_rate(self) -> float:
        """Bytes per second that each server writes."""
        return self.servers.rate if self.writes is None else self.writes

    @property
    def file_servers(self) -> int:
        """Servers over which a file is spread."""
        return self.stripe.targets if self.stripe is not None else 1

    def select_servers(self, files: int, size: float) -> StorageModel:
        """Return the storage with only those servers that have a part of some files, each of `size` bytes."""
        number = min(files + self.count_servers(size) - 1, self.servers.number)
        return replace(self, servers=replace(self.servers, number=number))

    def even_servers(self, files: int, size: float) -> float:
        """Return how many servers would serve some files as fast, if each had equally many: files begin round robin."""
        number, width = self.servers.number, min(self.count_servers(size), self.servers.number)
        rounds, rest = divmod(files, number)
        return files * width / (rounds * width + min(rest, width))

    def count_servers(self, size: float) -> int:
        """Return the number of servers that have a part of a file of `size` bytes."""
        return 1 if self.stripe is None else max(min(math.ceil(size / self.stripe.size), self.stripe.targets), 1)

    def server_seconds(self, call: float, rate: float | None = None) -> float:
        """Return the time that the server with most bytes of a call needs for them; None: at which servers read."""
        stripe = self.stripe.size if self.stripe is not None else math.inf
        return max(min(call, stripe), call / self.file_servers) / (rate or self.servers.rate)


#: The settings whose values may be uncertain, and their fields.
UNCERTAIN: Final = {
    name.replace("_", " "): name
    for name in (
        *("servers", "writes", "client", "stream", "latency", "tail", "metadata"),
        *("call_time", "step_time", "step_tail"),
    )
}

#: A value that may be further off than this share of it is unreliable.
UNRELIABLE: Final = 0.3

#: The exponent of the heaviest tail that a draw has: the mean of one of 1 has no bounds.
HEAVIEST_TAIL: Final = 1.05

#: Settings that are worse if they are longer; all others are rates and exponents of tails, which are worse if lower.
_TIMES: Final = ("latency", "call time", "step time")


def list_ends(storage: StorageModel) -> list[StorageModel]:
    """Return the storage with all that is uncertain at its worse end, and at its better one; none without such.

    What is uncertain may be so together, so that the range is that of the worst case and not of a chance.
    """

    def move(side: int) -> StorageModel:
        fields: dict[str, Any] = {}
        for name, share in storage.uncertain:
            field, value = UNCERTAIN[name], getattr(storage, UNCERTAIN[name])
            factor = 1 + side * share * (1 if name in _TIMES else -1)
            fields[field] = replace(value, rate=value.rate * factor) if name == "servers" else value * factor
            if name.endswith("tail"):
                fields[field] = max(fields[field], min(HEAVIEST_TAIL, value))
        return replace(storage, **fields)

    return [move(1), move(-1)] if storage.uncertain else []


#: What else the field calls these settings: `language/suggest/synonyms.py` says how it is read.
OTHER_WORDS: Final = """
servers: 16 of 6 GB/s
    oss, osts, osds, targets, data_servers, bandwidth
client: 7 GB/s
    network, nic, client_bandwidth
writes: 3 GB/s
    write_bandwidth, save_bandwidth
latency: 400 us
    rtt, response_time
metadata: 80_000 opens/s
    mds, opens
measured: 4 KiB to 1 MiB
    call_sizes
uncertain: latency 9 %, tail 20 %
    uncertainty, accuracy
stripe: 1 MiB over 4 servers
    stripe_count, stripe_size, striping
"""
