#!/usr/bin/env bash
# What takes too long for every change: the tests with 16 times as many examples, then what is drawn at random.
#
#   scripts/nightly.sh [SECONDS]       SECONDS for each script that runs for a time (default: 1800); about three hours
#
# PYTHON names the interpreter of the environment (default: env/bin/python), SEED what is drawn (default: the date).
# What goes wrong is kept in nightly/. All parts run, and the status is 1 if one of them failed.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-1800}
python=${PYTHON:-env/bin/python}
seed=${SEED:-$(date +%Y%m%d)}
kept=nightly
limit=$((4 * seconds + 7200)) # a part that takes longer has hung
failed=()
mkdir -p "$kept"

part() {
    printf '\n### %s, seed %s\n\n' "$1" "$seed"
    local began=$SECONDS
    timeout --kill-after=60 "$limit" "$python" "${@:2}" || failed+=("$1")
    printf '\n(%s s)\n' $((SECONDS - began))
}

part "tests" -m pytest -n 2 --dist loadfile --hypothesis-profile=nightly
part "patterns" scripts/run_patterns.py
part "random meetings" scripts/random_meetings.py --first "$seed" --sequences $((2 * seconds))
part "random workloads" scripts/random_workloads.py --seconds "$seconds" --seed "$seed" --keep "$kept/workloads"
part "injected faults" scripts/inject_faults.py --seconds "$seconds" --seed "$seed" --kept "$kept/faults"
part "mutated patterns" scripts/mutated_patterns.py --seconds "$seconds" --seed "$seed" --keep "$kept/patterns"
part "killed jobs" scripts/kill_jobs.py --kills $((seconds / 9 + 1)) --seed "$seed"
part "killed checkpoints" scripts/kill_checkpoints.py --kills $((seconds / 9 + 1)) --seed "$seed"
part "false alarms" scripts/false_alarms.py # the same draws each night: its limits are close to what is expected

[ ${#failed[@]} -eq 0 ] || { printf 'failed: %s\n' "${failed[@]}" >&2; exit 1; }
