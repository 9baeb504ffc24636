"""The verdict on a comparison is true for its rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from dliosim.compare.statistics import compare_variants, find_differences
from dliosim.compare.verdict import compose_verdict
from dliosim.measure.histogram import Histogram
from tests.compare.sample import ORDER, measured, outcome, with_figures
from tests.compare.synthetic import passes


def said(text: str, *variants: float, repetitions: int = 8, **changed: object) -> str:
    """The sentence with a text, of a comparison of variants so much slower than the first; empty if there is none."""
    found = outcome(measured(variants, repetitions, **changed), repetitions)
    return next((sentence for sentence in compose_verdict(found) if text in sentence), "")


def test_the_fastest_is_named_with_its_ratio_and_interval() -> None:
    sentence = said("Fastest", 1.0, 1.3, 0.8)
    assert sentence.startswith("Fastest: api=c: 1.2") and "times as fast as api=a" in sentence
    assert said("Every other one is slower", 1.0, 1.3, 0.8)


def test_the_first_one_may_be_the_fastest() -> None:
    assert said("Fastest", 1.0, 1.5) == "Fastest: api=a (the first one)."


def test_who_is_not_shown_to_be_slower_is_named() -> None:
    sentence = said("Not shown to be slower", 1.0, 0.7, 0.7)
    assert sentence.startswith("Highest rate: api=") and " than it: api=" in sentence
    assert not said("Fastest", 1.0, 0.7, 0.7)


def test_nothing_is_called_fastest_where_nothing_differs() -> None:
    assert not said("Fastest", 1.0, 1.0, 1.0)
    assert "would have shown" in said("No difference shown", 1.0, 1.0, 1.0)


def test_few_repetitions_give_no_verdict() -> None:
    assert said("No verdict: 4 repetitions", 1.0, 3.0, repetitions=4)
    assert not said("Fastest", 1.0, 3.0, repetitions=4)


def test_the_fastest_may_lose_at_a_percentile() -> None:
    tail = Histogram([1000] * 95 + [50_000_000] * 5)
    assert said("loses at p99 of batch latency: 50", 1.0, 0.5, latency=tail)
    assert not said("loses at p50", 1.0, 0.5, latency=tail)


def test_another_order_of_samples_is_reported() -> None:
    assert ORDER in said("the same samples in the same order", 1.0, 2.0)
    assert said("That is other work", 1.0, 2.0, order_hash="7")


def test_bytes_more_than_those_asked_and_two_phase_are_reported() -> None:
    assert said("api=b read 31.4 bytes for each byte asked", 1.0, 2.0, amplification=31.4)
    assert said("Two-phase engaged: api=b", 1.0, 2.0, two_phase="engaged")


def test_unequal_depth_and_unlike_caches_are_reported() -> None:
    assert said("Not at equal depth: from 1.00 calls in flight (api=a) to 32.0 (api=b)", 1.0, 0.5, depth=32.0)
    assert said("CACHES WERE NOT THE SAME", 1.0, 2.0, resident_share=0.5)
    assert not said("CACHES WERE NOT THE SAME", 1.0, 2.0)
    cold = outcome(measured((1.0, 2.0)), caches="cold")
    assert any("dropping them had no effect" in sentence for sentence in compose_verdict(cold))


def test_hints_that_were_not_granted_are_reported() -> None:
    first, second = measured((1.0, 2.0))
    asked = replace(second, hints_asked=(("cb_nodes", "4"),), hints_granted=(("cb_nodes", "1"),))
    assert 'HINT NOT GRANTED to api=b: "cb_nodes" = "4" became "1".' in compose_verdict(outcome((first, asked)))


def test_the_striping_that_was_read_back_is_reported() -> None:
    first, second = (replace(one, striping="no striping to read back") for one in measured((1.0, 2.0)))
    assert "Striping of api=a; api=b: no striping to read back." in compose_verdict(outcome((first, second)))
    other = replace(second, striping="1 target of 1 MiB")
    assert "Striping of api=b: 1 target of 1 MiB." in compose_verdict(outcome((first, other)))
    assert not said("Striping", 1.0, 2.0)


def test_more_ranks_than_cores_are_no_finding() -> None:
    found = outcome(measured((1.0, 2.0)))
    crowded = replace(found, environment=replace(found.environment, ranks_per_node=32))
    assert any(sentence.startswith("No finding about storage: 32 ranks") for sentence in compose_verdict(crowded))


@pytest.mark.parametrize(("share", "is_finding"), [(0.049, True), (0.051, False)])
def test_passes_that_waited_for_cores_are_no_finding_and_more_ranks_that_did_not_are(
    share: float, is_finding: bool
) -> None:
    first, last = measured((1.0, 2.0), core_wait_share=share)
    quiet = replace(first, passes=tuple(with_figures(one, core_wait_share=0.0) for one in first.passes))
    found = outcome((quiet, last))
    crowded = replace(found, environment=replace(found.environment, ranks_per_node=32))
    for one in (found, crowded):
        said = [sentence for sentence in compose_verdict(one) if sentence.startswith("No finding about storage")]
        assert (not said) == is_finding
        assert all("5.1 % of the time of a variant was waiting for a core" in sentence for sentence in said)


def test_the_fastest_of_equal_variants_is_rarely_called_faster_than_all_others() -> None:
    """The fastest variant is known only afterwards: that choice must not make a finding."""
    alone = sum(len(beaten_by_fastest(passes(seed, (1.0,) * 4))) == 3 for seed in range(250))
    assert alone <= 0.06 * 250


def test_the_fastest_stands_alone_where_it_is_much_faster() -> None:
    times = passes(0, (1.0, 1.5, 0.5, 1.5))
    assert find_differences(times, compare_variants(times))[0] == 2 and beaten_by_fastest(times) == {0, 1, 3}


def test_a_difference_between_two_that_are_not_the_fastest_is_not_denied() -> None:
    """A noisy fastest variant is not shown to differ from either, and the table says that these two do."""
    times = passes(8, (1.0, 1.03, 0.95), noise=(0.005, 0.005, 0.1), drift=0.0, outliers=0.0, blocks=9)
    noisy = tuple(
        replace(one, passes=tuple(with_figures(each, seconds=times[each.block, number]) for each in one.passes))
        for number, one in enumerate(measured((1.0, 1.03, 0.95)))
    )
    found = outcome(noisy)
    assert [one.verdict for one in found.comparisons] == ["slower", "no difference shown"]
    first = compose_verdict(found)[0]
    assert first.startswith("Highest rate: api=c") and first.endswith("Not shown to be slower than it: api=a; api=b.")


def test_what_the_table_calls_faster_than_the_first_is_so_in_the_sentences() -> None:
    """All pairs have a stricter correction, but those with the first were chosen before."""
    for seed in range(60):
        times = passes(seed, (1.0, 0.96, 0.97, 0.98), outliers=0.0)
        _, shown = find_differences(times, compare_variants(times))
        against = {
            number for number, one in enumerate(compare_variants(times), 1) if one.verdict != "no difference shown"
        }
        assert against == {number for first, number in shown if first == 0}


def beaten_by_fastest(times: NDArray[np.float64]) -> set[int]:
    """The variants that are shown to be slower than the fastest."""
    fastest, shown = find_differences(times, compare_variants(times))
    return {number for pair in shown if fastest in pair for number in pair if number != fastest}


def cold_only_at_the_start(root: str, share: float | None) -> bool:
    """Return whether it is said where one root is on a disk and another in memory, and the loop reads from `root`."""
    found = outcome(tuple(replace(one, root=root) for one in measured((1.0, 2.0), device_share=share)), caches="cold")
    (disk,) = found.environment.file_systems
    places = tuple(replace(disk, root=kind, kind=kind) for kind in ("ext4", "tmpfs"))
    first = replace(
        found.measured[0], passes=tuple(with_figures(one, device_share=1.0) for one in found.measured[0].passes)
    )
    sentences = compose_verdict(
        replace(
            found,
            measured=(first, *found.measured[1:]),
            environment=replace(found.environment, file_systems=places),
        )
    )
    return any("as little as 20.0 %" in line and "-D train.epochs=1" in line for line in sentences)


def test_what_began_cold_and_was_read_from_the_cache_is_reported() -> None:
    assert cold_only_at_the_start("ext4", 0.2), "another root in memory says nothing of this one"
    assert not cold_only_at_the_start("ext4", 1.0) and not cold_only_at_the_start("ext4", None)
    assert not cold_only_at_the_start("tmpfs", 0.2), "data in memory come from no device"
    assert not said("as little as", 1.0, 2.0), "it was not to be cold"


def test_a_machine_that_was_busy_before_is_reported() -> None:
    found = outcome(measured((1.0, 2.0)))
    busy = replace(found, environment=replace(found.environment, load_average=6.0))
    assert any(
        sentence.startswith("The machine was busy before (load average 6.00") for sentence in compose_verdict(busy)
    )
    assert not said("The machine was busy", 1.0, 2.0)
