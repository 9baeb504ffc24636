"""Suggestions for command lines and values: they are accepted, and say what the user's words said."""

from __future__ import annotations

import re
import shlex
from fractions import Fraction
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dliosim.commands.command_line.command_table import COMMANDS, EXAMPLES
from dliosim.commands.command_line.parser import Misuse, parse_words
from dliosim.commands.command_line.suggestions import describe_misuse
from dliosim.language.source import SourceText
from dliosim.language.suggest.lines import find_phrases
from dliosim.language.suggest.synonyms import Meaning
from dliosim.language.syntax.declarations import BLOCKS, Declaration, list_settings
from dliosim.units import UNITS
from tests.examples import ALL

#: What an option needs on its line, where it does not stand alone.
WITH = {
    "--restart-time": ["--mtbf", "4 h"],
    "--save-time": ["--mtbf", "4 h"],
    "--rank": ["--csv"],
    "--epoch": ["--csv"],
    "--warm-up": ["--repeat", "8"],
    "plan --loop": ["--csv"],
    "run --dlio": ["--dlio-summary", "files"],
}


def write_line(command: str, option: str) -> list[str]:
    """Return the words of a right line of a command with an option, the option last."""
    options = COMMANDS[command].options
    required = [
        word
        for names, arguments in options
        if not names[0].startswith("-") or (arguments.get("required") and names[0] != option)
        for word in [*([names[0]] if names[0].startswith("-") else []), EXAMPLES[_key(names[0], arguments)]]
    ]
    required = [] if option == "--explain" else required
    arguments = next(arguments for names, arguments in options if option in names)
    others = WITH.get(f"{command} {option}", WITH.get(option, []))
    value = [] if arguments.get("action") == "store_true" else [EXAMPLES[option]]
    return [command, *required, *others, option, *value]


def _key(name: str, arguments: dict[str, object]) -> str:
    return name if name.startswith("-") else str(arguments["metavar"]) if name != "override" else "-o"


#: Commands with each of their options: by day each option once.
OPTIONS = [
    (name, command)
    for command, described in COMMANDS.items()
    for names, _ in described.options
    for name in names
    if name.startswith("--")
]
LINES = [write_line(command, name) for name, command in (OPTIONS if ALL else dict(OPTIONS).items())]


def suggest(words: list[str]) -> list[str]:
    """Return the words of the line that the answer to a misuse suggests, without its launcher."""
    with pytest.raises(Misuse) as found:
        parse_words(words)
    said = describe_misuse(words, str(found.value))
    line = re.search(r"write `([^`]*dliosim [^`]*)`", said)
    assert line, said
    typed = shlex.split(line[1])
    return typed[typed.index("dliosim") + 1 :]


def at_option(line: list[str]) -> int:
    return max(at for at, word in enumerate(line) if word.startswith("--"))


@pytest.mark.parametrize(
    ("line", "turn"), [*zip(LINES, count())], ids=lambda one: f"{one}" if isinstance(one, int) else " ".join(one)
)
def test_an_option_with_one_dash_or_another_case_is_that_option(line: list[str], turn: int) -> None:
    at = at_option(line)
    mistakes = [line[at][1:], line[at].upper(), line[at].replace("-", "_").replace("__", "--")]
    mistakes = [wrong for wrong in mistakes if wrong != line[at]]
    for wrong in mistakes if ALL else [mistakes[turn % len(mistakes)]]:
        assert parse_words(suggest([*line[:at], wrong, *line[at + 1 :]])) == parse_words(line)


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_a_misspelt_option_or_a_command_behind_its_pattern_changes_nothing_else(line: list[str]) -> None:
    at = at_option(line)
    if len(line[at]) > 7:  # a shorter one may be another word
        misspelt = line[at][:4] + line[at][5:]
        assert parse_words(suggest([*line[:at], misspelt, *line[at + 1 :]])) == parse_words(line)
    if line[1] == EXAMPLES["PATTERN"]:
        assert parse_words(suggest([line[1], line[0], *line[2:]])) == parse_words(line)


def test_help_of_a_misspelt_command_is_a_mistake_with_the_line_that_gives_it() -> None:
    assert suggest(["runn", "-h"]) == ["run", "-h"]
    assert suggest(["cosmoflow", "--help"]) == ["run", "cosmoflow", "--help"]


def test_several_numbers_of_ranks_are_joined_by_commas() -> None:
    line = ["predict", "cosmoflow", "--ranks", "4", "8", "--storage", "amlfs"]
    assert suggest(line) == ["predict", "cosmoflow", "--ranks", "4,8", "--storage", "amlfs"]


def test_an_option_without_a_meaning_is_dropped_and_no_argument_with_it(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    assert suggest(["report", "-v", f"{tmp_path}/a", f"{tmp_path}/b"]) == ["report", f"{tmp_path}/a", f"{tmp_path}/b"]
    assert suggest(["check", "--verbose", "cosmoflow", "bert"]) == ["check", "cosmoflow", "bert"]


AMOUNT = re.compile(r"([0-9][0-9_.]*) ?([A-Za-z%][A-Za-z/]*)?")
QUANTITIES = [
    (kind, setting)
    for kind in BLOCKS
    for setting in list_settings(BLOCKS[kind], kind)
    if re.search("SIZE|TIME|PACE", setting.phrase.text)
]


@settings(max_examples=60)
@given(
    place=st.sampled_from(QUANTITIES),
    number=st.integers(1, 2**40),
    style=st.sampled_from(["{}", "{:_}", "{:,}", "= {}", "({})", "{}, {}", "normal({}, {})"]),
)
def test_no_answer_to_a_bare_number_makes_it_larger(place: tuple[str, Declaration], number: int, style: str) -> None:
    kind, setting = place
    text, source = style.format(number, number), SourceText("", "")
    for phrase in find_phrases(Meaning(setting, kind), text, source):
        amounts = [(Fraction(digits.replace("_", "")), UNITS.get(unit)) for digits, unit in AMOUNT.findall(phrase)]
        values = [value * unit[0] if unit else value for value, unit in amounts]
        assert {number, Fraction(number, 1000)} & set(values), phrase
        assert max(values) <= max(number, 2**20), phrase
