"""The launcher's variables before MPI starts, and settings of libraries that follow from them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import dropwhile, takewhile
from pathlib import Path

# The launcher that started this process comes first; it may itself run in another one: srun starts an mpiexec.
_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "FLUX_TASK_RANK", "PALS_RANKID", "SLURM_PROCID")

#: Cells of 16 KiB for messages: those of a rank in MPICH, the least of a rank, and those of a node with many ranks.
_RANK_CELLS, _LEAST_CELLS, _NODE_CELLS = 64, 8, 4096

# From this number on, steps of a Slurm allocation were not started by srun: interactive, batch, extern, pending.
_FIRST_SPECIAL_STEP = 0xFFFFFFFA

# The processes between a shell and a rank, as the kernel names them: cut to 15 bytes.
_MPICH_PROXY = "hydra_pmi_proxy"
_LAUNCHERS = frozenset(
    {_MPICH_PROXY, "hydra_bstrap_pr", "mpiexec", "mpiexec.hydra", "mpirun", "orted", "orterun"}
    | {"prte", "prted", "prterun"}
)


def launcher_rank(environ: Mapping[str, str]) -> int:
    """Return the number of this process among the launcher's; 0 if the launcher does not give it."""
    found = (environ.get(name, "") for name in _VARIABLES)
    return next((int(rank) for rank in found if rank.isdecimal()), 0)


def launcher_size(environ: Mapping[str, str]) -> int | None:
    """Return the number of processes that the launcher says it started; None if there is no launcher.

    An allocation is no launch: SLURM_NTASKS is set for everything inside an salloc. So only the variables of a step
    that srun started count, after those of a launcher inside such a step. Flux removes its variables from the shell of
    an allocation (flux-environment(7)); PALS of HPE's Cray does not set its size in every release.
    """
    for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "FLUX_JOB_SIZE", "PALS_SIZE"):
        if environ.get(name, "").isdigit():
            return int(environ[name])
    step, tasks = environ.get("SLURM_STEP_ID", ""), environ.get("SLURM_STEP_NUM_TASKS", "")
    if step.isdigit() and int(step) < _FIRST_SPECIAL_STEP and tasks.isdigit() and "SLURM_PROCID" in environ:
        return int(tasks)
    return None


@contextmanager
def library_environment() -> Iterator[None]:
    """Set `library_settings` in the environment during this block, in which MPI and numpy start.

    They are removed after it: a storage's own library may use libfabric as well, and InfiniBand with it.
    """
    settings = library_settings(os.environ, launcher_cores())
    os.environ.update(settings)
    try:
        yield
    finally:
        for name in settings:
            del os.environ[name]


def library_settings(environ: Mapping[str, str], cores: int) -> dict[str, str]:
    """Return environment variables that make libraries start faster, without those that are set already.

    `cores` is the number of cores of this node for the launcher's ranks; measured in docs/evidence/benchmarks.md.
    """
    # Without this each rank would start a thread for each core of the node, for linear algebra, which is never used.
    settings = {"OPENBLAS_NUM_THREADS": "1"}
    here, all_ranks = environ.get("MPI_LOCALNRANKS", ""), environ.get("PMI_SIZE", "")  # of MPICH's mpiexec
    if here.isdecimal() and here == all_ranks:
        # MPICH needs no network on one node, and the search for InfiniBand reads the kernel's table of symbols.
        settings["FI_PROVIDER"] = "^verbs"
    if here.isdecimal() and int(here) > cores:
        # A rank that waits in MPI then sleeps for a moment between two polls, instead of only yielding its core.
        settings["MPIR_CVAR_ENABLE_HEAVY_YIELD"] = "1"
        # Each rank has 64 cells of 16 KiB for messages on the node, touched when MPI starts: half a GB with 512 ranks.
        cells = max(_LEAST_CELLS, _NODE_CELLS // int(here))
        if cells < _RANK_CELLS:
            settings["MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_NUM_CELLS"] = str(cells)
    return {name: value for name, value in settings.items() if name not in environ}


def launcher_cores() -> int:
    """Return the number of this node's cores on which MPICH's launcher may start ranks, bound or not; else all."""
    for process, name in _ancestors():
        if name == _MPICH_PROXY:
            with suppress(OSError):
                return len(os.sched_getaffinity(process))
    return os.cpu_count() or 1


def find_launchers() -> list[int]:
    """Return the processes of the launcher on this node that started this rank, the nearest first; [] for none."""
    before = dropwhile(lambda found: found[1] not in _LAUNCHERS, _ancestors())
    return [process for process, _ in takewhile(lambda found: found[1] in _LAUNCHERS, before)]


def _ancestors() -> Iterator[tuple[int, str]]:
    """Yield the parent of this process, its parent and so on, each with its name."""
    process = os.getppid()
    while True:
        try:
            text = Path(f"/proc/{process}/stat").read_text()
        except OSError:
            return
        yield process, text[text.index("(") + 1 : text.rindex(")")]
        process = int(text[text.rindex(")") + 2 :].split()[1])
