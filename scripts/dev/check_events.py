#!/usr/bin/env python
"""Compare epochs in virtual time with a simulation of the same loops that goes from event to event.

    python scripts/dev/check_events.py [--cases 400] [--seed 1] [--orders 12]

Loops, storages and numbers of ranks are those that check_predictions.py draws, without the ranks' own time. Each open
and each call is an event here: it waits in the queue of the metadata, or in those of its servers and its node, and
takes its latency afterwards. The events of a case run with several orders and draws of sizes and latencies; their mean
is compared with the prediction. No rank runs, so no noise of a machine is in the difference. The output is a markdown
table of the cases that differ, and a summary; the status is 1 if more than an eighth differ.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import math
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from check_predictions import draw_case
from harness import header, row

from dliosim.commands.command_line.options import read_storage
from dliosim.language.compile import compile_pattern
from dliosim.model import Dataset, Job, Loop, StorageModel
from dliosim.plan.forecast.forecast import forecast, loops_of
from dliosim.plan.predict.prediction import predict_loop

#: A case agrees if utilization is within this, a ratio, and the time of the epoch within this share.
_POINTS, _SHARE = 0.02, 0.05

#: The share of cases that may differ.
_MOST = 1 / 8


@dataclass
class Events:
    """The run of one loop on one storage: what is known at a time, and the events to come."""

    loop: Loop
    dataset: Dataset
    ranks: int
    storage: StorageModel
    drawn: random.Random
    steps: int
    queue: list[tuple[float, int, Iterator[float]]] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        loop, dataset = self.loop, self.dataset
        samples, files = dataset.samples, dataset.layout.files
        self.sizes = [self._draw_size() for _ in range(samples)]
        self.file = [sample * files // samples for sample in range(samples)]
        self.offset = [0.0] * samples
        for sample in range(1, samples):
            if self.file[sample] == self.file[sample - 1]:
                self.offset[sample] = self.offset[sample - 1] + self.sizes[sample - 1]
        self.order = list(range(samples))
        if loop.shuffle.samples != "off":
            self.drawn.shuffle(self.order)
        self.servers = [0.0] * self.storage.servers.number
        self.metadata = self.client = 0.0
        self.readers = max(loop.access.readers, 1)
        self.ahead = loop.access.prefetch if loop.access.readers else 0
        self.idle = [list(range(self.readers)) for _ in range(self.ranks)]
        self.opened = [[set[int]() for _ in range(self.readers)] for _ in range(self.ranks)]
        self.asked, self.begun = [min(self.ahead, self.steps)] * self.ranks, [0] * self.ranks
        self.there = [[False] * self.steps for _ in range(self.ranks)]
        self.step, self.waits, self.arrived = [0] * self.ranks, [False] * self.ranks, 0
        self.first = self.ended = 0.0

    def run(self) -> tuple[float, float]:
        """Run all events; return the end of the first step and that of the last, s."""
        for rank in range(self.ranks):
            self._begin_reads(0.0, rank)
            self._want_batch(0.0, rank)
        while self.queue:
            now, _, task = heapq.heappop(self.queue)
            self.now = now
            if (later := next(task, None)) is not None:
                heapq.heappush(self.queue, (later, next(self.numbers), task))
        return self.first, self.ended

    def _add(self, when: float, task: Iterator[float]) -> None:
        heapq.heappush(self.queue, (when, next(self.numbers), task))

    def _begin_reads(self, now: float, rank: int) -> None:
        while self.idle[rank] and self.begun[rank] < self.asked[rank]:
            batch, self.begun[rank] = self.begun[rank], self.begun[rank] + 1
            self._add(now, self._read(rank, batch, self.idle[rank].pop(0)))

    def _read(self, rank: int, batch: int, reader: int) -> Iterator[float]:
        """Open the files of a batch, then read it; yield when each request is over."""
        size, storage = self.loop.batch, self.storage
        place = (batch * self.ranks + rank) * size
        samples = self.order[place : place + size]
        files = [self.file[sample] for sample in samples]
        known = self.opened[rank][reader]
        new = files if self.dataset.layout.kind == "file per sample" else [*dict.fromkeys(files)]
        for _ in [file for file in new if file not in known]:
            ended = self.now
            if storage.metadata is not None:
                ended = self.metadata = max(self.metadata, self.now) + 1 / storage.metadata
            yield ended + self._draw_latency()
        known.update(new if self.dataset.layout.kind != "file per sample" else [])
        for file, offset, length in self._list_calls(samples):
            ended = self.now
            for server, part in self._divide(file, offset, length):
                self.servers[server] = max(self.servers[server], self.now) + part / storage.servers.rate
                ended = max(ended, self.servers[server])
            if storage.client is not None:
                self.client = max(self.client, self.now) + length / storage.client
                ended = max(ended, self.client)
            yield ended + self._draw_latency()
        self.there[rank][batch] = True
        self.idle[rank].append(reader)
        self._begin_reads(self.now, rank)
        self._compute(self.now, rank)

    def _list_calls(self, samples: list[int]) -> Iterator[tuple[int, float, float]]:
        """Yield file, offset and bytes of each call; neighbours in a file are one range, if calls have a size."""
        ranges: list[list[float]] = []
        for sample in samples:
            file, offset, size = self.file[sample], self.offset[sample], self.sizes[sample]
            joins = ranges and ranges[-1][0] == file and math.isclose(ranges[-1][1] + ranges[-1][2], offset)
            if self.loop.access.transfer and self.dataset.layout.kind != "file per sample" and joins:
                ranges[-1][2] += size
            else:
                ranges.append([file, offset, size])
        for file, offset, size in ranges:
            most = self.loop.access.transfer or size
            for begin in np.arange(0, size, most).tolist():
                yield int(file), offset + begin, min(most, size - begin)

    def _divide(self, file: int, offset: float, length: float) -> Iterator[tuple[int, float]]:
        """Yield the servers that have a part of a range, and its bytes."""
        stripe, number = self.storage.stripe, self.storage.servers.number
        at, end = offset, offset + length
        while at < end:
            place = int(at // stripe.size) if stripe else 0
            cut = min(end, (place + 1) * stripe.size) if stripe else end
            yield (file + place % (stripe.targets if stripe else 1)) % number, cut - at
            at = cut

    def _want_batch(self, now: float, rank: int) -> None:
        self.waits[rank] = True
        if not self.ahead:
            self.asked[rank] = self.step[rank] + 1
            self._begin_reads(now, rank)
        self._compute(now, rank)

    def _compute(self, now: float, rank: int) -> None:
        """Begin the step of a rank that waits for a batch, if that is there."""
        if not (self.waits[rank] and self.there[rank][self.step[rank]]):
            return
        self.waits[rank] = False
        if self.ahead and self.asked[rank] < self.steps:
            self.asked[rank] += 1
            self._begin_reads(now, rank)
        mean, stdev, *_ = (*self.loop.compute.time.parameters, 0.0)
        self._add(now + max(0.0, self.drawn.gauss(mean, stdev)), self._end_step(rank))

    def _end_step(self, rank: int) -> Iterator[float]:
        sync = self.loop.sync
        together = sync.kind != "off" and (self.step[rank] + 1) % sync.every == 0
        self.arrived += together
        if together and self.arrived < self.ranks:
            return
        ranks = range(self.ranks) if together else [rank]
        self.arrived = 0 if together else self.arrived
        for each in ranks:
            if self.step[each] == 0:
                self.first = max(self.first, self.now)
            self.step[each] += 1
        self.ended = max(self.ended, self.now)
        for each in ranks:
            if self.step[each] < self.steps:
                self._want_batch(self.now, each)
        yield from ()

    def _draw_size(self) -> float:
        size = self.dataset.size
        mean, stdev = (*size.parameters, 0.0)[:2]
        if size.kind != "lognormal":
            return max(1.0, self.drawn.gauss(mean, stdev))
        spread = math.log(1 + (stdev / mean) ** 2)
        return self.drawn.lognormvariate(math.log(mean) - spread / 2, math.sqrt(spread))

    def _draw_latency(self) -> float:
        tail = self.storage.tail
        return self.storage.latency * ((1 - self.drawn.random()) ** (-1 / tail) if tail is not None else 1.0)


def check_case(seed: int, orders: int) -> tuple[str, int, float, float, float, float, float]:
    """Return limit, ranks, predicted and simulated utilization, the spread of the latter, and both epochs in s."""
    pattern, storage, ranks = draw_case(seed, [1, 2, 3, 5, 8])
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory) / "p.dlio", Path(directory) / "s.dlio"
        place[0].write_text(pattern)
        place[1].write_text(storage.replace("    step time 500 us\n", ""))
        words = SimpleNamespace(storage=str(place[1]), define=[], pattern=str(place[0]), override=[], values=[])
        model = read_storage(words)[0]
        workload, _ = compile_pattern(place[0], [], Job(ranks))
    assert model is not None
    loop = next(iter(loops_of(workload.verbs)))
    dataset = workload.dataset(loop.dataset)
    predicted = predict_loop(workload, loop, forecast(workload), model, ranks)
    steps = dataset.samples // (ranks * loop.batch)
    times = [Events(loop, dataset, ranks, model, random.Random(order), steps).run() for order in range(orders)]
    busy = [predicted.ideal_step * (steps - 1) / (ended - first) for first, ended in times]
    mean, scatter = min(statistics.fmean(busy), 1.0), statistics.stdev(busy)
    epoch = statistics.fmean(ended for _, ended in times)
    return predicted.limit, ranks, predicted.ideal_step / predicted.step, mean, scatter, predicted.epoch_seconds, epoch


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=400, help="how many cases")
    parser.add_argument("--seed", type=int, default=1, help="of the first case; each next one has the next number")
    parser.add_argument("--orders", type=int, default=12, help="simulations of each case")
    given = parser.parse_args()
    header("case", "ranks", "limit", "busy, predicted", "by events", "points", "epoch, ratio")
    points, ratios, differ = [], [], 0
    for seed in range(given.seed, given.seed + given.cases):
        limit, ranks, busy, mean, scatter, epoch, simulated = check_case(seed, given.orders)
        points.append(busy - mean)
        ratios.append(epoch / simulated)
        if abs(busy - mean) > _POINTS or abs(ratios[-1] - 1) > _SHARE:
            differ += 1
            shown = f"{100 * mean:.1f}% +- {100 * scatter:.1f}"
            row(seed, ranks, limit, f"{100 * busy:.1f}%", shown, f"{100 * points[-1]:+.1f}", f"{ratios[-1]:.3f}")
    root = math.sqrt(statistics.fmean(one * one for one in points))
    spread = math.sqrt(statistics.fmean((one - 1) ** 2 for one in ratios))
    print(f"\n{given.cases - differ} of {given.cases} agree; root mean square {100 * root:.2f} points of utilization, ")
    print(f"{100 * spread:.1f} % of epochs; mean {100 * statistics.fmean(points):+.2f} points")
    return int(differ > _MOST * given.cases)


if __name__ == "__main__":
    sys.exit(main())
