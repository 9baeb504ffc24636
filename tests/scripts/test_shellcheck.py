"""Every shell script is accepted by shellcheck, which the extra `test` brings along."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scripts.stubs import ROOT

SCRIPTS = sorted([*(ROOT / "scripts").rglob("*.sh"), *(ROOT / "scripts").rglob("*.sbatch"), ROOT / ".ci" / "run"])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_accepts(script: Path) -> None:
    neighbour = Path(sys.executable).with_name("shellcheck")
    found = str(neighbour) if neighbour.exists() else shutil.which("shellcheck")
    if found is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run([found, str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_failing_command_ends_a_script(script: Path) -> None:
    assert "\nset -euo pipefail\n" in script.read_text()
