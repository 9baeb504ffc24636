"""The posix backend: descriptors live as long as they should, and every fault names file, offset and call."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

from dliosim.errors import ExecutionError
from dliosim.execute.backends.contract import Files, allocate
from dliosim.execute.backends.fd_table import raise_open_limit
from dliosim.execute.backends.posix import PosixReader, PosixWriter
from dliosim.execute.backends.registry import backend_of
from dliosim.execute.io_errors import truncation_error
from dliosim.execute.testing.backend_contract import check_full
from dliosim.model import Access
from dliosim.model.direct_io import DIRECT_ALIGNMENT
from dliosim.plan.samples.io_requests import Extents, plan_calls
from tests.execute.calls import make_calls
from tests.execute.failing import failing


def name(file: int) -> str:
    return f"{file}.raw"


def reader(directory: Path, size: Callable[[int], int] = lambda file: 0, **access: object) -> PosixReader:
    return PosixReader(Access(**access), Files(directory, name, size, False, MPI.COMM_SELF))  # type: ignore[arg-type]


@pytest.fixture
def data(tmp_path: Path) -> list[bytes]:
    files = [os.urandom(50_000 + file) for file in range(4)]
    for file, content in enumerate(files):
        (tmp_path / name(file)).write_bytes(content)
    return files


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_step_lands_where_its_calls_say(tmp_path: Path, data: list[bytes]) -> None:
    rows = [(0, 100, 4096), (3, 0, 1), (0, 5, 4096), (2, 50_000, 2)]
    into = allocate(10_000)
    one = reader(tmp_path)
    assert one.read(make_calls([rows]), into) == 8195
    assert bytes(into[:8195]) == b"".join(data[file][at : at + size] for file, at, size in rows)
    assert (one.meter.calls, one.meter.opens, one.meter.moved) == (4, 3, 8195)
    assert len(one.meter.take_latencies()) == 4
    assert one.meter.take_latencies().size == 0
    one.close()


def test_equal_pieces_are_cut_once_and_still_right_in_every_slot(tmp_path: Path, data: list[bytes]) -> None:
    one = reader(tmp_path)
    slots = [allocate(3000) for _ in range(3)]
    for step in range(9):
        rows = [(step % 4, 1000 * step + k, 1000) for k in range(3)]
        one.read(make_calls([rows]), slots[step % 3])
        assert bytes(slots[step % 3]) == b"".join(data[file][at : at + size] for file, at, size in rows)
    one.close()


@pytest.mark.parametrize(("lifetime", "during", "after"), [("each sample", 0, 0), ("each epoch", 4, 0), ("once", 4, 4)])
def test_descriptors_live_as_long_as_asked(
    tmp_path: Path, data: list[bytes], lifetime: str, during: int, after: int
) -> None:
    one = reader(tmp_path, open=lifetime)
    before = open_files()
    for _ in range(2):
        one.begin_epoch()
        one.read(make_calls([[(file, 0, 10) for file in range(4)]]), allocate(40))
        assert open_files() - before == during
        one.end_epoch()
        assert open_files() - before == after
    one.close()
    one.close()
    assert open_files() == before


def test_the_calls_of_one_sample_share_its_descriptor(tmp_path: Path, data: list[bytes]) -> None:
    rows = [(0, 0, 100), (0, 100, 100), (1, 0, 100), (1, 500, 100)]
    merged = reader(tmp_path, open="each sample", transfer=100)
    merged.read(make_calls([rows]), allocate(400))
    assert merged.meter.opens == 3
    whole = reader(tmp_path, open="each sample")
    whole.read(make_calls([rows]), allocate(400))
    assert whole.meter.opens == 4


@pytest.mark.parametrize("lifetime", ["each sample", "once"])
def test_a_truncated_file_is_found(tmp_path: Path, data: list[bytes], lifetime: str) -> None:
    os.truncate(tmp_path / name(1), 6000)
    one = reader(tmp_path, open=lifetime)
    before = open_files()
    with pytest.raises(
        ExecutionError, match=r"preadv of 4096 bytes at offset 4096 returned 1904 on .*/1\.raw"
    ) as found:
        one.read(make_calls([[(0, 0, 10), (1, 4096, 4096)]]), allocate(5000))
    assert found.value.code == "R401"
    one.close()
    assert open_files() == before


def test_a_call_that_returns_less_is_continued(
    tmp_path: Path, data: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.preadv

    def short(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        return whole(descriptor, [buffers[0][:1500]], offset)

    monkeypatch.setattr(os, "preadv", short)
    one, into = reader(tmp_path), allocate(4000)
    assert one.read(make_calls([[(0, 7, 4000)]]), into) == 4000
    assert bytes(into) == data[0][7:4007]
    assert one.meter.calls == 3


@pytest.mark.parametrize("lifetime", ["each sample", "once"])
def test_a_missing_file_a_link_and_a_directory_are_named(tmp_path: Path, lifetime: str) -> None:
    (tmp_path / name(1)).symlink_to("/etc/hostname")
    (tmp_path / name(2)).mkdir()
    for file, reason in enumerate(["No such file", "symbolic link", "Is a directory"]):
        one = reader(tmp_path, open=lifetime)
        with pytest.raises(ExecutionError, match=rf"on .*/{file}\.raw: .*{reason}") as found:
            one.read(make_calls([[(file, 0, 10)]]), allocate(10))
        assert found.value.code == "R401"
        one.close()


def test_too_many_open_files_say_what_to_do(tmp_path: Path) -> None:
    for file in range(200):
        (tmp_path / name(file)).write_bytes(b"x")
    one = reader(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files() + 20, hard))
    try:
        with pytest.raises(ExecutionError, match=r"Too many open files .*the limit is .*`open each sample`"):
            one.read(make_calls([[(file, 0, 1) for file in range(200)]]), allocate(200))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        one.close()


def test_the_limit_of_open_files_is_raised() -> None:
    raise_open_limit()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft == hard


def direct_calls(rows: list[tuple[int, int]]) -> object:
    offset, length = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    zero = np.zeros(len(rows), np.int64)
    return plan_calls(Extents(zero, zero, offset, length, np.array([0, len(rows)])), None, page=DIRECT_ALIGNMENT)


def test_reads_past_the_cache_are_widened_and_end_with_the_file(tmp_path: Path, data: list[bytes]) -> None:
    rows = [(100, 50), (4000, 200), (49_000, 1000)]
    made = direct_calls(rows)
    one = reader(tmp_path, lambda file: 50_000, cache="off")
    into = allocate(made.buffer_size)  # type: ignore[attr-defined]
    moved = one.read(made, into)  # type: ignore[arg-type]
    assert moved == one.meter.moved == 4096 + 8192 + 50_000 - 45_056
    for (offset, length), start in zip(rows, made.sample_start.tolist(), strict=True):  # type: ignore[attr-defined]
        assert into[start : start + length] == data[0][offset : offset + length]


def test_a_file_that_ends_inside_the_last_page_too_early_is_truncated(tmp_path: Path, data: list[bytes]) -> None:
    os.truncate(tmp_path / name(0), 49_990)
    one = reader(tmp_path, lambda file: 50_000, cache="off")
    made = direct_calls([(49_000, 1000)])
    with pytest.raises(ExecutionError, match="shorter than planned"):
        one.read(made, allocate(made.buffer_size))  # type: ignore[arg-type,attr-defined]


@given(
    cut=st.lists(st.integers(1, 5 * DIRECT_ALIGNMENT), max_size=6),
    size=st.integers(5 * DIRECT_ALIGNMENT, 6 * DIRECT_ALIGNMENT),
    cache=st.sampled_from(["page", "off"]),
)
def test_a_read_that_ends_early_is_gone_on_with(cut: list[int], size: int, cache: str) -> None:
    """`cut` is how many bytes the first calls return at most."""
    real, left = os.preadv, iter(cut)

    def short(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        most = next(left, None)
        got = real(descriptor, buffers, offset)
        return got if most is None else min(got, most)

    with TemporaryDirectory() as made:
        content = os.urandom(size)
        Path(made, name(0)).write_bytes(content)
        one, into = reader(Path(made), lambda file: size, cache=cache), allocate(8 * DIRECT_ALIGNMENT)
        rows: Any = direct_calls([(10, size - 10)]) if cache == "off" else make_calls([[(0, 10, size - 10)]])
        try:
            with mock.patch.object(os, "preadv", short):
                assert one.read(rows, into) == (size if cache == "off" else size - 10)
        except ExecutionError as error:
            # Twice at the same place in a page: then it says that the read is short, and not the file.
            assert (error.code, cache) == (None, "off")
            assert f"which has {size} bytes: the file system ended the read" in error.message
        else:
            at = int(rows.sample_start[0]) if cache == "off" else 0
            assert bytes(into[at : at + size - 10]) == content[10:]
        one.close()


def test_a_read_that_ends_early_for_good_is_no_file_cut_short(tmp_path: Path) -> None:
    path = tmp_path / name(0)
    path.write_bytes(bytes(100))
    assert (
        "which has 100 bytes: the file system ended the read" in truncation_error("read", str(path), 0, 100, 60).message
    )
    assert truncation_error("read", str(path), 0, 100, 60).code is None
    for offset, got in ((40, 60), (200, 0)):
        assert truncation_error("read", str(path), offset, 100, got).code == "R401"
    path.unlink()
    assert truncation_error("read", str(path), 0, 100, 60).code == "R401"


@pytest.mark.parametrize("cache", ["page", "off"])
def test_a_file_system_without_o_direct_is_named_where_it_was_asked_for(
    tmp_path: Path, data: list[bytes], monkeypatch: pytest.MonkeyPatch, cache: str
) -> None:
    def refuse(path: str, flags: int, mode: int = 0, dir_fd: int | None = None) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    one = reader(tmp_path, cache=cache)
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ExecutionError, match=r"open failed on .*: Invalid argument") as read:
        one.read(make_calls([[(0, 0, 10)]]), allocate(DIRECT_ALIGNMENT))
    with pytest.raises(ExecutionError, match=r"open failed on .*: Invalid argument") as written:
        PosixWriter(Access(cache=cache), tmp_path / "out", create=True)  # type: ignore[arg-type]
    for found in (read, written):
        assert ("refuses O_DIRECT" in found.value.message) == (cache == "off")


@pytest.mark.parametrize("cache", ["page", "off"])
@pytest.mark.parametrize("shift", [0, 3])
def test_what_is_written_is_there(tmp_path: Path, cache: str, shift: int) -> None:
    content = os.urandom(3_000_000)
    room = allocate(len(content) + shift)[shift:]
    room[:] = content
    path = tmp_path / "out"
    path.write_bytes(b"old" * 2_000_000)
    one = PosixWriter(Access(cache=cache), path, create=True)  # type: ignore[arg-type]
    one.write(1_000_001, room[1_000_001:])
    one.write(0, room[:1_000_001])
    one.sync()
    one.close()
    one.close()
    assert path.read_bytes() == content
    assert one.meter.moved == len(content)
    assert one.meter.sync_ns > 0
    assert len(one.meter.call_ns) == one.meter.calls


def test_a_writer_that_does_not_create_keeps_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"0123456789")
    one = PosixWriter(Access(), path, create=False)
    one.write(4, memoryview(b"ab"))
    one.close()
    assert path.read_bytes() == b"0123ab6789"


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    found = check_full(backend_of("posix"), Access(), tmp_path)
    assert f"pwrite of 3 bytes at offset 9 failed on {tmp_path}/full: No space" in found.message


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/hostname")
    for where, reason in [("absent/out", "No such file"), ("link", "symbolic link")]:
        with pytest.raises(ExecutionError, match=reason):
            PosixWriter(Access(), tmp_path / where, create=True)


def test_a_close_that_fails_leaves_no_other_descriptor_open(tmp_path: Path) -> None:
    before = open_files()
    one = PosixWriter(Access(cache="off"), tmp_path / "made", create=True)
    with (
        failing("close", errno.EIO, "made$") as failed,
        pytest.raises(ExecutionError, match=r"close failed on .*/made"),
    ):
        one.close()
    assert (len(failed), open_files()) == (2, before)
