"""HDF5 files that this package writes: their content and its places, and data sets that are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import time

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.formats.contract_tests import check_damage, check_resolved, random_contents, write_resolved
from dliosim.formats.hdf5.filters import TILED
from dliosim.formats.hdf5.format import FilteredHdf5, PlainHdf5, hdf5
from dliosim.formats.protocols import EncodeTime, GroupEncoder, Preallocated
from dliosim.model import Compression, Dataset, Distribution, Layout
from tests.formats.hdf5_sample import by_application, by_index, by_library, described, row_bytes

WRITTEN = {
    "contiguous bytes": described(size=100),
    "contiguous": described(shape=(4, 5, 3), element="int16"),
    "chunks of samples": described(shape=(4, 5), element="float32", chunk=(5, "samples")),
    "chunks that do not divide": described(shape=(4, 5), element="float32", chunk=(3, "samples")),
    "chunks longer than the file": described(size=100, chunk=(64, "samples")),
    "chunks of bytes above a sample": described(size=100, chunk=(250, "bytes")),
    "chunks along the first dimension": described(shape=(7, 5, 3), element="int16", chunk=(60, "bytes")),
    "chunks along the second": described(shape=(2, 7, 4), element="float32", chunk=(50, "bytes")),
    "chunks along the last": described(shape=(2, 2, 7), element="int16", chunk=(5, "bytes")),
    "chunks of an element": described(shape=(2, 3), element="float64", chunk=(3, "bytes")),
    "tiles": described(shape=(4, 5), element="float32", chunk=(6, "elements", (2, 3))),
    "tiles of parts": described(shape=(3, 3, 2), element="int16", parts=2, chunk=(6, "elements", (3, 2, 1))),
    "parts": described(shape=(3, 4), element="int16", parts=2),
    "parts of bytes": described(size=99, parts=3),
    "parts in chunks": described(shape=(3, 4), element="int16", parts=3, chunk=(4, "samples")),
    "parts in chunks of bytes": described(shape=(5, 4), element="int16", parts=2, chunk=(17, "bytes")),
    "gzip": described(shape=(4, 5), element="float32", codec="gzip"),
    "gzip of chunks": described(shape=(4, 5), element="float32", codec="gzip", chunk=(3, "samples")),
    "gzip along the first": described(shape=(7, 5, 3), element="int16", codec="gzip", chunk=(60, "bytes")),
    "gzip along the second": described(shape=(2, 7, 4), element="float32", codec="gzip", chunk=(50, "bytes")),
    "gzip of parts": described(shape=(3, 4), element="int16", codec="gzip", parts=3, chunk=(4, "samples")),
    "gzip of tiles": described(shape=(4, 5), element="float32", codec="gzip", chunk=(6, "elements", (2, 3))),
    "lzf": described(size=200, codec="lzf"),
    "lzf of chunks": described(shape=(4, 5), element="float32", codec="lzf", chunk=(4, "samples")),
    "lzf of parts": described(size=200, codec="lzf", parts=2),
}


def names_of(dataset: Dataset) -> list[str]:
    return ["records"] if dataset.parts == 1 else [f"records_{part}" for part in range(dataset.parts)]


@pytest.fixture(params=WRITTEN.values(), ids=WRITTEN.keys())
def dataset(request: pytest.FixtureRequest) -> Dataset:
    found: Dataset = request.param
    assert hdf5(found).refuse() is None
    return found


def test_it_is_a_resolved_format() -> None:
    assert isinstance(hdf5(described(size=1)), Preallocated)
    assert isinstance(hdf5(described(size=1, codec="gzip")), GroupEncoder)


def test_ranges_of_the_index_hold_what_was_written(dataset: Dataset, tmp_path: Path) -> None:
    check_resolved(hdf5(dataset), 10, tmp_path / "x.hdf5")


def test_h5py_reads_what_was_written(dataset: Dataset, tmp_path: Path) -> None:
    path, size = tmp_path / "x.hdf5", dataset.constant_size
    assert size is not None
    write_resolved(hdf5(dataset), path, 10)
    expected = [random_contents(dataset, row, size).tobytes() for row in range(10)]
    assert by_application(path, names_of(dataset)) == expected
    assert by_library(path, dataset) == expected


def test_cut_files_are_refused_or_point_into_themselves(dataset: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "x.hdf5"
    write_resolved(hdf5(dataset), path, 10)
    check_damage(hdf5(dataset), path)


def test_types_are_little_endian_and_of_the_shape(tmp_path: Path) -> None:
    PlainHdf5(described(shape=(4, 5), element="float32")).lay_out(tmp_path / "x.hdf5", 3)
    with h5py.File(tmp_path / "x.hdf5", "r") as file:
        assert file["records"].shape == (3, 4, 5)
        assert file["records"].dtype == np.dtype("<f4")


def test_files_are_the_same_whenever_they_are_made_and_old_readers_know_them(dataset: Dataset, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_resolved(hdf5(dataset), tmp_path / name, 10)
    one = (tmp_path / "a").read_bytes()
    assert one == (tmp_path / "b").read_bytes()
    assert one[8] == 0, "superblock 0"
    now = int(time())
    assert not any(second.to_bytes(4, "little") in one for second in range(now - 60, now + 1)), "no time of day"


def test_laid_out_files_have_their_full_length_without_being_written(tmp_path: Path) -> None:
    path = tmp_path / "x.hdf5"
    PlainHdf5(described(size=1 << 20)).lay_out(path, 1 << 12)
    assert path.stat().st_size >= 1 << 32
    assert path.stat().st_blocks * 512 < 1 << 20


def test_samples_of_a_contiguous_file_are_one_unit(tmp_path: Path) -> None:
    dataset = described(size=100)
    PlainHdf5(dataset).lay_out(tmp_path / "x.hdf5", 10)
    (column,) = hdf5(dataset).index(tmp_path / "x.hdf5").columns
    assert (column.samples, column.pieces, column.row_bytes, len(column.offset)) == (10, 1, 100, 1)


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("name", ["contiguous", "chunks of samples", "chunks along the first dimension", "gzip"])
def test_files_of_few_samples(name: str, count: int, tmp_path: Path) -> None:
    check_resolved(hdf5(WRITTEN[name]), count, tmp_path / "x.hdf5")


def test_the_longest_run_that_fits_is_a_chunk(tmp_path: Path) -> None:
    expected = {
        "chunks along the first dimension": (1, 2, 5, 3),
        "chunks along the second": (1, 1, 3, 4),
        "chunks along the last": (1, 1, 1, 2),
        "chunks of an element": (1, 1, 1),
        "gzip along the first": (1, 2, 5, 3),
        "gzip along the second": (1, 1, 1, 4),  # encoded chunks have no padding inside a sample, and 7 is prime
    }
    for name, chunk in expected.items():
        write_resolved(hdf5(WRITTEN[name]), tmp_path / "x.hdf5", 2)
        with h5py.File(tmp_path / "x.hdf5", "r") as file:
            assert file["records"].chunks == chunk, name


def test_the_index_counts_the_bytes_that_it_took(tmp_path: Path) -> None:
    few, many = described(size=100), described(size=100, chunk=(1, "samples"))
    PlainHdf5(few).lay_out(tmp_path / "a", 10_000)
    PlainHdf5(many).lay_out(tmp_path / "b", 10_000)
    assert 0 < hdf5(few).index(tmp_path / "a").touched < 10_000
    assert 10_000 * 30 < hdf5(many).index(tmp_path / "b").touched < 10_000 * 80


@pytest.mark.parametrize("codec", ["gzip", "lzf"])
def test_building_takes_batches_of_any_length_and_times_the_encoder(codec: str, tmp_path: Path) -> None:
    dataset = described(size=100, codec=codec, chunk=(4, "samples"))
    rows = np.stack([random_contents(dataset, row, 100) // 64 for row in range(11)])
    encoding = EncodeTime()
    batches = iter([rows[:1], rows[1:1], rows[1:8], rows[8:]])
    FilteredHdf5(dataset).build(tmp_path / "x.hdf5", 11, batches, encoding)
    assert encoding.encode_ns > 0
    assert by_application(tmp_path / "x.hdf5", ["records"]) == [row.tobytes() for row in rows]
    (column,) = hdf5(dataset).index(tmp_path / "x.hdf5").columns
    assert (column.length < 400).all(), "what compresses is compressed"
    assert column.unit_bytes == 400
    assert FilteredHdf5(dataset).batch == 4


def test_a_forecast_is_near_what_the_index_says(dataset: Dataset, tmp_path: Path) -> None:
    write_resolved(hdf5(dataset), tmp_path / "x.hdf5", 10)
    index, forecast = hdf5(dataset).index(tmp_path / "x.hdf5"), hdf5(dataset).forecast(10)
    assert forecast.samples == 10
    for found, expected in zip(index.columns, forecast.columns, strict=True):
        assert (found.samples, found.pieces, found.row_bytes) == (expected.samples, expected.pieces, expected.row_bytes)
        assert found.unit_bytes == expected.unit_bytes
        assert [step.name for step in expected.filters] == [
            step.name for step in found.filters if step.name not in ("skipped", TILED)
        ]
        if not expected.filters:
            assert (found.length.reshape(-1, found.pieces) == expected.length).all()
            assert (np.diff(found.offset[:: found.pieces]) == expected.step).all()


def test_a_forecast_counts_the_padding_of_tiles_and_compresses_it_to_nothing() -> None:
    tiles = described(shape=(40, 50), element="float32", chunk=(600, "elements", (20, 30)))
    assert hdf5(tiles).forecast(3).columns[0].length.tolist() == [2400] * 4
    encoded = replace(tiles, compress=Compression("gzip", 4), compressible=2.0)
    assert hdf5(encoded).forecast(3).columns[0].length.tolist() == [1200, 800, 1200, 800]


def test_a_forecast_knows_that_small_samples_are_random_bytes() -> None:
    """The first 128 of each 256 bytes of a sample are random: one of 80 bytes does not compress."""
    encoded = described(shape=(4, 5), element="float32", chunk=(6, "elements", (2, 3)))
    encoded = replace(encoded, compress=Compression("gzip", 4), compressible=2.0)
    assert hdf5(encoded).forecast(3).columns[0].length.tolist() == [24, 16, 24, 16]


def test_a_forecast_believes_in_compression() -> None:
    dataset = replace(described(size=1000, codec="gzip"), compressible=4.0)
    (column,) = hdf5(dataset).forecast(3).columns
    assert (column.length.tolist(), column.step) == ([250], 250)


@pytest.mark.parametrize(
    ("dataset", "setting"),
    [
        (replace(described(size=10), size=Distribution("normal", (10.0, 1.0))), "size"),
        (replace(described(size=10), header=4), "header"),
        (replace(described(size=10), align=4096), "align"),
        (described(size=10, codec="zstd"), "compress"),
        (described(size=10, codec="snappy"), "compress"),
        (described(size=10, parts=3), "size"),
        (described(size=0), "size"),
        (replace(described(shape=(2, 3)), size=Distribution("constant", (7,))), "shape"),
        (described(size=1 << 30, chunk=(4, "samples")), "chunk"),
        (described(size=1 << 32, codec="gzip"), "chunk"),
        (described(size=1 << 30, chunk=(1, "bytes")), "chunk"),
        (replace(described(size=10, codec="lzf"), samples=1 << 40), "compress"),
        (replace(described(size=10, codec="lzf"), samples=1 << 30, layout=Layout("files", 1 << 10)), "compress"),
    ],
)
def test_what_the_format_cannot_hold_is_refused(dataset: Dataset, setting: str) -> None:
    refused = hdf5(dataset).refuse()
    assert refused is not None
    assert refused[0] == setting


@given(
    count=st.integers(1, 7),
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple),
    element=st.sampled_from(["uint8", "int16", "float64"]),
    chunk=st.none()
    | st.tuples(st.integers(1, 9), st.just("samples"))
    | st.tuples(st.integers(1, 99), st.just("bytes")),
    codec=st.sampled_from([None, "gzip", "lzf"]),
    parts=st.integers(1, 2),
)
def test_every_way_to_cut_a_file_keeps_its_samples(
    tmp_path_factory: pytest.TempPathFactory,
    count: int,
    shape: tuple[int, ...],
    element: str,
    chunk: tuple[int, str] | None,
    codec: str | None,
    parts: int,
) -> None:
    path = tmp_path_factory.mktemp("hdf5") / "x.hdf5"
    dataset = described(shape=shape, element=element, chunk=chunk, codec=codec, parts=parts)
    write_resolved(hdf5(dataset), path, count)
    size = dataset.constant_size
    assert size is not None
    expected = [random_contents(dataset, row, size).tobytes() for row in range(count)]
    names = names_of(dataset)
    assert by_application(path, names) == expected
    assert by_library(path, dataset) == expected
    assert by_index(path, dataset, row_bytes(path, names)) == expected
