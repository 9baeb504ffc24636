"""The library that slows reads down leaves what they return as it is, and slows down nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scripts.fidelity import script
from tests.scripts.preloading import built
from tests.scripts.stubs import DEV

latency = script("fidelity.latency")

#: Reads of a file by each call that Python has: how long they took, and what they gave.
READS = """\
import os, sys, time
file = os.open(sys.argv[1], os.O_RDONLY)
began = time.perf_counter()
into = bytearray(3)
found = [os.pread(file, 3, 1), os.read(file, 2)]
os.readv(file, [into])
found.append(bytes(into))
os.preadv(file, [into], 0)
found.append(bytes(into))
print(time.perf_counter() - began)
print(b" ".join(found).decode())
try:
    os.read(-1, 1)
except OSError as error:
    print(error.errno)
"""

#: A read behind the end of a file: how long it took.
PAST = """\
import os, sys, time
file = os.open(sys.argv[1], os.O_RDONLY)
began = time.perf_counter()
assert os.pread(file, 1, 100) == b""
print(time.perf_counter() - began)
"""

#: A read that took so long would outlast the program's time, in seconds.
NEVER = 1000.0


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("library"), DEV / "fidelity" / "slow_reads.c")


def read(program: str, file: Path, extra: dict[str, str]) -> list[str]:
    command = [sys.executable, "-c", program, str(file)]
    done = subprocess.run(command, env={**os.environ, **extra}, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.splitlines()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "file"
    path.write_text("abcdefgh")
    return path


def test_every_read_below_the_folder_takes_longer_and_returns_the_same(library: Path, file: Path) -> None:
    took, *found = read(READS, file, latency.delay_variables(library, file.parent, 0.05))
    assert float(took) >= 4 * 0.05
    assert found == ["bcd ab cde abc", "9"]


def test_the_end_of_a_file_has_a_latency_of_its_own(library: Path, file: Path) -> None:
    (took,) = read(PAST, file, latency.delay_variables(library, file.parent, NEVER, 0.05))
    assert float(took) >= 0.05


def test_the_end_of_a_file_has_no_other_latency(library: Path, file: Path) -> None:
    assert read(PAST, file, latency.delay_variables(library, file.parent, NEVER))


def test_files_elsewhere_are_read_as_before(library: Path, file: Path) -> None:
    neighbour = file.parent.with_name("dat")
    neighbour.mkdir()
    _, *found = read(READS, file, latency.delay_variables(library, neighbour, NEVER, NEVER))
    assert found == ["bcd ab cde abc", "9"]
