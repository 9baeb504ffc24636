"""Expressions and their dimensions, parameters, overrides, include, extends and `from`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.language.compile import compile_pattern
from dliosim.language.diagnostics import Mistake
from dliosim.language.source import SourceText
from dliosim.language.syntax.parser import parse
from dliosim.language.values.evaluator import Scope
from dliosim.model import Distribution, Job, Loop, Prepare
from dliosim.model.counter_rng import draw, key
from dliosim.units import COUNT, RATE, RATIO, SIZE, TIME, Dimension
from tests.language.conftest import DATA, Patterns


def evaluate(text: str) -> tuple[float, Dimension]:
    value = Scope({}, Job(6, 4)).value(parse("sum", SourceText("x", text).span(0, len(text))))
    return float(value.amount), value.dimension


@pytest.mark.parametrize(
    ("text", "amount", "dimension"),
    [
        ("1 + 2 * 3 - 4 / 2", 5, COUNT),
        ("(1 + 2) * 3", 9, COUNT),
        ("-2 + 3", 1, COUNT),
        ("2 * -3 + 10", 4, COUNT),
        ("1_000 * 2 B", 2000, SIZE),
        ("1.5 MB", 1_500_000, SIZE),
        ("1 GiB / 4 KiB", 262_144, COUNT),
        ("10 MB / 2 s", 5e6, RATE),
        ("10 MB/s * 2 s", 2e7, SIZE),
        ("10 MB / 2 MB/s", 5, TIME),
        ("50 % * 10 ms", 0.005, TIME),
        ("50 % * 50 %", 0.25, RATIO),
        ("50 % / 2", 0.25, RATIO),
        ("50 % * 8", 4, COUNT),
        ("2 min + 1 h", 3720, TIME),
        ("$ranks * $nodes + $ranks_per_node", 26, COUNT),
        ("min(3, 2, 5) + max(1 , 7)", 9, COUNT),
        ("floor(7 / 2) + ceil(7 / 2)", 7, COUNT),
        ("ceil(10 B / 3)", 4, SIZE),
        ("log2(1024)", 10, COUNT),
        ("((((((((((1))))))))))", 1, COUNT),
    ],
)
def test_expressions(text: str, amount: float, dimension: Dimension) -> None:
    assert evaluate(text) == (amount, dimension)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("1 B + 1 s", "E111"),
        ("1 + 50 %", "E111"),
        ("min(1, 1 B)", "E111"),
        ("log2(8 B)", "E111"),
        ("floor(1.5 s)", "E111"),
        ("1 / 0", "E113"),
        ("1 / (2 - 2)", "E113"),
        ("log2(0)", "E113"),
        ("floor(1, 2)", "E003"),
        ("$x", "E101"),
        ("10**10**10", "E003"),
        ("1e6", "E002"),
        ("1 +", "E003"),
        ("()", "E003"),
        ("0x10", "E002"),
        ("import", "E003"),
    ],
)
def test_expressions_that_have_no_value(text: str, code: str) -> None:
    with pytest.raises(Mistake) as caught:
        evaluate(text)
    assert caught.value.diagnostic.code == code


@given(
    st.recursive(
        st.integers(0, 10**6).map(str),
        lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(
            lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
        ),
        max_leaves=12,
    )
)
def test_arithmetic_is_that_of_integers(text: str) -> None:
    assert evaluate(text)[0] == float(eval(text))


def test_powers_that_pile_up_are_refused(patterns: Patterns) -> None:
    lines = ["param p0 = 10 * 10"] + [f"param p{n} = $p{n - 1} * $p{n - 1}" for n in range(1, 20)]
    assert patterns.codes("\n".join(lines) + DATA.replace("64", "$p19") + "prepare universe") == ["E113"]


# ---- parameters and overrides -------------------------------------------------------------------------------------


def test_a_parameter_may_be_any_phrase_of_the_setting_that_uses_it(patterns: Patterns) -> None:
    more = 'param a = shared file\nparam b = samples globally once\nparam c = 4 total\nparam d = "x/y"\nparam e = off\n'
    data = DATA.replace('path     "universe"', "path $d\n layout $a")
    loop = patterns.loop("shuffle $b\n batch $c\n sync $e", more=more, data=data)
    assert (loop.shuffle.samples, loop.shuffle.samples_once, loop.batch, loop.sync.kind) == ("globally", True, 1, "off")


def test_a_parameter_may_be_a_distribution_inside_a_phrase(patterns: Patterns) -> None:
    loop = patterns.loop("compute $t busy", more="param t = gamma(10 ms, $sd)\nparam sd = 1 ms\n")
    assert loop.compute.time == Distribution("gamma", (0.01, 0.001))
    assert loop.compute.busy
    clipped = patterns.loop("compute $t clipped to 1 ms and 2 ms", more="param t = exponential(10 ms)\n")
    assert clipped.compute.time == Distribution("exponential", (0.01,), 0.001, 0.002)


def test_parameters_are_overridden_by_any_phrase_of_the_same_kind(patterns: Patterns) -> None:
    more = "param t = 10 ms\nparam n = 4 between 1 and $ranks\nparam api = posix one of posix, mpi-independent\n"
    overrides = [("t", "exponential(2 * 5 ms)"), ("n", "$ranks - 1"), ("api", "mpi-independent")]
    loop = patterns.loop("compute $t\n steps $n\n api $api", *overrides, more=more)
    assert (loop.compute.time.kind, loop.steps, loop.access.api) == ("exponential", 3, "mpi-independent")


def test_settings_are_overridden_whether_the_file_gives_them_or_not(patterns: Patterns) -> None:
    overrides = [
        ("train.readers", "0"),
        ("universe.layout", "shared file"),
        ("train.last batch", "keep"),
        ("train.shuffle", "off"),
        ("seed", "9"),
    ]
    text = DATA + "prepare universe\ntrain {\n read universe\n readers 4\n shuffle samples globally\n}\n"
    workload = patterns.workload(text, *overrides)
    loop = workload.verbs[-1]
    assert isinstance(loop, Loop)
    assert (loop.access.readers, loop.last_batch, loop.shuffle.samples, workload.seed) == (0, "keep", "off", 9)
    assert workload.dataset("universe").layout.kind == "shared file"


def test_prepare_is_overridden_for_all_or_for_one_data_set(patterns: Patterns) -> None:
    text = DATA + DATA.replace("universe", "other") + "prepare universe\nprepare other\n"
    verbs = patterns.workload(text, ("prepare.fsync", "off"), ("prepare other.transfer", "1 MB")).verbs
    assert [(verb.fsync, verb.access.transfer) for verb in verbs if isinstance(verb, Prepare)] == [
        (False, 4 << 20),
        (False, 1_000_000),
    ]


def test_repeated_settings_are_overridden_by_name(patterns: Patterns) -> None:
    more = 'checkpoint model {\n part a 1 MB total\n part b 2 MB total\n hint "x" = "1"\n path "c"\n}\n'
    workload = patterns.workload(more + "save model", ("model.part", "b 3 MB per rank"), ("model.hint", '"y" = "2"'))
    parts = workload.checkpoint("model").parts
    assert [(part.name, part.size) for part in parts] == [("a", 1_000_000), ("b", 3_000_000)]
    assert workload.checkpoint("model").access.hints == (("x", "1"), ("y", "2"))


def test_the_own_lines_of_a_loop_come_before_those_of_its_access_and_overrides_before_both(patterns: Patterns) -> None:
    more = 'access fast {\n api posix\n readers 4\n transfer 1 MB\n hint "a" = "1"\n hint "b" = "1"\n}\n' + DATA
    text = more + 'train {\n read universe with fast\n readers 2\n hint "b" = "2"\n}\n'
    verb = patterns.workload(text, ("train.transfer", "2 MB")).verbs[0]
    assert isinstance(verb, Loop)
    assert (verb.access.readers, verb.access.transfer) == (2, 2_000_000)
    assert verb.access.hints == (("a", "1"), ("b", "2"))


def test_a_parameter_may_be_another_one_wherever_a_value_is_chosen_or_drawn(patterns: Patterns) -> None:
    more = """
        param a  = mpi-independent
        param b  = $a one of posix, mpi-independent
        param t  = gamma(10 ms, 1 ms)
        param t2 = $t
        param t3 = $t2 clipped to 1 ms and 1 s
    """
    loop = patterns.loop("api $b\n compute $t2 busy", more=more)
    assert (loop.access.api, loop.compute.time) == ("mpi-independent", Distribution("gamma", (0.01, 0.001)))
    assert patterns.loop("compute $t3 busy", more=more).compute.time == Distribution("gamma", (0.01, 0.001), 0.001, 1.0)
    text = f"{more}{DATA}train {{\n read universe\n api $b\n compute $t3 clipped to 1 s and 2 s\n}}\n"
    assert patterns.codes(text, ("a", "mpi-collective")) == ["E113", "E003"]


@pytest.mark.parametrize(("value", "fits"), [("1", True), ("8", True), ("0", False), ("9", False)])
def test_both_ends_of_a_domain_belong_to_it(patterns: Patterns, value: str, fits: bool) -> None:
    text = f"param n = 4 between 1 and 2 * $ranks\n{DATA}train {{\n read universe\n steps $n\n}}\n"
    if fits:
        assert patterns.workload(text, ("n", value))
    else:
        assert patterns.codes(text, ("n", value)) == ["E113"]


@pytest.mark.parametrize(
    ("drawn", "share"),
    [
        ("normal(1 ms, 1 s) clipped to -1 s and 1 s", "50 %"),
        ("normal(0 s, 0 s)", "100 %"),
        ("normal(5 ms, 1 ms)", "0.000029 %"),
    ],
)
def test_a_share_of_draws_is_written_without_an_exponent(patterns: Patterns, drawn: str, share: str) -> None:
    path = patterns.file("main.dlio", f"workload a\n{DATA}train {{\n read universe\n compute {drawn}\n}}\n")
    (found,) = compile_pattern(path, [], Job(4))[1]
    assert found.message == f"{share} of the draws of this distribution are 0 or less"


# ---- from, include, extends ---------------------------------------------------------------------------------------


def test_from_copies_a_data_set_and_its_overrides(patterns: Patterns) -> None:
    copies = 'dataset b from universe {\n path "b"\n}\ndataset c from b {\n samples 3\n path "c"\n}\n'
    workload = patterns.workload(f"{DATA}{copies}prepare c\nprepare b\n", ("universe.size", "2 MB"))
    assert [(data.name, data.samples, data.size.mean) for data in workload.datasets] == [("b", 64, 2e6), ("c", 3, 2e6)]


def test_an_include_brings_nouns_once_relative_to_its_file(patterns: Patterns) -> None:
    (patterns.folder / "sub").mkdir()
    patterns.file("sub/data.dlio", 'include "more.dlio"\n' + DATA)
    patterns.file("sub/more.dlio", "param n = 3\naccess fast {\n readers $n\n}\n")
    text = 'include "sub/data.dlio"\ninclude "sub/more.dlio"\nset n = 5\ntrain {\n read universe with fast\n}\n'
    verb = patterns.workload(text).verbs[0]
    assert isinstance(verb, Loop)
    assert verb.access.readers == 5


BASE = """
workload base
seed 3
param n = 4
checkpoint model {
    part a 1 MB total
    part b 1 MB total
    path "c"
}
prepare universe
repeat 2 {
    train {
        read universe
        epochs $n
        readers 4
        checkpoint model every 2 epochs
        evaluate every epoch { read universe }
    }
}
expect utilization of train at least 50 %
"""


def test_extends_merges_blocks_setting_by_setting(patterns: Patterns) -> None:
    patterns.file("base.dlio", BASE + DATA)
    text = """
        extends "base.dlio"
        set n = 8
        dataset universe { layout shared file }
        checkpoint model { part b 5 MB total }
        prepare universe afresh
        train {
            readers 1
            checkpoint model every 4 epochs
            evaluate every 2 epochs { batch 2 per rank }
        }
        save model
        expect utilization of train at least 90 %
    """
    workload = patterns.workload(text)
    prepare, repeat, save = workload.verbs
    assert isinstance(prepare, Prepare)
    assert prepare.afresh
    assert (workload.name, workload.seed, type(save).__name__) == ("example", 3, "Save")
    assert workload.dataset("universe").layout.kind == "shared file"
    assert [part.size for part in workload.checkpoint("model").parts] == [1_000_000, 5_000_000]
    loop = repeat.body[0]  # type: ignore[union-attr]
    assert isinstance(loop, Loop)
    assert (loop.epochs, loop.access.readers, [cadence.every for cadence in loop.checkpoints]) == (8, 1, [4])
    assert [(each.every, each.loop.batch) for each in loop.evaluations] == [(2, 2)]
    assert [each.value for each in workload.expectations] == [0.9]


def test_overrides_come_before_set_and_set_before_the_default(patterns: Patterns) -> None:
    patterns.file("base.dlio", BASE + DATA)
    text = 'extends "base.dlio"\nset n = 8\n'
    for overrides, epochs in (((), 8), ((("n", "9"),), 9), ((("train.epochs", "6"), ("n", "9")), 6)):
        loop = patterns.workload(text, *overrides).verbs[1].body[0]  # type: ignore[union-attr]
        assert isinstance(loop, Loop)
        assert loop.epochs == epochs


def test_the_digest_does_not_depend_on_how_things_are_spelled(patterns: Patterns) -> None:
    plain = patterns.workload(DATA + "train {\n read universe\n batch 4 per rank\n}\n")
    other = patterns.workload(
        "param b = 16  # a comment\n" + DATA + "train\t{\n batch   $b total\n\n read universe }\n"
    )
    assert plain.digest() == other.digest()
    assert plain.digest() != patterns.workload(DATA + "train {\n read universe\n batch 5 per rank\n}\n").digest()


def test_poisson_of_times_draws_whole_seconds(patterns: Patterns) -> None:
    time = patterns.loop("compute poisson(20 s)").compute.time
    assert time == Distribution("poisson", (20.0,))
    drawn = draw(time, key(1, "compute"), np.arange(10_000))
    assert (drawn == np.rint(drawn)).all() and abs(drawn.mean() - 20) < 0.3 and abs(drawn.std() - 20**0.5) < 0.2
