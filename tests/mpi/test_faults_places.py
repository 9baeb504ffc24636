"""Places that are full, small, read-only or not there, and launchers of another MPI."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import sleep

import pytest

from dliosim import readable
from dliosim.plan.forecast.rank_memory import NODE_BYTES, RANK_BYTES
from tests.memory_group import memory_group
from tests.mpi.jobs import CHECKPOINT, DATASET, PREPARE, TRAIN, Place, only_error
from tests.mpi.launch import mpiexec, run_ranks, running, start_ranks
from tests.mpi.waiting import run_command

LARGE = DATASET.replace("samples  41", "samples  2000")  # 12 MB


@contextmanager
def small_disk(directory: Path, size: str = "8m") -> Iterator[Path]:
    """A file system of that size in a new directory; the test is skipped where none can be mounted."""
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "dliosim-test", str(directory)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("file systems may not be mounted here")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A pattern that prepares 12 MB."""
    made = Place(tmp_path)
    made.write(LARGE, PREPARE)
    return made


def test_too_little_room_is_found_before_anything_is_written(place: Place) -> None:
    with small_disk(place.data):
        done = place.run(2)
        error = only_error(done)
        assert error.startswith("error[R402]: data set `d` needs 12.")
        assert error.endswith("has 8.389 MB")
        advised = re.search(r"help: write less: add `-D (d\.samples)=(\d+)`; or give --dir", done.stderr)
        assert advised is not None, done.stderr
        assert not place.files()
        assert place.run(2, define={advised[1]: advised[2]}).returncode == 0


def test_too_little_room_for_a_checkpoint_is_found_before_anything_is_written(place: Place) -> None:
    place.write(CHECKPOINT.replace("300 kB", "20 MB"), "save c\n")
    with small_disk(place.data):
        error = only_error(place.run(2))
        assert error.startswith("error[R402]: checkpoint `c` needs 20.00 MB")
        assert not place.files("c/*/*")


def test_too_little_room_for_all_that_is_to_come_is_found_before_anything_is_written(place: Place) -> None:
    checkpoint = CHECKPOINT.replace("300 kB", "3 MB")
    with small_disk(place.data):
        place.write(DATASET, checkpoint, PREPARE, "repeat 4 {\n    save c\n}\n")
        done = place.run(2, define={"c.keep": "all"})
        error = only_error(done)
        assert error.startswith("error[R402]: data set `d` with checkpoint `c` (4 copies at once) needs ")
        assert "-D c.keep=1`; or give --dir" in done.stderr
        assert not place.files("*/*/*")
        # With two copies at once there is room, also where one of them is already there.
        for _ in range(2):
            assert place.run(2, define={"c.keep": "1"}).returncode == 0
        assert [found.name for found in place.files("c/*/*")] == ["000008"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_epoch_that_no_memory_holds_is_refused_by_all_ranks(place: Place, ranks: int) -> None:
    place.write(DATASET.replace("samples  41", "samples  100_000_000_000_000"), TRAIN)
    needed = {
        "uniform(1 kB, 2 kB)": (12.5e12, "rank 0: sums of the sizes of the samples of `d` need"),
        "1 kB": (7.8e15, "`train` needs"),
    }
    for size, (together, what) in needed.items():
        error = only_error(place.run(ranks, "--null", define={"d.size": size}, seconds=30))
        assert error.startswith(f"error[R402]: {what} {readable.size(together)} of memory ")
        assert error.endswith(" free") and not place.output.exists()


# Two ranks take milliseconds for a call of both.
@pytest.mark.parametrize(
    ("api", "transfer"), [("posix", "4 kB"), ("mpi-independent", "4 kB"), ("mpi-collective", "32 kB")]
)
def test_a_disk_that_others_fill_meanwhile(place: Place, api: str, transfer: str) -> None:
    """The first look finds room for the data; then somebody else takes it."""
    with small_disk(place.data, "16m") as disk:
        stop = threading.Event()

        def fill() -> None:
            while not stop.is_set() and not place.files():
                sleep(0.001)
            with suppress(OSError), (disk / "others").open("wb") as stream:  # as much of it as there is room
                stream.write(b"x" * (10 << 20))

        thread = threading.Thread(target=fill)
        thread.start()
        try:
            error = only_error(place.run(2, define={"prepare d.api": api, "prepare d.transfer": transfer}, seconds=30))
        finally:
            stop.set()
            thread.join()
        call = {"posix": "pwrite", "mpi-independent": "MPI_File_write_at", "mpi-collective": "MPI_File_write_at_all"}
        assert error.startswith(("error[R402]: rank 0: ", "error[R402]: rank 1: "))
        assert f": {call[api]} of " in error
        assert str(place.files()[0]) in error
        assert not place.files("d/*/manifest.json")
        (disk / "others").unlink()
        place.write(LARGE, PREPARE, TRAIN.replace("epochs   2", "steps 3"))
        assert place.run(2, "--verify").returncode == 0


def test_tables_that_cannot_be_printed_are_one_error_and_the_results_are_there(place: Place) -> None:
    place.write(DATASET, PREPARE, TRAIN)
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, *place.arguments()]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-2:] == [
        "error[R402]: rank 0 could not print the tables: No space left on device",
        f"results: {place.output}",
    ]
    assert (place.output / "results.json").exists()


def test_a_read_only_place(place: Place) -> None:
    with small_disk(place.data, "32m") as disk:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        error = only_error(place.run(2))
        assert error.startswith("error: rank 0 could not make room for data set `d`: ")
        assert error.endswith(": Read-only file system")
        assert str(disk) in error


@pytest.mark.parametrize(
    ("define", "what"),
    [
        ({"train.readers": "2", "train.prefetch": "1_000_000 batches"}, "buffers of calls 6"),
        ({"train.sync": "allreduce 100 TB"}, "`sync allreduce` 200.0 TB"),
    ],
)
def test_too_little_memory_is_found_before_anything_is_written(place: Place, define: dict[str, str], what: str) -> None:
    place.write(DATASET, PREPARE, TRAIN)
    done = place.run(2, define=define)
    assert re.search(
        r"^error\[R402\]: `train` needs [0-9.]+ [GT]B of memory on a node, and ", done.stderr, re.MULTILINE
    )
    assert f"{place.directory}/tiny.dlio:13:1\n" in done.stderr
    assert f"13 | train {{\n   | ^^^^^ 2 ranks on the node: {what}" in done.stderr
    assert "= help: add `-D train." in done.stderr
    assert done.returncode == 1 and not place.files()


def test_what_a_control_group_has_no_memory_for_is_refused_before_the_kernel_kills(place: Place) -> None:
    """Each of three ranks makes 200 MB, and rank 0 receives what the others made."""
    place.write(CHECKPOINT.replace("300 kB", "600 MB"), "save c\n")
    limit = 3 * RANK_BYTES + NODE_BYTES + 250_000_000
    with memory_group(limit) as group:
        if group is None:
            pytest.skip("no control group can be made here")
        enter = f'echo $$ > {group}/cgroup.procs && exec "$@"'
        settings = {"c.transfer": "200 MB", "c.writers": "rank 0"}
        command = ["sh", "-c", enter, "sh", mpiexec(), "-n", "3", sys.executable, *place.arguments(define=settings)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert re.match(r"error\[R402\]: `save c` needs 800.0 MB .*, and the control group of this job has ", done.stderr)
    assert 'add `-D c.transfer="4 MiB"`' in done.stderr and not place.files()


def test_a_place_that_cannot_be_made(place: Place) -> None:
    done = place.run(2, "--dir", "/proc/nothing")
    assert (
        only_error(done) == "error: rank 0 could not make the data directory: /proc/nothing: No such file or directory"
    )
    assert "\n  = help: write `--dir DIR`, " in done.stderr


def test_a_mistyped_place_is_not_made(place: Place) -> None:
    place.write(DATASET, PREPARE, TRAIN)
    mistyped = place.directory / "scrtach" / "me"
    error = only_error(place.run(2, "--dir", str(mistyped)), status=2)
    assert error.endswith(f"--dir {mistyped}: there is no {mistyped.parent}; make it first, if that is meant")
    assert not mistyped.parent.exists() and not place.output.exists()


def test_a_results_directory_that_cannot_be_written_is_found_before_the_run(place: Place) -> None:
    error = only_error(place.run(2, "--output", "/proc/self"))
    assert error.startswith("error: rank 0 could not make the results directory: ")
    taken = place.directory / "taken"
    taken.write_text("")
    error = only_error(place.run(2, "--output", str(taken)))
    assert error == f"error: rank 0 could not make the results directory: {taken}: Not a directory"
    assert not place.files()


def test_results_of_another_run_are_not_written_over(place: Place) -> None:
    place.output.mkdir()
    (place.output / "results.json").write_text("{}")
    done = run_command(2, place.command(), place.directory)
    assert only_error(done, status=2) == f"error: --output {place.output} has the results of another run"
    assert f"  = help: write `--output {place.output}-2`, or move them away" in done.stderr
    assert (place.output / "results.json").read_text() == "{}"


def test_results_of_a_search_are_not_mixed_with_others(place: Place) -> None:
    place.write(DATASET, PREPARE, TRAIN)
    (place.output / "0001").mkdir(parents=True)
    (place.output / "0001" / "results.json").write_text("{}")
    done = place.run(1)
    assert only_error(done, status=2) == f"error: --output {place.output} has the results of another run"
    assert f"write `--output {place.output}-2`" in done.stderr


def test_results_that_another_run_writes_meanwhile_are_not_written_over(place: Place) -> None:
    place.write(DATASET, PREPARE, TRAIN.replace("epochs   2", "compute  100 ms"))
    with running(start_ranks(2, *place.arguments())) as job:
        job.wait_until(lambda: bool(place.files("d/*/manifest.json")))
        place.output.mkdir()
        theirs = place.output / "results.json"
        theirs.write_text("{}")
        done = job.finish()
    assert only_error(done) == f"error: rank 0 could not write the results: {theirs}: File exists"
    assert theirs.read_text() == "{}"
    assert "order hash" in done.stdout


@pytest.mark.parametrize("new", [True, False])
def test_results_that_do_not_fit_are_one_error_and_are_printed_nevertheless(place: Place, new: bool) -> None:
    place.write(DATASET, PREPARE, TRAIN)
    with small_disk(place.directory / "small", "4k") as disk:
        output = disk / "new" if new else disk
        done = place.run(2, "--output", str(output))
        error = only_error(done)
        left = [*disk.iterdir()]
    assert error == f"error[R402]: rank 0 could not write the results: {output}/ranks.h5: No space left on device"
    assert "order hash" in done.stdout
    assert "results: " not in done.stdout
    assert done.stderr == f"{error}\n"
    assert left == []


def test_results_json_is_written_last(place: Place) -> None:
    place.write(DATASET, PREPARE, TRAIN)
    (place.output / "ranks.h5").mkdir(parents=True)
    done = place.run(2)
    error = only_error(done)
    assert error == f"error: rank 0 could not write the results: {place.output}/ranks.h5: Is a directory"
    assert "order hash" in done.stdout
    assert [entry.name for entry in place.output.iterdir()] == ["ranks.h5"]


def test_a_failed_run_leaves_no_empty_results_directory(place: Place) -> None:
    place.write(DATASET, TRAIN)
    arguments = [word for word in place.command() if word not in ("--output", str(place.output))]
    only_error(run_command(2, arguments, place.directory))
    assert not list(place.directory.glob("dliosim-results-*"))
    only_error(place.run(2))
    assert not place.output.exists()
    place.output.mkdir()
    only_error(place.run(2))
    assert place.output.exists()


def test_a_launcher_of_another_mpi_gets_the_name_of_what_to_install(place: Place) -> None:
    """Such a launcher starts each process as if it were alone, and only its environment tells."""
    for variable, rank in (("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_RANK", "3"), ("PMIX_RANK", "3")):
        foreign = {"OMPI_COMM_WORLD_SIZE": "4", variable: rank}
        done = run_ranks(0, *place.arguments(), env=foreign)
        assert done.returncode == 2
        assert not place.data.exists()
        if rank == "0":
            assert "error: the launcher started 4 processes" in done.stderr
            assert "pip install '.[mpich]'" in done.stderr
        else:
            assert done.stderr == ""


def test_an_allocation_alone_is_no_launcher(place: Place) -> None:
    inside = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "64", "SLURM_NPROCS": "64", "SLURM_NNODES": "2"}
    place.write(DATASET, PREPARE)
    assert run_ranks(0, *place.arguments(), env=inside).returncode == 0


def test_zero_steps_is_an_error_and_never_a_result(place: Place) -> None:
    place.write(DATASET, PREPARE, TRAIN)
    done = place.run(2, define={"train.batch": "30 per rank"})
    assert done.returncode == 2
    assert done.stderr.count("error[E201]: ") == 1
    assert not place.output.exists()


def test_a_wrong_option_is_said_once(place: Place) -> None:
    done = run_ranks(3, *place.arguments("--bogus"))
    assert done.returncode == 2
    assert done.stderr.count("has no option `--bogus`") == 1
