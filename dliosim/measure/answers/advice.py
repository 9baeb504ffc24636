"""Advice by the answer of a loop. Following one piece of advice after the other comes to an end."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TypeAlias

from dliosim.measure.answers.command_line import command_line
from dliosim.measure.answers.validity import (
    CORE_WAIT_LIMIT,
    LEAST_SECONDS,
    LEAST_STEPS,
    count_steps,
    doubt_of_length,
    doubt_of_memory,
    doubt_of_prefetch,
)
from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.results.machine import MEMORY_KINDS, OWN_CACHE_WITH_DIRECT_KINDS, STACKED_KINDS
from dliosim.measure.results.phase import LoopPhase
from dliosim.measure.results.run_summary import (
    CANNOT_SAY,
    STARVES,
    TOO_CLOSE,
    Advice,
    Answer,
    RunSummary,
    Spread,
    select_epochs,
)
from dliosim.model import MPI_APIS
from dliosim.readable import count, long_time, percent, size

#: What one more override, name and phrase of a -D, does: names of earlier ones that say nothing next to it; None where
#: the pattern cannot run with it.
Accepts: TypeAlias = Callable[[tuple[str, str]], Collection[str] | None]

#: Yields advice with its text, a setting of the loop and the setting's phrase, if the pattern takes it.
_Change: TypeAlias = Callable[[str, str, str], Iterator[Advice]]

#: From this number of readers a rank on, more of them are no advice.
_MANY_READERS = 16

#: How many times as many epochs are advised, at least and at most.
_FEWEST_TIMES, _MOST_TIMES = 2, 8

#: An interval of less than this to either side is as good as it gets: storage just reaches the goal.
_JUST = 0.01

#: How many times as long as must be the next run takes.
_AMPLE = 1.5


def advise(
    run: RunSummary,
    runs: Sequence[LoopPhase],
    answer: Answer,
    waited: float,
    accepts: Accepts,
    samples: Mapping[str, int],
    disk: str,
) -> Iterator[Advice]:
    """Yield what to do next about a loop; of changes by -D only those that the pattern `accepts`.

    `waited` is the share of the time in which threads waited for a core. `samples` has the setting by which the loop
    has more samples, and how many it has; empty where there is none. `disk` is a directory that is not in memory, or an
    empty text.
    """
    loop = runs[0]
    epochs = [epoch for phase in runs for epoch in phase.epochs]
    counted = select_epochs(epochs, answer)
    # An epoch after an only one would come from the page cache, unless memory has no room for it.
    is_large = run.environment.memory_per_node * run.nodes < max(epoch.unique_bytes for epoch in epochs)
    more_count = len(counted) == len(epochs) and (loop.cache == "off" or len(epochs) > len(runs) or is_large)

    def change(text: str, setting: str, phrase: str) -> Iterator[Advice]:
        override = setting if "." in setting else f"{loop.name}.{setting}", phrase
        if (needless := accepts(override)) is not None:
            yield Advice(text, command_line(run, "=".join(override), needless))

    if answer.source == "null":
        yield Advice("read the data", command_line(run, without=("--null",)))
    elif run.is_stored_on(loop, MEMORY_KINDS) and disk and loop.root == "data":
        yield Advice(
            "put the data on the storage in question, or on this disk", command_line(run, option=("--dir", disk))
        )
    elif run.is_stored_on(loop, MEMORY_KINDS):
        yield Advice("put the data on the storage in question: --dir DIR")
    elif doubt_of_prefetch(runs):
        yield Advice("use more samples, or fewer batches ahead (`prefetch`)")
    elif not answer.from_storage:
        if run.is_stored_on(loop, OWN_CACHE_WITH_DIRECT_KINDS):
            kinds = {place.kind for place in run.environment.file_systems if place.root == loop.root}
            behind = ", or the file system behind, if there is one: --dir DIR" if kinds & STACKED_KINDS else ""
            yield Advice(f"use much more data than memory{behind}")
        elif loop.cache != "off":
            yield from change("read past the page cache", "cache", "off")
        yield Advice("use more data than memory, or `drop caches` before the loop")
    elif answer.verdict == CANNOT_SAY and doubt_of_memory(run.environment, runs, counted):
        yield _ask_fewer_ranks(run, "use nodes with more memory", run.environment.ranks_per_node // 2)
    elif answer.verdict == CANNOT_SAY and doubt_of_length(counted):
        yield from _measure_longer(runs, counted, more_count, samples, change)
    elif answer.verdict in (TOO_CLOSE, CANNOT_SAY, STARVES) and waited >= CORE_WAIT_LIMIT and run.environment.was_busy:
        yield Advice("repeat this when the machine is quiet")
    elif answer.verdict in (TOO_CLOSE, CANNOT_SAY) and answer.storage_utilization:
        mean = answer.storage_utilization.mean
        target = answer.goal * (1 if answer.has_goal_within_interval else 1 - waited)
        if answer.has_goal_within_interval or (waited < CORE_WAIT_LIMIT and mean < target):
            yield from _narrow_interval(runs, answer.storage_utilization, more_count, target, change)
        else:
            yield _free_cores(run, loop, accepts, run.environment.ranks_per_node)
    elif answer.verdict == STARVES and loop.api in MPI_APIS:  # of several readers only one reads at a time
        if loop.readers:
            yield from change("read by POSIX calls, which readers make at the same time", "api", "posix")
        else:
            yield from change("read ahead of the steps", "readers", "1")
    elif answer.verdict == STARVES:
        yield from _read_faster(run, loop, waited, accepts, change)


def _measure_longer(
    runs: Sequence[LoopPhase],
    counted: Sequence[EpochSummary],
    more_count: bool,
    samples: Mapping[str, int],
    change: _Change,
) -> Iterator[Advice]:
    """Yield how the epochs that count last long enough for a verdict; more epochs do so if `more_count`."""
    steps, taken = count_steps(counted)
    times = _AMPLE * max(LEAST_STEPS / max(steps, 1), LEAST_SECONDS / taken if taken > 0 else 1.0)
    if more_count:
        epochs = math.ceil(times * len(runs[0].epochs))
        yield from change(f"measure for longer, {count(epochs, 'epoch')}", "epochs", str(epochs))
    for setting, many in samples.items():
        more = math.ceil(times * many)
        asked = size(max(one.bytes for one in counted) * more / many, 2)
        yield from change(f"measure for longer, with {asked} an epoch", setting, str(more))
    if not more_count:
        yield from _count_all(runs[0], change)
    yield Advice("measure for longer: more data, or `drop caches` and the loop in a `repeat`")


def _count_all(loop: LoopPhase, change: _Change) -> Iterator[Advice]:
    """Yield how epochs count that came from the page cache."""
    if loop.cache != "off":
        yield from change("read past the page cache, so that all epochs count", "cache", "off")


def _narrow_interval(
    runs: Sequence[LoopPhase], alone: Spread, more_count: bool, target: float, change: _Change
) -> Iterator[Advice]:
    """Yield how `target` may leave the interval of the mean: by more epochs, until storage is seen to just reach it."""
    half, distance = max(alone.high - alone.mean, alone.mean - alone.low), abs(alone.mean - target)
    if half <= _JUST:
        yield Advice(f"storage just reaches the goal, within {percent(half, 2)}: more epochs hardly change that")
    elif more_count:
        times = (half / distance) ** 2 if distance else math.inf  # an interval is as narrow as epochs' square root
        times = min(max(math.ceil(times) if times < _MOST_TIMES else _MOST_TIMES, _FEWEST_TIMES), _MOST_TIMES)
        epochs = times * len(runs[0].epochs)
        whole = epochs * len(runs) * statistics.fmean(epoch.seconds for phase in runs for epoch in phase.epochs)
        yield from change(f"run {count(epochs, 'epoch')}, for about {long_time(whole, 2)}", "epochs", str(epochs))
    else:
        yield from _count_all(runs[0], change)
        yield Advice("have more epochs that count: more data than memory, or `drop caches` in a `repeat`")


def _read_faster(
    run: RunSummary, loop: LoopPhase, waited: float, accepts: Accepts, change: _Change
) -> Iterator[Advice]:
    """Yield how storage may feed a loop after all.

    Ranks only become fewer, and with the same number of ranks readers only more: somebody who follows one piece of
    advice after the other comes to an end.
    """
    cores, crowd = run.environment.cores_per_node, run.environment.ranks_per_node
    is_crowded, own = waited >= CORE_WAIT_LIMIT, _readers_with_cores(run)
    more = 2 * loop.readers or 4
    if crowd > 1 or is_crowded:
        more = min(more, own)
    if loop.readers < more <= _MANY_READERS:
        yield from change("read more batches at the same time", "readers", str(more))
    elif crowd > 1 and is_crowded:
        yield _free_cores(run, loop, accepts, crowd - 1)
    elif crowd > 1:
        yield Advice("find how many ranks it feeds", command_line(run, ranks=crowd // 2 * run.nodes))
    elif is_crowded and 1 + loop.readers > cores:
        yield Advice(f"use faster storage, or a node of {1 + loop.readers} cores, for the rank and its readers")
    else:
        yield Advice("use faster storage: fewer ranks or more readers do not help here")


def _ask_fewer_ranks(run: RunSummary, cure: str, ranks: int) -> Advice:
    """Return a cure, or the same with fewer ranks on a node, if there are any, as another question."""
    if not ranks:
        return Advice(cure)
    fewer = ranks * run.nodes
    return Advice(f"{cure}, or ask another question, with {count(fewer, 'rank')}", command_line(run, ranks=fewer))


def _readers_with_cores(run: RunSummary) -> int:
    """Return how many readers of a rank can have a core each, next to the ranks; at least one."""
    return max(run.environment.cores_per_node // run.environment.ranks_per_node - 1, 1)


def _free_cores(run: RunSummary, loop: LoopPhase, accepts: Accepts, most_ranks: int) -> Advice:
    """Return how each rank and each reader gets a core of its own, with at most `most_ranks` on a node."""
    cores, crowd = run.environment.cores_per_node, run.environment.ranks_per_node
    readers = min(loop.readers, _readers_with_cores(run)) if crowd > 1 else loop.readers
    ranks = min(max(cores // (1 + readers), 1), most_ranks)
    override = (f"{loop.name}.readers", str(readers))
    needless = accepts(override) if readers < loop.readers else None
    changed = "" if needless is None else "=".join(override)
    if changed or ranks < crowd:
        command = command_line(run, changed, needless or (), ranks=ranks * run.nodes)
        other = count(ranks * run.nodes, "rank") if ranks < crowd else "fewer readers"
        each = count(max(cores // (1 + loop.readers), 1), "rank")
        return Advice(f"use more nodes, {each} each, or ask another question, with {other}", command)
    if 1 + readers > cores:
        return Advice(f"use a node of {1 + readers} cores, for the rank and its readers")
    return Advice("each has a core, but waited: other work had it; repeat this when the machine is quiet")
