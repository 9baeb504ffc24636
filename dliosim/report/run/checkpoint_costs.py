"""Tables of checkpoints: the time that saves held a run, their cost to its steps, and the best interval."""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from dliosim.measure.results.checkpoint_overhead import (
    Overhead,
    StepTimes,
    flush_step_times,
    loop_overheads,
    save_times,
    total_overhead,
)
from dliosim.measure.results.machine import MEMORY_KINDS
from dliosim.measure.results.run_summary import RunSummary
from dliosim.plan.forecast.checkpoint_interval import Costs
from dliosim.readable import count, long_time, number, percent, seconds, size
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

#: Bytes of a rank in a save below which its rate says little of a large one.
TELLING_BYTES = 64 * 2**20


def checkpoint_tables(run: RunSummary) -> str:
    """Return the tables of saves that follow the table of files."""
    if run.null:
        return ""
    sections = [background_table(run.saves), _overheads(run), interval_section(run)]
    return "\n\n".join(section for section in sections if section)


def checkpoint_costs(run: RunSummary) -> Iterator[CheckpointCosts]:
    """Yield the costs of each saved checkpoint, if the MTBF is given: the mean stall and the median flush.

    Times of a part are multiplied: the full checkpoint is assumed to be written at the rate of the part, and each rank
    copies its share at the same pace. A checkpoint is left out if the part is too small for a rate and `larger_scale`
    saves more of it, since calls, syncs and renames do not shrink in proportion. So is one that was saved to memory,
    which tells nothing about storage.

    The stall is the slowest rank's, including the deletion of old checkpoints if it waits for that, without the longest
    wait of any rank for the previous save. A restart takes as long as the restores of the same checkpoint that read
    storage, or else as long as its saves took to complete.
    """
    if run.mtbf is None or run.null:
        return
    in_memory = memory_checkpoints(run)
    for one in save_times(run):
        if one.checkpoint in in_memory or larger_scale(run, one.checkpoint):
            continue
        save = next(phase for phase in run.saves if phase.name == one.checkpoint)
        times, ranks = save.whole_times, save.whole_ranks or run.ranks
        # A save waits for the one before only because this run saves so often.
        waited = statistics.fmean(phase.verb.wait_seconds.max for phase in run.saves if phase.name == one.checkpoint)
        stall = max(one.held - waited, 0.0) * (times * run.ranks / ranks if one.flush else times)
        restart = run.restart_time
        if restart is None:
            restart = times * (_restore_seconds(run, one.checkpoint) or one.complete)
        yield CheckpointCosts(
            one.checkpoint,
            one.saves,
            Costs(run.mtbf, stall, restart, times * one.flush),
            save.part_of,
            save.verb.bytes / written if (written := one.flush or stall / (times or 1.0)) > 0 else 0.0,
            rank_bytes(run, one.checkpoint),
            times * save.verb.bytes,
            *_extremes(run, one.checkpoint),
            None if save.part_of else _interval(run, one.checkpoint),
        )


def larger_scale(run: RunSummary, checkpoint: str) -> str:
    """Return the override that makes a rank save enough bytes for a rate; empty if it does, or none is known."""
    part = next(phase.part_of for phase in run.saves if phase.name == checkpoint)
    scaled, saved = re.match(r"1/([0-9]{1,10}) of the bytes of (\S+)", part), rank_bytes(run, checkpoint)
    scale = int(int(scaled[1]) * saved / TELLING_BYTES) if scaled else 0
    if saved >= TELLING_BYTES or scaled is None or scale < 1:
        return ""
    plain = scale - scale % 10 ** (len(str(scale)) - 1)  # one digit, and no less is saved
    return f"{scaled[2]}.scale={plain}"


def rank_bytes(run: RunSummary, checkpoint: str) -> float:
    """Return the mean bytes of a rank in a save of a checkpoint."""
    return statistics.fmean(phase.verb.bytes for phase in run.saves if phase.name == checkpoint) / run.ranks


def _extremes(run: RunSummary, checkpoint: str) -> tuple[float, float]:
    """Return the shortest and the longest time of a save, without waiting for the one before."""
    verbs = [phase.verb for phase in run.saves if phase.name == checkpoint]
    times = [max(one.seconds - one.wait_seconds.max, 0.0) for one in verbs]
    return min(times), max(times)


def _restore_seconds(run: RunSummary, checkpoint: str) -> float | None:
    """Return the median time of the restores of a checkpoint that did not read the page cache; None without any."""
    verbs = [phase.verb for phase in run.restores if phase.name == checkpoint]
    times = [one.seconds for one in verbs if one.device_bytes is None or one.device_bytes >= _COLD * one.bytes_once]
    return statistics.median(times) if times else None


def memory_checkpoints(run: RunSummary) -> set[str]:
    """Return the names of checkpoints that were saved in a file system in memory, and not drained to another one."""
    return {
        phase.name
        for phase in run.saves
        if run.is_stored_on(phase, MEMORY_KINDS) and not phase.verb.drain_seconds.max > 0
    }


def _interval(run: RunSummary, checkpoint: str) -> float | None:
    """Return the mean time of steps between saves of a checkpoint, over the loops that made them; s."""
    made = [phase for phase in run.saves if phase.within is not None and phase.name == checkpoint]
    loops = {phase.within for phase in made}
    steps = sum(one.steps_seconds for one in loop_overheads(run) if one.loop in loops)
    return steps / len(made) if made and steps > 0 else None


def _overheads(run: RunSummary) -> str:
    """Return a line for each loop that saves, and one for all loops if there are several."""
    loops = loop_overheads(run)
    lines = [_overhead_line(f"saves held the steps of {one.loop} for", one) for one in loops]
    lines += [background_costs(run)] if loops else []
    whole = total_overhead(run)
    if whole is not None and whole.steps_seconds > 0 and [one.steps_seconds for one in loops] != [whole.steps_seconds]:
        lines.append(_overhead_line("saves held all loops and pauses for", whole))
    return "\n".join(filter(None, lines))


def background_costs(run: RunSummary, width: int = WIDTH) -> str:
    """Return a sentence for each loop about its steps during background saves; empty without any."""
    epochs = {runs[0].name: [one for phase in runs for one in phase.epochs] for runs in group_phases(run.loops)}
    both = {name: flush_step_times(some) for name, some in epochs.items()}
    return "\n".join(textwrap.fill(_background_line(name, *one), width) for name, one in both.items() if one)


def _overhead_line(text: str, one: Overhead) -> str:
    saves = count(one.saves, "save")
    details = f"{seconds(one.held_seconds)} in {saves}, {seconds(one.steps_seconds)} in steps"
    return textwrap.fill(f"{text} {percent(one.share, 3)} of their time, saves included ({details})", WIDTH)


def _background_line(loop: str, flushed: StepTimes, clear: StepTimes) -> str:
    times = number(flushed.step_seconds / clear.step_seconds, 3)
    text = f"steps of {loop} during a save in the background took {times} times as long as others"
    details = ", ".join(
        f"{count(one.steps, 'step')} of {seconds(one.step_seconds, 3)} {when}, {seconds(one.data_wait_seconds, 3)} of "
        "it data wait"
        for when, one in (("during saves", flushed), ("otherwise", clear))
    )
    return f"{text} ({details}; without the first step of each rank)"


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


def _partial_save_notes(run: RunSummary) -> Iterator[str]:
    """Yield a note for each checkpoint that was saved in part, or in memory."""
    if run.mtbf is None or run.null:
        return
    in_memory = memory_checkpoints(run)
    for name in dict.fromkeys(phase.name for phase in run.saves if phase.name in in_memory):
        yield f"how often to save {shorten_name(name)} is unknown: saves in memory say nothing about storage"
    for name, part in dict.fromkeys((phase.name, phase.part_of) for phase in run.saves if phase.part_of):
        if name in in_memory:
            continue
        short, only = shorten_name(name), f"saves of only {part}"
        if more := larger_scale(run, name):
            text = (
                f"how often to save {short} is unknown: {only}, {size(rank_bytes(run, name), 2)} per rank, give no rate"
            )
            yield f"{text}; `-D {more}` saves more"
        else:
            yield (
                f"* {short} is an estimate from {only}. A full save is assumed to take longer in proportion to its "
                "bytes, and its copy to buffers in proportion to the bytes of a rank. The interval is too long as far "
                "as calls, syncs and renames do not grow with bytes; it is too short if a device cache absorbed this "
                "part but cannot hold the whole checkpoint"
            )
