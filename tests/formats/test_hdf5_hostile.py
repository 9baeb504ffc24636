"""HDF5 files that are cut, patched or made to mislead: a plain refusal that names the file, and never another file."""

from __future__ import annotations

import os
import random
from pathlib import Path

import h5py
import numpy as np
import pytest

from dliosim.errors import ExecutionError
from dliosim.formats.hdf5.format import hdf5
from dliosim.formats.hdf5.library import open_library
from tests.formats.hdf5_sample import ANY, described

VALUES = np.arange(1200, dtype="<i2").reshape(20, 60)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.hdf5"


def refusal(path: Path, *names: str) -> str:
    """The answers of the index and of the library reader, which must agree."""
    dataset = described(size=1, names=names)
    with pytest.raises(ExecutionError) as found:
        hdf5(dataset).index(path)
    assert found.value.code == "R401"
    assert str(path) in found.value.message
    return found.value.message


@pytest.mark.parametrize("content", [b"", b"x", b"\x89HDF\r\n\x1a\n", bytes(4096), b"PAR1" * 1000])
def test_what_is_no_hdf5_file_is_refused(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    assert "no whole HDF5 file" in refusal(path)
    with pytest.raises(ExecutionError, match="no whole HDF5 file"):
        open_library(path, ANY)


def test_what_the_system_refuses_is_its_own_error(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        hdf5(ANY).index(path)
    with pytest.raises(FileNotFoundError):
        open_library(path, ANY)


def test_a_pipe_is_not_waited_for(path: Path) -> None:
    os.mkfifo(path)
    assert "no regular file" in refusal(path)
    with pytest.raises(ExecutionError, match="no regular file"):
        open_library(path, ANY)


def test_contiguous_data_outside_the_file_are_refused(path: Path) -> None:
    with h5py.File(path, "w", libver="latest") as file:
        file["a"] = VALUES
        offset = file["a"].id.get_offset()
    whole = bytearray(path.read_bytes())
    place = whole.find(offset.to_bytes(8, "little"))
    for wrong in (len(whole), 1 << 40, (1 << 63) - 1):
        whole[place : place + 8] = wrong.to_bytes(8, "little")
        path.write_bytes(whole)
        refusal(path)


def test_a_chunk_tree_that_points_outside_the_file_is_refused(path: Path) -> None:
    with h5py.File(path, "w", libver="earliest") as file:
        file.create_dataset("a", data=VALUES, chunks=(3, 60))
        chunk = file["a"].id.get_chunk_info(2).byte_offset
    good = path.read_bytes()
    place = good.find(chunk.to_bytes(8, "little"), good.find(b"TREE"))
    assert good.count(chunk.to_bytes(8, "little")) == 1
    for wrong in (len(good) - 100, len(good), 1 << 50, (1 << 64) - 2):
        path.write_bytes(good[:place] + wrong.to_bytes(8, "little") + good[place + 8 :])
        assert "`a`" in refusal(path)


@pytest.mark.parametrize("version", ["earliest", "latest"])
def test_patched_bytes_give_an_index_inside_the_file_or_a_refusal(version: str, path: Path) -> None:
    with h5py.File(path, "w", libver=version) as file:
        file.create_dataset("a", data=VALUES, chunks=(3, 60), compression="gzip")
    good, pick = path.read_bytes(), random.Random(5)
    for _ in range(300):
        bad = bytearray(good)
        for _ in range(pick.choice([1, 1, 4])):
            bad[pick.randrange(len(bad))] = pick.choice([0, 1, 0xFF, pick.randrange(256)])
        path.write_bytes(bad)
        try:
            index = hdf5(ANY).index(path)
        except ExecutionError as error:
            assert error.code == "R401"
            continue
        for column in index.columns:
            assert (column.offset >= 0).all()
            assert (column.offset + column.length <= len(bad)).all()
            for offset, length in zip(column.offset[:3], column.length[:3], strict=True):
                try:
                    hdf5(ANY).decode(column, memoryview(bad)[offset : offset + length])
                except ExecutionError as error:
                    assert error.code in ("R401", "R403")


@pytest.mark.parametrize("chunks", [None, (1,), (1 << 20,)])
def test_an_enormous_data_set_in_a_small_file_is_refused(chunks: tuple[int, ...] | None, path: Path) -> None:
    with h5py.File(path, "w", libver="earliest") as file:
        dset = file.create_dataset("a", (1 << 50,), "u1", chunks=chunks)
        if chunks is not None:
            dset[5] = 1
    assert path.stat().st_size < 1 << 21
    assert ("never written" if chunks is None else "not believed") in refusal(path)


def test_chunks_of_more_samples_than_their_shape_are_refused(path: Path) -> None:
    with h5py.File(path, "w", libver="earliest") as file:
        file.create_dataset("a", data=VALUES, chunks=(3, 60), maxshape=(None, 60))
    whole = path.read_bytes()
    shape = (20).to_bytes(8, "little") + (60).to_bytes(8, "little")
    assert whole.count(shape) == 1
    path.write_bytes(whole.replace(shape, (5).to_bytes(8, "little") + (60).to_bytes(8, "little")))
    assert "chunk" in refusal(path)


@pytest.mark.parametrize("name", ["soft", "external", "group/external", "away/a"])
def test_links_are_not_followed(name: str, path: Path, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.hdf5", "w") as file:
        file["a"] = VALUES
    with h5py.File(path, "w") as file:
        file["a"] = VALUES
        file["soft"] = h5py.SoftLink("/a")
        file["external"] = h5py.ExternalLink("other.hdf5", "/a")
        file["group/external"] = h5py.ExternalLink("other.hdf5", "/a")
        file["away"] = h5py.ExternalLink("other.hdf5", "/")
    assert "is a link" in refusal(path, name)
    with pytest.raises(ExecutionError, match="is a link"):
        open_library(path, described(size=1, names=(name,)))


@pytest.mark.parametrize("names", [(), ("records",), ("growing",)])
def test_files_that_virtual_data_sets_are_made_of_are_not_opened(
    names: tuple[str, ...], path: Path, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "other.hdf5")  # opening it would wait for ever
    source = h5py.VirtualSource(tmp_path / "other.hdf5", "a", (20, 60), "i2", maxshape=(None, 60))
    with h5py.File(path, "w", libver="latest") as file:
        for name in ("records", "growing"):
            layout = h5py.VirtualLayout((20, 60), "i2", maxshape=(None, 60))
            layout[: h5py.h5s.UNLIMITED] = source[: h5py.h5s.UNLIMITED]
            file.create_virtual_dataset(name, layout)
    assert "virtual" in refusal(path, *names)


@pytest.mark.parametrize("link", [h5py.SoftLink("/b/a"), h5py.ExternalLink("other.hdf5", "/a")])
def test_a_link_called_records_is_not_taken(link: object, path: Path, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.hdf5", "w") as file:
        file["a"] = VALUES
    with h5py.File(path, "w") as file:
        file["records"] = link
    assert "no data set" in refusal(path)


@pytest.mark.parametrize("name", ["../a", "group/../a", ".", "group//a", "", "/"])
def test_names_that_lead_nowhere_are_refused(name: str, path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["a"] = VALUES
        file["group/a"] = VALUES
    assert "leads nowhere" in refusal(path, name)


@pytest.mark.parametrize("name", ["group", "group/b", "a/b"])
def test_names_of_no_data_set_are_refused(name: str, path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["a"] = VALUES
        file["group/a"] = VALUES
    assert name in refusal(path, name)


def test_a_user_block_is_part_of_the_file(path: Path) -> None:
    with h5py.File(path, "w", userblock_size=1024) as file:
        file["a"] = VALUES
    (column,) = hdf5(ANY).index(path).columns
    assert path.read_bytes()[column.offset[0] :][:2400] == VALUES.tobytes()
