#!/usr/bin/env bash
# Loops, backends, start, `--null`, plans and formats of docs/evidence/benchmarks.md, as markdown; about seven minutes.
#
#   scripts/dev/bench_all.sh [PLACE]        PLACE is a directory on tmpfs for the data (default: /dev/shm)
#
# PYTHON names the interpreter of the environment to measure (default: env/bin/python). Leave the machine alone
# meanwhile: ratios of interleaved pairs bear some noise, times do not.
set -euo pipefail
cd "$(dirname "$0")/../.."

place=${1:-/dev/shm}
python=${PYTHON:-env/bin/python}
mpiexec=$(dirname "$python")/mpiexec
[ -x "$mpiexec" ] || mpiexec=mpiexec
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"

part() {
    printf '\n### %s\n\n' "$1"
    shift
    local began=$SECONDS
    "$@"
    printf '\n(%s s, load %s)\n' $((SECONDS - began)) "$(cut -d' ' -f1 /proc/loadavg)"
}

part "The machine" "$python" - <<'EOF'
import os, platform
import mpi4py, numpy
from mpi4py import MPI
model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
print(f"{len(os.sched_getaffinity(0))} cores ({model}), {memory:.0f} GiB, Linux {platform.release().split('-')[0]},")
print(f"Python {platform.python_version()}, numpy {numpy.__version__}, mpi4py {mpi4py.__version__},")
print(MPI.Get_library_version().splitlines()[0].replace("\t", " "))
EOF
part "The run loop against bare loops" "$python" scripts/dev/bench_run.py --place "$place"
part "The backends against bare loops, 1 rank" "$python" scripts/dev/bench_backends.py
part "The backends against bare loops, 2 ranks" \
    timeout 200 setsid --wait "$mpiexec" -n 2 "$python" -m mpi4py scripts/dev/bench_backends.py
part "Start and memory" "$python" scripts/dev/bench_start.py --place "$place"
part "The tool alone" "$python" scripts/dev/bench_null.py --place "$place"
part "One rank's plan" "$python" scripts/dev/bench_plan.py
part "Formats" "$python" scripts/dev/bench_formats.py --place "$place"
