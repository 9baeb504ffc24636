"""The board of a node's ranks (`measure.board`) in memory that they share."""

from __future__ import annotations

import socket
from typing import cast

from mpi4py import MPI

from dliosim.measure.board import ROW_BYTES, Board, private_row, rows_of, show
from dliosim.readable import printable


def open_board(comm: MPI.Intracomm, node: MPI.Intracomm, leaders: MPI.Intracomm) -> tuple[Board, MPI.Win]:
    """The board of the ranks of `node`, on which this rank has introduced itself, and its memory. Collective.

    `leaders` is the communicator of each node's first rank.
    """
    window = MPI.Win.Allocate_shared(ROW_BYTES * node.size if node.rank == 0 else 0, 8, comm=node)
    memory = memoryview(cast(bytes, window.Shared_query(0)[0])).cast("B")
    if node.rank == 0:
        memory[:] = bytes(len(memory))
    # Every row is blank before anybody writes, and every rank has written before anybody looks.
    known = (leaders.rank, leaders.allgather(socket.gethostname())) if node.rank == 0 else None
    number, hosts = node.bcast(known)
    board = Board(rows_of(memory), node.rank, comm.size, number, tuple(map(printable, hosts)))
    board.own.introduce(comm.rank)
    node.Barrier()
    show(board.own)
    return board, window


def close_board(board: Board, window: MPI.Win) -> None:
    """Free its memory. Collective on the node."""
    show(private_row())
    for row in board.rows:
        row.release()
    window.Free()
