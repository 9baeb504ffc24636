"""Pages of a file in the page cache can be counted and dropped."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path
from time import monotonic

import pytest

from dliosim.errors import ExecutionError
from dliosim.execute.node import page_cache
from dliosim.execute.node.environment import find_mount
from dliosim.execute.node.page_cache import (
    ProcessIO,
    count_resident_bytes,
    counts_reads,
    drop_pages,
    process_io_since,
    read_process_io,
    warm_page_cache,
)
from tests.execute.failing import failing, shrinking

SIZE = 3_000_001


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(SIZE))
    return path


def test_what_was_just_written_is_resident(written: Path) -> None:
    assert count_resident_bytes(written) == (SIZE, SIZE)


def test_large_files_are_looked_at_window_by_window(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "_WINDOW", 1 << 20)
    assert count_resident_bytes(written) == (SIZE, SIZE)


def test_dropped_pages_are_gone_where_the_file_system_has_storage(written: Path) -> None:
    drop_pages(written)
    # Where files are in memory there is no other place to keep them.
    assert count_resident_bytes(written) == (SIZE if find_mount(written).is_memory_backed else 0, SIZE)


def test_an_empty_file_has_nothing_resident(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    assert count_resident_bytes(path) == (0, 0)


def test_what_the_kernel_tells_to_writers_only_is_unknown_to_others(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: written.stat().st_uid + 1)
    monkeypatch.setattr(os, "access", lambda path, mode, effective_ids: False)
    assert count_resident_bytes(written) == (0, 0)
    monkeypatch.setattr(os, "access", lambda path, mode, effective_ids: mode == os.W_OK)
    assert count_resident_bytes(written) == (SIZE, SIZE)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for look in (count_resident_bytes, drop_pages):
        with pytest.raises(ExecutionError, match=r"absent: No such file"):
            look(tmp_path / "absent")


def test_a_file_that_cannot_be_synced_says_so(written: Path) -> None:
    failure = failing("fdatasync", errno.EIO, "data$")
    with failure, pytest.raises(ExecutionError, match=r"^error: fdatasync failed on .*/data: Input/output error$"):
        drop_pages(written)


def test_a_file_that_is_cut_short_when_it_is_looked_at_is_named(written: Path) -> None:
    with shrinking(), pytest.raises(ExecutionError, match="data: the file was cut short meanwhile") as caught:
        count_resident_bytes(written)
    assert caught.value.code is None  # a run makes a note of it


def test_what_is_no_file_is_neither_dropped_nor_looked_at(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/null", tmp_path / "pipe", tmp_path):
        for look in (count_resident_bytes, drop_pages):
            with pytest.raises(ExecutionError, match="stands where a file should be"):
                look(path)


def test_what_fails_when_a_file_is_closed_changes_nothing(written: Path) -> None:
    with failing("close", errno.EIO, "data$") as failed:
        assert count_resident_bytes(written) == (SIZE, SIZE)
        warm_page_cache(written, bytearray(1 << 20))
        drop_pages(written)
    assert len(failed) == 3


def test_of_a_large_file_stretches_are_looked_at_that_are_evenly_spread(tmp_path: Path) -> None:
    large = tmp_path / "large"
    size = (3 << 30) + 17
    with large.open("wb") as file:
        file.truncate(size)
    assert count_resident_bytes(large, whole=True) == (0, size)
    with large.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"x")
    found, looked_at = count_resident_bytes(large)
    assert 0 < found < looked_at, "the end is among them"
    assert (1 << 30) - mmap.PAGESIZE < looked_at <= 1 << 30


@pytest.fixture
def stored(written: Path) -> Path:
    if find_mount(written).is_memory_backed:
        pytest.skip("files there are in memory")
    with written.open("rb") as file:
        os.fsync(file.fileno())  # what is dirty is never dropped
    return written


@pytest.mark.parametrize("cached", [True, False])
def test_a_file_is_in_the_page_cache_as_before_when_the_counter_was_tried(stored: Path, cached: bool) -> None:
    if not cached:
        drop_pages(stored)
    assert counts_reads(stored) or find_mount(stored).kind not in ("ext4", "xfs", "btrfs")
    end = monotonic() + 10
    while count_resident_bytes(stored) != (SIZE if cached else 0, SIZE):  # the kernel reads ahead meanwhile
        assert monotonic() < end


@pytest.mark.parametrize(
    ("counts", "outcome"),
    [
        ((0, 4096, 4096, 4096), True),
        ((0, 0, 0, 0), False),
        # What comes from memory is counted as well.
        ((0, 4096, 4096, 8192), False),
    ],
)
def test_a_counter_counts_what_was_dropped_and_nothing_else(
    stored: Path, monkeypatch: pytest.MonkeyPatch, counts: tuple[int, ...], outcome: bool
) -> None:
    found = iter(counts)
    monkeypatch.setattr(page_cache, "read_process_io", lambda path: ProcessIO(0, next(found)))
    assert counts_reads(stored) is outcome


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EOPNOTSUPP, errno.ESPIPE, errno.ENOSYS])
def test_a_file_system_that_takes_no_advice_is_no_failure(written: Path, number: int) -> None:
    assert drop_pages(written)
    with failing("posix_fadvise", number, "data$") as refused:
        assert not drop_pages(written)
        assert counts_reads(written) is None
    assert len(refused) >= 2
    with failing("posix_fadvise", errno.EIO, "data$"), pytest.raises(ExecutionError, match="posix_fadvise failed on"):
        drop_pages(written)


def test_a_page_that_stays_in_memory_says_nothing_of_the_counter(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fadvise", lambda *given: None)
    assert counts_reads(written) is None
    (tmp_path / "empty").touch()
    assert counts_reads(tmp_path / "empty") is None


def test_without_proc_it_is_not_known_whether_reads_are_counted(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "read_process_io", lambda path: None)
    assert counts_reads(written) is None


#: Counts of this thread alone: others of the process of tests read what pytest-xdist sends, at any time.
THREAD = Path("/proc/thread-self/io")


def test_what_asking_takes_is_none_of_what_was_read() -> None:
    before = read_process_io(THREAD)
    if before is None:
        pytest.skip("no /proc/self/io")
    assert process_io_since(before, path=THREAD).called_read == 0
    assert process_io_since(read_process_io(), drained=1).storage_read == -1


def test_a_read_is_seen_in_the_bytes_that_the_process_called_for(written: Path) -> None:
    before = read_process_io(THREAD)
    if before is None:
        pytest.skip("no /proc/self/io")
    descriptor = os.open(written, os.O_RDONLY)
    os.pread(descriptor, SIZE, 0)
    os.close(descriptor)
    assert process_io_since(before, path=THREAD).called_read == SIZE
