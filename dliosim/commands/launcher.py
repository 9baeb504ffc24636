"""Which rank a process is by its launcher's word: before MPI is there, or where MPI and launcher do not agree."""

from __future__ import annotations

from collections.abc import Mapping

# The launcher that started this very process comes before one that it may stand in: srun starts an mpiexec.
_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")


def launcher_rank(environ: Mapping[str, str]) -> int:
    """Which of the launcher's processes this is; 0 where it does not say."""
    found = (environ.get(name, "") for name in _VARIABLES)
    return next((int(rank) for rank in found if rank.isdecimal()), 0)
