"""Files of numpy: ours are read by numpy, numpy's by us, and nothing else is."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.errors import ExecutionError
from dliosim.formats.contract_tests import (
    build_framed,
    check_damage,
    check_framed,
    random_contents,
    sample_ranges,
    write_framed,
)
from dliosim.formats.numpy_files.npy_header import Npy
from dliosim.formats.numpy_files.npz import StoredNpz
from dliosim.formats.protocols import Framed
from dliosim.formats.registry import bind
from dliosim.model import Chunk, Compression, Dataset, Shape
from tests.formats.described import VARYING, described, shaped


def rows_read(path: Path, dataset: Dataset) -> list[bytes]:
    """Each sample by the file's index, from the file's bytes."""
    index, whole = Npy(dataset).index(path), path.read_bytes()
    return [
        b"".join(whole[at : at + length] for at, length in sample_ranges(index, row)) for row in range(index.samples)
    ]


def foreign(**rest: object) -> Dataset:
    """A data set of files that somebody else wrote."""
    return described("npy", VARYING, source="*.npy", **rest)  # type: ignore[arg-type]


def raw_header(text: str, version: int = 1) -> bytes:
    """A header with any text in it."""
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes((version, 0)) + length + text.encode("latin-1")


def test_npy_is_framed() -> None:
    assert isinstance(bind(described("npy", 5)), Framed)


@given(st.integers(1, 3000), st.sampled_from([0, 1, 2, 7]))
def test_rows_are_where_they_are_planned(tmp_path_factory: pytest.TempPathFactory, size: int, count: int) -> None:
    path = tmp_path_factory.mktemp("npy") / "f.npy"
    check_framed(Npy(described("npy", size)), np.full(count, size), path)


@given(st.integers(1, 3000))
def test_samples_of_any_size_are_alone_in_their_files(tmp_path_factory: pytest.TempPathFactory, size: int) -> None:
    path = tmp_path_factory.mktemp("npy") / "f.npy"
    dataset = described("npy", VARYING, each=True)
    check_framed(Npy(dataset), np.array([size]), path)
    assert np.load(path, allow_pickle=False).shape == (size,)


@given(st.integers(1, 3000), st.integers(1, 9), st.sampled_from([Npy, StoredNpz]))
def test_samples_of_a_file_have_the_size_that_is_drawn_for_it(
    tmp_path_factory: pytest.TempPathFactory, size: int, count: int, form: type[Framed]
) -> None:
    path = tmp_path_factory.mktemp("npy") / "f"
    dataset = described(form.name, VARYING, sizes="by file")
    assert form(dataset).refuse() is None
    check_framed(form(dataset), np.full(count, size), path)
    loaded = np.load(path, allow_pickle=False)
    assert (loaded if form is Npy else loaded["x"]).shape == (count, size)


@pytest.mark.parametrize("size", [1, 2**52])
def test_headers_have_one_length_whatever_size_is_drawn(size: int) -> None:
    drawn = Npy(described("npy", VARYING, sizes="by file"))
    assert len(drawn.write_header(9, drawn.header + 9 * size, 0)) == drawn.header


@pytest.mark.parametrize("element", ["int8", "uint8", "int16", "uint32", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize("extents", [(3,), (5, 7), (2, 3, 1, 2), ()])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_numpy_reads_the_shape_and_the_bytes_of_samples(
    tmp_path: Path, element: str, extents: tuple[int, ...], count: int
) -> None:
    path = tmp_path / "f.npy"
    dataset = shaped("npy", extents, element)
    size = dataset.constant_size
    assert size is not None
    check_framed(Npy(dataset), np.full(count, size), path)
    array = np.load(path, allow_pickle=False)
    assert array.shape == (count, *extents)
    assert array.dtype == np.dtype(element)
    assert array.tobytes() == b"".join(random_contents(dataset, row, size).tobytes() for row in range(count))


def test_a_sample_alone_in_its_file_has_its_own_shape(tmp_path: Path) -> None:
    path = tmp_path / "f.npy"
    check_framed(Npy(shaped("npy", (5, 7), "float32", each=True)), np.array([140]), path)
    assert np.load(path, mmap_mode="r").shape == (5, 7)


@pytest.mark.parametrize("dimensions", range(31))
@pytest.mark.parametrize("count", [9, 10, 2**40])
def test_headers_have_one_length_whatever_they_count(count: int, dimensions: int) -> None:
    dataset, lone = shaped("npy", (10,) * dimensions, "uint8"), described("npy", VARYING, each=True)
    assert len(Npy(dataset).write_header(count, 10**6, 0)) == Npy(dataset).header
    assert len(Npy(lone).write_header(1, Npy(lone).header + count, 0)) == Npy(lone).header
    assert Npy(dataset).header % 64 == 0


@pytest.mark.parametrize("extents", [(11,), (5, 7)])
@pytest.mark.parametrize("element", ["uint8", "float32", "int64"])
def test_arrays_that_numpy_wrote_are_samples_by_their_shape(
    tmp_path: Path, extents: tuple[int, ...], element: str
) -> None:
    path = tmp_path / "f.npy"
    array = np.random.default_rng(1).integers(0, 100, (6, *extents)).astype(element)
    dataset = foreign(shape=Shape(extents, element))
    np.save(path, array)
    assert rows_read(path, dataset) == [row.tobytes() for row in array]
    np.save(path, array[0])
    assert rows_read(path, dataset) == [array[0].tobytes()]
    assert rows_read(path, foreign()) == [array[0].tobytes()]


def test_without_a_shape_an_array_that_was_there_is_one_sample(tmp_path: Path) -> None:
    path = tmp_path / "f.npy"
    np.save(path, np.arange(12, dtype=np.uint8).reshape(3, 4))
    assert rows_read(path, described("npy", 4, source="*.npy")) == [bytes(range(12))]
    assert rows_read(path, described("npy", 4)) == [bytes(range(4)), bytes(range(4, 8)), bytes(range(8, 12))]


def test_the_order_of_bytes_within_elements_is_the_writers(tmp_path: Path) -> None:
    path = tmp_path / "f.npy"
    array = np.arange(12, dtype=">f4").reshape(4, 3)
    np.save(path, array)
    assert rows_read(path, foreign(shape=Shape((3,), "float32"))) == [row.tobytes() for row in array]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_headers_of_every_version_are_read(tmp_path: Path, version: int) -> None:
    path = tmp_path / "f.npy"
    array = np.arange(6, dtype=np.uint8)
    with path.open("wb") as stream:
        np.lib.format.write_array(stream, array, version=(version, 0))
    assert rows_read(path, foreign()) == [array.tobytes()]


def test_names_of_fields_beyond_latin_are_read(tmp_path: Path) -> None:
    path = tmp_path / "f.npy"
    array = np.zeros(3, [("größe 尺", "<f8"), ("n", "u1")])
    with pytest.warns(UserWarning, match="3.0"):
        np.save(path, array)
    assert rows_read(path, foreign()) == [array.tobytes()]


def test_objects_are_refused_since_they_are_pickles(tmp_path: Path) -> None:
    path = tmp_path / "f.npy"
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ExecutionError, match=r"f.npy holds objects.*pickle"):
        Npy(foreign()).index(path)


def test_several_samples_in_the_order_of_fortran_are_refused_and_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "f.npy"
    array = np.asfortranarray(np.arange(30, dtype=np.int16).reshape(5, 6))
    np.save(path, array)
    with pytest.raises(ExecutionError, match="order of Fortran"):
        Npy(foreign(shape=Shape((6,), "int16"))).index(path)
    assert rows_read(path, foreign(shape=Shape((5, 6), "int16"))) == [array.tobytes("F")]


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((3, 4), np.float64),
        np.zeros((3, 5), np.float32),
        np.zeros((2, 3, 4), np.float32),
        np.zeros((), np.float32),
        np.zeros(4, np.int32),
    ],
    ids=str,
)
def test_arrays_that_are_no_samples_are_refused(tmp_path: Path, array: np.ndarray) -> None:
    path = tmp_path / "f.npy"
    np.save(path, array)
    with pytest.raises(ExecutionError, match=r"neither a sample, float32 of shape \(4,\), nor several") as caught:
        Npy(foreign(shape=Shape((4,), "float32"))).index(path)
    assert caught.value.code == "R401"


@pytest.mark.parametrize("more", [-1, 1])
def test_a_file_longer_or_shorter_than_its_array_is_refused(tmp_path: Path, more: int) -> None:
    path = tmp_path / "f.npy"
    whole = build_framed(Npy(described("npy", 10)), np.full(3, 10))
    path.write_bytes(whole[:more] if more < 0 else whole + bytes(more))
    with pytest.raises(ExecutionError, match=f"has {len(whole) + more} bytes, and by its header.*{len(whole)}"):
        Npy(described("npy", 10)).index(path)


@pytest.mark.parametrize(
    ("whole", "said"),
    [
        (b"", "does not begin as an array"),
        (b"\x80\x04K\x01." * 5, "does not begin as an array"),
        (b"\x93NUMPY\x04\x00" + bytes(20), "version 4.0"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + bytes(20), "header of 4294967307 bytes"),
        (raw_header("{}"), "numpy cannot read"),
        (raw_header("{" * 500), "numpy cannot read"),
        (raw_header("(" * 9000), "numpy cannot read"),
        (raw_header("-" * 9000 + "1"), "numpy cannot read"),
        (raw_header(" " * 20000, 2), "numpy cannot read"),
        (raw_header("__import__('os').abort()"), "numpy cannot read"),
        (raw_header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, -4)}") + bytes(16), "negative extent"),
        (raw_header("{'descr': '<f4', 'fortran_order': False, 'shape': (10**9,)}"), "numpy cannot read"),
        (raw_header("{'descr': '<f4', 'fortran_order': False, 'shape': (4,)}") + bytes(15), "by its header"),
        (raw_header("{'descr': '<f4', 'fortran_order': False, 'shape': (%s)}" % ("9" * 4000 + ",9")), "any file"),
        (raw_header("{'descr': '|S0', 'fortran_order': False, 'shape': (1" + "0" * 30 + ",)}"), "no bytes|by its"),
        (raw_header("{'descr': '|u1', 'fortran_order': False, 'shape': (0,)}"), "a sample of no bytes"),
    ],
)  # fmt: skip
def test_hostile_headers_are_refused_plainly(tmp_path: Path, whole: bytes, said: str) -> None:
    path = tmp_path / "f.npy"
    path.write_bytes(whole)
    with pytest.raises(ExecutionError, match=said) as caught:
        Npy(foreign()).index(path)
    assert str(path) in caught.value.message
    assert len(caught.value.message) < len(str(path)) + 500


@pytest.mark.parametrize(
    ("dataset", "setting"),
    [
        (described("npy", 10, header=1), "header"),
        (described("npy", 10, align=2), "align"),
        (described("npy", 10, compress=Compression("gzip", 1)), "compress"),
        (described("npy", 10, chunk=Chunk(3, "samples")), "chunk"),
        (described("npy", 10, parts=2), "parts"),
        (described("npy", 10, names=("x",)), "names"),
        (described("npy", VARYING), "size"),
        (described("npy", VARYING, each=True, shape=Shape((2,), "int8")), "size"),
        (shaped("npy", (1,) * 32, "int8"), "shape"),
    ],
)
def test_what_arrays_cannot_hold_is_refused_by_its_setting(dataset: Dataset, setting: str) -> None:
    refused = Npy(dataset).refuse()
    assert refused is not None
    assert refused[0] == setting


def test_what_arrays_hold_is_not_refused() -> None:
    for dataset in (described("npy", 10), described("npy", VARYING, each=True), shaped("npy", (4,), "int8"), foreign()):
        assert Npy(dataset).refuse() is None


@pytest.mark.parametrize("count", [1, 7])
def test_cut_files_are_refused_or_answered_within_their_bytes(tmp_path: Path, count: int) -> None:
    path = tmp_path / "f.npy"
    write_framed(Npy(described("npy", 33)), path, np.full(count, 33))
    check_damage(Npy(described("npy", 33)), path)
