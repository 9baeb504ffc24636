"""A second witness: what DFTracer's preload library saw of a run, against the trace of the run itself.

    pip install dftracer    # in an environment of its own
    python scripts/witness_preload.py --library .../dftracer/lib64/libdftracer_preload.so [--place DIR]

One rank prepares and reads a data set by POSIX calls and an HDF5 data set by h5py, and saves a checkpoint, under the
preload library. It sees open, close, pwrite, fsync and pread (of HDF5's library), but neither preadv nor MPI-IO. So:

  - each write of data in the trace is one that it saw, and it saw no other: file, offset, bytes;
  - it saw each open and close of the trace; it sees more, of the looks at files before a loop;
  - each read by HDF5's library of the trace is a pread that it saw: file and bytes.

Prints what was seen and ends with status 1 where any of that is not so.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from harness import environment, orderly, scratch

from dliosim.analyze.open_trace import open_trace
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


def run_preloaded(place: Path, library: Path) -> tuple[Trace, Trace]:
    """Run the pattern; return its own trace, and that of the preload library."""
    (place / "seen").mkdir()
    pattern = place / "preloaded.dlio"
    pattern.write_text(PATTERN)
    variables = {
        "LD_PRELOAD": str(library),
        "DFTRACER_ENABLE": "1",
        "DFTRACER_INIT": "PRELOAD",
        "DFTRACER_LOG_FILE": f"{place}/seen/run",
        "DFTRACER_DATA_DIR": f"{place}/data",
        "DFTRACER_INC_METADATA": "1",
    }
    words = ["run", str(pattern), "--trace", "--dir", f"{place}/data", "--output", f"{place}/out"]
    done = subprocess.run(
        [sys.executable, "-m", "dliosim.cli", *words], env=environment() | variables, capture_output=True, timeout=120
    )
    if done.returncode:
        raise Unlike(f"the run ended with {done.returncode}: {done.stderr.decode(errors='replace')}")
    return open_trace([place / "out"]), open_trace([place / "seen"])


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


def check(own: Trace, seen: Trace, root: Path) -> Iterator[str]:
    """Yield what agrees, a line each; raises Unlike."""
    wrote, saw = (
        Counter({each: count for each, count in extents(trace, root, "write").items() if not each[0].endswith(".hdf5")})
        for trace in (own, seen)
    )
    # A checkpoint is written in a folder that is renamed when it is whole; the path is that of the call.
    if wrote != saw or not wrote:
        raise Unlike(f"writes: only in the trace {wrote - saw}, only seen {saw - wrote}")
    yield f"{wrote.total()} writes of data, and no other: file, offset and bytes"
    for kind in "open", "close":
        ours, theirs = paths(extents(own, root, kind)), paths(extents(seen, root, kind))
        if ours - theirs or not ours:
            raise Unlike(f"{kind}: in the trace and not seen {ours - theirs}")
        yield f"{ours.total()} calls of {kind} seen, and {(theirs - ours).total()} more, by looks at files"
    read = Counter({each: n for each, n in extents(own, root, "read").items() if each[0].endswith(".hdf5")})
    # The library is asked for samples: the trace does not know where in the file they are.
    anywhere = Counter((path, -1, moved) for path, _, moved in extents(seen, root, "read").elements())
    left = read - anywhere
    if left or not read:
        raise Unlike(f"reads by the library: not seen {left}")
    yield f"{read.total()} reads by the library, each a pread of its own"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=Path, required=True, help="libdftracer_preload.so")
    parser.add_argument("--place", default=os.environ.get("TMPDIR", "/tmp"), help="where data go for a while")
    parsed = parser.parse_args()
    with scratch(parsed.place) as place:
        try:
            for line in check(*run_preloaded(place, parsed.library.absolute()), place / "data"):
                print(line)
        except Unlike as error:
            print(f"NOT SO: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    orderly(main)
