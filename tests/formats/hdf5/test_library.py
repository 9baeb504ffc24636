"""Reading through h5py: rows of all parts into memory that is given, and what it says without MPI."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from dliosim.errors import ExecutionError
from dliosim.formats.contract_tests import write_resolved
from dliosim.formats.hdf5.format import hdf5
from dliosim.formats.hdf5.library import has_parallel_hdf5, open_library
from tests.formats.hdf5_sample import by_application, described

DATASET = described(shape=(3, 4), element="int16", parts=2, chunk=(4, "samples"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_resolved(hdf5(DATASET), tmp_path / "x.hdf5", 10)
    return tmp_path / "x.hdf5"


@pytest.mark.parametrize(("first", "count"), [(0, 10), (3, 5), (9, 1), (10, 0), (4, 0)])
def test_rows_are_read_to_the_front_and_nothing_else_is_touched(path: Path, first: int, count: int) -> None:
    handle = open_library(path, DATASET)
    assert (handle.samples, handle.row_bytes) == (10, 48)
    out = bytearray(b"\xee" * 600)
    assert handle.read(first, count, memoryview(out)[5:]) == 48 * count
    handle.close()
    expected = b"".join(by_application(path, ["records_0", "records_1"])[first : first + count])
    assert bytes(out) == b"\xee" * 5 + expected + b"\xee" * (595 - len(expected))


@pytest.mark.parametrize(("first", "count", "room"), [(0, 11, 1000), (-1, 1, 1000), (5, -1, 1000), (0, 2, 95)])
def test_rows_that_are_not_there_or_do_not_fit_are_refused(path: Path, first: int, count: int, room: int) -> None:
    handle = open_library(path, DATASET)
    with pytest.raises(ExecutionError, match="has 10 samples of 48 bytes"):
        handle.read(first, count, memoryview(bytearray(room)))
    handle.close()


def test_parts_of_different_types_that_do_not_align_are_read(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x", "w") as file:
        file["a"] = np.arange(15, dtype="u1").reshape(5, 3)
        file["b"] = np.arange(10, dtype=">f8").reshape(5, 2)
        file["c"] = np.arange(5, dtype="i2")
    handle = open_library(tmp_path / "x", described(size=1, names=("a", "b", "c")))
    out = bytearray(5 * 21)
    assert handle.read(0, 5, memoryview(out)) == 105
    handle.close()
    assert bytes(out) == b"".join(by_application(tmp_path / "x", ["a", "b", "c"]))


def test_a_damaged_chunk_is_refused_and_named(tmp_path: Path) -> None:
    dataset = described(size=100, codec="gzip")
    write_resolved(hdf5(dataset), tmp_path / "x", 3)
    (column,) = hdf5(dataset).index(tmp_path / "x").columns
    with (tmp_path / "x").open("r+b") as stream:
        stream.seek(int(column.offset[1]))
        stream.write(b"no stream of zlib")
    handle = open_library(tmp_path / "x", dataset)
    assert handle.read(0, 1, memoryview(bytearray(100))) == 100
    with pytest.raises(ExecutionError, match="samples 1 to 1") as found:
        handle.read(1, 1, memoryview(bytearray(100)))
    handle.close()
    assert found.value.code == "R401"


@pytest.mark.skipif(has_parallel_hdf5(), reason="this h5py is parallel")
def test_without_a_parallel_h5py_a_communicator_is_refused_with_what_to_install(path: Path) -> None:
    with pytest.raises(ExecutionError, match="build h5py against a parallel HDF5") as found:
        open_library(path, DATASET, comm=object())
    assert found.value.code == "R403"
