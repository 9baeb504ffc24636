"""Patterns by name: which file a name stands for, and the list of those that come with dliosim."""

from __future__ import annotations

from pathlib import Path

import pytest

from dliosim import PATTERNS
from dliosim.cli import main
from dliosim.commands.command_line.pattern_files import find_pattern, list_names
from dliosim.language.diagnostics import PatternError
from dliosim.language.source import find_source
from tests.commands.test_cli import PATTERN

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_patterns_of_the_package_are_those_of_the_checkout() -> None:
    assert PATTERNS.resolve() == ROOT / "patterns"


@pytest.mark.parametrize("given", ["cosmoflow", "cosmoflow.dlio"])
def test_a_name_is_a_pattern_of_dliosim(given: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert find_pattern(given) == PATTERNS / "cosmoflow.dlio"
    assert capsys.readouterr().err == f"note: {given} is {PATTERNS / 'cosmoflow.dlio'}\n"


@pytest.mark.parametrize("file", ["cosmoflow", "cosmoflow.dlio"])
def test_a_file_of_the_current_folder_comes_first(file: str, folder: Path) -> None:
    Path(file).touch()
    assert find_pattern("cosmoflow") == Path(file)


def test_a_folder_of_the_name_is_no_pattern(folder: Path) -> None:
    Path("cosmoflow").mkdir()
    assert find_pattern("cosmoflow") == PATTERNS / "cosmoflow.dlio"


def test_a_file_that_is_given_by_its_path_needs_no_note(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.dlio").touch()
    assert find_pattern("mine.dlio") == Path("mine.dlio")
    assert capsys.readouterr().err == ""


def test_a_path_is_not_looked_for_among_the_patterns_of_dliosim(folder: Path) -> None:
    with pytest.raises(PatternError):
        find_pattern("profiles/h100.dlio")


@pytest.mark.parametrize("given", ["cosmoflw", "patterns/cosmoflow.dlio", "cosmofow.dlio"])
def test_a_name_that_there_is_not_gets_the_nearest(given: str, folder: Path) -> None:
    with pytest.raises(PatternError, match=r"did you mean `cosmoflow`.*`dliosim patterns` lists"):
        find_pattern(given)


@pytest.mark.parametrize("name", list_names())
def test_a_pattern_of_any_name_is_compiled_with_what_it_includes(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", name]) == 0
    assert f"{name}: ok ({name}, " in capsys.readouterr().out


def test_a_pattern_extends_and_includes_those_of_dliosim_by_name(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.dlio").write_text('dlio 1\nworkload mine ""\nextends "cosmoflow.dlio"\ntrain {\n    epochs 3\n}\n')
    assert main(["check", "mine.dlio"]) == 0
    assert "ok (mine, " in capsys.readouterr().out
    for name in ("cosmoflow", "profiles/h100.dlio"):
        assert find_source(folder, name) == PATTERNS / f"{name.removesuffix('.dlio')}.dlio"


def test_a_file_next_to_a_pattern_comes_before_one_of_dliosim(folder: Path) -> None:
    Path("cosmoflow.dlio").touch()
    assert find_source(folder, "cosmoflow.dlio") == folder / "cosmoflow.dlio"


@pytest.mark.parametrize(
    "name", ["profiles/../cosmoflow.dlio", f"{PATTERNS.parent}/../x.dlio", "profiles", "none.dlio"]
)
def test_what_is_no_file_of_dliosim_is_looked_for_next_to_the_pattern_alone(name: str, folder: Path) -> None:
    assert find_source(folder, name) == folder / name


def test_plan_and_explain_take_a_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "cosmoflow_large", "--ranks", "2"]) == 0
    assert "cosmoflow_large  " in capsys.readouterr().out
    assert main(["explain", "cosmoflow_large"]) == 0
    assert "workload cosmoflow_large" in capsys.readouterr().out


def test_a_code_is_explained_before_a_pattern_of_its_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("E204.dlio").write_text(PATTERN)
    assert main(["explain", "E204"]) == 0
    assert capsys.readouterr().out.startswith("E204: ")


def test_the_list_has_a_line_for_each_in_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["patterns"]) == 0
    lines = capsys.readouterr().out.split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in lines] == list_names()
    assert [line for line in lines if len(line) > 80 or len(line.split()) < 4] == []


@pytest.mark.parametrize("command", [["run"], ["check"], ["plan", "--ranks", "2"], ["compare", "--vary", "a=1,2"]])
def test_without_a_pattern_the_list_is_named(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(command)
    assert "`dliosim patterns` lists" in capsys.readouterr().err
