"""Headers of tar are read as they were written, with any size."""

from __future__ import annotations

import tarfile

from hypothesis import given
from hypothesis import strategies as st

from dliosim.formats.contract_tests import build_framed
from dliosim.formats.tar import Tar, parse_members, write_headers
from tests.formats.datasets import dataset, ints


@given(st.lists(st.one_of(st.integers(0, 1 << 50), st.integers(8**11 - 2, 8**11 + 2)), min_size=1, max_size=5))
def test_headers_hold_any_size(sizes: list[int]) -> None:
    for row, size in zip(write_headers([b"name"] * len(sizes), ints(*sizes)), sizes, strict=True):
        info = tarfile.TarInfo.frombuf(row.tobytes(), "utf-8", "strict")
        assert (info.name, info.size) == ("name", size)


def test_a_piece_of_an_archive_needs_no_end() -> None:
    whole = build_framed(Tar(dataset("tar")), ints(10))[:2048]
    found = list(
        parse_members(lambda offset, count: memoryview(whole)[offset : offset + count], 2048, "it", whole=False)
    )
    assert [(member.name, member.begin, member.end) for member in found] == [
        ("000000000.bin", 0, 1024),
        ("000000000.cls", 1024, 2048),
    ]


def test_checksums_of_signed_bytes_are_taken() -> None:
    head = bytearray(write_headers(["é.bin".encode("latin-1")], ints(0))[0].tobytes())
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(byte - 256 if byte > 127 else byte for byte in head)
    [found] = parse_members(lambda offset, count: memoryview(head)[offset : offset + count], 512, "it", whole=False)
    assert found.name.endswith(".bin")
