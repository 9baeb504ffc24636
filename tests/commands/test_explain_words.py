"""Words that the screens of commands print: `dliosim explain` knows the headings of their columns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dliosim
from dliosim.cli import main

REPORT = Path(dliosim.__file__).parent / "report"
COLUMNS = r"(?:Column|_figure|_best_share|_tail|_share)\(\s*\"([^\"]+)\""
HEADINGS = {
    heading.replace("two-\\n", "two-").replace("-\\n", "").replace("\\n", " ")
    for path in REPORT.rglob("*.py")
    for heading in re.findall(COLUMNS, path.read_text(encoding="utf-8"))
}
ROWS = {row for path in REPORT.rglob("*.py") for row in re.findall(r"(?:yield |\()\"([A-Z]{3,})\",", path.read_text())}


@pytest.mark.parametrize("word", sorted(HEADINGS | ROWS - {"DLIO"} | {"accelerators busy", "cannot say"}))
def test_explain_knows_a_heading(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", word]) == 0
    assert f"`{word.lower().removesuffix(' %')}" in capsys.readouterr().out.lower()


def test_import_of_a_data_file_says_how_a_pattern_reads_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plain.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    assert main(["import", str(tmp_path / "plain.h5")]) == 2
    said = capsys.readouterr().err
    assert f"`dliosim new mine --from {tmp_path / 'plain.h5'}` writes one" in said
    assert "error: error:" not in said


@pytest.mark.parametrize(
    ("word", "said"), [("read", "access method: `D`, `D with ACCESS`. Several: "), ("format", "see formats.md.")]
)
def test_explain_prints_no_links(word: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", word]) == 0
    found = capsys.readouterr().out
    assert said in found
    assert "](" not in found


@pytest.mark.parametrize("word", ["utilization", "throughput", "p99"])
def test_explain_says_how_to_expect_a_figure(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", word]) == 0
    assert f"write `expect {word} at " in capsys.readouterr().out
