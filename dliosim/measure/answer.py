"""The answer of a run: whether its storage feeds a loop, how that is known, and what to do next."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeAlias

from dliosim.measure.epoch_summaries import EpochSummary
from dliosim.measure.machine import MEMORY_KINDS, OWN_CACHE_KINDS, OWN_CACHE_WITH_DIRECT_KINDS, SERVER_KINDS
from dliosim.measure.phase import LoopPhase
from dliosim.measure.run_summary import Advice, Answer, RunSummary, Spread
from dliosim.measure.validity import CORE_WAIT_LIMIT, core_wait_bound, doubt_of_prefetch
from dliosim.model import MPI_APIS
from dliosim.model.expectation import GOAL
from dliosim.readable import percent, size

#: What one more override, name and phrase of a -D, does: names of earlier ones that say nothing next to it; None where
#: the pattern cannot run with it.
Accepts: TypeAlias = Callable[[tuple[str, str]], Collection[str] | None]

FEEDS = "feeds"
STARVES = "does not feed"
TOO_CLOSE = "too close to say"
NOT_ASKED = "not asked"
NO_STORAGE = "not a storage result"

#: Where bytes of an epoch may come from (`Answer.source`): of the sources of a loop the first one counts.
SOURCES = ("device", "unknown", "mixed", "memory", "null")

#: From this share of its bytes on, an epoch is the device's; below the other one it is memory's.
_ALL, _NONE = 0.99, 0.01

#: The page cache reads whole pages: around a sample, on average one page more than was asked.
_PAGE = 4096

#: Why a source is `unknown`; what is known instead follows.
_UNCOUNTED = "reads are not counted"

#: From this share of a loop on, waits for a core say more than all that is left.
_MOST = 0.5

#: Options about failures, each with a value.
_OF_FAILURES = ("--mtbf", "--restart-time")

#: From this number of readers a rank on, more of them are no advice.
_MANY_READERS = 16


def answer_run(
    run: RunSummary, loops: Sequence[Sequence[LoopPhase]], goals: Mapping[str, float], accepts: Accepts, disk: str = ""
) -> tuple[Answer, ...]:
    """Return the answer of each loop: `loops` has the runs of each, `goals` the goal of a loop that has its own.

    `disk` is a directory that is not in memory, as advice for data that are.
    """
    run = replace(run, arguments=_drop_failure_rate(run))  # for the commands of advice
    return tuple(_answer_loop(run, runs, goals.get(runs[0].name, GOAL), accepts, disk) for runs in loops)


def _drop_failure_rate(run: RunSummary) -> tuple[str, ...]:
    """Return the words of the command line; without a failure rate where saves tell no interval the next time either.

    They do not where there are none, or where each is of a part of a checkpoint.
    """
    if any(not save.part_of for save in run.saves):
        return run.arguments
    kept: list[str] = []
    words = iter(run.arguments)
    for word in words:
        if word in _OF_FAILURES:
            next(words, "")
        elif word.partition("=")[0] not in _OF_FAILURES:
            kept.append(word)
    return tuple(kept)


def epoch_source(epoch: EpochSummary, in_memory: bool = False, began_cold: bool = False) -> str:
    """Return where the bytes of an epoch came from, as in `Answer.source`.

    `in_memory`: its files are in memory. `began_cold`: nothing was in the page cache when it began; else the device
    must have given whole pages, as parts of pages that no sample has could stand for bytes out of memory.
    """
    if epoch.null:
        return "null"
    if in_memory or not epoch.unique_bytes:
        return "memory"
    if epoch.device_bytes is None:
        return "unknown"
    return share_source(_device_share(epoch, began_cold))


def _device_share(epoch: EpochSummary, began_cold: bool) -> float:
    return share_of_device(epoch.device_bytes or 0, epoch.unique_bytes, 0 if began_cold else epoch.samples)


def share_of_device(device: int, asked: int, warm_samples: int) -> float:
    """Return the device's share of the bytes asked; above 0.99 that of the whole pages around `warm_samples`, too.

    These are the samples of epochs that did not begin cold: parts of pages that no sample has could stand for bytes out
    of memory.
    """
    share = device / asked
    return share if share < _ALL else min(share, max(device / (asked + _PAGE * warm_samples), _NONE))


def share_source(share: float) -> str:
    """Return where bytes came from, by the device's share of them."""
    return "device" if share >= _ALL else "memory" if share < _NONE else "mixed"


def _answer_loop(run: RunSummary, runs: Sequence[LoopPhase], goal: float, accepts: Accepts, disk: str) -> Answer:
    epochs = [epoch for phase in runs for epoch in phase.epochs]
    if all(phase.reads_nothing for phase in runs):
        return _answer_unread(runs[0].name, epochs, goal)
    in_memory, cold = run.is_stored_on(runs[0], MEMORY_KINDS), find_cold_epochs(runs)
    sources = [epoch_source(epoch, in_memory, number in cold) for number, epoch in enumerate(epochs)]
    source = next(each for each in SOURCES if each in sources)
    counted = [number for number, each in enumerate(sources) if each == source]
    from_storage = source == "device"
    if source == "mixed":
        reasons: tuple[str, ...] = (_reason_of_mixed([_device_share(epochs[each], each in cold) for each in counted]),)
    else:
        reasons = _source_reasons(run, runs, source)
    if source == "unknown":
        counted, from_storage, reasons = _choose_uncounted(run, runs, counted)
    some = [epochs[number] for number in counted]
    alone = _spread_alone(some)
    waited = core_wait_bound(run.environment, some, max(phase.readers for phase in runs))
    within_spread = alone is not None and alone.min < goal <= alone.max
    verdict, why = _judge(runs, source, from_storage, alone, goal, waited)
    return Answer(
        runs[0].name,
        verdict,
        (*reasons, *why) if verdict in (FEEDS, STARVES) else (*why, *reasons),
        source,
        from_storage,
        tuple(number + 1 for number in counted),
        goal,
        spread_over(some, lambda one: one.utilization),
        alone,
        spread_over(some, lambda one: _rate_for_goal(one, goal)),
        spread_over(some, storage_rate),
        tuple(_advise(run, runs, source, from_storage, verdict, len(some), within_spread, waited, accepts, disk)),
    )


def _answer_unread(loop: str, epochs: Sequence[EpochSummary], goal: float) -> Answer:
    """Return the answer of a loop that reads nothing: its storage has nothing to feed."""
    numbers = tuple(range(1, len(epochs) + 1))
    busy = spread_over(epochs, lambda one: one.utilization)
    return Answer(loop, NOT_ASKED, ("it reads nothing",), "null", False, numbers, goal, busy, None, None, None, ())


def _source_reasons(run: RunSummary, runs: Sequence[LoopPhase], source: str) -> tuple[str, ...]:
    """Return what has to be known of a source of bytes, other than `unknown` and `mixed`."""
    if source == "null":
        return ("nothing was read (--null)",)
    if source == "memory":
        return (_memory_reason(run, runs),)
    return _server_reasons(run, runs)


def _reason_of_mixed(shares: Sequence[float]) -> str:
    """Return how much memory gave, where the device gave these shares of the bytes of epochs."""
    least, most = (percent(1 - each, 2) for each in (max(shares), min(shares)))
    cached = least if least == most else f"{least} to {most}"
    return f"the page cache gave {cached} of the bytes, or may have"


def _server_reasons(run: RunSummary, runs: Sequence[LoopPhase]) -> tuple[str, ...]:
    return ("a server gave the bytes, perhaps out of its memory",) if run.is_stored_on(runs[0], SERVER_KINDS) else ()


def find_cold_epochs(runs: Sequence[LoopPhase]) -> list[int]:
    """Return the epochs, from 0 over all runs of a loop, before which none of their bytes was in a page cache."""
    cold: list[int] = []
    first = 0
    for phase in runs:
        # The loop around an evaluation may have read its data since they were looked at.
        share = None if phase.kind == "evaluate" else phase.resident_share
        if phase.cache == "off":
            cold += range(first, first + len(phase.epochs))
        elif phase.epochs and share is not None and share < _NONE:
            cold.append(first)
        first += len(phase.epochs)
    return cold


def _choose_uncounted(
    run: RunSummary, runs: Sequence[LoopPhase], numbers: list[int]
) -> tuple[list[int], bool, tuple[str, ...]]:
    """Return the epochs that count where the kernel counts no bytes of a device, and what is known instead.

    True: their bytes came from storage. False: they may have come from memory. `numbers` are those not counted.
    """
    if runs[0].cache == "off" and not run.is_stored_on(runs[0], OWN_CACHE_WITH_DIRECT_KINDS):
        return numbers, True, (f"{_UNCOUNTED}; O_DIRECT passed the page cache", *_server_reasons(run, runs))
    epochs = [epoch for phase in runs for epoch in phase.epochs]
    least, memory = min(epochs[each].unique_bytes for each in numbers), run.environment.memory_per_node * run.nodes
    if 0 < memory <= (1 - _ALL) * least:
        room = f"{_UNCOUNTED}; memory has room for less than 1 % of {size(least, 3)}"
        return numbers, True, (room, *_server_reasons(run, runs))
    has_own_cache = run.is_stored_on(runs[0], OWN_CACHE_KINDS)
    cold = [] if runs[0].cache == "off" else find_cold_epochs(runs)
    if cold and not has_own_cache:
        return cold, True, (f"{_UNCOUNTED}; the page cache was cold before", *_server_reasons(run, runs))
    reasons = (f"{_UNCOUNTED}; {size(least, 3)} may have come from {size(memory, 3)} of memory",)
    return numbers, False, (*reasons, "this file system may have a cache of its own") if has_own_cache else reasons


def _judge(
    runs: Sequence[LoopPhase], source: str, from_storage: bool, alone: Spread | None, goal: float, waited: float
) -> tuple[str, tuple[str, ...]]:
    """Return the verdict and its reasons; `waited` is the share of the time in which threads waited for a core."""
    if source in ("null", "memory"):
        return NO_STORAGE, ()
    early = doubt_of_prefetch(runs)
    if early:
        return NO_STORAGE, (early,)
    if alone is None:
        if not any(epoch.compute_seconds.max > 0 for phase in runs for epoch in phase.epochs):
            return NOT_ASKED, ()
        if max(epoch.steps for phase in runs for epoch in phase.epochs) < 2:
            return NO_STORAGE, ("an epoch has no step after the first",)
        return NOT_ASKED, ("requests come by themselves: their latency says whether storage keeps up",)
    if not from_storage and alone.max >= goal:
        return NO_STORAGE, ()
    load = core_wait_text(waited) if waited >= CORE_WAIT_LIMIT else ""
    if alone.min >= goal:
        return FEEDS, (load,) if load else ()
    if alone.max >= goal:
        return TOO_CLOSE, (f"the goal is within the spread: {percent(alone.min, 3)} to {percent(alone.max, 3)}",)
    if alone.max >= goal * (1 - waited) or waited >= _MOST:
        return TOO_CLOSE, (f"{core_wait_text(waited)}, and may be what is missing",)
    return STARVES, (f"{load}, but more is missing",) if load else ()


def core_wait_text(share: float) -> str:
    """Return what share of a loop's time was waiting for a core; 1 stands for what was not counted."""
    if share >= 1:
        return "waiting for a core is not counted here, with more ranks than cores"
    return f"{percent(share, 2)} of the loop was waiting for a core"


def _memory_reason(run: RunSummary, runs: Sequence[LoopPhase]) -> str:
    if run.is_stored_on(runs[0], MEMORY_KINDS):
        return "the data are in a file system in memory"
    kept = all(not epoch.unique_bytes for phase in runs for epoch in phase.epochs)
    return "`cache memory` kept all samples" if kept else "all bytes came from the page cache"


def _spread_alone(epochs: Sequence[EpochSummary]) -> Spread | None:
    """Return the utilization of storage alone over epochs; one epoch has the 95 % interval of its steps as spread."""
    found = spread_over(epochs, lambda one: one.storage_utilization)
    if found is None or len(epochs) > 1:
        return found
    error = 2 * (epochs[0].storage_utilization_error or 0.0)
    return Spread(found.mean, max(found.mean - error, 0.0), min(found.mean + error, 1.0))


def spread_over(epochs: Sequence[EpochSummary], figure: Callable[[EpochSummary], float | None]) -> Spread | None:
    """Return a figure over epochs; None unless every one has it."""
    known = [value for value in map(figure, epochs) if value is not None]
    return Spread(statistics.fmean(known), min(known), max(known)) if known and len(known) == len(epochs) else None


def storage_rate(epoch: EpochSummary) -> float | None:
    """Return the bytes/s that storage gives the steps after the first; bytes that it gives once count once."""
    if epoch.null or not epoch.bytes or epoch.storage_step_seconds <= 0:
        return None
    return epoch.steady_bytes * epoch.bytes_once / epoch.bytes / epoch.storage_step_seconds


def _rate_for_goal(epoch: EpochSummary, goal: float) -> float | None:
    rate = storage_rate(epoch)
    return None if rate is None or not epoch.storage_utilization else rate * goal / epoch.storage_utilization


def _advise(
    run: RunSummary,
    runs: Sequence[LoopPhase],
    source: str,
    from_storage: bool,
    verdict: str,
    counted: int,
    within_spread: bool,
    waited: float,
    accepts: Accepts,
    disk: str,
) -> Iterator[Advice]:
    """Yield what to do next, where `counted` epochs count; of changes by -D only those that the pattern `accepts`.

    `within_spread`: the goal is within the spread of the epochs that count.
    """
    loop, epochs = runs[0], sum(len(phase.epochs) for phase in runs)

    def change(text: str, setting: str, phrase: str) -> Iterator[Advice]:
        override = f"{loop.name}.{setting}", phrase
        if (needless := accepts(override)) is not None:
            yield Advice(text, command_line(run, "=".join(override), needless))

    if source == "null":
        yield Advice("read the data", command_line(run, without=("--null",)))
    elif run.is_stored_on(loop, MEMORY_KINDS) and disk and loop.root == "data":
        yield Advice(
            "put the data on the storage in question, or on this disk", command_line(run, option=("--dir", disk))
        )
    elif run.is_stored_on(loop, MEMORY_KINDS):
        yield Advice("put the data on the storage in question: --dir DIR")
    elif doubt_of_prefetch(runs):
        yield Advice("use more samples, or fewer batches ahead (`prefetch`)")
    elif not from_storage:
        if run.is_stored_on(loop, OWN_CACHE_WITH_DIRECT_KINDS):
            yield Advice("use much more data than memory, or the file system behind: --dir DIR")
        elif loop.cache != "off":
            yield from change("read past the page cache", "cache", "off")
        yield Advice("use more data than memory, or `drop caches` before the loop")
    elif verdict == TOO_CLOSE and waited >= CORE_WAIT_LIMIT and not within_spread:
        yield _free_cores(run, loop, accepts, run.environment.ranks_per_node)
    elif verdict == TOO_CLOSE and counted == epochs:
        yield from change("run more epochs", "epochs", str(2 * epochs))
    elif verdict == TOO_CLOSE:
        if loop.cache != "off":
            yield from change("read past the page cache, so that all epochs count", "cache", "off")
        yield Advice("have more epochs that count: more data than memory, or `drop caches` in a `repeat`")
    elif verdict == STARVES and loop.api in MPI_APIS:  # of several readers only one reads at a time
        if loop.readers:
            yield from change("read by POSIX calls, which readers make at the same time", "api", "posix")
        else:
            yield from change("read ahead of the steps", "readers", "1 by batch")
    elif verdict == STARVES:
        yield from _read_faster(run, loop, waited, accepts, change)


def _read_faster(
    run: RunSummary,
    loop: LoopPhase,
    waited: float,
    accepts: Accepts,
    change: Callable[[str, str, str], Iterator[Advice]],
) -> Iterator[Advice]:
    """Yield how storage may feed a loop after all.

    Each piece of advice asks for more readers or for fewer ranks, never the other way round, so that somebody who
    follows one after the other comes to an end.
    """
    cores, crowd = run.environment.cores_per_node, run.environment.ranks_per_node
    is_crowded, own = waited >= CORE_WAIT_LIMIT, _readers_with_cores(run)
    more = 2 * loop.readers or 4
    if crowd > 1 or is_crowded:
        more = min(more, own)
    if loop.readers < more <= _MANY_READERS:
        yield from change("read more batches at the same time", "readers", f"{more} by batch")
    elif crowd > 1 and is_crowded:
        yield _free_cores(run, loop, accepts, crowd - 1)
    elif crowd > 1:
        yield Advice("find how many ranks it feeds", command_line(run, ranks=crowd // 2 * run.nodes))
    elif is_crowded and 1 + loop.readers > cores:
        yield Advice(f"use faster storage, or a node of {1 + loop.readers} cores, for the rank and its readers")
    else:
        yield Advice("use faster storage: fewer ranks or more readers do not help here")


def _readers_with_cores(run: RunSummary) -> int:
    """Return how many readers of a rank can have a core each, next to the ranks; at least one."""
    return max(run.environment.cores_per_node // run.environment.ranks_per_node - 1, 1)


def _free_cores(run: RunSummary, loop: LoopPhase, accepts: Accepts, most_ranks: int) -> Advice:
    """Return how each rank and each reader gets a core of its own, with at most `most_ranks` on a node."""
    cores, crowd = run.environment.cores_per_node, run.environment.ranks_per_node
    readers = min(loop.readers, _readers_with_cores(run)) if crowd > 1 else loop.readers
    ranks = min(max(cores // (1 + readers), 1), most_ranks)
    override = (f"{loop.name}.readers", f"{readers} by batch")
    needless = accepts(override) if readers < loop.readers else None
    changed = "" if needless is None else "=".join(override)
    if changed or ranks < crowd:
        command = command_line(run, changed, needless or (), ranks=ranks * run.nodes)
        return Advice("give each rank and reader a core", command)
    if 1 + readers > cores:
        return Advice(f"use a node of {1 + readers} cores, for the rank and its readers")
    return Advice("each has a core, but waited: repeat this on a quiet machine", command_line(run))


class RankCommand(Protocol):
    """A command that ran on ranks."""

    @property
    def program(self) -> str:
        """Return what to type for dliosim."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return its words."""

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""


def command_line(
    run: RankCommand,
    override: str = "",
    needless: Collection[str] = (),
    without: tuple[str, ...] = (),
    ranks: int = 0,
    option: tuple[str, ...] = (),
) -> str:
    """Return the command line with one more -D or `option` and its value, without some options, or by other `ranks`.

    The -D and the option replace earlier ones of the same name, and -D of the names `needless`. Results go to a new
    directory, and the answer to a screen.
    """
    words: list[str] = []
    replaced, rest = {*needless, override.partition("=")[0]}, iter(run.arguments)
    for word in rest:
        value = next(rest, "") if word in ("-D", "--output", *option[:1]) else ""
        name = (value or word.removeprefix("-D")).partition("=")[0] if word.startswith("-D") else ""
        if not (name in replaced - {""} or word.partition("=")[0] in (*without, "--output", "--json", *option[:1])):
            words += [word, value] if word == "-D" else [word]
    number = ranks or run.ranks
    launcher = [find_mpiexec(run.program), "-n", str(number)] if number > 1 else []
    return shlex.join([*launcher, run.program, *words, *(["-D", override] if override else []), *option])


def find_mpiexec(program: str) -> str:
    """Return what to type for mpiexec: that of the environment from which dliosim was typed as a path."""
    beside = Path(program).with_name("mpiexec")
    return str(beside) if "/" in program and beside.exists() else "mpiexec"
