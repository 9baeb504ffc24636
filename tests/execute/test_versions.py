"""Checkpoints are numbered upwards, complete once they have their name, and found by what lies there."""

from __future__ import annotations

from pathlib import Path

import pytest

from dliosim.errors import ExecutionError
from dliosim.execute import versions
from dliosim.execute.manifest import NAME


def saved(base: Path, sizes: tuple[int, ...] = (3, 5), ranks: int = 2) -> Path:
    """One more complete checkpoint, of files of these sizes."""
    _, aside = versions.begin(base)
    for file, size in enumerate(sizes):
        (aside / versions.file_name(file)).write_bytes(bytes(size))
    return versions.commit(aside, "c", sizes, ranks)


def test_numbers_count_from_1_upwards(tmp_path: Path) -> None:
    assert versions.numbers(tmp_path / "nowhere") == []
    assert [saved(tmp_path).name for _ in range(3)] == ["000001", "000002", "000003"]
    assert versions.numbers(tmp_path) == [3, 2, 1]


def test_the_next_number_follows_the_highest_whatever_was_deleted(tmp_path: Path) -> None:
    (tmp_path / "000041").mkdir()
    assert versions.begin(tmp_path)[0] == 42


def test_the_next_one_is_written_aside_and_counts_only_when_complete(tmp_path: Path) -> None:
    number, aside = versions.begin(tmp_path)
    assert (number, aside.name) == (1, "000001.partial")
    assert versions.numbers(tmp_path) == []
    final = versions.commit(aside, "c", [], 1)
    assert final == tmp_path / "000001"
    assert not aside.exists()


def test_what_a_crash_left_is_removed_and_its_number_given_again(tmp_path: Path) -> None:
    _, aside = versions.begin(tmp_path)
    (aside / "leftover").write_text("x")
    number, again = versions.begin(tmp_path)
    assert number == 1
    assert list(again.iterdir()) == []


def test_other_names_are_no_checkpoints(tmp_path: Path) -> None:
    for name in ("1", "00001", "latest", "000001.old.partial", "0000001234567"):
        (tmp_path / name).mkdir()
    assert versions.numbers(tmp_path) == []


@pytest.mark.parametrize(("keep", "left"), [(1, [4]), (2, [4, 3]), (4, [4, 3, 2, 1]), (9, [4, 3, 2, 1])])
def test_the_newest_are_kept(tmp_path: Path, keep: int, left: list[int]) -> None:
    for _ in range(4):
        saved(tmp_path)
    versions.delete_old(tmp_path, keep)
    assert versions.numbers(tmp_path) == left
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(f"{number:06d}" for number in left)


@pytest.mark.parametrize(
    ("count", "keep", "looked_at"),
    [(1, 1, []), (3, 3, []), (3, 9, []), (2, 1, []), (4, 3, ["000003", "000002"]), (6, 3, ["000005", "000004"])],
)
def test_only_those_are_looked_at_on_which_it_depends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, keep: int, looked_at: list[str]
) -> None:
    seen: list[str] = []
    look = versions._fault

    def fault(directory: Path) -> str | None:
        seen.append(directory.name)
        return look(directory)

    for _ in range(count):
        saved(tmp_path)
    monkeypatch.setattr(versions, "_fault", fault)
    versions.delete_old(tmp_path, keep)
    assert seen == looked_at
    assert len(versions.numbers(tmp_path)) == min(count, keep)


def test_nothing_is_deleted_where_too_few_are_complete(tmp_path: Path) -> None:
    for _ in range(4):
        saved(tmp_path)
    for number in (1, 2, 3):
        (tmp_path / f"{number:06d}" / NAME).unlink()
    versions.delete_old(tmp_path, 2)
    assert versions.numbers(tmp_path) == [4, 3, 2, 1]


def test_damaged_ones_are_not_counted_among_those_that_are_kept(tmp_path: Path) -> None:
    for _ in range(5):
        saved(tmp_path)
    for number in (2, 4):
        (tmp_path / f"{number:06d}" / versions.file_name(0)).unlink()
    versions.delete_old(tmp_path, keep=2)
    assert versions.numbers(tmp_path) == [5, 4, 3]
    assert versions.newest_complete(tmp_path, "c", 2)[0] == 5


def test_the_newest_complete_one_is_found(tmp_path: Path) -> None:
    for _ in range(2):
        saved(tmp_path)
    assert versions.newest_complete(tmp_path, "c", 2) == (2, tmp_path / "000002", [])


def test_damaged_ones_are_passed_over_and_named(tmp_path: Path) -> None:
    for _ in range(4):
        saved(tmp_path)
    (tmp_path / "000004" / NAME).write_text("{")
    (tmp_path / "000003" / "000001.ckpt").unlink()
    (tmp_path / "000002" / "000000.ckpt").write_bytes(b"x")
    number, directory, passed_over = versions.newest_complete(tmp_path, "c", 2)
    assert (number, directory.name) == (1, "000001")
    assert passed_over == [
        "000004: has no manifest that can be read",
        "000003: 000001.ckpt: No such file or directory",
        "000002: 000000.ckpt has 1 bytes, not 3",
    ]


def test_a_manifest_of_something_else_is_not_believed(tmp_path: Path) -> None:
    made = saved(tmp_path / "one", ranks=3)
    (tmp_path / "two").mkdir()
    moved = made.rename(tmp_path / "two" / made.name)
    with pytest.raises(ExecutionError, match="has no manifest of such a checkpoint"):
        versions.newest_complete(tmp_path / "two", "c", 2)
    assert not list(versions.writers_beside(tmp_path / "one", "c"))
    moved.rename(made)
    assert versions.newest_complete(tmp_path / "one", "c", 2)[0] == 1
    assert list(versions.writers_beside(tmp_path / "two", "c")) == [("one", 3)]
    assert not list(versions.writers_beside(tmp_path / "two", "d"))


def test_where_there_is_none_the_error_says_what_was_found(tmp_path: Path) -> None:
    with pytest.raises(ExecutionError, match="nothing was ever saved there") as caught:
        versions.newest_complete(tmp_path / "nowhere", "c", 2)
    assert caught.value.code == "R404"
    versions.begin(tmp_path)
    with pytest.raises(ExecutionError, match=r"`c` in .*: 000001\.partial: was never finished") as caught:
        versions.newest_complete(tmp_path, "c", 2)
    assert caught.value.code == "R404"
