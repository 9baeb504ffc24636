"""compare.json read back: variants of one run, and how each did against the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dliosim.measure.figures import Environment
from dliosim.measure.histogram import Quantiles
from dliosim.report.saved.fields import Fields
from dliosim.report.saved.results import environment_of, quantiles_of

_VERSION = 1

#: What may be said of a variant against the reference.
FASTER, SLOWER, ALIKE, UNJUDGED, REFERENCE = VERDICTS = (
    "faster",
    "slower",
    "no difference shown",
    "not judged",
    "reference",
)


@dataclass(frozen=True, slots=True)
class Variant:
    """One variant over all repetitions. `ratio` is its rate by that of the reference, with its interval.

    `settings` are (name, value) of what is varied. Shares are of the time of all ranks; figures that were not to be had
    are None. `smallest_difference` is the smallest share of the rate that could have been shown.
    """

    label: str
    settings: tuple[tuple[str, str], ...]
    samples_per_second: float | None
    bytes_per_second: float | None
    seconds: tuple[float, ...]
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    p_adjusted: float | None
    smallest_difference: float | None
    verdict: str
    data_wait_share: float | None
    compute_share: float | None
    sync_wait_share: float | None
    tool_share: float | None
    processing_share: float | None
    amplification: float | None
    batch_latency: Quantiles | None
    two_phase: str | None
    order_hash: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """A whole comparison; `not_run` has label and reason of each variant that could not be, `verdict` sentences."""

    name: str
    title: str
    overrides: tuple[tuple[str, str], ...]
    caches: str
    ranks: int
    nodes: int
    environment: Environment
    loop: str
    varied: tuple[tuple[str, tuple[str, ...]], ...]
    reference: str
    repetitions: int
    variants: tuple[Variant, ...]
    not_run: tuple[tuple[str, str], ...]
    verdict: tuple[str, ...]


def comparison_of(found: Fields) -> Comparison:
    """What compare.json says; UsageError where it is not as it must be."""
    version = found.whole("schema_version")
    if version != _VERSION:
        raise found.wrong("schema_version", f"is {version}, and this dliosim reads {_VERSION}")
    return Comparison(
        name=found.text("name"),
        title=found.text("title"),
        overrides=found.pairs("overrides"),
        caches=found.text("caches"),
        ranks=found.whole("ranks"),
        nodes=found.whole("nodes"),
        environment=environment_of(found.one("environment")),
        loop=found.text("loop"),
        varied=tuple((one.text("name"), one.texts("values")) for one in found.many("varied")),
        reference=found.text("reference"),
        repetitions=found.whole("repetitions"),
        variants=tuple(map(_variant, found.many("variants"))),
        not_run=tuple((one.text("label"), one.text("reason")) for one in found.many("not_run")),
        verdict=found.texts("verdict"),
    )


def _variant(found: Fields) -> Variant:
    verdict = found.text("verdict")
    if verdict not in VERDICTS:
        raise found.wrong("verdict", f"is none of {', '.join(VERDICTS)}")
    ratios = [found.number_or_none(key, least=1e-9) for key in ("ratio", "ratio_low", "ratio_high")]
    _check_order(found, ratios)
    return Variant(
        label=found.text("label"),
        settings=found.text_pairs("settings"),
        samples_per_second=found.number_or_none("rate_samples_per_second"),
        bytes_per_second=found.number_or_none("rate_bytes_per_second"),
        seconds=found.numbers("seconds"),
        ratio=ratios[0],
        ratio_low=ratios[1],
        ratio_high=ratios[2],
        p_adjusted=found.number_or_none("p_adjusted"),
        smallest_difference=found.number_or_none("smallest_difference"),
        verdict=verdict,
        data_wait_share=found.number_or_none("data_wait_share"),
        compute_share=found.number_or_none("compute_share"),
        sync_wait_share=found.number_or_none("sync_wait_share"),
        tool_share=found.number_or_none("tool_share"),
        processing_share=found.number_or_none("processing_share") if found.has("processing_share") else 0.0,
        amplification=found.number_or_none("amplification"),
        batch_latency=quantiles_of(found.one_or_none("batch_latency_seconds")),
        two_phase=found.text_or_none("two_phase"),
        order_hash=found.text("order_hash"),
    )


def _check_order(found: Fields, ratios: Sequence[float | None]) -> None:
    ratio, low, high = ratios
    if ratio is not None and low is not None and high is not None and not low <= ratio <= high:
        raise found.wrong("ratio", "does not lie within ratio_low and ratio_high")
