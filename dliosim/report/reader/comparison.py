"""compare.json read back: variants of one run, and how each did against the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dliosim.measure.histogram import Quantiles
from dliosim.measure.machine import Environment
from dliosim.report.reader.fields import Fields
from dliosim.report.reader.results import parse_environment, parse_quantiles

_VERSION = 1

#: What may be compared beside loops.
_STALLS = ("save", "restore")

#: What may be said of a variant against the reference.
FASTER, SLOWER, ALIKE, UNJUDGED, REFERENCE = VERDICTS = (
    "faster",
    "slower",
    "no difference shown",
    "not judged",
    "reference",
)


@dataclass(frozen=True, slots=True)
class StallTimes:
    """How long the job stalled for a save or restore: medians of passes, seconds of the rank that took longest.

    `complete` is until all of it was written or read, `longest` the longest stall of any pass; the others are its
    parts. Bytes, files and calls are of all ranks.
    """

    seconds: float
    longest: float
    complete: float | None
    bytes: int
    files: int
    calls: int
    call: float | None
    open_close: float | None
    send: float | None
    file_sync: float | None
    commit: float | None
    rename: float | None


@dataclass(frozen=True, slots=True)
class SavedVariant:
    """One variant over all repetitions. `ratio` is its rate by that of the reference, with its interval.

    Of saves and restores `ratio` is the reference's stall by its own, `stall` has what else there is, and what a loop
    has is None.

    `settings` are (name, value) of what is varied. Shares are of the time of all ranks; figures that were not to be had
    are None. `smallest_difference` is the smallest share of the rate that could have been shown.
    """

    label: str
    settings: tuple[tuple[str, str], ...]
    bytes_per_second: float | None
    seconds: tuple[float, ...]
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    p_adjusted: float | None
    smallest_difference: float | None
    verdict: str
    samples_per_second: float | None = None
    data_wait_share: float | None = None
    compute_share: float | None = None
    sync_wait_share: float | None = None
    tool_share: float | None = None
    processing_share: float | None = None
    amplification: float | None = None
    batch_latency: Quantiles | None = None
    two_phase: str | None = None
    order_hash: str = ""
    checkpoint_seconds: float | None = None
    stall: StallTimes | None = None


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """A whole comparison; `not_run` has label and reason of each variant that could not be, `verdict` sentences.

    `what` is what was compared: `loop NAME`, `save NAME` or `restore NAME`.
    """

    name: str
    title: str
    overrides: tuple[tuple[str, str], ...]
    caches: str
    ranks: int
    nodes: int
    environment: Environment
    what: str
    varied: tuple[tuple[str, tuple[str, ...]], ...]
    reference: str
    repetitions: int
    variants: tuple[SavedVariant, ...]
    not_run: tuple[tuple[str, str], ...]
    verdict: tuple[str, ...]

    @property
    def is_stall_comparison(self) -> bool:
        """Whether what is compared is how long the job stalls, not a loop's rate."""
        return not self.what.startswith("loop ")


def parse_comparison(found: Fields) -> ComparisonResult:
    """What compare.json says; UsageError where it is not as it must be."""
    version = found.whole("schema_version")
    if version != _VERSION:
        raise found.field_error("schema_version", f"is {version}, and this dliosim reads {_VERSION}")
    # Comparisons from before there were others are of loops.
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
    """What any variant has."""
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
        raise found.field_error("ratio", "does not lie within ratio_low and ratio_high")
