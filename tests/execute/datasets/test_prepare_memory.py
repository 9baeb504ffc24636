"""Memory that a rank takes to prepare a data set of large samples, next to the figure of `plan`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dliosim.language.compile import compile_pattern
from dliosim.model import Job
from dliosim.plan.forecast.forecast import forecast

MB = 1_000_000


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("raw", 8),
        ("npy", 8),
        ("npz", 8),
        ("npz\n    compress gzip 1", 8),
        ("tfrecord", 8),
        ("tar", 8),
        ("csv", 16),
        ("indexed", 8),
        ("hdf5", 8),
        ("hdf5\n    compress gzip 1\n    chunk 1 sample", 36),
        ("hdf5\n    compress lzf\n    chunk 1 sample", 36),
        ("parquet", 36),
        ("parquet", 16),
        ("parquet\n    compress gzip 1", 36),
        ("jpeg", 2),
        ("png", 2),
    ],
)
def test_plan_says_what_a_rank_takes_and_no_more_than_an_eighth_too_much(tmp_path: Path, kind: str, size: int) -> None:
    pattern, data = tmp_path / "p.dlio", tmp_path / "data"
    data.mkdir()
    settings = f'samples 2\n    size {size} MB\n    layout file per sample\n    format {kind}\n    path "d"'
    pattern.write_text(f"dlio 1\nworkload p\ndataset d {{\n    {settings}\n}}\nprepare d {{\n    fsync off\n}}\n")
    command = [sys.executable, "-m", "tests.execute.datasets.memory_program", str(pattern), str(data)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3])
    (phase,) = forecast(compile_pattern(pattern, [], Job(1))[0]).phases
    measured = int(done.stdout)
    assert measured <= phase.memory.total <= max(1.15 * measured, measured + 3 * MB)
