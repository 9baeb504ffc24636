"""The board of a node's ranks (`measure.board`) in memory that they share."""

from __future__ import annotations

import socket
from typing import cast

from mpi4py import MPI

from dliosim.execute.world import World
from dliosim.measure.board import ROW_BYTES, Board, private_row, rows_of, show
from dliosim.readable import printable


def open_board(world: World) -> tuple[Board, MPI.Win]:
    """The board of this node's ranks, on which this one has introduced itself, and its memory. Collective."""
    node, leaders, name = world.node, world.leaders, socket.gethostname()
    window = MPI.Win.Allocate_shared(ROW_BYTES * node.size if node.rank == 0 else 0, 8, comm=node)
    memory = memoryview(cast(bytes, window.Shared_query(0)[0])).cast("B")
    known = 0, [name]
    if world.nodes > 1:
        known = node.bcast((leaders.rank, leaders.allgather(name)) if node.rank == 0 else None)
    board = Board(rows_of(memory), node.rank, world.size, known[0], tuple(map(printable, known[1])))
    board.own.clear()
    board.own.introduce(world.rank)
    # Every rank has written before anybody looks.
    world.barrier()
    board.own.meets = world.size > 1
    show(board.own)
    return board, window


def close_board(board: Board, window: MPI.Win) -> None:
    """Free its memory. Collective on the node."""
    show(private_row())
    for row in board.rows:
        row.release()
    window.Free()
