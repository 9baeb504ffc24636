"""dlio-benchmark 2.0.0 and dliosim with the same workload files: what both do, and what both cost.

    python scripts/dev/compare_dlio.py install DIR                      an environment for DLIO, 2.6 GB
    python scripts/dev/compare_dlio.py run --python DIR/bin/python [--cases npz hdf5] [--ranks 1 2] [--record FILE]
    python scripts/dev/compare_dlio.py run --recorded tests/dlio/dlio_runs.json [--cases npz hdf5] [--ranks 1 2]
    python scripts/dev/compare_dlio.py costs --python DIR/bin/python [--cases npz hdf5] [--pairs 5]

`run` generates data and trains with DLIO for each case of fidelity/dlio_cases.py, and imports and runs the same
file by dliosim (`import --as-run`). It prints a row for each, and ends with status 1 where the two differ and the
import's report has no sentence on that (fidelity/dlio_compare.py). `--record` writes DLIO's counts, as
tests/dlio/dlio_runs.json has them; `--recorded` takes them from there and does not run DLIO. docs/dlio.md shows what
came out. It takes half an hour, and needs strace.

`costs` has runs of DLIO and of dliosim with larger files take turns, on 2 ranks, where both have their data in memory:
median, least and greatest of each figure and of the ratios of pairs. A run that is timed is only watched by inotify;
memory is that of other runs, system calls and offsets (strace) of one more each. It takes eight minutes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any, Final

from fidelity.dlio_cases import CASES, COST_CASES, Case
from fidelity.dlio_compare import Counts, find_differences, plan_counts
from fidelity.dlio_costs import (
    Trained,
    count_calls,
    follow_reads,
    greatest_memory,
    time_training,
    train_by_dlio,
    train_by_dliosim,
)
from fidelity.dlio_runs import run_dlio, run_dliosim
from harness import header, middle, orderly, row, scratch, write_whole

from dliosim.dlio.convert import Pattern, import_pattern, report_lines

#: DLIO asks for NVIDIA's DALI, torchaudio and torchvision, which none of these cases imports.
_PACKAGES: Final = (
    "torch==2.13.0", "tensorflow-cpu==2.21.0", "hydra-core==1.3.8", "omegaconf", "pandas", "psutil", "Pillow", "PyYAML",
    "h5py", "mpi4py", "mpich==4.1.3",
)  # fmt: skip
_WITHOUT_DEPENDENCIES: Final = ("dlio-benchmark==2.0.0", "pydftracer==1.0.2")

#: DALI's program that lists the offsets in a TFRecord file, for DALI alone: without it DLIO cannot generate any.
_TFRECORD2IDX: Final = '#!/bin/sh\n: > "$2"\n'

_FIGURES: Final = ("files", "samples a file", "bytes of files", "steps", "opens", "bytes read")
_COLUMNS: Final = (*_FIGURES, "eval steps", "saved", "saved files", "saved bytes")

#: DLIO's figure of `costs` / dliosim's, at least.
_TARGETS: Final = {"launch to first read, s": 6.0, "processor time, s": 5.0, "memory (PSS), MiB": 5.0}
_COST_RANKS: Final = 2


Recorded = dict[tuple[str, int], Counts]
"""DLIO's counts, by case and ranks."""


def read_record(path: Path) -> Recorded:
    """Return DLIO's counts of a file that `--record` has written; ends the script where it cannot be read."""
    try:
        text = path.read_text()
    except OSError as error:
        sys.exit(f"cannot read {path}: {error.strerror}")
    return {(one["case"], one["ranks"]): one["dlio"] for one in json.loads(text)}


def install(folder: Path) -> None:
    """Make the environment."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q"]
    subprocess.run([*pip, *_PACKAGES], check=True)
    subprocess.run([*pip, "--no-deps", *_WITHOUT_DEPENDENCIES], check=True)
    program = folder / "bin" / "tfrecord2idx"
    program.write_text(_TFRECORD2IDX)
    program.chmod(0o755)


def import_as_run(workload: Path, to: Path) -> Pattern:
    """Import a workload file as DLIO runs it, and write the pattern."""
    pattern: Pattern = import_pattern(workload, (), "2.0.0", as_run=True)
    to.write_text(pattern.text)
    return pattern


def compare_case(
    case: Case, ranks: int, python: Path | None, recorded: Recorded, place: Path
) -> tuple[Counts, list[str]]:
    """Print the row of a case; return DLIO's counts, and the figures that differ and are not named."""
    workload = place / "configs" / "workload" / "case.yaml"
    case.write(workload)
    if python is not None:
        (place / "dlio").mkdir()
    dlio = recorded[case.name, ranks] if python is None else run_dlio(python, workload, ranks, place / "dlio")
    written = place / "case.dlio"
    pattern = import_as_run(workload, written)
    report = "\n".join((*report_lines(pattern), pattern.text))
    ours = run_dliosim(written, ranks, place / "dliosim", case.overrides)
    found = dict(find_differences(dlio, ours, report))
    planned = plan_counts(written, ranks, case.overrides)
    for figure in ("steps", "eval steps", "files", "samples a file", "saved"):
        if planned.get(figure) != ours.get(figure) and (planned.get(figure) or ours.get(figure)):
            found[f"{figure} of the plan ({planned.get(figure)})"] = ""
    if planned.get("opens", 0) < ours["opens"]:  # fewer, where readers take batches as they come
        found["opens of the plan"] = ""
    row(
        case.name,
        ranks,
        *(_cell(dlio, ours, figure) for figure in _COLUMNS),
        "; ".join(sorted(set(filter(None, found.values())))),
    )
    return dlio, [figure for figure, words in found.items() if not words]


def _cell(dlio: Counts, ours: Counts, figure: str) -> str:
    first, second = (_show(counts.get(figure)) for counts in (dlio, ours))
    return first if first == second else f"{'fails' if 'fails' in dlio and first == '-' else first} / {second}"


def _show(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value if len(set(value)) > 1 else value[:1])) or "-"
    return "-" if value is None else f"{value:,}".replace(",", " ")


def choose(cases: tuple[Case, ...], names: list[str]) -> list[Case]:
    """Return the cases that have any of these in their names, all without names; ends the script if none has."""
    chosen = [case for case in cases if not names or any(name in case.name for name in names)]
    if not chosen:
        sys.exit(f"no case has this in its name; the cases are {'; '.join(case.name for case in cases)}")
    return chosen


def compare(options: argparse.Namespace) -> int:
    """Compare cases; return the exit status."""
    python = options.python
    recorded = read_record(options.recorded) if options.recorded else {}
    counted: list[dict[str, Any]] = []
    silent: list[str] = []
    runs = [(case, number) for case in choose(CASES, options.cases) for number in options.ranks]
    wanted = [(case.name, number) for case, number in runs if python is None]
    gone = [f"{name} on {number}" for name, number in wanted if (name, number) not in recorded]
    if gone:
        sys.exit(f"not in {options.recorded}: {'; '.join(gone)}")
    header("case", "ranks", *_COLUMNS, "what the report says")
    for case, number in runs:
        with scratch(options.place) as folder:
            dlio, figures = compare_case(case, number, python, recorded, folder)
        counted.append({"case": case.name, "ranks": number, "dlio": dlio})
        silent += [f"{case.name}, {number} ranks: {figure}: not named by the report" for figure in figures]
    if options.record is not None:
        write_whole(options.record, "[\n" + ",\n".join(json.dumps(one) for one in counted) + "\n]\n")
    print("\n".join(silent) or "every difference is named by the import's report")
    return 1 if silent else 0


def costs(options: argparse.Namespace) -> int:
    """Measure what each case costs by both; return the exit status."""
    print(f"{date.today()}, {_COST_RANKS} ranks, {options.pairs} pairs, data in {options.place}\n")
    header("workload", "figure", "DLIO", "dliosim", "DLIO / dliosim", "target")
    for case in choose(COST_CASES, options.cases):
        with scratch(options.place) as folder:
            workload, pattern = folder / "configs" / "workload" / "case.yaml", folder / "case.dlio"
            case.write(workload)
            import_as_run(workload, pattern)
            both = (
                train_by_dlio(options.python, workload, _COST_RANKS, folder / "dlio"),
                train_by_dliosim(pattern, _COST_RANKS, folder / "dliosim"),
            )
            _cost_rows(case, both, options.pairs)
    return 0


def _cost_rows(case: Case, both: tuple[Trained, Trained], pairs: int) -> None:
    in_file, epochs = case.keys.get("dataset.num_samples_per_file", 1), case.keys["train.epochs"]
    samples = case.keys["dataset.num_files_train"] * in_file * epochs
    measured = [
        [{**time_training(each, samples), "memory (PSS), MiB": greatest_memory(each)} for each in both]
        for _ in range(pairs)
    ]
    for place, figure in enumerate(measured[0][0]):
        dlio, ours = ([pair[tool][figure] for pair in measured] for tool in (0, 1))
        ratios, least = [first / second for first, second in zip(dlio, ours, strict=True)], _TARGETS.get(figure)
        ratio = middle(ratios) + ": **missed**" * (least is not None and median(ratios) < least)
        cells = (middle(values, 0 if max(values) >= 100 else 2) for values in (dlio, ours))
        row("" if place else case.name, figure, *cells, ratio, "" if least is None else f"{least:g}")
    calls, reads = [count_calls(each) for each in both], [follow_reads(each, in_file) for each in both]
    row("", "system calls", *map(_show, calls), f"{calls[0] / calls[1]:.2f}", "")
    asked = samples * case.keys["dataset.record_length"]
    row("", "bytes read / bytes of the samples", *(f"{one.bytes / asked:.3f}" for one in reads), "", "")
    times = (" to ".join(map(str, sorted({min(one.times), max(one.times)}))) for one in reads)
    row("", f"how often a sample was read in {epochs} epochs", *times, "", "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("install").add_argument("folder", type=Path)
    running = commands.add_parser("run")
    source = running.add_mutually_exclusive_group(required=True)
    source.add_argument("--python", type=Path, help="the Python that has dlio-benchmark 2.0.0")
    source.add_argument("--recorded", type=Path, help="file of DLIO's counts")
    running.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    running.add_argument("--record", type=Path, help="file for DLIO's counts")
    costing = commands.add_parser("costs")
    costing.add_argument("--python", type=Path, required=True, help="the Python that has dlio-benchmark 2.0.0")
    costing.add_argument("--pairs", type=int, default=5)
    for each, cases in ((running, CASES), (costing, COST_CASES)):
        names = "; ".join(case.name for case in cases)
        each.add_argument("--cases", nargs="+", default=[], help=f"parts of names of cases (default: all): {names}")
        each.add_argument("--place", default="/dev/shm", help="where data go for a while")
    options = parser.parse_args()
    if options.command == "install":
        install(options.folder)
        return 0
    if shutil.which("strace") is None:
        sys.exit("no strace on the path: Debian's package is called strace")
    if options.python is not None:
        options.python = options.python.absolute()  # a link of an environment is not followed
        if not options.python.with_name("dlio_benchmark").exists():
            sys.exit(f"no dlio_benchmark next to {options.python}: give the bin/python that `install DIR` makes")
    return costs(options) if options.command == "costs" else compare(options)


if __name__ == "__main__":
    orderly(main)
