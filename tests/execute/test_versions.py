"""Checkpoints lie in numbered directories, of which only whole ones of the right description count."""

from __future__ import annotations

from pathlib import Path

import pytest

from dliosim.errors import ExecutionError
from dliosim.execute import versions


def saved(base: Path, size: int = 10) -> Path:
    """One more complete checkpoint of one file."""
    _, aside = versions.begin(base)
    (aside / versions.file_name(0)).write_bytes(bytes(size))
    return versions.commit(aside, "c", [size], ranks=1)


def test_the_newest_is_found_and_damaged_ones_are_passed_over(tmp_path: Path) -> None:
    for _ in range(3):
        saved(tmp_path)
    (tmp_path / "000003" / versions.file_name(0)).write_bytes(b"")
    number, directory, passed_over = versions.newest_complete(tmp_path, "c")
    assert (number, directory) == (2, tmp_path / "000002")
    assert passed_over == ["000003: 000000.ckpt has 0 bytes, not 10"]


def test_damaged_ones_are_not_counted_among_those_that_are_kept(tmp_path: Path) -> None:
    for _ in range(5):
        saved(tmp_path)
    for number in (2, 4):
        (tmp_path / f"{number:06d}" / versions.file_name(0)).unlink()
    versions.delete_old(tmp_path, keep=2)
    assert versions.numbers(tmp_path) == [5, 4, 3]
    assert versions.newest_complete(tmp_path, "c")[0] == 5


def test_a_manifest_of_something_else_is_not_believed(tmp_path: Path) -> None:
    made = saved(tmp_path / "one")
    (tmp_path / "two").mkdir()
    moved = made.rename(tmp_path / "two" / made.name)
    with pytest.raises(ExecutionError, match="has no manifest of such a checkpoint"):
        versions.newest_complete(tmp_path / "two", "c")
    assert not list(versions.writers_beside(tmp_path / "one", "c"))
    moved.rename(made)
    assert versions.newest_complete(tmp_path / "one", "c")[0] == 1
    assert list(versions.writers_beside(tmp_path / "two", "c")) == [("one", 1)]
    assert not list(versions.writers_beside(tmp_path / "two", "d"))


def test_nothing_complete_is_an_error_that_names_what_was_found(tmp_path: Path) -> None:
    versions.begin(tmp_path)
    with pytest.raises(ExecutionError, match=r"000001.partial: was never finished") as caught:
        versions.newest_complete(tmp_path, "c")
    assert caught.value.code == "R404"
