"""results.json read back into the figures that it was written from."""

from __future__ import annotations

from pathlib import Path

from dliosim.errors import UsageError
from dliosim.measure.answers.sources import SOURCES
from dliosim.measure.figures.aggregate import Latencies
from dliosim.measure.figures.declaration import latency_kinds
from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.rank.histogram import Quantiles
from dliosim.measure.results.run_summary import RunSummary
from dliosim.model.job import MAX_RANKS
from dliosim.report.files.results import SCHEMA_VERSION
from dliosim.report.phase_titles import group_phases, title_of
from dliosim.report.reader.typed_json import open_json, read_member, read_object


def read_run(path: Path) -> tuple[RunSummary, dict[str, Latencies]]:
    """Return the content of results.json, and for each loop title the latencies of its epochs that count together.

    Histograms are not in the file and stay empty; the latencies replace them. UsageError names what is wrong.
    """
    with open_json(path, SCHEMA_VERSION) as content:
        ranks, null = read_member(int, content, "ranks"), read_member(bool, content, "null")
        run = read_object(RunSummary, content, ranks=ranks, null=null)
        latencies = {
            read_member(str, loop, "title", "loops"): {
                kind: read_member(Quantiles | None, loop, f"{kind}_latency_seconds", "loops")
                for kind in latency_kinds(EpochSummary)
            }
            for loop in read_member(list, content, "loops")
        }
        check_job(run.ranks, run.nodes)
        for phase in run.loops:
            if title_of(phase) not in latencies:
                raise UsageError(f"loops does not have {title_of(phase)}")
        _check_answers(run)
        if run.mtbf == 0:
            raise UsageError("mtbf_seconds is not above 0")
    return run, latencies


def check_job(ranks: int, nodes: int) -> None:
    """Check that a job may have these ranks and nodes; else UsageError."""
    if not 1 <= ranks <= MAX_RANKS:
        raise UsageError(f"ranks is not between 1 and {MAX_RANKS}")
    if not 1 <= nodes <= ranks:
        raise UsageError(f"nodes is not between 1 and {ranks}")


def _check_answers(run: RunSummary) -> None:
    """Check that each loop has its answer, about epochs that it has; partial results have none."""
    groups = group_phases(run.loops) if run.answers or run.partial is None else []
    if [one.loop for one in run.answers] != [runs[0].name for runs in groups]:
        raise UsageError("answer does not have one entry a loop")
    for answer, runs in zip(run.answers, groups, strict=True):
        epochs = sum(len(one.epochs) for one in runs)
        if answer.source not in SOURCES or any(not 1 <= number <= epochs for number in answer.epochs):
            raise UsageError(f"answer has a source or an epoch that {answer.loop} does not have")
