"""Advice on a loop, with its command lines. Following the advice repeatedly terminates."""

from __future__ import annotations

import math
import shlex
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

from dliosim.measure.answers import validity
from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.results.machine import MEMORY_KINDS, OWN_CACHE_WITH_DIRECT_KINDS, STACKED_KINDS
from dliosim.measure.results.phase import LoopPhase
from dliosim.measure.results.run_summary import Advice, Answer, RunSummary, Spread, Value, select_epochs
from dliosim.measure.results.verdicts import CANNOT_SAY, STARVES, TOO_CLOSE
from dliosim.model import MPI_APIS


class RankCommand(Protocol):
    """A command that ran on ranks."""

    @property
    def program(self) -> str:
        """Return the command that starts dliosim."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the words of the command line."""

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""


#: Options that say where files of this run go, and in which form: another run writes its own.
_OWN_FILES = ("--output", "--dlio-summary", "--dlio")

#: Other options whose value is the next word, and that a command may leave out.
_VALUED = ("-D", "--most", "--storage", "--repeat", "--warm-up")


def command_line(
    run: RankCommand,
    override: str = "",
    needless: Collection[str] = (),
    without: tuple[str, ...] = (),
    ranks: int = 0,
    option: tuple[str, ...] = (),
) -> str:
    """Return the command line with another -D or `option` and its value, without some options, or with other `ranks`.

    The -D and the option replace earlier ones of the same name, and -D of the names `needless`. Results go to a new
    directory, the answer to a screen, and figures are not those of a run that verifies what it reads.
    """
    words: list[str] = []
    replaced, rest = {*needless, override.partition("=")[0]}, iter(run.arguments)
    dropped = {*without, *_OWN_FILES, "--json", "--verify", *option[:1]}
    for word in rest:
        value = next(rest, "") if word in (*_VALUED, *_OWN_FILES, *option[:1]) else ""
        name = (value or word.removeprefix("-D")).partition("=")[0] if word.startswith("-D") else ""
        if not (name in replaced - {""} or word.partition("=")[0] in dropped):
            words += [word, value] if value else [word]
    number = ranks or run.ranks
    launcher = [find_mpiexec(run.program), "-n", str(number)] if number > 1 else []
    return shlex.join([*launcher, run.program, *words, *(["-D", override] if override else []), *option])


def find_mpiexec(program: str) -> str:
    """Return the command for mpiexec: that of the environment from which dliosim was typed as a path."""
    beside = Path(program).with_name("mpiexec")
    return str(beside) if "/" in program and beside.exists() else "mpiexec"


#: What one more override, name and phrase of a -D, does: names of earlier ones that say nothing next to it; None if
#: the pattern cannot run with it.
Accepts: TypeAlias = Callable[[tuple[str, str]], Collection[str] | None]

#: Yields advice of a kind, with a setting of the loop, the setting's phrase and values, if the pattern takes it.
_Change: TypeAlias = Callable[..., Iterator[Advice]]

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
    """Yield the next steps for a loop; changes by -D only if the pattern `accepts` them.

    `waited` is the share of the time in which threads waited for a core. `samples` has the setting for the loop's
    number of samples, and that number; empty if there is none. `disk` is a directory that is not in memory, or an empty
    text.
    """
    loop = runs[0]
    epochs = [epoch for phase in runs for epoch in phase.epochs]
    counted, lacks_cores = select_epochs(epochs, answer), waited >= validity.CORE_WAIT_LIMIT
    # An epoch after an only one would come from the page cache, unless memory has no room for it.
    is_large = run.environment.memory_per_node * run.nodes < max(epoch.unique_bytes for epoch in epochs)
    more_count = len(counted) == len(epochs) and (loop.cache == "off" or len(epochs) > len(runs) or is_large)

    def change(kind: str, setting: str, phrase: str, **values: Value) -> Iterator[Advice]:
        override = setting if "." in setting else f"{loop.name}.{setting}", phrase
        if (needless := accepts(override)) is not None:
            yield Advice(kind, values, command_line(run, "=".join(override), needless))

    if answer.source == "null":
        yield Advice("read_data", command=command_line(run, without=("--null",)))
    elif run.is_stored_on(loop, MEMORY_KINDS) and not run.modelled:
        yield leave_memory(run, disk if loop.root == "data" else "")
    elif validity.doubt_of_prefetch(runs):
        yield Advice("prefetch_less")
    elif not answer.from_storage:
        if run.is_stored_on(loop, OWN_CACHE_WITH_DIRECT_KINDS):
            kinds = {
                place.kind for place in run.environment.file_systems if place.root in (loop.root or "").split(", ")
            }
            yield Advice("exceed_memory", {"is_stacked": bool(kinds & STACKED_KINDS)})
        elif loop.cache != "off":
            yield from change("bypass_cache", "cache", "off")
        yield Advice("exceed_memory_or_drop")
    elif answer.verdict == CANNOT_SAY and validity.doubt_of_memory(run.environment, runs, counted):
        ranks = run.environment.ranks_per_node // 2 * run.nodes
        yield Advice("more_memory", {"ranks": ranks}, command_line(run, ranks=ranks) if ranks else "")
    elif answer.verdict == CANNOT_SAY and validity.doubt_of_length(counted):
        yield from _measure_longer(runs, counted, more_count, samples, change)
    elif answer.verdict in (TOO_CLOSE, CANNOT_SAY, STARVES) and lacks_cores and run.environment.was_busy:
        yield Advice("wait_for_quiet")
    elif answer.verdict in (TOO_CLOSE, CANNOT_SAY) and answer.storage_utilization:
        mean = answer.storage_utilization.mean
        target = answer.goal * (1 if answer.has_goal_within_interval else 1 - waited)
        if answer.has_goal_within_interval or (not lacks_cores and mean < target):
            yield from _narrow_interval(runs, answer.storage_utilization, more_count, target, change)
        else:
            yield _free_cores(run, loop, accepts, run.environment.ranks_per_node)
    elif answer.verdict == STARVES and loop.api in MPI_APIS:  # of several readers only one reads at a time
        if loop.readers:
            yield from change("use_posix", "api", "posix")
        else:
            yield from change("read_ahead", "readers", "1")
    elif answer.verdict == STARVES:
        yield from _read_faster(run, loop, lacks_cores, accepts, change)


def _measure_longer(
    runs: Sequence[LoopPhase],
    counted: Sequence[EpochSummary],
    more_count: bool,
    samples: Mapping[str, int],
    change: _Change,
) -> Iterator[Advice]:
    """Yield how the epochs that count last long enough for a verdict; more epochs do so if `more_count`."""
    steps, taken = validity.count_steps(counted)
    times = _AMPLE * max(validity.LEAST_STEPS / max(steps, 1), validity.LEAST_SECONDS / taken if taken > 0 else 1.0)
    if more_count:
        epochs = math.ceil(times * len(runs[0].epochs))
        yield from change("measure_epochs", "epochs", str(epochs), epochs=epochs)
    for setting, many in samples.items():
        more = math.ceil(times * many)
        asked = max(epoch.bytes for epoch in counted) * more / many
        yield from change("measure_bytes", setting, str(more), amount=asked)
    if not more_count:
        yield from _count_all(runs[0], change)
    yield Advice("measure_more")


def _count_all(loop: LoopPhase, change: _Change) -> Iterator[Advice]:
    """Yield how epochs count that came from the page cache."""
    if loop.cache != "off":
        yield from change("count_all_epochs", "cache", "off")


def _narrow_interval(
    runs: Sequence[LoopPhase], alone: Spread, more_count: bool, target: float, change: _Change
) -> Iterator[Advice]:
    """Yield how `target` may leave the interval of the mean: by more epochs, until storage is seen to just reach it."""
    half, distance = max(alone.high - alone.mean, alone.mean - alone.low), abs(alone.mean - target)
    if half <= _JUST:
        yield Advice("goal_reached", {"half": half})
    elif more_count:
        times = (half / distance) ** 2 if distance else math.inf  # an interval is as narrow as epochs' square root
        times = min(max(math.ceil(times) if times < _MOST_TIMES else _MOST_TIMES, _FEWEST_TIMES), _MOST_TIMES)
        epochs = times * len(runs[0].epochs)
        whole = epochs * len(runs) * statistics.fmean(epoch.seconds for phase in runs for epoch in phase.epochs)
        yield from change("more_epochs", "epochs", str(epochs), epochs=epochs, time=whole)
    else:
        yield from _count_all(runs[0], change)
        yield Advice("more_counted_epochs")


def _read_faster(
    run: RunSummary, loop: LoopPhase, is_crowded: bool, accepts: Accepts, change: _Change
) -> Iterator[Advice]:
    """Yield how storage may feed a loop after all.

    Ranks only become fewer, and with the same number of ranks readers only more: somebody who follows one piece of
    advice after the other comes to an end.
    """
    cores, crowd = run.environment.cores_per_node, run.environment.ranks_per_node
    more = 2 * loop.readers or 4
    if crowd > 1 or is_crowded:
        more = min(more, _readers_with_cores(run))
    if 0 < loop.prefetch < loop.readers:  # no more readers read than batches may be ahead
        ahead = f"{loop.readers} batches"
        yield from change("prefetch_more", "prefetch", ahead, batches=loop.prefetch, readers=loop.readers)
    elif loop.readers < more <= _MANY_READERS:
        yield from change("more_readers", "readers", loop.write_readers(more))
    elif crowd > 1 and is_crowded:
        yield _free_cores(run, loop, accepts, crowd - 1)
    elif crowd > 1:
        yield Advice("find_ranks", command=command_line(run, ranks=crowd // 2 * run.nodes))
    elif is_crowded and 1 + loop.readers > cores:
        yield Advice("faster_storage_or_cores", {"cores": 1 + loop.readers})
    else:
        yield Advice("faster_storage")


def leave_memory(run: RankCommand, disk: str) -> Advice:
    """Return the advice to move data out of memory; `disk` is a directory that is not in memory, or empty."""
    return Advice("move_data_to_disk", {}, command_line(run, option=("--dir", disk))) if disk else Advice("move_data")


def _readers_with_cores(run: RunSummary) -> int:
    """Return how many readers of a rank can have a core each, next to the ranks; at least one."""
    return max(run.environment.cores_per_node // run.environment.ranks_per_node - 1, 1)


def _free_cores(run: RunSummary, loop: LoopPhase, accepts: Accepts, most_ranks: int) -> Advice:
    """Return how each rank and each reader gets a core of its own, with at most `most_ranks` on a node."""
    cores, crowd = run.environment.cores_per_node, run.environment.ranks_per_node
    readers = min(loop.readers, _readers_with_cores(run)) if crowd > 1 else loop.readers
    ranks = min(max(cores // (1 + readers), 1), most_ranks)
    override = (f"{loop.name}.readers", loop.write_readers(readers))
    needless = accepts(override) if readers < loop.readers else None
    changed = "" if needless is None else "=".join(override)
    if changed or ranks < crowd:
        command = command_line(run, changed, needless or (), ranks=ranks * run.nodes)
        values = {"ranks_per_node": max(cores // (1 + loop.readers), 1), "ranks": ranks * run.nodes}
        return Advice("free_cores" if ranks < crowd else "fewer_readers", values, command)
    return Advice("more_cores", {"cores": 1 + readers}) if 1 + readers > cores else Advice("other_work")
