"""Lines laid over each other: those of a file, of the one that extends it, and of -D."""

from __future__ import annotations

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


def test_overrides_of_different_lines_of_a_repeated_setting_stand_beside_each_other(patterns: Patterns) -> None:
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


def test_what_a_parameter_gives_is_given_twice_beside_a_line_that_says_the_same(patterns: Patterns) -> None:
    more = f"param p = weights 100 MB total\nparam s = $t\nparam t = samples within shard\nparam c = m at end\n{DATA}"
    for line, beside in (
        ("part $p", "part weights 1 MB total"),
        ("shuffle samples globally", "shuffle $s"),
        ("checkpoint $c", "checkpoint m at end"),
    ):
        part, loop = (f"{line}\n{beside}\n", "") if "part" in line else ("part a 1 B total\n", f"{line}\n{beside}\n")
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
