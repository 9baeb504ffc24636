"""The same latency added to the reads of any program: by a library that it loads first, or by strace.

    python scripts/dev/fidelity/latency.py

measures both on this machine, and prints what a read takes with each. Timings use the library, which is within 1 us of
what is asked. strace stops the program at each read, delayed or not: 10 us a call here, one thread after the other.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

#: Seconds a call: local flash shared by many, a parallel file system, one that is busy.
LATENCIES: Final = (0.0002, 0.001, 0.005)

_SOURCE: Final = Path(__file__).with_name("slow_reads.c")

#: Prints nanoseconds of each of some preads of 4 KiB.
_PROBE: Final = """\
import json, os, sys, time
file = os.open(sys.argv[1], os.O_RDONLY)
taken = []
for _ in range(int(sys.argv[2])):
    began = time.perf_counter_ns()
    os.pread(file, 4096, 0)
    taken.append(time.perf_counter_ns() - began)
print(json.dumps(taken))
"""


def build_library(place: Path, source: Path = _SOURCE) -> Path:
    """Compile a library that programs load first into `place`; its path. Ends the script where there is no compiler."""
    library = place / source.with_suffix(".so").name
    compiler = shutil.which("cc")
    if compiler is None:
        sys.exit(f"no cc on the path: {source.name} needs a C compiler")
    command = [compiler, "-O2", "-Wall", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    return library


def delay_variables(library: Path, folder: Path, seconds: float, at_end: float = 0.0) -> dict[str, str]:
    """Return variables for a program's environment that delay reads below `folder`.

    `at_end` is what is added to reads that find the end of a file, and return nothing.
    """
    return {
        "LD_PRELOAD": str(library),
        "SLOW_READS_FOLDER": str(folder.resolve()),
        "SLOW_READS_NS": str(round(seconds * 1e9)),
        "SLOW_READS_EMPTY_NS": str(round(at_end * 1e9)),
    }


def inject_option(seconds: float) -> str:
    """Return the value of strace's option `inject` that delays every traced read, of any file, also at its end."""
    return f"read,pread64,readv,preadv,preadv2:delay_enter={round(seconds * 1e6)}"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="dliosim-slow-") as name:
        place = Path(name)
        library = build_library(place)
        (place / "data").write_bytes(bytes(4096))
        print("| added | by | median us | 99 % us |\n|---|---|---|---|")
        for seconds in (0.0, *LATENCIES):
            strace = ["strace", "--seccomp-bpf", "-f", "-e", "trace=read,pread64", "-o", "/dev/null"]
            inject = ["-e", f"inject={inject_option(seconds)}"] if seconds else []
            ways = {"the library": ([], delay_variables(library, place, seconds)), "strace": ([*strace, *inject], {})}
            for way, (before, extra) in ways.items():
                probe = [*before, sys.executable, "-c", _PROBE, str(place / "data"), "100"]
                done = subprocess.run(
                    probe, env={**os.environ, **extra}, check=True, capture_output=True, text=True, timeout=120
                )
                taken = sorted(json.loads(done.stdout))
                print(
                    f"| {seconds * 1e3:g} ms | {way} | {statistics.median(taken) / 1e3:.1f} | {taken[98] / 1e3:.1f} |"
                )


if __name__ == "__main__":
    main()
