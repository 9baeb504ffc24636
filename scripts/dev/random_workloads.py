"""Run workloads drawn at random, on 1 to 6 ranks, and look at all that they do: each must be as it was planned.

    python scripts/dev/random_workloads.py [--seconds 3600] [--seed 1] [--keep DIR] [--place DIR]
    python scripts/dev/random_workloads.py --only SEED

A case is drawn by its seed alone (tests/mpi/drawn_patterns.py, drawn_cases.py). A pattern of data sets, loops,
checkpoints and verbs is run. Then, over the data that it leaves, come the same loops in other ways, other loops and
restores by other ranks, and loops `from files`. tests/mpi/examining.py says what must be true of each run: it ends
well, all bytes read are the right ones, figures are those that `plan` says without `~`, samples come in the order that
was planned and as often as they must, checkpoints are whole, nothing is left. Most runs go to ranks that wait for them,
some are jobs of their own.

A case that goes wrong is one line; its patterns, and all that was said, are kept in `--keep`. What a seed draws changes
with the generator and with the language. At the end comes what was covered: how often each line stood in a pattern,
with N for numbers. The status is 1 if anything went wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from time import monotonic

from harness import ROOT, header, orderly, roughly, row

sys.path.insert(0, str(ROOT))

from tests.mpi.drawn_patterns import RANKS
from tests.mpi.random_cases import Cases, Tried

#: Seconds between two lines that say how far it is.
_OFTEN = 30.0

_SHARED = Path("/dev/shm")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600, help="for how long (default: an hour)")
    parser.add_argument("--seed", type=int, default=1, help="of the first case; each next one has the next number")
    parser.add_argument("--only", type=int, metavar="SEED", help="one case")
    parser.add_argument("--keep", type=Path, default=Path("random-workloads"), help="where what goes wrong is kept")
    parser.add_argument("--place", type=Path, help="where data go (default: the directory for temporary files)")
    given = parser.parse_args()
    if given.place:
        given.place.mkdir(parents=True, exist_ok=True)
    shared = set(_SHARED.iterdir())
    tried: list[Tried] = []
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(dir=given.place) as directory:
        cases = Cases(Path(directory), given.keep, most=max(RANKS))
        try:
            for seed in [given.only] if given.only is not None else _seeds(given.seed, given.seconds, tried, wrong):
                tried.append(cases.attempt(seed))
                for problem in tried[-1].problems[:1]:
                    wrong.append(problem.splitlines()[0])
                    print(f"{wrong[-1]}    # --only {seed}, {given.keep / str(seed)}", flush=True)
        finally:
            wrong += cases.close()
    wrong += [f"{path} was left" for path in _leftover_files(shared)]
    _report(tried, cases.waiting.started, wrong)
    return 1 if wrong else 0


def _seeds(first: int, seconds: float, tried: list[Tried], wrong: list[str]) -> Iterator[int]:
    """Yield seeds one after the other until the time is up, and now and then a line that says how far it is."""
    begun = said = monotonic()
    for seed in count(first):
        now = monotonic()
        if now - begun >= seconds:
            return
        if now - said >= _OFTEN:
            said = now
            left = roughly(seconds - (now - begun))
            print(f"{len(tried)} cases, {len(wrong)} of them wrong; {left} left", file=sys.stderr, flush=True)
        yield seed


def _leftover_files(before: set[Path]) -> list[Path]:
    """Return new files in the memory that processes share, if no process has mapped them."""
    mapped = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            mapped |= {line.split(maxsplit=5)[-1] for line in maps.read_text().splitlines()}
    return [path for path in set(_SHARED.iterdir()) - before if path.is_file() and f"{path}" not in mapped]


def _report(tried: list[Tried], started: int, wrong: list[str]) -> None:
    """Print what was covered, and what went wrong."""
    features: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for one in tried:
        features += one.case.features()
        refused += one.case.refused
    header("line", "times")
    for line, times in sorted(features.items(), key=lambda item: item[0]):
        row(f"`{line}`", times)
    drawn, of_its_own = sum(one.case.tried for one in tried), sum(one.launches for one in tried)
    print(
        f"{len(tried)} cases of {sum(len(one.case.runs) for one in tried)} runs, {of_its_own} of them jobs of their own"
    )
    print(f"{started} jobs of ranks that waited; {len(features)} different lines")
    print(f"{sum(refused.values())} of {drawn} drawings refused: {dict(refused.most_common())}")
    print(f"{len(wrong)} went wrong")
    for line in wrong:
        print(f"  {line}")


if __name__ == "__main__":
    orderly(main)
