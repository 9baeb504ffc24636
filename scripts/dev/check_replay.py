"""Time shipped patterns and those that their traces give, in turn: the ratio of the times of their loops.

    python scripts/dev/check_replay.py [--only NAME ...] [--ranks 2] [--pairs 5] [--seconds 20] [--place DIR]

Each pattern is run small, with as many epochs as it needs for `--seconds`, once with a trace, from whose events alone
its pattern is inferred: a shorter run would not show how many saves are kept, and saves that stay take longer. Both
then run in turn. The output is a markdown table: the median of the ratios, inferred / original, the least and the
greatest, and the spread of the originals. The status is 1 if a median is beyond 0.85 to 1.15.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shlex
import statistics
import sys
import tempfile
from pathlib import Path

from check_inferred import infer
from harness import header, mpiexec, orderly, row, run

from dliosim import PATTERNS
from dliosim.language.compile import compile_pattern
from dliosim.model import Job
from dliosim.plan.forecast.forecast import loops_of

#: Ratios of times that are near enough.
_LEAST, _MOST = 0.85, 1.15
#: Epochs of the first try.
_EPOCHS = 4
CLI = (sys.executable, "-m", "dliosim.cli")
NAMES = (
    *("bert", "cosmoflow", "cosmoflow_paper", "deepcam", "default", "frnn", "megatron"),
    *("resnet50", "tf_cnn", "unet3d"),
)


def time_loops(pattern: Path, words: list[str], ranks: int, out: Path) -> float:
    """Return the seconds of the loops of a run, whose data are next to its results."""
    job = [mpiexec(), "-n", str(ranks), *CLI, "run", str(pattern), *words]
    run([*job, "--dir", str(out.parent / "data"), "--output", str(out)], 900)
    phases = json.loads((out / "results.json").read_text())["phases"]
    return sum(float(phase["seconds"]) for phase in phases if phase["kind"] in ("train", "infer"))


def lengthen(words: list[str], loop: str, epochs: int) -> list[str]:
    """Return the words of a run with other epochs of a loop."""
    values = [word for word in words if word != "-D" and not word.startswith(f"{loop}.epochs=")]
    return [word for value in [*values, f"{loop}.epochs={epochs}"] for word in ("-D", value)]


def compare(name: str, ranks: int, pairs: int, seconds: float, place: Path) -> bool:
    """Print the row of a pattern; return whether both take as long."""
    pattern, copy = PATTERNS / f"{name}.dlio", place / "inferred.dlio"
    small = re.search(r"^# small: (.*)$", pattern.read_text(), re.MULTILINE)
    words = shlex.split(small[1]) if small else []
    overrides = [tuple(word.split("=", 1)) for word in words if word != "-D"]
    loop = next(iter(loops_of(compile_pattern(pattern, overrides, Job(ranks))[0].verbs)))  # type: ignore[arg-type]
    epochs, tries, took = max(loop.epochs, _EPOCHS), 0, 0.0
    while took < seconds:  # a short run says too little of an epoch
        epochs, tries = math.ceil(1.1 * epochs * seconds / took) if took else epochs, tries + 1
        longer = lengthen(words, loop.name, epochs)
        took = time_loops(pattern, longer, ranks, place / f"try{tries}")
    time_loops(pattern, [*longer, "--trace"], ranks, place / "traced")
    copy.write_text(infer(place / "traced", ranks)[1].replace("NAME", "inferred"))
    ratios, originals = [], []
    for pair in range(pairs):
        both = [(pattern, longer), (copy, list[str]())]
        order = both if pair % 2 else both[::-1]
        taken = [time_loops(*one, ranks, place / f"{pair}-{number}") for number, one in enumerate(order)]
        original, inferred = taken if pair % 2 else taken[::-1]
        ratios.append(inferred / original)
        originals.append(original)
    middle, usual = statistics.median(ratios), statistics.median(originals)
    is_near = _LEAST <= middle <= _MOST
    spread = f"{(max(originals) - min(originals)) / usual:.1%}"
    between = f"{min(ratios):.3f} to {max(ratios):.3f}"
    row(name, epochs, f"{usual:.1f} s", f"{middle:.3f}", between, spread, "" if is_near else "**no**")
    return is_near


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=NAMES, help="names of patterns")
    parser.add_argument("--ranks", type=int, default=2, help="ranks of all runs")
    parser.add_argument("--pairs", type=int, default=5, help="runs of each")
    parser.add_argument("--seconds", type=float, default=20.0, help="that a run of the original takes at least")
    parser.add_argument("--place", type=Path, help="where runs go (default: the directory for temporary files)")
    given = parser.parse_args()
    header("pattern", "epochs", "original", "inferred / original", "from, to", "spread of originals", "")
    near = 0
    for name in given.only:
        with tempfile.TemporaryDirectory(dir=given.place) as place:
            near += compare(name, given.ranks, given.pairs, given.seconds, Path(place))
    print(f"\n{near} of {len(given.only)} take as long as their originals")
    return int(near < len(given.only))


if __name__ == "__main__":
    orderly(main)
