"""`dliosim --help`: commands in the order of need, each with an example that can be pasted."""

from __future__ import annotations

import shlex

import pytest

from dliosim.commands.command_table import COMMANDS
from dliosim.commands.parser import make_parser


def test_help_begins_with_the_three_commands_of_a_newcomer() -> None:
    text = make_parser().format_help()
    places = [text.index(f"\n  {name} ") for name in ("patterns", "run", "report")]
    assert places == sorted(places)
    assert places[-1] < min(text.index(f"\n  {name} ") for name in {*COMMANDS} - {"patterns", "run", "report"})


def test_help_fits_90_columns() -> None:
    assert max(map(len, make_parser().format_help().splitlines())) <= 90


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_of_a_command_is_a_line_of_it(name: str) -> None:
    words = shlex.split(COMMANDS[name].example.removeprefix('eval "$(').removesuffix(')"'))
    words = words[words.index("dliosim") + 1 :]
    assert words[0] == name
    parsed = make_parser().parse_args(words)
    assert parsed.command.find_contradiction(parsed) == ""
