"""Commands that only look at a pattern load neither MPI nor, for most patterns, numpy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Patterns whose steps need counts over files, which are arrays.
COUNT_FILES = ("bert", "candle", "cosmoflow_paper", "dlrm", "flux", "frnn", "streaming_shards", "tf_cnn", "webdataset")

#: Runs `dliosim` with the first list of arguments, and with each other one in a fork, which has the imports of the
#: first; prints what each has loaded. All must succeed.
PROGRAM = """
import json, os, sys
from dliosim.cli import main
def run(arguments):
    try:
        status = main(arguments)
    except SystemExit as end:
        status = end.code
    sys.stdout.flush()
    print("loaded", *sorted({"numpy", "mpi4py", "h5py"} & set(sys.modules)), file=sys.stderr, flush=True)
    return status
first, *others = json.loads(sys.argv[1])
if run(first):
    sys.exit(f"{first} failed")
for arguments in others:
    if os.fork() == 0:
        os._exit(run(arguments))
    if os.wait()[1]:
        sys.exit(f"{arguments} failed")
"""


def loaded(*commands: list[str]) -> list[list[str]]:
    """The libraries that each of these commands loads; those that the first one loads count for all."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(commands)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    return [line.split()[1:] for line in done.stderr.splitlines() if line.startswith("loaded")]


@pytest.mark.parametrize("option", ["--help", "--version", "patterns"])
def test_help_and_version_load_no_library(option: str) -> None:
    assert loaded([option]) == [[]]


def test_check_loads_numpy_only_where_it_counts_over_files() -> None:
    patterns = sorted((ROOT / "patterns").glob("*.dlio"), key=lambda path: path.stem in COUNT_FILES)
    found = loaded(*(["check", str(path)] for path in patterns))
    names = [path.stem for path in patterns]
    assert dict(zip(names, found, strict=True)) == {name: ["numpy"] * (name in COUNT_FILES) for name in names}


def test_a_pattern_that_does_not_count_over_files_is_written_out_without_numpy() -> None:
    assert loaded(["explain", "patterns/cosmoflow.dlio"]) == [[]]
