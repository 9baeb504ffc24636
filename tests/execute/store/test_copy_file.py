"""Copies of files that a file system does not take."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dliosim.errors import ExecutionError
from dliosim.execute.store.copy_file import copy_file


def test_a_write_of_no_bytes_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    with pytest.raises(ExecutionError, match=r"pwrite failed on .*/b: Input/output error"):
        copy_file(tmp_path / "a", tmp_path / "b", None, memoryview(bytearray(4)), lambda *_: None, fsync=False)
