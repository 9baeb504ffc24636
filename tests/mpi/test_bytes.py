"""Bytes asked, read and from the device are three figures: an outside witness, /proc/PID/io, sees the last two."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from dliosim.execute.node.page_cache import counts_reads, drop_pages
from dliosim.language.compile import compile_pattern
from dliosim.model import Job
from tests.mpi.jobs import Place, phases
from tests.mpi.launch import running, start_ranks

MIB = 1 << 20
SIZE = 16 * MIB

WHOLE = """
checkpoint c {
    part     weights 16 MiB whole
    path     "c"
}
"""

SHARED = """
checkpoint s {
    part     weights 4 MiB whole
    writers  all ranks into shared file
    api      mpi-collective
    hint     "romio_cb_read" = "enable"
    path     "s"
}
"""

DATASET = """
dataset d {
    samples  64
    size     256 KiB
    layout   shared file
    path     "d"
}
"""

#: Every rank reads all of the data.
EVERYBODY = """
infer {
    read    d
    batch   4 per rank
    shard   off
}
pause 1 s
"""

#: Of what else processes read meanwhile: directories, and modules of Python that memory had no room for.
OTHER_BYTES = 3 * MIB


@pytest.fixture
def on_disk(tmp_path: Path) -> Place:
    """A place on a file system where the kernel counts the bytes from its device."""
    page = tmp_path / "page"
    page.write_bytes(os.urandom(4096))
    drop_pages(page)
    if not counts_reads(page):
        pytest.skip(f"on the file system of {tmp_path} the kernel does not count bytes from a device")
    return Place(tmp_path)


def forget(place: Place) -> None:
    """Take all data out of the page cache."""
    for path in place.data.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def witnessed(place: Place, ranks: int) -> tuple[int, str]:
    """Run the pattern; what the kernel says its ranks read from the device, and what they printed."""
    seen: dict[int, int] = {}
    with running(start_ranks(ranks, *place.arguments(), cwd=place.directory)) as job:
        end = monotonic() + 60
        while job.launcher.poll() is None and monotonic() < end:
            for rank in job.ranks():
                try:
                    lines = Path(f"/proc/{rank}/io").read_text().splitlines()
                except OSError:  # it has ended
                    continue
                seen[rank] = max(seen.get(rank, 0), *(int(line.split()[1]) for line in lines if "read_bytes" in line))
            sleep(0.05)
        done = job.finish()
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return sum(seen.values()), done.stdout


def figures(place: Place, kind: str) -> dict[str, Any]:
    [phase] = phases(json.loads((place.output / "results.json").read_text()), kind)
    found: dict[str, Any] = phase["files"] or phase["epochs"][0]
    return found


def same_as(witness: int, found: int) -> bool:
    """Check that the kernel, which counts a process from its start, has the bytes found and little more."""
    return found <= witness <= found + OTHER_BYTES


def read_cold(place: Place, text: str, kind: str) -> tuple[int, dict[str, Any], str]:
    """Run a pattern on 2 ranks, its data in no cache: the kernel's count of all they read, figures, what was printed.

    Up to three times: the count has libraries and modules, too, which a busy machine's memory may not have kept.
    """
    for _ in range(3):
        (place.output / "results.json").unlink()
        forget(place)
        place.write(text)
        witness, printed = witnessed(place, 2)
        found = figures(place, kind)
        if same_as(witness, found["device_bytes"]):
            break
    return witness, found, printed


@pytest.mark.parametrize(("cache", "given"), [("page", SIZE), ("off", 2 * SIZE)])
def test_what_two_ranks_restore_of_the_same_bytes_comes_from_the_device_once(
    on_disk: Place, cache: str, given: int
) -> None:
    checkpoint = WHOLE.replace("path", f"cache {cache}\n    path")
    on_disk.write(checkpoint, "save c\n")
    on_disk.results(2)
    witness, found, printed = read_cold(on_disk, f"{checkpoint}restore c\npause 1 s\n", "restore")
    assert (found["bytes"], found["distinct_bytes"]) == (2 * SIZE, SIZE)
    assert found["read_call_bytes"] == pytest.approx(2 * SIZE, rel=0.01)
    assert given <= found["device_bytes"] < given + OTHER_BYTES
    assert same_as(witness, found["device_bytes"])
    assert found["bytes_per_second"] * found["seconds"] == pytest.approx(given, rel=0.1)
    assert ("but only 16.78 MB are distinct bytes" in " ".join(printed.split())) == (cache == "page")


def test_a_loop_in_which_two_ranks_read_all_is_distinguished_from_one_that_the_device_fed(on_disk: Place) -> None:
    on_disk.write(DATASET, "prepare d\n")
    on_disk.results(1)
    witness, found, printed = read_cold(on_disk, f"{DATASET}{EVERYBODY}", "infer")
    assert (found["bytes"], found["distinct_bytes"]) == (2 * SIZE, SIZE)
    assert same_as(witness, found["device_bytes"])
    assert SIZE <= found["device_bytes"] < SIZE + OTHER_BYTES
    said = " ".join(printed.split())
    assert "ranks asked for 33.55 MB, but only 16.78 MB are distinct bytes" in said
    assert re.search(r"infer 1 33\.6 MB 1[67]\.\d MB ", said)
    assert "less than half" not in said


@pytest.mark.not_under("Open MPI", reason="OMPIO reads on each rank")
@pytest.mark.parametrize("ranks", [1, 3])
def test_ranks_that_one_reads_for_are_credited_with_what_was_read(tmp_path: Path, ranks: int) -> None:
    place = Place(tmp_path)
    place.write(SHARED, "save s\nrestore s\n")
    [restored] = phases(place.results(ranks), "restore")
    found = restored["files"]
    assert (found["bytes"], found["distinct_bytes"]) == (ranks * 4 * MIB, 4 * MIB)
    assert 4 * MIB <= found["read_call_bytes"] < 4 * MIB + OTHER_BYTES
    assert found["bytes_per_second"] * found["seconds"] == pytest.approx(4 * MIB)


def test_of_arrays_that_a_library_keeps_there_is_no_rate_and_advice_can_be_typed(tmp_path: Path) -> None:
    dataset = DATASET.replace("layout   shared file", "format   npz\n    layout   4 files")
    loop = "train {\n    read    d\n    epochs  3\n    batch   4 per rank\n    compute 100 us\n    through library\n}\n"
    place = Place(tmp_path)
    place.write(dataset, "prepare d\n", loop)
    done = place.run(2)
    assert done.returncode == 0, done.stderr
    [trained] = phases(json.loads((place.output / "results.json").read_text()), "train")
    first, *later = trained["epochs"]
    assert first["read_call_bytes"] >= SIZE
    assert [epoch["bytes_moved"] for epoch in later] == [0, 0]
    said = " ".join(done.stdout.split())
    assert "the page cache delivered some or all of" in said or "ANSWER not a storage result" in said
    assert "cache off" not in said
    advised = place.write(dataset, "prepare d\n", "repeat 2 {\ndrop caches\n", loop, "}\n")
    compile_pattern(advised, [], Job(2))
