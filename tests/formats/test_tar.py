"""Tar shards: samples are where they were planned, tarfile and WebDataset read them, and damaged ones are refused."""

from __future__ import annotations

import contextlib
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
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
from dliosim.formats.protocols import CLASSES, Framed, Ints
from dliosim.formats.registry import bind
from dliosim.formats.tar import UNIT, Tar, write_headers
from dliosim.model import Chunk, Compression
from tests.examples import examples
from tests.formats.datasets import VARYING, dataset, ints

SIZES = st.one_of(st.integers(1, 40), *[st.integers(step - 2, step + 2) for step in (512, 1024, 9216, 10240, 66000)])


def archive(path: Path, form: int, *entries: tuple[str, bytes] | tarfile.TarInfo) -> None:
    """A tar file as tarfile makes it."""
    with tarfile.open(path, "w", format=form) as out:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                out.addfile(entry)
                continue
            info = tarfile.TarInfo(entry[0])
            info.size = len(entry[1])
            out.addfile(info, io.BytesIO(entry[1]))


def folder(name: str, kind: bytes = tarfile.DIRTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, "elsewhere"
    return info


def decoded(path: Path) -> list[bytes]:
    """The contents of every sample, by the index and the decoder."""
    whole = path.read_bytes()
    index = Tar(dataset("tar")).index(path)

    def samples() -> Iterator[bytes]:
        for row in range(index.samples):
            [(offset, length)] = sample_ranges(index, row)
            found = Tar(dataset("tar")).decode(index.columns[0], memoryview(whole)[offset : offset + length])
            assert found is not None
            yield found.tobytes()

    return list(samples())


def test_is_a_framed_format() -> None:
    assert isinstance(bind(dataset("tar")), Framed)


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("size", [1, 511, 512, 513, 4097])
def test_samples_of_one_size_are_where_they_were_planned(count: int, size: int, tmp_path: Path) -> None:
    check_framed(Tar(dataset("tar", size)), np.full(count, size), tmp_path / "0.tar")


@settings(max_examples=examples(40))
@given(sizes=st.lists(SIZES, min_size=1, max_size=9))
def test_samples_of_any_sizes_are_where_they_were_planned(
    sizes: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("tar") / "0.tar"
    check_framed(Tar(dataset("tar", VARYING)), ints(*sizes), path)
    assert path.stat().st_size % 10240 == 0
    assert path.read_bytes().endswith(bytes(1024))


@settings(max_examples=examples(40))
@given(st.lists(SIZES, min_size=1, max_size=9), st.sampled_from([0, 95, 995, 999_999_998]))
def test_tarfile_reads_every_member_with_its_attributes(sizes: list[int], first: int) -> None:
    form = dataset("tar", VARYING)
    whole = build_framed(Tar(form), ints(*sizes), first)
    with tarfile.open(fileobj=io.BytesIO(whole), mode="r:") as found:
        entries = found.getmembers()
        read = [found.extractfile(entry).read() for entry in entries]  # type: ignore[union-attr]
    expected = [(f"{first + row:09d}.{suffix}") for row in range(len(sizes)) for suffix in ("bin", "cls")]
    assert [entry.name for entry in entries] == expected
    assert all((entry.mode, entry.mtime, entry.uid, entry.gid) == (0o644, 0, 0, 0) for entry in entries)
    for row, size in enumerate(sizes):
        assert read[2 * row] == random_contents(form, first + row, size).tobytes()
        assert read[2 * row + 1] == str((first + row) % CLASSES).encode()


def test_tarfile_writes_the_same_bytes(tmp_path: Path) -> None:
    form = dataset("tar", VARYING)
    parts: list[tuple[str, bytes]] = []
    for row, size in enumerate([5, 512, 3000]):
        parts += [(f"{row:09d}.bin", random_contents(form, row, size).tobytes()), (f"{row:09d}.cls", str(row).encode())]
    archive(tmp_path / "0.tar", tarfile.USTAR_FORMAT, *parts)
    assert build_framed(Tar(form), ints(5, 512, 3000)) == (tmp_path / "0.tar").read_bytes()


def test_framing_writes_all_but_contents_whatever_was_there() -> None:
    sizes: Ints = ints(3, 512, 1700)
    stride = Tar(dataset("tar")).stride(sizes)
    starts = np.cumsum(stride) - stride
    made = []
    for before in (0, 255):
        out = np.full(int(stride.sum()), before, np.uint8)
        for begin, size in zip((starts + UNIT).tolist(), sizes.tolist(), strict=True):
            out[begin : begin + size] = 9
        Tar(dataset("tar")).frame(np.arange(3), sizes, starts, out.data)
        made.append(out)
    assert np.array_equal(made[0], made[1])


def test_framing_no_samples_writes_nothing() -> None:
    Tar(dataset("tar")).frame(ints(), ints(), ints(), memoryview(b""))


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("size", [100, 9000])
def test_a_cut_file_is_refused(size: int, count: int, tmp_path: Path) -> None:
    path = tmp_path / "0.tar"
    write_framed(Tar(dataset("tar", size)), path, np.full(count, size))
    check_damage(Tar(dataset("tar", size)), path)
    end = int(Tar(dataset("tar")).stride(ints(size))[0]) * count
    whole = path.read_bytes()
    for cut in (0, 1, 511, 512, end - 1, end, end + 511):
        path.write_bytes(whole[:cut])
        with pytest.raises(ExecutionError, match="R401"):
            Tar(dataset("tar")).index(path)


@settings(max_examples=examples(150))
@given(st.data())
def test_a_flipped_bit_of_any_header_is_found(data: st.DataObject) -> None:
    size = data.draw(SIZES)
    whole = build_framed(Tar(dataset("tar")), ints(size))
    sample = bytearray(whole[: int(Tar(dataset("tar")).stride(ints(size))[0])])
    header = data.draw(st.sampled_from([0, len(sample) - 2 * UNIT]))
    place = header + data.draw(st.integers(0, UNIT - 1))
    bit = data.draw(st.integers(0, 7))
    if place - header in (148, 154, 155):  # a zero before the checksum, and what ends it: blanks mean the same there
        return
    sample[place] ^= 1 << bit
    with pytest.raises(ExecutionError, match="R401"):
        Tar(dataset("tar")).decode(None, memoryview(sample))


# Behind 1536 bytes its first member ends: what is left is a whole sample, of that one.
@given(st.integers(0, 2559).filter(lambda kept: kept != 1536))
def test_a_cut_sample_is_refused(kept: int) -> None:
    whole = build_framed(Tar(dataset("tar")), ints(1000))
    with pytest.raises(ExecutionError, match="R401"):
        Tar(dataset("tar")).decode(None, memoryview(whole)[:kept])


@settings(max_examples=examples(200))
@given(st.binary(max_size=1200), st.integers(0, 2047))
def test_any_bytes_are_members_or_refused(data: bytes, at: int) -> None:
    whole = bytearray(build_framed(Tar(dataset("tar")), ints(10))[:2048])
    whole[at : at + len(data)] = data
    with contextlib.suppress(ExecutionError):
        Tar(dataset("tar")).decode(None, memoryview(whole))


def header(name: bytes = b"a.bin", size: int = 0, kind: bytes = b"0", field: bytes | None = None) -> bytearray:
    """One header; `field` in place of its twelve bytes of size; with its checksum."""
    raw = bytearray(write_headers([name], ints(size))[0].tobytes())
    raw[156:157] = kind
    if field is not None:
        raw[124:136] = field
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw)
    return raw


@pytest.mark.parametrize(
    "raw",
    [
        header(size=1 << 40), header(field=b"\xff" * 12), header(field=b"\x80" + b"\xff" * 11), header(field=b"9" * 12),
        header(field=b"-0000000001\0"), header(kind=b"S"), header(kind=b"x"), header(kind=b"x", size=3) + b"9 a",
        header(kind=b"L", size=1 << 30), header(kind=b"L"), bytearray(b"\1" * 512),
        header(kind=b"x", size=13) + b"13 size=-512\n".ljust(512, b"\0") + header(),
        header(kind=b"x", size=22) + b"22 GNU.sparse.major=1\n".ljust(512, b"\0") + header(),
    ],
)  # fmt: skip
def test_hostile_headers_are_refused(raw: bytearray, tmp_path: Path) -> None:
    path = tmp_path / "0.tar"
    path.write_bytes(header(b"before.bin") + raw.ljust(-(-len(raw) // 512) * 512, b"\0") + bytes(1024))
    with pytest.raises(ExecutionError, match=f"{path}: .*512"):
        Tar(dataset("tar")).index(path)
    with pytest.raises(ExecutionError, match="R401"):
        Tar(dataset("tar")).decode(None, memoryview(path.read_bytes()))


LONG = "folder/" * 30 + "x" * 120


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_are_grouped_as_webdataset_does(form: int, tmp_path: Path) -> None:
    path = tmp_path / "0.tar"
    archive(
        path, form, folder("d"), ("d/a.jpg", b"1" * 600), folder("d/x"), ("d/a.cls", b"3"), ("d/nodot", b"-" * 5),
        ("e.v1/a.jpg", b"2"), ("e.v1/a.seg.png", b"x" * 512), ("__meta__/b.jpg", b"-"), folder("b.l", tarfile.SYMTYPE),
        ("b.jpg", b"3"), ("c.jpg", b"4"), ("b.jpg", b"5"), (".hidden", b"-"), ("../up.x", b"6"), ("/root.x", b"7"),
        ("./here.JPG", b"8"), ("./here.txt", b"9"),
    )  # fmt: skip
    assert decoded(path) == [b"1" * 600, b"2", b"3", b"4", b"5", b"6", b"7", b"8"]


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_are_read_with_their_samples(form: int, tmp_path: Path) -> None:
    path = tmp_path / "0.tar"
    archive(path, form, ("a.x", b"1"), (f"{LONG}1.x", b"2" * 700), (f"{LONG}1.y", b"3"), (f"{LONG}2.x", b"4"))
    assert decoded(path) == [b"1", b"2" * 700, b"4"]


def test_a_size_in_a_pax_header_counts(tmp_path: Path) -> None:
    path = tmp_path / "0.tar"
    record = b"12 size=600\n"
    path.write_bytes(
        header(kind=b"g", size=12) + b"12 size=999\n".ljust(512, b"\0") + header(kind=b"x", size=len(record))
        + record.ljust(512, b"\0") + header() + (b"y" * 600).ljust(1024, b"\0") + header(b"b.bin", 1)
        + b"z".ljust(512, b"\0") + bytes(1024)
    )  # fmt: skip
    assert decoded(path) == [b"y" * 600, b"z"]


def test_two_members_of_one_name_in_a_sample_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "0.tar"
    archive(path, tarfile.USTAR_FORMAT, ("a.jpg", b""), ("a.JPG", b""))
    with pytest.raises(ExecutionError, match="two members `jpg`, the second at 512"):
        Tar(dataset("tar")).index(path)


def test_touched_is_little_more_than_the_headers_of_large_members(tmp_path: Path) -> None:
    path = tmp_path / "0.tar"
    write_framed(Tar(dataset("tar", 200_000)), path, np.full(10, 200_000))
    assert Tar(dataset("tar")).index(path).touched < 10 * (4096 + 2 * 512) + 16384


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("header", 8),
        ("align", 4096),
        ("chunk", Chunk(4, "samples")),
        ("compress", Compression("gzip", 1)),
        ("parts", 2),
        ("names", ("x",)),
    ],
)
def test_settings_that_cannot_be_held_are_named(setting: str, value: object) -> None:
    refused = Tar(dataset("tar", **{setting: value})).refuse()  # type: ignore[arg-type]
    assert refused is not None
    assert refused[0] == setting
    assert Tar(dataset("tar", VARYING)).refuse() is None


def test_webdataset_reads_every_sample(tmp_path: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    path, form, sizes = tmp_path / "0.tar", dataset("tar", VARYING), [1, 511, 512, 513, 70_000]
    write_framed(Tar(form), path, ints(*sizes), first=997)
    found = list(webdataset.WebDataset(str(path), shardshuffle=False))
    assert [sample["__key__"] for sample in found] == [f"{997 + row:09d}" for row in range(5)]
    for row, sample in enumerate(found):
        assert sample["bin"] == random_contents(form, 997 + row, sizes[row]).tobytes()
        assert int(sample["cls"]) == (997 + row) % CLASSES


def test_webdataset_groups_what_others_wrote_the_same(tmp_path: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    path = tmp_path / "0.tar"
    with webdataset.TarWriter(str(path)) as out:
        for row in range(5):
            out.write({"__key__": f"some/k{row}", "x.bin": bytes([row]) * row * 300, "cls": row})
    found = [sample["x.bin"] for sample in webdataset.WebDataset(str(path), shardshuffle=False)]
    index = Tar(dataset("tar")).index(path)
    assert index.samples == len(found) == 5
    whole = path.read_bytes()
    for row, data in enumerate(found):
        [(offset, length)] = sample_ranges(index, row)
        assert data in whole[offset : offset + length]
