"""`dliosim --help`: commands in the order of need, each with an example that can be pasted."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

from dliosim import PATTERNS
from dliosim.commands.command_line.command_table import COMMANDS
from dliosim.commands.command_line.options import read_storage
from dliosim.commands.command_line.parser import make_parser
from dliosim.language.compile import compile_pattern
from dliosim.model import Job


def test_help_begins_with_the_three_commands_of_a_newcomer() -> None:
    text = make_parser().format_help()
    places = [text.index(f"\n  {name} ") for name in ("patterns", "run", "report")]
    assert places == sorted(places)
    assert places[-1] < min(text.index(f"\n  {name} ") for name in {*COMMANDS} - {"patterns", "run", "report"})


@pytest.mark.parametrize("words", [[], *([name] for name in COMMANDS)])
def test_help_fits_80_columns(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        make_parser().parse_args([*words, "--help"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_with_a_value_shows_an_example(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        make_parser().parse_args([name, "--help"])
    shown = capsys.readouterr().out
    options = [names[0] for names, one in COMMANDS[name].options if names[0].startswith("-") and "action" not in one]
    assert [option for option in options if f"as {option} " not in shown] == []


@pytest.mark.parametrize("define", ["large=1_024", "scratch.latency=1 ms"])
def test_the_examples_of_calibrate_are_of_its_pattern_and_of_a_storage(
    define: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        make_parser().parse_args(["calibrate", "--help"])
    assert define in " ".join(capsys.readouterr().out.replace('"', "").split())
    (tmp_path / "scratch.dlio").write_text("dlio 1\nstorage scratch {\n servers 1 of 1 GB/s\n}\n")
    given = SimpleNamespace(override=[], define=[define], storage=str(tmp_path / "scratch.dlio"))
    _, values = read_storage(given)
    compile_pattern(PATTERNS / "profiles" / "calibrate.dlio", values, Job(2))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_of_a_command_is_a_line_of_it(name: str) -> None:
    words = shlex.split(COMMANDS[name].example.removeprefix('eval "$(').removesuffix(')"'))
    words = words[words.index("dliosim") + 1 :]
    assert words[0] == name
    parsed = make_parser().parse_args(words)
    assert parsed.command.find_contradiction(parsed) == ""
