"""Installing extras: from a checkout, and never by a name that no package index has."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from dliosim.errors import install_hint

ROOT = Path(__file__).parents[1]
PLACES = ("dliosim", "docs", "scripts", "patterns", ".ci", "README.md", "CHANGES.md", "setup.py", "pyproject.toml")


def test_no_text_installs_dliosim_by_its_name() -> None:
    files = [path for place in PLACES for path in (ROOT / place, *(ROOT / place).rglob("*")) if path.is_file()]
    assert len(files) > 400
    for path in files:
        text = path.read_text(encoding="utf-8", errors="replace")
        assert not re.search(r"pip3? install [^\n`&;(]*\bdliosim\b(?!-)(?![/.])[\[\"' `]", text), path
        assert not re.search(r"dliosim\[[a-z]", text), path


def test_the_pip_is_that_of_the_environment_that_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["env/bin/dliosim", "run"])
    assert install_hint("report") == "pip install '.[report]' (in a checkout of dliosim)"
    Path("env/bin").mkdir(parents=True)
    Path("env/bin/pip").touch(mode=0o755)
    assert install_hint("report").startswith("env/bin/pip install ")
    monkeypatch.setenv("PATH", str(tmp_path / "env/bin"))
    assert install_hint("report").startswith("pip install ")
