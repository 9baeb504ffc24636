"""Tests of the package scripts/dev/fidelity, which is imported from the folder scripts/."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from tests.scripts.stubs import DEV


def script(name: str) -> Any:
    """A module of scripts/, as `fidelity.tracing`."""
    if str(DEV) not in sys.path:
        sys.path.append(str(DEV))
    return importlib.import_module(name)
