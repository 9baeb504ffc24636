"""Warnings about the figures of a run."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from dliosim.measure.answers.validity import doubt_of_core_waits, doubt_of_oversleep, doubt_of_prefetch
from dliosim.measure.figures import aggregate
from dliosim.measure.figures.epoch_summaries import EpochSummary, VerbSummary
from dliosim.measure.results.machine import MEMORY_KINDS, Environment
from dliosim.measure.results.phase import LoopPhase, PartialProgress, PhaseSummary
from dliosim.measure.results.run_summary import Answer, RestorePhase, RunSummary, SavePhase, select_epochs
from dliosim.model import MPI_APIS
from dliosim.readable import count, number, percent, size
from dliosim.report.answer_sentences import sentence
from dliosim.report.phase_titles import group_phases, name_epochs, title_of
from dliosim.report.text_table import SCREEN

#: Warn from this ratio on: bytes of read calls by bytes asked.
_AMPLIFIED = 2.0
#: Warn from this ratio on: time of making contents, outside the clock of a save or restore, by its own time.
_CONTENT_SHARE = 0.1
#: Warn below this ratio: different bytes by bytes asked. A rate is then not that of storage.
_REPEATED = 0.9
#: Warn from this share of the time on: waits of the last rank of each step in its sync.
_SYNC_SHARE = 0.1

#: Warn below this ratio: time of an epoch with I/O by the time without, which can only be less by noise.
_TOO_QUICK = 0.95

_DOUBTFUL = "utilization is not to be trusted"


def format_warnings(warnings: Sequence[str], width: int = SCREEN) -> str:
    """Return warnings, a paragraph each; empty if there are none."""
    return "\n".join(textwrap.fill(f"warning: {line}", width, subsequent_indent=" " * 9) for line in warnings)


def warnings_of(run: RunSummary) -> list[str]:
    """Return the texts of all warnings, without those that the run's answers already give."""
    found = [*_machine_warnings(run), *_option_warnings(run)]
    if run.partial is not None:
        found.insert(0, f"these are partial results: {describe_partial(run.partial)}; later work is not included")
    answers = {title_of(runs[0]): one for runs, one in zip(group_phases(run.loops), run.answers, strict=False)}
    for group in group_phases(run.phases):
        loops = [phase for phase in group if isinstance(phase, LoopPhase)]
        title = title_of(group[0])
        found += [f"{title}: {text}" for text in _loop_warnings(run.environment, loops, answers.get(title))]
        if not (run.null or run.modelled):
            found += _warn_each_run(group, lambda phase: _cache_warnings(run, phase))
            found += _warn_each_run(group, lambda phase: _checkpoint_warnings(run, phase))
        found += _warn_each_run(group, _hint_warnings)
    return found


def describe_partial(partial: PartialProgress) -> str:
    """Return how much of a run was done, and when: at a signal, or at its last sign of life."""
    loops = (f"{_format_done(one.epochs_done, one.epochs, 'epoch')} of {one.name}" for one in partial.loops)
    done = [_format_done(partial.verbs_done, partial.verbs, "verb"), *loops]
    when = f"when {partial.signal} arrived" if partial.signal else "when it was last written, before the run ended"
    return f"{', '.join(done)} were done {when}"


def _format_done(done: int, planned: int | None, what: str) -> str:
    return count(done, what) if planned is None else f"{done} of {count(planned, what)}"


def _machine_warnings(run: RunSummary) -> Iterator[str]:
    environment = run.environment
    if environment.is_oversubscribed:
        # Times which are not counted may include waits for a core.
        crowd = _ranks_on_cores(environment)
        if any(aggregate.core_wait_share(loop.epochs) is None for loop in run.loops):
            turns = "all times include waiting for a core, which this kernel does not count"
            yield f"{crowd}: {_DOUBTFUL}, and {turns}"
        elif run.saves or run.restores:
            yield f"{crowd}: saves and restores include waits for a core, which are only counted for loops"
    said = {answer.loop for answer in run.answers if answer.source == "memory"}
    roots = (loop.root for loop in run.loops if loop.name in said)
    read = {name for root in roots for name in (root.split(", ") if root is not None else [None])}
    memories = [
        place.root for place in environment.file_systems if place.kind in MEMORY_KINDS and not {place.root, None} & read
    ]
    if memories and not (run.null or run.modelled):
        is_or_are = "is" if len(memories) == 1 else "are"
        yield f"root {', '.join(memories)} {is_or_are} in memory: figures of data there say nothing about storage"


def _ranks_on_cores(environment: Environment) -> str:
    return f"{count(environment.ranks_per_node, 'rank')} on {count(environment.cores_per_node, 'core')}"


def _core_wait_warnings(environment: Environment, runs: Sequence[LoopPhase], answer: Answer | None) -> Iterator[str]:
    """Warn that ranks of a loop waited for cores, as the kernel counts it, and say what to do."""
    waited = doubt_of_core_waits(environment, runs, answer)
    if not waited or any(epoch.core_wait_seconds is None for phase in runs for epoch in phase.epochs):
        return
    busy = any(epoch.utilization is not None for phase in runs for epoch in phase.epochs)
    threads = environment.ranks_per_node * (1 + max(phase.readers for phase in runs))
    todo = "other work had the cores: repeat this when the machine is quiet"
    if threads > environment.cores_per_node:
        crowd, readers = _ranks_on_cores(environment), max(phase.readers for phase in runs)
        crowd += f", {count(readers, 'reader')} each" if readers else ""
        todo = f"{crowd}: use fewer{' of either' if readers else ' ranks'}, or give each a core of its own"
    yield (
        f"{sentence(waited)}, spread over data wait, sync wait, compute and tool in unknown parts: "
        f"{f'{_DOUBTFUL}, and ' if busy else ''}rates and latencies include it ({todo})"
    )


def _option_warnings(run: RunSummary) -> Iterator[str]:
    if run.null and not run.answers:
        yield "nothing was read or written (--null): the times are the tool's own, and say nothing about storage"
    if run.modelled:
        yield "reads, saves and restores waited as the storage says; nothing was prepared or decoded (--storage)"
    if run.verify:
        yield (
            "steps also checked what they read (--verify), which counts as tool time: do not quote utilization "
            "or rates of this run"
        )


def _loop_warnings(environment: Environment, runs: Sequence[LoopPhase], answer: Answer | None) -> Iterator[str]:
    """Yield the warnings about all runs of a loop together, but those that its answer gives already."""
    epochs = [epoch for phase in runs for epoch in phase.epochs]
    if not epochs:
        return
    if answer is None or not any(reason.kind.startswith("core_wait") for reason in answer.reasons):
        yield from _core_wait_warnings(environment, runs, answer)
    slept = doubt_of_oversleep(runs)
    if slept:
        known = any(epoch.utilization is not None for epoch in epochs) and answer is None
        yield f"{sentence(slept)}: {_DOUBTFUL if known else 'rates include that, storage-limited utilization does not'}"
    early = doubt_of_prefetch(runs)
    if early and answer is None:
        why = f"{sentence(early)}: {_DOUBTFUL}, because those steps were read during the first"
        yield f"{why}; use more samples or fewer batches"
    counted = select_epochs(epochs, answer)
    wall = sum(epoch.loop_seconds for epoch in counted)
    least = sum(epoch.least_sync_wait_seconds or 0.0 for epoch in counted)
    if wall > 0 and least / wall > _SYNC_SHARE:
        waited = doubt_of_core_waits(environment, runs, answer)
        why = "the sync itself, or a wait for a core; not" if waited else "that is the cost of the sync itself, not of"
        yield (
            f"even the last rank of each step waited in its sync, for {percent(least / wall, 2)} of the loop's time: "
            f"{why} storage"
        )
    quickest = min((epoch.slowdown for epoch in epochs if epoch.slowdown), default=1.0)
    if quickest < _TOO_QUICK:
        yield (
            f"an epoch took {number(quickest, 3)} times as long with I/O as without: something else delayed the run "
            "without I/O, so do not trust the slowdown"
        )
    worst = max(epochs, key=_read_ratio)
    if _read_ratio(worst) > _AMPLIFIED:
        why = _amplification_cause(runs[0], worst)
        many = f"read calls moved {number(_read_ratio(worst), 3)} bytes for each byte asked"
        yield f"{many if worst.bytes else f'read calls moved {size(worst.bytes_moved)} for 0 B asked'}: {why}"


def _read_ratio(epoch: EpochSummary) -> float:
    """Return the bytes of read calls, or those moved where the kernel does not count them, for each byte asked."""
    read = epoch.bytes_moved if epoch.read_call_bytes is None else epoch.read_call_bytes
    if not epoch.bytes:
        return math.inf if epoch.bytes_moved else 0.0
    return read / epoch.bytes


def _amplification_cause(phase: LoopPhase, epoch: EpochSummary) -> str:
    if phase.through == "library":
        return "the format's library reads more than samples (indexes, whole chunks or row groups)"
    if phase.cache != "off" and epoch.bytes_moved > _AMPLIFIED * epoch.bytes:
        each = epoch.bytes / max(epoch.samples, 1)
        part = f", for {number(each, 2)} B that a sample has of it" if 0 < each < 1 else ""
        return f"each sample takes a whole unit of its format (chunk, row group) to read{part}"
    if phase.api == "mpi-collective":
        return "mpi-collective reads all bytes between samples; see the hints romio_cb_read and romio_ds_read"
    if phase.api == "mpi-independent":
        return (
            "mpi-independent may read more than samples (data sieving); see the hints romio_ds_read and romio_cb_read"
        )
    if phase.cache == "off":
        return "posix with `cache off` reads whole pages of 4 KiB, and samples are small"
    return "posix reads only what is asked, so something else in these processes read the rest"


def _cache_warnings(run: RunSummary, phase: PhaseSummary) -> Iterator[str]:
    """Warn if the page cache served bytes that seem to come from storage."""
    if run.is_stored_on(phase, MEMORY_KINDS):
        return
    if isinstance(phase, LoopPhase):
        yield from _loop_cache_warnings(run, phase)
    if not isinstance(phase, RestorePhase):
        return
    verb = phase.verb
    if phase.resident_share is not None and phase.resident_share > 0.5:
        yield "most of what it read was in the page cache: put `drop caches` before each `restore`"
    if _has_repeated_reads(verb.bytes, verb):
        yield f"{_describe_repeats(verb.bytes, verb)}; rates count each byte once a node"


def _loop_cache_warnings(run: RunSummary, phase: LoopPhase) -> Iterator[str]:
    cached = name_epochs([epoch.epoch for epoch in phase.epochs if _is_from_cache(epoch)])
    if cached and not run.answers:
        yield (
            f"{cached} read less than half of its bytes from the device, the rest from the page cache: use more "
            "data than memory, or `caches cold each epoch`"
        )
    shared = name_epochs([one.epoch for one in phase.epochs if _has_repeated_reads(one.bytes_from_storage, one)])
    if shared:
        epoch = max(phase.epochs, key=lambda one: one.bytes_from_storage - one.bytes_once)
        yield f"in {shared} {_describe_repeats(epoch.bytes_from_storage, epoch)}; rates are what ranks got"


def _is_from_cache(epoch: EpochSummary) -> bool:
    """Return True if a device gave less than half of the different bytes that were asked, by the kernel's count."""
    return epoch.device_bytes is not None and epoch.device_bytes < 0.5 * epoch.unique_bytes


def _has_repeated_reads(asked: int, one: EpochSummary | VerbSummary) -> bool:
    """Return True if storage gave fewer bytes than asked, as ranks of a node asked for some of them several times."""
    return one.distinct_bytes is not None and max(one.distinct_bytes, one.bytes_once) < _REPEATED * asked


def _describe_repeats(asked: int, one: EpochSummary | VerbSummary) -> str:
    few = f"ranks asked for {size(asked)}, but only {size(one.distinct_bytes)} are distinct bytes"
    return f"{few}: the page cache or another rank delivered the rest"


def _checkpoint_warnings(run: RunSummary, phase: PhaseSummary) -> Iterator[str]:
    """Warn if the times of a save or a restore are too good."""
    if isinstance(phase, SavePhase) and not phase.fsync:
        yield "`fsync off`: its times end when the data are in the page cache; a crash would lose them"
    if isinstance(phase, SavePhase) and phase.commit == "none":
        yield "`commit none`: nothing tells a complete checkpoint from one that a crash cut short"
    if not isinstance(phase, (SavePhase, RestorePhase)) or not phase.verb.seconds:
        return
    verb = phase.verb
    in_memory = run.is_stored_on(phase, MEMORY_KINDS)  # memory has no work to finish meanwhile
    if verb.content_seconds.max > _CONTENT_SHARE * verb.seconds and not in_memory:
        doing = "generating" if phase.kind == "save" else "checking"
        yield (
            f"{doing} contents took more than {percent(_CONTENT_SHARE, 2)} of its own time, outside the clock: storage "
            "may have kept working meanwhile, so rates may be too high"
        )


def _hint_warnings(phase: PhaseSummary) -> Iterator[str]:
    for key, asked, granted in phase.hints_refused:
        outcome = "was dropped by the MPI library" if granted is None else f'became "{granted}"'
        if phase.api not in MPI_APIS:
            outcome = f"had no effect: {phase.api} takes no hints"
        yield f'HINT NOT GRANTED: "{key}" = "{asked}" {outcome}'


def _warn_each_run(runs: Sequence[PhaseSummary], check: Callable[[PhaseSummary], Iterator[str]]) -> Iterator[str]:
    """Yield each warning about runs of a verb or loop once, with the number of runs that have it."""
    found = Counter(text for phase in runs for text in check(phase))
    for text, times in found.items():
        which = f" ({times} of {len(runs)} runs)" if len(runs) > 1 else ""
        yield f"{title_of(runs[0])}{which}: {text}"
