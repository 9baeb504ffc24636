"""Waits of ranks and their readers for cores, with other programs on these cores and without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dliosim.execute.node.compute import core_wait
from tests.mpi.jobs import DATASET, PREPARE, Place, phases

#: A rank that shares its core with one busy program waits for it half of the time.
SPINNING = 1

LOOP = """
train {
    read     d
    batch    4 per rank
    epochs   2
    readers  1
    compute  %s
}
"""


@contextmanager
def taken_cores() -> Iterator[None]:
    """Programs that do nothing but take the cores of this machine, until the end."""
    programs = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(SPINNING * len(os.sched_getaffinity(0)))
    ]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
        for program in programs:
            program.wait()


def waited(place: Path, ranks: int, compute: str) -> tuple[float, float, str]:
    """Return the shares of a loop's time that ranks and readers waited for cores; and the output."""
    there = Place(place)
    place.mkdir()
    there.write(DATASET, PREPARE, LOOP % compute)
    done = there.run(ranks)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    (train,) = phases(json.loads((there.output / "results.json").read_text()), "train")
    loop = sum(epoch["loop_seconds"] for epoch in train["epochs"])
    own, readers = (
        sum(epoch[f"{who}core_wait_seconds"]["mean"] for epoch in train["epochs"]) / loop for who in ("", "reader_")
    )
    return own, readers, done.stdout


def test_a_loop_waits_for_cores_that_others_take(tmp_path: Path) -> None:
    if core_wait([os.getpid()]) is None:
        pytest.skip("this kernel does not count it")
    quiet, _, _ = waited(tmp_path / "quiet", 1, "20 ms")
    with taken_cores():
        crowded, readers, printed = waited(tmp_path / "crowded", 2, "20 ms busy")
    assert crowded > 0.2
    assert readers > 0
    # Whatever else this machine does, a loop that sleeps wants a core for a moment only.
    assert quiet < crowded
    assert "of the loop for a core" in " ".join(printed.split())
    assert "utilization is not to be trusted" in " ".join(printed.split())
