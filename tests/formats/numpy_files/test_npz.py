"""Archives of numpy: ours are read by numpy and zipfile, and numpy's by us."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.errors import ExecutionError
from dliosim.formats.contract_tests import check_framed, check_resolved, random_contents, write_framed, write_resolved
from dliosim.formats.numpy_files.npy_header import Npy
from dliosim.formats.numpy_files.npz import DeflatedNpz, StoredNpz, npz
from dliosim.formats.protocols import EncodeTime, Format, Framed, Resolved
from dliosim.formats.registry import bind
from dliosim.model import Chunk, Compression, Dataset, Shape
from tests.formats.described import GZIP, VARYING, archived_rows, described, shaped


class Pipe:
    """A file that goes forward only, in which sizes cannot be filled in."""

    def __init__(self, stream: BinaryIO) -> None:
        self.write, self.flush = stream.write, stream.flush

    def read(self, most: int = -1) -> bytes:
        raise OSError("a pipe")


def foreign(**rest: object) -> Dataset:
    """A data set of files that somebody else wrote."""
    return described("npz", VARYING, source="*.npz", **rest)  # type: ignore[arg-type]


def test_stored_archives_are_framed_and_deflated_ones_resolved() -> None:
    stored, deflated = bind(described("npz", 5)), bind(described("npz", 5, compress=GZIP))
    assert isinstance(stored, Framed) and not isinstance(stored, Resolved)
    assert isinstance(deflated, Resolved) and not isinstance(deflated, Framed)
    assert type(bind(foreign())) is type(deflated)
    assert stored.name == deflated.name == "npz"


@given(st.integers(1, 3000), st.sampled_from([0, 1, 2, 7]))
def test_stored_rows_are_where_they_are_planned(
    tmp_path_factory: pytest.TempPathFactory, size: int, count: int
) -> None:
    path = tmp_path_factory.mktemp("npz") / "f.npz"
    check_framed(StoredNpz(described("npz", size)), np.full(count, size), path)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None, "its CRC is that of the array's header and its rows"


@given(st.integers(1, 3000))
def test_samples_of_any_size_are_alone_in_stored_files(tmp_path_factory: pytest.TempPathFactory, size: int) -> None:
    path = tmp_path_factory.mktemp("npz") / "f.npz"
    check_framed(StoredNpz(described("npz", VARYING, each=True)), np.array([size]), path)
    with np.load(path, allow_pickle=False) as archive:
        assert archive["x"].shape == (size,)


@given(st.integers(1, 3000), st.sampled_from([1, 2, 7]), st.integers(0, 9))
def test_deflated_files_hold_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, size: int, count: int, level: int
) -> None:
    path = tmp_path_factory.mktemp("npz") / "f.npz"
    check_resolved(DeflatedNpz(described("npz", size, compress=Compression("gzip", level))), count, path)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None


@pytest.mark.parametrize("compress", [None, GZIP])
@pytest.mark.parametrize("each", [False, True])
def test_numpy_reads_shape_and_bytes(tmp_path: Path, compress: Compression | None, each: bool) -> None:
    path, count = tmp_path / "f.npz", 1 if each else 7
    dataset = shaped("npz", (5, 3), "float32", compress=compress, each=each)
    if compress is None:
        write_framed(StoredNpz(dataset), path, np.full(count, 60))
    else:
        write_resolved(DeflatedNpz(dataset), path, count)
    with np.load(path, allow_pickle=False) as archive:
        assert archive.files == ["x"]
        array = archive["x"]
    assert array.shape == ((5, 3) if each else (7, 5, 3))
    assert array.dtype == np.dtype("<f4")
    assert array.tobytes() == b"".join(random_contents(dataset, row, 60).tobytes() for row in range(count))
    assert archived_rows(path, dataset) == [random_contents(dataset, row, 60).tobytes() for row in range(count)]


def test_an_empty_file_of_either_kind_holds_no_samples(tmp_path: Path) -> None:
    path = tmp_path / "f.npz"
    dataset = described("npz", 10, compress=GZIP)
    DeflatedNpz(dataset).build(path, 0, iter(()), EncodeTime())
    assert DeflatedNpz(dataset).index(path).samples == 0
    with np.load(path) as archive:
        assert archive["x"].shape == (0, 10)


def test_building_takes_batches_as_they_come_and_counts_time_in_the_encoder(tmp_path: Path) -> None:
    path, encoding = tmp_path / "f.npz", EncodeTime()
    dataset = described("npz", 1000, compress=GZIP)
    rows = np.random.default_rng(0).integers(0, 9, (9, 1000)).astype(np.uint8)
    DeflatedNpz(dataset).build(path, 9, iter([rows[:1], rows[1:8], rows[8:]]), encoding)
    assert archived_rows(path, dataset) == [row.tobytes() for row in rows]
    assert path.stat().st_size < rows.size
    assert encoding.encode_ns > 0
    with pytest.raises(ValueError, match="9000 bytes for 10 samples of 1000"):
        DeflatedNpz(dataset).build(path, 10, iter([rows]), encoding)


def test_files_of_a_data_set_share_one_pipeline(tmp_path: Path) -> None:
    dataset, found = described("npz", 50, compress=GZIP), set()
    for first in (0, 3):
        path = tmp_path / f"{first}.npz"
        write_resolved(DeflatedNpz(dataset), path, 3, first)
        found.add(DeflatedNpz(dataset).index(path).columns[0].filters)
    assert found == {DeflatedNpz(dataset).forecast(3).columns[0].filters}


def test_a_batch_is_a_few_mebibytes_and_at_least_a_sample() -> None:
    assert DeflatedNpz(described("npz", 1 << 20, compress=GZIP)).batch == 4
    assert DeflatedNpz(described("npz", 1 << 30, compress=GZIP)).batch == 1


def test_a_forecast_of_contents_that_do_not_compress_is_nearly_the_file(tmp_path: Path) -> None:
    path = tmp_path / "f.npz"
    dataset = described("npz", 5000, compress=GZIP)
    write_resolved(DeflatedNpz(dataset), path, 7)
    said, found = DeflatedNpz(dataset).forecast(7), DeflatedNpz(dataset).index(path)
    assert said.samples == found.samples
    assert said.columns[0].unit_bytes == found.columns[0].unit_bytes
    assert said.columns[0].offset == found.columns[0].offset
    assert said.size == pytest.approx(found.size, rel=0.02)
    halved = DeflatedNpz(described("npz", 5000, compress=GZIP, compressible=2.0)).forecast(7)
    assert halved.size == pytest.approx(found.size / 2, rel=0.02)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_archives_that_numpy_wrote_are_read_member_by_member(tmp_path: Path, save: Callable[..., None]) -> None:
    path = tmp_path / "f.npz"
    images = np.random.default_rng(1).integers(0, 100, (6, 4, 5)).astype(np.int16)
    labels = np.arange(6, dtype=np.int64)
    shape = Shape((4, 5), "int16")
    save(path, images=images, labels=labels, other=np.zeros(3))
    assert archived_rows(path, foreign(shape=shape, names=("images",))) == [row.tobytes() for row in images]
    both = [row.tobytes() + label.tobytes() for row, label in zip(images, labels, strict=True)]
    assert archived_rows(path, foreign(shape=shape, names=("images", "labels"))) == both
    assert archived_rows(path, foreign(names=("labels", "images"))) == [labels.tobytes() + images.tobytes()]
    save(path, images)
    assert archived_rows(path, foreign(shape=shape)) == [row.tobytes() for row in images]
    save(path, x=images, y=labels)
    assert archived_rows(path, foreign(shape=shape)) == [row.tobytes() for row in images]


@pytest.mark.parametrize("names", [(), ("z",), ("images", "z")])
def test_without_a_name_that_is_there_the_error_says_which_are(tmp_path: Path, names: tuple[str, ...]) -> None:
    path = tmp_path / "f.npz"
    np.savez(path, images=np.zeros((6, 4)), labels=np.zeros(6))
    with pytest.raises(ExecutionError, match=r"f.npz has no array `[xz]`, and these: `images`, `labels`"):
        npz(foreign(names=names)).index(path)


def test_arrays_of_other_numbers_of_samples_do_not_go_together(tmp_path: Path) -> None:
    path = tmp_path / "f.npz"
    np.savez(path, images=np.zeros((6, 4), np.int8), labels=np.zeros(5))
    with pytest.raises(ExecutionError, match=r"`labels.npy` in .*\(5,\), and not 6 samples"):
        npz(foreign(names=("images", "labels"), shape=Shape((4,), "int8"))).index(path)


def test_members_with_their_crc_behind_them_are_read(tmp_path: Path) -> None:
    path = tmp_path / "f.npz"
    array = np.arange(40, dtype=np.uint8).reshape(4, 10)
    with path.open("wb") as stream:
        np.savez_compressed(Pipe(stream), x=array)
    with zipfile.ZipFile(path) as archive:
        assert archive.infolist()[0].flag_bits & 8
    assert archived_rows(path, described("npz", 10)) == [row.tobytes() for row in array]


def test_rows_of_no_bytes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.npz"
    np.savez(path, images=np.zeros((6, 4), np.int8), labels=np.zeros((6, 0)))
    with pytest.raises(ExecutionError, match=r"`labels.npy` in .*samples of no bytes"):
        npz(foreign(names=("images", "labels"), shape=Shape((4,), "int8"))).index(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("more", [-1, 1])
def test_members_longer_or_shorter_than_their_arrays_are_refused(tmp_path: Path, method: int, more: int) -> None:
    path = tmp_path / "f.npz"
    whole = Npy(described("npy", 10)).write_header(3, 158, 0) + bytes(30 + more)
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("x.npy", whole)
    with pytest.raises(ExecutionError, match=f"`x.npy` in .* has {158 + more} bytes, and by its header.*158"):
        npz(described("npz", 10)).index(path)


def test_names_that_lead_elsewhere_are_names_and_nothing_more(tmp_path: Path) -> None:
    path = tmp_path / "f.npz"
    np.savez(tmp_path / "g.npz", x=np.arange(3, dtype=np.uint8))
    with zipfile.ZipFile(tmp_path / "g.npz") as source, zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../../x.npy", source.read("x.npy"))
        archive.writestr("größe 尺.npy", source.read("x.npy"))
        archive.writestr("readme", b"no array")
        archive.comment = b"PK\x05\x06 and more"
    assert archived_rows(path, foreign(names=("../../x",))) == [b"\0\1\2"]
    assert archived_rows(path, foreign(names=("größe 尺",))) == [b"\0\1\2"]


@pytest.mark.parametrize("form", [StoredNpz, DeflatedNpz], ids=["stored", "deflated"])
@pytest.mark.parametrize(
    ("dataset", "setting"),
    [
        (described("npz", 10, header=1), "header"),
        (described("npz", 10, align=2), "align"),
        (described("npz", 10, chunk=Chunk(3, "samples")), "chunk"),
        (described("npz", 10, parts=2), "parts"),
        (described("npz", 10, names=("x",)), "names"),
        (described("npz", VARYING), "size"),
        (described("npz", VARYING, compress=GZIP), "size"),
        (described("npz", 10, compress=Compression("zstd", 3)), "compress"),
    ],
)
def test_what_archives_cannot_hold_is_refused_by_its_setting(
    form: Callable[[Dataset], Format], dataset: Dataset, setting: str
) -> None:
    refused = form(dataset).refuse()
    assert refused is not None
    assert refused[0] == setting


def test_what_archives_hold_is_not_refused() -> None:
    for dataset in (
        described("npz", 10),
        described("npz", VARYING, each=True),
        shaped("npz", (4,), "int8", compress=GZIP),
        foreign(names=("a", "b"), parts=2),
    ):
        assert bind(dataset).refuse() is None
