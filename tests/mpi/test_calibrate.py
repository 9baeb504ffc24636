"""Calibrations on described storages: what is found of them, and what is refused."""

from __future__ import annotations

from pathlib import Path

from dliosim.language.compile import compile_storage
from dliosim.model import StorageModel
from tests.mpi.jobs import only_error
from tests.mpi.waiting import run_command

KNOWN = """dlio 1
storage known "all that one node can tell" {
    servers   1 of 4 GB/s
    stream    2 GB/s
    latency   100 us
    metadata  4_000 opens/s
}
"""


def calibrate(ranks: int, directory: Path) -> tuple[str, StorageModel]:
    """Calibrate; return the output, and the storage that it describes."""
    (directory / "known.dlio").write_text(KNOWN)
    arguments = ["calibrate", "--storage", "known.dlio", "-o", "here.dlio", "--dir", "data"]
    done = run_command(ranks, arguments, directory, 120)
    assert done.returncode == 0, done.stderr
    assert not (directory / "data").exists()
    return done.stdout, compile_storage(directory / "here.dlio", []).storage


def test_no_parameter_is_better_than_the_storage(tmp_path: Path) -> None:
    """Calls sleep at least as long as the storage takes; how much longer depends on the machine."""
    printed, found = calibrate(3, tmp_path)
    assert found.servers.number == 1
    assert 0 < found.servers.rate <= 4.01e9
    assert found.stream is not None
    assert found.metadata is None or 0 < found.metadata <= 4010  # None if cores were the limit
    assert found.latency * (found.tail / (found.tail - 1) if found.tail else 1) >= 99e-6
    assert {name for name, _ in found.uncertain} <= {"servers", "writes", "stream", "latency", "tail", "metadata"}
    assert all(0 < share < 1 for _, share in found.uncertain)
    assert found.uncertain  # five epochs differ by more than 0.1 % in one of six values
    assert "written: here.dlio" in printed


def test_a_description_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "here.dlio").write_text("mine")
    done = run_command(2, ["calibrate", "-o", "here.dlio"], tmp_path, 60)
    assert "here.dlio exists" in only_error(done, 2)
    assert (tmp_path / "here.dlio").read_text() == "mine"
    assert not (tmp_path / "dliosim-data").exists()


def test_what_one_rank_cannot_reach_is_no_limit_of_the_storage(tmp_path: Path) -> None:
    (tmp_path / "wide.dlio").write_text("dlio 1\nstorage wide {\n servers 8 of 5 GB/s\n latency 2 ms\n}\n")
    done = run_command(1, ["calibrate", "--storage", "wide.dlio", "-o", "here.dlio"], tmp_path, 120)
    assert done.returncode == 0, done.stderr
    assert "`servers` is at least this" in done.stdout
    assert "`metadata` is left out, as its limit is higher" in done.stdout
    assert compile_storage(tmp_path / "here.dlio", []).storage.metadata is None


def test_a_directory_that_is_missing_is_said_before_anything_is_measured(tmp_path: Path) -> None:
    done = run_command(2, ["calibrate", "-o", "none/here.dlio"], tmp_path, 60)
    assert "there is no directory none" in only_error(done, 2)
    assert not (tmp_path / "dliosim-data").exists()
