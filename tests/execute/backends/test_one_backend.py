"""The diff of docs/dev/contributing.md adds a backend that patterns can name, that runs and keeps the contract."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.execute.backends import one_backend_program

ROOT = Path(__file__).parents[3]


def apply_diff(tree: Path, diff: str) -> None:
    """Change the files of a tree as a diff without line numbers says."""
    for part in re.split(r"^--- .*\n\+\+\+ b/", diff, flags=re.MULTILINE)[1:]:
        file, _, hunks = part.partition("\n")
        path = tree / file
        text = path.read_text() if path.exists() else ""
        for hunk in re.split(r"^@@.*\n", hunks, flags=re.MULTILINE)[1:]:
            lines = hunk.splitlines(keepends=True)
            before = "".join(line[1:] for line in lines if line[0] in " -")
            after = "".join(line[1:] for line in lines if line[0] in " +")
            assert text.count(before) == 1 or not text, f"{file} has changed: {before}"
            text = text.replace(before, after) if text else after
        path.write_text(text)


def test_a_backend_is_a_module_a_name_and_an_entry(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "dliosim", tmp_path / "tree/dliosim", ignore=shutil.ignore_patterns("__pycache__"))
    page = (ROOT / "docs/dev/contributing.md").read_text()
    section = page[page.index("## Add a backend") :]
    diff = re.search(r"```diff\n(.*?)```", section, re.DOTALL)
    assert diff is not None
    apply_diff(tmp_path / "tree", diff[1])
    (tmp_path / "place").mkdir()
    done = subprocess.run(
        [sys.executable, one_backend_program.__file__, str(tmp_path / "place")],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "tree")},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "posix mpi-independent mpi-collective advised"
    assert "pattern.dlio: ok (w, digest" in done.stdout
    phases = json.loads((tmp_path / "place/out/results.json").read_text())["phases"]
    assert [phase["api"] for phase in phases] == ["advised", "advised"]
    assert phases[1]["epochs"][0]["calls"] == 64
