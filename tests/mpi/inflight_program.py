"""Run by one rank: how many requests a window has in flight, and that none is left in flight by a failure."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from dliosim.execute.backends.mpiio_nonblocking import keep_in_flight

COUNT = 23


class Traffic:
    """Messages from this rank to itself; those that arrive are answered in an order of their own."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.buffers = [bytearray(8) for _ in range(COUNT)]
        self.open: list[int] = []
        self.most = 0
        self.back: list[int] = []
        self.left: list[MPI.Request] = []

    def issue(self, number: int) -> MPI.Request:
        """Begin to receive; with the window full, or at the end, send what the newest of those that wait wants."""
        request = MPI.COMM_SELF.Irecv([self.buffers[number], MPI.BYTE], 0, number)
        self.open.append(number)
        self.most = max(self.most, len(self.open))
        if len(self.open) == self.depth or number == COUNT - 1:
            for wanted in reversed(self.open[-1:] if number < COUNT - 1 else self.open):
                self.left.append(MPI.COMM_SELF.Isend([np.array([wanted]), MPI.BYTE], 0, wanted))
        return request

    def take(self, number: int, status: MPI.Status, now: int) -> None:
        """Note what came back."""
        assert status.Get_count(MPI.BYTE) == 8
        assert np.frombuffer(self.buffers[number], np.int64)[0] == number
        self.open.remove(number)
        self.back.append(number)


def main(comm: MPI.Intracomm) -> None:
    for depth in (1, 4, COUNT, 2 * COUNT):
        traffic = Traffic(depth)
        keep_in_flight(COUNT, depth, traffic.issue, traffic.take)
        MPI.Request.Waitall(traffic.left)
        assert sorted(traffic.back) == list(range(COUNT))
        assert traffic.most == min(depth, COUNT)
    keep_in_flight(0, 3, lambda number: MPI.REQUEST_NULL, lambda *_: None)

    failed = []

    def issue(number: int) -> MPI.Request:
        if number == 2:
            raise ValueError("no more of these")
        request = MPI.COMM_SELF.Irecv([buffers[number], MPI.BYTE], 0, number)
        sends.append(MPI.COMM_SELF.Isend([b"12345678", MPI.BYTE], 0, number))
        return request

    buffers, sends = [bytearray(8) for _ in range(2)], []
    try:
        keep_in_flight(5, 4, issue, lambda *_: None)
    except ValueError as error:
        failed.append(str(error))
    assert failed == ["no more of these"]
    assert buffers == [bytearray(b"12345678")] * 2
    MPI.Request.Waitall(sends)
    print("nothing is in flight")


if __name__ == "__main__":
    main(MPI.COMM_SELF)
