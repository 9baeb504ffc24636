"""Try the backend that docs/dev/contributing.md adds, in a copy of the package; print what `check` and `run` say."""

from __future__ import annotations

import sys
from pathlib import Path

from dliosim.cli import main
from dliosim.execute.backends.registry import backend_names, backend_of
from dliosim.execute.testing.backend_contract import check_backend

PATTERN = """dlio 1
workload w
dataset d {
    samples 64
    size    4 KiB
    path    "d"
}
prepare d {
    api advised
}
train {
    read  d
    batch 8 per rank
    open  once
    api   advised
}
"""


if __name__ == "__main__":
    place = Path(sys.argv[1])
    print(*backend_names())
    check_backend(backend_of("advised"), place)
    pattern = place / "pattern.dlio"
    pattern.write_text(PATTERN)
    for command in ("check", "run"):
        output = ["--output", str(place / "out"), "--verify"] if command == "run" else []
        assert main([command, str(pattern), "--dir", str(place / "data"), *output]) == 0
