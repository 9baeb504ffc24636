#!/usr/bin/env bash
#PBS -N dliosim
#PBS -l select=2:ncpus=8:mpiprocs=8
#PBS -l walltime=01:00:00
#PBS -j oe
# One pattern, a scaling study or a comparison of it, as a PBS job. Submit it from the checkout. A PBS script gets no arguments, so that
# they come in a variable, quoted as for a shell:
#
#   export ARGUMENTS='patterns/cosmoflow.dlio -D files=65536 -D layout="shared file"'
#   qsub -v ARGUMENTS -l select=4:ncpus=32:mpiprocs=32 scripts/pbs.sh
#   ARGUMENTS='--scaling patterns/cosmoflow.dlio' qsub -v ARGUMENTS scripts/pbs.sh
#   ARGUMENTS='--compare patterns/resnet50_shared.dlio --vary api=posix,mpi-collective' qsub -v ARGUMENTS scripts/pbs.sh
#
# Behind the pattern come options of `dliosim run`, or `compare`. Results go to dliosim-JOBID below the directory of submission, the
# tables to the job's output. `mpiprocs` says how many ranks a node has. Sites that want an account or a queue: qsub -A, -q,
# or lines above. docs/running.md has the whole way, from the environment to what to look at.

# --- Fill in, or give to qsub by -v ------------------------------------------------------------------------------------
# The modules that dliosim was installed with: the site's MPI, the one that mpi4py was built for. (They stand before
# `set -u`, which the code of modules does not always bear.)
# module purge
# module load gcc openmpi

submitted=${PBS_O_WORKDIR:?start it by qsub}
checkout=${CHECKOUT:-$submitted}              # PBS runs a copy of this file: where the other scripts are
export PYTHON=${PYTHON:-$checkout/env/bin/python} # of the virtual environment, on a file system that all nodes see
export DATA=${DATA:-$submitted/dliosim-data}  # data: on the parallel file system that is to be measured
export LOCAL=${LOCAL:-${TMPDIR:-}}            # `root local`: scratch of the node itself; one node only
export OUTPUT=${OUTPUT:-$submitted/dliosim-$PBS_JOBID}
export LAUNCHER=${LAUNCHER:-}                 # empty: mpiexec; "mpiexec -ppn 8" or "aprun", where that is not enough
# ---------------------------------------------------------------------------------------------------------------------

set -euo pipefail
hosts=${PBS_NODEFILE:?the job has no node file} # a line for each rank
RANKS=$(wc -l <"$hosts")
NODES=$(sort -u "$hosts" | wc -l)
export RANKS NODES
cd "$submitted"
arguments=("$@")
if [ $# -eq 0 ] && [ -n "${ARGUMENTS:-}" ]; then
    # xargs takes quotes as a shell does, and runs nothing.
    mapfile -d '' -t arguments < <(xargs printf '%s\0' <<<"$ARGUMENTS")
fi
exec "$checkout/scripts/in_job.sh" "${arguments[@]}"
