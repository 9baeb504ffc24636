"""The scripts for Slurm and PBS build the command line that the allocation and the pattern ask for."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.scripts.stubs import RECORDS, ROOT, RUNS, SCRIPTS, calls, run, stub

PATTERN = """\
dlio 1
workload small
param files = 8
dataset d {{
    samples $files
    size    1 kB
    path    "d"
{more}}}
prepare d
train {{ read d }}
"""

Submit = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A directory of submission with a pattern on `root data` and one on `root local`, and stand-ins in bin."""
    (tmp_path / "small.dlio").write_text(PATTERN.format(more=""))
    (tmp_path / "near.dlio").write_text(PATTERN.format(more="    root local\n"))
    stub(tmp_path / "bin", "srun")
    stub(tmp_path / "bin", "mpiexec")
    return tmp_path


@pytest.fixture
def silent(here: Path) -> str:
    """An interpreter that does nothing, for tests of what the scripts do around it."""
    return str(stub(here / "bin", "python"))


@pytest.fixture
def sbatch(here: Path) -> Submit:
    """Runs slurm.sbatch as the batch system would: a copy of it, with the allocation in its environment."""

    def submit(*arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
        (here / "spool").mkdir(exist_ok=True)
        copy = shutil.copy(SCRIPTS / "slurm.sbatch", here / "spool" / "slurm_script")
        allocation = {
            "SLURM_SUBMIT_DIR": str(here),
            "SLURM_JOB_ID": "17",
            "SLURM_NTASKS": "8",
            "SLURM_JOB_NUM_NODES": "2",
            "CHECKOUT": str(ROOT),
            "PATH": f"{here / 'bin'}:/usr/bin:/bin",
            **extra,
        }
        return run(Path(copy), *arguments, cwd=here / "spool", env=allocation)

    return submit


@pytest.fixture
def qsub(here: Path) -> Submit:
    """Runs pbs.sh as the batch system would, on two nodes with four ranks each."""

    def submit(*arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
        hosts = here / "hosts"
        hosts.write_text("".join(f"{node}\n" for node in ("n1", "n1", "n1", "n1", "n2", "n2", "n2", "n2")))
        allocation = {
            "PBS_O_WORKDIR": str(here),
            "PBS_JOBID": "18.server",
            "PBS_NODEFILE": str(hosts),
            "CHECKOUT": str(ROOT),
            "LAUNCHER": str(here / "bin" / "mpiexec"),
            **extra,
        }
        return run("pbs.sh", *arguments, cwd=here, env=allocation)

    return submit


def test_slurm_starts_all_ranks_of_the_allocation_with_what_was_given(here: Path, sbatch: Submit) -> None:
    done = sbatch("small.dlio", "-D", "files=16", "-D", "d.layout=shared file", "--verify", DATA="/pfs/data")
    assert calls(here / "bin" / "srun") == [
        "--nodes=2",
        "--ntasks=8",
        "--ntasks-per-node=4",
        "--kill-on-bad-exit=1",
        sys.executable,
        *("-m", "dliosim.cli", "run", "small.dlio", "--dir", "/pfs/data", "--output", f"{here}/dliosim-17"),
        *("-D", "files=16", "-D", "d.layout=shared file", "--verify"),
    ]
    assert "8 ranks on 2 nodes" in done.stdout  # the plan comes first


def test_pbs_counts_ranks_by_its_node_file_and_takes_quoted_arguments(here: Path, qsub: Submit) -> None:
    qsub(ARGUMENTS="""small.dlio -D files=16 -D 'd.layout=shared file'""", DATA="/pfs/data")
    assert calls(here / "bin" / "mpiexec") == [
        *("-n", "8", sys.executable, "-m", "dliosim.cli", "run", "small.dlio", "--dir", "/pfs/data"),
        *("--output", f"{here}/dliosim-18.server", "-D", "files=16", "-D", "d.layout=shared file"),
    ]


def test_pbs_takes_arguments_of_its_own_where_the_system_passes_them(here: Path, qsub: Submit, silent: str) -> None:
    qsub("small.dlio", "-D", "files=16", ARGUMENTS="other.dlio", PYTHON=silent)
    assert calls(here / "bin" / "mpiexec")[-2:] == ["-D", "files=16"]


def test_a_launcher_may_be_named_with_its_options(here: Path, sbatch: Submit, silent: str) -> None:
    sbatch("small.dlio", LAUNCHER="srun --mpi=pmi2", PYTHON=silent)
    assert calls(here / "bin" / "srun")[:4] == ["--mpi=pmi2", "-n", "8", silent]


def test_local_scratch_is_given_only_to_patterns_that_have_it(here: Path, sbatch: Submit) -> None:
    sbatch("small.dlio", TMPDIR=str(here))
    assert "--root" not in calls(here / "bin" / "srun")
    sbatch("small.dlio", "-D", "d.root=local", TMPDIR=str(here))
    assert f"local={here}" in calls(here / "bin" / "srun")
    Path(f"{here}/bin/srun.log").unlink()
    sbatch("near.dlio", TMPDIR=str(here))
    assert f"local={here}" in calls(here / "bin" / "srun")


def test_a_pattern_on_local_scratch_without_any_ends_before_ranks_are_started(here: Path, sbatch: Submit) -> None:
    done = sbatch("near.dlio", TMPDIR="", LOCAL="")
    assert (done.returncode, calls(here / "bin" / "srun")) == (2, [])
    assert "LOCAL names no directory" in done.stderr


def test_a_wrong_pattern_ends_before_ranks_are_started(here: Path, sbatch: Submit) -> None:
    done = sbatch("small.dlio", "-D", "nothing=1")
    assert (done.returncode, calls(here / "bin" / "srun")) == (2, [])
    assert "E104" in done.stderr


def test_a_job_without_results_is_never_a_success(here: Path, sbatch: Submit, silent: str) -> None:
    done = sbatch("small.dlio", PYTHON=silent)  # the stand-ins report success and do nothing
    assert done.returncode == 1
    assert f"no {here}/dliosim-17/results.json" in done.stderr


def test_a_job_of_one_rank_runs_and_ends_with_the_status_of_the_run(here: Path, sbatch: Submit) -> None:
    stub(here / "bin", "srun", RUNS)
    done = sbatch("small.dlio", SLURM_NTASKS="1", SLURM_JOB_NUM_NODES="1")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((here / "dliosim-17" / "results.json").read_text())["ranks"] == 1
    again = sbatch("small.dlio", SLURM_NTASKS="1", SLURM_JOB_NUM_NODES="1")
    assert again.returncode == 2  # there are results of another run


def test_the_last_of_several_runs_has_to_have_results(here: Path, sbatch: Submit, silent: str) -> None:
    done = sbatch("small.dlio", "--repeat", "2", PYTHON=silent)
    assert f"no {here}/dliosim-17/run_2/results.json" in done.stderr
    stub(here / "bin", "srun", RUNS)
    done = sbatch("small.dlio", "--repeat=2", SLURM_NTASKS="1", SLURM_JOB_NUM_NODES="1")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_launcher_of_another_mpi_is_noticed(here: Path, sbatch: Submit) -> None:
    step = "export SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=8 SLURM_PROCID=0\n"
    stub(here / "bin", "srun", step + RUNS)
    said = sbatch("small.dlio")
    assert said.returncode == 2
    assert "the launcher started 8 processes, but in each of them mpi4py sees a job of 1" in said.stderr
    stub(here / "bin", "srun", RUNS)  # and one that does not say what it has started
    silent = sbatch("small.dlio")
    assert silent.returncode == 1
    assert "results.json is not of 8 ranks" in silent.stderr


def test_a_scaling_study_takes_the_allocation_of_the_job(here: Path, sbatch: Submit) -> None:
    done = sbatch("--scaling", "small.dlio", "-D", "files=16", DATA="/pfs/data")
    asked = [word for word in calls(here / "bin" / "srun") if word.startswith("--n")]
    assert asked[::3] == ["--nodes=1", "--nodes=1", "--nodes=1", "--nodes=2"]
    assert asked[1::3] == ["--ntasks=1", "--ntasks=2", "--ntasks=4", "--ntasks=8"]
    assert set(asked[2::3]) == {"--ntasks-per-node=4"}
    assert calls(here / "bin" / "srun")[-6:] == [
        *("--dir", "/pfs/data", "-D", "files=16", "--output", f"{here}/dliosim-17/ranks-000008")
    ]
    assert done.returncode == 1  # the stand-in does nothing


def test_a_comparison_is_a_job_as_well(here: Path, sbatch: Submit) -> None:
    done = sbatch("--compare", "small.dlio", "--vary", "d.layout=shared file,file per sample", "-D", "files=16")
    assert calls(here / "bin" / "srun")[4:] == [
        *(sys.executable, "-m", "dliosim.cli", "compare", "small.dlio", "--dir", f"{here}/dliosim-data"),
        *("--output", f"{here}/dliosim-17", "--vary", "d.layout=shared file,file per sample", "-D", "files=16"),
    ]
    assert done.returncode == 1 and f"no {here}/dliosim-17/compare.json: the compare" in done.stderr
    stub(here / "bin", "srun", RUNS)
    options = ("--vary", "api=posix,mpi-independent", "--repeat", "1")
    done = sbatch("--compare", "small.dlio", *options, SLURM_NTASKS="1", SLURM_JOB_NUM_NODES="1")
    assert done.returncode == 0 and "error" not in done.stderr
    assert json.loads((here / "dliosim-17" / "compare.json").read_text())["ranks"] == 1


def test_mpiexec_next_to_the_interpreter_comes_before_one_on_the_path(here: Path) -> None:
    neighbour = stub(here / "env", "mpiexec")
    python = stub(here / "env", "python", RECORDS)
    run("launch.sh", "3", "hello", cwd=here, env={"PYTHON": str(python), "PATH": f"{here / 'bin'}:/usr/bin:/bin"})
    assert calls(neighbour) == ["-n", "3", "hello"]
    run("launch.sh", "3", "hello", cwd=here, env={"PYTHON": "python3", "PATH": f"{here / 'bin'}:/usr/bin:/bin"})
    assert calls(here / "bin" / "mpiexec") == ["-n", "3", "hello"]


@pytest.mark.parametrize("arguments", [(), ("3",), ("three", "hello"), ("0", "hello")])
def test_a_launch_without_ranks_or_command_is_refused(here: Path, arguments: tuple[str, ...]) -> None:
    assert run("launch.sh", *arguments, cwd=here, env={}).returncode == 2
