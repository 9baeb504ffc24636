"""Stand-ins for launchers and interpreters that this machine lacks, and what they were called with."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"
DEV = SCRIPTS / "dev"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_OF_A_JOB = ("PMI_", "PMIX_", "OMPI_", "MPI_LOCAL", "HYDI_", "SLURM_", "PBS_", "RANKS", "LAUNCHER")

#: Says what it was called with, an argument a line, and does nothing.
RECORDS = 'printf "%s\\n" "$@" >>"$0.log"\n'

#: The same, and then runs the command behind its options once, as a launcher would that knows of one rank.
RUNS = RECORDS + 'while [ "${1#-}" != "$1" ]; do if [ "$1" = -n ]; then shift; fi; shift; done\nexec "$@"\n'


def stub(place: Path, name: str, body: str = RECORDS) -> Path:
    """An executable shell script; its calls are seen by `calls`."""
    place.mkdir(exist_ok=True)
    path = place / name
    path.write_text(f"#!/bin/sh\n{body}")
    path.chmod(0o755)
    return path


def calls(path: Path) -> list[str]:
    """The arguments of all calls of a stub, one after another."""
    log = Path(f"{path}.log")
    return log.read_text().splitlines() if log.exists() else []


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This environment without any job's marks, with this checkout's dliosim; and `extra`."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OF_A_JOB)}
    path = os.pathsep.join(filter(None, [str(ROOT), inherited.get("PYTHONPATH", "")]))
    return {**inherited, "PYTHONPATH": path, "PYTHON": sys.executable, **extra}


def run(script: str | Path, *arguments: str, cwd: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a script of ours, for at most a minute."""
    command = ["bash", str(SCRIPTS / script), *arguments]
    return subprocess.run(
        command, cwd=cwd, env=environment(env), capture_output=True, text=True, timeout=60, check=False
    )
