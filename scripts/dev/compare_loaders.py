"""Real data loaders and dliosim side by side: the system calls of both, and the time of an epoch at added latencies.

    python scripts/dev/compare_loaders.py trace --python LOADERS_PYTHON [--cases torch-raw npz] [--calls 40]
    python scripts/dev/compare_loaders.py similarity --python LOADERS_PYTHON [--added 0.001]
    python scripts/dev/compare_loaders.py time --python LOADERS_PYTHON [--cases npz] [--compute 5e-3] [--calibrate]
    python scripts/dev/compare_loaders.py rates --python LOADERS_PYTHON --cases processes-npz processes-gzip
    python scripts/dev/compare_loaders.py costs --python LOADERS_PYTHON

LOADERS_PYTHON has numpy, h5py, torch and tensorflow. A case is a loader. Where fidelity/patterns/ has a pattern
with the case's name, dliosim runs it with the same files, batch and compute. `trace` prints markdown of the calls,
`similarity` a row of that for each case, `time` a row for each latency, `rates` one for each number of workers. `costs`
prints the costs of a DataLoader without reading, which the patterns have as parameters.
docs/evidence/fidelity.md has the results.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from fidelity.compare import batches, bursts, count_batch_starts, profile
from fidelity.costs import Costs, dataloader
from fidelity.latency import LATENCIES, build_library, delay_variables
from fidelity.tables import SIMILARITY_HEAD, alone, sequence, side_by_side, similarity_cells
from fidelity.tracing import READS, Record, parse, strace
from harness import header, middle, orderly, row, run, scratch

_HERE: Final = Path(__file__).with_name("fidelity")
_KIB: Final = 1 << 10


@dataclass(frozen=True, slots=True)
class Case:
    """A loader of loaders.py over data of a kind of making.py; `size` in bytes, `files` of tfrecord only.

    There are `timed` times as many samples where epochs are timed.

    dliosim prepares the files that both read, if it has a pattern. Where `found`, the kind's library makes them, and
    the pattern names them (`from files`).
    """

    name: str
    loader: str
    kind: str
    samples: int
    size: int
    files: int = 4
    found: bool = False
    timed: int = 1

    @property
    def per_file(self) -> bool:
        """Return whether each sample is a file."""
        return self.kind in ("raw", "npz")

    @property
    def pattern(self) -> Path:
        """Pattern that dliosim runs for it, if there is one."""
        return _HERE / "patterns" / f"{self.name}.dlio"


#: Workers of `rates`.
WORKERS: Final = (1, 2, 4)

#: Processor seconds that a rank takes for a step of reader processes, without `compute`: 0.39 to 0.55 ms, measured on
#: two cores of an AMD EPYC for batches of 4 by /proc/PID/stat.
_RANK_STEP: Final = 0.45e-3

#: Records of this many bytes of image are 64 KiB in a file, so that batches of 4 are the 256 KiB that tf.data reads.
_RECORD: Final = 64 * _KIB - 80

CASES: Final = (
    Case("raw", "raw", "raw", 64, 256 * _KIB, timed=4),
    Case("npz", "npz", "npz", 64, 256 * _KIB, timed=2),
    Case("hdf5", "hdf5", "hdf5", 256, 64 * _KIB),
    Case("hdf5-chunked", "hdf5", "hdf5-chunked", 256, 64 * _KIB),
    Case("tfrecord", "tfrecord", "tfrecord", 256, _RECORD),
    Case("tfrecord-found", "tfrecord", "tfrecord", 256, 64 * _KIB, found=True),
    Case("torch-raw", "torch-raw", "raw", 64, 256 * _KIB, timed=4),
    Case("torch-raw-persistent", "torch-raw-persistent", "raw", 64, 256 * _KIB, timed=4),
    Case("torch-npz", "torch-npz", "npz", 64, 256 * _KIB, timed=4),
    Case("torch-npz-found", "torch-npz", "npz", 64, 256 * _KIB, found=True, timed=4),
    Case("torch-hdf5", "torch-hdf5", "hdf5", 256, 64 * _KIB, timed=2),
    Case("torch-hdf5-chunked", "torch-hdf5", "hdf5-chunked", 256, 64 * _KIB, timed=2),
    Case("torch-hdf5-found", "torch-hdf5", "hdf5", 256, 64 * _KIB, found=True, timed=2),
    Case("processes-npz", "torch-npz-persistent", "npz", 64, 256 * _KIB, timed=8),
    Case("processes-gzip", "torch-hdf5-persistent", "hdf5", 256, 256 * _KIB, timed=2),
)


@dataclass(frozen=True, slots=True)
class Steps:
    """The work that both are asked for: samples of a step, seconds of computing in each, passes."""

    batch: int
    compute: float
    epochs: int
    given: tuple[tuple[str, str], ...] = ()
    """Other parameters of dliosim's patterns."""
    workers: int = 2


class Real:
    """A case's loader over the files in `data`."""

    def __init__(self, case: Case, python: str, data: Path) -> None:
        self.data = data
        self._case, self._python = case, python

    def command(self, steps: Steps) -> list[str]:
        """Return the command line."""
        asked = ["--batch", str(steps.batch), "--compute", str(steps.compute), "--epochs", str(steps.epochs)]
        asked += ["--workers", str(steps.workers)]
        return [self._python, str(_HERE / "loaders.py"), self._case.loader, str(self.data), *asked]

    def figures(self, steps: Steps, extra: dict[str, str]) -> list[dict[str, float]]:
        """Return the figures of each epoch."""
        printed: list[dict[str, float]] = json.loads(run(self.command(steps), 300, extra).splitlines()[-1])
        return printed


class Tool:
    """dliosim with a case's pattern and data below `place`."""

    def __init__(self, case: Case, place: Path) -> None:
        self._place, self._out = place, place / "out"
        self._case = case

    def command(self, steps: Steps) -> list[str]:
        """Return the command line, for one rank without a launcher."""
        shutil.rmtree(self._out, ignore_errors=True)
        wanted = {
            "samples": self._case.samples,
            "size": f"{self._case.size} B",
            "batch": steps.batch,
            "compute": f"{round(steps.compute * 1e6)} us",
            "epochs": steps.epochs,
            **({"processes": steps.workers} if self._case.name.startswith("processes") else {}),
            **dict(steps.given),
        }
        overrides = [word for name, value in wanted.items() for word in ("-D", f"{name}={value}")]
        program = [sys.executable, "-m", "dliosim.cli", "run", str(self._case.pattern)]
        return [*program, *overrides, "--dir", str(self._place), "--output", str(self._out)]

    def seconds(self, steps: Steps, extra: dict[str, str]) -> list[float]:
        """Return the seconds of each epoch."""
        run(self.command(steps), 300, extra)
        results: dict[str, Any] = json.loads((self._out / "results.json").read_text())
        (loop,) = [phase for phase in results["phases"] if phase["kind"] == "train"]
        return [float(epoch["seconds"]) for epoch in loop["epochs"]]


def both(case: Case, python: str, place: Path) -> tuple[Real, Tool | None]:
    """Return the two over the same files, which are made first."""
    tool = Tool(case, place) if case.pattern.exists() else None
    if tool is not None and not case.found:
        run(tool.command(Steps(1, 0.0, 1)), 300)
        (data,) = (place / "data").iterdir()
        return Real(case, python, data), tool
    sizes = ["--samples", str(case.samples), "--size", str(case.size), "--files", str(case.files)]
    run([python, str(_HERE / "making.py"), case.kind, str(place / "data"), *sizes], 300)
    return Real(case, python, place / "data"), tool


def trace_calls(command: Sequence[str], data: Path, log: Path, extra: dict[str, str]) -> tuple[list[Record], int]:
    """Return a command's calls on `data` by the threads that read samples, and the other reads of its first thread.

    The first thread reads samples where no other does. Else it has looked at what the files are: a data set in the
    main process that asks for its length, or the tool at the index of files. Manifests and sidecars do not count.
    """
    run(strace(command, log), 300, extra)
    with log.open(errors="replace") as lines:
        first = int(next(lines).split()[0])
    with log.open(errors="replace") as lines:
        records = [record for record in parse(lines, data) if not record.file.endswith((".json", ".index"))]
    readers = {record.pid for record in records if record.call in READS}
    if len(readers) > 1:
        readers.discard(first)
    others = sum(record.call in READS and record.pid not in readers for record in records)
    return [record for record in records if record.pid in readers], others


def show(who: str, records: Sequence[Record], steps: Steps, per_file: bool, calls: int) -> None:
    """Print what one of the two did; who read which batch where each sample is a file (`per_file`)."""
    print(f"\n{who}, first {calls} calls:\n")
    print("\n".join(sequence(records[:calls])))
    if per_file:
        print(f"\nbatches of each thread: {list(batches(records, steps.batch).values())}")
        if steps.compute:
            begun = count_batch_starts(records, steps.batch, steps.compute)
            print(f"batches begun at the start, and in each step after: {begun}")
    elif steps.compute:
        starts = [record.start for record in records if record.call in READS]
        print(f"\nreads begun at the start, and in each step after: {bursts(starts, steps.compute / 2)}")


def trace_case(case: Case, python: str, place: Path, steps: Steps, added: float, calls: int) -> None:
    """Print the calls of a case's loader, and those of dliosim where there is a pattern."""
    print(f"\n## {case.name}: {case.samples} samples of {case.size} bytes, {added * 1e3:g} ms added to each read")
    library = build_library(place)
    real, tool = both(case, python, place)
    extra = delay_variables(library, real.data, added)
    of_real, _ = trace_calls(real.command(steps), real.data, place / "real.log", extra)
    show("real", of_real, steps, case.per_file, calls)
    print()
    if tool is None:
        print("\n".join(alone(profile(of_real))))
        return
    of_tool, _ = trace_calls(tool.command(steps), real.data, place / "tool.log", extra)
    show("tool", of_tool, steps, case.per_file, calls)
    print()
    print("\n".join(side_by_side(profile(of_real), profile(of_tool))))


def similarity_case(case: Case, python: str, place: Path, steps: Steps, added: float) -> None:
    """Print a row with the similarity of a case's two programs."""
    library = build_library(place)
    real, tool = both(case, python, place)
    if tool is None:
        return
    extra = delay_variables(library, real.data, added)
    of_real, real_others = trace_calls(real.command(steps), real.data, place / "real.log", extra)
    of_tool, tool_others = trace_calls(tool.command(steps), real.data, place / "tool.log", extra)
    row(case.name, *similarity_cells(profile(of_real), profile(of_tool)), f"{real_others} / {tool_others}")


def time_case(case: Case, python: str, place: Path, steps: Steps, at_end: bool, rounds: int) -> None:
    """Print the median time of an epoch of both at each latency, without the first epoch of each process.

    The two run in turn, `rounds` times, so that what else the machine does is shared by both.
    """
    library = build_library(place)
    real, tool = both(case, python, place)
    for added in (0.0, *LATENCIES):
        extra = delay_variables(library, real.data, added, added if at_end else 0.0)
        of_real: list[float] = []
        first: list[float] = []
        of_tool: list[float] = []
        for _ in range(rounds):
            for epoch in real.figures(steps, extra)[1:]:
                of_real.append(epoch["seconds"])
                first.append(epoch["first"])
            if tool is not None:
                of_tool += tool.seconds(steps, extra)[1:]
        cells = [
            case.name,
            f"{added * 1e3:g}",
            f"{steps.compute * 1e3:g}",
            middle(of_real, 1, 1e3),
            middle(first, 1, 1e3),
        ]
        if of_tool:
            ratio = statistics.median(of_tool) / statistics.median(of_real)
            cells += [middle(of_tool, 1, 1e3), f"{100 * (ratio - 1):+.1f} %"]
        row(*cells)


def rate_case(case: Case, python: str, place: Path, steps: Steps, rounds: int) -> None:
    """Print the samples/s of both with 1, 2 and 4 workers: medians of `rounds` pairs in turn, without first epochs.

    Pairs with one worker give the costs in the pattern first: `collate` is by how much a sample takes the loader's
    worker longer than dliosim's process, `hand_over` the processor time of its main process in a step, less a rank's. A
    pair's ratio is that of the medians of its epochs.
    """
    real, tool = both(case, python, place)
    assert tool is not None

    def run_pair(pair: int, given: tuple[tuple[str, str], ...], workers: int) -> tuple[float, float, float]:
        """Return the seconds of an epoch of both, and the processor seconds of a step in the loader's main process."""
        asked, mine, theirs = replace(steps, workers=workers, given=given), list[float](), list[dict[str, float]]()
        for is_tool in (True, False) if pair % 2 else (False, True):
            if is_tool:
                mine = tool.seconds(asked, {})[1:]
            else:
                theirs = real.figures(asked, {})[1:]
        a_step = statistics.median(epoch["busy"] / epoch["steps"] for epoch in theirs)
        return statistics.median(mine), statistics.median(epoch["seconds"] for epoch in theirs), a_step

    free = (("collate", "0 s"), ("hand_over", "0 s"))
    alone = [run_pair(pair, free, 1) for pair in range(rounds)]
    a_sample = statistics.median(theirs - mine for mine, theirs, _ in alone) / case.samples
    a_step = statistics.median(busy for _, _, busy in alone) - _RANK_STEP
    costs = {"collate": a_sample, "hand_over": a_step}
    given = tuple((name, f"{max(0, round(cost * 1e6))} us") for name, cost in costs.items())
    for workers in WORKERS:
        pairs = [run_pair(pair, given, workers) for pair in range(rounds)]
        loader, dliosim = ([case.samples / pair[one] for pair in pairs] for one in (1, 0))
        ratios = [theirs / mine for mine, theirs, _ in pairs]
        spread = f"{statistics.median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}"
        row(case.name, workers, *(text for _, text in given), middle(loader, 0), middle(dliosim, 0), spread)


def measure_costs(python: str, batch: int, cases: Sequence[Case]) -> dict[int, Costs]:
    """Measure and print the cost of a DataLoader without reading, for each size of samples of such cases."""
    header("bytes of a sample", "start ms", "end ms", "a batch in a worker ms", "a step in the main process ms")
    measured: dict[int, Costs] = {}
    for size in sorted({case.size for case in cases if case.loader.startswith("torch")}):
        found = measured[size] = dataloader(python, batch, size)
        row(size, *(f"{seconds * 1e3:.2f}" for seconds in (found.start, found.end, found.batch, found.step)))
    return measured


def parameters(case: Case, batch: int, costs: Costs) -> tuple[tuple[str, str], ...]:
    """Return the parameters of the profile of a DataLoader that `costs` gives."""
    lasting = "persistent" in case.loader
    seconds = {
        "collate": costs.batch / batch,
        "hand_over": costs.step,
        "workers": 0.0 if lasting else costs.start + costs.end,
    }
    return tuple((name, f"{round(max(0.0, value) * 1e6)} us") for name, value in seconds.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["trace", "similarity", "time", "rates", "costs"])
    parser.add_argument("--python", default=sys.executable, help="the Python that has the loaders' libraries")
    parser.add_argument("--cases", nargs="+", default=[case.name for case in CASES], choices=[c.name for c in CASES])
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--compute", type=float, default=0.0, help="seconds of a step")
    parser.add_argument("--epochs", type=int, default=4, help="`time`: epochs of each process, the first not counted")
    parser.add_argument(
        "--calibrate", action="store_true", help="`time`: `costs` first, and patterns with what it finds"
    )
    parser.add_argument("--rounds", type=int, default=3, help="`time`: processes of each of the two, in turn")
    parser.add_argument("--samples", type=int, help="other than the case's own")
    parser.add_argument("--added", type=float, default=0.0, help="`trace`, `similarity`: seconds added to each read")
    parser.add_argument("--at-end", action="store_true", help="`time`: reads that find the end of a file, too")
    parser.add_argument("--calls", type=int, default=40, help="`trace`: how many calls are listed")
    parser.add_argument("--place", default="/dev/shm", help="where data go for a while")
    options = parser.parse_args()
    if options.what in ("trace", "similarity") and shutil.which("strace") is None:
        sys.exit("no strace on the path: Debian's package is called strace")
    chosen = [case for case in CASES if case.name in options.cases]
    costs: dict[int, Costs] = {}
    if options.what == "costs" or options.calibrate:
        costs = measure_costs(options.python, options.batch, chosen)
    if options.what == "costs":
        return
    if options.what == "similarity":
        header("case", *SIMILARITY_HEAD, "other reads of the main thread")
    if options.what == "rates":
        header("case", "workers", "a sample", "a step", "loader, samples/s", "dliosim", "dliosim / loader")
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
    for case in chosen:
        if options.samples:
            case = replace(case, samples=options.samples)
        elif options.what in ("time", "rates"):
            case = replace(case, samples=case.samples * case.timed)
        with scratch(options.place) as place:
            once, steps = (Steps(options.batch, options.compute, epochs) for epochs in (1, options.epochs))
            if case.loader.startswith("torch") and costs:
                steps = replace(steps, given=parameters(case, options.batch, costs[case.size]))
            if options.what == "rates":
                rate_case(case, options.python, place.resolve(), steps, options.rounds)
            elif options.what == "time":
                time_case(case, options.python, place.resolve(), steps, options.at_end, options.rounds)
            elif options.what == "similarity":
                similarity_case(case, options.python, place.resolve(), once, options.added)
            else:
                trace_case(case, options.python, place.resolve(), once, options.added, options.calls)


if __name__ == "__main__":
    orderly(main)
