"""Files that a format's library writes: what the system refuses it is said like what it refuses us."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scripts.fidelity import script
from tests.scripts.preloading import built

WRITES = """\
import sys
from pathlib import Path
import h5py, numpy
from dliosim.errors import ExecutionError
from dliosim.execute.building import by_library
path = Path(sys.argv[1])
def write():
    with h5py.File(path, "w") as file:
        file["records"] = numpy.arange(10000)
try:
    by_library(path, write)
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
    told = {"INJECT_FOLDER": str(tmp_path / "data"), "INJECT_LOG": str(tmp_path), "INJECT_RANK": "0"}
    path = tmp_path / "data" / "file.hdf5"
    # The last of its writes comes when it closes.
    for call in ("0", "1"):
        fault = {"INJECT_FAULT": f"0 pwrite {call} errno {error} 99", "LD_PRELOAD": str(library)}
        done = subprocess.run(
            [sys.executable, "-c", WRITES, str(path)],
            env={**os.environ, **told, **fault},
            capture_output=True,
            text=True,
            timeout=60,
        )
        before, after = said.format(path).split(": .*")
        assert done.stdout.startswith(f"{before}: "), done.stderr
        assert after in done.stdout
        assert done.stdout.count("\n") == 1
