"""Records of zip files at and beyond the sizes that the older ones hold, as Python's zipfile reads them."""

from __future__ import annotations

import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from dliosim.errors import ExecutionError
from dliosim.formats.header_scanner import file_to_look_at
from dliosim.formats.numpy_files.npz import StoredNpz
from dliosim.formats.numpy_files.zip_headers import (
    DEFLATED,
    STORED,
    ZIP64,
    ZipMember,
    data_offset,
    local_header,
    read_directory,
    trailer,
    trailer_sizes,
)
from tests.formats.described import described

EDGE = [100_000, ZIP64 - 56, ZIP64 - 55, ZIP64 - 1, ZIP64, 1 << 32, (1 << 33) + 5, 1 << 40]
HEADER = len(local_header(ZipMember("x.npy", STORED, 0, 0, 0)))


def holes(path: Path, member: ZipMember) -> None:
    """A file of a member of zeros that take no room."""
    end = HEADER + member.stored
    with path.open("wb") as stream:
        stream.write(local_header(member))
        stream.seek(end)
        stream.write(trailer(member, end))


@pytest.mark.parametrize("stored", EDGE)
@pytest.mark.parametrize("ratio", [1, 3])
def test_members_of_any_size_are_found_by_zipfile_and_by_us(tmp_path: Path, stored: int, ratio: int) -> None:
    path = tmp_path / "f.zip"
    member = ZipMember("x.npy", STORED if ratio == 1 else DEFLATED, 0x12345678, stored, stored * ratio)
    holes(path, member)
    with zipfile.ZipFile(path) as archive:
        (info,) = archive.infolist()
        assert (info.filename, info.CRC, info.header_offset) == ("x.npy", 0x12345678, 0)
        assert (info.compress_size, info.file_size) == (stored, stored * ratio)
        if ratio == 1:
            with archive.open("x.npy") as stream:
                assert stream.read(1) == b"\0", "its local header is one"
    with file_to_look_at(path) as look:
        directory = read_directory(look, path)
        assert directory.members == (member,)
        assert directory.begin == HEADER + stored
        assert data_offset(look, member, directory, path) == HEADER


def test_trailers_are_as_long_as_was_said_before_they_were_written() -> None:
    sizes = np.array(EDGE)
    written = [len(trailer(ZipMember("x.npy", STORED, 0, size, size), size + HEADER)) for size in EDGE]
    assert trailer_sizes("x.npy", sizes, sizes + HEADER).tolist() == written
    assert len(set(written)) == 3, "neither, the end alone, and both"
    dataset = described("npz", 10)
    ends = sizes + StoredNpz(dataset).header
    promised = StoredNpz(dataset).trailer(sizes, ends).tolist()
    assert promised == [len(StoredNpz(dataset).write_trailer(1, int(end), 0)) for end in ends]


def test_an_absurd_directory_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "f.zip"
    end = bytearray(trailer(ZipMember("x.npy", STORED, 0, 0, 0), 0)[-22:])
    end[12:16] = (1 << 30).to_bytes(4, "little")
    with path.open("wb") as stream:
        stream.seek(1 << 30)
        stream.write(end)
    with file_to_look_at(path) as look, pytest.raises(ExecutionError, match="directory of 1073741824 bytes"):
        read_directory(look, path)


@pytest.mark.parametrize(("at", "data"), [(8, b"\xff" * 8), (8, b"\x01"), (0, b"XX")])
def test_a_locator_that_leads_nowhere_is_refused(tmp_path: Path, at: int, data: bytes) -> None:
    path = tmp_path / "f.zip"
    holes(path, ZipMember("x.npy", STORED, 0, ZIP64, ZIP64))
    with path.open("r+b") as stream:
        stream.seek(-42 + at, os.SEEK_END)
        stream.write(data)
    with file_to_look_at(path) as look, pytest.raises(ExecutionError, match=r"no ZIP64 end record|does not end where"):
        read_directory(look, path)


@pytest.mark.parametrize(
    ("extra", "found"),
    [
        (struct.pack("<2HQ", 1, 8, 100), 100),
        (struct.pack("<2H5s2HQ", 0x5455, 5, b"times", 1, 8, 100), 100),
        (struct.pack("<2H3QL", 1, 28, 100, 1 << 60, 1 << 60, 7), 100),
        (struct.pack("<2HL", 1, 4, 100), None),
        (struct.pack("<2H", 1, 8), None),
        (struct.pack("<2H", 0x5455, 0), None),
        (b"\1", None),
        (b"", None),
    ],
)
def test_only_what_does_not_fit_is_looked_for_in_the_extra_field(
    tmp_path: Path, extra: bytes, found: int | None
) -> None:
    path = tmp_path / "f.zip"
    member = ZipMember("x.npy", DEFLATED, 0, 100, 300)
    records = trailer(member, HEADER + 100)
    entry, end = bytearray(records[:-22]), bytearray(records[-22:])
    entry[20:24] = b"\xff" * 4
    entry[30:32] = len(extra).to_bytes(2, "little")
    end[12:16] = (len(entry) + len(extra)).to_bytes(4, "little")
    path.write_bytes(local_header(member) + bytes(100) + entry + extra + end)
    with file_to_look_at(path) as look:
        if found is None:
            with pytest.raises(ExecutionError, match=f"{ZIP64} bytes at 0, is outside"):
                read_directory(look, path)
        else:
            assert read_directory(look, path).members == (member,)


def test_many_members_are_counted_beyond_what_two_bytes_hold(tmp_path: Path) -> None:
    path = tmp_path / "f.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(65536):
            archive.writestr(zipfile.ZipInfo(str(number)), b"")
    with file_to_look_at(path) as look:
        assert len(read_directory(look, path).members) == 65536
