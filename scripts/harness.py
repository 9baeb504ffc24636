"""What the benchmark scripts share: starting ranks, medians with their spread, and markdown rows."""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

_OF_A_LAUNCHER = ("PMI_", "PMIX_", "OMPI_", "MPI_LOCAL", "HYDI_")


def mpiexec() -> str:
    """The launcher beside this interpreter, or the one on the path; ends the script where there is none."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        sys.exit("no mpiexec beside this Python nor on the path: install the extra `mpich`, or load the site's MPI")
    return found


def environment() -> dict[str, str]:
    """This environment, free of any launcher's marks, in which this checkout is what `import dliosim` finds."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OF_A_LAUNCHER)}
    inherited["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), inherited.get("PYTHONPATH", "")]))
    return inherited


def run(command: Sequence[str], seconds: float, extra: dict[str, str] | None = None) -> str:
    """What a command prints; its whole process group is killed after `seconds`. Ends the script where it fails."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment(), **(extra or {})},
        start_new_session=True,
    )
    try:
        out, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, errors = process.communicate()
        sys.exit(f"{' '.join(command)}: took more than {seconds} s\n{out}\n{errors}")
    except BaseException:
        # Ctrl-C reaches this script alone: what it has started stands in a group of its own.
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
        raise
    if process.returncode:
        sys.exit(f"{' '.join(command)}: exit status {process.returncode}\n{out}\n{errors}")
    return out


def run_ranks(ranks: int, script: str, *arguments: str, seconds: float = 300) -> Any:
    """The JSON that a script prints last when it runs on that many ranks; all of them end if one raises."""
    command = [mpiexec(), "-n", str(ranks), sys.executable, "-m", "mpi4py", script, *arguments]
    return json.loads(run(command, seconds).splitlines()[-1])


@contextmanager
def scratch(place: str) -> Iterator[Path]:
    """A directory below `place` that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="dliosim-bench-", dir=place) as name:
        yield Path(name)


def middle(values: Sequence[float], digits: int = 2, unit: float = 1.0) -> str:
    """Median, least and greatest."""
    low, high = min(values) * unit, max(values) * unit
    return f"{statistics.median(values) * unit:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def row(*cells: object) -> None:
    """Print one row of a markdown table."""
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def header(*cells: str) -> None:
    """Print the head of a markdown table."""
    row(*cells)
    print("|" + "---|" * len(cells), flush=True)
