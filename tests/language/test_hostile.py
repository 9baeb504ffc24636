"""Input that no honest user writes: one clear message, quickly, and never anything but PatternError."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dliosim import PATTERNS
from dliosim.language.compile import compile_pattern
from dliosim.language.diagnostics import PatternError, render
from dliosim.language.syntax import declarations
from dliosim.language.unparse import explain_pattern
from dliosim.model import Job, Workload
from dliosim.model.counter_rng import draw, key
from dliosim.plan.samples.sample_to_file import sample_sizes
from tests.examples import examples
from tests.language.conftest import DATA, Patterns

RawCodes = Callable[[bytes], list[str]]


def test_a_file_that_is_not_utf_8_is_refused_with_the_line(tmp_path: Path) -> None:
    (tmp_path / "a.dlio").write_bytes(b"dlio 1\nworkload caf\xe9\n")
    with pytest.raises(PatternError, match=r"0xe9 in line 2, byte 13 of it"):
        compile_pattern(tmp_path / "a.dlio", [], Job(1))


def test_an_empty_file(raw_codes: RawCodes) -> None:
    assert raw_codes(b"") == ["E005"]
    assert raw_codes(b"\n  # nothing\n\n") == ["E005"]


def test_a_byte_order_mark_and_carriage_returns_are_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "a.dlio"
    path.write_bytes(b"\xef\xbb\xbfdlio 1\r\nworkload a\r\nbarrier\r\n")
    assert compile_pattern(path, [], Job(1))[0].name == "a"


def test_what_is_not_utf_8_is_shown_with_its_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "a.dlio"
    path.write_bytes("dlio 1\nworkload é".encode() + b"\xff\n")
    with pytest.raises(PatternError) as caught:
        compile_pattern(path, [], Job(1))
    assert [found.file for found in caught.value.diagnostics] == [f"{path}:2:11"]


def test_a_pattern_has_at_most_a_thousand_loops(patterns: Patterns) -> None:
    loops = [f"train t{number} {{ read universe }}" for number in range(1001)]
    patterns.workload("\n".join([DATA, "prepare universe", *loops[:1000]]))
    assert patterns.codes("\n".join([DATA, "prepare universe", *loops])) == ["E113"]


@pytest.mark.parametrize("name", ["missing.dlio", ".", "/dev/zero", "nul\0byte", "x" * 5000])
def test_what_is_no_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(PatternError) as caught:
        compile_pattern(tmp_path / name, [], Job(1))
    assert [found.code for found in caught.value.diagnostics] == ["E103"]


def test_a_pipe_without_a_writer_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.dlio")
    with pytest.raises(PatternError):
        compile_pattern(tmp_path / "pipe.dlio", [], Job(1))


def test_files_that_include_each_other_are_together_no_larger_than_one_may_be(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.dlio").write_text("dlio 1\n" + "#" * 100_000 + "\n")
    text = "dlio 1\nworkload a\nbarrier\n" + "".join(f'include "{number}.dlio"\n' for number in range(3))
    (tmp_path / "a.dlio").write_text(text)
    with pytest.raises(PatternError, match=r"larger than 256 KiB .* together with the files before it"):
        compile_pattern(tmp_path / "a.dlio", [], Job(1))


def test_to_explain_many_lines_takes_no_longer_than_to_compile_them(tmp_path: Path) -> None:
    parts = "\n".join(f"part p{number} 1 B whole" for number in range(5_000))
    path = tmp_path / "a.dlio"
    path.write_text(f'dlio 1\nworkload a\ncheckpoint c {{\npath "c"\n{parts}\n}}\nsave c\n')
    begun = time.process_time()
    compile_pattern(path, [], Job(1))
    compiled = time.process_time()
    assert "part       p4999 1 B whole" in explain_pattern(path, [], Job(1))
    assert time.process_time() - compiled < 2.5 * (compiled - begun)


@pytest.mark.parametrize("letter", [b"(", b"{", b"}", b'"', b"$", b"-", b"\0", b"a\n", b"{\n", b"#"])
def test_ten_megabytes_of_one_thing(raw_codes: RawCodes, letter: bytes) -> None:
    begun = time.process_time()
    assert raw_codes(b"dlio 1\n" + letter * (10_000_000 // len(letter))) == ["E103"]
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    "piece", ["(", "-(", "min(", "{", "}", '"', "$a", "- ", "1+", "1*(", "a {\n", "-D", "repeat 2 {\n"]
)
def test_a_file_just_under_the_limit_of_one_thing(raw_codes: RawCodes, piece: str) -> None:
    begun = time.process_time()
    head = "dlio 1\nworkload a\nparam a = 1\nseed "
    assert raw_codes((head + piece * (250_000 // len(piece))).encode())[0] in ("E001", "E003", "E004")
    assert time.process_time() - begun < 20


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("ab", 80_000),
        ("set x{} = 1", 2000),
        ("dataset d{} {{\n samples $x{}\n}}", 2000),
        ("expect throughput of l{} at least 1 B/s", 2000),
    ],
)
def test_after_a_hundred_mistakes_the_others_are_not_looked_for(patterns: Patterns, line: str, number: int) -> None:
    found = patterns.mistakes("\n".join(line.format(each, each) for each in range(number)))
    assert len(found) == 101
    text = render(found, colour=False)
    assert text.count("error[") == 100
    assert text.endswith("\n\n… and more")
    assert "more" not in render(found[:100], colour=False)[-10:]


def test_what_nothing_refers_to_is_distinguished_from_what_an_override_took_away(patterns: Patterns) -> None:
    lines = [f"param p{number} = 1" for number in range(200)]
    text = f"{chr(10).join(lines)}\n{DATA}train {{\n read universe\n steps $p7\n}}\n"
    path = patterns.file("unused.dlio", f"workload a\n{text}")
    all_given = ([], [("train.steps", "1")], [("train.steps", "1"), ("p7", "2")])
    plain, defaulted, overridden = (compile_pattern(path, given, Job(2))[1] for given in all_given)
    # A parameter with its default is replaced on purpose.
    assert (len(plain), len(defaulted), len(overridden)) == (199, 199, 200)
    assert [found.message for found in overridden if "-D" in found.labels[0].text] == ["parameter `p7` is never used"]


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("(" * 2000 + "1" + ")" * 2000, "E003"),
        ("(" * 17 + "1" + ")" * 17, "E003"),
        ("-(" * 40 + "1" + ")" * 40, "E003"),
        ("min(" * 40 + "1" + ")" * 40, "E003"),
        ("9" * 4000, "E113"),
        ("1" + "0" * 59 + " * 1", "E113"),
        ("*".join(["9" * 50] * 70), "E113"),
        ("10**10**10", "E003"),
        ("1 / " + "9" * 59, "E112"),
        ("+".join(["1"] * 5000), "E003"),
    ],
)
def test_deep_and_huge_expressions(patterns: Patterns, value: str, code: str) -> None:
    begun = time.process_time()
    text = f"param n = 1\n{DATA}train {{\n read universe\n steps $n\n}}\n"
    assert patterns.codes(text, ("n", value)) == [code]
    assert time.process_time() - begun < 5


def test_a_long_sum_within_the_line_is_no_mistake(patterns: Patterns) -> None:
    assert patterns.loop("steps " + "+".join(["1"] * 1500)).steps == 1500


@pytest.mark.parametrize("samples", ["10_000_000_000_000", "281_474_976_710_656"])
def test_sizes_that_overflow(patterns: Patterns, samples: str) -> None:
    assert patterns.codes(DATA.replace("64", samples).replace("1 MB", "1 PB") + "prepare universe") == ["E113"]


# Fractions from 10^-350 to 10^27, in factors that are short enough to be read.
_AMOUNTS = st.builds(
    lambda digit, power: (
        f"{digit}" + "0" * power if power >= 0 else " * ".join(["0." + "0" * 49 + "1"] * -power + [f"{digit}"])
    ),
    st.integers(1, 9),
    st.integers(-7, 27),
) | st.sampled_from(["0", "0.000_000_001", "0.000_000_000_001"])


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.sampled_from(["normal", "lognormal", "gamma", "uniform", "exponential", "poisson"]), _AMOUNTS, _AMOUNTS)
def test_a_distribution_is_refused_or_draws_numbers(patterns: Patterns, kind: str, first: str, second: str) -> None:
    values = [f"{first} * 1 B", f"{second} * 1 B"][: 1 if kind in ("exponential", "poisson") else 2]
    try:
        dataset = patterns.dataset(f"samples 100\n size {kind}({', '.join(values)})\n layout shared file")
    except PatternError as error:
        assert {found.code for found in error.diagnostics if found.is_error} == {"E113"}
        return
    drawn = draw(dataset.size, key(0, "size"), np.arange(500))
    assert np.isfinite(drawn).all()
    assert int(sample_sizes(dataset, np.arange(100)).sum()) >= 100


@pytest.mark.parametrize("lines", ["compute $t", "compute gamma($t, 1 s)", "for $t", "preprocess exponential($t)"])
def test_a_time_next_to_nothing_is_refused(patterns: Patterns, lines: str) -> None:
    found = patterns.mistakes(f"param t = 1 ns / 1_000_000\n{DATA}train {{\n read universe\n {lines}\n}}")
    assert [(each.code, each.message) for each in found] == [("E113", "a time that is next to nothing")]
    assert found[0].labels[0].text == "0, or at least 1e-12 s"


@pytest.mark.parametrize(
    ("size", "samples", "fits"),
    [
        ("normal(1 PB, 8 PB)", 4500, False),  # the draws below 0 are cut off, so the mean is 3.7 PB
        ("normal(1 PB, 8 PB)", 1000, True),
        ("normal(1 PB, 8 PB) clipped to 1 B and 1 PB", 4500, True),
        ("normal(0 B, 1_000_000 PB)", 100, False),
        ("exponential(1 PB)", 4500, True),
        ("exponential(1 PB)", 5000, False),
    ],
)
def test_what_is_drawn_fits_into_63_bits(patterns: Patterns, size: str, samples: int, fits: bool) -> None:
    lines = f"samples {samples}\n size {size}\n layout shared file"
    if fits:
        dataset = patterns.dataset(lines)
        drawn = sample_sizes(dataset, np.arange(samples)).astype(float).sum()
        assert 0 < drawn < 2**62
    else:
        assert patterns.codes(f'dataset d {{\n {lines}\n path "d"\n}}\nprepare d\n') == ["E113"]


@pytest.mark.parametrize(
    ("part", "verb", "fits"),
    [
        ("1000 PB per rank", "save c", True),
        ("1000 PB total\n part b 1000 PB per rank", "save c", False),
        ("1000 PB per rank", "restore c written by 4 ranks", True),
        ("1000 PB per rank", "restore c written by 5 ranks", False),
        ("1 B total", "restore c written by 4_194_304 ranks", True),
        ("1 B total", "restore c written by 4_194_305 ranks", False),
    ],
)
def test_a_checkpoint_of_all_ranks_fits_into_63_bits(patterns: Patterns, part: str, verb: str, fits: bool) -> None:
    text = f'checkpoint c {{\n part a {part}\n writers all ranks into shared file\n path "c"\n}}\n{verb}\n'
    if fits:
        assert patterns.workload(text)
    else:
        assert patterns.codes(text) == ["E113"]


HUGE = " * ".join(["9" * 60] * 6)


@pytest.mark.parametrize(
    "line",
    [
        f"expect throughput at least {HUGE} * 1 B / 1 s",
        f"expect throughput at least 1 B / 1 s / ({HUGE})",
        f"expect p99 at most {HUGE} * 1 s",
        f"expect utilization at least {HUGE.replace(' *', ' % *')} %",
        f"param r = {HUGE.replace(' *', ' % *')} % between 1 % and 2 %",
    ],
)
def test_huge_numbers_are_out_of_range_wherever_they_stand(patterns: Patterns, line: str) -> None:
    text = f"{DATA}train {{\n read universe\n}}\n{line}\n"
    (found,) = patterns.mistakes(text)
    assert (found.code, "9999" in found.labels[0].span.text) == ("E113", True)


def test_the_mean_of_poisson_is_one_that_can_be_drawn(patterns: Patterns) -> None:
    dataset = patterns.dataset("samples 100\n size poisson(1 GB)")
    assert abs(sample_sizes(dataset, np.arange(100)).mean() / 1e9 - 1) < 1e-3
    text = 'dataset d {\n samples 100\n size poisson(1 GB + 1 B)\n path "d"\n}\nprepare d\n'
    (found,) = patterns.mistakes(text)
    assert (found.code, found.labels[0].span.text) == ("E113", "1 GB + 1 B")


@pytest.mark.parametrize(
    "path", ["/etc", "..", "a/../../b", "~/x", "", " ", "a\tb", "C:/x", "a\\\\b", "x" * 300, "a/" * 800]
)
def test_paths_that_leave_their_root(patterns: Patterns, path: str) -> None:
    assert patterns.codes(DATA.replace('"universe"', f'"{path}"') + "prepare universe") == ["E208"]


def test_an_include_loop_names_the_chain(patterns: Patterns) -> None:
    patterns.file("a.dlio", 'include "b.dlio"\n')
    patterns.file("b.dlio", 'include "a.dlio"\n')
    (found,) = patterns.mistakes('include "a.dlio"\nbarrier\n')
    assert found.code == "E103"
    assert found.labels[0].text == "a.dlio -> b.dlio -> a.dlio"


def test_a_file_that_extends_itself(patterns: Patterns) -> None:
    assert patterns.codes('extends "main.dlio"\nbarrier\n') == ["E103"]


def test_a_long_chain_of_includes_ends_in_a_message(patterns: Patterns) -> None:
    for number in range(2000):
        patterns.file(f"f{number}.dlio", f'include "f{number + 1}.dlio"\n')
    assert patterns.codes('include "f0.dlio"\nbarrier\n') == ["E103"]


def test_a_long_chain_of_parameters_and_data_sets_ends_in_a_message(patterns: Patterns) -> None:
    lines = [f"param p{number} = $p{number + 1}" for number in range(800)]
    assert patterns.codes("\n".join(lines) + DATA.replace("64", "$p0") + "prepare universe") == ["E101"]
    more = [f'dataset d{number} from d{number + 1} {{\n path "x"\n}}' for number in range(800)]
    assert "E105" in patterns.codes("\n".join(more) + "\nprepare d0\n")


def test_a_phrase_that_is_its_own_value(patterns: Patterns) -> None:
    text = f"param a = $b\nparam b = $a\n{DATA}train {{\n read universe\n shuffle $a\n compute $b\n}}\n"
    assert set(patterns.codes(text)) == {"E101"}


@pytest.mark.parametrize("value", ["", " ", "\n", "a\nb", "\x1b[31m", "}", "{", '"', "#", "x" * 10_000, "\ud800"])
def test_overrides_of_anything(patterns: Patterns, value: str) -> None:
    for name in ("n", "train.steps", "universe.path", "seed", value):
        try:
            patterns.workload(f"param n = 1\n{DATA}train {{\n read universe\n steps $n\n}}\n", (name, value))
        except PatternError as error:
            assert error.diagnostics[0].code.startswith("E")


def test_nothing_of_a_pattern_steers_the_terminal(patterns: Patterns) -> None:
    with pytest.raises(PatternError) as caught:
        patterns.workload("\x1b]0;title\x07 1\nbarrier\n")
    assert "\x1b" not in render(caught.value.diagnostics, colour=False)


@pytest.mark.parametrize("letter", ["\x1b", "\x07", "\x7f", "\x9b", "\u202e", "\u200b", "\x00"])
def test_what_is_not_printable_is_no_text(patterns: Patterns, letter: str, tmp_path: Path) -> None:
    quoted = f'"a{letter}b"'
    for line in (f"param title = {quoted}", f"param title = a{letter}b", f'access a {{\n hint "a" = {quoted}\n}}'):
        (found,) = patterns.mistakes(f"{line}\nbarrier\n")
        assert (found.code, found.labels[0].span.text) == ("E003", letter)
    assert patterns.codes("param a = b\nbarrier\n", ("a", f'"{letter}"')) == ["E003"]
    path = tmp_path / "titled.dlio"
    path.write_text(f'dlio 1\nworkload w "{letter}[31mred"\nbarrier\n', encoding="utf-8")
    with pytest.raises(PatternError, match=f"U\\+{ord(letter):04X} has no place"):
        compile_pattern(path, [], Job(1))


def test_letters_of_any_language_are_text(patterns: Patterns) -> None:
    text = DATA.replace('"universe"', '"données/数据"') + 'param t = "größe"\nprepare universe\n'
    assert patterns.workload(text).dataset("universe").path == "données/数据"


def test_errors_travel_between_processes_and_keep_their_text(patterns: Patterns) -> None:
    with pytest.raises(PatternError) as caught:
        patterns.workload("nonsense\n")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.code, copy.exit_code) == (str(caught.value), "E001", 2)


def compiled(path: Path, text: str) -> Workload | None:
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    try:
        return compile_pattern(path, [("n", text[-20:])], Job(3))[0]
    except PatternError as error:
        assert render(error.diagnostics, colour=True)
        return None


WORDS = sorted({*declarations.STATEMENTS, *(head for heads in declarations.SETTINGS.values() for head in heads)})
TOKENS = st.sampled_from(
    [
        *WORDS,
        "{",
        "}",
        "\n",
        "(",
        ")",
        "+",
        "*",
        "/",
        "-",
        "$n",
        "$ranks",
        "universe",
        "model",
        "1",
        "0",
        "64",
        "4 KiB",
        "10 ms",
        "MB",
        "per rank",
        "total",
        "file per sample",
        "normal(",
        "clipped to",
        "and",
        ",",
        '"x"',
        '"',
        "#",
        "every",
        "with",
        "from",
        "%",
        "globally",
        "on",
        "off",
        "shared file",
        "samples",
        "2 epochs",
        "=",
        "one of",
        "between",
        "...",
        "\t",
        "ä",
    ]
)


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.text(max_size=200))
def test_random_text_never_raises_anything_else(tmp_path: Path, text: str) -> None:
    compiled(tmp_path / "random.dlio", text)
    compiled(tmp_path / "random.dlio", f"dlio 1\nworkload a\nparam n = {text}\n{DATA}\n{text}\nprepare universe\n")


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(TOKENS, max_size=30), st.lists(TOKENS, max_size=12))
def test_random_words_of_the_language_never_raise_anything_else(
    tmp_path: Path, lines: list[str], inside: list[str]
) -> None:
    text = (
        f"dlio 1\nworkload a\nparam n = 4\n{DATA}\n{' '.join(lines)}\ntrain {{\nread universe\n{' '.join(inside)}\n}}\n"
    )
    compiled(tmp_path / "words.dlio", text)


@pytest.mark.parametrize(
    "text",
    [
        'dlio 1\nworkload w\ndataset d {\n samples 1\n size 1 \N{KELVIN SIGN}\n path "d"\n}\n',
        'dlio 1\nworkload w\ninclude "nowhere"\ndataset d {\n samples 4\n size 1 B\n path "d"\n}\n'
        'checkpoint c {\n part p 1 B total\n path "c"\n}\ntrain {\n read d\n checkpoint c every $every steps\n}\n',
        f"dlio 1\nworkload w\nparam n = {'(' * 20}1{')' * 20}\n"
        'checkpoint c {\n part p 1 B / $n per rank\n path "c"\n}\n',
    ],
)
def test_what_a_mutant_once_ended_with_a_traceback_is_refused_with_a_line(tmp_path: Path, text: str) -> None:
    pattern = tmp_path / "w.dlio"
    pattern.write_text(text)
    with pytest.raises(PatternError) as refused:
        compile_pattern(pattern, [], Job(2))
    assert all(found.labels for found in refused.value.diagnostics)


def test_an_override_of_a_setting_that_a_block_has_in_no_form_is_a_mistake() -> None:
    override = ("train.from files", "100 opens/s")
    with pytest.raises(PatternError) as error:
        compile_pattern(PATTERNS / "cosmic_tagger.dlio", [override], Job(4))
    assert [found.code for found in error.value.diagnostics] == ["E104"]
