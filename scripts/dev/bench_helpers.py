"""Readers of a rank as ranks of MPI, or as processes that the rank executes: the costs of handing over batches.

    python scripts/dev/bench_helpers.py [--batches 500] [--reading 0.005]

Prints a markdown row for each of the two: the time to hand over a batch that is ready (message there, message back, by
MPI or by dliosim's socket; the batch is in memory that both have mapped), the share of a core that the rank takes while
it waits for a batch that takes `--reading` seconds, and the private memory of the helper. Each runs alone.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import Any, Protocol

import numpy as np
from harness import header, mpiexec, orderly, row, run

from dliosim.execute.batches.messages import receive_message, send_message
from dliosim.plan.samples.io_requests import Calls


class Peer(Protocol):
    """The other side: a message is the seconds that reading a batch takes; below 0 ends the helper."""

    def send(self, seconds: float) -> None: ...

    def receive(self) -> float: ...


class MpiPeer:
    """The other rank of two."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self._world: Any = MPI.COMM_WORLD
        self.rank = self._world.Get_rank()
        self._box = np.zeros(1)

    def send(self, seconds: float) -> None:
        self._box[0] = seconds
        self._world.Send(self._box, 1 - self.rank)

    def receive(self) -> float:
        self._world.Recv(self._box, 1 - self.rank)
        return float(self._box[0])


class SocketPeer:
    """The process at the other end of a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def send(self, seconds: float) -> None:
        send_message(self._connection, {"seconds": seconds})

    def receive(self) -> float:
        return float(receive_message(self._connection)[0]["seconds"])


def help_rank(peer: Peer) -> None:
    """Serve until the rank says that it is over, then answer with the private memory in MB."""
    while (seconds := peer.receive()) >= 0:
        if seconds:
            sleep(seconds)
        peer.send(seconds)
    rollup = Path("/proc/self/smaps_rollup").read_text().splitlines()
    peer.send(sum(int(line.split()[1]) for line in rollup if line.startswith("Private_")) * 1024e-6)


def measure(peer: Peer, batches: int, reading: float) -> dict[str, float]:
    """Return the microseconds of a hand-over, the share of a core that waiting takes, and the MB of the helper."""
    began = perf_counter()
    for _ in range(batches):
        peer.send(0.0)
        peer.receive()
    handed = (perf_counter() - began) / batches
    began, busy = perf_counter(), process_time()
    for _ in range(max(1, batches // 10)):
        peer.send(reading)
        peer.receive()
    share = (process_time() - busy) / (perf_counter() - began)
    peer.send(-1.0)
    return {"handed": handed * 1e6, "share": share, "memory": peer.receive()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=500)
    parser.add_argument("--reading", type=float, default=0.005, help="seconds of reading a batch")
    parser.add_argument("--role", choices=["mpi", "process"], help="as this script starts itself")
    parser.add_argument("--descriptor", type=int, help="of the socket of a process")
    options = parser.parse_args()
    assert Calls is not None  # a helper has dliosim's modules for reading in memory
    if options.role == "process":
        help_rank(SocketPeer(socket.socket(fileno=options.descriptor)))
        return
    if options.role == "mpi":
        rank = MpiPeer()
        if rank.rank:
            help_rank(rank)
        else:
            print(json.dumps(measure(rank, options.batches, options.reading)))
        return
    words = [sys.executable, __file__, "--batches", str(options.batches), "--reading", str(options.reading), "--role"]
    here, there = socket.socketpair()
    with subprocess.Popen([*words, "process", "--descriptor", str(there.fileno())], pass_fds=[there.fileno()]):
        there.close()
        process = measure(SocketPeer(here), options.batches, options.reading)
    helper = json.loads(run([mpiexec(), "-n", "2", *words, "mpi"], 300).splitlines()[-1])
    header("helper", "hand-over, us", "a core while the rank waits", "private memory, MB")
    for name, found in (("process", process), ("rank of MPI", helper)):
        row(name, f"{found['handed']:.0f}", f"{found['share']:.0%}", f"{found['memory']:.0f}")


if __name__ == "__main__":
    orderly(main)
