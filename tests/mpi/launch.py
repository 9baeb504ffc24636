"""Starting ranks from a test: in a process group of their own, with a time limit, and none of them left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_OF_A_LAUNCHER = ("PMI_", "PMIX_", "OMPI_", "MPI_LOCAL", "HYDI_")


def mpiexec() -> str:
    """The launcher of this environment; the test is skipped where there is none."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        pytest.skip("no mpiexec")
    return found


def run_ranks(
    ranks: int, *command: str, seconds: float = 60, env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `python COMMAND` on that many ranks; a job that takes longer is killed and fails the test."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OF_A_LAUNCHER)}
    path = os.pathsep.join(filter(None, [str(ROOT), inherited.get("PYTHONPATH", "")]))
    process = subprocess.Popen(
        [mpiexec(), "-n", str(ranks), sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**inherited, "PYTHONPATH": path, **(env or {})},
        cwd=cwd,
        start_new_session=True,
    )
    try:
        out, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, errors = process.communicate()
        pytest.fail(f"{ranks} ranks took more than {seconds} s\n{out}\n{errors}")
    return subprocess.CompletedProcess(process.args, process.returncode, out, errors)


def run_program(ranks: int, module: str, *arguments: str, seconds: float = 60) -> str:
    """Run a module on that many ranks, all of which end if one raises; what they print. It must succeed."""
    # Ranks that outnumber cores leave them to each other at once, which halves the time of collective calls.
    env = {"MPIR_CVAR_POLLS_BEFORE_YIELD": "1"}
    done = run_ranks(ranks, "-m", "mpi4py", "-m", module, *arguments, seconds=seconds, env=env)
    assert done.returncode == 0, f"{module} on {ranks} ranks: {done.stdout}\n{done.stderr}"
    return done.stdout
