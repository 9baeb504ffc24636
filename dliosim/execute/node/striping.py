"""Ask a Lustre file system for striping with its own tool, if there is one, and read it back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dliosim.execute.node.environment import find_mount
from dliosim.model import Access, Stripe

_PATIENCE = 30  # seconds

#: The text where striping was asked for, and the file system has nothing to read back.
NO_STRIPING = "no striping to read back"

_FACTOR, _UNIT = "striping_factor", "striping_unit"


def request_striping(directory: Path, stripe: Stripe | None) -> str:
    """Ask for striping of files made in `directory` from now on; return why that failed, or an empty text."""
    if stripe is None:
        return ""
    tool = _find_tool()
    if tool is None:
        kind = find_mount(directory).kind
        return f"striping was not asked: there is no `lfs` here, the tool of Lustre (the file system is {kind})"
    import subprocess  # most nodes have no Lustre, and it takes 0.3 MB on each rank

    command = [tool, "setstripe", "-S", str(stripe.size), "-c", str(stripe.targets), str(directory)]
    try:
        subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=True)
    except subprocess.CalledProcessError as error:
        return f"striping was not granted: lfs setstripe said: {' '.join(error.stderr.split())}"
    except (OSError, subprocess.SubprocessError) as error:
        return f"striping was not asked: {error}"
    return ""


def add_striping_hints(access: Access, stripe: Stripe | None) -> Access:
    """Return the access with the hints that MPI reserves for striping; hints that it names itself stay.

    They count only if MPI_File_open makes the file.
    """
    if stripe is None or not access.is_mpi:
        return access
    wanted = {_FACTOR: str(stripe.targets), _UNIT: str(stripe.size)}
    return replace(access, hints=tuple({**wanted, **dict(access.hints)}.items()))


def striping_hint_note(access: Access, stripe: Stripe | None, granted: Mapping[str, str] | None) -> str:
    """Return a note of the hints for striping that MPI dropped; empty if none. `granted` None: no file was opened."""
    if stripe is None or not access.is_mpi or granted is None:
        return ""
    dropped = [f'"{name}"' for name in (_FACTOR, _UNIT) if name not in granted]
    return f"the MPI library dropped the striping hints {' and '.join(dropped)}" if dropped else ""


def read_striping(path: Path) -> str:
    """Return what the file system granted, as `lfs getstripe` prints it; empty if that is unknown."""
    tool = _find_tool()
    if tool is None:
        return ""
    import subprocess  # as above

    command = [tool, "getstripe", "-d" if path.is_dir() else "-c", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return " ".join(done.stdout.split())


def _find_tool() -> str | None:
    """Return the path of Lustre's tool; None if there is none."""
    places = (Path(folder, "lfs") for folder in os.get_exec_path())
    return next((str(place) for place in places if place.is_file() and os.access(place, os.X_OK)), None)
