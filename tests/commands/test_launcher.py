"""Settings of libraries before they are imported, from the launcher's variables."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dliosim.commands.job.launcher import (
    launcher_cores,
    launcher_rank,
    launcher_size,
    library_environment,
    library_settings,
)

THREADS, PROVIDER, YIELD = "OPENBLAS_NUM_THREADS", "FI_PROVIDER", "MPIR_CVAR_ENABLE_HEAVY_YIELD"
CELLS = "MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_NUM_CELLS"

SALLOC = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "64", "SLURM_NPROCS": "64", "SLURM_NNODES": "2"}
SRUN = {**SALLOC, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "64", "SLURM_PROCID": "3"}


@pytest.mark.parametrize(
    ("environ", "size"),
    [
        ({}, None),
        ({"PMI_SIZE": "4", "PMI_RANK": "1"}, 4),
        ({"OMPI_COMM_WORLD_SIZE": "4"}, 4),
        ({"FLUX_JOB_SIZE": "4", "FLUX_TASK_RANK": "1", "FLUX_JOB_NNODES": "2"}, 4),
        ({"PALS_RANKID": "1", "PALS_SIZE": "4"}, 4),
        ({"PALS_RANKID": "1"}, None),
        (SALLOC, None),
        (SRUN, 64),
        ({**SRUN, "SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1"}, None),
        ({**SRUN, "SLURM_STEP_NUM_TASKS": "2", "PMI_SIZE": "128"}, 128),
        ({"PMI_SIZE": ""}, None),
    ],
    ids=[
        "none",
        "hydra",
        "open mpi",
        "flux",
        "pals",
        "pals without size",
        "salloc",
        "srun",
        "shell of an salloc",
        "mpiexec in an allocation",
        "empty",
    ],
)
def test_only_a_launcher_says_how_many_processes_there_are(environ: dict[str, str], size: int | None) -> None:
    assert launcher_size(environ) == size


@pytest.mark.parametrize(
    ("here", "ranks", "variables"),
    [
        ("2", "2", {THREADS, PROVIDER}),
        ("3", "3", {THREADS, PROVIDER, YIELD}),
        ("2", "4", {THREADS}),  # another node has the others
        ("3", "6", {THREADS, YIELD}),
        ("", "3", {THREADS}),  # another launcher
        ("many", "many", {THREADS}),
    ],
)
def test_a_network_is_left_alone_on_one_node_and_waits_sleep_where_ranks_outnumber_cores(
    here: str, ranks: str, variables: set[str]
) -> None:
    assert set(library_settings({"MPI_LOCALNRANKS": here, "PMI_SIZE": ranks}, 2)) == variables


@pytest.mark.parametrize(
    ("environ", "rank"),
    [
        ({}, 0),
        ({"PMI_RANK": "3", "SLURM_PROCID": "0"}, 3),
        ({"PMIX_RANK": "3"}, 3),
        ({"FLUX_TASK_RANK": "3"}, 3),
        ({"PALS_RANKID": "3"}, 3),
        ({"SLURM_PROCID": "3"}, 3),
        ({"PALS_RANKID": ""}, 0),
    ],
)
def test_the_launcher_says_which_process_prints_before_mpi_is_there(environ: dict[str, str], rank: int) -> None:
    assert launcher_rank(environ) == rank


@pytest.mark.parametrize(
    ("ranks", "cores", "cells"), [(64, 2, None), (65, 2, "63"), (512, 2, "8"), (4096, 2, "8"), (512, 512, None)]
)
def test_messages_of_many_ranks_on_a_node_take_64_mb(ranks: int, cores: int, cells: str | None) -> None:
    environ = {"MPI_LOCALNRANKS": str(ranks), "PMI_SIZE": str(ranks)}
    assert library_settings(environ, cores).get(CELLS) == cells
    assert CELLS not in library_settings({**environ, CELLS: "64"}, cores)


def test_what_somebody_has_set_stays() -> None:
    environ = {"MPI_LOCALNRANKS": "4", "PMI_SIZE": "4", THREADS: "8", PROVIDER: "tcp", YIELD: "0"}
    assert library_settings(environ, 2) == {}


def test_only_what_starts_in_the_block_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"MPI_LOCALNRANKS": "4096", "PMI_SIZE": "4096", PROVIDER: "tcp"})
    before = dict(os.environ)
    with library_environment():
        assert dict(os.environ) == {**before, THREADS: "1", YIELD: "1", CELLS: "8"}
    assert dict(os.environ) == before


def test_numpy_is_not_there_before_libraries_are_set() -> None:
    program = (
        "import sys, dliosim.commands.command_line.parser as made; made.make_parser().parse_args(sys.argv[1:]); "
        "print('numpy' in sys.modules)"
    )
    arguments = ["run", "x.dlio", "--mtbf", "3 h", "--stall-report", "1s"]
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n", done.stderr


def test_without_a_launcher_the_cores_are_all_of_the_node() -> None:
    assert launcher_cores() == os.cpu_count()


def test_cores_are_those_of_the_launcher_not_of_the_rank_that_it_binds() -> None:
    """A process called as MPICH's proxy on one core, which starts a shell and this a program on all of them."""
    everywhere = os.sched_getaffinity(0)
    program = (
        "import os, sys\n"
        "from dliosim.commands.job.launcher import launcher_cores\n"
        f"os.sched_setaffinity(0, {everywhere!r})\n"
        "print(launcher_cores())\n"
    )
    proxy = (
        "import os, subprocess, sys\n"
        "open('/proc/self/comm', 'w').write('hydra_pmi_proxy')\n"
        f"os.sched_setaffinity(0, {{{min(everywhere)}}})\n"
        f"subprocess.run(['sh', '-c', '\"$0\" -c \"$1\"; true', sys.executable, {program!r}], check=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", proxy], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "1\n"
