"""The lint of names, docstrings, fields and words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scripts.fidelity import script

check_words = script("check_words")

#: Text that keeps every rule.
CLEAN = '''"""Sizes of samples."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Extent:
    """A range of a file."""

    #: First byte.
    offset: int
    length: int  #: bytes


def sample_offsets() -> int:
    """Return the offsets of all samples."""
    return 0  # the file begins with them
'''


def faults(tmp_path: Path, text: str, name: str = "a.py") -> list[tuple[int, str]]:
    """Return what is found in a file of this text in the package."""
    path = tmp_path / "dliosim" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return [*check_words._CHECKS[path.suffix](path)]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the checked repository be a folder of the test's own."""
    monkeypatch.setattr(check_words, "ROOT", tmp_path)


def test_a_text_that_keeps_the_rules_is_silent(tmp_path: Path) -> None:
    assert faults(tmp_path, CLEAN) == []


@pytest.mark.parametrize(
    ("before", "after", "line", "found"),
    [
        ("sample_offsets", "taken_samples", 15, "taken_samples: begins with a participle"),
        ("sample_offsets", "_packed", 15, "_packed: begins with a participle"),
        ("sample_offsets", "of_run", 15, "of_run: begins with a preposition"),
        ("sample_offsets", "what_is_wrong", 15, "what_is_wrong: begins with a question word"),
        ("Return the", "Whether there are", 16, "docstring begins with 'whether'"),
        ("Sizes of", "What are", 1, "docstring begins with 'what'"),
        ("length: int  #: bytes", "length: int", 12, "Extent.length: a field has a comment of its own"),
        ("with them", "with them beside it", 17, "'beside': say next to, while"),
        ("all samples", "all samples anew", 16, "'anew': say again"),
    ],
)
def test_each_rule_names_its_line(tmp_path: Path, before: str, after: str, line: int, found: str) -> None:
    assert before in CLEAN
    [(where, fault)] = faults(tmp_path, CLEAN.replace(before, after))
    assert where == line
    assert fault.startswith(found)


def test_pages_patterns_and_shell_scripts_are_read_too(tmp_path: Path) -> None:
    assert faults(tmp_path, "# Runs\n\nfiles lie there\n\n```\nthey lie\n```\n", "a.md") == [
        (3, "'lie': say is at, is in, be stored")
    ]
    assert faults(tmp_path, "dlio 1\n# made anew\n", "a.dlio") == [(2, "'anew': say again")]
    assert faults(tmp_path, "true\n# made anew\n", "a.sh") == [(2, "'anew': say again")]


def test_the_command_prints_each_fault_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.dlio").write_text("# a file apart\n")
    assert check_words.main([f"{tmp_path}"]) == 1
    assert capsys.readouterr().out == "a.dlio:1: 'apart': say separate, different\n"
    (tmp_path / "a.dlio").write_text("# a separate file\n")
    assert check_words.main([f"{tmp_path}"]) == 0
