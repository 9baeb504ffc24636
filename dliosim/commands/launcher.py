"""What a launcher says of its processes before MPI is there, and what libraries are told for it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

# The launcher that started this very process comes before one that it may stand in: srun starts an mpiexec.
_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")


def launcher_rank(environ: Mapping[str, str]) -> int:
    """Which of the launcher's processes this is; 0 where it does not say."""
    found = (environ.get(name, "") for name in _VARIABLES)
    return next((int(rank) for rank in found if rank.isdecimal()), 0)


@contextmanager
def library_environment() -> Iterator[None]:
    """A block in which MPI and numpy start, and find `library_settings`.

    No longer than that: a storage's own library may use libfabric as well, and InfiniBand with it.
    """
    settings = library_settings(os.environ, launcher_cores())
    os.environ.update(settings)
    try:
        yield
    finally:
        for name in settings:
            del os.environ[name]


def library_settings(environ: Mapping[str, str], cores: int) -> dict[str, str]:
    """Variables of the environment by which libraries start with less ado, without those that are set already.

    `cores` are those of this node that the launcher has for its ranks. Measured in docs/benchmarks.md.
    """
    # Nothing here needs linear algebra, for which each rank of a node would start a thread for each of its cores.
    settings = {"OPENBLAS_NUM_THREADS": "1"}
    here, all_ranks = environ.get("MPI_LOCALNRANKS", ""), environ.get("PMI_SIZE", "")  # of MPICH's mpiexec
    if here.isdecimal() and here == all_ranks:
        # Between the ranks of one node MPICH needs no network, and one of InfiniBand is looked for in the kernel's
        # table of symbols.
        settings["FI_PROVIDER"] = "^verbs"
    if here.isdecimal() and int(here) > cores:
        # A rank that waits in MPI sleeps for a moment between two looks instead of giving up its turn alone.
        settings["MPIR_CVAR_ENABLE_HEAVY_YIELD"] = "1"
    return {name: value for name, value in settings.items() if name not in environ}


def launcher_cores() -> int:
    """The cores of this node on which MPICH's launcher may start ranks, however it binds them; else all of them."""
    process = os.getppid()
    while found := name_and_parent(process):
        if found[0] == "hydra_pmi_proxy":
            with suppress(OSError):
                return len(os.sched_getaffinity(process))
        process = found[1]
    return os.cpu_count() or 1


def name_and_parent(process: int) -> tuple[str, int] | None:
    """The name of a process, of which the kernel keeps 15 bytes, and its parent; None where there is none."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return None
    name, rest = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :]
    return name, int(rest.split()[1])
