"""Files that a format's library writes: what the system refuses it is said like what it refuses us."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dliosim.execute.datasets.library_writer import LibraryCalls, account_file
from dliosim.measure.rank.records import VerbRecord
from dliosim.model import Access, Prepare
from tests.scripts.fidelity import script
from tests.scripts.preloading import built

WRITES = """\
import sys
from pathlib import Path
import h5py, numpy
from dliosim.errors import ExecutionError
from dliosim.execute.datasets.library_writer import call_library
path = Path(sys.argv[1])
def write():
    with h5py.File(path, "w") as file:
        file["records"] = numpy.arange(10000)
try:
    call_library(path, write)
except ExecutionError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (28, "error[R402]: write failed on {}: .*No space left on device"),
        (5, "error: write failed on {}: .*Input/output"),
    ],
)
def test_hdf5_that_cannot_write_says_which_file_and_why(error: int, said: str, tmp_path: Path) -> None:
    library = built(tmp_path, script("faults.running").SOURCE)
    (tmp_path / "data").mkdir()
    variables = {"INJECT_FOLDER": str(tmp_path / "data"), "INJECT_LOG": str(tmp_path), "INJECT_RANK": "0"}
    path = tmp_path / "data" / "file.hdf5"
    # The last of its writes comes when it closes.
    for call in ("0", "1"):
        fault = {"INJECT_FAULT": f"0 pwrite {call} errno {error} 99", "LD_PRELOAD": str(library)}
        done = subprocess.run(
            [sys.executable, "-c", WRITES, str(path)],
            env={**os.environ, **variables, **fault},
            capture_output=True,
            text=True,
            timeout=60,
        )
        before, after = said.format(path).split(": .*")
        assert done.stdout.startswith(f"{before}: "), done.stderr
        assert after in done.stdout
        assert done.stdout.count("\n") == 1


def test_the_calls_of_a_library_are_counted_without_those_that_make_its_data(tmp_path: Path) -> None:
    def rows() -> Iterator[np.ndarray]:
        for number in range(3):
            with (tmp_path / "line").open("wb", buffering=0) as line:
                line.write(b"so far")
            yield np.full(1000, number, np.uint8)

    with LibraryCalls() as made, (tmp_path / "file").open("wb", buffering=0) as file:
        for row in made.exclude(rows()):
            file.write(row.data)
            file.write(row[:5].data)
    assert (made.calls, made.bytes) == (6, 3015)


def test_of_a_library_that_writes_by_no_calls_of_its_thread_no_count_is_claimed(tmp_path: Path) -> None:
    mapped, called = tmp_path / "mapped", tmp_path / "called"
    verb, record = Prepare("d", Access(), fsync=False), VerbRecord()
    with LibraryCalls() as made, called.open("wb", buffering=0) as file:
        file.write(bytes(1 << 16))
    account_file(called, made, verb, record)
    assert (record.bytes, record.bytes_moved, record.calls, record.files) == (1 << 16, 1 << 16, 1, 1)
    with LibraryCalls() as made, mapped.open("w+b") as file:
        file.truncate(1 << 16)
        with mmap.mmap(file.fileno(), 1 << 16) as memory:
            memory[:] = bytes(1 << 16)
    account_file(mapped, made, verb, record)
    assert (record.bytes, record.files, record.uncounted_files) == (2 << 16, 2, 1)
