"""Files that libraries wrote are read sample for sample as these libraries do, by any number of ranks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.examples import ALL
from tests.mpi.jobs import CLI, only_error
from tests.mpi.launch import running, start_ranks
from tests.mpi.waiting import run_command, run_main

LIBRARIES = {"hdf5", "hdf5 packed", "hdf5 pieces", "npy", "hub", "npz", "npz packed", "parquet"}


@pytest.fixture(scope="module", params=[1, 2, 3] if ALL else [1, 3])
def outcome(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Results by case: what was written, and what each way of reading gave."""
    for package in ("PIL", "pyarrow"):
        pytest.importorskip(package)
    place = tmp_path_factory.mktemp("found")
    printed = run_main(request.param, "tests.mpi.found_program", place)
    result: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return result


def test_the_planned_bytes_are_what_the_libraries_wrote(outcome: dict[str, Any]) -> None:
    for name, case in outcome.items():
        if name != "parquet":  # only its library can decode a part of it
            assert case["posix"]["planned"] == case["written"], name


def test_a_library_gives_what_it_wrote(outcome: dict[str, Any]) -> None:
    read = {name: case["library"]["library"] for name, case in outcome.items() if "library" in case}
    assert set(read) == set(outcome) & LIBRARIES
    for name, contents in read.items():
        assert contents == outcome[name]["written"], name


def test_every_sample_is_read_once_an_epoch_and_counted_as_forecast(outcome: dict[str, Any]) -> None:
    for name, case in outcome.items():
        for way, found in case.items():
            if way != "written":
                assert found["times"] == [2], (name, way)
                assert found["samples"] == [len(case["written"])] * 2, (name, way)
                assert found["bytes"][0] == found["bytes"][1], (name, way)


def _pattern(place: Path, *lines: str) -> Path:
    inside = "\n".join(("read d", "batch 2 per rank", "last batch keep", *lines))
    path = place / "found.dlio"
    path.write_text(f'dlio 1\nworkload w\ndataset d {{\n from files "*.npy"\n}}\ntrain {{\n{inside}\n}}\n')
    return path


def _run(place: Path, *options: str, ranks: int = 2, lines: tuple[str, ...] = ()) -> Any:
    command = ["run", str(_pattern(place, *lines)), "--dir", str(place), "--output", str(place / "out")]
    return run_command(ranks, [*command, *options], place)


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    for number in range(6):
        np.save(tmp_path / f"{number}.npy", np.arange(100 + number))
    return tmp_path


def test_a_file_cut_short_is_said_before_anything_is_read(arrays: Path) -> None:
    (arrays / "3.npy").write_bytes((arrays / "3.npy").read_bytes()[:-9])
    assert "3.npy has 943 bytes" in only_error(_run(arrays))


def test_data_of_others_cannot_be_verified_and_are_never_written(arrays: Path) -> None:
    before = {path: path.read_bytes() for path in arrays.glob("*.npy")}
    assert "cannot be verified" in only_error(_run(arrays, "--verify"), status=2)
    assert _run(arrays).returncode == 0
    assert {path: path.read_bytes() for path in arrays.glob("*.npy")} == before


def _has_open(process: int, name: str) -> bool:
    try:
        return any(entry.readlink().name == name for entry in Path(f"/proc/{process}/fd").iterdir())
    except OSError:  # closed while it was looked at
        return False


def test_a_file_cut_short_while_it_is_read_is_said_with_its_place(arrays: Path) -> None:
    lines = ("epochs 1000", "compute 10 ms", "open once", "shuffle samples globally each epoch")
    command = (*CLI, "run", str(_pattern(arrays, *lines)), "--dir", str(arrays), "--output", str(arrays / "out"))
    with running(start_ranks(2, *command)) as job:
        job.wait_until(lambda: len(job.ranks()) == 2)
        # Rank 1 opens files to read them, and not to find its samples.
        job.wait_until(lambda: _has_open(job.ranks()[1], "3.npy"))
        with (arrays / "3.npy").open("r+b") as stream:
            stream.truncate(300)
        assert re.search(r"R401.* of 824 bytes at offset 128 .*3\.npy", only_error(job.finish()))
