"""Two more witnesses: what the preload libraries of DFTracer and Darshan saw of a run, against its own trace.

    pip install dftracer    # in an environment of its own
    python scripts/dev/witness_preload.py --dftracer .../dftracer/lib64/libdftracer_preload.so [--place DIR]
    python scripts/dev/witness_preload.py --darshan .../lib/libdarshan.so --logs LOGS --place DIR

Darshan's runtime is built for jobs without MPI, with its log folder LOGS; it leaves out files below /dev. One rank
prepares and reads a data set by POSIX calls and an HDF5 data set by h5py, and saves a checkpoint, under the library.
DFTracer sees open, close, pwrite, fsync and pread (of HDF5's library), but neither preadv nor MPI-IO; Darshan's DXT
sees each read and write. So:

  - each write of data in the trace is one that it saw, and it saw no other: file, offset, bytes;
  - each read by HDF5's library of the trace is a pread that it saw: file and bytes;
  - DFTracer saw each open and close of the trace; it sees more, of the looks at files before a loop;
  - Darshan saw each read of the trace by POSIX: file, offset, bytes.

Prints what was seen and ends with status 1 where any of that is not so.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

from harness import environment, orderly, scratch

from dliosim.analyze.read.open_trace import open_trace
from dliosim.trace.events import Trace

PATTERN = """\
dlio 1
workload preloaded
seed 7
dataset separate {
    samples 23
    size    uniform(2 kB, 6 kB)
    layout  file per sample in 2 folders
    path    "separate"
}
dataset tables {
    samples 12
    size    256 kB  # more than HDF5's buffer of 64 KiB, from which smaller reads of a file are served
    format  hdf5
    layout  3 files
    path    "tables"
}
checkpoint model {
    part    weights 100 kB total
    fsync   on
    path    "model"
}
prepare separate
prepare tables
train direct {
    read    separate
    epochs  2
}
train library {
    read    tables
    through library
}
save model
"""

#: Files that say something of data or keep other jobs off them.
NO_DATA = ("manifest", "lock")

Extent = tuple[str, int, int]


class Unlike(Exception):
    """The two traces differ where they must not."""


def run_preloaded(place: Path, variables: dict[str, str]) -> Trace:
    """Run the pattern under a preload library, set up by these variables; return its own trace."""
    pattern = place / "preloaded.dlio"
    pattern.write_text(PATTERN)
    words = ["run", str(pattern), "--trace", "--dir", f"{place}/data", "--output", f"{place}/out"]
    done = subprocess.run(
        [sys.executable, "-m", "dliosim.cli", *words], env=environment() | variables, capture_output=True, timeout=120
    )
    if done.returncode:
        raise Unlike(f"the run ended with {done.returncode}: {done.stderr.decode(errors='replace')}")
    return open_trace([place / "out"])


def run_under_dftracer(place: Path, library: Path) -> tuple[Trace, Trace]:
    """Run the pattern; return its own trace, and that of DFTracer."""
    (place / "seen").mkdir()
    variables = {
        "LD_PRELOAD": str(library),
        "DFTRACER_ENABLE": "1",
        "DFTRACER_INIT": "PRELOAD",
        "DFTRACER_LOG_FILE": f"{place}/seen/run",
        "DFTRACER_DATA_DIR": f"{place}/data",
        "DFTRACER_INC_METADATA": "1",
    }
    return run_preloaded(place, variables), open_trace([place / "seen"])


def run_under_darshan(place: Path, library: Path, logs: Path) -> tuple[Trace, Trace]:
    """Run the pattern; return its own trace, and the log of Darshan, the largest of those that it wrote."""
    config = place / "darshan.conf"
    config.write_text("MOD_ENABLE DXT_POSIX\nMAX_RECORDS 5000 POSIX,DXT_POSIX\nMODMEM 64\n")
    before = set(logs.rglob("*.darshan"))
    for day in datetime.now().astimezone(), datetime.now(timezone.utc):
        (logs / f"{day.year}/{day.month}/{day.day}").mkdir(parents=True, exist_ok=True)
    variables = {
        "LD_PRELOAD": str(library),
        "DARSHAN_ENABLE_NONMPI": "1",
        "DARSHAN_CONFIG_PATH": str(config),
        "DXT_ENABLE_IO_TRACE": "1",
    }
    own = run_preloaded(place, variables)
    # A log for each process; what mpi4py and Python start has logs of its own.
    found = sorted(set(logs.rglob("*.darshan")) - before, key=lambda log: log.stat().st_size)
    if not found:
        raise Unlike(f"Darshan wrote no log to {logs}")
    return own, open_trace([found[-1]])


def extents(trace: Trace, root: Path, *kinds: str) -> Counter[Extent]:
    """Count the operations of some kinds on data files, as (path, offset, bytes)."""
    events = trace.events
    rows = events.is_kind(*kinds) & (events.file >= 0)
    columns = (events.file[rows].tolist(), events.offset[rows].tolist(), events.moved[rows].tolist())
    found = ((events.files[file], offset, moved) for file, offset, moved in zip(*columns, strict=True))
    return Counter(each for each in found if is_data(each[0], root))


def is_data(path: str, root: Path) -> bool:
    # Folders are opened to be synced.
    return path.startswith(f"{root}/") and not Path(path).name.startswith(NO_DATA) and Path(path).suffix != ""


def paths(found: Counter[Extent]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for (path, _, _), count in found.items():
        counts[path] += count
    return counts


def split_hdf5(found: Counter[Extent], is_hdf5: bool) -> Counter[Extent]:
    return Counter({each: count for each, count in found.items() if each[0].endswith(".hdf5") == is_hdf5})


def check(own: Trace, seen: Trace, root: Path) -> Iterator[str]:
    """Yield what agrees with either witness, a line each; raises Unlike."""
    wrote, saw = (split_hdf5(extents(trace, root, "write"), is_hdf5=False) for trace in (own, seen))
    if wrote != saw or not wrote:
        raise Unlike(f"writes: only in the trace {wrote - saw}, only seen {saw - wrote}")
    yield f"{wrote.total()} writes of data, and no other: file, offset and bytes"
    read = split_hdf5(extents(own, root, "read"), is_hdf5=True)
    # The library is asked for samples: the trace does not know where in the file they are.
    anywhere = Counter((path, -1, moved) for path, _, moved in extents(seen, root, "read").elements())
    if read - anywhere or not read:
        raise Unlike(f"reads by the library: not seen {read - anywhere}")
    yield f"{read.total()} reads by the library, each a pread of its own"


def check_opens(own: Trace, seen: Trace, root: Path) -> Iterator[str]:
    for kind in "open", "close":
        ours, theirs = paths(extents(own, root, kind)), paths(extents(seen, root, kind))
        if ours - theirs or not ours:
            raise Unlike(f"{kind}: in the trace and not seen {ours - theirs}")
        yield f"{ours.total()} calls of {kind} seen, and {(theirs - ours).total()} more, by looks at files"


def check_reads(own: Trace, seen: Trace, root: Path) -> Iterator[str]:
    ours, theirs = (split_hdf5(extents(trace, root, "read"), is_hdf5=False) for trace in (own, seen))
    if ours - theirs or not ours:
        raise Unlike(f"reads: in the trace and not seen {ours - theirs}")
    yield f"{ours.total()} reads: file, offset and bytes; and {(theirs - ours).total()} more, by looks at files"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dftracer", type=Path, help="libdftracer_preload.so")
    parser.add_argument("--darshan", type=Path, help="libdarshan.so")
    parser.add_argument("--logs", type=Path, help="with --darshan: the folder of its logs")
    parser.add_argument("--place", default=os.environ.get("TMPDIR", "/tmp"), help="where data go for a while")
    parsed = parser.parse_args()
    if (parsed.darshan is None) != (parsed.logs is None) or not (parsed.dftracer or parsed.darshan):
        parser.error("--dftracer LIBRARY, or --darshan LIBRARY --logs FOLDER")
    try:
        if parsed.dftracer:
            with scratch(parsed.place) as place:
                both = run_under_dftracer(place, parsed.dftracer.absolute())
                print("DFTracer:", *check(*both, place / "data"), *check_opens(*both, place / "data"), sep="\n  ")
        if parsed.darshan:
            with scratch(parsed.place) as place:
                both = run_under_darshan(place, parsed.darshan.absolute(), parsed.logs)
                print("Darshan:", *check(*both, place / "data"), *check_reads(*both, place / "data"), sep="\n  ")
    except Unlike as error:
        print(f"NOT SO: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    orderly(main)
