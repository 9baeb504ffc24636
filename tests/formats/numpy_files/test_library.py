"""`numpy.load` reads what the formats of arrays write, and nothing is read but by it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from dliosim.errors import ExecutionError
from dliosim.formats.contract_tests import random_contents, write_framed
from dliosim.formats.numpy_files.npy_header import ArrayFile, Npy
from dliosim.formats.numpy_files.npz import StoredNpz, npz
from dliosim.model import Shape
from tests.formats.described import described


def read(file: ArrayFile, first: int, count: int, size: int) -> bytes:
    buffer = bytearray(count * size)
    got = file.read(first, count, memoryview(buffer))
    assert got == len(buffer)
    return bytes(buffer)


@pytest.mark.parametrize("form", [Npy, StoredNpz])
def test_rows_are_those_that_were_written(form: type[Npy | StoredNpz], tmp_path: Path) -> None:
    dataset, path = described(form.name, 30), tmp_path / "f"
    write_framed(form(dataset), path, np.full(9, 30))
    file = form(dataset).open_library(path, None, False)
    assert read(file, 2, 3, 30) == b"".join(random_contents(dataset, row, 30).tobytes() for row in (2, 3, 4))
    with pytest.raises(ExecutionError, match="has 9 samples of 30 bytes: not samples 8 to 9"):
        read(file, 8, 2, 30)
    file.close()


@pytest.mark.parametrize("form", [Npy, StoredNpz])
def test_a_file_is_opened_by_numpy_alone(
    form: type[Npy | StoredNpz], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, path = described(form.name, 30), tmp_path / "f"
    write_framed(form(dataset), path, np.full(9, 30))
    monkeypatch.setattr(form, "index", None)
    monkeypatch.setattr(os, "pread", None)
    read(form(dataset).open_library(path, None, False), 0, 9, 30)


def test_the_only_array_of_an_archive_needs_no_name(tmp_path: Path) -> None:
    rows = np.arange(12, dtype=np.uint8).reshape(3, 4)
    np.savez(tmp_path / "f.npz", odd=rows)
    dataset = described("npz", 12, source="*.npz")
    assert read(npz(dataset).open_library(tmp_path / "f.npz", None, False), 0, 1, 12) == rows.tobytes()


def test_samples_of_several_arrays_are_their_rows_side_by_side(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", a=np.arange(6, dtype=np.uint8).reshape(3, 2), b=np.array([7, 8, 9], np.uint8))
    dataset = described("npz", 2, shape=Shape((2,), "uint8"), source="*.npz", names=("a", "b"))
    file = npz(dataset).open_library(tmp_path / "f.npz", None, False)
    assert read(file, 1, 2, 3) == bytes([2, 3, 8, 4, 5, 9])


def test_arrays_of_other_numbers_of_samples_do_not_go_together(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", a=np.zeros((3, 2), np.uint8), b=np.zeros(4, np.uint8))
    dataset = described("npz", 2, shape=Shape((2,), "uint8"), source="*.npz", names=("a", "b"))
    with pytest.raises(ExecutionError, match=r"`b` in .* and not 3 samples as the other arrays"):
        read(npz(dataset).open_library(tmp_path / "f.npz", None, False), 0, 1, 3)


@pytest.mark.parametrize(
    ("whole", "said"),
    [
        (b"", "numpy cannot read .*EOFError"),
        (b"PK\x03\x04 and no more", "numpy cannot read .*BadZipFile"),
        (b"\x93NUMPY\x01\x00\x05\x00((((\n", "numpy cannot read"),
        (b"no array", "numpy cannot read .*ValueError"),
    ],
)
def test_what_numpy_cannot_open_is_refused_plainly(tmp_path: Path, whole: bytes, said: str) -> None:
    path = tmp_path / "f"
    path.write_bytes(whole)
    with pytest.raises(ExecutionError, match=said):
        read(npz(described("npz", 4)).open_library(path, None, False), 0, 1, 4)


def test_an_array_larger_than_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.npy"
    np.save(path, np.zeros(1000, np.uint8))
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"(1000,), }" + b" " * 14, b"(100000000000000000,), }"))
    assert len(path.read_bytes()) == len(whole)
    with pytest.raises(ExecutionError, match=r"numpy cannot read .*MemoryError"):
        read(Npy(described("npy", 1000)).open_library(path, None, False), 0, 1, 1000)
