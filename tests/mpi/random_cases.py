"""Cases of `drawn_cases` run on ranks that wait for them, or each run by its command line, and what went wrong."""

from __future__ import annotations

import shutil
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

import pytest

from tests.mpi.drawn_cases import Case, Run, draw_case
from tests.mpi.examining import Examined, Hashes, looked_at, said_wrong
from tests.mpi.jobs import CLI
from tests.mpi.launch import run_ranks
from tests.mpi.waiting import Done, Ended, WaitingRanks

#: A run that takes longer has hung; seconds.
LONGEST = 90.0

#: The number of cases that are run by command lines, a job for each run.
PLAINLY = 0.03

#: One in this many runs is also read by the commands that need no MPI.
_LOOKED_AT = 4


@dataclass
class Tried:
    """A case that was run: its problems, empty where all was right, and how many jobs of its own it took."""

    case: Case
    problems: list[str] = field(default_factory=list)
    launches: int = 0
    seconds: float = 0.0


class Cases:
    """Runs cases below a directory, which holds one case at a time, on up to `most` ranks.

    What went wrong is kept in `kept`, if given. Of the cases a share of `plainly` is run by command lines.
    """

    def __init__(self, directory: Path, kept: Path | None, most: int, plainly: float = PLAINLY) -> None:
        self.waiting = WaitingRanks(most)
        self._place, self._kept, self._plainly = directory / "case", kept, plainly
        directory.mkdir(parents=True, exist_ok=True)

    def attempt(self, seed: int) -> Tried:
        """Draw the case of a seed and run it, up to the first run in which something goes wrong."""
        begun = monotonic()
        shutil.rmtree(self._place, ignore_errors=True)
        self._place.mkdir()
        tried = Tried(draw_case(seed, self._place / "drawn.dlio", self._plainly))
        hashes: Hashes = []
        for number, run in enumerate(tried.case.runs):
            pattern = self._place / f"{number}_{run.name}.dlio"
            pattern.write_text(run.text)
            try:
                found = list(self._problems(tried, run, pattern, hashes))
            except Exception:
                found = [f"examining it failed: {traceback.format_exc()}"]
            if found:
                tried.problems = [f"seed {seed}, {pattern.name} on {run.ranks} ranks: {one}" for one in found]
                self._keep(seed, tried.problems)
                break
        tried.seconds = monotonic() - begun
        return tried

    def close(self) -> list[str]:
        """End the ranks; what goes wrong when they do."""
        try:
            self.waiting.close()
        except Ended as ended:
            return [f"{ended}"]
        finally:
            shutil.rmtree(self._place, ignore_errors=True)
        return []

    def _problems(self, tried: Tried, run: Run, pattern: Path, hashes: Hashes) -> Iterator[str]:
        roots = {"data": self._place / "data"}
        if "drain to" in run.text:
            roots["drained"] = self._place / "drained"
        if "to local" in run.text:
            roots["local"] = self._place / "local"
        output = pattern.with_suffix("")
        places = ["--dir", f"{roots['data']}", "--output", f"{output}"]
        places += [word for name, path in roots.items() if name != "data" for word in ("--root", f"{name}={path}")]
        try:
            done = self._run(tried, run, ["run", f"{pattern}", *run.options, *places])
        except Ended as ended:
            yield f"{ended}"
            return
        yield from (f"left: {one}" for one in done.left)
        wrong = said_wrong(done.printed + done.said)
        if done.status or wrong:
            yield f"status {done.status}: {done.printed}{done.said}"
            return
        examined = Examined(pattern, run.ranks, roots, output)
        yield from examined.problems(kept=run.same_data)
        if run.same_data and examined.hashes() != hashes:
            yield f"the same loops in other ways: {examined.hashes()}, not {hashes}"
        hashes[:] = examined.hashes()
        if tried.case.seed % _LOOKED_AT == 0:
            yield from looked_at(pattern, run.ranks, roots, output)

    def _run(self, tried: Tried, run: Run, command: list[str]) -> Done:
        if not tried.case.plainly:
            return self.waiting.run(run.ranks, command, self._place, LONGEST)
        tried.launches += 1
        try:
            done = run_ranks(run.ranks, *CLI, *command, seconds=LONGEST, cwd=self._place)
        except pytest.fail.Exception as failure:
            raise Ended(f"{failure}") from failure
        return Done(done.returncode, done.stdout, done.stderr)

    def _keep(self, seed: int, problems: list[str]) -> None:
        if self._kept is None:
            return
        place = self._kept / f"{seed}"
        place.mkdir(parents=True, exist_ok=True)
        (place / "problems.txt").write_text("\n".join(problems) + "\n")
        for pattern in self._place.glob("[0-9]_*.dlio"):
            with suppress(OSError):
                shutil.copy(pattern, place)
