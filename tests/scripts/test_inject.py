"""The library that injects faults hits the call that it is given, below its folder, and writes down what it saw."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scripts.fidelity import script
from tests.scripts.preloading import built

SOURCE = script("faults.running").SOURCE

#: Calls on a file of three bytes, and what came of each: a line with its result, or the name of its error.
CALLS = """\
import ctypes, errno, mmap, os, sys
folder = sys.argv[1]
path = f"{folder}/file"
def attempt(name, *given):
    try:
        print(name, getattr(os, name)(*given))
    except OSError as error:
        print(name, errno.errorcode[error.errno])
file = os.open(path, os.O_RDWR)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("library"), SOURCE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "log").mkdir()
    (tmp_path / "data" / "file").write_text("abcdefgh")
    return tmp_path / "data"


def run(library: Path, folder: Path, calls: str, fault: str = "", rank: int = 0) -> list[str]:
    """Return what a program prints for these calls, on a rank."""
    log = folder.parent / "log"
    variables = {"INJECT_FOLDER": str(folder), "INJECT_LOG": str(log), "INJECT_RANK": str(rank), "INJECT_FAULT": fault}
    command = [sys.executable, "-c", CALLS + calls, str(folder)]
    done = subprocess.run(
        command,
        env={**os.environ, "LD_PRELOAD": str(library), **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.splitlines()


def seen(folder: Path) -> list[str]:
    return (folder.parent / "log" / "0").read_text().splitlines()


READS = "for _ in range(3): attempt('pread', file, 4, 0)"


def test_one_call_of_a_name_fails_and_the_others_do_not(library: Path, folder: Path) -> None:
    found = run(library, folder, READS, "0 pread 1 errno 5 1")
    assert found == ["pread b'abcd'", "pread EIO", "pread b'abcd'"]
    assert seen(folder) == ["open w file", "pread w file", "!pread w file", "pread w file"]


def test_calls_fail_from_then_on(library: Path, folder: Path) -> None:
    assert run(library, folder, READS, "0 pread 1 errno 116 1000000000") == [
        "pread b'abcd'",
        "pread ESTALE",
        "pread ESTALE",
    ]


def test_reads_and_writes_are_short(library: Path, folder: Path) -> None:
    assert run(library, folder, READS, "0 pread 0 short 500 0")[:2] == ["pread b'ab'", "pread b'abcd'"]
    pieces = "attempt('preadv', file, [bytearray(3), bytearray(3)], 0)"
    assert run(library, folder, pieces, "0 pread 0 short 700 0") == ["preadv 4"]
    assert run(library, folder, "attempt('write', file, b'12345678')", "0 write 0 short 1 0") == ["write 1"]


def test_a_call_is_late(library: Path, folder: Path) -> None:
    timed = "import time; began = time.monotonic(); attempt('fsync', file); print(time.monotonic() - began >= 0.05)"
    assert run(library, folder, timed, "0 fsync 0 delay 50 0") == ["fsync None", "True"]


def test_a_close_that_fails_has_closed(library: Path, folder: Path) -> None:
    found = run(library, folder, "attempt('close', file)\nattempt('fstat', file)", "0 close 0 errno 28 0")
    assert found == ["close ENOSPC", "fstat EBADF"]


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("open", "path, os.O_RDONLY"),
        ("stat", "path"),
        ("lstat", "path"),
        ("fstat", "file"),
        ("fsync", "file"),
        ("fdatasync", "file"),
        ("ftruncate", "file, 3"),
        ("posix_fallocate", "file, 0, 100"),
        ("posix_fadvise", "file, 0, 0, os.POSIX_FADV_DONTNEED"),
        ("pwrite", "file, b'x', 0"),
        ("pwritev", "file, [b'x', b'y'], 0"),
        ("read", "file, 1"),
        ("readv", "file, [bytearray(1)]"),
        ("rename", "path, path + '.new'"),
        ("unlink", "path"),
        ("mkdir", "folder + '/more'"),
        ("rmdir", "folder + '/less'"),
        ("listdir", "folder + '/less'"),
        ("statvfs", "folder + '/more'"),
    ],
)
def test_every_call_on_data_can_fail(library: Path, folder: Path, name: str, given: str) -> None:
    (folder / "less").mkdir()
    names = {"lstat": "stat", "pwritev": "pwrite", "readv": "read", "listdir": "readdir", "statvfs": "statfs"}
    call = names.get(name, name.removeprefix("posix_"))
    first = 1 if name == "open" else 0
    assert run(library, folder, f"attempt('{name}', {given})", f"0 {call} {first} errno 13 {first}") == [
        f"{name} EACCES"
    ]
    assert [line for line in seen(folder) if line.startswith(f"!{call} ")]


def test_asking_what_is_resident_can_fail(library: Path, folder: Path) -> None:
    asked = """
import numpy
with mmap.mmap(file, 8, mmap.MAP_SHARED, mmap.PROT_READ) as mapped:
    window = numpy.frombuffer(mapped, numpy.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    print(libc.mincore(ctypes.c_void_p(window.ctypes.data), ctypes.c_size_t(8), ctypes.create_string_buffer(1)))
    print(errno.errorcode[ctypes.get_errno()])
    del window
"""
    assert run(library, folder, asked, "0 mincore 0 errno 5 0") == ["-1", "EIO"]


def test_other_ranks_and_other_files_are_let_alone(library: Path, folder: Path) -> None:
    assert run(library, folder, READS, "0 pread 0 errno 5 9", rank=1) == ["pread b'abcd'"] * 3
    neighbour = folder.with_name("dat")
    neighbour.mkdir()
    (neighbour / "file").write_text("abcdefgh")
    elsewhere = READS.replace("file", "other")
    found = run(
        library,
        folder,
        f"other = os.open({str(neighbour / 'file')!r}, os.O_RDONLY)\n{elsewhere}",
        "0 pread 0 errno 5 9",
    )
    assert found == ["pread b'abcd'"] * 3
    assert seen(folder) == ["open w file"]
