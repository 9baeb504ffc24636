"""The diff of docs/dev/contributing.md adds a figure, and another one a part of the wall time: they are everywhere."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.execute.backends.test_one_backend import apply_diff
from tests.measure import one_figure_program

ROOT = Path(__file__).parents[2]

A_PART = """--- a/dliosim/measure/rank/records.py
+++ b/dliosim/measure/rank/records.py
@@
     opens: Column = 0
+    #: seeking tapes
+    seek_ns: PartColumn = 0
     #: checkpoints between steps
--- a/dliosim/execute/loop/step_loop.py
+++ b/dliosim/execute/loop/step_loop.py
@@
         record.core_wait_ns = self._core_wait - save_core_wait if self._core_wait >= 0 else -1
+        record.seek_ns = record.tool_ns // 2
--- a/dliosim/measure/figures/epoch_summaries.py
+++ b/dliosim/measure/figures/epoch_summaries.py
@@
     opens: int
+    #: seeking tapes
+    seek_seconds: Part = figure("seeking\\ntapes", "times", optional=True)
     #: checkpoints between steps: the most of any rank
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("one")
    shutil.copytree(ROOT / "dliosim", place / "tree/dliosim", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "docs", place / "tree/docs")
    page = (ROOT / "docs/dev/contributing.md").read_text()
    diff = re.search(r"```diff\n(.*?)```", page[page.index("## Add a figure") :], re.DOTALL)
    assert diff is not None
    for each in (diff[1], A_PART):
        apply_diff(place / "tree", each)
    command = [sys.executable, one_figure_program.__file__, str(ROOT / "scripts" / "dev"), str(place)]
    environment = {**os.environ, "PYTHONPATH": str(place / "tree")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=place, env=environment)
    assert done.returncode == 0, done.stderr
    return {
        "printed": done.stdout,
        "messages": done.stderr,
        "run": json.loads((place / "run/results.json").read_text()),
        "comparison": json.loads((place / "compared/compare.json").read_text()),
        **json.loads((place / "found.json").read_text()),
    }


def test_they_are_measured_and_written(found: dict[str, Any]) -> None:
    (epoch,) = next(phase["epochs"] for phase in found["run"]["phases"] if phase["epochs"])
    assert epoch["saves"] == found["columns"]["saves"] == 3
    assert epoch["seek_seconds"]["mean"] == pytest.approx(epoch["tool_seconds"]["mean"], abs=2e-9)  # half of the rest
    assert found["columns"]["seek_ns"] == pytest.approx(epoch["seek_seconds"]["mean"] * 1e9)
    parts = ("data_wait", "arrival_wait", "compute", "sync_wait", "checkpoint", "processing", "tool", "seek")
    assert sum(epoch[f"{part}_seconds"]["mean"] for part in parts) == pytest.approx(epoch["seconds"], rel=1e-6)


def test_tables_show_them(found: dict[str, Any]) -> None:
    run, side_by_side = found["printed"].split("conditions\n")
    assert "seeking" in run and "saves" in run and "seek " in run
    assert re.search("^time in seek  ", side_by_side, re.MULTILINE)
    assert re.search("^saves +3$", side_by_side, re.MULTILINE)


def test_a_pattern_can_expect_it(found: dict[str, Any]) -> None:
    (line,) = found["run"]["expectations"]
    assert (line["text"], line["measured"], line["held"]) == ("saves of train at least 3", 3, True)
    assert "write `expect saves of train at least 3`" in found["messages"]
    assert "In a pattern, write `expect saves at least 1`: checkpoints between steps." in found["printed"]


def test_comparisons_have_the_part(found: dict[str, Any]) -> None:
    assert all(0 < one["seek_share"] < 1 for one in found["comparison"]["variants"])
    printed = " ".join(found["printed"].split())
    assert re.search("Time of transfer=1 KiB: [^:]*seek [0-9]", printed)


def test_the_picture_of_the_time_of_ranks_has_the_part(found: dict[str, Any]) -> None:
    assert "seek" in found["legend"]


def test_the_schema_and_the_page_describe_them(found: dict[str, Any]) -> None:
    assert {"saves", "seek_seconds"} <= {*found["schema"]["required"]}
    assert found["schema"]["properties"]["seek_seconds"] == {"$ref": "#/$defs/spread"}
    assert "| saves | `saves` | `saves` | checkpoints between steps: the most of any rank |" in found["page"]
    assert "| seeking tapes | `seek_seconds` | `seek_ns` | seeking tapes |" in found["page"]
