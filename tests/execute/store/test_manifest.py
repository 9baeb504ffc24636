"""A manifest is there whole or not at all, and nothing but one is taken for one; paths stay under their root."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.errors import ExecutionError, UsageError
from dliosim.execute.store.manifest import (
    NAME,
    has_complete_manifest,
    read_manifest,
    remove_manifest,
    resolve_in_root,
    write_manifest,
)
from tests.execute.failing import NO_PROOF, failing


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_manifest(tmp_path, {"files": 3, "name": "d"})
    assert read_manifest(tmp_path) == {"files": 3, "name": "d"}
    assert [entry.name for entry in tmp_path.iterdir()] == [NAME]


def test_a_second_one_replaces_the_first(tmp_path: Path) -> None:
    write_manifest(tmp_path, {"files": 3, "name": "d"})
    write_manifest(tmp_path, {"files": 4})
    assert read_manifest(tmp_path) == {"files": 4}


def test_one_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    write_manifest(tmp_path, {"files": 3})
    with pytest.raises(TypeError):
        write_manifest(tmp_path, {"files": object()})
    assert read_manifest(tmp_path) == {"files": 3}


def test_what_a_crash_left_aside_is_written_over(tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.partial").write_text('{"files": 100000, "and so')
    assert read_manifest(tmp_path) is None
    write_manifest(tmp_path, {"files": 3})
    assert read_manifest(tmp_path) == {"files": 3}


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[1, 2]", b"3", b"null", b'{"files": 3', b"\xff\xfe", b"[" * 100_000],
    ids=["empty", "cut", "list", "number", "null", "no end", "no text", "deep"],
)
def test_what_is_no_manifest_counts_as_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    assert read_manifest(tmp_path) is None


def test_there_is_none_where_there_is_no_directory_or_a_directory_in_its_place(tmp_path: Path) -> None:
    assert read_manifest(tmp_path / "nowhere") is None
    (tmp_path / NAME).mkdir()
    assert read_manifest(tmp_path) is None


@given(call=st.sampled_from(["open", "fstat", "pread"]), number=st.sampled_from(NO_PROOF))
def test_one_that_cannot_be_read_is_not_taken_for_one_that_is_not_there(call: str, number: int) -> None:
    with TemporaryDirectory() as made:
        write_manifest(Path(made), {"files": 3})
        with failing(call, number, NAME) as failed, pytest.raises(ExecutionError) as caught:
            read_manifest(Path(made))
        assert len(failed) == 1
        assert caught.value.code == ("R402" if number == errno.ENOMEM else "R401")
        assert f"read failed on {made}/{NAME}: {os.strerror(number)}: nothing proves" in caught.value.message
        assert read_manifest(Path(made)) == {"files": 3}


@given(call=st.sampled_from(["read", "pread", "fstat", "close"]), number=st.sampled_from((*NO_PROOF, errno.EINTR)))
def test_a_manifest_that_was_not_written_to_its_end_for_certain_is_believed_to_be(call: str, number: int) -> None:
    with TemporaryDirectory() as made:
        write_manifest(Path(made), {"files": 3})
        with failing(call, number, NAME):
            assert has_complete_manifest(Path(made))


@given(st.sampled_from([errno.EIO, errno.EDQUOT, errno.ESTALE]))
def test_what_fails_when_it_is_closed_says_nothing_of_what_was_read_and_all_of_what_was_written(number: int) -> None:
    with TemporaryDirectory() as made:
        write_manifest(Path(made), {"files": 3})
        with failing("close", number, NAME) as failed:
            assert read_manifest(Path(made)) == {"files": 3}
        assert len(failed) == 1
        with failing("close", number, ".partial"), pytest.raises(ExecutionError) as caught:
            write_manifest(Path(made), {"files": 4})
        assert caught.value.message == f"close failed on {made}/{NAME}.partial: {os.strerror(number)}"
        assert read_manifest(Path(made)) == {"files": 3}


def test_a_link_is_neither_followed_to_read_nor_to_write(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("{}")
    data = tmp_path / "data"
    data.mkdir()
    (data / NAME).symlink_to(elsewhere)
    assert read_manifest(data) is None
    (data / f"{NAME}.partial").symlink_to(elsewhere)
    with pytest.raises(OSError, match="symbolic link"):
        write_manifest(data, {"files": 3})
    assert elsewhere.read_text() == "{}"


def test_removing_takes_the_manifest_alone_and_may_be_repeated(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    write_manifest(tmp_path, {})
    for _ in range(2):
        remove_manifest(tmp_path)
        assert read_manifest(tmp_path) is None
    assert [entry.name for entry in tmp_path.iterdir()] == ["data"]
    remove_manifest(tmp_path / "nowhere")


def test_a_path_under_its_root_is_absolute_and_need_not_exist(tmp_path: Path) -> None:
    assert resolve_in_root(tmp_path, "a/b") == Path(tmp_path.resolve(), "a", "b")
    assert resolve_in_root(tmp_path, ".") == tmp_path.resolve()


def test_a_root_that_is_a_link_is_a_root(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to("real")
    assert resolve_in_root(tmp_path / "root", "a") == tmp_path.resolve() / "real" / "a"


@pytest.mark.parametrize("relative", ["..", "../sibling", "a/../../b", "link", "link/x", "/etc"])
def test_a_path_that_leads_out_of_its_root_is_refused(tmp_path: Path, relative: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "root2").mkdir()
    (root / "link").symlink_to(tmp_path / "root2")
    with pytest.raises(UsageError, match="leads out of its root") as caught:
        resolve_in_root(root, relative)
    assert caught.value.code == "E208"
