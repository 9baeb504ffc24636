"""Archives of numpy that are damaged, or hold what is no array of samples: refused plainly."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.errors import ExecutionError
from dliosim.formats.contract_tests import check_damage, random_contents, write_framed, write_resolved
from dliosim.formats.numpy_files.npz import DeflatedNpz, StoredNpz, npz
from dliosim.model import Dataset
from tests.formats.described import GZIP, VARYING, archived_rows, described


def foreign(**rest: object) -> Dataset:
    """A data set of files that somebody else wrote."""
    return described("npz", VARYING, source="*.npz", **rest)  # type: ignore[arg-type]


def test_objects_are_refused_since_they_are_pickles(tmp_path: Path) -> None:
    path = tmp_path / "f.npz"
    np.savez(path, x=np.array([{}], dtype=object))
    with pytest.raises(ExecutionError, match=r"`x.npy` in .*f.npz holds objects.*pickle"):
        npz(foreign()).index(path)


def test_archives_of_nothing_or_of_no_arrays_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.npz"
    with zipfile.ZipFile(path, "w"):
        pass
    with pytest.raises(ExecutionError, match="holds no array"):
        npz(foreign()).index(path)
    for whole in (b"", b"PK\5\6", bytes(100), b"PK\5\6" + b"\xff" * 16 + b"\0\0", b"PK\5\6" + bytes(14) + b"\1\0"):
        path.write_bytes(whole)
        with pytest.raises(ExecutionError, match=r"f.npz is no whole zip file") as caught:
            npz(foreign()).index(path)
        assert caught.value.code == "R401"


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_methods_are_refused_by_their_number(tmp_path: Path, method: int) -> None:
    path = tmp_path / "f.npz"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("x.npy", bytes(1000))
    with pytest.raises(ExecutionError, match=f"compressed by method {method}"):
        npz(foreign()).index(path)


@pytest.mark.parametrize("level", [None, 0])
def test_damaged_records_are_refused_by_what_is_wrong(tmp_path: Path, level: int | None) -> None:
    path = tmp_path / "f.npz"
    dataset = described("npz", 50, compress=None if level is None else GZIP)
    if level is None:
        write_framed(StoredNpz(dataset), path, np.full(3, 50))
    else:
        write_resolved(DeflatedNpz(dataset), path, 3)
    whole = path.read_bytes()
    entry = whole.rindex(b"PK\1\2")
    for at, data, said in [
        (0, b"XX", "no member begins at 0"),
        (30, b"y", "another than `x.npy`"),
        (26, b"\xff\x7f", "another than `x.npy`"),
        (28, b"\xff\x7f", "longer than the bytes before"),
        (entry, b"XX", "makes no sense"),
        (entry + 8, b"\1", "encrypted"),
        (entry + 20, b"\xff\xff", "is outside"),
        (entry + 24, b"\xff\xff\xff\x7f", "stored as it is|cannot inflate"),
        (entry + 28, b"\xff", "cut short"),
        (entry + 42, b"\xff\xff", "is outside"),
        (len(whole) - 18, b"\1", "part 1 of several"),
        (len(whole) - 12, b"\2", "has 1 members, and should have 2"),
        (len(whole) - 10, b"\xff\xff\xff", "does not end where"),
        (len(whole) - 6, b"\xff\xff\xff\xff", "does not end where"),
    ]:
        path.write_bytes(whole[:at] + data + whole[at + len(data) :])
        with pytest.raises(ExecutionError, match=said):
            npz(dataset).index(path)


def test_a_stored_member_has_as_many_bytes_as_it_says(tmp_path: Path) -> None:
    path = tmp_path / "f.npz"
    dataset = described("npz", 50)
    write_framed(StoredNpz(dataset), path, np.full(3, 50))
    whole = bytearray(path.read_bytes())
    whole[whole.rindex(b"PK\1\2") + 20] -= 1
    path.write_bytes(whole)
    with pytest.raises(ExecutionError, match="stored as it is, but 278 bytes in 277"):
        npz(dataset).index(path)


@given(st.data())
def test_no_change_of_bytes_crashes_the_index_or_the_decoder(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("npz") / "f.npz"
    dataset = described("npz", 50, compress=GZIP)
    write_resolved(DeflatedNpz(dataset), path, 3)
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(whole)
    try:
        rows = archived_rows(path, dataset)
    except ExecutionError as error:
        assert error.code == "R401"
    else:
        assert rows == [random_contents(dataset, row, 50).tobytes() for row in range(3)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda head, data: head + data[:-5], "does not end where"),
        (lambda head, data: head + data + b"\0", "does not end where"),
        (lambda head, data: head + b"\xff" + data[1:], "damaged"),
        (lambda head, data: head + zlib_raw(bytes(10_000_000)), "does not end where"),
        (lambda head, data: head + zlib_raw(bytes(128 + 150)), "CRC"),
        (lambda head, data: head[:6] + b"\x08" + head[7:] + zlib_raw(bytes(128 + 150)), "CRC"),
        (lambda head, data: head + zlib_raw(zlib.decompress(data, -15), zlib.Z_SYNC_FLUSH), "does not end where"),
        (lambda head, data: unchecked(head) + zlib_raw(bytes(128 + 150)), "does not begin as an array"),
        (lambda head, data: unchecked(head) + zlib_raw(b"\x93"), "does not begin as an array"),
        (lambda head, data: unchecked(head) + zlib_raw(zlib.decompress(data, -15)[:-1]), "277 bytes and not 278"),
        (lambda head, data: unchecked(head) + zlib_raw(zlib.decompress(data, -15) + b"1"), "279 bytes and not 278"),
        (lambda head, data: head, "does not end where"),
        (lambda head, data: head[:10], "begins otherwise"),
        (lambda head, data: b"X" + head[1:] + data, "begins otherwise"),
        (lambda head, data: head[:28] + b"\xff\xff" + head[30:] + data, "does not end where"),
    ],
)
def test_damaged_members_are_refused_when_they_are_decoded(
    tmp_path: Path, change: Callable[[bytes, bytes], bytes], said: str
) -> None:
    path = tmp_path / "f.npz"
    dataset = described("npz", 50, compress=GZIP)
    write_resolved(DeflatedNpz(dataset), path, 3)
    column = npz(dataset).index(path).columns[0]
    stored = path.read_bytes()[int(column.offset[0]) : int(column.offset[0] + column.length[0])]
    with pytest.raises(ExecutionError, match=said) as caught:
        npz(dataset).decode(column, memoryview(change(stored[:55], stored[55:])))
    assert caught.value.code == "R401"


def unchecked(head: bytes) -> bytes:
    """A local header that has no CRC, as those have that are written before it is known."""
    return head[:6] + b"\x08" + head[7:14] + bytes(4) + head[18:]


def zlib_raw(data: bytes, end: int = zlib.Z_FINISH) -> bytes:
    """Deflate it without a header, and without an end if asked."""
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    return deflater.compress(data) + deflater.flush(end)


@pytest.mark.parametrize("count", [1, 7])
def test_cut_files_are_refused_or_answered_within_their_bytes(tmp_path: Path, count: int) -> None:
    path = tmp_path / "f.npz"
    write_framed(StoredNpz(described("npz", 33)), path, np.full(count, 33))
    check_damage(StoredNpz(described("npz", 33)), path)
    write_resolved(DeflatedNpz(described("npz", 33, compress=GZIP)), path, count)
    check_damage(DeflatedNpz(described("npz", 33, compress=GZIP)), path)
