"""Saving and restoring take the memory of a call, however large the state is."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mpi.jobs import HEAD
from tests.mpi.launch import run_program

MIB = 1 << 20

#: What saving and restoring may take beyond what the imported program has: less than a third of the larger state.
ROOM = 150 * MIB

PATTERN = """
param size = 512 MiB
checkpoint state {
    part      weights $size total
    transfer  4 MiB
    path      "state"
}
save state
restore state
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where there is one with room, else on disk."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or shutil.disk_usage(memory).free < 1024 * MIB:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="dliosim-test-", dir=memory) as directory:
        yield Path(directory)


def resident(place: Path, size: str) -> int:
    """The most memory (bytes) that a rank had while it saved and restored so much, within ROOM."""
    pattern, data, output = place / "large.dlio", place / "data", place / "out"
    pattern.write_text(HEAD + PATTERN)
    places = ["--dir", str(data), "--output", str(output)]
    printed = run_program(1, "tests.mpi.memory_program", str(ROOM), str(pattern), "-D", f"size={size}", *places)
    shutil.rmtree(data)
    shutil.rmtree(output)
    return int(printed.split("resident ")[1])


def test_a_larger_state_takes_no_more_memory(place: Path) -> None:
    small, large = resident(place, "64 MiB"), resident(place, "512 MiB")
    assert abs(large - small) < 16 * MIB, (small, large)
