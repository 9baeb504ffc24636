"""Striping asked of a Lustre file system by its own tool, where there is one, and read back."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from dliosim.model import Stripe

_PATIENCE = 30  # seconds


def ask_for_striping(directory: Path, stripe: Stripe) -> None:
    """Ask that files made in `directory` are striped; elsewhere than on Lustre nothing happens."""
    tool = shutil.which("lfs")
    if tool is not None:
        command = [tool, "setstripe", "-S", str(stripe.size), "-c", str(stripe.targets), str(directory)]
        subprocess.run(command, capture_output=True, timeout=_PATIENCE, check=False)


def read_striping(path: Path) -> str:
    """What the file system granted, as `lfs getstripe` says; empty where it cannot be known."""
    tool = shutil.which("lfs")
    if tool is None:
        return ""
    command = [tool, "getstripe", "-d" if path.is_dir() else "-c", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    return " ".join(done.stdout.split()) if done.returncode == 0 else ""
