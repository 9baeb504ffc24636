"""Inject faults into runs at random, for a time, and see that each ends as it must and leaves nothing wrong.

    python scripts/dev/inject_faults.py [--seconds 3600] [--seed 1] [--only SEED] [--place DIR] [--kept DIR]

Small workloads of all apis, formats, layouts, ways of reading and of saving are drawn, and run once without a fault,
while a library that is loaded first counts their calls on data (faults/inject.c). Then one of those calls fails, is
short or late, once or from then on, on one rank (faults/drawing.py), in a prepare, in one of complete data, in a loop,
in saves, in a loop that saves, or in a restore. faults/judging.py says what must hold then; where anything was written,
the whole pattern runs again without a fault.

A line for each case that does not hold names the seed of its workload, and --only repeats that one's cases. What such a
run said goes to a file in --kept. At the end come counts of the faults that were met: calls by errors, and by phase and
api. The status is 1 where something did not hold.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from faults.drawing import PHASES, Fault, Phase, draw_fault, draw_workload
from faults.judging import Complaint, judge
from faults.running import SOURCE, Done, Place
from fidelity.latency import build_library
from harness import header, orderly, row

from tests.mpi.waiting import close_all

APIS = ("posix", "mpi-independent", "mpi-collective")

#: Faults that are drawn for each phase of a workload; its dry run has to be worth its time.
_EACH = 4


@dataclass(frozen=True)
class Case:
    """A fault and what came of it; `seed` draws the workload, `number` counts its cases."""

    seed: int
    number: int
    api: str
    phase: Phase
    fault: Fault
    done: Done
    complaints: tuple[Complaint, ...]

    def __str__(self) -> str:
        hit = self.done.hit[0]
        where = f"rank {self.fault.rank}, call {self.fault.first}: {hit.title} of {hit.path}, {self.fault.title}"
        return f"seed {self.seed}.{self.number}, {self.api}, {self.phase}: {where}"


def cases(
    seed: int, directory: Path, library: Path, phases: tuple[Phase, ...] = PHASES, each: int = _EACH
) -> Iterator[Case]:
    """Draw a workload and run it with faults, one after the other; only those in which the fault was met."""
    source = random.Random(seed)
    api = APIS[seed % len(APIS)]
    place = Place(directory, draw_workload(source, api, _has_direct(directory)), library)
    if phases != ("prepare",):
        place.begin()
    number = 0
    for phase in phases:
        place.reset(phase)
        dry = place.run(place.workload.verbs(phase), watched=True)
        if dry.status:
            raise ValueError(f"{place.workload} does not run: {phase}\n{dry.text}")
        for _ in range(each):
            fault = draw_fault(source, dry.seen)
            place.reset(phase)
            before = place.files()
            done = place.run(place.workload.verbs(phase), fault)
            if done.hit:
                found = tuple(judge(place, phase, fault, done, before))
                yield Case(seed, number, api, phase, fault, done, found)
            number += 1


def _has_direct(directory: Path) -> bool:
    probe = directory / "probe"
    try:
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o644))
    except OSError:
        return False
    finally:
        with suppress(FileNotFoundError):
            probe.unlink()
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=1, help="of the first workload; the next ones count on from it")
    parser.add_argument("--only", type=int, metavar="SEED", help="the cases of one workload, and no more")
    parser.add_argument("--place", type=Path, help="where data go (default: the directory for temporary files)")
    parser.add_argument("--kept", type=Path, default=Path("injected-faults"), help="where outputs of failures go")
    given = parser.parse_args()
    end, met, failed = monotonic() + given.seconds, Counter[tuple[str, ...]](), 0
    if given.place:
        given.place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dliosim-faults-", dir=given.place) as name, ExitStack() as stack:
        stack.callback(close_all)
        library = build_library(Path(name), SOURCE)
        seed = given.only if given.only is not None else given.seed
        while monotonic() < end:
            directory = Path(name, f"{seed}")
            directory.mkdir()
            for case in cases(seed, directory, library):
                met["call", case.done.hit[0].title, case.fault.title.removesuffix(" from then on")] += 1
                met["phase", case.phase, case.api] += 1
                met["end", "continued" if case.done.status == 0 else "ended with a message"] += 1
                if case.complaints:
                    failed += 1
                    _tell(case, directory, given.kept)
                if monotonic() > end:
                    break
            shutil.rmtree(directory)
            total = sum(count for key, count in met.items() if key[0] == "end")
            print(f"seed {seed}: {total} faults met, {failed} failures", file=sys.stderr, flush=True)
            if given.only is not None:
                break
            seed += 1
    _show(met)
    print(f"\n{failed} failures")
    return 1 if failed else 0


def _tell(case: Case, directory: Path, kept: Path) -> None:
    """Print a line for a case that does not hold, and write all its output to a file."""
    words = ", ".join(each.word for each in case.complaints)
    print(f"FAILED ({words}): {case}", flush=True)
    kept.mkdir(parents=True, exist_ok=True)
    hit = "\n".join(f"!{each}" for each in case.done.hit[:5])
    pattern = (directory / "faults.dlio").read_text()
    complaints = "\n".join(f"-- {each.word}\n{each.text}" for each in case.complaints)
    head = f"{case}\nINJECT_FAULT={case.fault.arguments!r}\n{hit}\n{complaints}\n-- output\n"
    text = f"{head}{case.done.text}\n-- last pattern\n{pattern}"
    (kept / f"{case.seed}.{case.number}.txt").write_text(text)


def _show(met: Counter[tuple[str, ...]]) -> None:
    for kind, head in (("call", "call"), ("phase", "phase")):
        rows = sorted({key[1] for key in met if key[0] == kind})
        columns = sorted({key[2] for key in met if key[0] == kind})
        header(head, *columns)
        for name in rows:
            row(name, *(met[kind, name, column] or "" for column in columns))
        print()
    row(*(f"{key[1]}: {count}" for key, count in sorted(met.items()) if key[0] == "end"))


if __name__ == "__main__":
    orderly(main)
