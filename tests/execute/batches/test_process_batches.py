"""Readers that are processes: the same bytes, counts and errors as by threads, and none outlives its rank."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from dliosim.errors import ExecutionError
from dliosim.execute.backends.contract import Files, allocate
from dliosim.execute.backends.registry import open_readers
from dliosim.execute.batches.decode_preprocess import BatchProcessor, EpochCalls
from dliosim.execute.batches.messages import ReaderSetup, read_setup, share_setup
from dliosim.execute.batches.prefetch import Batches, make_batches
from dliosim.execute.batches.process_batches import ProcessBatches, ReaderProcess
from dliosim.execute.datasets.file_names import FileNames
from dliosim.formats.registry import bind
from dliosim.measure.rank.histogram import Histogram
from dliosim.measure.rank.meter import MeterGroup
from dliosim.model import Access, By, Dataset, Distribution, Layout, constant
from dliosim.plan.forecast.layout_forecast import guess_places
from dliosim.plan.forecast.rank_memory import reader_bytes
from dliosim.plan.samples.places import Places
from tests.execute.calls import make_calls
from tests.plan.helpers import placed

#: The step's calls: file, offset, bytes. The last step reads nothing.
STEPS = [[(0, 100 * step, 60), (1, 10 * step, 50), (2, step, 7)] for step in range(7)] + [[]]
SLOT = 4096


@pytest.fixture
def files(tmp_path: Path) -> Files:
    for file in range(3):
        (tmp_path / str(file)).write_bytes(np.random.default_rng(file).bytes(1000))
    return Files(tmp_path, str, int, False, cast(Any, None))


@contextmanager
def executed(
    files: Files, access: Access, processor: Callable[[], BatchProcessor] | None = None
) -> Iterator[ProcessBatches]:
    batches = ProcessBatches(ReaderSetup(access, files, processor, SLOT, False))
    try:
        yield batches
    finally:
        batches.close(failed=True)
        assert not [pid for pid in batches.processes if Path(f"/proc/{pid}").exists()]


def read_epochs(
    batches: Batches, steps: list[list[tuple[int, int, int]]], processing: BatchProcessor | None = None
) -> list[bytes]:
    found = []
    for _ in range(2):
        batches.begin(EpochCalls(make_calls(steps), processing=processing))
        batches.start()
        for step in range(len(steps)):
            slot, got = batches.wait(step)
            found.append(bytes(slot[:got]))
        batches.end()
    return found


def counts(batches: Batches) -> tuple[dict[str, int], int]:
    """Return what the meters count, and the number of latencies; some time was spent in calls and in opening."""
    group, latencies = MeterGroup([reader.meter for reader in batches.readers]), Histogram()
    busy = group.collect_busy(latencies) + group.collect_rest()
    assert 0 < busy <= latencies.sum_ns
    assert sum(reader.meter.open_ns for reader in batches.readers) > 0
    found = group.sum_counts()
    return {name: found[name] for name in ("calls", "bytes_moved", "opens")}, latencies.count


@pytest.mark.parametrize(
    ("by", "engine", "lifetime"),
    [("batch", "mmap", "each epoch"), ("batch in turn", "preadv", "each sample"), ("sample", "queued", "each epoch")],
)
def test_processes_read_and_count_what_threads_do(files: Files, by: By, engine: Any, lifetime: Any) -> None:
    access = Access(readers=2, prefetch=3, by=by, engine=engine, depth=4 * (engine == "queued"), open=lifetime)
    threads = make_batches(access, open_readers(access, files), [allocate(SLOT) for _ in range(3)])
    wanted = read_epochs(threads, STEPS)
    assert wanted[0] == b"".join((files.directory / str(file)).read_bytes()[at:][:n] for file, at, n in STEPS[0])
    with executed(files, replace(access, processes=True)) as batches:
        assert read_epochs(batches, STEPS) == wanted
        batches.close()
        # Otherwise the reader that is free takes the next task, and opens the files that it lacks.
        whole, some = counts(threads), counts(batches)
        assert some[1] == whole[1]
        assert {**some[0], "opens": 0} == {**whole[0], "opens": 0}
        assert by != "batch in turn" or some[0]["opens"] == whole[0]["opens"]
    threads.close()


def test_a_process_has_its_next_batch_while_it_reads_one(files: Files) -> None:
    access = Access(readers=1, prefetch=2, by="batch in turn", processes=True)
    with executed(files, access) as batches:
        epoch = EpochCalls(make_calls(STEPS))
        batches.begin(epoch)
        process, slots = cast(ReaderProcess, batches.readers[0]), batches._slots
        os.kill(process.process.pid, signal.SIGSTOP)
        first, second = (process.ask_share(epoch, step, (3 * step, 3 * step + 3), 0, slots[step]) for step in range(2))
        os.kill(process.process.pid, signal.SIGCONT)
        answers: list[tuple[int, ...]] = []
        waiting = threading.Thread(target=lambda: answers.append(second()), daemon=True)
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()  # answers come in the order of the questions
        answers.insert(0, first())
        waiting.join(30)
        assert [got for got, *_ in answers] == [117, 117]
        assert answers[0][3] <= answers[1][3]  # it begins the second when it has the first
        for step, calls in enumerate(STEPS[:2]):
            wanted = [(files.directory / str(file)).read_bytes()[at:][:size] for file, at, size in calls]
            assert bytes(slots[step][:117]) == b"".join(wanted)


def make_processor(noted: Path) -> BatchProcessor:
    """Make a processor that does nothing, and note that in a file."""
    with noted.open("a") as file:
        file.write("made\n")
    loop = SimpleNamespace(decode=False, access=Access(), preprocess=None)
    places = SimpleNamespace(members=["its member"], decoder_column=str)
    return BatchProcessor(cast(Any, loop), cast(Any, places), str)


def test_a_process_has_one_processor_for_all_batches_of_an_epoch(files: Files, tmp_path: Path) -> None:
    noted, access = tmp_path / "noted", Access(readers=2, prefetch=3, processes=True)
    processing = make_processor(tmp_path / "own").take_rows(cast(Any, None), cast(Any, None), [])
    with executed(files, access, partial(make_processor, noted)) as batches:
        assert len(read_epochs(batches, STEPS, processing)) == 16
    assert noted.read_text().split() == ["made"] * 4


def test_an_error_of_a_process_is_raised_by_its_step_and_the_others_are_read(files: Files) -> None:
    steps = [[(0, 0, 10)], [(1, 990, 60)], [(7, 0, 10)], [(2, 0, 10)]]
    with executed(files, Access(readers=1, prefetch=2, processes=True)) as batches:
        batches.begin(EpochCalls(make_calls(steps)))
        batches.start()
        batches.wait(0)
        with pytest.raises(ExecutionError, match=rf"offset 990 .* on {files.directory}/1:") as short:
            batches.wait(1)
        with pytest.raises(ExecutionError, match=rf"open failed on {files.directory}/7") as missing:
            batches.wait(2)
        assert (short.value.code, missing.value.code) == ("R401", "R401")
        assert batches.wait(3)[1] == 10
        batches.end()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_process_that_is_killed_is_an_error_with_its_number_and_the_signal(files: Files, number: int) -> None:
    with executed(files, Access(readers=2, prefetch=2, by="batch in turn", processes=True)) as batches:
        batches.begin(EpochCalls(make_calls(STEPS)))
        os.kill(batches.processes[1], number)
        batches.start()
        batches.wait(0)
        how = rf"was killed by signal {number} \({signal.strsignal(number)}\)"
        with pytest.raises(ExecutionError, match=f"reader process {batches.processes[1]} {how}"):
            batches.wait(1)


def test_a_process_that_ended_before_it_is_closed_leaves_no_thread_and_no_other_process(files: Files) -> None:
    threads = threading.active_count()
    with executed(files, Access(readers=3, prefetch=3, processes=True)) as batches:
        read_epochs(batches, STEPS)
        os.kill(batches.processes[0], signal.SIGKILL)
        with pytest.raises(ExecutionError, match=f"reader process {batches.processes[0]} was killed"):
            batches.close()
        assert threading.active_count() == threads
        assert not [pid for pid in batches.processes if Path(f"/proc/{pid}").exists()]


def test_a_process_has_touched_its_buffers_before_it_reads(files: Files) -> None:
    with executed(files, Access(readers=1, prefetch=3, processes=True)) as batches:
        text = Path(f"/proc/{batches.processes[0]}/smaps").read_text()
        (found,) = re.findall(r"rw-s [^\n]*memfd:dliosim.*?^Rss: +(\d+) kB", text, re.MULTILINE | re.DOTALL)
        assert int(found) == 3 * SLOT // 1024


def test_signals_to_the_job_do_not_end_a_process_and_it_has_no_mpi(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PMI_RANK", "3")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    with executed(files, Access(readers=1, prefetch=1, processes=True)) as batches:
        place = Path(f"/proc/{batches.processes[0]}")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            os.kill(batches.processes[0], number)
        assert len(read_epochs(batches, STEPS)) == 16
        assert "libmpi" not in (place / "maps").read_text()
        assert b"RANK=3" not in (place / "environ").read_bytes()
        batches.close()


ABANDONED = """
import os, signal, sys
from pathlib import Path
from dliosim.execute.backends.contract import Files
from dliosim.execute.batches.messages import ReaderSetup
from dliosim.execute.batches.process_batches import ProcessBatches, ReaderProcess
from dliosim.model import Access
batches = ProcessBatches(ReaderSetup(Access(readers=3, prefetch=3, processes=True), None, None, 4096, False))
print(*batches.processes, flush=True)
{end}
"""


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(0)", "raise ValueError"])
def test_processes_end_with_their_rank(end: str) -> None:
    text = ABANDONED.format(end=end)
    found = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, timeout=60)
    processes = found.stdout.split()
    assert len(processes) == 3, found.stderr
    wait_until(lambda: not any(is_alive(pid) for pid in processes))


def is_alive(pid: str) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def wait_until(there: Callable[[], bool]) -> None:
    end = monotonic() + 30
    while not there():
        assert monotonic() < end
        sleep(0.01)


def test_a_set_up_arrives_with_its_arrays_where_they_are_shared(files: Files) -> None:
    table = np.arange(100)
    setup = ReaderSetup(Access(readers=1), replace(files, name=table.__getitem__), None, 8, True)
    descriptor = share_setup(setup)
    found = read_setup(descriptor)
    os.close(descriptor)
    assert (found.access, found.slot, found.recorded) == (setup.access, 8, True)
    assert found.files is not None
    assert [int(found.files.name(number)) for number in (0, 99)] == [0, 99]  # type: ignore[call-overload]


HDF5 = Dataset("d", 1, 20_000, constant(600), Layout("files", 10_000), "d", format="hdf5")
VARYING = Dataset("d", 1, 640_000, Distribution("uniform", (10.0, 90.0)), Layout("files", 7), "d")
NAMES = FileNames(np.zeros(400_000, np.uint8), np.zeros(10_001, np.int64), np.zeros(0, np.int64), "/data")


@pytest.mark.parametrize(
    ("dataset", "places", "name"),
    [
        (HDF5, guess_places(bind(HDF5)), HDF5.file_name),
        (replace(HDF5, source="*.h5", found="0" * 16), guess_places(bind(HDF5)), NAMES),
        (VARYING, placed(VARYING), VARYING.file_name),
    ],
)
def test_the_memory_of_a_set_up_is_counted(dataset: Dataset, places: Places, name: Callable[[int], str]) -> None:
    access = Access(readers=2, processes=True)
    files = Files(Path("/data"), name, places.drop_units().file_size, False, cast(Any, None), dataset)
    descriptor = share_setup(ReaderSetup(access, files, None, SLOT, False))
    stored = os.fstat(descriptor).st_size
    os.close(descriptor)
    assert reader_bytes(access, dataset) - reader_bytes(access, None) == pytest.approx(stored, rel=0.04)
    assert reader_bytes(replace(access, processes=False), dataset) == 0


def test_modules_in_the_working_directory_are_not_executed(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    with executed(files, Access(readers=1, prefetch=1, processes=True)) as batches:
        assert len(read_epochs(batches, STEPS)) == 16


class Raising:
    """An object whose unpickling calls a function."""

    def __init__(self, called: Callable[..., object], given: object) -> None:
        self.called = called, (given,)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.called


@pytest.mark.parametrize(
    ("raising", "message", "code"),
    [
        (Raising(allocate, 1 << 62), f"cannot allocate a buffer of {1 << 62} bytes: .*", "R402"),
        (Raising(int, "x"), "a reader process cannot start: ValueError: invalid literal .*", None),
    ],
)
def test_an_error_of_a_process_that_starts_is_raised(raising: Any, message: str, code: str | None) -> None:
    with pytest.raises(ExecutionError) as error:
        ProcessBatches(ReaderSetup(Access(readers=1, processes=True), None, raising, SLOT, False))
    assert re.fullmatch(message, error.value.message)
    assert error.value.code == code


def test_a_set_up_that_cannot_be_stored_leaves_no_file_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: ReaderSetup) -> int:
        raise ExecutionError("no memory", "R402")

    monkeypatch.setattr("dliosim.execute.batches.process_batches.share_setup", fail)
    gc.collect()  # errors of other tests hold buffers, each with a file
    before = sorted(one.name for one in Path("/proc/self/fd").iterdir())
    with pytest.raises(ExecutionError, match="no memory"):
        ProcessBatches(ReaderSetup(Access(readers=1, processes=True), None, None, SLOT, False))
    assert sorted(one.name for one in Path("/proc/self/fd").iterdir()) == before


def test_a_process_that_cannot_start_is_an_error(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(ExecutionError, match="ended with status 1"):
        ProcessBatches(ReaderSetup(Access(readers=1, processes=True), files, None, SLOT, False))
    monkeypatch.setattr("sys.executable", "/nowhere")
    with pytest.raises(ExecutionError, match="cannot execute a reader process: No such file"):
        ProcessBatches(ReaderSetup(Access(readers=1, processes=True), files, None, SLOT, False))
