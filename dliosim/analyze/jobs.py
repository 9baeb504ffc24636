"""Jobs on a command line: which paths belong together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

#: Endings of the files of DFTracer, which writes one for each process of a job.
_OF_A_PROCESS = (".pfw", ".pfw.gz")


def group_jobs(paths: Sequence[Path]) -> list[tuple[Path, ...]]:
    """Return the paths of each job: files of DFTracer together are one job, each other file or folder is one."""
    jobs: dict[object, tuple[Path, ...]] = {}
    for number, path in enumerate(paths):
        key = "processes" if path.name.endswith(_OF_A_PROCESS) and not path.is_dir() else number
        jobs[key] = (*jobs.get(key, ()), path)
    return list(jobs.values())


def name_jobs(jobs: Sequence[Sequence[Path]]) -> list[str]:
    """Return a name for each job: as much of its path's end as differs from the other jobs'."""
    parts = [paths[0].absolute().parts for paths in jobs]
    for length in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(one[-length:]) for one in parts]
        if len(set(names)) == len(names):
            return names
    return ["/".join(one) for one in parts]
