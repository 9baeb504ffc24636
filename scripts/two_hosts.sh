#!/usr/bin/env bash
# Run a command on the ranks of two hosts: network namespaces of this machine, with host names of their own, joined by a
# bridge. MPI takes them for two nodes, and messages between them go by TCP. They share one kernel, so one page cache.
#
#   scripts/two_hosts.sh RANKS RANKS_PER_HOST COMMAND ...
#   scripts/two_hosts.sh 4 2 dliosim run cosmoflow -D files=32 --dir /scratch/me
#
# Needs root, iproute2 and MPICH's mpiexec. What it makes is removed at the end.
set -euo pipefail

if [ "${TWO_HOSTS_LAUNCH:-}" ]; then # the launcher of mpiexec: [-x] ADDRESS WORD ...
    [ "$1" = -x ] && shift
    host=dliosim${1##*.}
    shift
    exec ip netns exec "$host" unshare --uts sh -c "hostname $host; unset TWO_HOSTS_LAUNCH; $*"
fi

if [ $# -lt 3 ]; then
    sed -n 's/^# \{0,1\}//p' "$0" | sed 1d >&2
    exit 2
fi
ranks=$1 each=$2
shift 2

clean() {
    for number in 1 2; do
        ip netns pids "dliosim$number" 2>/dev/null | xargs -r kill -9 || true
        ip netns del "dliosim$number" 2>/dev/null || true
    done
    ip link del dliosim 2>/dev/null || true
}
if ip link show dliosim >/dev/null 2>&1; then
    echo "two_hosts.sh: another one runs, or was killed: then type \`ip link del dliosim; ip netns del dliosim1; ip netns del dliosim2\`" >&2
    exit 1
fi
trap clean EXIT
ip link add dliosim type bridge
ip addr add 10.77.0.254/24 dev dliosim
ip link set dliosim up
for number in 1 2; do
    ip netns add "dliosim$number"
    ip link add "dliosim$number" type veth peer name e0 netns "dliosim$number"
    ip link set "dliosim$number" master dliosim up
    ip -n "dliosim$number" addr add "10.77.0.$number/24" dev e0
    ip -n "dliosim$number" link set e0 up
    ip -n "dliosim$number" link set lo up
done
TWO_HOSTS_LAUNCH=1 mpiexec -launcher ssh -launcher-exec "$(realpath "$0")" -hosts 10.77.0.1,10.77.0.2 \
    -localhost 10.77.0.254 -n "$ranks" -ppn "$each" env -u TWO_HOSTS_LAUNCH "$@"
