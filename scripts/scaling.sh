#!/usr/bin/env bash
# A scaling study: one pattern on 1, 2, 4, ... ranks, each run with its own results, and what came out side by side.
#
#   scripts/scaling.sh [--ranks "1 2 4 8"] [--output DIR] PATTERN [OPTION...]
#   scripts/scaling.sh --output weak   patterns/cosmoflow.dlio --dir /scratch/me/data
#   scripts/scaling.sh --output strong patterns/cosmoflow.dlio --dir /scratch/me/data -D files=4096
#
# --ranks   how many ranks, in order (default: powers of two up to what the allocation of Slurm or PBS has, and all of it;
#           the cores of this machine elsewhere)
# --output  a directory that gets one for each run, ranks-000004 and so on, and the tables of each beside it,
#           ranks-000004.txt (default: dliosim-scaling)
# PATTERN and what follows go to `dliosim run` as they are, -D among them. Weak or strong is the pattern's matter: with
# `samples 16 * $ranks` each rank has the same work on any number of them, with -D files=4096 all share the same.
#
# A run whose results.json is there is not done again: start the same line once more to go on after an end of any kind.
# Data stay in --dir for the next time, in weak scaling a set for each number of ranks. Ctrl-C ends the ranks, too.
#
# PYTHON: the interpreter that dliosim is installed for (default: env/bin/python). LAUNCHER, RANKS_PER_NODE: see launch.sh.
# Exit status: 0 if all runs have results, 1 if any has none, 2 for wrong usage, 130 after Ctrl-C.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PYTHON=${PYTHON:-env/bin/python}

usage() {
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
    exit "$1"
}

available() { # how many ranks there is room for
    if [ -n "${RANKS:-}" ]; then
        echo "$RANKS"
    elif [ -n "${SLURM_NTASKS:-}" ]; then
        echo "$SLURM_NTASKS"
    elif [ -n "${PBS_NODEFILE:-}" ]; then
        wc -l <"$PBS_NODEFILE"
    else
        nproc
    fi
}

powers_up_to() {
    local ranks
    for ((ranks = 1; ranks < $1; ranks *= 2)); do echo "$ranks"; done
    echo "$1"
}

counts=()
output=dliosim-scaling
while [ $# -gt 0 ]; do
    case $1 in
    --help | -h) usage 0 ;;
    --ranks)
        read -ra counts <<<"${2:-}"
        shift 2 || usage 2 >&2
        ;;
    --output)
        output=${2:-}
        shift 2 || usage 2 >&2
        ;;
    *) break ;;
    esac
done
if [ $# -eq 0 ] || [ -z "$output" ] || [ "${1#-}" != "$1" ]; then usage 2 >&2; fi
if [ "${#counts[@]}" -eq 0 ]; then
    most=$(available)
    mapfile -t counts < <(powers_up_to "$most")
fi
for ranks in "${counts[@]}"; do
    if ! [[ $ranks =~ ^[1-9][0-9]*$ ]]; then
        echo "--ranks: $ranks is not a number of ranks" >&2
        exit 2
    fi
done

job=''
end_job() { # the launcher, and whatever of its process group is left
    trap '' INT TERM
    if [ -n "$job" ]; then
        kill -TERM -- "-$job" 2>/dev/null || true
        for _ in {1..50}; do
            kill -0 -- "-$job" 2>/dev/null || break
            sleep 0.1
        done
        kill -KILL -- "-$job" 2>/dev/null || true
    fi
}
interrupted() {
    end_job
    echo "interrupted: start the same line once more to go on" >&2
    exit 130
}
trap interrupted INT TERM
trap end_job EXIT

failed=()
finished=()
for ranks in "${counts[@]}"; do
    results=$output/ranks-$(printf '%06d' "$ranks")
    if [ -e "$results/results.json" ]; then
        echo "ranks $ranks: done before, $results"
    else
        echo "ranks $ranks: to $results"
        mkdir -p "$output"
        # A process group of its own, so that a signal to it reaches the launcher and none of what started this script.
        setsid "$here/launch.sh" "$ranks" "$PYTHON" -m dliosim.cli run "$@" --output "$results" \
            </dev/null >"$results.txt" &
        job=$!
        status=0
        wait "$job" || status=$?
        end_job
        job=''
        trap interrupted INT TERM
        # With an `expect` line missed (3) the run is done, and its figures are what the study is for.
        if ! [ -e "$results/results.json" ]; then
            echo "ranks $ranks: no results, the launcher's exit status is $status" >&2
            failed+=("$ranks")
            continue
        fi
    fi
    finished+=("$results")
done

if [ "${#finished[@]}" -gt 0 ]; then
    echo
    "$PYTHON" -m dliosim.cli report "${finished[@]}"
    echo
    "$PYTHON" "$here/scaling_table.py" "${finished[@]}"
fi
if [ "${#failed[@]}" -gt 0 ]; then
    echo "no results for ranks ${failed[*]}" >&2
    exit 1
fi
