"""Every shipped pattern runs on two ranks, with the values that its line `# small:` gives, and its answers agree."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.mpi.waiting import run_command

ROOT = Path(__file__).parents[2]
PATTERNS = sorted((ROOT / "patterns").glob("*.dlio"))


def small_options(path: Path) -> list[str]:
    """The options that scale a pattern down to about two seconds."""
    found = re.findall(r"^# small: (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(found) == 1, f"{path.name}: one line `# small: -D ...` is needed"
    return shlex.split(found[0])


@pytest.mark.parametrize("path", PATTERNS, ids=lambda path: str(path.stem))
def test_a_pattern_runs_and_its_figures_agree(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIL", "pyarrow"):
        pytest.importorskip(name)
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "scripts" / "dev")])
    from check_answers import check_results  # type: ignore[import-not-found]

    places = ["--dir", str(tmp_path / "data"), "--output", str(tmp_path / "out")]
    done = run_command(2, ["run", str(path), *places, *small_options(path)], tmp_path, 60)
    assert done.returncode in (0, 3), done.stderr  # 3: storage missed an `expect` line
    assert "warning" not in done.stderr
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [fault for _, faults in check_results(results) for fault in faults] == []
