"""A setting that one field declares is in the grammar, the reader, `explain`, the hints and the manual."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.language import one_setting_program


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    command = [sys.executable, one_setting_program.__file__, str(tmp_path_factory.mktemp("one"))]
    loaded: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    return loaded


@pytest.mark.parametrize(
    "line, value, phrase, origin",
    [
        ("", None, "off", "default"),
        ("experts off", None, "off", "pattern.dlio:9"),
        ("experts 1 expert", 1, "1 expert", "pattern.dlio:9"),
        ("experts 8 experts", 8, "8 experts", "pattern.dlio:9"),
    ],
)
def test_it_is_read_and_written_again(
    found: dict[str, Any], line: str, value: int | None, phrase: str, origin: str
) -> None:
    read, written = found[line]
    assert read == value
    assert written.split("#")[0].split() == ["experts", *phrase.split()]
    assert Path(written.split("# ")[1]).name == origin


def test_its_bounds_are_kept(found: dict[str, Any]) -> None:
    assert "error[E113]: 65 is out of range" in found["experts 65 experts"]
    assert "at most 64" in found["experts 65 experts"]


def test_a_broken_phrase_says_what_is_expected(found: dict[str, Any]) -> None:
    assert "error[E003]: the phrase ends too early" in found["experts 8"]
    assert "expected `experts`" in found["experts 8"]


def test_a_misspelt_keyword_is_answered_with_it(found: dict[str, Any]) -> None:
    assert "write `experts 8 experts`" in found["expert 8"]


def test_it_is_in_the_manual(found: dict[str, Any]) -> None:
    assert found["table"] == "| `experts off`, `N experts` | experts of each layer | `off` |"
