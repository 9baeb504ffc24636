"""results.json and compare.json read back into the figures that they were written from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dliosim.compare.answer import USE
from dliosim.compare.experiment import ExcludedVariant, VariedSetting
from dliosim.compare.pass_figures import LOOP, STALL
from dliosim.compare.result import ComparisonAnswer
from dliosim.compare.statistics import EQUAL, FASTER, SLOWER, UNJUDGED
from dliosim.errors import UsageError
from dliosim.measure.answers.sources import SOURCES
from dliosim.measure.figures.aggregate import Latencies
from dliosim.measure.figures.declaration import latency_kinds
from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.rank.histogram import Quantiles
from dliosim.measure.results.machine import Environment
from dliosim.measure.results.run_summary import RunSummary
from dliosim.model.job import MAX_RANKS
from dliosim.report.files.results import COMPARE_VERSION, SCHEMA_VERSION
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


# The kinds of verbs that are compared.
_KINDS = ("loop", "save", "restore")

# Axes of ratios are logarithmic.
_LEAST_RATIO = 1e-9

#: The verdict of the reference, and those of all variants.
REFERENCE = "reference"
VERDICTS = (FASTER, SLOWER, EQUAL, UNJUDGED, REFERENCE)


@dataclass(frozen=True, slots=True)
class SavedVariant:
    """One variant over all repetitions. A figure is None if it does not exist."""

    label: str  #: the variant as text
    settings: tuple[tuple[str, str], ...]  #: (name, value) of each varied setting
    added: str | None  #: why it is there though the user did not ask for it
    api: str  #: api of its access
    hints_asked: tuple[tuple[str, str], ...]  #: pairs of MPI_Info as given
    notes: tuple[str, ...]  #: notes of its loop
    resident_share: float | None  #: share of the bytes that were in the page cache before passes
    seconds: tuple[float, ...]  #: time of each pass; s
    ratio: float | None  #: rate by the reference's rate; of saves and restores the reference's stall by its stall
    ratio_low: float | None  #: lower end of the interval of `ratio`
    ratio_high: float | None  #: upper end of the interval of `ratio`
    p_adjusted: float | None  #: p, adjusted for the number of variants
    smallest_difference: float | None  #: smallest difference that could have been shown, as a share of the rate
    verdict: str  #: one of `VERDICTS`
    figures: Mapping[str, float | None]  #: other figures, by their keys in compare.json
    batch_latency: Quantiles | None = None  #: batch latency of loops; s


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """A whole comparison."""

    name: str  #: name of the workload
    title: str  #: title of the workload
    overrides: tuple[tuple[str, str], ...]  #: (name, value) of each `-D`
    caches: str  #: state of the caches before each pass; empty if not set
    ranks: int  #: number of ranks
    nodes: int  #: number of nodes
    environment: Environment  #: machine and libraries
    what: str  #: target: `loop NAME`, `save NAME` or `restore NAME`
    varied: tuple[VariedSetting, ...]  #: varied settings
    reference: str  #: label of the first variant
    repetitions: int  #: passes of each variant that count
    variants: tuple[SavedVariant, ...]  #: results of the variants that ran
    not_run: tuple[ExcludedVariant, ...]  #: variants that did not run
    without_saves: bool  #: true for a loop whose checkpoints were left out
    modelled: str  #: name of the described storage on which calls waited; empty if there were files
    answer: ComparisonAnswer  #: what to use, or why nothing can be said
    notes: tuple[str, ...]  #: sentences below the answer

    @property
    def is_stall_comparison(self) -> bool:
        """True if stalls of the job are compared, False if rates of a loop are."""
        return not self.what.startswith("loop ")


def read_comparison(path: Path) -> ComparisonResult:
    """Return the content of compare.json; UsageError names what is wrong."""
    with open_json(path, COMPARE_VERSION) as content:
        return parse_comparison(content)


def parse_comparison(content: dict[str, Any]) -> ComparisonResult:
    """Return a comparison from the content of compare.json; UsageError names what is wrong."""
    what = read_member(str, content, "what")
    if what not in _KINDS:
        raise UsageError(f"what is none of {', '.join(_KINDS)}")
    variants = enumerate(read_member(list, content, "variants"))
    found = read_object(
        ComparisonResult,
        content,
        what=f"{what} {read_member(str, content, 'loop' if what == 'loop' else 'checkpoint')}",
        variants=tuple(_read_variant(one, f"variants[{i}]", what != "loop") for i, one in variants),
    )
    check_job(found.ranks, found.nodes)
    answer = found.answer
    if answer.source not in SOURCES:
        raise UsageError(f"answer.source is none of {', '.join(SOURCES)}")
    if answer.use is None if answer.verdict == USE else not answer.reasons:
        raise UsageError("answer has neither a variant to use nor reasons")
    return found


def _read_variant(content: dict[str, Any], where: str, stalls: bool) -> SavedVariant:
    subject = STALL if stalls else LOOP
    kinds: dict[str, Any] = dict.fromkeys((*subject.means, *subject.medians, *subject.shares), float | None)
    kinds |= dict.fromkeys(subject.counts, int | None)
    latency = None if stalls else read_member(Quantiles | None, content, "batch_latency_seconds", where)
    figures = {key: read_member(kind, content, key, where) for key, kind in kinds.items()}
    one = read_object(SavedVariant, content, where, figures=figures, batch_latency=latency)
    if one.verdict not in VERDICTS:
        raise UsageError(f"{where}.verdict is none of {', '.join(VERDICTS)}")
    if stalls and not one.seconds:
        raise UsageError(f"{where}.seconds is empty")
    ratios = [each for each in (one.ratio_low, one.ratio, one.ratio_high) if each is not None]
    if min(ratios, default=1.0) < _LEAST_RATIO:
        raise UsageError(f"{where}.ratio is below {_LEAST_RATIO}")
    if ratios != sorted(ratios):
        raise UsageError(f"{where}.ratio is not between ratio_low and ratio_high")
    return one
