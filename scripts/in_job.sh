#!/usr/bin/env bash
# What a batch job does with a pattern, whichever batch system it is: look at the pattern, say what it will do, run it, and
# see that it came to its end. slurm.sbatch and pbs.sh call it with what only they know.
#
#   RANKS=64 NODES=4 PYTHON=env/bin/python DATA=/scratch/me/data OUTPUT=results scripts/in_job.sh PATTERN [OPTION...]
#   ... scripts/in_job.sh --scaling PATTERN [OPTION...]       a scaling study (scaling.sh) instead of one run
#   ... scripts/in_job.sh --compare PATTERN --vary NAME=A,B   a comparison of variants instead of one run
#
# RANKS, NODES  of the job
# PYTHON        the interpreter that dliosim is installed for
# DATA          where data go, on the file system in question (`--dir`)
# LOCAL         where `root local` of a pattern is (`--root local=`), given to dliosim only if the pattern has it
# OUTPUT        the directory of the results; it must not have any
# LAUNCHER, RANKS_PER_NODE: see launch.sh
#
# Options are those of `dliosim run` (-D, --with-null, --verify, --strict), or `dliosim compare` (--vary, --repeat, --loop). Exit status:
# dliosim's (docs/running.md#exit-codes), but never 0 without results.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
: "${RANKS:?}" "${NODES:?}" "${PYTHON:?}" "${DATA:?}" "${OUTPUT:?}"
export PYTHON RANKS

what=run last=results.json
case ${1:-} in
--scaling) what=scaling ;;
--compare) what=compare last=compare.json ;;
esac
if [ "$what" != run ]; then shift; fi
if [ $# -eq 0 ]; then
    echo "no pattern: give the job script a pattern file, and options of \`dliosim run\` behind it" >&2
    exit 2
fi
pattern=$1
shift

dliosim() { "$PYTHON" -m dliosim.cli "$@"; }

overrides=() # the -D among the options: also what `explain` and `plan` understand
repeats=      # with `run --repeat N` the last results are those of run_N
words=("$@")
for ((word = 0; word < $#; word++)); do
    case ${words[word]} in
    -D) overrides+=(-D "${words[word + 1]:-}") ;;
    -D*) overrides+=("${words[word]}") ;;
    --repeat) repeats=${words[word + 1]:-} ;;
    --repeat=*) repeats=${words[word]#*=} ;;
    esac
done
[ "$what" != run ] || [ -z "$repeats" ] || last=run_$repeats/results.json

# Neither needs MPI: a mistake in the pattern ends the job before the launcher has started anything.
resolved=$(dliosim explain "$pattern" "${overrides[@]}" --ranks "$RANKS" --nodes "$NODES")
places=(--dir "$DATA")
if grep -Eq '^ +root +local( |$)' <<<"$resolved"; then
    if [ -z "${LOCAL:-}" ]; then
        echo "$pattern has \`root local\`, and LOCAL names no directory for it" >&2
        exit 2
    fi
    places+=(--root "local=$LOCAL")
fi

if [ "$what" = scaling ]; then
    exec "$here/scaling.sh" --output "$OUTPUT" "$pattern" "${places[@]}" "$@"
fi
dliosim plan "$pattern" "${overrides[@]}" --ranks "$RANKS" --nodes "$NODES"
echo
status=0
# If the launcher and mpi4py belong to different MPIs, each rank would be a job of its own; dliosim notices, and ends.
"$here/launch.sh" "$RANKS" "$PYTHON" -m dliosim.cli "$what" "$pattern" "${places[@]}" --output "$OUTPUT" "$@" || status=$?
if [ ! -e "$OUTPUT/$last" ]; then
    echo "no $OUTPUT/$last: the $what did not finish (the launcher's exit status is $status)" >&2
    [ "$status" -ne 0 ] || status=1
elif ! "$PYTHON" -c 'import json, sys; sys.exit(json.load(open(sys.argv[1]))["ranks"] != int(sys.argv[2]))' \
    "$OUTPUT/$last" "$RANKS"; then
    echo "$OUTPUT/$last is not of $RANKS ranks: the launcher and mpi4py belong to different MPIs" >&2
    status=1
fi
exit "$status"
