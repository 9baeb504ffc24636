"""Stalled runs: the late ranks are named, and the run ends if that is asked for."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.mpi.jobs import DATASET, PREPARE, TRAIN, Place
from tests.mpi.launch import Job, run_ranks, running, start_ranks

SOURCE = Path(__file__).with_name("hanging_read.c")


def test_a_rank_that_is_stopped_is_named_continues_when_asked_and_ends_the_job_if_it_does_not(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, PREPARE, TRAIN.replace("epochs   2", "compute 10 ms\n    epochs 10_000"))
    said = tmp_path / "said"
    with said.open("wb") as out:
        arguments = place.arguments("--stall-report", "1s", "--stall-timeout", "3s")
        job = start_ranks(3, *arguments, terminal=out.fileno())
    with running(job):
        first, _, last = by_rank(job, place)
        os.kill(first, signal.SIGSTOP)
        job.wait_until(lambda: "next:" in said.read_text())
        assert f"late: rank 0 on {os.uname().nodename} (pid {first}), " in said.read_text()
        assert f"kill -CONT {first}" in said.read_text() and "2 of 3 ranks (1-2)" in said.read_text()
        os.kill(first, signal.SIGCONT)
        job.wait_until(lambda: "the job moves again" in said.read_text())
        os.kill(last, signal.SIGSTOP)
        done = job.finish()
    text = said.read_text()
    assert done.returncode == 1, text
    assert f"late: rank 2 on {os.uname().nodename} (pid {last})" in text
    assert text.count("error: ") == 1 and "error: the job is ended, as --stall-timeout says" in text
    partial = json.loads((place.output / "results.partial.json").read_text())
    assert partial["partial"]["signal"] == "a stall"


def by_rank(job: Job, place: Place) -> list[int]:
    """The processes of the ranks, once the loop reads."""
    job.wait_until(lambda: any(place.data.glob("d/*/manifest.json")))
    job.wait_until(lambda: len(job.ranks()) == 3 and all(has_samples_open(process) for process in job.ranks()))
    found = {}
    for process in job.ranks():
        words = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
        ranks = (word.partition(b"=")[2] for word in words if word.startswith((b"PMI_RANK=", b"OMPI_COMM_WORLD_RANK=")))
        found[int(next(ranks))] = process
    return [found[rank] for rank in sorted(found)]


def has_samples_open(process: int) -> bool:
    """Return whether a process has a file of samples open."""
    links = Path(f"/proc/{process}/fd").iterdir()
    with suppress(FileNotFoundError):  # closed meanwhile
        return any(link.readlink().suffix == ".raw" for link in links)
    return False


@pytest.mark.skipif(shutil.which("cc") is None, reason="no cc")
def test_a_read_that_hangs_in_a_reader_thread_is_named(tmp_path: Path) -> None:
    library = tmp_path / "hanging_read.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"], check=True, timeout=60)
    place = Place(tmp_path)
    place.write(DATASET, PREPARE, TRAIN.replace("epochs   2", "readers 1"))
    environment = {"LD_PRELOAD": str(library), "HANG_RANK": "1", "HANG_CALL": "14"}
    environment["HANG_PIPE"] = str(tmp_path / "pipe")
    os.mkfifo(tmp_path / "pipe")
    options = ["--stall-report", "off", "--stall-timeout", "1s"]
    done = run_ranks(2, *place.arguments(*options), env=environment, seconds=60)
    assert done.returncode == 1, done.stderr
    late = next((line for line in done.stderr.splitlines() if "  late: " in line), done.stderr)
    assert "rank 1 on" in late and "train, epoch 1" in late and f"in a call: read({tmp_path / 'pipe'})" in late


def test_who_never_reaches_a_collective_open_is_named_by_another_node_with_what_it_does(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"x")
    os.mkfifo(tmp_path / "pipe")
    done = run_ranks(3, "-m", "tests.mpi.stall_program", str(tmp_path), "open", seconds=60)
    assert done.returncode == 1, done.stderr
    lines = {line for line in done.stderr.splitlines() if line.startswith("  ")}
    late = next(line for line in lines if line.startswith("  late: "))
    assert late.startswith("  late: rank 2 on") and f"in a call: openat({tmp_path / 'pipe'})" in late
    waits = next(line for line in lines if line.startswith("  waiting inside MPI_File_open of "))
    assert "ranks (0-1)" in waits and str(tmp_path / "data")[:30] in waits
    assert any(line.startswith("  next: on ") and ": gdb -p " in line for line in lines)
    assert "  next: ranks on other nodes are late: check their output, and whether the nodes are up" in lines


def test_who_never_reaches_an_exchange_of_the_ranks_of_a_node_is_named_and_nobody_else(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = run_ranks(3, "-m", "tests.mpi.stall_program", str(tmp_path), "exchange", seconds=60)
    assert done.returncode == 1, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("  ")]
    late = {line for line in lines if line.startswith("  late: ")}
    assert all(line.startswith("  late: rank 2 on") for line in late) and late
    assert "  waiting at an exchange of the node's ranks: 2 of 3 ranks (0-1)" in lines
