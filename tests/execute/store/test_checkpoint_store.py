"""Checkpoints are numbered upwards, are complete once they have a manifest, and are found by their directories."""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args
from unittest import mock

import pytest

from dliosim.errors import ExecutionError, UsageError
from dliosim.execute.store import checkpoint_store, manifest
from dliosim.execute.store.checkpoint_store import CheckpointStore
from dliosim.execute.store.manifest import NAME, CheckpointManifest
from dliosim.model import Split
from dliosim.model.checkpoint import Commit
from tests.execute.failing import failing

COMMITS: tuple[Commit, ...] = get_args(Commit)


def described(base: Path, sizes: tuple[int, ...], commit: Commit = "rename", ranks: int = 2) -> CheckpointManifest:
    """A checkpoint of files of zeros, of these sizes."""
    files = {f"{file:06d}.ckpt": (size, zlib.crc32(bytes(size))) for file, size in enumerate(sizes)}
    return CheckpointManifest("c", base.name, commit, ranks, Split(1, 1, ranks), files)


def written(store: CheckpointStore, sizes: tuple[int, ...] = (3, 5), commit: Commit = "rename") -> int:
    """One more that is written, and not complete."""
    number, directory = store.begin(commit)
    for file, size in enumerate(sizes):
        (directory / f"{file:06d}.ckpt").write_bytes(bytes(size))
    return number


def saved(base: Path, sizes: tuple[int, ...] = (3, 5), ranks: int = 2, commit: Commit = "rename") -> Path:
    """One more complete checkpoint, by a run of its own."""
    store = CheckpointStore(base)
    number = written(store, sizes, commit)
    store.commit(number, described(base, sizes, commit, ranks))
    return base / f"{number:06d}"


def names(base: Path) -> list[str]:
    """Return the names of all entries."""
    return sorted(entry.name for entry in base.iterdir())


def test_numbers_count_from_1_upwards(tmp_path: Path) -> None:
    assert checkpoint_store.checkpoint_numbers(tmp_path / "nowhere") == []
    assert [saved(tmp_path).name for _ in range(3)] == ["000001", "000002", "000003"]
    assert checkpoint_store.checkpoint_numbers(tmp_path) == [3, 2, 1]


@pytest.mark.parametrize("left", ["000041", "000041.partial", "000041.old.partial"])
def test_the_next_number_is_above_all_that_is_there(tmp_path: Path, left: str) -> None:
    (tmp_path / left).mkdir()
    assert CheckpointStore(tmp_path).begin("rename")[0] == 42


def test_the_next_number_is_above_those_of_copies_that_outlived_what_they_are_copies_of(tmp_path: Path) -> None:
    saved(tmp_path / "copies")
    saved(tmp_path / "copies")
    store = CheckpointStore(tmp_path / "lost")
    assert [store.begin("rename", checkpoint_store.highest_number(tmp_path / "copies"))[0] for _ in range(2)] == [3, 4]


def test_after_the_last_number_there_is_none(tmp_path: Path) -> None:
    for name in ("999999", "9" * 12):
        (tmp_path / name).write_text("no directory of ours: it stays")
    with pytest.raises(ExecutionError, match="999999999999 has the highest number"):
        CheckpointStore(tmp_path).begin("rename")
    (tmp_path / ("9" * 12)).unlink()
    assert CheckpointStore(tmp_path).begin("rename")[1].name == "1000000.partial"


def test_the_next_one_is_written_aside_and_counts_only_when_complete(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    number, aside = store.begin("rename")
    assert (number, aside.name) == (1, "000001.partial")
    assert checkpoint_store.checkpoint_numbers(tmp_path) == []
    done = store.commit(number, described(tmp_path, ()))
    assert (tmp_path / "000001").is_dir()
    assert not aside.exists()
    assert min(done.sync_ns, done.manifest_ns, done.rename_ns) > 0


@pytest.mark.parametrize("commit", ["metadata", "none"])
def test_what_is_written_in_place_counts_once_it_has_its_manifest(tmp_path: Path, commit: Commit) -> None:
    store = CheckpointStore(tmp_path)
    number = written(store, commit=commit)
    assert names(tmp_path) == ["000001"]
    with pytest.raises(ExecutionError, match="000001: has no manifest that can be read"):
        checkpoint_store.find_newest_complete(tmp_path, "c", 2)
    done = store.commit(number, described(tmp_path, (3, 5), commit))
    assert checkpoint_store.find_newest_complete(tmp_path, "c", 2) == (1, described(tmp_path, (3, 5), commit), [])
    assert (tmp_path / "000001").is_dir()
    assert done.rename_ns == 0


def synced(base: Path, commit: Commit, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Files and directories in the order in which completing a checkpoint with a folder makes them durable."""
    seen: list[str] = []
    monkeypatch.setattr(
        manifest.os, "fsync", lambda descriptor: seen.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
    )
    store = CheckpointStore(base)
    number, directory = store.begin(commit)
    (directory / "folder").mkdir()
    (directory / "folder" / "file").write_bytes(b"")
    store.commit(number, replace(described(base, (), commit), files={"folder/file": (0, 0)}))
    return seen


def test_directories_and_manifest_become_durable_before_they_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "base"
    base.mkdir()
    aside = "000001.partial"
    assert synced(base, "rename", monkeypatch) == ["folder", "manifest.json.partial", aside, "base"]
    in_place = ["folder", "000002", "base", "manifest.json.partial", "000002"]
    assert synced(base, "metadata", monkeypatch) == in_place
    assert synced(base, "none", monkeypatch) == []
    assert checkpoint_store.checkpoint_numbers(base) == [3, 2, 1]


def test_a_place_is_made_as_durably_as_what_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = synced(tmp_path / "one" / "two", "none", monkeypatch)
    assert seen == ["one", tmp_path.name]


@pytest.mark.parametrize("left", ["000001.partial", "000001.old.partial", "000001"])
def test_what_a_crash_left_is_removed_and_its_number_not_given_again(tmp_path: Path, left: str) -> None:
    (tmp_path / left / "folder").mkdir(parents=True)
    (tmp_path / left / "folder" / "leftover").write_text("x")
    (tmp_path / left / f"{NAME}.partial").write_text("{")
    number, again = CheckpointStore(tmp_path).begin("rename")
    assert number == 2
    assert list(again.iterdir()) == []
    assert names(tmp_path) == ["000002.partial"]


def test_a_manifest_that_ends_in_the_middle_was_never_finished_and_another_one_is_kept(tmp_path: Path) -> None:
    for _ in range(3):
        saved(tmp_path)
    text = (tmp_path / "000002" / NAME).read_text()
    (tmp_path / "000001" / NAME).write_text(text[: text.index("}") + 1])
    (tmp_path / "000002" / NAME).write_text(text.replace(":", ";"))
    (tmp_path / "000003" / NAME).write_text("")
    CheckpointStore(tmp_path).begin("rename")
    assert names(tmp_path) == ["000002", "000004.partial"]


def test_what_is_known_to_be_finished_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    look = manifest.has_complete_manifest

    def looked_at(directory: Path) -> bool:
        seen.append(directory.name)
        return look(directory)

    saved(tmp_path)
    monkeypatch.setattr(manifest, "has_complete_manifest", looked_at)
    store = CheckpointStore(tmp_path)
    for _ in range(3):
        store.commit(written(store), described(tmp_path, (3, 5)))
    assert seen == ["000001"]


def test_what_this_run_still_writes_is_not_removed_and_no_number_given_twice(tmp_path: Path) -> None:
    for commit in COMMITS:
        store = CheckpointStore(tmp_path / commit)
        first, second = written(store, commit=commit), written(store, commit=commit)
        third = written(store, commit=commit)
        assert (first, second, third) == (1, 2, 3)
        store.abandon(third)
        fourth = written(store, commit=commit)
        assert fourth == 4
        # The later one is the first to be complete.
        store.commit(second, described(tmp_path / commit, (3, 5), commit))
        store.delete_old(keep=1)
        store.commit(first, described(tmp_path / commit, (3, 5), commit))
        store.commit(fourth, described(tmp_path / commit, (3, 5), commit))
        assert checkpoint_store.checkpoint_numbers(tmp_path / commit) == [4, 2, 1]
        store.delete_old(keep=2)
        assert names(tmp_path / commit) == ["000002", "000004"]
        assert not store._busy


def test_what_is_given_up_leaves_nothing_even_after_its_last_step_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path) -> None:
        raise OSError(28, "No space left on device")

    for commit in COMMITS[:2]:
        store = CheckpointStore(tmp_path / commit)
        number = written(store, commit=commit)
        with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
            patch.setattr(checkpoint_store, "sync_directory", fail)
            store.commit(number, described(tmp_path / commit, (3, 5), commit))
        store.abandon(number)
        assert names(tmp_path / commit) == []
        assert not store._busy


def test_a_copy_in_another_root_has_the_number_of_what_it_is_a_copy_of(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    (tmp_path / "000006.partial").mkdir()
    for _ in range(2):
        aside = store.begin_copy(7)
        assert names(tmp_path) == ["000007.partial"]
        (aside / "000000.ckpt").write_bytes(bytes(3))
        store.commit(7, described(tmp_path, (3,)))
        assert names(tmp_path) == ["000007"]
        assert checkpoint_store.find_newest_complete(tmp_path, "c", 2)[0] == 7


def test_other_names_are_no_checkpoints(tmp_path: Path) -> None:
    for name in ("1", "00001", "0000001", "latest", "000001.old.partial", "0000001234567", "\u0663" * 6):
        (tmp_path / name).mkdir()
    assert checkpoint_store.checkpoint_numbers(tmp_path) == []


@pytest.mark.parametrize(("keep", "left"), [(1, [4]), (2, [4, 3]), (4, [4, 3, 2, 1]), (9, [4, 3, 2, 1])])
def test_the_newest_are_kept(tmp_path: Path, keep: int, left: list[int]) -> None:
    for _ in range(4):
        saved(tmp_path)
    CheckpointStore(tmp_path).delete_old(keep)
    assert names(tmp_path) == sorted(f"{number:06d}" for number in left)


def test_what_is_drained_or_restored_is_not_deleted_until_that_has_ended(tmp_path: Path) -> None:
    for _ in range(4):
        saved(tmp_path)
    store = CheckpointStore(tmp_path)
    store.add_pin(2)
    store.add_pin(2)
    for _ in range(2):
        store.delete_old(keep=1)
        assert checkpoint_store.checkpoint_numbers(tmp_path) == [4, 2]
        store.remove_pin(2)
    store.delete_old(keep=1)
    assert checkpoint_store.checkpoint_numbers(tmp_path) == [4]


def calls_of_deleting(base: Path, monkeypatch: pytest.MonkeyPatch, last: int) -> bool:
    """Delete the older of two checkpoints, as far as its call number `last`; whether it was cut short there."""
    done = 0

    def counted(call: Callable[..., object]) -> Callable[..., object]:
        def attempt(*given: object, **named: object) -> object:
            nonlocal done
            done += 1
            if done > last:
                raise KeyboardInterrupt
            return call(*given, **named)

        return attempt

    with monkeypatch.context() as patch:
        for name in ("rename", "unlink", "rmdir", "fsync"):
            patch.setattr(manifest.os, name, counted(getattr(manifest.os, name)))
        try:
            CheckpointStore(base).delete_old(keep=1)
        except KeyboardInterrupt:
            return True
    return False


def test_deleting_that_is_cut_short_anywhere_leaves_nothing_that_looks_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = 0
    while True:
        base = tmp_path / f"{last}"
        saved(base)
        saved(base)
        cut_short = calls_of_deleting(base, monkeypatch, last)
        for number in checkpoint_store.checkpoint_numbers(base):
            assert checkpoint_store._is_complete(base / f"{number:06d}")
        assert checkpoint_store.find_newest_complete(base, "c", 2)[0] == 2
        saved(base)
        assert set(names(base)) <= {"000001", "000002", "000003"}
        if not cut_short:
            break
        last += 1
    assert last >= 6  # a name, a directory synced, three files and their directory


@pytest.mark.parametrize(
    ("count", "keep", "looked_at"),
    [(1, 1, []), (3, 3, []), (3, 9, []), (2, 1, []), (4, 3, ["000003", "000002"]), (6, 3, ["000005", "000004"])],
)
def test_only_those_are_looked_at_on_which_it_depends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, keep: int, looked_at: list[str]
) -> None:
    seen: list[str] = []
    look = checkpoint_store._is_complete

    def counts(directory: Path) -> bool:
        seen.append(directory.name)
        return look(directory)

    store = CheckpointStore(tmp_path)
    for _ in range(count):
        store.commit(written(store), described(tmp_path, (3, 5)))
    monkeypatch.setattr(checkpoint_store, "_is_complete", counts)
    store.delete_old(keep)
    assert seen == looked_at
    assert len(checkpoint_store.checkpoint_numbers(tmp_path)) == min(count, keep)


def test_nothing_is_deleted_where_too_few_are_complete(tmp_path: Path) -> None:
    for _ in range(4):
        saved(tmp_path)
    for number in (1, 2, 3):
        (tmp_path / f"{number:06d}" / NAME).unlink()
    CheckpointStore(tmp_path).delete_old(2)
    assert checkpoint_store.checkpoint_numbers(tmp_path) == [4, 3, 2, 1]


@pytest.mark.parametrize(("call", "ending"), [("open", NAME), ("pread", NAME), ("lstat", "000000.ckpt")])
def test_what_cannot_be_read_is_neither_passed_over_nor_a_reason_to_delete(
    tmp_path: Path, call: str, ending: str
) -> None:
    for _ in range(3):
        saved(tmp_path)
    with failing(call, errno.EIO, ending):
        with pytest.raises(ExecutionError, match=f"{ending}: Input/output error: nothing proves") as caught:
            checkpoint_store.find_newest_complete(tmp_path, "c", 2)
        assert caught.value.code == "R401"
        CheckpointStore(tmp_path).delete_old(keep=1)
    assert checkpoint_store.checkpoint_numbers(tmp_path) == [3, 2, 1]
    assert checkpoint_store.find_newest_complete(tmp_path, "c", 2)[0] == 3


def test_a_directory_that_cannot_be_listed_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    saved(tmp_path)
    stale = mock.patch.object(Path, "iterdir", side_effect=OSError(errno.ESTALE, os.strerror(errno.ESTALE)))
    with stale, pytest.raises(ExecutionError, match=r"opendir failed on .*: Stale file handle") as caught:
        checkpoint_store.find_newest_complete(tmp_path, "c", 2)
    assert caught.value.code == "R401"


def test_a_link_in_the_place_of_a_checkpoint_is_refused(tmp_path: Path) -> None:
    base, elsewhere = tmp_path / "in", tmp_path / "out"
    saved(base)
    saved(base).rename(elsewhere)
    (base / "000002").symlink_to(elsewhere)
    with pytest.raises(UsageError, match="000002 is a symbolic link") as caught:
        checkpoint_store.find_newest_complete(base, "c", 2)
    assert caught.value.code == "E208"
    assert checkpoint_store.list_data_files(base) == sorted((base / "000001").glob("*.ckpt"))
    (base / "000002").unlink()
    assert checkpoint_store.find_newest_complete(base, "c", 2)[0] == 1


def test_damaged_ones_are_not_counted_among_those_that_are_kept(tmp_path: Path) -> None:
    for _ in range(5):
        saved(tmp_path)
    for number in (2, 4):
        (tmp_path / f"{number:06d}" / "000000.ckpt").unlink()
    CheckpointStore(tmp_path).delete_old(keep=2)
    assert checkpoint_store.checkpoint_numbers(tmp_path) == [5, 4, 3]
    assert checkpoint_store.find_newest_complete(tmp_path, "c", 2)[0] == 5


def test_the_newest_complete_one_is_found(tmp_path: Path) -> None:
    for _ in range(2):
        saved(tmp_path)
    assert checkpoint_store.find_newest_complete(tmp_path, "c", 2) == (2, described(tmp_path, (3, 5)), [])


def test_damaged_ones_are_passed_over_and_named(tmp_path: Path) -> None:
    for _ in range(4):
        saved(tmp_path)
    (tmp_path / "000004" / NAME).write_text("{")
    (tmp_path / "000003" / "000001.ckpt").unlink()
    (tmp_path / "000002" / "000000.ckpt").write_bytes(b"x")
    number, _, passed_over = checkpoint_store.find_newest_complete(tmp_path, "c", 2)
    assert number == 1
    assert passed_over == [
        "000004: has no manifest that can be read",
        "000003: 000001.ckpt: No such file or directory",
        "000002: 000000.ckpt has 1 bytes, not 3",
    ]


def test_one_whose_content_was_found_to_be_damaged_is_passed_over_for_an_older_one(tmp_path: Path) -> None:
    for _ in range(3):
        saved(tmp_path)
    (tmp_path / "000002" / NAME).unlink()
    notes = ["000003: differs from what was saved"]
    found = checkpoint_store.find_newest_complete(tmp_path, "c", 2, below=3, passed_over=notes)
    assert found == (1, described(tmp_path, (3, 5)), [*notes, "000002: has no manifest that can be read"])
    with pytest.raises(ExecutionError, match="000003: differs from what was saved"):
        checkpoint_store.find_newest_complete(tmp_path, "c", 2, below=1, passed_over=notes)


def test_a_manifest_of_something_else_is_not_believed(tmp_path: Path) -> None:
    made = saved(tmp_path / "one", ranks=3)
    (tmp_path / "two").mkdir()
    moved = made.rename(tmp_path / "two" / made.name)
    with pytest.raises(ExecutionError, match="has no manifest of such a checkpoint"):
        checkpoint_store.find_newest_complete(tmp_path / "two", "c", 2)
    assert not list(checkpoint_store.find_other_writers(tmp_path / "one", "c"))
    moved.rename(made)
    assert checkpoint_store.find_newest_complete(tmp_path / "one", "c", 2)[0] == 1
    assert list(checkpoint_store.find_other_writers(tmp_path / "two", "c")) == [(tmp_path / "one", Split(1, 1, 3))]
    assert not list(checkpoint_store.find_other_writers(tmp_path / "two", "d"))


def test_where_there_is_none_the_error_says_what_was_found(tmp_path: Path) -> None:
    with pytest.raises(ExecutionError, match="nothing was ever saved there") as caught:
        checkpoint_store.find_newest_complete(tmp_path / "nowhere", "c", 2)
    assert caught.value.code == "R404"
    CheckpointStore(tmp_path).begin("rename")
    with pytest.raises(ExecutionError, match=r"`c` in .*: 000001\.partial: was never finished") as caught:
        checkpoint_store.find_newest_complete(tmp_path, "c", 2)
    assert caught.value.code == "R404"


@pytest.mark.parametrize("commit", COMMITS)
def test_one_whose_manifest_is_not_readable_is_not_complete(tmp_path: Path, commit: Commit) -> None:
    refusing = mock.patch.object(manifest, "check_json_size", side_effect=ValueError("too large"))
    with refusing, pytest.raises(ExecutionError, match="would never be read: too large"):
        saved(tmp_path / "c", commit=commit)
    assert not list((tmp_path / "c").rglob(f"{NAME}*"))
