"""The engines of api posix: what all of them do, and what is special to each."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from dliosim.errors import ExecutionError
from dliosim.execute.backends import async_reader as queued_module
from dliosim.execute.backends import io_uring
from dliosim.execute.backends.async_reader import QueuedReader
from dliosim.execute.backends.contract import Files, OverlappingReader, Reader, address_of, allocate
from dliosim.execute.backends.io_uring import IoUring, LinuxAio, ReadQueue, make_queue
from dliosim.execute.backends.mmap_reader import MappedReader
from dliosim.execute.backends.posix import PosixReader, PreadReader
from dliosim.execute.backends.registry import backend_of
from dliosim.execute.batches.decode_preprocess import EpochCalls
from dliosim.execute.batches.prefetch import make_batches
from dliosim.execute.testing.backend_contract import check_lifetime, check_missing, check_reading, check_truncated
from dliosim.execute.testing.contract_fixtures import BATCHES, Rows, call_contents
from dliosim.measure.rank.histogram import Histogram
from dliosim.measure.rank.meter import MeterGroup
from dliosim.model import Access
from dliosim.model.direct_io import DIRECT_ALIGNMENT
from dliosim.plan.samples.io_requests import Calls, Extents, plan_calls
from tests.execute.calls import make_calls
from tests.execute.failing import shrinking

READERS = {"preadv": PosixReader, "pread": PreadReader, "mmap": MappedReader, "queued": QueuedReader}


def name(file: int) -> str:
    return f"{file}.raw"


def reader(directory: Path, engine: str, size: Callable[[int], int] = lambda file: 0, **access: object) -> Reader:
    depth = {"depth": 3} if engine == "queued" else {}
    made = Access(engine=engine, **(depth | access))  # type: ignore[arg-type]
    return READERS[engine](made, Files(directory, name, size, False, MPI.COMM_SELF))


@pytest.fixture
def data(tmp_path: Path) -> list[bytes]:
    files = [os.urandom(50_000 + file) for file in range(4)]
    for file, content in enumerate(files):
        (tmp_path / name(file)).write_bytes(content)
    return files


@pytest.fixture(params=["io_uring", "libaio"])
def queue(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Both of the kernel's queues, each in turn."""
    make = {"io_uring": IoUring, "libaio": LinuxAio}[request.param]
    try:
        make(1, 2).close()
    except OSError as error:
        pytest.skip(f"no {request.param} here: {error}")
    monkeypatch.setattr(queued_module, "make_queue", make)
    yield request.param


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


ENGINES = pytest.mark.parametrize("engine", READERS)


def asked(engine: str, lifetime: str) -> Access:
    return Access(engine=engine, open=lifetime, depth=3 if engine == "queued" else 0)  # type: ignore[arg-type]


@ENGINES
@pytest.mark.parametrize("lifetime", ["each sample", "each epoch", "once"])
def test_a_step_lands_where_its_calls_say(tmp_path: Path, engine: str, lifetime: str) -> None:
    check_reading(backend_of("posix"), asked(engine, lifetime), tmp_path)


@ENGINES
@pytest.mark.parametrize("lifetime", ["each sample", "each epoch", "once"])
def test_files_are_opened_as_often_as_asked(tmp_path: Path, engine: str, lifetime: str) -> None:
    check_lifetime(backend_of("posix"), asked(engine, lifetime), tmp_path)


@ENGINES
@pytest.mark.parametrize("lifetime", ["each sample", "once"])
def test_a_file_that_ends_too_early_is_found(tmp_path: Path, engine: str, lifetime: str) -> None:
    found = check_truncated(backend_of("posix"), asked(engine, lifetime), tmp_path)
    texts = [
        r"of 4096 bytes at offset 4096 returned 1904 on .*/1\.raw",
        r"of 100 bytes at offset 7000 returned 0 on .*/1\.raw",
        r"of 1 bytes at offset 0 returned 0 on .*/3\.raw",
    ]
    for error, text in zip(found, texts, strict=True):
        assert re.search(text, error.message)


@ENGINES
@pytest.mark.parametrize("lifetime", ["each sample", "once"])
def test_a_missing_file_a_link_and_a_directory_are_named(tmp_path: Path, engine: str, lifetime: str) -> None:
    found = check_missing(backend_of("posix"), asked(engine, lifetime), tmp_path)
    reasons = ["No such file", "symbolic link", "directory|No such device"]
    for file, (error, reason) in enumerate(zip(found, reasons, strict=True), 1):
        assert re.search(rf"on .*/{file}\.raw: .*({reason})", error.message)


def test_a_file_that_is_cut_short_before_it_is_mapped_is_found(tmp_path: Path, data: list[bytes]) -> None:
    one = reader(tmp_path, "mmap")
    with shrinking(), pytest.raises(ExecutionError, match=r"returned \d+ on .*/0\.raw: the file is shorter") as caught:
        one.read(make_calls([[(0, 0, 100)]]), allocate(100))
    assert caught.value.code == "R401"
    one.close()


@ENGINES
@pytest.mark.parametrize("lifetime", ["each sample", "once"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(
    tmp_path: Path, data: list[bytes], engine: str, lifetime: str
) -> None:
    (tmp_path / name(1)).unlink()
    os.mkfifo(tmp_path / name(1))
    before = open_files()
    # In a thread, as a read that hangs would never give the interpreter back to this one.
    one, into, found = reader(tmp_path, engine, open=lifetime), allocate(200), list[tuple[str | None, str]]()

    def read() -> None:
        for _ in range(2):
            try:
                one.read(make_calls([[(0, 0, 100), (1, 0, 100)]]), into)
            except ExecutionError as error:
                found.append((error.code, error.message))
        one.close()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(30)
    assert [code for code, _ in found] == ["R401", "R401"]
    assert all(f"{tmp_path}/1.raw" in message for _, message in found)
    assert not thread.is_alive() and open_files() == before


@pytest.mark.parametrize("engine", ["preadv", "pread", "queued"])
def test_a_sample_of_several_calls_is_opened_once(tmp_path: Path, data: list[bytes], engine: str) -> None:
    rows = [(0, 100 * k, 100) for k in range(90)] + [(1, 0, 100), (1, 500, 100)]
    one, into = reader(tmp_path, engine, open="each sample", transfer=100), allocate(9200)
    one.read(make_calls([rows]), into)
    assert into == call_contents(data, rows)
    assert (one.meter.opens, one.meter.calls) == (3, 92)
    before = open_files()
    one.read(make_calls([rows]), into)
    assert open_files() == before
    one.close()


# ---- mmap ---------------------------------------------------------------------------------------------------------


_FEW_DESCRIPTORS = """
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
from dliosim.execute.backends.contract import allocate
from tests.execute.calls import make_calls
from tests.execute.test_engines import reader
one = reader(Path(sys.argv[1]), sys.argv[2], open="each sample", readers=4)
print(one.read(make_calls([[(row % 4, row, 9) for row in range(200)]]), allocate(1800)))
"""


@pytest.mark.parametrize("engine", READERS)
def test_each_sample_opens_no_more_files_together_than_the_system_allows(
    tmp_path: Path, data: list[bytes], engine: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FEW_DESCRIPTORS, str(tmp_path), engine], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "1800\n", done.stderr


def test_a_batch_is_copied_by_one_call(tmp_path: Path, data: list[bytes]) -> None:
    one, into = reader(tmp_path, "mmap"), allocate(200_000)
    for rows in BATCHES:
        one.read(make_calls([rows]), into)
    assert one.meter.calls == len(BATCHES) - 1
    reopening = reader(tmp_path, "mmap", open="each sample")
    reopening.read(make_calls([BATCHES[0]]), into)
    assert reopening.meter.calls == 40


@pytest.mark.parametrize("when", ["an epoch begins", "it ends"])
def test_a_mapped_file_that_is_cut_is_found_before_and_after_an_epoch(
    tmp_path: Path, data: list[bytes], when: str
) -> None:
    one = reader(tmp_path, "mmap")
    one.begin_epoch()
    one.read(make_calls([[(0, 0, 10), (1, 0, 10)]]), allocate(20))
    if when == "an epoch begins":
        one.end_epoch()
    os.truncate(tmp_path / name(1), 5)
    with pytest.raises(ExecutionError, match=r"1\.raw has 5 bytes, and had 50001 when it was mapped") as found:
        if when == "an epoch begins":
            one.begin_epoch()
        else:
            one.end_epoch()
    assert found.value.code == "R401"
    one.close()


# ---- queued -------------------------------------------------------------------------------------------------------


def shuffled(count: int, size: int) -> Rows:
    offset = np.random.default_rng(4).integers(0, 50_000 - size, count).tolist()
    return [(0, at, size) for at in offset]


@pytest.mark.parametrize("depth", [1, 7, 500])
def test_a_batch_of_more_calls_than_the_queue_holds_is_whole(
    tmp_path: Path, data: list[bytes], queue: str, depth: int
) -> None:
    one = reader(tmp_path, "queued", depth=depth)
    rows = shuffled(9000, 11)
    into = allocate(99_000)
    for _ in range(2):  # the second time the queue does not begin at its first place
        into[:] = bytes(99_000)
        assert one.read(make_calls([rows]), into) == 99_000
        assert into == call_contents(data, rows)
    assert (one.meter.calls, one.meter.how) == (18_000, f"queued by {queue}")
    together, latencies = MeterGroup([one.meter]), Histogram()
    busy = together.collect_busy(latencies) + together.collect_rest()
    assert latencies.count == 18_000
    assert 0 < busy <= latencies.sum_ns <= busy * depth
    assert depth > 1 or busy == latencies.sum_ns
    one.close()


def direct_calls(rows: list[tuple[int, int]]) -> Calls:
    offset, length = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    zero = np.zeros(len(rows), np.int64)
    return plan_calls(Extents(zero, zero, offset, length, np.array([0, len(rows)])), None, page=DIRECT_ALIGNMENT)


def test_reads_past_the_cache_are_widened_and_end_with_the_file(tmp_path: Path, data: list[bytes], queue: str) -> None:
    rows = [(100, 50), (4000, 200), (49_000, 1000)]
    made = direct_calls(rows)
    one = reader(tmp_path, "queued", lambda file: 50_000, cache="off")
    into = allocate(made.buffer_size)
    assert one.read(made, into) == one.meter.moved == 4096 + 8192 + 50_000 - 45_056
    for (offset, length), start in zip(rows, made.sample_start.tolist(), strict=True):
        assert into[start : start + length] == data[0][offset : offset + length]
    one.close()
    os.truncate(tmp_path / name(0), 49_990)
    one = reader(tmp_path, "queued", lambda file: 50_000, cache="off")
    with pytest.raises(ExecutionError, match="shorter than planned"):
        one.read(made, into)
    one.close()


def test_the_calls_of_several_batches_are_in_flight_together(
    tmp_path: Path, data: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[tuple[int, int]] = []

    class Watched(LinuxAio):
        def submit_and_wait(self, submit: int, least: int) -> tuple[int, np.ndarray, np.ndarray]:  # type: ignore[type-arg]
            turns.append((submit, least))
            return super().submit_and_wait(submit, least)

    monkeypatch.setattr(queued_module, "make_queue", Watched)
    one = reader(tmp_path, "queued", depth=50)
    assert isinstance(one, OverlappingReader)
    batches = [(shuffled(20, 11 + k), allocate(20 * (11 + k))) for k in range(3)]
    for rows, into in batches:
        assert one.has_room
        one.begin(make_calls([rows]), into)
    for rows, into in batches:
        while not one.advance():
            pass
        assert one.complete() == len(into)
        assert into == call_contents(data, rows)
    # All of two batches and half of the third at once, and a look at them when a quarter is back.
    assert turns[0] == (50, 12)
    spans = one.meter.spans
    assert len(spans) == 3
    assert all(other[0].min() >= since for (_, _, since), other in pairwise(spans))
    assert len(one.meter.take_latencies()) == one.meter.calls == 60
    one.close()


def test_a_batch_that_fails_leaves_those_around_it_whole(tmp_path: Path, data: list[bytes], queue: str) -> None:
    (tmp_path / name(1)).unlink()
    steps = [shuffled(20, 11), [(0, 0, 10), (1, 0, 10)], [(0, 49_999, 2)], shuffled(20, 12), []]
    made = make_calls(steps)
    access = Access(engine="queued", depth=50, readers=2, prefetch=3)
    batches = make_batches(
        access,
        [reader(tmp_path, "queued", depth=50) for _ in range(2)],
        [allocate(made.buffer_size) for _ in range(access.batches)],
    )
    batches.begin(EpochCalls(made))
    batches.start()
    for step, rows in enumerate(steps):
        if step in (1, 2):
            with pytest.raises(ExecutionError, match=["No such file", "returned 1 on"][step - 1]):
                batches.wait(step)
        else:
            slot, got = batches.wait(step)
            assert slot[:got] == call_contents(data, rows)
    batches.end()
    batches.close()


def test_a_batch_that_cannot_be_begun_fails_and_no_thread_waits_for_it(tmp_path: Path, data: list[bytes]) -> None:
    class Full(QueuedReader):
        def begin(self, calls: Calls, into: memoryview) -> None:
            raise MemoryError("no more")

    access = Access(engine="queued", depth=3, readers=1, prefetch=1)
    made = make_calls([shuffled(5, 11)])
    slots = [allocate(made.buffer_size) for _ in range(access.batches)]
    batches = make_batches(access, [Full(access, Files(tmp_path, name, lambda file: 0, False, MPI.COMM_SELF))], slots)
    batches.begin(EpochCalls(made))
    batches.start()
    found: list[BaseException] = []

    def wait() -> None:
        with pytest.raises(MemoryError) as raised:
            batches.wait(0)
        found.append(raised.value)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(20)
    assert len(found) == 1
    batches.end()
    batches.close()


def test_a_queue_that_breaks_fails_all_that_it_holds(
    tmp_path: Path, data: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(IoUring):
        def submit_and_wait(self, submit: int, least: int) -> tuple[int, np.ndarray, np.ndarray]:  # type: ignore[type-arg]
            if not broken:
                broken.append(True)
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return super().submit_and_wait(submit, least)

    broken: list[bool] = []
    monkeypatch.setattr(queued_module, "make_queue", Broken)
    access = Access(engine="queued", depth=50, readers=1, prefetch=2)
    made = make_calls([shuffled(20, 11)] * 4)
    slots = [allocate(made.buffer_size) for _ in range(access.batches)]
    batches = make_batches(access, [reader(tmp_path, "queued", depth=50)], slots)
    batches.begin(EpochCalls(made))
    batches.start()
    for step in range(4):
        with pytest.raises(ExecutionError, match="io_uring failed with 0 calls in flight: Input/output error"):
            batches.wait(step)
    batches.end()
    batches.close()


def test_a_bad_read_names_file_offset_and_queue(tmp_path: Path, data: list[bytes], queue: str) -> None:
    one = reader(tmp_path, "queued", lambda file: 50_000, cache="off")
    rows = make_calls([[(0, 0, 4096), (0, 4096 + 1, 4096)]])
    with pytest.raises(
        ExecutionError, match=rf"read queued by {queue} of 4096 bytes at offset 4097 failed on .*0\.raw"
    ):
        one.read(rows, allocate(8192))
    one.close()


def test_without_io_uring_libaio_is_used_and_without_both_the_run_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> ReadQueue:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(IoUring, "_open", refuse)
    second = make_queue(4, 16)
    assert second.name == "libaio"
    second.close()
    monkeypatch.setattr(LinuxAio, "__init__", refuse)
    with pytest.raises(ExecutionError, match=r"io_uring \(Operation not permitted\) and libaio") as found:
        make_queue(4, 16)
    assert found.value.code == "R403"


@pytest.mark.parametrize("kernel", ["before 5.6", "io_uring_enter forbidden"])
def test_an_io_uring_that_cannot_read_is_passed_over(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call = io_uring._syscall

    def old(number: int, *arguments: int) -> int:
        if number == io_uring._ENTER and kernel != "before 5.6":
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        result = call(number, *arguments)
        if number == io_uring._SETUP and kernel == "before 5.6":
            ctypes.c_uint32.from_address(arguments[1] + 20).value = 1  # params.features of Linux 5.4
        return result

    try:
        IoUring(4, 16).close()
    except OSError as error:
        pytest.skip(f"no io_uring here: {error}")
    monkeypatch.setattr(io_uring, "_syscall", old)
    found = make_queue(4, 16)
    assert found.name == "libaio"
    found.close()


def test_a_ring_waits_where_the_kernel_has_no_memory_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    call, refused = io_uring._syscall, []

    def scarce(number: int, *arguments: int) -> int:
        if number == io_uring._ENTER and arguments[1] and not refused:
            refused.append(arguments)
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return call(number, *arguments)

    try:
        ring = IoUring(2, 4)
    except OSError as error:
        pytest.skip(f"no io_uring here: {error}")
    receiver, sender = os.pipe()
    into, once = allocate(4096), np.ones(1, np.int64)
    for number in range(2):
        ring.put(receiver, 0 * once, address_of(into) + number * once, once)
    assert ring.submit_and_wait(1, 0)[0] == 1
    monkeypatch.setattr(io_uring, "_syscall", scarce)
    os.write(sender, b"a")
    submitted, numbers, results = ring.submit_and_wait(1, 1)  # refused, while the first one is still in flight
    assert (submitted, numbers.tolist(), results.tolist(), len(refused)) == (0, [0], [1], 1)
    os.write(sender, b"b")
    submitted, numbers, results = ring.submit_and_wait(1, 1)
    assert (submitted, numbers.tolist(), results.tolist()) == (1, [1], [1])
    assert into[:2] == b"ab"
    refused.clear()
    with pytest.raises(OSError, match="temporarily unavailable"):  # and nothing that could give memory back
        ring.submit_and_wait(1, 1)
    ring.close()
    os.close(receiver)
    os.close(sender)


def test_readers_have_queues_of_their_own(tmp_path: Path, data: list[bytes], queue: str) -> None:
    """Each on the thread that reads, however many there are."""
    rows, buffers = shuffled(500, 90), [allocate(45_000) for _ in range(4)]
    readers = [reader(tmp_path, "queued", depth=20) for _ in buffers]

    def work(one: Reader, into: memoryview) -> None:
        for _ in range(5):
            one.read(make_calls([rows]), into)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(readers, buffers, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, into in zip(readers, buffers, strict=True):
        assert into == call_contents(data, rows)
        one.close()
