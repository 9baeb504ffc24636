"""Striping asked of a Lustre file system by its own tool, where there is one, and read back."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dliosim.execute.node.environment import find_mount
from dliosim.model import Access, Stripe

_PATIENCE = 30  # seconds

#: What is said where striping was asked for, and the file system tells nothing of it.
NO_STRIPING = "no striping to read back"

_FACTOR, _UNIT = "striping_factor", "striping_unit"


def request_striping(directory: Path, stripe: Stripe | None) -> str:
    """Ask that what is made in `directory` from now on is striped, if it should be; why that failed, or nothing."""
    if stripe is None:
        return ""
    tool = shutil.which("lfs")
    if tool is None:
        kind = find_mount(directory).kind
        return f"striping was not asked: there is no `lfs` here, the tool of Lustre (the file system is {kind})"
    command = [tool, "setstripe", "-S", str(stripe.size), "-c", str(stripe.targets), str(directory)]
    try:
        subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=True)
    except subprocess.CalledProcessError as error:
        return f"striping was not granted: lfs setstripe said: {' '.join(error.stderr.split())}"
    except (OSError, subprocess.SubprocessError) as error:
        return f"striping was not asked: {error}"
    return ""


def add_striping_hints(access: Access, stripe: Stripe | None) -> Access:
    """The access with the hints that the MPI standard reserves for striping, unless it names them itself.

    They count only where MPI_File_open makes the file.
    """
    if stripe is None or not access.is_mpi:
        return access
    wanted = {_FACTOR: str(stripe.targets), _UNIT: str(stripe.size)}
    return replace(access, hints=tuple({**wanted, **dict(access.hints)}.items()))


def striping_hint_note(access: Access, stripe: Stripe | None, granted: Mapping[str, str] | None) -> str:
    """Which of the hints for striping MPI did not take, of a file that was opened with them (None: of none), if any."""
    if stripe is None or not access.is_mpi or granted is None:
        return ""
    dropped = [f'"{name}"' for name in (_FACTOR, _UNIT) if name not in granted]
    return f"the MPI library dropped the striping hints {' and '.join(dropped)}" if dropped else ""


def read_striping(path: Path) -> str:
    """What the file system granted, as `lfs getstripe` says; empty where it cannot be known."""
    tool = shutil.which("lfs")
    if tool is None:
        return ""
    command = [tool, "getstripe", "-d" if path.is_dir() else "-c", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return " ".join(done.stdout.split())
