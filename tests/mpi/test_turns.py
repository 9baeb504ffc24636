"""`at most N writers at a time`: no more ranks write at once, every byte is saved, and a failure hangs no rank."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dliosim.trace.events import kind_number
from dliosim.trace.file import read_trace
from tests.mpi.jobs import Place, only_error, phases
from tests.mpi.launch import library_environment, run_ranks

STATE = """
checkpoint c {
    part      weights 3_000_001 B total
    part      norm 77_001 B whole
    transfer  100 kB
    at most   MOST
    SETTING
    path      "c"
}
save c
save c
restore c
"""
GROUPS = "writers   one per 2 ranks"


def state(most: int | str, setting: str = "") -> str:
    return STATE.replace("MOST", f"{most} writers at a time" if isinstance(most, int) else most).replace(
        "SETTING", setting
    )


def writers_at_once(place: Place, ranks: int) -> int:
    """The most ranks that had written the first, and not yet closed the last, of their files of a save."""
    events = read_trace(place.output / "trace.h5").events
    writing, most = kind_number("write"), 0
    for number in ("/000001/", "/000002/"):
        saved = np.array([number in name or f"{number[1:-1]}.partial" in name for name in events.files])
        own = (events.kind == writing) & (events.file >= 0) & saved[events.file]
        spans = []
        for process in range(ranks):
            calls = own & (events.process == process)
            if calls.any():
                spans.append((events.begin[calls].min(), events.end[calls].max()))
        most = max(most, *(sum(begin <= start < end for begin, end in spans) for start, _ in spans))
    return most


@pytest.mark.parametrize(("ranks", "most"), [(1, 1), (2, 1), (3, 2), (5, 1), (5, 2), (5, 3)])
@pytest.mark.parametrize("setting", ["", GROUPS, "async     on", "async     on\n    staging   simulated"])
def test_no_more_writers_write_at_once(tmp_path: Path, ranks: int, most: int, setting: str) -> None:
    place = Place(tmp_path)
    place.write(state(most, setting))
    results = place.results(ranks, "--trace")
    makers = -(-ranks // 2) if setting == GROUPS else ranks
    assert writers_at_once(place, ranks) <= most
    for save in phases(results, "save"):
        files = save["files"]
        assert (files["bytes"], files["files"]) == (3_000_001 + 77_001, makers)
        assert (files["turn_seconds"]["max"] > 0) == (makers > most)
        # The first writers do not wait, and the wait is part of the save.
        assert files["turn_seconds"]["min"] == 0
        assert files["turn_seconds"]["max"] <= files["seconds"]
    [restored] = phases(results, "restore")
    assert restored["files"]["bytes"] == 3_000_001 + ranks * 77_001


def test_all_write_at_once_without_it(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(state("off"))
    results = place.results(3)
    assert [save["files"]["turn_seconds"]["max"] for save in phases(results, "save")] == [0, 0]


#: dliosim, where one rank cannot write files of more than 100 kB.
SMALL_FILES = """
import resource, sys
from mpi4py import MPI
from dliosim.cli import main
if MPI.COMM_WORLD.rank == MPI.COMM_WORLD.size // 2:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(("ranks", "setting"), [(2, ""), (3, ""), (5, ""), (5, GROUPS), (3, "async     on")])
def test_a_writer_that_fails_ends_all_ranks(tmp_path: Path, ranks: int, setting: str) -> None:
    place = Place(tmp_path)
    place.write(state(1, setting))
    done = run_ranks(ranks, "-c", SMALL_FILES, *place.command(), env=library_environment(ranks))
    error = only_error(done)
    assert f"rank {ranks // 2}: pwrite" in error
    assert "File too large" in error
    assert not list(place.data.glob("c/*/00000[1-9]")), "no save is complete"
