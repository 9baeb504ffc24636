"""The ends of what the checks of a loop allow."""

from __future__ import annotations

import pytest

from dliosim.language.diagnostics import PatternError
from dliosim.model.verbs import is_due
from tests.language.conftest import Patterns

SHARED = """
checkpoint model {
    part w 1 MB total
    path "c"
}
dataset universe {
    samples  64
    size     4 KiB
    layout   shared file
    path     "universe"
}
"""


def found(patterns: Patterns, lines: str, data: str = SHARED) -> list[str]:
    """The codes of a loop on 4 ranks, of 16 steps an epoch."""
    text = f"{data}\ntrain {{\n read universe\n {lines}\n}}\n"
    try:
        patterns.workload(text)
    except PatternError as error:
        return [each.code for each in error.diagnostics if each.is_error]
    return []


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ("epochs 5\n checkpoint model every 5 epochs", ""),
        ("epochs 5\n checkpoint model every 6 epochs", "E207"),
        ("checkpoint model every 16 steps", ""),
        ("checkpoint model every 17 steps", "E207"),
        ("sync barrier every 16 steps", ""),
        ("sync barrier every 17 steps", "E207"),
        ("epochs 5\n evaluate every 5 epochs { read universe }", ""),
        ("epochs 5\n evaluate every 6 epochs { read universe }", "E207"),
        ("epochs 5\n checkpoint model every 2 epochs from 5", ""),
        ("epochs 5\n checkpoint model every 2 epochs from 6", "E207"),
        ("epochs 5\n evaluate every 2 epochs from 5 { read universe }", ""),
        ("epochs 5\n evaluate every 2 epochs from 6 { read universe }", "E207"),
    ],
)
def test_a_cadence_may_fire_at_the_very_end(lines: str, code: str, patterns: Patterns) -> None:
    assert found(patterns, lines) == ([code] if code else [])


def test_an_evaluation_follows_a_first_epoch_and_every_few_from_there_on(patterns: Patterns) -> None:
    loop = patterns.loop("epochs 9\n evaluate every 2 epochs from 5 {\n read universe\n }")
    (evaluation,) = loop.evaluations
    assert [epoch for epoch in range(1, 10) if is_due(evaluation, epoch)] == [5, 7, 9]


@pytest.mark.parametrize(("transfer", "code"), [("4 KiB", ""), ("4095 B", "E206"), ("whole sample", "")])
def test_past_the_page_cache_a_call_may_be_one_page(transfer: str, code: str, patterns: Patterns) -> None:
    assert found(patterns, f"cache off\n transfer {transfer}") == ([code] if code else [])


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ("engine mmap\n transfer whole sample", ""),
        ("engine mmap\n transfer 4 KiB", "E211"),
        ("engine mmap\n cache memory 1 MB", ""),
        ("engine mmap\n cache off", "E206"),
        ("engine queued\n cache off\n transfer 4 KiB", ""),
        ("engine preadv\n api mpi-independent", ""),
        ("engine mmap\n api mpi-independent", "E211"),
        ("engine queued\n api mpi-independent", ""),
        ("engine preadv\n api mpi-collective", "E211"),
        ("engine queued\n api mpi-collective", "E211"),
    ],
)
def test_an_engine_goes_with_the_apis_that_have_it(lines: str, code: str, patterns: Patterns) -> None:
    assert found(patterns, lines) == ([code] if code else [])


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ("", ""),
        ("header 8 KiB", ""),
        ("header 512 B", "E206"),
        ("header 512 B\n align 4 KiB", ""),
        ("header 512 B\n align 512 B", "E206"),
    ],
)
@pytest.mark.parametrize("layout", ["shared file", "file per sample"])
def test_a_header_past_the_page_cache_is_of_whole_pages_or_the_samples_are_aligned(
    layout: str, lines: str, code: str, patterns: Patterns
) -> None:
    data = SHARED.replace("shared file", f"{layout}\n {lines}")
    assert found(patterns, "cache off", data) == ([code] if code else [])


@pytest.mark.parametrize(("form", "code"), [("raw", "E206"), ("npy", ""), ("csv", "")])
def test_only_raw_samples_can_be_asked_to_be_aligned(form: str, code: str, patterns: Patterns) -> None:
    data = SHARED.replace("4 KiB", f"1 kB\n format {form}")
    assert found(patterns, "cache off", data) == ([code] if code else [])
