"""Commands that only look at a pattern load neither MPI nor, for most patterns, numpy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Patterns whose steps need counts over files, which are arrays.
COUNT_FILES = ("bert", "candle", "cosmoflow_paper", "dlrm", "flux", "frnn", "streaming_shards", "tf_cnn", "webdataset")

PROGRAM = """
import sys
from dliosim.cli import main
try:
    status = main(sys.argv[1:])
except SystemExit as end:
    status = end.code
print("loaded", *sorted({"numpy", "mpi4py", "h5py"} & set(sys.modules)), file=sys.stderr)
sys.exit(status)
"""


def loaded(*arguments: str) -> list[str]:
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True, timeout=60)
    return done.stderr.splitlines()[-1].split()[1:]


@pytest.mark.parametrize("option", ["--help", "--version", "patterns"])
def test_help_and_version_load_no_library(option: str) -> None:
    assert loaded(option) == []


@pytest.mark.parametrize("pattern", sorted((ROOT / "patterns").glob("*.dlio")), ids=lambda path: path.stem)
def test_check_loads_numpy_only_where_it_counts_over_files(pattern: Path) -> None:
    assert loaded("check", str(pattern)) == (["numpy"] if pattern.stem in COUNT_FILES else [])


def test_a_pattern_that_does_not_count_over_files_is_written_out_without_numpy() -> None:
    assert loaded("explain", "patterns/cosmoflow.dlio") == []
