"""A scanner gives what the file holds, in few reads where headers are near each other and in short ones where not."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dliosim.errors import ExecutionError
from dliosim.execute.node.environment import find_mount
from dliosim.formats.contract_tests import write_framed, write_resolved
from dliosim.formats.header_scanner import BLOCK, LEAST_BLOCK, Scanner, file_to_read
from dliosim.formats.protocols import FileIndex, Format, Framed, Resolved
from dliosim.formats.registry import bind
from dliosim.model import Compression
from tests.examples import examples
from tests.execute.failing import failing
from tests.formats.datasets import dataset

FORMS = ["npy", "npz", "csv", "tfrecord", "indexed", "tar", "hdf5", "jpeg", "png", "parquet"]
LENGTH = 3 * BLOCK
DATA = np.random.default_rng(1).integers(0, 256, LENGTH, np.uint8).tobytes()


@pytest.fixture(scope="module")
def descriptor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    path: Path = tmp_path_factory.mktemp("scan") / "file"
    path.write_bytes(DATA)
    with path.open("rb") as stream:
        yield stream.fileno()


@settings(max_examples=examples(100))
@given(steps=st.lists(st.tuples(st.integers(0, LENGTH // 4), st.integers(1, 2000)), max_size=30))
def test_bytes_are_those_of_the_file_wherever_they_are(descriptor: int, steps: list[tuple[int, int]]) -> None:
    scanner, offset = Scanner(descriptor), 0
    for step, count in steps:
        offset += step
        assert scanner.take(offset, count) == DATA[offset : offset + count]


def test_near_headers_are_read_in_blocks_that_grow_to_a_bound(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, real = [], os.pread
    monkeypatch.setattr(os, "pread", lambda *given: calls.append(given[1]) or real(*given))  # type: ignore[func-returns-value]
    scanner = Scanner(descriptor)
    for offset in range(0, LENGTH - 12, 100):
        scanner.take(offset, 12)
    assert calls[:3] == [LEAST_BLOCK, 2 * LEAST_BLOCK, 4 * LEAST_BLOCK]
    assert max(calls) == BLOCK
    assert scanner.touched < LENGTH + len(calls) * 12


def test_far_headers_are_read_alone(descriptor: int) -> None:
    scanner = Scanner(descriptor)
    for offset in range(0, LENGTH - 12, 60_000):
        scanner.take(offset, 12)
    assert scanner.touched == LEAST_BLOCK + (-(-(LENGTH - 12) // 60_000) - 1) * 12


def test_calls_that_give_less_are_repeated(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda handle, count, offset: real(handle, min(count, 5), offset))
    assert Scanner(descriptor).take(7, 512) == DATA[7:519]


def test_at_the_end_there_is_less(descriptor: int) -> None:
    assert Scanner(descriptor).take(LENGTH - 5, 12) == DATA[-5:]
    assert Scanner(descriptor).take(LENGTH + 5, 12) == b""


def test_going_back_reads_again(descriptor: int) -> None:
    scanner = Scanner(descriptor)
    scanner.take(70_000, 12)
    assert scanner.take(69_990, 12) == DATA[69_990:70_002]


def written(form: str, path: Path, compress: Compression | None = None, size: int = 3000) -> Format:
    """A file of a few samples at `path`, with its sidecars: by what it is read."""
    samples = 1 if form in ("jpeg", "png") else 9
    described = dataset(form, size, samples=samples, compress=compress)
    found = bind(described)
    if needed := found.needs():
        pytest.importorskip({"Pillow": "PIL"}.get(needed[0], needed[0]))
    if isinstance(found, Resolved):
        write_resolved(found, path, samples)
    else:
        assert isinstance(found, Framed)
        write_framed(found, path, np.full(samples, size))
    return found


def assert_same(one: FileIndex, other: FileIndex) -> None:
    assert (one.samples, one.size) == (other.samples, other.size)
    for mine, others in zip(one.columns, other.columns, strict=True):
        assert (mine.offset.tolist(), mine.length.tolist()) == (others.offset.tolist(), others.length.tolist())


@pytest.mark.parametrize("compress", [None, Compression("gzip", 1)], ids=["plain", "gzip"])
@pytest.mark.parametrize("form", FORMS)
def test_an_index_is_the_same_where_calls_give_less(
    form: str, compress: Compression | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if compress is not None and form not in ("npz", "hdf5", "parquet"):
        pytest.skip("has no compression")
    path = tmp_path / f"f.{form}"
    found = written(form, path, compress)
    whole, pread, preadv = found.index(path), os.pread, os.preadv
    monkeypatch.setattr(os, "pread", lambda at, count, offset: pread(at, min(count, 1 + offset % 9), offset))
    monkeypatch.setattr(
        os, "preadv", lambda at, to, *place: preadv(at, [memoryview(to[0])[: 1 + place[0] % 9]], *place)
    )
    assert_same(found.index(path), whole)


@pytest.mark.parametrize("form", FORMS)
def test_an_index_is_read_though_no_close_goes_well(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"f.{form}"
    found = written(form, path)
    whole = found.index(path)
    with failing("close", errno.EIO, str(tmp_path)) as closed:
        assert_same(found.index(path), whole)
    read = {"tfrecord": {"f.tfrecord", "f.index"}, "indexed": {"f.idx"}}.get(form, {path.name})
    assert {Path(name).name for name in closed} == read, "each was closed where that fails"


@pytest.mark.parametrize("suffix", [*(form for form in FORMS if form != "indexed"), "index", "idx"])
def test_a_pipe_or_a_socket_in_the_place_of_a_file_is_refused_at_once(suffix: str, tmp_path: Path) -> None:
    form = {"index": "tfrecord", "idx": "indexed"}.get(suffix, suffix)
    path = tmp_path / f"f.{form}"
    found = written(form, path)
    other = path.with_suffix(f".{suffix}")
    for mode in (stat.S_IFIFO, stat.S_IFSOCK):
        other.unlink()
        os.mknod(other, mode | 0o644)
        with pytest.raises(ExecutionError) as caught:
            found.index(path)
        text = f"open refused on {other}: no regular file stands where a file should be; move it away"
        assert str(caught.value) == f"error[R401]: {text}"


def test_a_file_is_read_by_calls_that_wait_and_through_links(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"some")
    (tmp_path / "link").symlink_to("file")
    with file_to_read(tmp_path / "link") as stream:
        assert os.get_blocking(stream.fileno())
        assert not os.get_inheritable(stream.fileno())
        assert stream.read() == b"some"
    with pytest.raises(FileNotFoundError), file_to_read(tmp_path / "none"):
        pass


def resident_pages(path: Path) -> list[int]:
    """The pages of a file that are in the page cache, by the kernel's own answer to mincore."""
    size = path.stat().st_size
    pages = np.empty(-(-size // mmap.PAGESIZE), np.uint8)
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ) as mapped:
        window = np.frombuffer(mapped, np.uint8)
        libc = ctypes.CDLL(None)
        assert not libc.mincore(
            ctypes.c_void_p(window.ctypes.data), ctypes.c_size_t(size), ctypes.c_void_p(pages.ctypes.data)
        )
        del window
    return np.flatnonzero(pages & 1).tolist()


@pytest.mark.parametrize("form", ["npy", "npz", "hdf5", "jpeg", "png", "parquet"])
@pytest.mark.parametrize("kept", [(), (0,), (30,)], ids=["cold", "first page", "other page"])
def test_a_look_leaves_the_page_cache_as_it_was(form: str, kept: tuple[int, ...], tmp_path: Path) -> None:
    if find_mount(tmp_path).is_memory_backed:
        pytest.skip("files there are in memory")
    path = tmp_path / f"f.{form}"
    found = written(form, path, size=200_000)
    with path.open("rb") as file:
        os.fsync(file.fileno())  # what is dirty is never dropped
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        for page in kept:
            os.pread(file.fileno(), 1, page * mmap.PAGESIZE)
    assert resident_pages(path) == list(kept)
    assert found.index(path).samples
    assert resident_pages(path) == list(kept)


def test_of_an_archive_of_numpy_a_look_reads_its_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, asked = tmp_path / "f.npz", list[tuple[int, int]]()
    np.savez(path, x=np.zeros((500, 1000), np.uint8), y=[0] * 7)
    pread, preadv = os.pread, os.preadv

    def count_read(at: int, count: int, offset: int) -> bytes:
        asked.append((offset, count))
        return pread(at, count, offset)

    def count_found(at: int, into: list[bytearray], offset: int, flags: int) -> int:
        if preadv(at, into, offset, flags) < len(into[0]):
            raise AssertionError("it was just written")
        asked.append((offset, len(into[0])))
        return len(into[0])

    monkeypatch.setattr(os, "pread", count_read)
    monkeypatch.setattr(os, "preadv", count_found)
    found = bind(dataset("npz", 1000, source="*.npz", samples=500))
    assert found.index(path).samples
    assert asked == [(path.stat().st_size - 512, 512), (0, 512)]
