"""Ranks that fail, are killed or interrupted: the others get the error or end, and no process is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.examples import in_turn
from tests.mpi.jobs import CHECKPOINT, DATASET, PREPARE, TRAIN, Place, only_error
from tests.mpi.launch import running, start_ranks
from tests.mpi.waiting import run_command

SLOW_TRAIN = TRAIN.replace("epochs   2", "compute  20 ms\n    epochs   300")


def fail(place: Place, ranks: int, where: str, **define: str) -> subprocess.CompletedProcess[str]:
    """Run the pattern with something that fails at `where`, which is what:rank:call:kind."""
    settings = {name.replace("__", ".").replace("_", " "): value for name, value in define.items()}
    command = [where, *place.command(define=settings)]
    return run_command(ranks, command, place.directory, seconds=30, module="tests.mpi.failing_program")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A pattern that prepares, trains, and saves at the end of each epoch."""
    made = Place(tmp_path)
    body = TRAIN.replace("epochs   2", "epochs   2\n    checkpoint c every 1 epochs")
    made.write(DATASET, CHECKPOINT, PREPARE, body)
    return made


@pytest.mark.parametrize(
    "define",
    [
        {},
        {"train__sync": "off"},
        {"train__sync": "allreduce 100 kB"},
        {"train__api": "mpi-independent", "train__sync": "barrier every 3 steps", "train__open": "each epoch"},
        {"train__api": "mpi-collective", "train__readers": "1"},
        {"train__api": "mpi-collective", "train__communicator": "1 rank"},
        {"train__readers": "2", "train__api": "mpi-independent"},
    ],
    ids=str,
)
def test_a_read_that_fails_on_one_rank(place: Place, define: dict[str, str]) -> None:
    last = 4  # of the five steps of an epoch
    assert only_error(fail(place, 2, f"read:1:{last}:error", **define)) == "error: rank 1: made to fail on /a/file"
    assert not place.output.exists()


@pytest.mark.parametrize(
    ("sync", "api"), in_turn(["barrier", "off", "barrier every 3 steps"], ["posix", "mpi-independent"])
)
def test_a_read_that_fails_where_one_rank_reads_for_its_node(place: Place, api: str, sync: str) -> None:
    failed = fail(place, 3, "read:0:2:error", train__scatter="by node", train__api=api, train__sync=sync)
    assert only_error(failed) == "error: rank 0: made to fail on /a/file"


def test_what_the_ranks_of_one_communicator_find_when_an_epoch_ends(place: Place) -> None:
    settings = {"train__api": "mpi-collective", "train__communicator": "2 ranks"}
    error = only_error(fail(place, 3, "end_epoch:2:1:shared", **settings))
    assert error == "error: rank 2: made to fail on /a/file"


def test_a_read_that_fails_on_the_last_of_uneven_ranks(place: Place) -> None:
    assert only_error(fail(place, 5, "read:4:1:error")) == "error: rank 4: made to fail on /a/file"


@pytest.mark.parametrize("api", ["posix", "mpi-collective"])
def test_a_bug_in_one_rank_ends_the_job_with_its_trace(place: Place, api: str) -> None:
    done = fail(place, 2, "read:1:2:bug", train__api=api)
    assert done.returncode == 1
    assert done.stderr.count("rank 1: a fault in dliosim itself; please report it") == 1
    assert done.stderr.count("RuntimeError: a bug in the backend") == 1
    assert not place.output.exists()


def test_a_rank_without_memory_ends_the_job_with_what_it_asked_for_and_where(place: Place) -> None:
    error = only_error(fail(place, 2, "read:1:2:memory"))
    assert error.startswith("error[R402]: rank 1: out of memory: Unable to allocate 1.00 EiB for an array")
    assert re.search(r" \(in fail, \S+/failing_program\.py:\d+\)$", error)
    assert not place.output.exists()


@pytest.mark.parametrize("api", ["posix", "mpi-independent", "mpi-collective"])
def test_preparing_that_fails_on_one_rank(place: Place, api: str) -> None:
    error = only_error(fail(place, 2, "write:1:0:error", **{"prepare d.api": api}))
    assert error == "error: rank 1: made to fail on /a/file"
    assert not place.files("d/*/manifest.json")


@pytest.mark.parametrize("api", ["posix", "mpi-independent"])
def test_data_that_were_whole_no_longer_count_once_they_are_written_over(place: Place, api: str) -> None:
    assert place.run(2).returncode == 0
    (place.output / "results.json").unlink()
    place.write(DATASET, "prepare d afresh\n")
    only_error(fail(place, 2, "write:1:0:error", **{"prepare d.api": api}))
    assert place.files()
    assert not place.files("d/*/manifest.json")


def test_a_rank_that_fails_does_not_leave_the_others_to_write_for_hours(place: Place) -> None:
    place.write(DATASET.replace("samples  41", "samples  60_000").replace("shared file", "6000 files"), PREPARE)
    only_error(fail(place, 2, "write:1:0:error"))
    assert len(place.files()) < 3000  # rank 0 alone would have written that many


@pytest.mark.parametrize(
    ("writers", "api"),
    [
        ("into file per rank", "posix"),
        ("all ranks into shared file", "posix"),
        ("all ranks into shared file", "mpi-independent"),
        ("all ranks into shared file", "mpi-collective"),
        ("one per 2 ranks", "posix"),
        ("rank 0", "posix"),
    ],
)
def test_saving_that_fails_on_one_rank(place: Place, writers: str, api: str) -> None:
    place.write(DATASET, CHECKPOINT, "save c\n")
    rank = 0 if writers.startswith(("one per", "rank")) else 1
    error = only_error(fail(place, 3, f"write:{rank}:0:error", c__writers=writers, c__api=api))
    assert error == f"error: rank {rank}: made to fail on /a/file"
    assert not place.files("c/*/000001")
    place.write(DATASET, CHECKPOINT, "save c\nrestore c\n")
    assert place.run(3, define={"c.writers": writers, "c.api": api}).returncode == 0
    # Where the job had to be ended at once, what it left of number 1 is gone, and the number is not given again.
    assert [found.name for found in place.files("c/*/*")] in (["000001"], ["000002"])


def test_a_thread_that_fails_ends_the_job_with_its_status(place: Place) -> None:
    """The thread has communicators of its own, and MPI_Abort of such a one does not end the other ranks."""
    place.write(DATASET, CHECKPOINT, "save c\n")
    asynchronous = {"c__async": "on", "c__writers": "all ranks into shared file", "c__api": "mpi-collective"}
    assert only_error(fail(place, 5, "write:4:0:error", **asynchronous)) == "error: rank 4: made to fail on /a/file"


@pytest.mark.parametrize(
    ("writers", "api"),
    [
        ("into file per rank", "posix"),
        ("all ranks into shared file", "mpi-independent"),
        ("all ranks into shared file", "mpi-collective"),
    ],
)
def test_restoring_that_fails_on_one_rank(place: Place, writers: str, api: str) -> None:
    place.write(DATASET, CHECKPOINT, "save c\nrestore c\n")
    error = only_error(fail(place, 3, "read:1:1:error", c__writers=writers, c__api=api))
    if api == "mpi-collective":  # the others wait for the call that it did not make
        assert error == "error: rank 1: made to fail on /a/file"
        return
    # No proof of damage: an older checkpoint is not taken in its place, and the others hear of it.
    assert error.startswith("error[R401]: rank 1: made to fail on /a/file: nothing proves that it is damaged")


@pytest.mark.not_under("Open MPI", reason="its launcher's status is 1 after a signal, and it drops the message")
@pytest.mark.parametrize("define", [{}, {"train.api": "mpi-collective"}], ids=str)
def test_ctrl_c_ends_all_ranks_with_one_message(tmp_path: Path, define: dict[str, str]) -> None:
    place = Place(tmp_path)
    place.write(DATASET, PREPARE, SLOW_TRAIN)
    with running(start_ranks(2, *place.arguments(define=define), cwd=tmp_path)) as job:
        job.wait_until(lambda: bool(place.files("d/*/manifest.json")))
        os.killpg(job.launcher.pid, signal.SIGINT)
        done = job.finish(15)
    assert done.returncode == 130
    assert done.stderr.count("interrupted: ") == 1
    assert "Traceback" not in done.stderr
    assert not (place.output / "results.json").exists()


def test_a_launcher_that_is_killed_takes_its_ranks_along(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, PREPARE, SLOW_TRAIN)
    with running(start_ranks(2, *place.arguments(), cwd=tmp_path)) as job:
        job.wait_until(lambda: bool(place.files("d/*/manifest.json")))
        job.launcher.kill()
        job.finish(15)


@pytest.mark.not_under("Open MPI", reason="its launcher has no helper on its own node")
def test_a_launchers_helper_that_is_killed_takes_its_ranks_along(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, PREPARE, SLOW_TRAIN)
    with running(start_ranks(2, *place.arguments(), cwd=tmp_path)) as job:
        job.wait_until(lambda: bool(place.files("d/*/manifest.json")))
        helpers = job.processes("hydra_pmi_proxy")
        os.kill(helpers[0], signal.SIGKILL)
        job.launcher.kill()  # it waits for its helper
        job.finish(15)


def test_a_rank_killed_while_preparing(tmp_path: Path) -> None:
    place = Place(tmp_path)
    large = DATASET.replace("samples  41", "samples  6_000").replace("shared file", "3000 files")
    place.write(large, PREPARE)
    with running(start_ranks(2, *place.arguments(), cwd=tmp_path)) as job:
        job.wait_until(lambda: len(place.files()) > 100)
        os.kill(job.ranks()[-1], signal.SIGKILL)
        job.finish(15)  # with a status that is now and then 0, whatever we do: MPICH's launcher races with itself
    assert not place.output.exists()
    assert 100 < len(place.files()) < 3000
    assert not place.files("d/*/manifest.json")
    # The incomplete data set is not used ...
    place.write(large, TRAIN.replace("epochs   2", "steps    5"))
    assert "is incomplete in" in only_error(place.run(2))
    # ... and the next `prepare` writes all of it.
    place.write(large, PREPARE, TRAIN.replace("epochs   2", "steps    5"))
    assert place.run(2, "--verify").returncode == 0
    assert len(place.files()) == 3000


def test_a_rank_killed_while_saving(tmp_path: Path) -> None:
    place = Place(tmp_path)
    checkpoint = CHECKPOINT.replace("300 kB total", "200 MB total\n    transfer 100 kB")
    place.write(checkpoint, "repeat 5 {\n    save c\n}\n")
    with running(start_ranks(2, *place.arguments(), cwd=tmp_path)) as job:
        job.wait_until(lambda: bool(place.files("c/*/000002.partial/*.ckpt")))
        os.kill(job.ranks()[0], signal.SIGKILL)
        job.finish(15)  # as above
    assert not place.output.exists()
    found = [entry.name for entry in place.files("c/*/*")]
    assert found == ["000001", "000002.partial", "lock"]
    place.write(checkpoint, "restore c\nsave c\n")
    restored = place.run(2, "--verify")
    assert restored.returncode == 0, restored.stderr
    assert [entry.name for entry in place.files("c/*/*")] == ["000001", "000003"]


@pytest.mark.parametrize(
    ("sync", "step"),
    in_turn(["barrier every 4 steps", "allreduce 1 kB every 4 steps", "barrier every 2 steps"], [1, 4]),
)
def test_a_read_that_fails_between_syncs_is_heard_of_before_a_checkpoint(tmp_path: Path, sync: str, step: int) -> None:
    place = Place(tmp_path)
    saving = TRAIN.replace("epochs   2", f"epochs   2\n    checkpoint c every 2 steps\n    sync {sync}")
    place.write(DATASET, CHECKPOINT, PREPARE, saving.replace("batch    4", "batch    2"))
    assert only_error(fail(place, 3, f"read:1:{step}:error")) == "error: rank 1: made to fail on /a/file"
    assert len(place.files("c/*/*")) == step // 2
