"""Check that data fit into storage or memory before anything is written."""

from __future__ import annotations

from pathlib import Path

from dliosim.errors import ExecutionError
from dliosim.execute.node.environment import find_mount, free_bytes
from dliosim.execute.node.memory import available_memory, find_free_memory
from dliosim.readable import count, size


def require_space(directory: Path, needed: int, what: str) -> None:
    """Raise ExecutionError [R402] unless the file system of `directory` has room for `needed` bytes.

    A file system in memory (tmpfs) has no more room than the machine has memory.
    """
    room = free_bytes(directory)
    place = f"the file system of {directory}"
    mount = find_mount(directory)
    if mount.is_memory_backed:
        memory = available_memory()
        if memory is not None and memory < room:
            room, place = memory, f"memory, which holds the {mount.kind} of {directory},"
    if needed > room:
        raise ExecutionError(f"{what} needs {size(needed)} and {place} has {size(room)}", "R402")


def require_memory(needed: int, ranks: int, what: str) -> None:
    """Raise ExecutionError [R402] unless this node has `needed` bytes of memory for its `ranks` ranks together."""
    memory, place = find_free_memory()
    if memory is not None and needed > memory:
        text = f"{what} need {size(needed)} of memory for {count(ranks, 'rank')} on a node"
        raise ExecutionError(f"{text}, and {place} has {size(memory)} free", "R402")
