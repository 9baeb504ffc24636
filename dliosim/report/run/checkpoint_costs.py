"""Tables of checkpoints: the time that saves held a run, their cost to its steps, and the best interval."""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dliosim.measure.answers.advice import command_line
from dliosim.measure.results.checkpoint_overhead import flush_step_times, loop_overheads, save_times, total_overhead
from dliosim.measure.results.machine import MEMORY_KINDS
from dliosim.measure.results.run_summary import RunSummary, SavePhase
from dliosim.plan.forecast.checkpoint_interval import Costs, best_interval, compute_waste
from dliosim.readable import count, long_time, number, percent, seconds, size
from dliosim.report.first_lines import ROW
from dliosim.report.interval_table import IntervalRow, explain_intervals, interval_table
from dliosim.report.phase_titles import group_phases
from dliosim.report.run.save_tables import background_table
from dliosim.report.text_table import WIDTH, shorten_name


@dataclass(frozen=True, slots=True)
class CheckpointCosts:
    """The measured costs of the saves of one checkpoint."""

    #: name of the checkpoint
    checkpoint: str
    #: number of saves
    saves: int
    #: costs of a save and of a failure; s. If only a part was saved, those of all of it, by the times of the part
    costs: Costs
    #: which part was saved; empty if it was all
    part_of: str
    #: rate from which `costs` follow, B/s: bytes / stall, in the background bytes / flush
    rate: float
    #: mean bytes of a rank in a save
    rank_bytes: float
    #: bytes of all of it
    whole_bytes: float
    #: time of the shortest save until it was complete, without waiting for the one before, s
    shortest: float
    #: the same of the longest one, s
    longest: float
    #: mean time of steps between two saves, in the loops that made them; s; None if no loop made them, or only a part
    interval: float | None

    @property
    def is_estimate(self) -> bool:
        """Return True if only a part was saved."""
        return bool(self.part_of)


#: Share of the bytes of a restore that the device gives if the page cache gives none.
_COLD = 0.99

#: Characters of the name of a checkpoint.
_LONGEST_CHECKPOINT = 16

#: Above this share that is lost, a job makes no progress.
_NO_PROGRESS = 0.99

#: The longest save may take this many times as long as the shortest one.
_UNEVEN = 2.0

#: Words for what is lost with the best interval, the longest first; '' for no room.
_LOST = (" lost in all", " lost", "")

#: Bytes of a rank in a save below which its rate says little of a large one.
_TELLING_BYTES = 64 * 2**20


def checkpoint_tables(run: RunSummary) -> str:
    """Return the tables of saves that follow the table of files."""
    if run.null:
        return ""
    sections = [background_table(run.saves), _overheads(run), interval_section(run)]
    return "\n\n".join(section for section in sections if section)


def checkpoint_costs(run: RunSummary) -> Iterator[CheckpointCosts]:
    """Yield the costs of each saved checkpoint, if the MTBF is given: the mean stall and the median flush.

    Times of a part are multiplied: the full checkpoint is assumed to be written at the rate of the part, and each rank
    copies its share at the same pace. A checkpoint is left out if the part is too small for a rate and `_larger_scale`
    saves more of it, since calls, syncs and renames do not shrink in proportion. So is one that was saved to memory,
    which tells nothing about storage.

    The stall is the slowest rank's, including the deletion of old checkpoints if it waits for that, without the longest
    wait of any rank for the previous save. A restart takes as long as the restores of the same checkpoint that read
    storage, or else as long as its saves took to complete.
    """
    if run.mtbf is None or run.null:
        return
    in_memory = _memory_checkpoints(run)
    for one in save_times(run):
        if one.checkpoint in in_memory or _larger_scale(run, one.checkpoint):
            continue
        saves = _saves_of(run, one.checkpoint)
        save, times, ranks = saves[0], saves[0].whole_times, saves[0].whole_ranks or run.ranks
        # A save waits for the one before only because this run saves so often.
        waits = [phase.verb.wait_seconds.max for phase in saves]
        alone = [max(phase.verb.seconds - wait, 0.0) for phase, wait in zip(saves, waits, strict=True)]
        stall = max(one.held - statistics.fmean(waits), 0.0) * (times * run.ranks / ranks if one.flush else times)
        restart = run.restart_time
        if restart is None:
            restart = times * (_restore_seconds(run, one.checkpoint) or one.complete)
        yield CheckpointCosts(
            one.checkpoint,
            one.saves,
            Costs(run.mtbf, stall, restart, times * one.flush),
            save.part_of,
            save.verb.bytes / written if (written := one.flush or stall / (times or 1.0)) > 0 else 0.0,
            _rank_bytes(run, one.checkpoint),
            times * save.verb.bytes,
            min(alone),
            max(alone),
            None if save.part_of else _interval(run, one.checkpoint),
        )


def _saves_of(run: RunSummary, checkpoint: str) -> list[SavePhase]:
    return [phase for phase in run.saves if phase.name == checkpoint]


def _larger_scale(run: RunSummary, checkpoint: str) -> str:
    """Return the override that makes a rank save enough bytes for a rate; empty if it does, or none is known."""
    part = _saves_of(run, checkpoint)[0].part_of
    scaled, saved = re.match(r"1/([0-9]{1,10}) of the bytes of (\S+)", part), _rank_bytes(run, checkpoint)
    scale = int(int(scaled[1]) * saved / _TELLING_BYTES) if scaled else 0
    if saved >= _TELLING_BYTES or scaled is None or scale < 1:
        return ""
    plain = scale - scale % 10 ** (len(str(scale)) - 1)  # one digit, and no less is saved
    return f"{scaled[2]}.scale={plain}"


def _rank_bytes(run: RunSummary, checkpoint: str) -> float:
    """Return the mean bytes of a rank in a save of a checkpoint."""
    return statistics.fmean(phase.verb.bytes for phase in _saves_of(run, checkpoint)) / run.ranks


def _restore_seconds(run: RunSummary, checkpoint: str) -> float | None:
    """Return the median time of the restores of a checkpoint that did not read the page cache; None without any."""
    verbs = [phase.verb for phase in run.restores if phase.name == checkpoint]
    times = [one.seconds for one in verbs if one.device_bytes is None or one.device_bytes >= _COLD * one.bytes_once]
    return statistics.median(times) if times else None


def _memory_checkpoints(run: RunSummary) -> set[str]:
    """Return the names of checkpoints that were saved in a file system in memory, and not drained to another one."""
    undrained = [phase for phase in run.saves if phase.verb.drain_seconds.max <= 0]
    return {phase.name for phase in undrained if run.is_stored_on(phase, MEMORY_KINDS)}


def _interval(run: RunSummary, checkpoint: str) -> float | None:
    """Return the mean time of steps between saves of a checkpoint, over the loops that made them; s."""
    made = [phase for phase in _saves_of(run, checkpoint) if phase.within is not None]
    loops = {phase.within for phase in made}
    steps = sum(one.steps_seconds for one in loop_overheads(run) if one.loop in loops)
    return steps / len(made) if made and steps > 0 else None


def _overheads(run: RunSummary) -> str:
    """Return a line for each loop that saves, and one for all loops if there are several."""
    loops, whole = loop_overheads(run), total_overhead(run)
    shown = list(loops)
    if whole is not None and whole.steps_seconds > 0 and [one.steps_seconds for one in loops] != [whole.steps_seconds]:
        shown.append(whole)
    lines = []
    for one in shown:
        text = f"saves held {f'the steps of {one.loop}' if one.loop else 'all loops and pauses'} for"
        details = f"{seconds(one.held_seconds)} in {count(one.saves, 'save')}, {seconds(one.steps_seconds)} in steps"
        lines.append(textwrap.fill(f"{text} {percent(one.share, 3)} of their time, saves included ({details})", WIDTH))
    lines.insert(len(loops), background_costs(run) if loops else "")
    return "\n".join(filter(None, lines))


def background_costs(run: RunSummary, width: int = WIDTH) -> str:
    """Return a sentence for each loop about its steps during background saves; empty without any."""
    lines = []
    for runs in group_phases(run.loops):
        if both := flush_step_times([epoch for phase in runs for epoch in phase.epochs]):
            times = number(both[0].step_seconds / both[1].step_seconds, 3)
            text = f"steps of {runs[0].name} during a save in the background took {times} times as long as others"
            details = ", ".join(
                f"{count(one.steps, 'step')} of {seconds(one.step_seconds, 3)} {when}, "
                f"{seconds(one.data_wait_seconds, 3)} of it data wait"
                for when, one in zip(("during saves", "otherwise"), both, strict=True)
            )
            lines.append(textwrap.fill(f"{text} ({details}; without the first step of each rank)", width))
    return "\n".join(lines)


def interval_section(run: RunSummary, width: int = WIDTH) -> str:
    """Return the table of best save intervals, if the user gave the time between failures; else an empty text."""
    rows = [
        IntervalRow(shorten_name(one.checkpoint) + " *" * one.is_estimate, one.costs, one.interval)
        for one in checkpoint_costs(run)
    ]
    smaller = "\n".join(textwrap.fill(note, width) for note in _partial_save_notes(run))
    if run.mtbf is None or not rows:
        return smaller
    title = f"best interval between saves if the job fails every {long_time(run.mtbf)} on average, from measured stalls"
    title += " and the median restore" * bool(run.restores and run.restart_time is None)
    table = f"{interval_table(title, '', rows, width)}\n\n{textwrap.fill(explain_intervals(rows), width)}"
    return f"{table}\n\n{smaller}" if smaller else table


def best_intervals(run: RunSummary) -> Iterator[str]:
    """Yield how often it is best to save each checkpoint, or why that is unknown; nothing without an MTBF."""
    if run.mtbf is None:
        return
    if run.null or not run.saves:
        yield f"unknown, as nothing was saved{' (--null)' if run.null else ''}"
        return
    costs = list(checkpoint_costs(run))
    if known := [one for one in costs if not one.is_estimate]:
        yield _best_in_row(known, f"best, as {_failing(run)}") + "".join(map(_unevenness, known))
    for one in costs:
        if one.is_estimate:
            guess = f", a low guess from {size(one.rank_bytes, 2)} per rank" if one.rank_bytes < _TELLING_BYTES else ""
            kept = f"if storage keeps the {size(one.rate, 3)}/s of this part{guess}"
            estimate = f"an estimate for all {size(one.whole_bytes, 3)}, {kept}{_unevenness(one)}"
            yield f"{_best(one, _LOST[0])} if {_failing(run)}: {estimate}"
    in_memory = [name for name in dict.fromkeys(phase.name for phase in run.saves) if name in _memory_checkpoints(run)]
    if in_memory:
        names = shorten_name(", ".join(in_memory), _LONGEST_CHECKPOINT)
        yield f"{names}: unknown, as saves in memory say nothing about storage"
    for name in dict.fromkeys(phase.name for phase in run.saves if phase.name not in in_memory):
        if more := _larger_scale(run, name):
            part = size(_rank_bytes(run, name), 2)
            short = shorten_name(name, _LONGEST_CHECKPOINT)
            yield f"{short}: unknown: {part} per rank is too little for a rate; save more:\n{command_line(run, more)}"
            return


def _best_in_row(known: Sequence[CheckpointCosts], why: str) -> str:
    forms = [f"{', '.join(_best(one, lost) for one in known)}: {why}" for lost in _LOST]
    return next((form for form in forms if len(form) <= ROW), forms[-1])


def _unevenness(one: CheckpointCosts) -> str:
    """Return that saves differ much, after a semicolon; empty if they do not."""
    times = f"{seconds(one.shortest, 2)} to {seconds(one.longest, 2)}"
    saves = f"saves of {shorten_name(one.checkpoint, _LONGEST_CHECKPOINT)}"
    return f"; {saves} took {times}: repeat it" if one.longest > _UNEVEN * one.shortest else ""


def _failing(run: RunSummary) -> str:
    return f"the job fails every {long_time(run.mtbf or 0.0, 3)}"


def _best(one: CheckpointCosts, lost: str) -> str:
    """Return how often it is best to save a checkpoint, and what is lost with it, with the words `lost` if any."""
    best, digits = best_interval(one.costs), 2 if one.is_estimate else 3
    whole = compute_waste(best, one.costs).total
    name = shorten_name(one.checkpoint, _LONGEST_CHECKPOINT)
    if whole > _NO_PROGRESS:
        return f"{name} at no interval (over {percent(_NO_PROGRESS, 2)} lost)"
    share = f" ({percent(whole, digits)}{lost})" if lost else ""
    return f"{name} {long_time(best, digits)}{share}"


def _partial_save_notes(run: RunSummary) -> Iterator[str]:
    """Yield a note for each checkpoint that was saved in part, or in memory."""
    if run.mtbf is None or run.null:
        return
    in_memory = _memory_checkpoints(run)
    for name in dict.fromkeys(phase.name for phase in run.saves if phase.name in in_memory):
        yield f"how often to save {shorten_name(name)} is unknown: saves in memory say nothing about storage"
    for name, part in dict.fromkeys((phase.name, phase.part_of) for phase in run.saves if phase.part_of):
        if name in in_memory:
            continue
        short, only = shorten_name(name), f"saves of only {part}"
        if more := _larger_scale(run, name):
            few = f"{only}, {size(_rank_bytes(run, name), 2)} per rank"
            yield f"how often to save {short} is unknown: {few}, give no rate; `-D {more}` saves more"
        else:
            yield (
                f"* {short} is an estimate from {only}. A full save is assumed to take longer in proportion to its "
                "bytes, and its copy to buffers in proportion to the bytes of a rank. The interval is too long as far "
                "as calls, syncs and renames do not grow with bytes; it is too short if a device cache absorbed this "
                "part but cannot hold the whole checkpoint"
            )
