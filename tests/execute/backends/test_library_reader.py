"""A reader through a format's library keeps the contract of readers; an empty batch opens nothing and reads nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from dliosim.execute.backends import library_reader
from dliosim.execute.backends.contract import Files
from dliosim.execute.backends.library_reader import LibraryReader
from dliosim.execute.backends.registry import Backend
from dliosim.execute.testing.backend_contract import (
    LIFETIMES,
    THREADS,
    check_batches,
    check_lifetime,
    check_missing,
    check_reading,
    check_stopping_early,
)
from dliosim.execute.testing.contract_fixtures import make_calls
from dliosim.formats.contract_tests import random_contents, write_framed, write_resolved
from dliosim.formats.protocols import Framed, LibraryReadable, Resolved
from dliosim.formats.raw import Raw
from dliosim.formats.registry import bind
from dliosim.model import Access, Dataset
from tests.formats.datasets import dataset


class BytesFile:
    """A file of samples of one byte each, as a library has it open."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)

    def read(self, first: int, count: int, into: memoryview) -> int:
        self._file.seek(first)
        return self._file.readinto(into[:count])

    def close(self) -> None:
        self._file.close()


class BytesByLibrary(Raw, LibraryReadable):
    def open_library(self, path: Path, comm: object | None, collective: bool) -> BytesFile:
        return BytesFile(path)


def backend(described: Dataset) -> Backend:
    return Backend(
        "library",
        lambda access, files: LibraryReader(access, replace(files, dataset=described)),
    )


@pytest.fixture
def by_bytes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    monkeypatch.setattr(library_reader, "bind", BytesByLibrary)
    return backend(dataset("raw", 1))


def test_it_keeps_the_contract(by_bytes: Backend, tmp_path: Path) -> None:
    for lifetime in LIFETIMES:
        access = Access(through="library", **lifetime)
        check_reading(by_bytes, access, tmp_path)
        check_lifetime(by_bytes, access, tmp_path)
        check_missing(by_bytes, access, tmp_path)
        for threads in THREADS:
            check_batches(by_bytes, replace(access, **{**threads, **lifetime}), tmp_path, MPI.COMM_SELF)
        check_stopping_early(by_bytes, access, tmp_path, MPI.COMM_SELF)


@pytest.mark.parametrize("lifetime", LIFETIMES, ids=str)
@pytest.mark.parametrize("form", ["hdf5", "npy", "npz", "parquet"])
def test_an_empty_batch_of_a_real_format_reads_nothing(form: str, lifetime: dict[str, str], tmp_path: Path) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow")
    described, path = dataset(form, 64, samples=3), tmp_path / "f"
    found = bind(described)
    if isinstance(found, Resolved):
        write_resolved(found, path, 3)
    else:
        assert isinstance(found, Framed)
        write_framed(found, path, np.full(3, 64))
    files = Files(tmp_path, lambda file: "f", lambda file: path.stat().st_size, False, MPI.COMM_SELF, described)
    reader = backend(described).reader(Access(through="library", **lifetime), files)
    into = memoryview(bytearray(128))
    for rows in ([], [(0, 64, 64), (0, 0, 64)], []):
        before = reader.meter.opens
        assert reader.read(make_calls([rows]), into) == sum(length for _, _, length in rows)
        assert rows or reader.meter.opens == before
    reader.close()
    assert bytes(into) == random_contents(described, 1, 64).tobytes() + random_contents(described, 0, 64).tobytes()
