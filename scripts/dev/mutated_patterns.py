"""Mutate patterns at random and look at them by `check`, `explain`, `plan` and `plan --csv`: each answers or refuses.

    python scripts/dev/mutated_patterns.py [--seconds 3600] [--seed 1] [--keep DIR] [--place DIR]
    python scripts/dev/mutated_patterns.py --only SEED

The shipped patterns and the blocks of the manual are mutated by a seed (mutants/drawing.py): lines and words deleted,
swapped, doubled or taken from each other; numbers, units, distributions and expressions of any magnitude; nesting;
letters of all kinds; 1 to 65,536 ranks. Each command is a process (mutants/trying.py) and may take 5 s of processor and
1 GB of resident memory. It ends with status 0, 1 or 2; never with a traceback, nor by a signal. What is printed has no
NaN, infinity or negative size. A refusal names a line and a reason, and all commands agree about it. What `explain`
prints is the same workload.

A case that goes wrong is one line; its pattern, and all that was said, are kept in `--keep`. At the end come the
causes, and how often each was met. The status is 1 if anything went wrong.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from time import monotonic

from harness import ROOT, header, orderly, roughly, row

sys.path.insert(0, str(ROOT))

from mutants.drawing import PATTERNS, Mutant, draw
from mutants.trying import Done, attempt, faults, warm

from dliosim.language.source import MAX_BYTES

#: Seconds between two lines that say how far it is.
_OFTEN = 30.0


@dataclass(frozen=True)
class Tried:
    """A mutant, what the commands said about it, and what is wrong with that."""

    mutant: Mutant
    done: tuple[Done, ...]
    wrong: tuple[str, ...]


class Tries:
    """A folder with what patterns include and extend, in which mutants are looked at."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._empty = place / "data"
        self._empty.mkdir()
        for path in PATTERNS.iterdir():
            (shutil.copytree if path.is_dir() else shutil.copy)(path, place / path.name)
        warm(place / "cosmoflow.dlio")

    def try_mutant(self, mutant: Mutant) -> Tried:
        """Give a mutant to each command in turn, until one does not end as it must."""
        path = self._place / "mutant.dlio"
        path.write_bytes(mutant.text.encode(errors="surrogatepass"))
        job = ["--ranks", f"{mutant.ranks}", "--nodes", f"{mutant.nodes}", "--dir", str(self._empty)]
        listed = ["--csv", "--rank", f"{mutant.rank}", "--epoch", f"{mutant.epoch + 1}"]
        done: list[Done] = []
        wrong: list[str] = []
        for command, more in (("check", []), ("explain", []), ("plan", []), ("plan", listed)):
            if done and done[0].status and mutant.seed % 3 != len(done) - 1:
                continue  # they refuse it in the same way: one of them, by turns, shows that
            done.append(attempt([command, str(path), *job, *more], self._place / "errors"))
            wrong += faults(done[-1])
            if wrong:
                break
            if done[-1].command != "plan --csv" and done[-1].status != done[0].status:
                wrong.append(f"{done[-1].command}: status {done[-1].status}, but that of check is {done[0].status}")
            if done[-1].command == "explain" and done[-1].status == 0 and len(done[-1].out) < MAX_BYTES:
                wrong += self._again(done[0].out, done[-1].out, job)
        return Tried(mutant, tuple(done), tuple(wrong))

    def _again(self, checked: str, explained: str, job: list[str]) -> Iterator[str]:
        """Yield complaints unless `explain` prints a pattern with the same digest."""
        path = self._place / "explained.dlio"
        path.write_text(explained, encoding="utf-8")
        again = attempt(["check", str(path), *job], self._place / "errors")
        if again.status:
            reason = again.err.splitlines()[0] if again.err else ""
            yield f"explain: what it prints is refused: {re.sub('[0-9]+', 'N', reason)[:80]}"
        elif _digest(again.out) != _digest(checked):
            yield "explain: what it prints is another workload"


def _digest(checked: str) -> str:
    found = re.search(r"digest (\w+) on", checked)
    return found[1] if found else checked


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600, help="for how long (default: an hour)")
    parser.add_argument("--seed", type=int, default=1, help="of the first case; each next one has the next number")
    parser.add_argument("--only", type=int, metavar="SEED", help="one case, with all that is said about it")
    parser.add_argument("--keep", type=Path, default=Path("mutated-patterns"), help="where what goes wrong is kept")
    parser.add_argument("--place", type=Path, help="where patterns are (default: the directory for temporary files)")
    given = parser.parse_args()
    ends: Counter[tuple[str, int]] = Counter()
    causes: dict[str, list[int]] = {}
    number = 0
    if given.place:
        given.place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dliosim-mutants-", dir=given.place) as directory:
        tries = Tries(Path(directory))
        for seed in [given.only] if given.only is not None else _seeds(given.seed, given.seconds, causes):
            tried = tries.try_mutant(draw(seed))
            number += 1
            ends.update((each.command, each.status) for each in tried.done)
            for cause in tried.wrong:
                causes.setdefault(cause, []).append(seed)
            if tried.wrong:
                _keep(tried, given.keep)
                print(f"{tried.wrong[0]}    # --only {seed}, {given.keep / str(seed)}", flush=True)
            if given.only is not None:
                print(_case_text(tried))
    _report(number, ends, causes)
    return 1 if causes else 0


def _seeds(first: int, seconds: float, causes: dict[str, list[int]]) -> Iterator[int]:
    """Yield seeds one after the other until the time is up, and now and then a line that says how far it is."""
    begun = said = monotonic()
    for seed in count(first):
        now = monotonic()
        if now - begun >= seconds:
            return
        if now - said >= _OFTEN:
            said = now
            wrong, left = sum(map(len, causes.values())), roughly(seconds - (now - begun))
            print(f"{seed - first} cases, {wrong} of them wrong; {left} left", file=sys.stderr, flush=True)
        yield seed


def _case_text(tried: Tried) -> str:
    """Return all that is known of a case."""
    mutant = tried.mutant
    head = f"# seed {mutant.seed}, {mutant.source}, {mutant.ranks} ranks on {mutant.nodes} nodes; rank {mutant.rank}"
    parts = [f"{head}, epoch {mutant.epoch + 1}", *(f"# {cause}" for cause in tried.wrong)]
    for done in tried.done:
        parts.append(f"# {done.command}: status {done.status}, {done.seconds:.2f} s, {done.resident / 1e6:.0f} MB")
        parts += [done.out[:20_000], done.err[:20_000]]
    return "\n".join(parts)


def _keep(tried: Tried, keep: Path) -> None:
    place = keep / str(tried.mutant.seed)
    place.mkdir(parents=True, exist_ok=True)
    (place / "mutant.dlio").write_bytes(tried.mutant.text.encode(errors="surrogatepass"))
    (place / "case.txt").write_text(_case_text(tried), encoding="utf-8")


def _report(number: int, ends: Counter[tuple[str, int]], causes: dict[str, list[int]]) -> None:
    """Print how the commands ended, and what went wrong, the most frequent first."""
    statuses = sorted({status for _, status in ends})
    header("command", *(f"status {status}" for status in statuses))
    for command in dict.fromkeys(command for command, _ in ends):
        row(f"`{command}`", *(ends[command, status] for status in statuses))
    wrong = sum(map(len, causes.values()))
    print(f"{number} cases, {sum(ends.values())} commands; {wrong} went wrong, of {len(causes)} causes")
    for cause, seeds in sorted(causes.items(), key=lambda item: -len(item[1])):
        print(f"  {len(seeds)} times, as --only {seeds[0]}: {cause}")


if __name__ == "__main__":
    orderly(main)
