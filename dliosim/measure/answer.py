"""The answer of a run: whether its storage feeds a loop, how that is known, and what to do next."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from dliosim.measure.epoch_summaries import EpochSummary
from dliosim.measure.machine import DISK_KINDS, MEMORY_KINDS
from dliosim.measure.phase import LoopPhase
from dliosim.measure.run_summary import Advice, Answer, RunSummary, Spread
from dliosim.measure.validity import CORE_WAIT_LIMIT, core_wait_bound, doubt_of_prefetch
from dliosim.model import Expectation
from dliosim.readable import percent

#: Whether a pattern can run with one more override: name and phrase of a -D.
Accepts: TypeAlias = Callable[[tuple[str, str]], bool]

FEEDS = "feeds"
STARVES = "does not feed"
TOO_CLOSE = "too close to say"
NOT_ASKED = "not asked"
NO_STORAGE = "not a storage result"

#: Where bytes of an epoch may come from (`Answer.source`): of the sources of a loop the first one counts.
SOURCES = ("device", "unknown", "mixed", "memory", "null")

#: Utilization of storage alone that storage has to reach, where no `expect` line says another.
GOAL = 0.9

#: From this share of its bytes on, an epoch is the device's; below the other one it is memory's.
_ALL, _NONE = 0.99, 0.01


def answer_run(
    run: RunSummary, loops: Sequence[Sequence[LoopPhase]], goals: Mapping[str, float], accepts: Accepts
) -> tuple[Answer, ...]:
    """Return the answer of each loop: `loops` has the runs of each, `goals` the goal of a loop that has its own.

    `accepts` returns whether the pattern can run with one more override.
    """
    return tuple(_answer_loop(run, runs, goals.get(runs[0].name, GOAL), accepts) for runs in loops)


def goals_of(expectations: Sequence[Expectation]) -> dict[str, float]:
    """Return the utilization that `expect` lines ask for, by loop."""
    return {one.loop: one.value for one in expectations if one.figure == "utilization" and one.bound == "at least"}


def epoch_source(epoch: EpochSummary, kind: str) -> str:
    """Return where the bytes of an epoch came from, as in `Answer.source`.

    `kind` is `memory` for files in memory, `device` where the kernel counts the bytes of the device, else `unknown`.
    """
    if epoch.null:
        return "null"
    if kind == "memory" or not epoch.unique_bytes:
        return "memory"
    if kind == "unknown" or epoch.device_bytes is None:
        return "unknown"
    share = epoch.device_bytes / epoch.unique_bytes
    return "device" if share >= _ALL else "memory" if share < _NONE else "mixed"


def _answer_loop(run: RunSummary, runs: Sequence[LoopPhase], goal: float, accepts: Accepts) -> Answer:
    kind = "unknown"
    for name, kinds in (("memory", MEMORY_KINDS), ("device", DISK_KINDS)):
        kind = name if run.is_stored_on(runs[0], kinds) else kind
    epochs = [epoch for phase in runs for epoch in phase.epochs]
    sources = [epoch_source(epoch, kind) for epoch in epochs]
    source = next(each for each in SOURCES if each in sources)
    counted = [number for number, each in enumerate(sources) if each == source]
    reasons: list[str] = []
    if source == "unknown":
        counted, reason = _choose_uncounted(runs, counted)
        reasons.append(reason)
    some = [epochs[number] for number in counted]
    alone = _spread_alone(some)
    got = spread_over(some, _storage_rate)
    waited = core_wait_bound(run.environment, some, max(phase.readers for phase in runs))
    verdict, why = _judge(run, runs, source, alone, goal, waited)
    return Answer(
        runs[0].name,
        verdict,
        (*why, *reasons),
        source,
        tuple(number + 1 for number in counted),
        goal,
        spread_over(some, lambda one: one.utilization),
        alone,
        spread_over(some, lambda one: _rate_for_goal(one, goal)),
        got,
        tuple(_advise(run, runs, source, verdict, len(some), waited, accepts)),
    )


def _choose_uncounted(runs: Sequence[LoopPhase], numbers: list[int]) -> tuple[list[int], str]:
    """Return the epochs that count where the kernel counts no bytes of a device, and what is known instead."""
    if runs[0].cache == "off":
        return numbers, "bytes from the device were not counted; O_DIRECT passed the page cache"
    first, cold = 0, []
    for phase in runs:
        if phase.epochs and phase.resident_share is not None and phase.resident_share < _NONE:
            cold.append(first)
        first += len(phase.epochs)
    text = "bytes from the device were not counted; the page cache was "
    return cold, text + ("cold before these epochs" if cold else "not known to be cold")


def _judge(
    run: RunSummary, runs: Sequence[LoopPhase], source: str, alone: Spread | None, goal: float, waited: float
) -> tuple[str, tuple[str, ...]]:
    """Return the verdict and its reasons; `waited` is the share of the time in which threads waited for a core."""
    if source == "null":
        return NO_STORAGE, ("nothing was read (--null)",)
    if source == "memory":
        return NO_STORAGE, (_memory_reason(run, runs),)
    early = doubt_of_prefetch(runs)
    if early:
        return NO_STORAGE, (early,)
    if alone is None:
        has_compute = any(epoch.utilization is not None for phase in runs for epoch in phase.epochs)
        return NO_STORAGE if has_compute else NOT_ASKED, ()
    if source == "mixed" and alone.max >= goal:
        return NO_STORAGE, ("the page cache gave part of the bytes of every epoch",)
    if alone.min >= goal:
        return FEEDS, ()
    if alone.max >= goal:
        return TOO_CLOSE, (f"the goal is within the spread: {percent(alone.min, 3)} to {percent(alone.max, 3)}",)
    if alone.max >= goal * (1 - waited):
        return TOO_CLOSE, (core_wait_text(waited),)
    return STARVES, ()


def core_wait_text(share: float) -> str:
    """Return that waiting for a core, a `share` of the time, may be what is missing; 1 where it was not counted."""
    if share >= 1:
        return "there are more ranks than cores, and waiting for a core is not counted here"
    return f"{percent(share, 2)} of the time was waiting for a core, and may be what is missing"


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


def _storage_rate(epoch: EpochSummary) -> float | None:
    """Return the bytes/s that storage gives the steps after the first; bytes that it gives once count once."""
    if epoch.null or not epoch.bytes or epoch.storage_step_seconds <= 0:
        return None
    return epoch.steady_bytes * epoch.bytes_once / epoch.bytes / epoch.storage_step_seconds


def _rate_for_goal(epoch: EpochSummary, goal: float) -> float | None:
    rate = _storage_rate(epoch)
    return None if rate is None or not epoch.storage_utilization else rate * goal / epoch.storage_utilization


def _advise(
    run: RunSummary, runs: Sequence[LoopPhase], source: str, verdict: str, counted: int, waited: float, accepts: Accepts
) -> Iterator[Advice]:
    """Yield what to do next, where `counted` epochs count; of changes by -D only those that the pattern `accepts`."""
    loop, epochs = runs[0], sum(len(phase.epochs) for phase in runs)

    def change(text: str, setting: str, phrase: str) -> Iterator[Advice]:
        override = f"{loop.name}.{setting}", phrase
        if accepts(override):
            yield Advice(text, command_line(run, "=".join(override)))

    if source == "null":
        yield Advice("read the data", command_line(run, without=("--null",)))
    elif run.is_stored_on(loop, MEMORY_KINDS):
        yield Advice("put the data on the storage in question: --dir DIR")
    elif source != "device" and loop.cache != "off":
        yield from change("read past the page cache", "cache", "off")
        yield Advice("use more data than memory, or `drop caches` before the loop")
    elif verdict in (TOO_CLOSE, STARVES) and waited > CORE_WAIT_LIMIT:
        yield Advice("give each rank and each reader a core of its own: use fewer of either")
    elif verdict == TOO_CLOSE and loop.cache != "off" and counted < epochs:
        yield from change("read past the page cache, so that all epochs count", "cache", "off")
    elif verdict == TOO_CLOSE:
        yield from change("run more epochs", "epochs", str(2 * epochs))
    elif verdict == STARVES:
        yield from change("read more batches at the same time", "readers", f"{2 * loop.readers or 4} by batch")


def command_line(run: RunSummary, override: str = "", without: tuple[str, ...] = ()) -> str:
    """Return the command line of the run with one more -D, and without some options; results go to a new directory.

    The -D replaces an earlier one of the same name.
    """
    words: list[str] = []
    name, rest = f"{override.partition('=')[0]}=", iter(run.arguments)
    for word in rest:
        value = next(rest, "") if word in ("-D", "--output") else ""
        same = bool(override) and (value or word.removeprefix("-D")).startswith(name)
        if not (same or word in without or word == "--output" or word.startswith("--output=")):
            words += [word, value] if word == "-D" else [word]
    launcher = ["mpiexec", "-n", str(run.ranks)] if run.ranks > 1 else []
    return shlex.join([*launcher, "dliosim", *words, *(["-D", override] if override else [])])
