"""Ways to restore: files in another order on each rank, read by one rank for all, mapped, or read ahead."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dliosim.trace.events import kind_number
from dliosim.trace.file import read_trace
from tests.mpi.jobs import Place, only_error, phases

STATE = """
checkpoint c {
    part      rows 101 x 300 of bf16 split by rows
    part      norm 77_001 B whole
    part      moments 3_000_001 B total
    parallel  tensor $ranks
    transfer  100 kB
    path      "c"
}
"""
SIZE = 101 * 300 * 2 + 77_001 + 3_000_001

WAYS = {
    "own part": "",
    "everything": "reads everything",
    "by file": "reads everything by file then broadcast",
    "rotated": "reads everything\n    order rotated by rank",
    "mmap": "reads everything\n    through mmap",
    "ahead": "read ahead whole file",
    "all": "reads everything by file then broadcast\n    through mmap\n    read ahead whole file",
}


def restore(way: str) -> str:
    return f"restore c {{\n    {WAYS[way]}\n}}\n" if WAYS[way] else "restore c\n"


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_every_way_reads_what_was_saved(tmp_path: Path, ranks: int) -> None:
    place = Place(tmp_path)
    place.write(STATE, "save c\n", *map(restore, WAYS))
    found = {
        way: one["files"] for way, one in zip(WAYS, phases(place.results(ranks), "restore"), strict=True)
    }  # every byte was compared with what was saved
    own = SIZE + (ranks - 1) * 77_001
    assert {way: files["bytes"] for way, files in found.items()} == {
        "own part": own,
        "everything": ranks * SIZE,
        "by file": SIZE,
        "rotated": ranks * SIZE,
        "mmap": ranks * SIZE,
        "ahead": own,
        "all": SIZE,
    }
    # Of what is read ahead every byte moves twice: all of the files, and the ranges.
    assert {way: files["bytes_moved"] > files["bytes"] for way, files in found.items() if files["bytes"]} == {
        way: way in ("ahead", "all") for way in WAYS
    }
    assert found["all"]["bytes_moved"] == 2 * SIZE + (ranks - 1) * 77_001, "files have the norm once a tensor rank"
    assert found["by file"]["files"] == ranks == found["by file"]["opens"]
    assert (found["mmap"]["read_call_bytes"], found["all"]["ahead_seconds"]["max"] > 0) == (None, True)
    assert found["everything"]["ahead_seconds"]["max"] == 0
    for way in ("by file", "all"):
        assert found[way]["broadcast_seconds"]["max"] > 0 or ranks == 1


@pytest.mark.parametrize("ranks", [2, 3, 5])
@pytest.mark.parametrize(("way", "first"), [("everything", "all at the first"), ("rotated", "each at its own")])
def test_ranks_begin_at_files_of_their_own_if_the_order_is_rotated(
    tmp_path: Path, ranks: int, way: str, first: str
) -> None:
    place = Place(tmp_path)
    place.write(STATE, "save c\n", restore(way))
    place.results(ranks, "--trace")
    events = read_trace(place.output / "trace.h5").events
    reading = (events.kind == kind_number("read")) & np.array([name.endswith(".ckpt") for name in events.files])[
        events.file
    ]
    orders = []
    for process in range(ranks):
        files = events.file[reading & (events.process == process)].tolist()
        orders.append([Path(events.files[file]).name for file in dict.fromkeys(files)])
    names = [f"{number:06d}.ckpt" for number in range(ranks)]
    shifts = range(ranks) if way == "rotated" else [0] * ranks
    assert orders == [names[shift:] + names[:shift] for shift in shifts], first


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_damage_that_one_reader_finds_reaches_all_ranks(tmp_path: Path, ranks: int) -> None:
    place = Place(tmp_path)
    place.write(STATE, "save c\nsave c\n")
    place.results(ranks)
    last = place.files(f"c/*/000002/{ranks - 1:06d}.ckpt")[0]
    data = bytearray(last.read_bytes())
    data[len(data) // 2] ^= 1
    last.write_bytes(data)
    place.write(STATE, restore("by file"))
    [restored] = phases(place.results(ranks), "restore")
    assert restored["files"]["bytes"] == SIZE
    assert "000002" in restored["notes"][0]
    first = place.files(f"c/*/000001/{0:06d}.ckpt")[0]
    first.unlink()
    assert "error[R404]" in only_error(place.run(ranks))
