"""Lines of a pattern for several runs of a job: what ranks multiply, what they divide, what neither explains."""

from __future__ import annotations

import pytest

from dliosim.analyze.infer.facts import Block, Fact, Line, Setting, list_settings
from dliosim.analyze.infer.scaling import add_scale, merge_lines
from dliosim.errors import TraceError


def lines_of(*settings: tuple[str, str], head: str = "train") -> list[Line]:
    return [Block(head, [Setting(name, Fact(value, "seen")) for name, value in settings])]


def merge(**values: str) -> Fact:
    """Merge one setting; the names of values are `on` and the ranks."""
    merged = merge_lines({int(name[2:]): lines_of(("samples", value)) for name, value in values.items()})
    (setting,) = list_settings(merged)
    return setting.fact


@pytest.mark.parametrize(
    ("two", "four", "merged"),
    [
        ("1_000", "2_000", "500 * $ranks"),
        ("100", "50", "max(floor(200 / $ranks), 1)"),
        ("state 500 MB total", "state 1 GB total", "state 250 MB * $ranks total"),
        ("20 ms", "10 ms", "40 ms / $ranks"),
        ("6 files in 3 folders", "12 files in 3 folders", "3 * $ranks files in 3 folders"),
        ("1000", "1010", "1010"),
    ],
)
def test_numbers_that_ranks_explain(two: str, four: str, merged: str) -> None:
    fact = merge(on2=two, on4=four)
    assert (fact.value, fact.is_sure) == (merged, True)


@pytest.mark.parametrize(
    ("two", "four"),
    [
        ("100", "300"),
        ("file per sample", "12 files"),
        ("6 files in 3 folders", "12 files in 6 folders"),
        ("", "8 per rank"),
        ("5 kB", "normal(5 kB, 1 kB)"),
    ],
)
def test_what_ranks_do_not_explain_is_a_guess_with_all_values(two: str, four: str) -> None:
    fact = merge(on2=two, on4=four)
    assert (fact.value, fact.is_sure) == (four, False)
    assert all(value in fact.why for value in (two or "unknown", four, "on 2, 4 ranks"))


def test_three_runs_must_agree() -> None:
    assert merge(on1="10", on2="20", on5="50").value == "10 * $ranks"
    assert not merge(on1="10", on2="20", on5="30").is_sure


def test_a_guess_in_one_run_is_a_guess_in_all() -> None:
    sure, guess = lines_of(("batch", "4 per rank")), [Block("train", [Setting("batch", Fact("4 per rank", "", False))])]
    for runs in ({1: sure, 2: guess}, {1: guess, 2: sure}):
        (setting,) = list_settings(merge_lines(runs))
        assert not setting.fact.is_sure


def test_settings_of_different_blocks_are_different() -> None:
    runs = {ranks: [*lines_of(("size", f"{ranks} kB")), *lines_of(("size", "7 kB"), head="infer")] for ranks in (1, 2)}
    assert [one.fact.value for one in list_settings(merge_lines(runs))] == ["1 kB * $ranks", "7 kB"]


def test_runs_with_different_blocks_are_refused() -> None:
    with pytest.raises(TraceError, match="the runs on 2 and 1 ranks have different"):
        merge_lines({1: lines_of(("size", "1 kB")), 2: lines_of(("size", "2 kB"), head="infer")})


def test_settings_of_one_head_in_a_block_are_kept_in_their_order() -> None:
    runs = {
        ranks: lines_of(("checkpoint", f"model every {2 * ranks} steps"), ("checkpoint", "model2 every 5 epochs"))
        for ranks in (1, 2)
    }
    assert [one.fact.value for one in list_settings(merge_lines(runs))] == [
        "model every 2 * $ranks steps",
        "model2 every 5 epochs",
    ]


def test_a_setting_that_the_run_on_most_ranks_does_not_have_is_unknown() -> None:
    merged = merge_lines({1: lines_of(("batch", "4"), ("last batch", "keep")), 2: lines_of(("batch", "4"))})
    (_, last) = list_settings(merged)
    assert (last.head, last.fact.value, last.fact.is_sure) == ("last batch", "", False)
    assert "keep" in last.fact.why


def test_what_fewer_ranks_cannot_show_is_left_to_the_run_on_most_ranks() -> None:
    merged = merge_lines({1: lines_of(("batch", "4"), ("shard", "")), 2: lines_of(("batch", "4"))})
    assert [one.head for one in list_settings(merged)] == ["batch"]


def test_comments_are_no_blocks_and_other_repeats_are_said() -> None:
    few: list[Line] = [Block("repeat 3", ["save model"])]
    many: list[Line] = ["# ? 3 MB were read", Block("repeat 9", ["save model"])]
    merged = merge_lines({2: few, 4: many})
    assert merged[:-1] == many
    assert "3; 9 on 2, 4 ranks" in str(merged[-1])


@pytest.mark.parametrize(
    ("two", "four", "merged"),
    [("21", "42", "max(floor(10.500000 * $ranks), 1)"), ("20_000_000_000", "40_000_000_000", "10000000000 * $ranks")],
)
def test_multiples_that_any_number_of_ranks_can_have(two: str, four: str, merged: str) -> None:
    assert merge(on2=two, on4=four).value == merged


def test_distributions_that_were_fitted_to_each_run_are_not_all_in_the_comment() -> None:
    fact = merge(on2="normal(5 kB, 1 kB)", on4="gamma(6 kB, 2 kB)")
    assert (fact.value, fact.is_sure) == ("gamma(6 kB, 2 kB)", False)
    assert fact.why == "fitted to each run, this to that on 4 ranks"


def test_a_parameter_multiplies_samples_and_files_of_one_run() -> None:
    facts = {"samples": Fact("60", "read", False), "layout": Fact("6 files in 3 folders", "")}
    lines: list[Line] = ["workload NAME", Block("dataset data", [Setting(*each) for each in facts.items()])]
    scaled = list(add_scale(lines))
    assert [one.fact for one in list_settings(scaled)] == [
        Fact("ceil(60 * $scale)", "read", False),
        Fact("ceil(6 * $scale) files in 3 folders", ""),
    ]
    assert [line for line in scaled if isinstance(line, str) and line.startswith("param scale = 1 ")]
    unscaled: list[Line] = ["workload NAME", Block("checkpoint model", [])]
    assert list(add_scale(unscaled)) == unscaled
