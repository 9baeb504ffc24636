"""Lines laid over each other: those of a file, of the one that extends it, and of -D."""

from __future__ import annotations

from pathlib import Path

import pytest

from dliosim.model import Loop, Prepare
from tests.language.conftest import DATA, Patterns

MODEL = 'checkpoint m {\n part weights 1 MB total\n path "c"\n}\n'


def loop_of(verb: object) -> Loop:
    assert isinstance(verb, Loop)
    return verb


# ---- two -D on one setting ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("train.epochs", "4"), ("train .epochs", "2")),
        (("train.last batch", "pad"), ("train.last  batch", "keep")),
        (("train.checkpoint", "m every epoch"), ("train.checkpoint", "m at end")),
        (("train.checkpoint", "m every epoch"), ("train.checkpoint", "$late")),
        (("prepare universe.transfer", "1 MB"), ("prepare.transfer", "2 MB")),
        (("train.shuffle", "off"), ("train.shuffle", "files")),
        (("m.part", "weights 2 MB total"), ("m.part", "weights 3 MB total")),
        (("late", "m at end"), ("late", "m every epoch")),
        (("seed", "1"), ("seed", "2")),
    ],
)
def test_no_override_takes_the_place_of_another(
    one: tuple[str, str], other: tuple[str, str], patterns: Patterns
) -> None:
    text = f"param late = m at end\n{DATA}{MODEL}prepare universe\ntrain {{\n read universe\n}}\nsave m\n"
    assert patterns.codes(text, one, other) == ["E102"]
    assert patterns.codes(text, other, one) == ["E102"]


def test_overrides_of_different_lines_of_a_repeated_setting_stand_next_to_each_other(patterns: Patterns) -> None:
    overrides = [
        ("train.shuffle", "samples globally"),
        ("train.shuffle", "files within shard"),
        ("m.part", "weights 2 MB total"),
        ("m.part", "rng 1 kB per rank"),
    ]
    text = f"{DATA}{MODEL}train {{\n read universe\n shuffle off\n}}\nsave m\n"
    workload = patterns.workload(text, *overrides)
    shuffle = loop_of(workload.verbs[0]).shuffle
    assert (shuffle.samples, shuffle.files) == ("globally", "within shard")
    assert [part.size for part in workload.checkpoint("m").parts] == [2_000_000, 1000]


# ---- settings that a parameter gives ------------------------------------------------------------------------------


def test_what_a_parameter_gives_is_given_twice_next_to_a_line_that_says_the_same(patterns: Patterns) -> None:
    more = f"param p = weights 100 MB total\nparam s = $t\nparam t = samples within shard\nparam c = m at end\n{DATA}"
    for line, same in (
        ("part $p", "part weights 1 MB total"),
        ("shuffle samples globally", "shuffle $s"),
        ("checkpoint $c", "checkpoint m at end"),
    ):
        part, loop = (f"{line}\n{same}\n", "") if "part" in line else ("part a 1 B total\n", f"{line}\n{same}\n")
        text = f'{more}checkpoint m {{\n{part} path "c"\n}}\ntrain {{\n read universe\n{loop}}}\nsave m\n'
        (found,) = patterns.mistakes(text)
        assert (found.code, found.labels[0].span.text) == ("E102", line.split()[0])


def test_what_a_parameter_gives_is_replaced_by_an_override_of_the_same_name(patterns: Patterns) -> None:
    text = (
        f"param s = samples globally\nparam p = weights 9 MB total\n{DATA}{MODEL.replace('weights 1 MB total', '$p')}"
    )
    text += "train {\n read universe\n shuffle $s\n}\nsave m\n"
    workload = patterns.workload(text, ("train.shuffle", "off"), ("m.part", "weights 2 MB total"))
    assert loop_of(workload.verbs[0]).shuffle.samples == "off"
    assert [part.size for part in workload.checkpoint("m").parts] == [2_000_000]


def test_which_line_an_override_replaces_may_depend_on_another_override(patterns: Patterns) -> None:
    text = f"param s = samples globally\n{DATA}train {{\n read universe\n shuffle $s\n shuffle files\n}}\n"
    overrides = [("train.shuffle", "samples within shard"), ("s", "files within shard")]
    assert patterns.codes(text, *overrides) == ["E102"]
    shuffle = loop_of(patterns.workload(text, overrides[0]).verbs[0]).shuffle
    assert (shuffle.samples, shuffle.files) == ("within shard", "globally")


# ---- extends ------------------------------------------------------------------------------------------------------

BASE = f"""
workload base
{DATA}
prepare universe
train {{
    read universe
    epochs 4
    evaluate every 2 epochs {{ read universe }}
}}
"""


def test_a_derived_evaluation_may_run_every_epoch_again(patterns: Patterns) -> None:
    patterns.file("base.dlio", BASE)
    for cadence, every in (("every epoch", 1), ("every 3 epochs", 3)):
        text = f'extends "base.dlio"\ntrain {{\n evaluate {cadence} {{ steps 5 }}\n}}\n'
        (evaluation,) = loop_of(patterns.workload(text).verbs[1]).evaluations
        assert (evaluation.every, evaluation.loop.steps) == (every, 5)


def test_a_line_of_the_derived_file_replaces_one_that_a_parameter_of_the_base_gives(patterns: Patterns) -> None:
    patterns.file("base.dlio", BASE.replace("epochs 4", "epochs 4\nshuffle $s") + "param s = samples globally\n")
    text = 'extends "base.dlio"\ntrain {\n shuffle samples within shard\n}\nprepare universe { transfer 1 MB }\n'
    prepare, train = patterns.workload(text).verbs
    assert loop_of(train).shuffle.samples == "within shard"
    assert isinstance(prepare, Prepare)
    assert prepare.access.transfer == 1_000_000


def test_what_a_file_and_its_base_both_include_is_there_once_in_either_order(patterns: Patterns) -> None:
    patterns.file("access.dlio", "param readers = 4\naccess fast {\n readers $readers\n}\n")
    patterns.file(
        "base.dlio", BASE.replace("workload base", 'workload base\ninclude "access.dlio"\nset readers = 2') + "\n"
    )
    lines = ['include "access.dlio"\n', 'extends "base.dlio"\n']
    for first, second in (lines, reversed(lines)):
        text = f"{first}{second}train {{\n read universe with fast\n}}\n"
        for change, readers in (("", 2), ("set readers = 3\n", 3)):
            assert loop_of(patterns.workload(text + change).verbs[1]).access.readers == readers


@pytest.mark.parametrize(
    ("added", "place"),
    [
        ("infer train {\n read universe\n}\n", "train"),
        ("infer {\n read universe\n}\ntrain evaluate {\n read universe\n}\n", "evaluate"),
        ("train other {\n read universe\n evaluate every epoch {\n read universe\n}\n}\n", "evaluate"),
    ],
)
def test_two_loops_of_two_files_may_not_have_one_name(added: str, place: str, patterns: Patterns) -> None:
    patterns.file("base.dlio", BASE)
    (found,) = patterns.mistakes(f'extends "base.dlio"\n{added}')
    assert found.code == "E102"
    assert found.labels[0].span.text == place
    assert [Path(label.span.source.name).name for label in found.labels] == ["main.dlio", "base.dlio"]


@pytest.mark.parametrize("of", ["", " of train"])
@pytest.mark.parametrize("again", ["", " of train"])
def test_an_expectation_of_the_only_loop_is_that_of_its_name(of: str, again: str, patterns: Patterns) -> None:
    plain = BASE.replace("evaluate every 2 epochs { read universe }", "")
    patterns.file("base.dlio", f"{plain}expect utilization{of} at least 90 %\nexpect p99{of} at most 1 s\n")
    text = f'extends "base.dlio"\nexpect utilization{again} at least 70 %\n'
    assert [each.text for each in patterns.workload(text).expectations] == [
        "p99 of train at most 1 s",
        "utilization of train at least 70 %",
    ]


def test_what_a_base_expects_of_its_only_loop_stays_so_next_to_another_loop(patterns: Patterns) -> None:
    plain = BASE.replace("evaluate every 2 epochs { read universe }", "")
    patterns.file("base.dlio", f"{plain}expect utilization at least 90 %\n")
    text = 'extends "base.dlio"\ninfer {\n read universe\n}\n'
    assert [each.loop for each in patterns.workload(text).expectations] == ["train"]
    assert patterns.codes(f"{text}expect p99 at most 1 s\n") == ["E003"]


def test_a_broken_line_of_the_derived_file_is_not_missed_as_well(patterns: Patterns) -> None:
    patterns.file("base.dlio", f"workload base\n{DATA}train {{\n epochs 4\n}}\n")
    assert patterns.codes('extends "base.dlio"\ntrain {\n raed universe\n}\n') == ["E001"]
