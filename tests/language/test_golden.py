"""Exact texts of all diagnostics: each `tests/errors/*.dlio` must print the `.txt` of the same name.

Comments at the top of a pattern give the number of ranks and the overrides. `# no finder` means that no process can
inspect existing files, `# uneven files` that these hold different numbers of samples. Formats other than raw are stubs.
After a wanted change, `python -m tests.language.test_golden` writes the texts again, and those of
tests/errors/newcomer.txt; read them before you commit them.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import pytest

from dliosim.language.blocks.external_datasets import missing_finder
from dliosim.language.compile import compile_pattern
from dliosim.language.diagnostics import PatternError, catalogue, render
from dliosim.model import Job
from tests.language.stubs import finder, pretended, uneven
from tests.language.test_newcomer import write_answers

FOLDER = Path(__file__).parent.parent / "errors"
CASES = sorted(path.stem for path in FOLDER.glob("*.dlio"))


def messages(name: str) -> str:
    text = (FOLDER / f"{name}.dlio").read_text(encoding="utf-8")
    ranks = re.search(r"^# ranks (\d+)$", text, re.MULTILINE)
    overrides = [(found[1], found[2]) for found in re.finditer(r"^# -D ([^=]+)=(.*)$", text, re.MULTILINE)]
    looks = missing_finder if re.search(r"^# no finder$", text, re.MULTILINE) else finder
    looks = uneven if re.search(r"^# uneven files$", text, re.MULTILINE) else looks
    try:
        with pretended():
            _, warnings = compile_pattern(Path(f"{name}.dlio"), overrides, Job(int(ranks[1]) if ranks else 4), looks)
    except PatternError as error:
        return render(error.diagnostics, colour=False) + "\n"
    return render(warnings, colour=False) + "\n"


@pytest.mark.parametrize("name", CASES)
def test_a_pattern_with_mistakes_prints_exactly_this(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    assert messages(name) == (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def test_every_code_of_the_compiler_has_a_golden_text_that_shows_it() -> None:
    texts = [(FOLDER / f"{name}.txt").read_text(encoding="utf-8") for name in CASES]
    shown = {code for text in texts for code in re.findall(r"\[([EWR]\d+)\]", text)}
    assert {code for code in catalogue() if not code.startswith("R")} - shown == set()


if __name__ == "__main__":
    os.chdir(FOLDER)
    for case in CASES:
        Path(f"{case}.txt").write_text(messages(case), encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        write_answers(Path(folder))
