"""Time shipped patterns and those that their traces give, in turn: the ratio of the times of their loops.

    python scripts/dev/check_replay.py [--only NAME ...] [--ranks 2] [--pairs 5] [--seconds 20] [--place DIR]

Each pattern is run small with a trace, and its pattern is inferred from the events alone. Both then run with as many
epochs as the original needs for `--seconds`, in turn. The output is a markdown table: the median of the ratios,
inferred / original, the least and the greatest, and the spread of the originals. The status is 1 if a
median is beyond 0.85 to 1.15.
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
CLI = (sys.executable, "-m", "dliosim.cli")
NAMES = (
    *("bert", "cosmoflow", "cosmoflow_paper", "deepcam", "default", "frnn", "megatron"),
    *("resnet50", "tf_cnn", "unet3d"),
)


def time_loops(pattern: Path, words: list[str], ranks: int, place: Path) -> float:
    """Return the seconds of the loops of a run."""
    out = Path(tempfile.mkdtemp(dir=place)) / "out"
    run(
        [
            mpiexec(),
            "-n",
            str(ranks),
            *CLI,
            "run",
            str(pattern),
            *words,
            "--dir",
            f"{place}/data",
            "--output",
            str(out),
        ],
        900,
    )
    phases = json.loads((out / "results.json").read_text())["phases"]
    return sum(float(phase["seconds"]) for phase in phases if phase["kind"] in ("train", "infer"))


def compare(name: str, ranks: int, pairs: int, seconds: float, place: Path) -> bool:
    """Print the row of a pattern; return whether both take as long."""
    pattern = PATTERNS / f"{name}.dlio"
    small = re.search(r"^# small: (.*)$", pattern.read_text(), re.MULTILINE)
    words = shlex.split(small[1]) if small else []
    run(
        [
            mpiexec(),
            "-n",
            str(ranks),
            *CLI,
            "run",
            str(pattern),
            *words,
            "--trace",
            "--dir",
            f"{place}/data",
            "--output",
            f"{place}/traced",
        ],
        900,
    )
    _, text, _ = infer(place / "traced", ranks)
    overrides = [tuple(word.split("=", 1)) for word in words if word != "-D"]
    loop = next(iter(loops_of(compile_pattern(pattern, overrides, Job(ranks))[0].verbs)))  # type: ignore[arg-type]
    epoch = time_loops(pattern, words, ranks, place) / loop.epochs
    epochs = max(math.ceil(seconds / epoch), 1)
    copy = place / "inferred.dlio"
    copy.write_text(re.sub(r"(?m)^(    epochs +)\d+", rf"\g<1>{epochs}", text.replace("NAME", "inferred"), count=1))
    values = [word for word in words if word != "-D" and not word.startswith(f"{loop.name}.epochs=")]
    longer = [word for value in [*values, f"{loop.name}.epochs={epochs}"] for word in ("-D", value)]
    times: list[tuple[float, float]] = []
    for pair in range(pairs):
        both = [(pattern, longer), (copy, [])]
        taken = [time_loops(*one, ranks, place) for one in (both if pair % 2 else both[::-1])]
        original, inferred = taken if pair % 2 else taken[::-1]
        times.append((original, inferred))
    ratios = [inferred / original for original, inferred in times]
    originals = [original for original, _ in times]
    middle = statistics.median(ratios)
    is_near = _LEAST <= middle <= _MOST
    spread = (max(originals) - min(originals)) / statistics.median(originals)
    row(
        name,
        epochs,
        f"{statistics.median(originals):.1f} s",
        f"{middle:.3f}",
        f"{min(ratios):.3f} to {max(ratios):.3f}",
        f"{spread:.1%}",
        "" if is_near else "**no**",
    )
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
