"""The alignment of O_DIRECT: asked of the kernel, and kept by reads and writes."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

from dliosim.execute.backends.contract import Files, allocate
from dliosim.execute.backends.posix import PosixReader, PosixWriter
from dliosim.execute.backends.registry import list_accesses
from dliosim.execute.node.statx import ask_alignment, find_alignment, set_alignment
from dliosim.language.compile import compile_pattern
from dliosim.model import Access, Job
from dliosim.model.direct_io import resume_offset, split_write, widen_range
from dliosim.plan.samples.io_requests import Extents, plan_calls

DIOALIGN = 0x2000

PATTERN = """dlio 1
workload w
dataset d {
    path "d"
    samples 64
    size 4 KiB
    align 4 KiB
}
checkpoint c {
    path "c"
    part p 1 MB total
    cache off
}
prepare d { cache off }
repeat 2 {
    train {
        read d
        batch 2 per rank
        cache off
        checkpoint c every epoch
        evaluate every epoch { read d }
    }
}
save c
"""


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make statx answer with a mask and alignments, or fail."""

    def install(mask: int, memory: int = 0, offset: int = 0, status: int = 0) -> None:
        def statx(descriptor: int, path: bytes, flags: int, asked: int, found: ctypes.Array[ctypes.c_char]) -> int:
            assert (path, asked) == (b"", DIOALIGN) and os.fstat(descriptor)
            struct.pack_into("=I", found, 0, mask)
            struct.pack_into("=II", found, 0x98, memory, offset)
            return status

        monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace(statx=statx))

    return install


@pytest.mark.parametrize(
    ("answered", "asked", "used"),
    [
        ((DIOALIGN, 4, 512), 512, 4096),
        ((DIOALIGN, 512, 65_536), 65_536, 65_536),
        ((DIOALIGN, 131_072, 4096), 131_072, 131_072),
        ((DIOALIGN, 0, 0), 0, 4096),
        ((0, 512, 65_536), 0, 4096),
        ((DIOALIGN, 512, 65_535), 0, 4096),
        ((DIOALIGN, 512, 1 << 31), 0, 4096),
        ((DIOALIGN, 512, 65_536, -1), 0, 4096),
    ],
    ids=["sectors", "blocks", "memory", "refused", "unknown", "no power of two", "absurd", "fails"],
)
def test_the_kernels_alignment_is_used_where_it_is_more_than_a_page(
    tmp_path: Path, answer: Callable[..., None], answered: tuple[int, ...], asked: int, used: int
) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"x")
    answer(*answered)
    with file.open() as opened:
        assert ask_alignment(opened.fileno()) == asked
    for places in ([file], [tmp_path], [tmp_path / "missing", file]):
        assert find_alignment(places) == used
    assert list(tmp_path.iterdir()) == [file], "nothing is left"


def test_a_c_library_without_statx_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())
    assert find_alignment([tmp_path]) == 4096


def test_every_access_of_a_workload_gets_the_alignment_and_its_digest_stays(tmp_path: Path) -> None:
    (tmp_path / "w.dlio").write_text(PATTERN)
    workload = compile_pattern(tmp_path / "w.dlio", [], Job(2))[0]
    aligned = set_alignment(workload, 65_536)
    found = [access.page for access, _ in list_accesses(aligned)]
    assert sorted(found) == [1, 65_536, 65_536, 65_536, 65_536]
    assert (aligned.digest(), aligned) == (workload.digest(), workload)
    assert [access.page for access, _ in list_accesses(workload)].count(4096) == 4


@given(st.integers(0, 300_000), st.integers(1, 300_000), st.sampled_from([512, 4096, 65_536]))
def test_ranges_are_widened_and_cut_at_multiples(offset: int, length: int, alignment: int) -> None:
    first, last = widen_range(offset, offset + length, alignment)
    assert first % alignment == last % alignment == 0
    assert offset - alignment < first <= offset < offset + length <= last < offset + length + alignment
    head, body = split_write(offset, length, alignment)
    assert body % alignment == 0 and head + body <= length
    assert body == 0 or (offset + head) % alignment == 0
    assert head < alignment and length - head - body < alignment
    assert resume_offset(length, alignment) == length - length % alignment
    assert widen_range(offset, offset + length, 1) == (offset, offset + length)


@pytest.mark.parametrize("engine", ["preadv", "pread"])
def test_calls_keep_an_alignment_of_64_kib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    data, path = os.urandom(500_000), tmp_path / "0.raw"
    access = Access(cache="off", engine=engine, alignment=65_536)  # type: ignore[arg-type]
    real, direct = os.pwrite, list[tuple[int, int]]()

    def pwrite(descriptor: int, piece: memoryview, offset: int) -> int:
        flags = int(Path(f"/proc/self/fdinfo/{descriptor}").read_text().split("flags:")[1].split()[0], 8)
        if flags & os.O_DIRECT:
            direct.append((offset, len(piece)))
        return real(descriptor, piece, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    writer = PosixWriter(access, path, create=True)
    for first, last in ((0, 100_001), (100_001, 450_000), (450_000, 500_000)):
        writer.write(first, memoryview(data)[first:last])
    writer.close()
    assert path.read_bytes() == data
    assert direct == [(0, 65_536), (131_072, 262_144)]
    offset, length = np.array([1000, 499_000]), np.array([70_000, 1000])
    zero = np.zeros(2, np.int64)
    calls = plan_calls(Extents(zero, zero, offset, length, np.array([0, 2])), None, access.page)
    assert (calls.offset.tolist(), calls.length.tolist()) == ([0, 458_752], [131_072, 65_536])
    reader = PosixReader(access, Files(tmp_path, lambda _: "0.raw", lambda _: 500_000, False, MPI.COMM_SELF))
    into = allocate(calls.buffer_size)
    assert reader.read(calls, into) == 131_072 + 500_000 - 458_752
    reader.close()
    for begin, size, start in zip(offset.tolist(), length.tolist(), calls.sample_start.tolist(), strict=True):
        assert into[start : start + size] == data[begin : begin + size]
