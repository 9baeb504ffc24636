"""The first lines of a run: whether the storage feeds the job, the evidence, and the next step."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from dliosim.measure.figures.declaration import name_part, time_parts
from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.results.machine import MEMORY_KINDS
from dliosim.measure.results.phase import LoopPhase
from dliosim.measure.results.run_summary import Answer, FilePhase, RunSummary, SavePhase, select_epochs
from dliosim.measure.results.verdicts import FEEDS, NO_STORAGE
from dliosim.readable import percent, seconds, size
from dliosim.report.answer_sentences import advice_rows, sentence
from dliosim.report.first_lines import ROW, FirstRows, Row, first_lines, fit_rows, name_forms, title_results
from dliosim.report.phase_titles import group_phases, name_epochs
from dliosim.report.run.checkpoint_costs import best_intervals
from dliosim.report.text_table import shorten_name

#: Saves and restores that held the ranks for more than this share always have their row.
_LARGE = 0.1

#: Parts of the time are named from this share on, and no more than this many.
_WORTH_A_WORD, _PARTS = 0.01, 3

#: A rest below this share may be left out where it makes the line too long.
_SMALL = 0.1

#: Where bytes came from.
_GOT_FROM = {"device": " from the device", "memory": " from memory, not storage"}

_NAMES = {"oversleep": "late wake-ups", "sync wait": "sync", "arrival wait": "requests", "checkpoint": "saves"}


def answer_lines(run: RunSummary) -> str:
    """Return the first lines of a run's report, at most 9: a title, and a line for each question that it can answer."""
    return first_lines(*answer_rows(run))


def answer_rows(run: RunSummary) -> FirstRows:
    """Return the title and the rows of the first lines; for loops after the first one that reads, only the answer."""
    whole, short = (_answer_rows(run, with_all) for with_all in (True, False))
    return whole if len(whole[1]) == len(short[1]) else short


def order_answers(run: RunSummary) -> list[Answer]:
    """Return the answers of a run: those of loops that read before the others."""
    unread = {loop.name for loop in run.loops if loop.reads_nothing}
    return sorted(run.answers, key=lambda one: one.loop in unread)


def _answer_rows(run: RunSummary, with_all: bool) -> FirstRows:
    groups = sorted(group_phases(run.loops), key=lambda runs: runs[0].reads_nothing)
    answers = order_answers(run)
    accelerators = shorten_name(dict(run.environment.details).get("accelerator", "accelerators"))
    rows = list(_main_rows(groups[0], answers[0], with_all, accelerators)) if answers else []
    # After the verdict, as who gives an MTBF asks how often to save.
    rows[1:1] = [
        *(("ALSO", text) for text in _other_answers(answers[1:])),
        *(("INTERVAL", text) for text in best_intervals(run)),
    ]
    phases: dict[str, Sequence[FilePhase]] = {"SAVES": run.saves, "RESTORES": run.restores}
    rows += [row for name, some in phases.items() for row in _file_rows(name, some, run)]
    large = [name for name, some in phases.items() if _greatest_share(some, run) > _LARGE]
    return fit_rows(_title(run), rows, advice_rows(answers[0].advice if answers else ()), large)


def _other_answers(answers: Sequence[Answer]) -> Iterator[str]:
    """Yield the answer of the second loop with its reason; of three or more loops their verdicts, in one row."""
    if len(answers) == 1:
        verdict = "; ".join([_verdict(answers[0], "", ""), *map(sentence, answers[0].reasons[:1])])
        yield f"{shorten_name(answers[0].loop)}: {verdict}"
    elif answers:
        yield "; ".join(f"{shorten_name(one.loop)}: {one.verdict}" for one in answers)


def _title(run: RunSummary) -> str:
    """Return what ran where."""
    apis = [phase.api for phase in run.loops if phase.api] or [phase.api for phase in run.phases if phase.api]
    root = next((phase.root for phase in (*run.loops, *run.phases) if phase.root is not None), "")
    if run.modelled:
        return title_results(name_forms(run.name), run.ranks, run.nodes, None, [f"MODELLED storage {run.modelled}"])
    places = {one.root: one for one in run.environment.file_systems}
    place = places.get(root) or next(iter(places.values()), None)
    used = list(dict.fromkeys(api for api in apis if api != "null"))
    forms = [", ".join(used), f"{used[0]} and others" if used else "", ""]
    return title_results(name_forms(run.name), run.ranks, run.nodes, place, forms)


def _main_rows(runs: Sequence[LoopPhase], answer: Answer, with_all: bool, accelerators: str) -> Iterator[Row]:
    """Yield the rows about a loop; LOOP with all of its largest waits if `with_all`, else in one line."""
    epochs = [epoch for phase in runs for epoch in phase.epochs]
    counted = select_epochs(epochs, answer)
    yield "ANSWER", _verdict(answer, f"{accelerators} ")
    yield from (("NOTE" if answer.verdict == FEEDS else "WHY", sentence(one)) for one in answer.reasons[:1])
    rates = _rates(answer)
    if rates:
        yield "MEMORY" if answer.source == "memory" else "STORAGE", rates
    others = [number for number in range(1, len(epochs) + 1) if number not in answer.epochs]
    if others and answer.source in ("device", "unknown", "mixed"):
        gave = "may have delivered" if answer.source == "unknown" else "delivered"
        where = f"the page cache {gave} some or all of"
        if not any(epochs[number - 1].asks_storage for number in others):
            where = "`cache memory` delivered"
        yield "MEMORY", f"{where} {name_epochs(others)}: not counted"
    whole = "the loop" if len(counted) == len(epochs) else name_epochs(answer.epochs)
    shares = _shares(counted, "reads" if answer.source in ("memory", "null") else "storage")
    rows = [f"{text} of {whole}" for many in range(len(shares), 0, -1) for text in _join_shares(shares[:many])]
    short = next((row for row in rows if len(row) <= ROW), rows[-1])
    yield "LOOP", rows[0] if with_all else short


def describe_answer(answer: Answer) -> str:
    """Return the figures behind a verdict: storage-limited utilization, goal and rates, if known."""
    return "; ".join(filter(None, [_verdict(answer).partition(": ")[2], _rates(answer)]))


def _rates(answer: Answer) -> str:
    """Return what the loop needs and what it got; an empty text if nothing was read."""
    needs, got, is_memory = answer.needs_bytes_per_second, answer.got_bytes_per_second, answer.source == "memory"
    if got is None:
        return ""
    asked = f"needs {size(needs.mean, 3)}/s, " if needs and answer.verdict != NO_STORAGE else ""
    most = "" if answer.from_storage or is_memory else "at most "
    # A loop that storage feeds reads no faster than it computes.
    verb = "asked for" if answer.verdict == FEEDS else "got"
    source = _GOT_FROM.get(answer.source, "")
    # Without compute the loop itself, with its syncs, may get far less.
    who = "reads alone" if answer.storage_utilization is None else "loop"
    return f"{who} {asked}{verb} {most}{size(got.mean, 3)}/s{source} ({name_epochs(answer.epochs)})"


def _verdict(answer: Answer, who: str = "accelerators ", what: str = " (only storage counted)") -> str:
    """Return the verdict with the storage-limited utilization: `who` is busy, and what that is."""
    alone = answer.storage_utilization
    if alone is None or answer.verdict == NO_STORAGE:
        return answer.verdict
    goal, shares = percent(answer.goal, 2), (percent(alone.mean, digits) for digits in (2, 3))
    share = next((share for share in shares if share != goal), percent(alone.mean, 2))
    return f"{answer.verdict}: {who}busy {share}{what}, goal {goal}"


def _join_shares(shares: Sequence[tuple[str, float]]) -> Iterator[str]:
    """Yield shares of the time as text: with the rest, so that they make a whole, and without a small rest."""
    text, rest = ", ".join(text for text, _ in shares), 1.0 - math.fsum(share for _, share in shares)
    yield from ([f"{text}, rest {percent(rest, 2)}"] if rest >= _WORTH_A_WORD else [])
    yield from ([text] if rest < _SMALL else [])


def _shares(epochs: Sequence[EpochSummary], reads: str) -> list[tuple[str, float]]:
    """Return how busy the ranks were, and what they waited for, as shares of all time of epochs, saves included.

    `reads` is the word for waits for data. Steps may also be held by reads while ranks wait for something else: for
    another rank that reads, or for a sync during which readers read. That is named, too, so that the shares agree with
    the storage-limited utilization.
    """
    times = {name: statistics.fmean(getattr(one, name).mean for one in epochs) for name in time_parts(EpochSummary)}
    whole = sum(times.values())
    named = {name_part(name): time / whole for name, time in times.items() if whole > 0}
    late = statistics.fmean(one.late_compute_seconds for one in epochs)
    named["oversleep"] = late / whole if whole > 0 else 0.0
    busy = named.pop("compute", 0.0) - named["oversleep"]
    hidden = statistics.fmean(map(_seconds_behind_waits, epochs)) / whole if whole > 0 else 0.0
    worth = {name: share + hidden * (name == "data wait") for name, share in named.items()}
    longest = sorted((name for name in named if worth[name] >= _WORTH_A_WORD), key=worth.__getitem__, reverse=True)
    words = _NAMES | {"data wait": reads}
    behind = {"data wait": f" (+ {percent(hidden, 2)} hidden)"} if hidden >= _WORTH_A_WORD else {}
    waits = [
        (f"{words.get(one, one)} {percent(named[one], 2)}{behind.get(one, '')}", named[one]) for one in longest[:_PARTS]
    ]
    return [*([(f"busy {percent(busy, 2)}", busy)] if busy or not waits else []), *waits]


def _seconds_behind_waits(epoch: EpochSummary) -> float:
    """Return for how long storage held the steps of an epoch beyond the ranks' own waits for data; at least 0.

    All of the steps after the first, as the storage-limited utilization is.
    """
    if epoch.storage_utilization is None:
        return 0.0
    held = epoch.storage_step_seconds * (1 - epoch.storage_utilization)
    flushing = epoch.flush_steps * (epoch.flush_data_wait_seconds or 0.0)
    clear = epoch.clear_steps * (epoch.clear_data_wait_seconds or 0.0)
    return max(held - (flushing + clear) / epoch.ranks, 0.0)


def _hold_seconds(phase: FilePhase) -> float:
    """Return for how long a save or restore held the ranks; a save in the background continues while they work."""
    return phase.verb.longest_stall_seconds if isinstance(phase, SavePhase) else phase.verb.seconds


def _greatest_share(phases: Sequence[FilePhase], run: RunSummary) -> float:
    """Return the share of the run in which saves or restores held the ranks; or that of all loops, if it is greater."""
    held = sum(map(_hold_seconds, phases)) / run.seconds if run.seconds > 0 else 0.0
    in_loops = sum(one.checkpoint_seconds.mean for one in run.epochs)
    whole = in_loops + sum(one.loop_seconds for one in run.epochs)
    return max(held, in_loops / whole if whole > 0 and phases == run.saves else 0.0)


def _file_rows(name: str, phases: Sequence[FilePhase], run: RunSummary) -> Iterator[Row]:
    """Yield number, mean time and rate of saves or restores, and the share of the run in which they held the ranks."""
    verbs = [phase.verb for phase in phases]
    whole = sum(one.seconds for one in verbs)
    if whole <= 0 or run.seconds <= 0:
        return
    is_save = name == "SAVES"
    held = sum(map(_hold_seconds, phases)) / run.seconds
    share = "" if is_save else device_share(phases)
    most = "" if is_save or share else "at most "  # memory may have given a part of what the kernel does not count
    if all(run.is_stored_on(phase, MEMORY_KINDS) for phase in phases):
        most, share = "", f" {'to' if is_save else 'from'} memory"
    flushed = sum(one.flush_seconds.max > 0 for one in verbs) if is_save else 0
    how = " async" if flushed == len(verbs) else " partly async" if flushed else ""
    rate = f"{most}{size(sum(one.bytes_once for one in verbs) / whole, 3)}/s{share}"
    drained = [one.drain_seconds.max for one in verbs if one.drain_bytes]
    then = f"; then {seconds(statistics.fmean(drained), 3)} to drain" if drained else ""
    times = f"{len(verbs)} x {seconds(whole / len(verbs), 3)}{how}"
    yield name, f"{times}, {rate}, held {percent(held, 2)} of the run{then}"


def device_share(phases: Sequence[FilePhase]) -> str:
    """Return the share of restored bytes that came from the device, in brackets; empty if it is unknown."""
    device = [one.verb.device_bytes for one in phases if one.verb.device_bytes is not None]
    content = sum(one.verb.bytes_once for one in phases)
    if len(device) < len(phases) or not content:
        return ""
    return f" ({percent(min(1.0, sum(device) / content), 2)} from the device)"
