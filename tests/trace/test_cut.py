"""The words of `--trace`: those it takes, and those it refuses."""

from __future__ import annotations

import pytest

from dliosim.commands.command_line.parser import Misuse, parse_words
from dliosim.trace.cut import MOST_BYTES, TraceCut, is_cut, parse_cut


@pytest.mark.parametrize(
    ("text", "steps", "ranks", "most"),
    [
        ("steps 1 to 100, ranks 0 to 7, at most 2 GB", (1, 100), (0, 7), 2_000_000_000),
        ("Step 3", (3, 3), TraceCut().ranks, MOST_BYTES),
        ("ranks 2-5", TraceCut().steps, (2, 5), MOST_BYTES),
        ("", TraceCut().steps, TraceCut().ranks, MOST_BYTES),
    ],
)
def test_a_part_of_a_run_is_named_in_words(
    text: str, steps: tuple[int, int], ranks: tuple[int, int], most: int
) -> None:
    cut = parse_cut(text)
    assert (cut.steps, cut.ranks, cut.most_bytes) == (steps, ranks, most)


@pytest.mark.parametrize(
    "text",
    ["steps 0 to 3", "ranks 7 to 2", "everything", "at most fish", "steps one to two", "at most 0 B", "at most -5 MB"],
)
def test_what_is_no_part_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"steps 1 to|`fish`|fish|like") as refused:
        parse_cut(text)
    assert text.split()[-1] in str(refused.value) or text in str(refused.value)


@pytest.mark.parametrize("text", ["steps 1 to 2, steps 5 to 6", "at most 1 GB, at most 2 GB", "rank 1, ranks 2"])
def test_a_range_that_is_given_twice_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"one range|one limit") as refused:
        parse_cut(text)
    assert f"`{text.rpartition(', ')[2]}`" in str(refused.value)


@pytest.mark.parametrize("text", ["first 10 steps", "all ranks", "only epoch 3"])
def test_words_that_mean_a_part_are_no_pattern(text: str) -> None:
    with pytest.raises(Misuse, match="is no part of a trace"):
        parse_words(["run", "cosmoflow", "--trace", text])


@pytest.mark.parametrize(
    "words",
    [
        ["run", "cosmoflow", "--trace"],
        ["run", "--trace", "cosmoflow"],
        ["run", "--trace=", "cosmoflow"],
        ["run", "--trace", "", "cosmoflow"],
    ],
)
def test_a_pattern_behind_trace_is_no_part(words: list[str]) -> None:
    parsed = parse_words(words)
    assert (parsed.pattern, parsed.trace) == ("cosmoflow", TraceCut())


def test_only_words_of_a_part_are_taken_for_one() -> None:
    assert [is_cut(word) for word in ("steps 1", "at most 1 GB", "my steps.dlio", "steps", "cosmoflow", "--json")] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]
