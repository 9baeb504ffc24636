"""`off` in the place of the lines of a repeated setting: `checkpoint off`, `shuffle off`."""

from __future__ import annotations

from pathlib import Path

import pytest

from dliosim.language.compile import compile_document
from dliosim.language.diagnostics import PatternError
from dliosim.language.unparse import explain_pattern
from dliosim.model import Job, Loop

HEAD = """dlio 1
workload w "t"
dataset d {
    samples  64
    size     1 KiB
    layout   shared file
    path     "d"
}
checkpoint off_line {
    part weights 1 KiB per rank
    path "c"
}
prepare d
"""
BASE = (
    HEAD
    + "train {\n    read d\n    epochs 4\n    checkpoint off_line every 2 epochs\n    checkpoint off_line at end\n%s}\n"
)
SAVES = ["off_line every 2 epochs", "off_line at end"]


def saves(path: Path, *overrides: tuple[str, str]) -> list[str]:
    workload = compile_document(path, overrides, Job(2)).workload
    loop = next(verb for verb in workload.verbs if isinstance(verb, Loop))
    return [
        one.checkpoint + (" at end" if one.unit == "end" else f" every {one.every} {one.unit}")
        for one in loop.checkpoints
    ]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "w.dlio"
    path.write_text(BASE % "")
    return path


def test_off_on_the_command_line_replaces_every_cadence(base: Path) -> None:
    assert saves(base) == SAVES
    assert saves(base, ("train.checkpoint", "off")) == []


def test_what_off_leaves_without_use_is_no_warning(base: Path) -> None:
    assert compile_document(base, [("train.checkpoint", "off")], Job(2)).warnings == ()
    base.write_text(base.read_text().replace("dataset d", "param unused = 1\ndataset d"))
    (warning,) = compile_document(base, [("train.checkpoint", "off")], Job(2)).warnings
    assert "`unused`" in warning.message


def test_off_in_a_pattern_that_extends_replaces_every_cadence(base: Path) -> None:
    above = base.with_name("above.dlio")
    above.write_text('dlio 1\nworkload above "t"\nextends "w.dlio"\ntrain {\n    checkpoint off\n}\n')
    assert saves(above) == []


def test_a_cadence_on_the_command_line_replaces_off(base: Path) -> None:
    base.write_text(f"{HEAD}train {{\n    read d\n    checkpoint off\n}}\n")
    assert saves(base) == []
    assert saves(base, ("train.checkpoint", "off_line at end")) == ["off_line at end"]


def test_off_may_be_the_value_of_a_parameter(base: Path) -> None:
    text = base.read_text().replace("dataset d", 'param saves = off "t"\ndataset d')
    base.write_text(text.replace("    checkpoint off_line at end\n", "").replace("off_line every 2 epochs", "$saves"))
    assert saves(base) == []
    assert saves(base, ("saves", "off_line at end")) == ["off_line at end"]


@pytest.mark.parametrize("line", ["checkpoint off", "shuffle off\n    shuffle samples globally"])
def test_off_with_another_line_of_the_block_is_a_mistake(base: Path, line: str) -> None:
    base.write_text(BASE % f"    {line}\n")
    with pytest.raises(PatternError, match=r"E102.*off` with another"):
        compile_document(base, [], Job(2))


def test_explain_writes_off_with_its_place(base: Path) -> None:
    text = explain_pattern(base, [("train.checkpoint", "off")], Job(2))
    assert "checkpoint off # <command line>" in " ".join(text.split())
