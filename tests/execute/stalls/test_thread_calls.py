"""The calls of a process as the kernel shows them, in words."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import subprocess
import sys
import threading
from pathlib import Path
from time import monotonic, sleep

import pytest

from dliosim.execute import stalls
from dliosim.execute.stalls import count_transfers, format_call, inspect_process, list_stopped_readers
from dliosim.measure.progress.board import stat_fields

NUMBERS = {name: arm if platform.machine() == "aarch64" else intel for name, intel, arm, _ in stalls._SYSTEM_CALLS}


def line(name: str, *arguments: int) -> str:
    words = [hex(word) for word in (*arguments, *[0] * (6 - len(arguments)))]
    return f"{NUMBERS[name]} {' '.join(words)} 0x7ffd 0x7f00"


def test_reads_and_writes_are_said_with_file_bytes_and_offset(tmp_path: Path) -> None:
    path = tmp_path / "00001.raw"
    path.write_bytes(b"x")
    with path.open("rb") as file:
        pid, descriptor = os.getpid(), file.fileno()
        assert (
            format_call(pid, line("pread64", descriptor, 0, 65536, 131072)) == f"pread64({path}, 65536 bytes at 131072)"
        )
        assert format_call(pid, line("preadv", descriptor, 0, 2, 4096)) == f"preadv({path} at 4096)"
        assert format_call(pid, line("fsync", descriptor)) == f"fsync({path})"
    assert format_call(pid, line("read", 12345)) == "read(file 12345)"


def test_paths_are_read_from_memory_as_far_as_there_is_any() -> None:
    text = ctypes.create_string_buffer(b"/data/\x1b[31m/x")
    assert format_call(os.getpid(), line("openat", 2**64 - 100, ctypes.addressof(text))) == "openat(/data/\ufffd[31m/x)"
    assert format_call(os.getpid(), line("openat", 0, 16)) == "openat(?)"
    long = ctypes.create_string_buffer(b"/d" * 200 + b"/end")
    found = format_call(os.getpid(), line("openat", 0, ctypes.addressof(long)))
    assert len(found) < 130 and found.endswith("/end)") and "..." in found


@pytest.mark.parametrize("text", ["running", "-1 0x7ffd 0x7f00", ""])
def test_a_thread_that_runs_is_in_no_call(text: str) -> None:
    assert format_call(os.getpid(), text) == ""


def test_a_call_that_is_not_known_is_said_by_its_number() -> None:
    assert format_call(os.getpid(), "9999 0x0 0x0 0x0 0x0 0x0 0x0 0x7ffd 0x7f00") == "system call 9999"


def test_a_reader_that_hangs_is_found_and_threads_that_wait_are_not(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: os.close(os.open(pipe, os.O_RDONLY)), daemon=True)
    idle = threading.Event()
    waiter = threading.Thread(target=idle.wait, daemon=True)
    reader.start()
    waiter.start()
    end = monotonic() + 10
    while (found := inspect_process(os.getpid(), "S", {threading.get_native_id()})).state != "c" and monotonic() < end:
        sleep(0.01)
    assert (found.state, found.call) == ("c", f"openat({pipe})")
    again = inspect_process(os.getpid(), "S", {threading.get_native_id()})
    assert again.key == found.key
    idle.set()
    with pipe.open("wb"):
        reader.join()
    assert inspect_process(os.getpid(), "S", {threading.get_native_id()}).key == ()


def test_another_process_is_looked_at_where_that_is_allowed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen([sys.executable, "-c", f"open({str(tmp_path / 'pipe')!r})"]) as other:
        end = monotonic() + 10
        while monotonic() < end and "pipe" not in (found := inspect_process(other.pid, stat_fields(other.pid)[0])).call:
            sleep(0.01)
        other.kill()
    assert found.call in (f"openat({tmp_path / 'pipe'})", "")
    assert inspect_process(other.pid, "").call == ""


def test_calls_of_the_thread_that_looks_are_not_counted(tmp_path: Path) -> None:
    looks = "count_transfers(os.getpid(), {threading.get_native_id()}) for _ in range(3)"
    program = f"import os, threading; from dliosim.execute.stalls import count_transfers; print(len({{{looks}}}))"
    # In a process of its own: threads of the test's own process may have messages.
    assert subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True).stdout == b"1\n"
    before = count_transfers(os.getpid(), {threading.get_native_id()})
    reader = threading.Thread(target=(tmp_path / "file").write_bytes, args=(bytes(5000),))
    reader.start()
    reader.join()
    more = count_transfers(os.getpid(), {threading.get_native_id()})
    if before != (0, 0):
        assert more[0] > before[0] and more[1] > before[1] + 4000  # what a look reads differs by some bytes


def test_the_call_of_a_reader_process_is_one_of_its_rank(tmp_path: Path) -> None:
    pipe, own = tmp_path / "pipe", [int(entry.name) for entry in Path("/proc/self/task").iterdir()]
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)]) as process:
        end, wanted = monotonic() + 20, f"openat({pipe}) in reader process {process.pid}"
        while (found := inspect_process(os.getpid(), "S", own)).call != wanted and monotonic() < end:
            sleep(0.01)
        process.send_signal(signal.SIGSTOP)
        while "stopped" not in (stopped := inspect_process(os.getpid(), "S", own)).call and monotonic() < end:
            sleep(0.01)
        assert list_stopped_readers(os.getpid()) == (process.pid,)
        process.kill()
    assert (found.state, found.call) == ("c", wanted)
    assert stopped.call == f"reader process {process.pid}, which is stopped"
