"""Trace real loaders by DFTracer and Darshan DXT, infer a pattern from each trace, and compare it with what they did.

    pip install torch webdataset h5py tensorflow-cpu dftracer 'darshan>=3.5'    # in an environment of its own
    python scripts/dev/check_loader_traces.py [--darshan .../lib/libdarshan.so] [--only WORD ...] [--keep DIR]

Runs in that environment; Darshan's runtime is built for jobs without MPI, with `--with-log-path-by-env`. What the trace
of a case shows is made once in the folder of `--keep`. A value is right, or marked as a guess or unknown, or wrong.
The output is a markdown table with a row for each loader, form of trace and number of workers, and what was wrong or
only marked in each case; the status is 1 if a value is wrong.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Final

from harness import header, orderly, row, run, scratch

from dliosim.analyze.commands.infer import make_pattern
from dliosim.analyze.read.open_trace import list_logs
from dliosim.errors import DliosimError
from dliosim.units import SIZES

HERE: Final = Path(__file__).parent / "fidelity"
VALUES: Final = ("files", "samples", "size", "epochs", "batch", "readers", "order", "layout")
SAMPLES, SHARDS, BATCH, EPOCHS = 96, 8, 4, 2
WORKERS: Final = (0, 1, 2, 4, 8)
#: Bytes of a sample; those of small rows fit several times into HDF5's buffer of 64 KiB.
SIZE, SMALL = 100_000, 20_000


@dataclass(frozen=True, slots=True)
class Case:
    """A loop over a loader under a tracer."""

    tracer: str  #: `dftracer` or `darshan`
    kind: str  #: kind of files of traced_loop.py
    style: str  #: `map` or `iterable`
    workers: int  #: worker processes, or parallel reads of tf.data
    shuffled: bool  #: samples come in any order
    compute: float = 0.03  #: seconds of a step
    size: int = SIZE  #: bytes of a sample

    @property
    def loader(self) -> str:
        """The name in the table."""
        style = f" {self.style}" if self.kind not in ("tar", "tfrecord") else ""
        small = f" of {self.size} B" if self.size != SIZE else ""
        return f"{self.kind}{style}{small}{'' if self.compute else ', no compute'}"

    @property
    def name(self) -> str:
        """A name for its trace, by which `--only` finds it."""
        order = "shuffled" if self.shuffled else "ordered"
        return f"{self.tracer} {self.loader} {self.workers} {order}".replace(",", "").replace(" ", "-")

    @property
    def truth(self) -> dict[str, set[str]]:
        """The values that are right."""
        files = {"hdf5": 1, "tar": SHARDS, "tfrecord": SHARDS}.get(self.kind, SAMPLES)
        layout = {1: "shared file", SHARDS: f"{SHARDS} files"}.get(files, "file per sample")
        # A thread of TensorFlow reads for a loop that asks for no parallel reads.
        readers = {str(self.workers)} | ({"1"} if self.kind == "tfrecord" and not self.workers else set())
        known = {"samples": SAMPLES, "files": files, "epochs": EPOCHS, "batch": BATCH, "layout": layout}
        # Workers with one shard each shuffle what they have read.
        order = {"shuffled"} if self.shuffled else {"in order"}
        order |= {"in order"} if self.kind == "tar" and self.workers >= SHARDS else set()
        return {name: {str(value)} for name, value in known.items()} | {"readers": readers, "order": order}


def list_cases(with_darshan: bool) -> Iterator[Case]:
    """Yield the cases: all loaders under DFTracer, some without compute, and most under Darshan."""
    orders = (False, True)
    for kind, style, workers, shuffled in product(("npz", "npy", "hdf5"), ("map", "iterable"), WORKERS, orders):
        yield Case("dftracer", kind, style, workers, shuffled)
    for kind, workers, shuffled in product(("tar", "tfrecord"), WORKERS, orders):
        yield Case("dftracer", kind, "iterable", workers, shuffled)
    for kind, workers in product(("npz", "hdf5", "tar"), (0, 2)):
        yield Case("dftracer", kind, "map", workers, True, compute=0)
    for workers, shuffled in product((0, 2), orders):
        yield Case("dftracer", "hdf5", "map", workers, shuffled, size=SMALL)
    kinds = (("npz", "map"), ("hdf5", "map"), ("npy", "iterable"), ("tar", "iterable"), ("tfrecord", "iterable"))
    for (kind, style), workers, shuffled in product(kinds, (0, 1, 2, 4), orders) if with_darshan else ():
        yield Case("darshan", kind, style, workers, shuffled)


def make_trace(case: Case, place: Path, library: str) -> Path:
    """Return the folder with the trace of a case, which is made if it is not there."""
    data, trace = place / f"{case.kind}-{case.size}", place / case.name
    if not data.exists():
        sizes = ("--samples", str(SAMPLES), "--size", str(case.size), "--files", str(SHARDS))
        run([sys.executable, str(HERE / "making.py"), case.kind, str(data), *sizes], 300)
    if trace.exists():
        return trace
    new = place / "new"
    new.mkdir()
    settings = {
        "dftracer": {"ENABLE": "1", "INIT": "PRELOAD", "INC_METADATA": "1", "DATA_DIR": data, "LOG_FILE": new / "run"},
        "darshan": {"ENABLE_NONMPI": "1", "LOG_DIR_PATH": new, "CONFIG_PATH": place / "darshan.conf"},
    }[case.tracer]
    variables = {f"{case.tracer.upper()}_{name}": str(value) for name, value in settings.items()}
    # Imports open more files than Darshan has room for, and TensorFlow starts `uname`.
    include = f"NAME_EXCLUDE .* *\nNAME_INCLUDE ^{data} *\nAPP_EXCLUDE uname\n"
    (place / "darshan.conf").write_text(f"MODMEM 64\nMAX_RECORDS 20000 POSIX,DXT_POSIX\n{include}")
    loop = [str(HERE / "traced_loop.py"), case.kind, str(data), "--style", case.style, "--workers", str(case.workers)]
    loop += ["--batch", str(BATCH), "--epochs", str(EPOCHS), "--compute", str(case.compute)]
    loop += ["--shuffled"] if case.shuffled else []
    extra = {**variables, "DXT_ENABLE_IO_TRACE": "1", "LD_PRELOAD": library, "PYTHONWARNINGS": "ignore"}
    steps = int(run([sys.executable, *loop], 300, extra).splitlines()[-1])
    if steps != EPOCHS * SAMPLES // BATCH:
        sys.exit(f"{case.name}: {steps} steps")
    return new.rename(trace)


def read_values(text: str) -> dict[str, tuple[str, bool]]:
    """Return the values of a pattern by what they are, and whether each is sure."""
    found: dict[str, tuple[str, bool]] = {}
    for head in ("samples", "size", "layout", "epochs", "batch", "readers", "shuffle"):
        match = re.search(rf"^ *{head} +(.*?) +# (\?)?", text, re.MULTILINE)
        found[head] = (match[1], not match[2]) if match else ("unknown", False)
    layout, is_sure = found["layout"]
    layout = layout.partition(" in ")[0]
    files = {"shared file": "1", "file per sample": found["samples"][0]}.get(layout, layout.split()[0])
    order, is_order = found.pop("shuffle")
    order = {"off": "in order", "unknown": order}.get(order, "shuffled")
    batch, is_batch = found["batch"]
    more = {"files": (files, is_sure), "layout": (layout, is_sure), "order": (order, is_order)}
    return found | more | {"batch": (batch.partition(" ")[0], is_batch)}


def _is_near(text: str, case: Case) -> bool:
    """Return whether a text is the bytes of a sample within 1 %, which headers are: of a tar's two members 3 %."""
    match, most = re.fullmatch(r"([\d_.]+) (\w+)", text), 1.03 if case.kind == "tar" else 1.01
    return (
        match is not None and 0.99 * case.size <= float(match[1].replace("_", "")) * SIZES[match[2]] <= most * case.size
    )


def judge(case: Case, trace: Path) -> dict[str, tuple[str, str]]:
    """Return the verdict of each value, and what was inferred."""
    try:
        text = make_pattern(list_logs(trace) or [trace], keep_names=False)[0]
    except DliosimError as error:
        return dict.fromkeys(VALUES, ("refused", str(error).partition("\n")[0]))
    values = read_values(re.sub(r"ceil\((\d+) \* \$scale\)", r"\1", text))
    found = {}
    for name in VALUES:
        value, is_sure = values[name]
        is_right = _is_near(value, case) if name == "size" else value in case.truth[name]
        verdict = "right" if is_right else "WRONG" if is_sure else "marked"
        found[name] = verdict, value
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--darshan", type=Path, help="libdarshan.so (default: no cases of Darshan)")
    parser.add_argument("--only", nargs="+", default=[""], help="parts of names of cases")
    parser.add_argument("--keep", type=Path, help="where data and traces are kept (default: removed)")
    given = parser.parse_args()
    package = Path((find_spec("dftracer") or sys.exit("no DFTracer")).submodule_search_locations[0])
    libraries = {"dftracer": str(next(package.glob("lib*/libdftracer_preload.so"))), "darshan": str(given.darshan)}
    cases = [one for one in list_cases(bool(given.darshan)) if any(word in one.name for word in given.only)]
    totals: dict[str, Counter[str]] = {name: Counter() for name in VALUES}
    shown: dict[tuple[str, str, int], dict[str, list[str]]] = defaultdict(lambda: {name: [] for name in VALUES})
    notes = []
    with ExitStack() as stack:
        place = given.keep or stack.enter_context(scratch("/dev/shm"))
        place.mkdir(parents=True, exist_ok=True)
        for number, case in enumerate(cases, 1):
            print(f"{number} of {len(cases)}: {case.name}", file=sys.stderr, flush=True)
            verdicts = judge(case, make_trace(case, place, libraries[case.tracer]))
            for name, (verdict, _) in verdicts.items():
                totals[name][verdict] += 1
                shown[case.tracer, case.loader, case.workers][name].append(verdict)
            odd = [f"{name} {value} {verdict}" for name, (verdict, value) in verdicts.items() if verdict != "right"]
            notes += [f"- {case.name}: {', '.join(odd)}"] if odd else []
    header("tracer", "loader", "workers", "cases", *VALUES)
    for (tracer, loader, workers), each in shown.items():
        cells = [", ".join(f"{many} {what}" for what, many in Counter(found).items()) for found in each.values()]
        row(tracer, loader, workers, len(each["files"]), *cells)
    print("", *notes, "", sep="\n")
    for name, counts in totals.items():
        print(f"{name}: {', '.join(f'{many} {what}' for what, many in counts.items())}")
    wrong = sum(counts["WRONG"] for counts in totals.values())
    print(f"{len(cases)} cases, {wrong} values wrong but sure")
    return int(wrong > 0)


if __name__ == "__main__":
    orderly(main)
