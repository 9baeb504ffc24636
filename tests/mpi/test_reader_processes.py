"""Runs whose readers are processes: what they read and count, and that none is left, whatever ends a job."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.mpi.jobs import DATASET, PREPARE, TRAIN, Place, only_error, phases
from tests.mpi.launch import running, start_ranks
from tests.mpi.waiting import run_command

COUNTED = ("samples", "bytes", "calls", "bytes_moved", "opens", "order_hash", "extent_hash", "read_call_bytes")
NPZ = 'dataset d {\n samples 41\n size 6000 B\n format npz\n compress gzip\n layout file per sample\n path "d"\n}\n'


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_run_counts_and_records_what_it_does_with_threads(tmp_path: Path, ranks: int) -> None:
    place = Place(tmp_path)
    place.write(NPZ, PREPARE, TRAIN)
    define = {"train.decode": "on", "train.preprocess": "10 us busy", "train.last batch": "keep"}
    found, recorded = [], []
    place.results(ranks, define=define)
    for kind in ("", " processes"):
        define["train.readers"] = f"2{kind} by batch in turn"
        done = place.results(ranks, "--verify", "--trace", define=define)
        (train,) = phases(done, "train")
        found.append([{name: epoch[name] for name in COUNTED} for epoch in train["epochs"]])
        assert all(epoch["decode_seconds"]["mean"] > 0 for epoch in train["epochs"])
        assert (train["readers"], train["reader_processes"]) == (2, bool(kind))
        assert (", posix, readers 2 processes;" in place.tables()) == bool(kind)
        # In its epochs; `prepare` has kept its files.
        trace = place.run(ranks, "--trace", define=define)
        recorded.append([line for line in trace.stdout.splitlines() if "operations" in line])
    assert found[0] == found[1]
    assert recorded[0] == recorded[1] != []


def test_without_io_processes_run_and_read_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, PREPARE, TRAIN)
    (train,) = phases(place.results(2, "--null", define={"train.readers": "2 processes"}), "train")
    assert [(epoch["bytes_moved"], epoch["calls"]) for epoch in train["epochs"]] == [(0, 0)] * 2


def test_a_damaged_file_is_the_error_of_the_job(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, PREPARE, TRAIN)
    place.results(1)
    (file,) = place.files()
    os.truncate(file, file.stat().st_size - 3000)
    error = only_error(place.run(3, define={"train.readers": "1 processes"}))
    assert error.startswith("error[R401]")
    assert str(file) in error


@pytest.mark.parametrize("whom", ["rank", "reader", "mpiexec"])
def test_a_job_that_is_killed_leaves_no_process(tmp_path: Path, whom: str) -> None:
    place = Place(tmp_path)
    place.write(DATASET, PREPARE, TRAIN)
    define = {"train.readers": "2 processes", "train.compute": "20 ms", "train.epochs": "1000"}
    with running(start_ranks(2, *place.arguments(define=define), cwd=tmp_path)) as job:
        readers = "batches.reader_process"
        job.wait_until(lambda: len(job.processes(readers)) == 4 and place.data.exists())
        [reader, *_] = job.processes(readers)
        rank = int(Path(f"/proc/{reader}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill({"rank": rank, "reader": reader, "mpiexec": job.launcher.pid}[whom], signal.SIGKILL)
        done = job.finish()
        assert done.returncode != 0
        if whom == "reader":
            assert f"reader process {reader} was killed by signal 9 (Killed)" in only_error(done)


def test_a_rank_whose_readers_cannot_start_leaves_none_of_the_others(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, PREPARE, TRAIN)
    command = ["start:1:0:error", *place.command(define={"train.readers": "2 processes"})]
    done = run_command(3, command, tmp_path, seconds=30, module="tests.mpi.failing_program")
    assert "rank 1: made to fail" in only_error(done)
    # The ranks wait for the next job.
    assert not [entry for entry in Path("/proc").iterdir() if is_reader_in(tmp_path, entry)]


def is_reader_in(directory: Path, process: Path) -> bool:
    """Return whether a process is a reader that was executed in a directory."""
    with suppress(OSError):
        return b"batches.reader_process" in (process / "cmdline").read_bytes() and (
            (process / "cwd").resolve() == directory.resolve()
        )
    return False
