"""`dliosim completion`: what bash offers for the Tab key."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dliosim.cli import main
from dliosim.commands.command_line.pattern_files import list_names

#: Sources the script, and prints what it offers for the last of some words.
TAB = """
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
_shtab_dliosim
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The script for bash."""
    pytest.importorskip("shtab")
    assert main(["completion", "bash"]) == 0
    path = tmp_path / "dliosim.bash"
    path.write_text(capsys.readouterr().out)
    return path


@pytest.mark.parametrize(
    "words, offered",
    [
        (["run", "cosmof"], ["cosmoflow", "cosmoflow_large", "cosmoflow_paper"]),
        (["explain", "cosmof"], ["cosmoflow", "cosmoflow_large", "cosmoflow_paper"]),
        (["compare", "--cac"], ["--caches"]),
        (["compare", "--caches", ""], ["cold", "warm"]),
        (["check", "min"], ["mine.dlio"]),
        (["com"], ["compare", "completion"]),
        (["ne"], ["new"]),
        (["new", "mine", "--from", "llama3_8"], ["llama3_8b"]),
    ],
)
def test_bash_completes_commands_options_and_patterns(
    words: list[str], offered: list[str], script: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.dlio").touch()
    command = ["bash", "-c", TAB, "bash", str(script), "dliosim", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True, timeout=60)
    assert done.stdout.split() == offered


def test_the_script_for_zsh_has_the_patterns(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("shtab")
    assert main(["completion", "zsh"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("#compdef dliosim")
    assert f"compadd {' '.join(list_names())}" in out


def test_without_shtab_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert "pip install '.[completion]'" in capsys.readouterr().err
