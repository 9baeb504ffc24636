"""Libraries of scripts/ that programs load first, built for a test."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.scripts.fidelity import script


def built(place: Path, source: Path) -> Path:
    """The library, compiled into `place`; where it cannot be the test is skipped, unless the environment says CI."""
    if os.environ.get("CI") != "true" and (shutil.which("cc") is None or sys.platform != "linux"):
        pytest.skip("no C compiler, or another system's loader")
    library: Path = script("fidelity.latency").build_library(place, source)
    return library
