"""Tests of the package scripts/fidelity, which is imported from the folder scripts/."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from tests.scripts.stubs import SCRIPTS


def script(name: str) -> Any:
    """A module of scripts/, as `fidelity.tracing`."""
    if str(SCRIPTS) not in sys.path:
        sys.path.append(str(SCRIPTS))
    return importlib.import_module(name)
