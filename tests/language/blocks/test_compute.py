"""`compute`: of a step or of each sample, slept or spun."""

from __future__ import annotations

import pytest

from dliosim.language.compile import compile_pattern
from dliosim.language.unparse import explain_pattern
from dliosim.model import Compute, Distribution, Job, constant
from tests.language.conftest import DATA, Patterns

GAMMA = Distribution("gamma", (0.005, 0.001))


@pytest.mark.parametrize(
    ("phrase", "compute"),
    [
        ("5 ms", Compute(constant(0.005))),
        ("5 ms busy", Compute(constant(0.005), busy=True)),
        ("5 ms per sample", Compute(constant(0.005), per_sample=True)),
        ("gamma(5 ms, 1 ms) per  sample busy", Compute(GAMMA, per_sample=True, busy=True)),
    ],
)
def test_it_is_read_and_explained(phrase: str, compute: Compute, patterns: Patterns) -> None:
    assert patterns.loop(f"compute {phrase}").compute == compute
    text = f"workload example\n{DATA}prepare universe\ntrain {{\n read universe\n compute {phrase}\n}}\n"
    again = patterns.folder / "explained.dlio"
    again.write_text(explain_pattern(patterns.file("main.dlio", text), [], Job(4)))
    assert compile_pattern(again, [], Job(4))[0].verbs[-1].compute == compute  # type: ignore[union-attr]


def test_a_parameter_may_give_all_of_it(patterns: Patterns) -> None:
    loop = patterns.loop("compute $work", more="param work = 5 ms per sample")
    assert loop.compute.per_sample


def test_the_word_of_others_is_mended(patterns: Patterns) -> None:
    text = f"{DATA}train {{\n read universe\n compute_per_sample 0.005\n}}\n"
    (found,) = patterns.mistakes(text)
    assert "`compute 0.005 s per sample`" in " ".join(found.help)
