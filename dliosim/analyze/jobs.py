"""Jobs on a command line: which paths belong together."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dliosim.analyze.darshan.log import read_logs
from dliosim.errors import TraceError, UsageError
from dliosim.trace.file import FILE_NAME

#: Entries of a folder that are looked at.
_MOST_ENTRIES: Final = 1_000_000

#: Endings of the files of DFTracer, which writes one for each process of a job, and of Darshan's.
_OF_A_PROCESS: Final = (".pfw", ".pfw.gz")
_LOG: Final = ".darshan"


def group_jobs(paths: Sequence[Path]) -> list[tuple[Path, ...]]:
    """Return the paths of each job; a folder of Darshan logs has the jobs of its logs.

    Files of DFTracer together are one job, and so are logs of Darshan with one job id that ran at the same time; each
    other file or folder is one. Raises UsageError for a folder of several kinds of traces, and without PyDarshan.
    """
    jobs: dict[object, tuple[Path, ...]] = {}
    every = [each for path in paths for each in (list_logs(path) if path.is_dir() else ()) or [path]]
    logs = _group_logs([path for path in every if path.name.endswith(_LOG) and path.is_file()])
    for number, path in enumerate(every):
        is_process = path.name.endswith(_OF_A_PROCESS) and not path.is_dir()
        key = "processes" if is_process else logs.get(path, (path, number))
        jobs[key] = (*jobs.get(key, ()), path)
    return [logs.get(job[0], job) for job in jobs.values()]


def list_names(folder: Path) -> list[str]:
    """Return the names of the files of a folder in order."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry, _ in zip(entries, range(_MOST_ENTRIES), strict=False) if entry.is_file())


def list_logs(folder: Path) -> list[Path]:
    """Return the Darshan logs of a folder. Raises UsageError where it has traces of other tools, too."""
    names = list_names(folder)
    logs = [folder / name for name in names if name.endswith(_LOG)]
    if not logs or FILE_NAME in names or "results.json" in names:
        return []
    if any(name.endswith(_OF_A_PROCESS) for name in names):
        raise UsageError(
            f"{folder} has Darshan logs and traces of DFTracer, which may be of one job or of several\n"
            f"  = help: name those of one tool: dliosim analyze {folder}/*{_LOG}"
        )
    return logs


def _group_logs(paths: Sequence[Path]) -> Mapping[Path, tuple[Path, ...]]:
    """Return the logs of the job that each log belongs to, that of several ranks first."""
    jobs = _read_jobs(paths) if len(paths) > 1 else {}
    groups: list[list[Path]] = []
    latest: dict[object, tuple[list[Path], float]] = {}
    for path, job in sorted(jobs.items(), key=lambda pair: pair[1]["begin"]):
        group, end = latest.get(job["id"], ([], -math.inf))
        # A job id is that of an allocation, which may run one program after another.
        if job["begin"] >= end:
            groups.append(group := [])
        group.append(path)
        latest[job["id"]] = group, max(end, job["begin"] + job["seconds"])
    found: dict[Path, tuple[Path, ...]] = {}
    for group in groups:
        if len(group) > 1 and sum(jobs[path]["ranks"] > 1 for path in group) <= 1:
            whole = tuple(sorted(group, key=lambda path: -jobs[path]["ranks"]))
            found |= dict.fromkeys(group, whole)
    return found


def _read_jobs(paths: Sequence[Path]) -> dict[Path, Mapping[str, Any]]:
    """Return the job of each log that can be read; the others say so when they are analysed."""
    found: dict[Path, Mapping[str, Any]] = {}
    rest = list(paths)
    while rest:
        number = 0
        try:
            for frame in read_logs(rest, "jobs"):
                if frame.kind == "job":
                    found[rest[number]] = frame.fields
                number += frame.kind == "end"
        except TraceError:
            found.pop(rest[number], None)
        rest = rest[number + 1 :]
    return found


def name_jobs(jobs: Sequence[Sequence[Path]]) -> list[str]:
    """Return a name for each job: as much of its path's end as differs from the other jobs'."""
    parts = [paths[0].absolute().parts for paths in jobs]
    for length in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(one[-length:]) for one in parts]
        if len(set(names)) == len(names):
            return names
    return ["/".join(one) for one in parts]
