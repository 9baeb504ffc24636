"""compare.json read back: the variants of one run, and the comparison of each with the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dliosim.measure.histogram import Quantiles
from dliosim.measure.machine import Environment
from dliosim.report.reader.fields import Fields
from dliosim.report.reader.results import parse_environment, parse_quantiles

_VERSION = 1

#: The kinds of comparisons other than of loops.
_STALLS = ("save", "restore")

#: The verdicts of a variant against the reference.
FASTER, SLOWER, ALIKE, UNJUDGED, REFERENCE = VERDICTS = (
    "faster",
    "slower",
    "no difference shown",
    "not judged",
    "reference",
)


@dataclass(frozen=True, slots=True)
class StallTimes:
    """The times that a save or restore stalled the job: medians over passes, of the slowest rank."""

    seconds: float  #: stall; s
    longest: float  #: longest stall of any pass; s
    complete: float | None  #: time until all is written or read; s
    bytes: int  #: bytes of all ranks
    files: int  #: files of all ranks
    calls: int  #: calls of all ranks
    call: float | None  #: time in calls; s
    open_close: float | None  #: time to open and close files; s
    send: float | None  #: time to pass bytes to writers, or from readers; s
    file_sync: float | None  #: time to sync files; s
    commit: float | None  #: time of the commit; s
    rename: float | None  #: time of renames; s


@dataclass(frozen=True, slots=True)
class SavedVariant:
    """One variant over all repetitions. A figure is None where it does not exist.

    A variant of saves or restores has `stall`, and the fields that only loops have are None. Shares are of the time of
    all ranks.
    """

    label: str  #: the variant as text
    settings: tuple[tuple[str, str], ...]  #: (name, value) of each varied setting
    bytes_per_second: float | None  #: rate; B/s
    seconds: tuple[float, ...]  #: time of each pass; s
    ratio: float | None  #: rate by the reference's rate; of saves and restores the reference's stall by its stall
    ratio_low: float | None  #: lower end of the interval of `ratio`
    ratio_high: float | None  #: upper end of the interval of `ratio`
    p_adjusted: float | None  #: p, adjusted for the number of variants
    smallest_difference: float | None  #: smallest difference that could have been shown, as a share of the rate
    verdict: str  #: one of `VERDICTS`
    samples_per_second: float | None = None  #: rate; samples/s
    data_wait_share: float | None = None  #: share of data wait
    compute_share: float | None = None  #: share of compute
    sync_wait_share: float | None = None  #: share of sync wait
    tool_share: float | None = None  #: share of the tool
    processing_share: float | None = None  #: share of decoding and preprocessing
    amplification: float | None = None  #: bytes of read calls by bytes asked
    batch_latency: Quantiles | None = None  #: batch latency; s
    two_phase: str | None = None  #: two-phase: `engaged`, `not engaged` or `unknown`; None without collective reads
    order_hash: str = ""  #: hash of the samples in their order, 16 hexadecimal digits
    checkpoint_seconds: float | None = None  #: time that saves held the ranks; s
    stall: StallTimes | None = None  #: times of a save or restore


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
    verdict: tuple[str, ...]  #: sentences of the verdict

    @property
    def is_stall_comparison(self) -> bool:
        """True if stalls of the job are compared, False if rates of a loop are."""
        return not self.what.startswith("loop ")


def parse_comparison(found: Fields) -> ComparisonResult:
    """Return the content of compare.json; UsageError where it is wrong."""
    version = found.whole("schema_version")
    if version != _VERSION:
        raise found.field_error("schema_version", f"is {version}, and this dliosim reads {_VERSION}")
    # Older files have no `what`: they are all comparisons of loops.
    what = found.text("what") if found.has("what") else "loop"
    if what not in ("loop", *_STALLS):
        raise found.field_error("what", f"is none of loop, {', '.join(_STALLS)}")
    stalls = what in _STALLS
    return ComparisonResult(
        name=found.text("name"),
        title=found.text("title"),
        overrides=found.pairs("overrides"),
        caches=found.text("caches"),
        ranks=found.whole("ranks"),
        nodes=found.whole("nodes"),
        environment=parse_environment(found.child("environment")),
        what=f"{what} {found.text('checkpoint' if stalls else 'loop')}",
        varied=tuple((one.text("name"), one.texts("values")) for one in found.child_list("varied")),
        reference=found.text("reference"),
        repetitions=found.whole("repetitions"),
        variants=tuple(map(_parse_stall_variant if stalls else _parse_loop_variant, found.child_list("variants"))),
        not_run=tuple((one.text("label"), one.text("reason")) for one in found.child_list("not_run")),
        verdict=found.texts("verdict"),
    )


def _parse_loop_variant(found: Fields) -> SavedVariant:
    return replace(
        _parse_common(found),
        samples_per_second=found.number_or_none("rate_samples_per_second"),
        data_wait_share=found.number_or_none("data_wait_share"),
        compute_share=found.number_or_none("compute_share"),
        sync_wait_share=found.number_or_none("sync_wait_share"),
        tool_share=found.number_or_none("tool_share"),
        processing_share=found.number_or_none("processing_share") if found.has("processing_share") else 0.0,
        amplification=found.number_or_none("amplification"),
        batch_latency=parse_quantiles(found.child_or_none("batch_latency_seconds")),
        two_phase=found.text_or_none("two_phase"),
        order_hash=found.text("order_hash"),
        checkpoint_seconds=found.number_or_none("checkpoint_seconds") if found.has("checkpoint_seconds") else None,
    )


def _parse_stall_variant(found: Fields) -> SavedVariant:
    judged = _parse_common(found)
    if not judged.seconds:
        raise found.field_error("seconds", "is empty")
    stall = StallTimes(
        seconds=found.number("stall_seconds"),
        longest=max(judged.seconds),
        complete=found.number_or_none("until_complete_seconds"),
        bytes=found.whole("bytes"),
        files=found.whole("files"),
        calls=found.whole("calls"),
        call=found.number_or_none("call_seconds"),
        open_close=found.number_or_none("open_seconds"),
        send=found.number_or_none("send_seconds"),
        file_sync=found.number_or_none("file_sync_seconds"),
        commit=found.number_or_none("commit_seconds"),
        rename=found.number_or_none("rename_seconds"),
    )
    return replace(judged, stall=stall)


def _parse_common(found: Fields) -> SavedVariant:
    """Return the common fields of a variant."""
    verdict = found.text("verdict")
    if verdict not in VERDICTS:
        raise found.field_error("verdict", f"is none of {', '.join(VERDICTS)}")
    ratios = [found.number_or_none(key, least=1e-9) for key in ("ratio", "ratio_low", "ratio_high")]
    _check_order(found, ratios)
    return SavedVariant(
        label=found.text("label"),
        settings=found.text_pairs("settings"),
        bytes_per_second=found.number_or_none("rate_bytes_per_second"),
        seconds=found.numbers("seconds"),
        ratio=ratios[0],
        ratio_low=ratios[1],
        ratio_high=ratios[2],
        p_adjusted=found.number_or_none("p_adjusted"),
        smallest_difference=found.number_or_none("smallest_difference"),
        verdict=verdict,
    )


def _check_order(found: Fields, ratios: Sequence[float | None]) -> None:
    ratio, low, high = ratios
    if ratio is not None and low is not None and high is not None and not low <= ratio <= high:
        raise found.field_error("ratio", "is not between ratio_low and ratio_high")
