"""A checkpoint's manifest is read with care, and the files next to it are compared with it."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dliosim.execute.store.manifest import NAME, CheckpointManifest, load_manifest, write_manifest
from dliosim.model import Split
from tests.execute.alone import checkpoint_faults

CONTENT = {"000000.ckpt": b"some bytes", "more/000001.ckpt": b"others", "more/plan": b""}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A checkpoint of three files, two of them in a folder."""
    made = tmp_path / "0123456789abcdef" / "000001"
    (made / "more").mkdir(parents=True)
    for name, data in CONTENT.items():
        (made / name).write_bytes(data)
    write_manifest(made, saved().manifest_content())
    return made


def saved() -> CheckpointManifest:
    files = {name: (len(data), zlib.crc32(data)) for name, data in CONTENT.items()}
    return CheckpointManifest("c", "0123456789abcdef", "rename", 6, Split(1, 2, 3), files)


def test_what_is_written_is_read(directory: Path) -> None:
    assert load_manifest(directory) == saved()
    assert load_manifest(directory).find_size_fault(directory) is None
    assert checkpoint_faults(directory) == []


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def link(path: Path) -> None:
    moved = path.rename(path.parents[2] / "elsewhere")
    path.symlink_to(moved)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("harm", "fault"),
    [
        (Path.unlink, "more/000001.ckpt: No such file or directory"),
        (cut, "more/000001.ckpt has 5 bytes, not 6"),
        (lengthen, "more/000001.ckpt has 7 bytes, not 6"),
        (link, "more/000001.ckpt is no file"),
        (pipe, "more/000001.ckpt is no file"),
    ],
)
def test_what_is_missing_or_has_another_size_is_found(
    directory: Path, harm: Callable[[Path], None], fault: str
) -> None:
    harm(directory / "more" / "000001.ckpt")
    assert load_manifest(directory).find_size_fault(directory) == fault
    assert len(checkpoint_faults(directory)) == 1


def test_a_folder_that_is_missing_or_a_link_is_found(directory: Path) -> None:
    moved = (directory / "more").rename(directory.parent / "more")
    assert load_manifest(directory).find_size_fault(directory) == "more: No such file or directory"
    (directory / "more").symlink_to(moved)
    assert load_manifest(directory).find_size_fault(directory) == "more: Not a directory"
    assert checkpoint_faults(directory) == [
        "more is a symbolic link, not a directory",
        "more/000001.ckpt cannot be read: Not a directory",
        "more/plan cannot be read: Not a directory",
    ]


def test_a_bit_that_flipped_is_found_by_the_sums_alone(directory: Path) -> None:
    (directory / "000000.ckpt").write_bytes(b"sone bytes")
    assert load_manifest(directory).find_size_fault(directory) is None
    (wrong,) = checkpoint_faults(directory)
    assert wrong == f"000000.ckpt has CRC-32 {zlib.crc32(b'sone bytes'):08x}, not {zlib.crc32(b'some bytes'):08x}"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kind": "data set"}, "has no manifest of such a checkpoint"),
        ({"digest": "0" * 16}, "has no manifest of such a checkpoint"),
        ({"name": 3}, "does not say what was saved"),
        ({"commit": "quickly"}, "does not say what was saved"),
        ({"commit": ["rename"]}, "does not say what was saved"),
        ({"ranks": "6"}, "does not say what was saved"),
        ({"split": {"tensor": 1}}, "does not say what was saved"),
        ({"split": {"tensor": 1, "pipeline": 1, "data": -1, "played": 0}}, "does not say what was saved"),
        ({"files": ["000000.ckpt"]}, "invalid file entries"),
        ({"files": {"../000000.ckpt": [1, 1]}}, "invalid file entries"),
        ({"files": {"/etc/passwd": [1, 1]}}, "invalid file entries"),
        ({"files": {"a/b/c": [1, 1]}}, "invalid file entries"),
        ({"files": {"./a": [1, 1]}}, "invalid file entries"),
        ({"files": {"a/..": [1, 1]}}, "invalid file entries"),
        ({"files": {"": [1, 1]}}, "invalid file entries"),
        ({"files": {"a\n": [1, 1]}}, "invalid file entries"),
        ({"files": {"a": [1]}}, "invalid file entries"),
        ({"files": {"a": [True, 1]}}, "invalid file entries"),
        ({"files": {"a": [1.0, 1]}}, "invalid file entries"),
        ({"files": {"a": [-1, 1]}}, "invalid file entries"),
        ({"files": {"a": [1, 1 << 32]}}, "invalid file entries"),
        ({"files": {"a": [1 << 63, 1]}}, "invalid file entries"),
    ],
    ids=str,
)
def test_a_manifest_that_says_what_cannot_be_is_refused(directory: Path, change: dict[str, Any], reason: str) -> None:
    content = json.loads((directory / NAME).read_text())
    (directory / NAME).write_text(json.dumps({**content, **change}))
    with pytest.raises(ValueError, match=reason):
        load_manifest(directory)
    assert len(checkpoint_faults(directory)) == 1


def test_only_what_was_committed_loosely_is_doubted() -> None:
    assert saved().commit_warning == ""
    assert "nothing proves" in replace(saved(), commit="none").commit_warning
