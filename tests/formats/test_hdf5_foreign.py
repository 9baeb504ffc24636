"""HDF5 files that others wrote: h5py's own slices, the library reader and the index agree about every byte."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from h5py import h5d, h5p, h5s, h5t
from hypothesis import given
from hypothesis import strategies as st

from dliosim.errors import ExecutionError
from dliosim.formats.hdf5.format import hdf5
from tests.formats.hdf5_sample import ANY, by_application, by_index, by_library, described, row_bytes

VALUES = np.random.default_rng(1).integers(-500, 500, (11, 6, 4)).astype("<i2")
SCALED = h5py.h5z.FILTER_SCALEOFFSET

#: Arguments of h5py's `create_dataset`.
STORED: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "chunked": {"chunks": (3, 6, 4)},
    "one chunk": {"chunks": (11, 6, 4)},
    "one sample a chunk": {"chunks": (1, 6, 4)},
    "cut samples": {"chunks": (1, 4, 4)},
    "cut deeper": {"chunks": (1, 1, 3)},
    "growing": {"chunks": (3, 6, 4), "maxshape": (None, 6, 4)},
    "growing twice": {"chunks": (3, 6, 4), "maxshape": (None, None, 4)},
    "gzip": {"chunks": (4, 6, 4), "compression": "gzip"},
    "gzip growing": {"chunks": (4, 6, 4), "compression": "gzip", "maxshape": (None, 6, 4)},
    "gzip of cut samples": {"chunks": (1, 3, 4), "compression": "gzip"},
    "shuffle": {"chunks": (4, 6, 4), "shuffle": True},
    "checksum": {"chunks": (4, 6, 4), "fletcher32": True},
    "checksum growing twice": {"chunks": (4, 6, 4), "fletcher32": True, "maxshape": (None, None, 4)},
    "gzip, shuffle, checksum": {"chunks": (4, 6, 4), "compression": "gzip", "shuffle": True, "fletcher32": True},
    "lzf": {"chunks": (4, 6, 4), "compression": "lzf"},
    "lzf, shuffle, checksum": {"chunks": (4, 6, 4), "compression": "lzf", "shuffle": True, "fletcher32": True},
    "scaleoffset": {"chunks": (4, 6, 4), "scaleoffset": 0},
    "scaleoffset with fill": {"chunks": (4, 6, 4), "scaleoffset": 0, "fillvalue": 7},
    "big-endian": {"chunks": (4, 6, 4), "dtype": ">i2", "compression": "gzip", "shuffle": True},
    "big-endian scaleoffset": {"chunks": (4, 6, 4), "dtype": ">i2", "scaleoffset": 0},
}


def agreed(path: Path, names: list[str], named: bool = False) -> list[bytes]:
    """Every sample's bytes, on which the three ways agree."""
    dataset = described(size=1, names=tuple(names) if named else ())
    expected = by_application(path, names)
    assert by_library(path, dataset) == expected
    assert by_index(path, dataset, row_bytes(path, names)) == expected
    return expected


@pytest.mark.parametrize("block", [0, 512])
@pytest.mark.parametrize("version", ["earliest", "v108", "v110", "latest"])
@pytest.mark.parametrize("stored", STORED.values(), ids=STORED.keys())
def test_all_ways_agree(stored: dict[str, Any], version: str, block: int, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x", "w", libver=version, userblock_size=block) as file:
        file.create_dataset("group/images", data=VALUES, **stored)
    assert len(agreed(tmp_path / "x", ["group/images"])) == 11


@pytest.mark.parametrize("version", ["earliest", "latest"])
@pytest.mark.parametrize("codec", [None, "gzip", "lzf"])
def test_resized_data_sets(codec: str | None, version: str, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x", "w", libver=version) as file:
        dset = file.create_dataset("a", data=VALUES, chunks=(4, 6, 4), maxshape=(None, 6, 4), compression=codec)
        dset.resize(30, axis=0)
        dset[25:] = VALUES[:5]
        dset[11:25] = 3
        dset.resize(27, axis=0)
    assert len(agreed(tmp_path / "x", ["a"])) == 27


def test_chunks_that_did_not_compress_are_distinguished(tmp_path: Path) -> None:
    noise = np.random.default_rng(2).integers(0, 256, (10, 400), np.uint8)
    noise[3:7] = 5
    with h5py.File(tmp_path / "x", "w") as file:
        file.create_dataset("a", data=noise, chunks=(2, 400), compression="lzf", shuffle=True, fletcher32=True)
    (column,) = hdf5(ANY).index(tmp_path / "x").columns
    assert column.filters[-1].name == "skipped"
    agreed(tmp_path / "x", ["a"])


def test_chunks_that_skipped_a_filter_and_do_not_show_it_are_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x", "w") as file:
        dset = file.create_dataset("a", (4, 8), "i2", chunks=(2, 8), shuffle=True)
        dset.id.write_direct_chunk((0, 0), bytes(32), 1)
        dset.id.write_direct_chunk((2, 0), bytes(32), 0)
    with pytest.raises(ExecutionError, match="skipped filters"):
        hdf5(ANY).index(tmp_path / "x")


@pytest.mark.parametrize("codec", [None, "gzip"])
def test_chunks_never_written_have_no_length(codec: str | None, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x", "w") as file:
        dset = file.create_dataset("a", (9, 6, 4), "i2", chunks=(2, 6, 4), fillvalue=7, compression=codec)
        dset[4:6] = VALUES[:2]
    (column,) = hdf5(ANY).index(tmp_path / "x").columns
    assert (column.length > 0).tolist() == [False, False, True, False, False]
    expected = by_application(tmp_path / "x", ["a"])
    assert by_library(tmp_path / "x", ANY) == expected
    found = by_index(tmp_path / "x", ANY, [48])
    assert [row for row in range(9) if found[row] is not None] == [4, 5]
    assert found[4:6] == expected[4:6]


def test_filters_are_listed_in_the_order_of_writing(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x", "w") as file:
        file.create_dataset("a", data=VALUES, chunks=(2, 6, 4), compression=6, shuffle=True, fletcher32=True)
    (column,) = hdf5(ANY).index(tmp_path / "x").columns
    assert [(step.name, step.parameters) for step in column.filters] == [
        ("shuffle", (2,)), ("deflate", (6,)), ("fletcher32", ()),
    ]  # fmt: skip


def test_tiles_are_read_whole_and_not_put_together(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x", "w") as file:
        file.create_dataset("a", data=VALUES, chunks=(1, 3, 2), compression="gzip")
    (column,) = hdf5(ANY).index(tmp_path / "x").columns
    assert (column.samples, column.pieces, column.row_bytes, column.unit_bytes) == (1, 4, 0, 12)
    stored = memoryview((tmp_path / "x").read_bytes())
    unit = stored[column.offset[0] : column.offset[0] + column.length[0]]
    assert hdf5(ANY).decode(column, unit) is None
    with pytest.raises(ExecutionError, match="inflate"):
        hdf5(ANY).decode(column, unit[:-1])


def test_parts_are_the_data_sets_that_are_named(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x", "w") as file:
        file["images"] = VALUES
        file.create_dataset("deep/labels", data=np.arange(11, dtype=">f8"), chunks=(2,), compression="gzip")
        file["odd"] = VALUES.astype("u1")[:, :1, :3]
    agreed(tmp_path / "x", ["odd", "deep/labels", "images"], named=True)
    agreed(tmp_path / "x", ["images", "odd"], named=True)


def test_compound_elements_are_bytes(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x", "w") as file:
        file["a"] = np.frombuffer(VALUES.tobytes(), [("x", "<i2"), ("y", "u1"), ("z", "u1")]).reshape(11, -1)
    agreed(tmp_path / "x", ["a"])


def test_records_are_taken_before_what_is_longer(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x", "w") as file:
        file["records_0"] = VALUES[:4]
        file["records_1"] = VALUES[4:8]
        file["labels"] = np.zeros(100)
    agreed(tmp_path / "x", ["records_0", "records_1"])


def test_else_the_longest_data_set_is_taken(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x", "w") as file:
        file["mean"] = np.zeros((6, 4))
        file["scalar"] = 1.0
        file["train/images"] = VALUES
    agreed(tmp_path / "x", ["train/images"])


def test_groups_that_hold_each_other_are_looked_through_once(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x", "w") as file:
        file["a/images"] = VALUES
        file["a/again"] = file["a"]
        file["a/root"] = file["/"]
    agreed(tmp_path / "x", ["a/images"])
    agreed(tmp_path / "x", ["a/again/images"], named=True)


def test_several_that_are_as_long_must_be_named(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x", "w") as file:
        file["images"] = VALUES
        file["labels"] = np.zeros(11)
    with pytest.raises(
        ExecutionError, match=r"`labels`: name those to read\n  = help: write `datasets \"images\", \"labels\"`,"
    ):
        hdf5(ANY).index(tmp_path / "x")


def test_parts_of_different_length_are_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x", "w") as file:
        file["a"] = VALUES
        file["b"] = VALUES[:3]
    with pytest.raises(ExecutionError, match="`a` 11, `b` 3"):
        hdf5(described(size=1, names=("a", "b"))).index(tmp_path / "x")


def _compact(file: Any) -> None:
    create = h5p.create(h5p.DATASET_CREATE)
    create.set_layout(h5d.COMPACT)
    dset = h5d.create(file.id, b"a", h5t.STD_U8LE, h5s.create_simple((4,)), create)
    dset.write(h5s.ALL, h5s.ALL, np.arange(4, dtype="u1"))


def _virtual(file: Any) -> None:
    layout = h5py.VirtualLayout((11, 6, 4), "i2")
    layout[:] = h5py.VirtualSource("elsewhere", "a", (11, 6, 4))
    file.create_virtual_dataset("a", layout)


def _texts(file: Any) -> None:
    file.create_dataset("a", data=["one", "two"], dtype=h5py.string_dtype())


def _lists(file: Any) -> None:
    file.create_dataset("a", (3,), h5py.vlen_dtype("i4"))[0] = [1, 2]


def _references(file: Any) -> None:
    file.create_dataset("a", (3,), h5py.ref_dtype)[0] = file.ref


def _external(file: Any) -> None:
    file.create_dataset("a", (4,), "u1", external=[("elsewhere", 0, 4)])


REFUSED: dict[str, tuple[Callable[[Any], object], str]] = {
    "compact": (_compact, "compact"),
    "virtual": (_virtual, "virtual"),
    "external": (_external, "external"),
    "texts": (_texts, "varying length"),
    "lists": (_lists, "varying length"),
    "references": (_references, "references"),
    "scalar": (lambda file: file.__setitem__("a", 1.0), "scalar or empty"),
    "null": (lambda file: file.__setitem__("a", h5py.Empty("f4")), "scalar or empty"),
    "no bytes": (lambda file: file.create_dataset("a", (3, 0), "u1"), "no bytes"),
    "never written": (lambda file: file.create_dataset("a", (3, 2), "u1"), "never written"),
    "no chunk written": (lambda file: file.create_dataset("a", (3, 2), "u1", chunks=(1, 2)), "never written"),
    "chunks across samples": (lambda file: file.create_dataset("a", data=VALUES, chunks=(2, 3, 4)), "h5repack"),
    "a group": (lambda file: file.create_group("a"), "no data set"),
    "nothing": (lambda file: None, "has no data set `a`"),
}


@pytest.mark.parametrize(("make", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_what_has_no_ranges_of_samples_is_refused_with_the_reason(
    make: Callable[[Any], object], reason: str, tmp_path: Path
) -> None:
    with h5py.File(tmp_path / "x", "w") as file:
        make(file)
    with pytest.raises(ExecutionError, match=reason) as found:
        hdf5(described(size=1, names=("a",))).index(tmp_path / "x")
    assert found.value.code == "R401"
    assert str(tmp_path / "x") in found.value.message


def test_a_virtual_data_set_is_named_with_what_it_is_made_of_and_is_never_passed_over(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x", "w") as file:
        _virtual(file)
    with pytest.raises(ExecutionError, match=r"data set `a` is virtual: its samples are elsewhere; read `elsewhere`$"):
        hdf5(described(size=1)).index(tmp_path / "x")
    with h5py.File(tmp_path / "x", "a") as file:
        file["g/times"] = np.zeros(11)
        layout = h5py.VirtualLayout((3, 6, 4), "i2")
        for number in range(3):
            layout[number] = h5py.VirtualSource(".", f"part{number}", (6, 4))
        file.create_virtual_dataset("A", layout)
    named = r"`A` is virtual.*; read `part0`, `part1`, `part2`, or name those of this file.*\n.*`datasets \"g/times\"`"
    with pytest.raises(ExecutionError, match=named):
        hdf5(described(size=1)).index(tmp_path / "x")


def test_of_a_missing_name_it_is_said_what_there_is(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x", "w") as file:
        file["g/b"] = file["c"] = VALUES
    with pytest.raises(ExecutionError, match="has no data set `a`, and these: `c`, `g/b`"):
        hdf5(described(size=1, names=("a",))).index(tmp_path / "x")


def test_an_index_says_what_the_library_gives_for_a_sample(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x", "w") as file:
        file.create_dataset("a", data=np.zeros((6, 3, 4), "f4"), chunks=(2, 3, 4), compression="gzip")
        file["b"] = np.zeros((6, 5), "u1")
    assert hdf5(described(size=1, names=("a", "b"))).index(tmp_path / "x").sample_bytes == 3 * 4 * 4 + 5


@given(
    count=st.integers(1, 6),
    shape=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=3),
    rows=st.integers(1, 6),
    element=st.sampled_from(["u1", "<i2", ">f4", "f8"]),
    stored=st.sampled_from(
        [{}, {"compression": "gzip"}, {"compression": "lzf"}, {"shuffle": True, "fletcher32": True}, {"scaleoffset": 3}]
    ),
    version=st.sampled_from(["earliest", "latest"]),
)
def test_any_chunks_agree_or_are_refused(
    tmp_path_factory: pytest.TempPathFactory,
    count: int,
    shape: list[tuple[int, int]],
    rows: int,
    element: str,
    stored: dict[str, Any],
    version: str,
) -> None:
    path = tmp_path_factory.mktemp("hdf5") / "x"
    extents = tuple(extent for extent, _ in shape)
    chunks = (min(rows, count), *(min(extent, length) for extent, length in shape))
    data = np.random.default_rng(0).integers(0, 50, (count, *extents)).astype(element)
    with h5py.File(path, "w", libver=version) as file:
        file.create_dataset("a", data=data, chunks=chunks, **stored)
    expected = by_application(path, ["a"])
    assert by_library(path, ANY) == expected
    try:
        found = by_index(path, ANY, row_bytes(path, ["a"]))
    except ExecutionError as error:
        assert "h5repack" in error.message
        assert chunks[0] > 1
        return
    inside = len(extents) > 1 and any(
        chunk not in (1, extent) for chunk, extent in zip(chunks[2:], extents[1:], strict=True)
    )
    for row in range(count):
        if found[row] is not None and not (stored and inside):  # padding inside a sample is decoded with it
            assert found[row] == expected[row]
