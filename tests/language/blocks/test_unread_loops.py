"""Loops without `read`: what they need, what they take, and that they explain themselves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.language.compile import compile_pattern
from dliosim.language.suggest.lines import list_phrases
from dliosim.language.syntax.declarations import SETTINGS, WITHOUT_DATA
from dliosim.language.unparse import explain_pattern
from dliosim.model import Job, Loop
from dliosim.model.epoch_size import steps_of_epoch
from tests.language.conftest import DATA, Patterns

SAVED = 'checkpoint c {\n part w 1 MB whole\n path "c"\n}\n'

_OF_READING = sorted({*SETTINGS["train"]} - {"read", *WITHOUT_DATA})


def loop_of(lines: str, more: str = SAVED) -> str:
    return f"{more}\ntrain {{\n steps 6\n {lines}\n}}\n"


@pytest.mark.parametrize("lines", ["compute 1 s", "checkpoint c every 2 steps", "compute 1 s\n checkpoint c at end"])
def test_steps_that_compute_or_save_need_no_data(lines: str, patterns: Patterns) -> None:
    workload = patterns.workload(loop_of(lines, SAVED if " c " in lines else ""))
    (loop,) = workload.verbs
    assert isinstance(loop, Loop)
    assert (loop.dataset, workload.datasets, workload.missing_prepares()) == ("", (), {})
    assert steps_of_epoch(loop, workload.read_dataset(loop), 4) == 6


def test_without_data_the_number_of_steps_must_be_given(patterns: Patterns) -> None:
    (mistake,) = patterns.mistakes("train {\n compute 1 s\n}\n")
    assert (mistake.code, mistake.message) == ("E003", "`train` has no `read` and no `steps`")


def test_steps_must_do_something(patterns: Patterns) -> None:
    assert patterns.codes("train {\n steps 3\n}\n") == ["E003"]


@pytest.mark.parametrize("head", _OF_READING)
def test_a_setting_of_reading_is_refused_and_the_missing_line_is_named(head: str, patterns: Patterns) -> None:
    line = 'hint "key" = "value"' if head == "hint" else f"{head} {list_phrases(head, 'train')[0]}"
    found = patterns.mistakes(DATA + loop_of(f"compute 1 ms\n {line}"))
    assert [one.code for one in found][:1] == ["E210"], line
    assert "`read universe`" in found[0].help[0]


@pytest.mark.parametrize("figure", ["utilization", "throughput", "p99"])
def test_nothing_can_be_expected_of_its_storage(figure: str, patterns: Patterns) -> None:
    bound = {"utilization": "at least 90 %", "throughput": "at least 1 GB/s", "p99": "at most 1 s"}[figure]
    text = f"{loop_of('compute 1 s', '')}expect {figure} of train {bound}\n"
    assert patterns.codes(text) == ["E211"]


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ("checkpoint c every 7 steps", "E207"),
        ("checkpoint c every 2 epochs", "E207"),
        ("compute 1 s\n sync barrier every 7 steps", "E207"),
        ("checkpoint c every 2 steps\n sync off\n for 1 s", "E211"),
        ("compute 1 s\n evaluate every 1 epochs {\n steps 2\n }", "E003"),
    ],
)
def test_what_is_checked_of_steps_is_checked_here_too(lines: str, code: str, patterns: Patterns) -> None:
    assert patterns.codes(loop_of(lines)) == [code]


@given(
    steps=st.integers(1, 50),
    epochs=st.integers(1, 4),
    milliseconds=st.integers(0, 9),
    busy=st.sampled_from(["", " busy"]),
    save=st.sampled_from(["every 1 steps", "every 1 epochs", "every 2 s", "at end"]),
    sync=st.sampled_from(["barrier", "barrier every 1 steps", "allreduce 4 kB"]),
)
def test_it_explains_itself(
    steps: int,
    epochs: int,
    milliseconds: int,
    busy: str,
    save: str,
    sync: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    patterns = Patterns(tmp_path_factory.mktemp("explained"))
    lines = f"epochs {epochs}\n compute {milliseconds} ms{busy}\n checkpoint c {save}\n sync {sync}"
    text = f"{SAVED}\ntrain {{\n steps {steps}\n {lines}\n}}\n"
    explained = explain_pattern(patterns.file("main.dlio", f"workload example\n{text}"), [], Job(4))
    again = patterns.folder / "explained.dlio"
    again.write_text(explained)
    assert compile_pattern(again, [], Job(4))[0].digest() == patterns.workload(text).digest()


def test_a_step_that_reads_nothing_has_no_samples_to_compute(patterns: Patterns) -> None:
    assert patterns.codes(loop_of("compute 1 ms per sample", "")) == ["E210"]
