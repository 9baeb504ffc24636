"""Run the shipped patterns small with a trace, infer each from its events alone, and compare the plans.

    python scripts/dev/check_inferred.py [--ranks 1 2 3] [--only NAME ...] [--place DIR] [--alone]

With `--alone` the data are deleted first, so that nothing but the events says what they are.
A pattern is inferred if its loops have the same epochs, batch, samples, files and saves as its own, and its saves and
restores the same bytes, numbers within 2 % or, from 20 on, 1. Shares of a mixture are those that were drawn, and not
compared. A batch or epochs that are marked as a guess, and samples that follow from a batch, are not counted as wrong.
The output is a markdown table, with the values that differ, and how many are inferred, guessed and wrong; the status is
1 if one is wrong.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from harness import header, mpiexec, orderly, row, run

from dliosim import PATTERNS
from dliosim.analyze.figures.view import View
from dliosim.analyze.infer.facts import write_lines
from dliosim.analyze.infer.pattern import explain_work, infer_pattern
from dliosim.errors import DliosimError
from dliosim.language.compile import compile_pattern
from dliosim.model import Job, Workload
from dliosim.model.epoch_size import steps_of_epoch
from dliosim.plan.forecast.forecast import forecast, loops_of
from dliosim.trace.events import Trace
from dliosim.trace.file import read_trace

#: Numbers within this share of each other are the same.
_SAME = 0.02
#: Smaller numbers are the same only if they are equal.
_FEW = 20
CLI = (sys.executable, "-m", "dliosim.cli")

Values = dict[str, float]


def list_values(workload: Workload) -> Values:
    """Return the values of a workload that are compared, by what they are."""
    found: Values = {}
    for number, loop in enumerate(loops_of(workload.verbs), 1):
        data = workload.read_dataset(loop)
        steps = loop.arrivals.requests if loop.arrivals else steps_of_epoch(loop, data, workload.job.ranks)
        found |= {f"{number} epochs": loop.epochs, f"{number} steps": steps, f"{number} batch": loop.batch}
        for place, one in enumerate(sorted(data.members, key=lambda each: -each.samples) if data else (), 1):
            found |= {f"{number} samples {place}": one.samples, f"{number} files {place}": one.layout.files}
    for phase in forecast(workload).phases:
        what = "loops" if phase.verb in ("train", "evaluate", "infer") else phase.verb
        if what in ("loops", "save", "restore"):
            found[f"{what} bytes"] = found.get(f"{what} bytes", 0) + phase.bytes.total * phase.times
        if what in ("save", "restore"):
            found[f"{what} times"] = found.get(f"{what} times", 0) + phase.times
    return found


def read_calls(trace: Path) -> Trace:
    """Return the table of calls of a run alone: no names of its phases and loops, no settings."""
    read = read_trace(trace)
    view = View(read)
    calls = np.unique(read.events.name[view.operations])
    names = tuple(name if number in calls else "" for number, name in enumerate(read.events.names))
    return replace(read, events=replace(read.events, names=names), settings={}, command="")


def infer(trace: Path, ranks: int) -> tuple[Values, str, float]:
    """Return the values of the pattern that a trace tells, its text, and the least share that it explains."""
    made = infer_pattern(View(read_calls(trace / "trace.h5")))
    with tempfile.TemporaryDirectory() as aside:
        file = Path(aside, "inferred.dlio")
        file.write_text(write_lines(made.lines).replace("NAME", "inferred"))
        workload = compile_pattern(file, [], Job(ranks))[0]
        return list_values(workload), write_lines(made.lines), min(explain_work(made.work, workload).values())


def find_differences(known: Values, inferred: Values) -> list[str]:
    """Return the names of the values that differ."""
    names = dict.fromkeys([*known, *inferred])
    return [
        name
        for name in names
        if abs(known.get(name, 0) - inferred.get(name, 0))
        > max(1.0, _SAME * max(known.get(name, 0), inferred.get(name, 0)))
        or (known.get(name, 0) < _FEW and known.get(name, 0) != inferred.get(name, 0))
    ]


def judge(differ: list[str], text: str) -> str:
    """Return whether a pattern is inferred, or has marked what differs as a guess, or is wrong."""
    guesses = {head for head in ("batch", "epochs") if re.search(rf"^ *({head} .*# \?|# {head})", text, re.MULTILINE)}
    guesses |= {"samples", "files", "steps", "loops"} if "batch" in guesses else set()
    guesses |= {"restore"} if re.search(r"^ *# \?.*\n *restore ", text, re.MULTILINE) else set()
    return "inferred" if not differ else "guessed" if all({*name.split()} & guesses for name in differ) else "wrong"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 3], help="numbers of ranks")
    parser.add_argument("--only", nargs="+", help="names of patterns")
    parser.add_argument("--place", type=Path, help="where runs go (default: the directory for temporary files)")
    parser.add_argument("--alone", action="store_true", help="delete the data before their trace is read")
    given = parser.parse_args()
    counts = {"inferred": 0, "guessed": 0, "wrong": 0, "refused": 0}
    header("pattern", "ranks", "explained", "differs", "")
    for pattern in sorted(PATTERNS.glob("*.dlio")):
        if given.only and pattern.stem not in given.only:
            continue
        small = re.search(r"^# small: (.*)$", pattern.read_text(), re.MULTILINE)
        words = shlex.split(small[1]) if small else []
        for ranks in given.ranks:
            with tempfile.TemporaryDirectory(dir=given.place) as place:
                places = ["--dir", f"{place}/data", "--output", f"{place}/out"]
                run([mpiexec(), "-n", str(ranks), *CLI, "run", str(pattern), *words, "--trace", *places], 600)
                overrides = [tuple(word.split("=", 1)) for word in words if word != "-D"]
                known = list_values(compile_pattern(pattern, overrides, Job(ranks))[0])  # type: ignore[arg-type]
                if given.alone:
                    shutil.rmtree(Path(place, "data"))
                try:
                    inferred, text, explained = infer(Path(place, "out"), ranks)
                except DliosimError as error:
                    counts["refused"] += 1
                    row(pattern.stem, ranks, "", str(error).partition("/trace.h5 ")[2].partition(":")[0], "refused")
                    continue
            differ = find_differences(known, inferred)
            kind = judge(differ, text)
            counts[kind] += 1
            shown = [f"{name} {known.get(name, 0):.6g}, inferred {inferred.get(name, 0):.6g}" for name in differ]
            row(pattern.stem, ranks, f"{explained:.0%}", "; ".join(shown), kind if differ else "")
    print("\n" + ", ".join(f"{many} {kind}" for kind, many in counts.items()))
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    orderly(main)
