#!/usr/bin/env bash
# One pattern on 512 ranks of one machine, from the first byte prepared to the results; what is checked is printed.
#
#   scripts/run_512.sh [RANKS [FILES [PLACE]]]        512 ranks, as many files as the pattern says, below the current directory
#
# Without FILES this is `mpiexec -n RANKS dliosim run patterns/cosmoflow.dlio`: 16 files a rank, 45 MB of disk for each
# rank (23 GB in all). PYTHON names the interpreter of the environment to run in (default: env/bin/python; `pip install
# '.[mpich]'` is all that it needs), LIMIT the seconds after which the job is killed (default: 1800).
# PATTERN names another pattern of this checkout, DEFINES what to give it: PATTERN=patterns/llama3_405b.dlio DEFINES='-D
# rounds=2' saves and restores a checkpoint of 1,544 files.
# The last lines compare time and memory with what is to be reached by 512 ranks on two cores and 24 GB, and have the
# row for docs/evidence/benchmarks.md; they do not decide the status.
# Exit status 0 only if the job ended well, each epoch had every sample once, each save and restore every byte in as many
# files as planned, and nothing was left behind.
set -euo pipefail
cd "$(dirname "$0")/.."

ranks=${1:-512}
files=${2:-$((16 * ranks))}
place=$(mktemp -d "${3:-.}/dliosim-512-XXXXXX")
place=$(cd "$place" && pwd)
python=${PYTHON:-env/bin/python}
mpiexec=$(dirname "$python")/mpiexec
[ -x "$mpiexec" ] || mpiexec=mpiexec
dliosim=("$(dirname "$python")/dliosim")
[ -x "${dliosim[0]}" ] || dliosim=("$python" -m dliosim.cli)
limit=${LIMIT:-1800}
pattern=${PATTERN:-patterns/cosmoflow.dlio}
read -r -a defines <<<"${DEFINES:-${2:+-D files=$2}}"
job=''
watcher=''
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
"$python" -m compileall -q dliosim # or each rank compiles every module, where Python is set to keep no bytecode

cleanup() {
    [ -z "$watcher" ] || kill "$watcher" 2>/dev/null || true
    [ -z "$job" ] || kill -KILL -- "-$job" 2>/dev/null || true
    rm -rf "$place"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

ours() { # processes of this job, wherever they have gone: all of them name the directory that only this run has
    local pid
    for pid in /proc/[0-9]*; do
        pid=${pid#/proc/}
        if [ "$pid" = $$ ] || [ "$pid" = "$BASHPID" ]; then continue; fi
        if tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -qF -- "$place/data"; then echo "$pid"; fi
    done
}

shared_memory() { find /dev/shm -maxdepth 1 -user "$(id -u)" \( -name 'mpich*' -o -name 'vader*' -o -name 'psm*' \) | sort; }

shared_memory >"$place/before"

began=$SECONDS
status=0
setsid timeout --kill-after=10 "$limit" "$mpiexec" -n "$ranks" "${dliosim[@]}" run "$pattern" \
    "${defines[@]}" --dir "$place/data" --output "$place/out" >"$place/stdout" 2>"$place/stderr" &
job=$!
"$python" scripts/dev/watch_memory.py "$job" "$ranks" "$place" >"$place/memory.json" &
watcher=$!
wait "$job" || status=$?
took=$((SECONDS - began))
wait "$watcher" || true
watcher=''

sleep 2
left=$(ours | wc -l)
kill -KILL -- "-$job" 2>/dev/null || true
job=''
leaked=$(shared_memory | comm -13 "$place/before" - | wc -l)

sed 's/^/    /' "$place/stdout"
sed 's/^/    /' "$place/stderr" >&2
echo
echo "ranks $ranks, files $files, cores $(nproc), memory $(awk '$1 == "MemTotal:" { print int($2 / 1024) }' /proc/meminfo) MiB"
echo "exit status $status after $took s"
echo "processes left behind: $left; shared memory files left behind: $leaked"
checked=1
if [ "$status" -eq 0 ]; then
    checked=0
    "$python" - "$place/out/results.json" "$ranks" "$files" "$pattern" "${defines[@]}" <<'EOF' || checked=1
import json, sys
from pathlib import Path

from dliosim.language.compile import compile_pattern
from dliosim.model import Job
from dliosim.plan.checkpoints.reshard import blocks_to_restore
from dliosim.plan.checkpoints.layout import state_files

results, ranks, files = json.load(open(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
given = [tuple(text.split("=", 1)) for text in sys.argv[5:] if text != "-D"]
workload, _ = compile_pattern(Path(sys.argv[4]), given, Job(ranks))
states = {saved.name: state_files(saved, saved.split(ranks)) for saved in workload.checkpoints}
files_of = {name: sum(1 for _ in state.files()) for name, state in states.items()}
# Each of the ranks that hold the same bytes reads them.
bytes_of = {("save", name): state.total() for name, state in states.items()}
bytes_of |= {
    ("restore", name): sum(block.length for rank in range(ranks) for _, block in blocks_to_restore(state, state.split, rank))
    for name, state in states.items()
}
print(f"results.json: {results['ranks']} ranks, digest {results['digest']}, order hash {results['order_hash']}")
good = results["ranks"] == ranks
for phase in results["phases"]:
    seconds = f"{phase['seconds']:.1f} s"
    epochs = phase.get("epochs") or []
    print(f"{phase['kind']} {phase['name']}: {seconds}" + (f", {len(epochs)} epochs" if epochs else ""))
    if phase["kind"] in ("save", "restore"):
        size, count = bytes_of[phase["kind"], phase["name"]], files_of[phase["name"]]
        found = phase["files"]
        whole = found["bytes"] == size and (phase["kind"] == "restore" or found["files"] == count)
        good = good and whole
        print(f"  {found['bytes']} B, planned {size} B; opened {found['files']} files, {count} there")
    for epoch in epochs:
        once = epoch["samples"] == files and epoch["steps"] * ranks == files
        good = good and once
        print(f"  epoch {epoch['epoch']}: {epoch['steps']} steps, {epoch['samples']} samples of {files}, {epoch['bytes']} B")
print("as it should be: all ranks, every sample and every byte counted once" if good else "NOT SO: ranks or samples are missing")
sys.exit(not good)
EOF
fi
"$python" - "$place/memory.json" "$ranks" "$status" "$took" "$(git describe --always --dirty 2>/dev/null || true)" <<'EOF'
import json, sys
from datetime import date

taken, ranks, (status, seconds) = json.load(open(sys.argv[1])), int(sys.argv[2]), map(int, sys.argv[3:5])
mean, largest, rough = (taken[name] / 2**20 for name in ("mean_anonymous", "largest_anonymous", "mean_rss_anon"))
shared, pss, cache = (taken[name] / 1e9 for name in ("shared", "pss", "least_page_cache"))
device = f"{taken['device'] / 1e9:.1f} GB" if taken["device"] is not None else "unknown"
print(f"anonymous memory of a rank: {rough:.1f} MiB at the most, by RssAnon; at one look {mean:.1f}, {largest:.1f} the largest, by smaps_rollup")
print(f"PSS of all ranks {pss:.2f} GB, page cache at the least {cache:.2f} GB, read from the device {device}")
reached = (("whole run", seconds, 350, "s"), ("anonymous memory of a rank", max(mean, rough), 34, "MiB"), ("shared memory", shared, 0.3, "GB"))
for what, value, limit, unit in reached:
    print(f"{what}: {value:.4g} {unit}, to reach {limit}: {'reached' if value <= limit else 'MISSED'}")
print(f"| {date.today()} | {sys.argv[5]} | {ranks} | {status} | {seconds} s | {max(mean, rough):.1f} MiB | {shared:.2f} GB | {device} |")
EOF
[ "$status" -eq 0 ] && [ "$checked" -eq 0 ] && [ "$left" -eq 0 ] && [ "$leaked" -eq 0 ]
