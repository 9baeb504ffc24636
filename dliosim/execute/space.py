"""Whether what is to be written fits, asked before anything is written."""

from __future__ import annotations

from pathlib import Path

from dliosim.errors import ExecutionError
from dliosim.execute.environment import available_memory, file_system, free_bytes

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def require_space(directory: Path, needed: int, what: str) -> None:
    """Raise ExecutionError [R402] unless the file system of `directory` has room for `needed` bytes.

    A file system in memory (tmpfs) has no more room than the machine has memory.
    """
    room = free_bytes(directory)
    place = f"the file system of {directory}"
    mount = file_system(directory)
    if mount.in_memory:
        memory = available_memory()
        if memory is not None and memory < room:
            room, place = memory, f"memory, which holds the {mount.kind} of {directory},"
    if needed > room:
        raise ExecutionError(f"{what} needs {_human(needed)} and {place} has {_human(room)}", "R402")


def require_memory(needed: int, ranks_per_node: int, what: str) -> None:
    """Raise ExecutionError [R402] unless the memory of a node with that many ranks holds what each of them needs."""
    memory = available_memory()
    if memory is not None and needed * ranks_per_node > memory:
        text = f"{what} need {_human(needed)} on each of {ranks_per_node} ranks of a node"
        raise ExecutionError(f"{text}, and {_human(memory)} of its memory are free", "R402")


def _human(size: float) -> str:
    unit = 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {_UNITS[unit]}" if unit else f"{size:.0f} B"
