"""The board of a node's ranks (`measure.board`) in memory that they share."""

from __future__ import annotations

import socket

from dliosim.execute.mpi.shared_memory import SharedMemory
from dliosim.execute.mpi.world import World
from dliosim.measure.board import ROW_BYTES, Board, private_row, rows_of, show
from dliosim.readable import printable


def open_board(world: World) -> tuple[Board, SharedMemory]:
    """The board of this node's ranks, on which this one has introduced itself, and its memory. Collective."""
    node, leaders, name = world.node, world.leaders, socket.gethostname()
    memory = SharedMemory(node.comm, ROW_BYTES * node.size)
    known = 0, [name]
    if world.nodes > 1:
        known = node.share((leaders.rank, leaders.allgather(name)) if node.rank == 0 else None)
    board = Board(rows_of(memory.view), node.rank, world.size, known[0], tuple(map(printable, known[1])))
    board.own.introduce(world.rank)
    # Every rank has written before anybody looks.
    world.barrier()
    board.own.meets = world.size > 1
    show(board.own)
    return board, memory


def close_board(board: Board, memory: SharedMemory) -> None:
    """Free its memory. Collective on the node."""
    show(private_row())
    for row in board.rows:
        row.release()
    memory.close()
