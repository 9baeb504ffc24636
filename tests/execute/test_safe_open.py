"""The paths that MPI may be asked to open: files, and nothing else in the place of a file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from dliosim.errors import ExecutionError
from dliosim.execute.backends.posix import PosixWriter
from dliosim.execute.safe_open import open_for_write, refuse_link, require_file
from dliosim.model import Access
from tests.execute.failing import failing


def test_a_file_and_a_place_without_one_are_let_pass(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    refuse_link(str(tmp_path / "file"))
    refuse_link(str(tmp_path / "nothing"))


@pytest.mark.parametrize(
    ("kind", "called"), [("link", "a symbolic link"), ("directory", "a directory"), ("pipe", "no regular file")]
)
def test_what_is_no_file_is_refused_by_what_it_is(kind: str, called: str, tmp_path: Path) -> None:
    path = tmp_path / "there"
    if kind == "link":
        path.symlink_to(tmp_path)
    elif kind == "directory":
        path.mkdir()
    else:
        os.mkfifo(path)
    with pytest.raises(ExecutionError, match=f"refused on {path}: {called} stands where a file should be") as caught:
        refuse_link(str(path))
    assert caught.value.code == "R401"
    with pytest.raises(ExecutionError, match=f"refused on {path}: {called} stands where a file should be") as caught:
        require_file(path)
    assert caught.value.code == "R401"


def test_a_close_that_a_signal_interrupts_has_closed(tmp_path: Path) -> None:
    writer = PosixWriter(Access(), tmp_path / "f", create=True)
    with failing("close", errno.EINTR, "/f$") as closed:
        with open_for_write(tmp_path / "f") as descriptor:
            os.write(descriptor, b"x")
        writer.close()
    assert len(closed) == 2
