#!/usr/bin/env bash
# A scaling study: one pattern on 1, 2, 4, ... ranks, each run with its own results, and what came out side by side.
#
#   scripts/scaling.sh [--ranks "1 2 4 8"] [--output DIR] PATTERN [OPTION...]
#   scripts/scaling.sh --output weak   patterns/cosmoflow.dlio --dir /scratch/me/data
#   scripts/scaling.sh --output strong patterns/cosmoflow.dlio --dir /scratch/me/data -D files=4096
#
# --ranks   how many ranks, in order (default: powers of two up to what the allocation of Slurm or PBS has, and all of it;
#           the cores of this machine elsewhere)
# --output  a directory that gets one for each run, ranks-000004 and so on, and what each printed next to it,
#           ranks-000004.txt (default: dliosim-scaling)
# PATTERN and what follows go to `dliosim run` as they are, -D among them. Weak or strong is the pattern's matter: with
# `samples 16 * $ranks` each rank has the same work on any number of them, with -D files=4096 all share the same.
#
# A run whose results.json is there is not done again: start the same line once more to continue after an end of any kind, with
# more --ranks if you like. DIR/study.txt says which pattern and options its runs are of: with others, DIR is refused.
# Data stay in --dir for the next time, in weak scaling a set for each number of ranks. Ctrl-C ends the ranks, too.
#
# PYTHON: the interpreter that dliosim is installed for (default: env/bin/python). LAUNCHER, RANKS_PER_NODE: see launch.sh.
# Exit status: 0 if all runs have results, 1 if any has none, 2 for wrong usage, for a DIR that holds anything else, and for
# a mistake in the pattern, with which no more runs are tried, 130 after Ctrl-C.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PYTHON=${PYTHON:-env/bin/python}

usage() {
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
    exit 0
}

wrong() { # what is wrong, a line each
    printf '%s\n' "$@" >&2
    exit 2
}

wrong_usage() {
    wrong "$1" 'usage: scripts/scaling.sh [--ranks "1 2 4 8"] [--output DIR] PATTERN [OPTION...]   (--help: all of it)'
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
    --help | -h) usage ;;
    --ranks)
        [ $# -gt 1 ] || wrong_usage "--ranks: no numbers behind it"
        read -ra counts <<<"$2"
        shift 2
        ;;
    --output)
        output=${2:-}
        [ -n "$output" ] || wrong_usage "--output: no directory behind it"
        shift 2
        ;;
    -*) wrong_usage "$1: no option of scaling.sh; those of \`dliosim run\` come behind the pattern" ;;
    *) break ;;
    esac
done
[ $# -gt 0 ] || wrong_usage "no pattern"
[ -r "$1" ] || wrong_usage "$1: no pattern file that can be read"
for word in "$@"; do
    case $word in
    --repeat | --repeat=*) wrong_usage "--repeat: a study has one run for each number of ranks; start it again with another --output" ;;
    esac
done
if [ "${#counts[@]}" -eq 0 ]; then
    most=$(available)
    mapfile -t counts < <(powers_up_to "$most")
fi
for ranks in "${counts[@]}"; do
    [[ $ranks =~ ^[1-9][0-9]*$ ]] || wrong_usage "--ranks: $ranks is not a number of ranks"
done

describe() { # what the runs of this study are of; the number of ranks may change, and who starts them
    local sum
    sum=$(sha256sum <"$1")
    printf 'pattern:%s\n' "$(printf ' %q' "$(realpath "$1")")"
    printf 'sha256: %s\n' "${sum%% *}"
    shift
    printf 'options:%s\n' "$([ $# -eq 0 ] || printf ' %q' "$@")"
}

has_runs() { compgen -G "$output/ranks-*/results.json" >/dev/null; }

check_output() { # $1: what `describe` says; ends the script where the directory holds anything but this study
    local file line there now differs=()
    for file in results.json compare.json; do
        [ ! -e "$output/$file" ] || wrong "--output $output holds a $file, which no scaling study leaves there: name another"
    done
    has_runs || return 0
    [ -e "$output/study.txt" ] ||
        wrong "--output $output holds runs, but no study.txt that says what they are of: name another directory"
    mapfile -t there <"$output/study.txt"
    mapfile -t now <<<"$1"
    for line in "${!now[@]}"; do
        [ "${there[line]:-}" = "${now[line]}" ] || differs+=("  there ${there[line]:-nothing}" "  now   ${now[line]}")
    done
    [ "${#differs[@]}" -eq 0 ] ||
        wrong "--output $output holds another study: name another directory, or start the line that it was begun with" \
            "${differs[@]}"
}

study=$(describe "$@")
check_output "$study"
mkdir -p "$output" || exit 2
printf '%s\n' "$study" >"$output/study.txt" || exit 2

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
    echo "interrupted: start the same line once more to continue" >&2
    exit 130
}
trap interrupted INT TERM
trap end_job EXIT

failed=()
finished=()
mistake=''
for ranks in "${counts[@]}"; do
    results=$output/ranks-$(printf '%06d' "$ranks")
    if [ -e "$results/results.json" ]; then
        echo "ranks $ranks: done before, $results"
    else
        echo "ranks $ranks: to $results"
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
            if [ "$status" -eq 2 ]; then # a mistake in the pattern, and so with any number of ranks
                mistake=yes
                break
            fi
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
    [ -z "$mistake" ] || wrong "no more numbers of ranks were tried: see the error above"
    exit 1
fi
