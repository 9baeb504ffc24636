"""Real data loaders and dliosim side by side: the system calls of both, and the time of an epoch at added latencies.

    python scripts/compare_loaders.py trace --python LOADERS_PYTHON [--cases torch-raw npz] [--calls 40]
    python scripts/compare_loaders.py time --python LOADERS_PYTHON [--cases torch-raw] [--compute 0.005]

LOADERS_PYTHON has numpy, h5py, torch and tensorflow. A case is a loader over data that its own library wrote. Where
scripts/fidelity/patterns/ has a pattern of the case's name, dliosim runs it with the same samples, sizes, batch and
compute, and is held against the loader. `trace` prints markdown of what was called, `time` a row for each latency.
docs/fidelity.md has what they showed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fidelity.compare import batches, begun, profile
from fidelity.latency import LATENCIES, built, slowed
from fidelity.tables import alone, sequence, side_by_side
from fidelity.tracing import READS, Record, parse, strace
from harness import header, orderly, row, run, scratch

_HERE: Final = Path(__file__).with_name("fidelity")
_KIB: Final = 1 << 10


@dataclass(frozen=True, slots=True)
class Case:
    """A loader of loaders.py over data of a kind of making.py; `size` in bytes, `files` of tfrecord only."""

    name: str
    loader: str
    kind: str
    samples: int
    size: int
    files: int = 4

    @property
    def per_file(self) -> bool:
        """Whether each sample is a file."""
        return self.kind in ("raw", "npz")

    @property
    def pattern(self) -> Path:
        """What dliosim runs beside it, if that is there."""
        return _HERE / "patterns" / f"{self.name}.dlio"


CASES: Final = (
    Case("raw", "raw", "raw", 64, 256 * _KIB),
    Case("npz", "npz", "npz", 64, 256 * _KIB),
    Case("hdf5", "hdf5", "hdf5", 256, 64 * _KIB),
    Case("hdf5-chunked", "hdf5", "hdf5-chunked", 256, 64 * _KIB),
    Case("tfrecord", "tfrecord", "tfrecord", 256, 64 * _KIB),
    Case("torch-raw", "torch-raw", "raw", 64, 256 * _KIB),
    Case("torch-raw-persistent", "torch-raw-persistent", "raw", 64, 256 * _KIB),
    Case("torch-npz", "torch-npz", "npz", 64, 256 * _KIB),
    Case("torch-hdf5", "torch-hdf5", "hdf5", 256, 64 * _KIB),
    Case("torch-hdf5-chunked", "torch-hdf5", "hdf5-chunked", 256, 64 * _KIB),
)


@dataclass(frozen=True, slots=True)
class Steps:
    """What both are asked for: samples of a step, seconds of computing in each, passes."""

    batch: int
    compute: float
    epochs: int


class Real:
    """A case's loader over its data, which are made first."""

    def __init__(self, case: Case, python: str, place: Path) -> None:
        self.data = place / "real"
        self._case, self._python = case, python
        sizes = ["--samples", str(case.samples), "--size", str(case.size), "--files", str(case.files)]
        run([python, str(_HERE / "making.py"), case.kind, str(self.data), *sizes], 300)

    def command(self, steps: Steps) -> list[str]:
        """What runs it."""
        asked = ["--batch", str(steps.batch), "--compute", str(steps.compute), "--epochs", str(steps.epochs)]
        return [self._python, str(_HERE / "loaders.py"), self._case.loader, str(self.data), *asked]

    def epochs(self, steps: Steps, extra: dict[str, str]) -> list[tuple[float, float]]:
        """Of each epoch its seconds, and those of them until its first batch."""
        printed = json.loads(run(self.command(steps), 300, extra).splitlines()[-1])
        return [(float(epoch["seconds"]), float(epoch["first"])) for epoch in printed]


class Tool:
    """dliosim with a case's pattern, whose data are prepared first."""

    def __init__(self, case: Case, place: Path) -> None:
        self.data, self._out = place / "tool", place / "out"
        self._case = case
        run(self.command(Steps(1, 0.0, 1)), 300)

    def command(self, steps: Steps) -> list[str]:
        """What runs it, as one rank without a launcher."""
        shutil.rmtree(self._out, ignore_errors=True)
        wanted = {
            "samples": self._case.samples,
            "size": f"{self._case.size} B",
            "batch": steps.batch,
            "compute": f"{round(steps.compute * 1e6)} us",
            "epochs": steps.epochs,
        }
        overrides = [word for name, value in wanted.items() for word in ("-D", f"{name}={value}")]
        program = [sys.executable, "-m", "dliosim.cli", "run", str(self._case.pattern)]
        return [*program, *overrides, "--dir", str(self.data), "--output", str(self._out)]

    def seconds(self, steps: Steps, extra: dict[str, str]) -> list[float]:
        """Of each epoch."""
        run(self.command(steps), 300, extra)
        results: dict[str, Any] = json.loads((self._out / "results.json").read_text())
        (loop,) = [phase for phase in results["phases"] if phase["kind"] == "train"]
        return [float(epoch["seconds"]) for epoch in loop["epochs"]]


def seen(command: Sequence[str], data: Path, log: Path, extra: dict[str, str]) -> list[Record]:
    """What a command does to `data` by the threads that read samples; not the tool's looks at its manifests."""
    run(strace(command, log), 300, extra)
    with log.open(errors="replace") as lines:
        records = [record for record in parse(lines, data) if not record.file.endswith("manifest.json")]
    readers = {record.pid for record in records if record.call in READS}
    return [record for record in records if record.pid in readers]


def show(who: str, records: Sequence[Record], steps: Steps, per_file: bool, calls: int) -> None:
    """Print what one of the two did; who read which batch where each sample is a file (`per_file`)."""
    print(f"\n{who}, first {calls} calls:\n")
    print("\n".join(sequence(records[:calls])))
    if per_file:
        print(f"\nbatches of each thread: {list(batches(records, steps.batch).values())}")
        if steps.compute:
            print(f"batches begun at the start, and in each step after: {begun(records, steps.batch, steps.compute)}")


def trace_case(case: Case, python: str, place: Path, steps: Steps, added: float, calls: int) -> None:
    """Print what a case's loader does, and dliosim beside it where there is a pattern."""
    print(f"\n## {case.name}: {case.samples} samples of {case.size} bytes, {added * 1e3:g} ms added to each read")
    library = built(place)
    real = Real(case, python, place)
    of_real = seen(real.command(steps), real.data, place / "real.log", slowed(library, real.data, added))
    show("real", of_real, steps, case.per_file, calls)
    print()
    if not case.pattern.exists():
        print("\n".join(alone(profile(of_real))))
        return
    tool = Tool(case, place)
    of_tool = seen(tool.command(steps), tool.data, place / "tool.log", slowed(library, tool.data, added))
    show("tool", of_tool, steps, case.per_file, calls)
    print()
    print("\n".join(side_by_side(profile(of_real), profile(of_tool))))


def time_case(case: Case, python: str, place: Path, steps: Steps, at_end: bool) -> None:
    """Print the median time of an epoch of both at each latency, without the first epoch of each process."""
    library = built(place)
    real = Real(case, python, place)
    tool = Tool(case, place) if case.pattern.exists() else None
    for added in (0.0, *LATENCIES):
        last = added if at_end else 0.0
        epochs = real.epochs(steps, slowed(library, real.data, added, last))[1:]
        of_real = [seconds for seconds, _ in epochs]
        first = statistics.median(until for _, until in epochs)
        cells = [case.name, f"{added * 1e3:g}", f"{steps.compute * 1e3:g}", _middle(of_real), f"{first * 1e3:.1f}"]
        if tool is not None:
            of_tool = tool.seconds(steps, slowed(library, tool.data, added, last))[1:]
            ratio = statistics.median(of_tool) / statistics.median(of_real)
            cells += [_middle(of_tool), f"{100 * (ratio - 1):+.1f} %"]
        row(*cells)


def _middle(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds) * 1e3:.1f} ({min(seconds) * 1e3:.1f} to {max(seconds) * 1e3:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["trace", "time"])
    parser.add_argument("--python", default=sys.executable, help="the Python that has the loaders' libraries")
    parser.add_argument("--cases", nargs="+", default=[case.name for case in CASES], choices=[c.name for c in CASES])
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--compute", type=float, default=0.0, help="seconds of a step")
    parser.add_argument("--epochs", type=int, default=4, help="`time`: epochs of each process, the first not counted")
    parser.add_argument("--samples", type=int, help="other than the case's own")
    parser.add_argument("--added", type=float, default=0.0, help="`trace`: seconds added to each read")
    parser.add_argument("--at-end", action="store_true", help="`time`: reads that find the end of a file, too")
    parser.add_argument("--calls", type=int, default=40, help="`trace`: how many calls are listed")
    parser.add_argument("--place", default="/dev/shm", help="where data go for a while")
    options = parser.parse_args()
    if options.what == "trace" and shutil.which("strace") is None:
        sys.exit("no strace on the path: Debian's package is called strace")
    if options.what == "time":
        header(
            "case",
            "added ms",
            "compute ms",
            "real epoch ms",
            "of it to the first batch",
            "tool epoch ms",
            "tool - real",
        )
    for case in (case for case in CASES if case.name in options.cases):
        if options.samples:
            case = Case(case.name, case.loader, case.kind, options.samples, case.size, case.files)
        with scratch(options.place) as place:
            if options.what == "time":
                steps = Steps(options.batch, options.compute, options.epochs)
                time_case(case, options.python, place.resolve(), steps, options.at_end)
            else:
                steps = Steps(options.batch, options.compute, 1)
                trace_case(case, options.python, place.resolve(), steps, options.added, options.calls)


if __name__ == "__main__":
    orderly(main)
