"""Ranks, rates and efficiency of a scaling study, one row for each run and loop.

    python scripts/scaling_table.py RESULTS...

RESULTS are directories with a results.json. A loop's rate is that of its epochs that count for the answer: their bytes
by the sum of their times, the slowest rank's; that of a verb which writes or reads files is its bytes by its time,
over all of its runs. Efficiency is the rate a rank, by the rate a rank of the run with the fewest ranks: 100 % is
perfect scaling, weak or strong. Verbs have none: how many ranks write a checkpoint, and how much, is the pattern's
choice. A `?` marks an efficiency that is not to be trusted, or is by a rate that is not; the lines below it say why.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from tabulate import tabulate

from dliosim.errors import UsageError
from dliosim.measure.answers.validity import doubt_of_oversleep, doubt_of_times
from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.results.machine import MEMORY_KINDS
from dliosim.measure.results.phase import LoopPhase, PhaseSummary
from dliosim.measure.results.run_summary import Answer, FilePhase, Reason, RunSummary, select_epochs
from dliosim.readable import ABSENT, count
from dliosim.report.answer_sentences import sentence
from dliosim.report.reader.results import read_run


def group_phases(run: RunSummary) -> dict[str, list[PhaseSummary]]:
    """Return the runs of each loop and of each verb that moves bytes."""
    found: dict[str, list[PhaseSummary]] = defaultdict(list)
    for phase in run.phases:
        if phase.epochs if isinstance(phase, LoopPhase) else isinstance(phase, FilePhase) and phase.verb.bytes:
            found[f"{phase.kind} {phase.name}".strip()].append(phase)
    return found


def answer_of(run: RunSummary, phases: Sequence[PhaseSummary]) -> Answer | None:
    """Return the answer about the storage of a loop; None of a verb, and in partial results."""
    return next((one for one in run.answers if isinstance(phases[0], LoopPhase) and one.loop == phases[0].name), None)


def rate(phases: Sequence[PhaseSummary], answer: Answer | None) -> float | None:
    """Return the bytes a second of all runs of one loop or verb, None where no bytes were moved."""
    moved, seconds = 0, 0.0
    epochs: list[EpochSummary] = []
    for phase in phases:
        if isinstance(phase, FilePhase):
            moved += phase.verb.bytes
            seconds += phase.seconds
        elif isinstance(phase, LoopPhase):
            epochs += phase.epochs
    for epoch in select_epochs(epochs, answer):
        moved += 0 if epoch.null else epoch.bytes
        seconds += epoch.loop_seconds
    return moved / seconds if moved and seconds > 0 else None


def doubt(run: RunSummary, phases: Sequence[PhaseSummary]) -> Reason | None:
    """Return why the efficiency of these runs of a loop cannot be trusted, or an empty text."""
    return doubt_of_times(run, phases, answer_of(run, phases)) or doubt_of_oversleep(phases)


def table(runs: Sequence[RunSummary]) -> list[tuple[str, int, str, str]]:
    """Return (what, ranks, GB/s, efficiency in %) of every run, those of one loop or verb together."""
    found = [(run, group_phases(run)) for run in sorted(runs, key=lambda run: run.ranks)]
    rows = []
    for name in dict.fromkeys(name for _, of_run in found for name in of_run):
        measured = [
            (run, of_run[name], rate(of_run[name], answer_of(run, of_run[name])))
            for run, of_run in found
            if name in of_run
        ]
        first = next(((run, phases, per_s / run.ranks) for run, phases, per_s in measured if per_s), None)
        for run, phases, per_s in measured:
            efficiency = ABSENT
            if first is not None and per_s and isinstance(phases[0], LoopPhase):
                doubtful = doubt(run, phases) or doubt(*first[:2])
                efficiency = f"{100 * per_s / run.ranks / first[2]:.1f}{'?' if doubtful else ''}"
            rows.append((name, run.ranks, f"{per_s / 1e9:.3f}" if per_s else ABSENT, efficiency))
    return rows


def remarks(runs: Sequence[RunSummary]) -> Iterator[str]:
    """Yield why figures are marked, a line each, and what the table does not show."""
    for run in sorted(runs, key=lambda run: run.ranks):
        doubts = [doubt(run, phases) for phases in group_phases(run).values() if isinstance(phases[0], LoopPhase)]
        for why in dict.fromkeys(map(sentence, filter(None, doubts))):
            yield f"? on {count(run.ranks, 'rank')}: {why}"
    roots = (place for run in runs for place in run.environment.file_systems if place.kind in MEMORY_KINDS)
    for root, kind in dict.fromkeys((place.root, place.kind) for place in roots):
        yield f"root {root} is in memory ({kind}): rates and efficiency say nothing about storage"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", type=Path, help="directories with a results.json")
    try:
        runs = [read_run(place / "results.json")[0] for place in parser.parse_args().results]
    except UsageError as error:
        parser.exit(2, f"{error}\n")
    headings = ["phase", "ranks", "GB/s", "efficiency %"]
    print(tabulate(table(runs), headings, disable_numparse=True, colalign=("left", "right", "right", "right")))
    for line in remarks(runs):
        print(line)


if __name__ == "__main__":
    main()
