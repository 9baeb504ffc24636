"""File calls that fail as a machine's would: every rank hears of it, and the message names the call and the file."""

from __future__ import annotations

import errno
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.examples import ALL
from tests.mpi.jobs import DATASET, Place, only_error
from tests.mpi.launch import run_ranks, running, start_ranks

SOURCE = Path(__file__).with_name("failing_calls.c")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that has calls fail; the test is skipped where nothing compiles it."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no cc")
    made = tmp_path_factory.mktemp("library") / "failing_calls.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(made), str(SOURCE), "-ldl"], check=True, timeout=60)
    return made


def environment(library: Path, fault: dict[str, str]) -> dict[str, str]:
    """The environment of ranks that meet a fault: CALL, PATH and so on, as failing_calls.c has them."""
    return {"LD_PRELOAD": str(library), **{f"FAIL_{name}": value for name, value in fault.items()}}


SHARED = """
checkpoint c {
    part     weights 300 kB total
    writers  all ranks into shared file
    api      mpi-collective
    keep     2
    path     "c"
}
save c
"""


@pytest.mark.not_under("Open MPI", reason="OMPIO does not report that closing a file failed")
@pytest.mark.parametrize("pattern", [SHARED, f"{DATASET}prepare d {{\n    api  mpi-independent\n}}\n"])
def test_a_shared_file_whose_making_fails_is_an_error_of_all_ranks(library: Path, tmp_path: Path, pattern: str) -> None:
    # The rank that makes a file for all by MPI-IO closes it before all open it.
    fault = {"CALL": "close", "PATH": ".ckpt" if "save" in pattern else ".raw", "ERRNO": str(errno.EIO), "TIMES": "1"}
    place = Place(tmp_path)
    place.write(pattern)
    error = only_error(run_ranks(3, *place.arguments(), seconds=30, env=environment(library, fault)))
    assert "MPI_File_open failed on " in error or "MPI_File_close failed on " in error
    assert "Input/output error" in error
    assert not list(tmp_path.glob("data/*/*/*/manifest.json")) and not list(tmp_path.glob("data/*/*/manifest.json"))


@pytest.mark.parametrize("ranks", [1, 2] if ALL else [2])
def test_a_save_that_has_no_room_names_the_call_and_the_file(library: Path, tmp_path: Path, ranks: int) -> None:
    program = ["-m", "mpi4py", "-m", "tests.mpi.failing_saves_program", str(tmp_path)]
    done = run_ranks(ranks, *program, env={"LD_PRELOAD": str(library)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[-1]) >= 30


@pytest.mark.parametrize("way", ["async    on", "fsync    off"])
def test_a_save_for_which_no_rank_has_room_ends_the_job_at_once(library: Path, tmp_path: Path, way: str) -> None:
    """OMPIO reports no write that fails in a collective call: MPI_File_sync does, or the file is too short."""
    place, said = Place(tmp_path), tmp_path / "said"
    place.write(SHARED.replace("save c", "save c\npause 60 s").replace("keep", f"{way}\n    keep"))
    fault = {"CALL": "write", "PATH": ".ckpt", "ERRNO": str(errno.ENOSPC), "RANK": "-1"}
    with said.open("w") as stream:
        job = start_ranks(3, *place.arguments(), env=environment(library, fault), terminal=stream.fileno())
    with running(job):
        job.wait_until(lambda: "error[" in said.read_text(), seconds=30)
        done = job.finish(seconds=8)  # less than ranks with nothing new to say wait
    (error,) = [line for line in said.read_text().splitlines() if line.startswith("error")]
    assert (done.returncode, error[:11]) == (1, "error[R402]") and "000000.ckpt" in error
