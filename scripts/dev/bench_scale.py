"""The cost of `check`, `plan` and `explain` of every shipped pattern at many ranks, as markdown rows.

    python scripts/dev/bench_scale.py [--ranks 65536] [--before CHECKOUT]

Processor seconds and peak resident memory of a process each, imports and all. With `--before` the same of the sources
in another directory stand in front.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from harness import orderly

ROOT = Path(__file__).parents[2]
COMMANDS = ("check", "plan", "explain")
START = "import sys; from dliosim.cli import main; sys.exit(main())"


def measure(sources: Path, command: str, pattern: Path, ranks: int) -> tuple[float, float, int]:
    """Run a command; return its processor seconds, peak MB and exit status."""
    arguments = [sys.executable, "-c", START, command, str(pattern), "--ranks", str(ranks)]
    environment = {**os.environ, "PYTHONPATH": str(sources)}
    null = subprocess.DEVNULL
    child = subprocess.Popen(arguments, cwd=sources, env=environment, stdout=null, stderr=null)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e6, child.returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=65_536)
    parser.add_argument("--before", type=Path, help="another checkout of dliosim")
    parsed = parser.parse_args()
    trees = [*([parsed.before.resolve()] if parsed.before else []), ROOT]
    titles = [f"{command} s, MB" for command in COMMANDS]
    heads = [f"{title} before" for title in titles] + titles if parsed.before else titles
    print(f"| pattern | {' | '.join(heads)} |\n|{'---|' * (len(heads) + 1)}")
    for pattern in sorted((ROOT / "patterns").glob("*.dlio")):
        cells = []
        for tree in trees:
            for command in COMMANDS:
                seconds, peak, status = measure(tree, command, pattern, parsed.ranks)
                refused = f", exit {status}" if status else ""
                cells.append(f"{seconds:.1f}, {peak:.0f}{refused}")
        print(f"| {pattern.stem} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    orderly(main)
