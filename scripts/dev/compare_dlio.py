"""dlio-benchmark 2.0.0 and dliosim with the same workload files: files, samples, steps, reads and checkpoints of both.

    python scripts/dev/compare_dlio.py install DIR                      an environment for DLIO, 2.6 GB
    python scripts/dev/compare_dlio.py run --python DIR/bin/python [--cases npz hdf5] [--ranks 1 2] [--record FILE]
    python scripts/dev/compare_dlio.py run --recorded tests/dlio/dlio_runs.json [--cases npz hdf5] [--ranks 1 2]

`run` generates data and trains with DLIO for each case of fidelity/dlio_cases.py, and imports and runs the same
file by dliosim (`import --as-run`). It prints a row for each, and ends with status 1 where the two differ and the
import's report has no sentence on that (fidelity/dlio_compare.py). `--record` writes DLIO's counts, as
tests/dlio/dlio_runs.json has them; `--recorded` takes them from there and does not run DLIO. docs/dlio.md shows what
came out. It takes half an hour, and needs strace.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from fidelity.dlio_cases import CASES, Case
from fidelity.dlio_compare import Counts, find_differences, plan_counts
from fidelity.dlio_runs import run_dlio, run_dliosim
from harness import header, orderly, row, scratch, write_whole

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


def compare_case(
    case: Case, ranks: int, python: Path | None, recorded: Recorded, place: Path
) -> tuple[Counts, list[str]]:
    """Print the row of a case; return DLIO's counts, and the figures that differ and are not named."""
    workload = place / "configs" / "workload" / "case.yaml"
    case.write(workload)
    if python is not None:
        (place / "dlio").mkdir()
    dlio = recorded[case.name, ranks] if python is None else run_dlio(python, workload, ranks, place / "dlio")
    pattern: Pattern = import_pattern(workload, (), "2.0.0", as_run=True)
    report = "\n".join((*report_lines(pattern), pattern.text))
    written = place / "case.dlio"
    written.write_text(pattern.text)
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


def compare(options: argparse.Namespace) -> int:
    """Compare cases; return the exit status."""
    python = options.python and options.python.absolute()  # a link of an environment is not followed
    recorded = read_record(options.recorded) if options.recorded else {}
    counted: list[dict[str, Any]] = []
    silent: list[str] = []
    cases = [case for case in CASES if not options.cases or any(name in case.name for name in options.cases)]
    runs = [(case, number) for case in cases for number in options.ranks]
    if not runs:
        sys.exit(f"no case has this in its name; the cases are {'; '.join(case.name for case in CASES)}")
    if python is not None and not python.with_name("dlio_benchmark").exists():
        sys.exit(f"no dlio_benchmark next to {python}: give the bin/python that `compare_dlio.py install DIR` makes")
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("install").add_argument("folder", type=Path)
    running = commands.add_parser("run")
    source = running.add_mutually_exclusive_group(required=True)
    source.add_argument("--python", type=Path, help="the Python that has dlio-benchmark 2.0.0")
    source.add_argument("--recorded", type=Path, help="file of DLIO's counts")
    running.add_argument("--cases", nargs="+", default=[], help="parts of names of cases (default: all)")
    running.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    running.add_argument("--place", default="/dev/shm", help="where data go for a while")
    running.add_argument("--record", type=Path, help="file for DLIO's counts")
    options = parser.parse_args()
    if options.command == "install":
        install(options.folder)
        return 0
    if shutil.which("strace") is None:
        sys.exit("no strace on the path: Debian's package is called strace")
    return compare(options)


if __name__ == "__main__":
    orderly(main)
