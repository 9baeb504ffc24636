"""The diff of docs/dev/contributing.md adds a format that keeps the contract; patterns prepare, read and verify it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.execute.backends.test_one_backend import apply_diff
from tests.formats import one_format_program

ROOT = Path(__file__).parents[2]


def test_a_format_is_a_class_and_a_line(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "dliosim", tmp_path / "tree/dliosim", ignore=shutil.ignore_patterns("__pycache__"))
    page = (ROOT / "docs/dev/contributing.md").read_text()
    diff = re.search(r"```diff\n(.*?)```", page[page.index("## Add a format") :], re.DOTALL)
    assert diff is not None
    apply_diff(tmp_path / "tree", diff[1])
    (tmp_path / "place").mkdir()
    done = subprocess.run(
        [sys.executable, one_format_program.__file__, str(tmp_path / "place")],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "tree")},
    )
    assert done.returncode == 0, done.stderr
    assert "pattern.dlio: ok (w, digest" in done.stdout
    phases = json.loads((tmp_path / "place/out/results.json").read_text())["phases"]
    assert phases[1]["epochs"][0]["samples"] == 64
