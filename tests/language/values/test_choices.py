"""Values that a word chooses, and what is wrong with a list of them."""

from __future__ import annotations

import pytest

from dliosim.model import constant
from tests.language.conftest import Patterns

LISTS = """
param accelerator = h100
param compute     = by $accelerator: a100 636 ms, h100 normal(300 ms, max(1 ms, 2 ms)), b200 $half   "a step"
param batch       = by $accelerator: a100 4, h100 max(7, 6), b200 8
param half        = 600 ms / 2
"""
LINES = "batch $batch per rank\ncompute $compute"


@pytest.mark.parametrize(("word", "batch", "seconds"), [("a100", 4, 0.636), ("b200", 8, 0.3)])
def test_one_word_gives_each_parameter_its_value(word: str, batch: int, seconds: float, patterns: Patterns) -> None:
    loop = patterns.loop(LINES, ("accelerator", word), more=LISTS)
    assert (loop.batch, loop.compute.time) == (batch, constant(seconds))


def test_a_value_may_have_commas_in_parentheses(patterns: Patterns) -> None:
    loop = patterns.loop(LINES, more=LISTS)
    assert (loop.batch, loop.compute.time.parameters) == (7, (0.3, 0.002))


def test_values_given_for_another_word_replace_the_lists(patterns: Patterns) -> None:
    given = ("accelerator", "mine"), ("batch", "2"), ("compute", "5 ms")
    loop = patterns.loop(LINES, *given, more=LISTS)
    assert (loop.batch, loop.compute.time) == (2, constant(0.005))
    assert patterns.codes(f"{LISTS}train {{\n read d\n}}\n", ("batch", "5 ms"), ("accelerator", "mine")) != []


def test_a_value_of_another_kind_than_the_list_has_is_refused(patterns: Patterns) -> None:
    text = f'{LISTS}dataset d {{\n samples 64\n size 1 MB\n path "d"\n}}\ntrain {{\n read d\n {LINES}\n}}\n'
    assert patterns.codes(text, ("batch", "5 ms")) == ["E111"]


def test_a_word_may_be_chosen_by_another(patterns: Patterns) -> None:
    more = "param node = big\nparam accelerator = by $node: big b200, small a100\n" + LISTS.replace(
        "param accelerator = h100\n", ""
    )
    assert patterns.loop(LINES, more=more).batch == 8
    assert patterns.loop(LINES, ("node", "small"), more=more).batch == 4


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("param a = by $accelerator: v100 1", "E113"),
        ("param a = by $accelerator: h100 1, h100 2", "E003"),
        ("param a = by $accelerator: h100", "E003"),
        ("param a = by $accelerator: , h100 2", "E003"),
        ("param a = by $accelerator:", "E003"),
        ("param a = by $accelerator: h100 1, a100 1 s", "E111"),
        ("param a = by $nothing: h100 1", "E101"),
        ("param a = by $a: h100 1", "E101"),
        ("param a = by $b: h100 1\nparam b = by $a: h100 1", "E101"),
        ("param a = by $ranks: 4 1", "E101"),
        ("param a = by $accelerator: h100 (1, a100 2", "E111"),
    ],
)
def test_what_is_wrong_with_a_list_is_said(line: str, code: str, patterns: Patterns) -> None:
    text = f'param accelerator = h100\n{line}\ndataset d {{\n samples $a\n size 1 MB\n path "d"\n}}\nprepare d\n'
    assert code in patterns.codes(text)


def test_a_wrong_word_is_one_mistake_however_many_lists_there_are(patterns: Patterns) -> None:
    mistakes = patterns.mistakes(
        f'{LISTS}dataset d {{\n samples $batch\n size 1 MB\n path "d"\n}}\nprepare d\n', ("accelerator", "tpu")
    )
    assert [one.code for one in mistakes] == ["E113"]
    assert mistakes[0].message == "`accelerator` is a100, h100 or b200, and not `tpu`"
    assert mistakes[0].help == ("write `-D accelerator=a100`",)
