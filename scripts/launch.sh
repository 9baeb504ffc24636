#!/usr/bin/env bash
# Starts a command on N ranks: by srun inside a Slurm allocation, by mpiexec elsewhere. It becomes the launcher (exec), so
# that its process id, its signals and its exit status are the launcher's.
#
#   scripts/launch.sh N COMMAND...
#
# LAUNCHER       the launcher and its options, where the guess is wrong; `-n N` is added: LAUNCHER="srun --mpi=pmix",
#                "mpirun --map-by core", "aprun"
# RANKS_PER_NODE inside a Slurm allocation: this number of ranks on each node (default: as the allocation has it), one node filled
#                after another. With mpiexec the host file of the allocation or options in LAUNCHER say so.
# PYTHON         the interpreter that dliosim is installed for: an mpiexec next to it is taken before one on the PATH
set -euo pipefail

if [ $# -lt 2 ] || ! [[ $1 =~ ^[1-9][0-9]*$ ]]; then
    echo "usage: ${0##*/} N COMMAND..." >&2
    exit 2
fi
ranks=$1
shift

if [ -n "${LAUNCHER:-}" ]; then
    read -ra launcher <<<"$LAUNCHER"
    exec "${launcher[@]}" -n "$ranks" "$@"
fi
if [ -n "${SLURM_JOB_ID:-}" ] && command -v srun >/dev/null; then
    nodes=${SLURM_JOB_NUM_NODES:-1}
    per_node=${RANKS_PER_NODE:-$(((${SLURM_NTASKS:-$ranks} + nodes - 1) / nodes))}
    # Without the number of nodes srun would spread few ranks over all of them.
    exec srun --nodes="$(((ranks + per_node - 1) / per_node))" --ntasks="$ranks" --ntasks-per-node="$per_node" \
        --kill-on-bad-exit=1 "$@"
fi
mpiexec=mpiexec
if [ -n "${PYTHON:-}" ] && [ -x "$(dirname "$PYTHON")/mpiexec" ]; then mpiexec=$(dirname "$PYTHON")/mpiexec; fi
exec "$mpiexec" -n "$ranks" "$@"
