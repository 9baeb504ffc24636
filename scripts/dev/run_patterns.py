#!/usr/bin/env python
"""Run every shipped pattern in its default size on 4 ranks, and check that it is small and that its figures agree.

    python scripts/dev/run_patterns.py [--place DIR] [NAME ...]

Prints seconds and bytes stored of each. The status is 1 where a pattern takes more than a minute, stores more than
2 GiB, or has figures that disagree (check_answers.py). About a minute for three patterns.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from time import monotonic

from check_answers import check_results
from harness import ROOT, header, mpiexec, orderly, row, run, scratch

#: What a pattern may take in its default size.
_SECONDS, _BYTES = 60.0, 2**31


def main() -> int:
    """Run the patterns that were named, or all; return the status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="*", help="patterns (default: all)")
    parser.add_argument("--place", default=".", help="directory on the file system to use")
    parsed = parser.parse_args()
    paths = [ROOT / "patterns" / f"{name}.dlio" for name in parsed.name] or sorted((ROOT / "patterns").glob("*.dlio"))
    status = 0
    header("pattern", "seconds", "MB stored", "")
    for path in paths:
        with scratch(parsed.place) as place:
            faults = _run_pattern(path, place)
        status = status or bool(faults)
    return status


def _run_pattern(path: Path, place: Path) -> list[str]:
    """Run a pattern, print its row, and return what is wrong."""
    data, output = place / "data", place / "results"
    command = [mpiexec(), "-n", "4", sys.executable, "-m", "mpi4py", "-m", "dliosim.cli", "run", str(path)]
    began = monotonic()
    run([*command, "--dir", str(data), "--output", str(output)], 10 * _SECONDS)
    seconds = monotonic() - began
    stored = sum(file.stat().st_size for file in data.rglob("*") if file.is_file())
    results = json.loads((output / "results.json").read_text())
    faults = [fault for _, found in check_results(results) for fault in found]
    faults += [f"more than {_SECONDS:.0f} s"] if seconds > _SECONDS else []
    faults += ["more than 1 GiB"] if stored > _BYTES else []
    row(path.stem, f"{seconds:.1f}", f"{stored / 1e6:.0f}", "; ".join(faults) or "agrees")
    return faults


if __name__ == "__main__":
    orderly(main)
