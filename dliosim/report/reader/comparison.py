"""compare.json read back: the variants of one run, and the comparison of each with the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dliosim.compare.answer import USE
from dliosim.compare.pass_figures import LOOP, STALL
from dliosim.compare.result import ComparisonAnswer
from dliosim.measure.answers.sources import SOURCES
from dliosim.measure.rank.histogram import Quantiles
from dliosim.measure.results.machine import Environment
from dliosim.model.job import MAX_RANKS
from dliosim.report.files.results import COMPARE_VERSION
from dliosim.report.reader.by_type import read_object, read_quantiles
from dliosim.report.reader.fields import Fields
from dliosim.report.reader.results import parse_environment

# compare.json has an object for each pass, and no file of more objects is read (`boundedjson`).
_MOST_PASSES = 1 << 20

#: The kinds of comparisons other than of loops.
_STALLS = ("save", "restore")

#: The verdicts of a variant against the reference.
FASTER, SLOWER, EQUAL, UNJUDGED, REFERENCE = VERDICTS = (
    "faster",
    "slower",
    "no difference shown",
    "not judged",
    "reference",
)


@dataclass(frozen=True, slots=True)
class SavedVariant:
    """One variant over all repetitions. A figure is None where it does not exist."""

    label: str  #: the variant as text
    settings: tuple[tuple[str, str], ...]  #: (name, value) of each varied setting
    seconds: tuple[float, ...]  #: time of each pass; s
    ratio: float | None  #: rate by the reference's rate; of saves and restores the reference's stall by its stall
    ratio_low: float | None  #: lower end of the interval of `ratio`
    ratio_high: float | None  #: upper end of the interval of `ratio`
    p_adjusted: float | None  #: p, adjusted for the number of variants
    smallest_difference: float | None  #: smallest difference that could have been shown, as a share of the rate
    verdict: str  #: one of `VERDICTS`
    figures: Mapping[str, float | None]  #: other figures, by their keys in compare.json
    batch_latency: Quantiles | None = None  #: batch latency of loops; s
    two_phase: str | None = None  #: two-phase: `engaged`, `not engaged` or `unknown`; None without collective reads
    order_hash: str = ""  #: hash of the samples in their order, 16 hexadecimal digits


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
    varied: tuple[tuple[str, tuple[str, ...]], ...]  #: (name, values) of each varied setting
    reference: str  #: label of the first variant
    repetitions: int  #: passes of each variant that count
    variants: tuple[SavedVariant, ...]  #: results of the variants that ran
    not_run: tuple[tuple[str, str], ...]  #: (label, reason) of each variant that did not run
    without_saves: bool  #: true for a loop whose checkpoints were left out
    answer: ComparisonAnswer  #: what to use, or why nothing can be said
    notes: tuple[str, ...]  #: sentences below the answer

    @property
    def is_stall_comparison(self) -> bool:
        """True if stalls of the job are compared, False if rates of a loop are."""
        return not self.what.startswith("loop ")


def parse_comparison(found: Fields) -> ComparisonResult:
    """Return the content of compare.json; UsageError where it is wrong."""
    found.check_version(COMPARE_VERSION)
    what = found.text("what")
    if what not in ("loop", *_STALLS):
        raise found.field_error("what", f"is none of loop, {', '.join(_STALLS)}")
    stalls, ranks = what in _STALLS, found.whole("ranks", 1, MAX_RANKS)
    return read_object(
        ComparisonResult,
        found,
        ranks=ranks,
        nodes=found.whole("nodes", 1, ranks),
        repetitions=found.whole("repetitions", 1, _MOST_PASSES),
        overrides=found.pairs("overrides"),
        environment=parse_environment(found.child("environment")),
        what=f"{what} {found.text('checkpoint' if stalls else 'loop')}",
        varied=tuple((one.text("name"), one.texts("values")) for one in found.child_list("varied")),
        variants=tuple(_parse_variant(one, stalls) for one in found.child_list("variants")),
        not_run=tuple((one.text("label"), one.text("reason")) for one in found.child_list("not_run")),
        answer=_parse_answer(found.child("answer")),
    )


def _parse_answer(found: Fields) -> ComparisonAnswer:
    answer = read_object(ComparisonAnswer, found)
    if answer.source not in SOURCES:
        raise found.field_error("source", f"is none of {', '.join(SOURCES)}")
    if answer.verdict != USE and not answer.reasons:
        raise found.field_error("reasons", "is empty")
    if answer.verdict == USE and answer.use is None:
        raise found.field_error("use", "is not given")
    return answer


def _parse_variant(found: Fields, stalls: bool) -> SavedVariant:
    verdict = found.text("verdict")
    if verdict not in VERDICTS:
        raise found.field_error("verdict", f"is none of {', '.join(VERDICTS)}")
    ratios = [found.number_or_none(key, least=1e-9) for key in ("ratio", "ratio_low", "ratio_high")]
    _check_order(found, ratios)
    seconds = found.numbers("seconds")
    if stalls and not seconds:
        raise found.field_error("seconds", "is empty")
    subject = STALL if stalls else LOOP
    return read_object(
        SavedVariant,
        found,
        seconds=seconds,
        ratio=ratios[0],
        ratio_low=ratios[1],
        ratio_high=ratios[2],
        verdict=verdict,
        figures={key: found.number_or_none(key) for key in (*subject.means, *subject.medians, *subject.shares)}
        | {key: None if found.is_null(key) else found.whole(key) for key in subject.counts},
        batch_latency=None if stalls else read_quantiles(found, "batch_latency_seconds"),
        two_phase=None if stalls else found.text_or_none("two_phase"),
        order_hash="" if stalls else found.text("order_hash"),
    )


def _check_order(found: Fields, ratios: Sequence[float | None]) -> None:
    ratio, low, high = ratios
    if ratio is not None and low is not None and high is not None and not low <= ratio <= high:
        raise found.field_error("ratio", "is not between ratio_low and ratio_high")
