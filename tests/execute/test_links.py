"""Files that symbolic links lead to, as in a model hub's cache: read by every reader, and never from elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from dliosim.errors import ExecutionError
from dliosim.execute.backends.contract import Files
from dliosim.execute.backends.registry import open_readers
from dliosim.execute.datasets.discovery import FileFinder
from dliosim.execute.datasets.open_dataset import share_existing_files
from dliosim.execute.mpi.world import World
from dliosim.execute.phases.context import Options, Session
from dliosim.execute.run.workload_runner import run_workload
from dliosim.execute.testing.contract_fixtures import make_calls
from dliosim.language.compile import compile_pattern
from dliosim.model import Access, Job, Workload
from dliosim.report.progress.progress_line import ProgressLine
from tests.execute.alone import world_of_one

HUB = "models--x"
ACCESSES = {
    "posix": Access(),
    "posix each": Access(open="each sample"),
    "posix in calls": Access(open="each sample", transfer=100),
    "mmap": Access(engine="mmap"),
    "mmap each": Access(engine="mmap", open="each sample"),
    "queued": Access(engine="queued", depth=3),
    "queued each": Access(engine="queued", depth=3, open="each sample"),
    "mpi-independent": Access(api="mpi-independent"),
    "mpi-independent each": Access(api="mpi-independent", open="each sample"),
    "mpi-independent queued": Access(api="mpi-independent", engine="queued", depth=2, open="each sample"),
    "mpi-collective": Access(api="mpi-collective"),
    "library": Access(through="library"),
    "library each": Access(through="library", open="each sample"),
}


def hub(root: Path, files: int) -> list[bytes]:
    """Arrays in blobs without an ending, and links to them under their own names."""
    blobs, snapshot = root / HUB / "blobs", root / HUB / "snapshots/abc"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    rows = [np.random.default_rng(number).integers(0, 256, (1, 800), np.uint8) for number in range(files)]
    for number, row in enumerate(rows):
        with (blobs / f"{number:x}e3b").open("wb") as blob:
            np.save(blob, row)
        (snapshot / f"{number}.npy").symlink_to(f"../../blobs/{number:x}e3b")
    return [row.tobytes() for row in rows]


def world() -> World:
    return world_of_one()


def compiled(place: Path, text: str, finder: FileFinder) -> Workload:
    pattern = place / "pattern.dlio"
    pattern.write_text(f"dlio 1\nworkload w\n{text}")
    return compile_pattern(pattern, [], Job(1), finder)[0]


def read(root: Path, access: Access, files: int, between: Callable[[Path], object]) -> bytes:
    """The contents of the last file, after `between` has changed its link: between finding it and opening it."""
    finder = FileFinder({"data": root}, ProgressLine(None))
    block = f'from files "{HUB}/snapshots/*/*.npy"\nshape 800 of uint8'
    (dataset,) = compiled(root.parent, f"dataset d {{\n{block}\n}}\ntrain {{\nread d\n}}\n", finder).datasets
    names, index = share_existing_files(world(), root, finder.sources[dataset.found])
    between(root / HUB / f"snapshots/abc/{files - 1}.npy")
    described = Files(root, names, lambda file: int(index.size[file]), files == 1, MPI.COMM_SELF, dataset)
    (reader,) = open_readers(access, described)
    begin = 0 if access.through == "library" else int(index.columns[0].offset[files - 1])
    into = memoryview(bytearray(800))
    try:
        reader.begin_epoch()
        assert reader.read(make_calls([[(files - 1, begin, 800)]]), into) == 800
        reader.end_epoch()
    finally:
        reader.close()
    return bytes(into)


@pytest.mark.parametrize("access", ACCESSES.values(), ids=ACCESSES.keys())
def test_every_reader_reads_what_links_lead_to(access: Access, tmp_path: Path) -> None:
    files = 1 if access.collective else 3
    contents = hub(tmp_path / "root", files)
    assert read(tmp_path / "root", access, files, lambda link: None) == contents[-1]


def out(link: Path) -> None:
    outside = link.parents[4] / "outside.npy"
    np.save(outside, np.full((1, 800), 66, np.uint8))
    link.unlink()
    link.symlink_to(outside)


def nowhere(link: Path) -> None:
    link.unlink()
    link.symlink_to("absent")


def circle(link: Path) -> None:
    link.unlink()
    link.symlink_to(link.name)


def pipe(link: Path) -> None:
    link.unlink()
    os.mkfifo(link.with_name("pipe"))
    link.symlink_to("pipe")


def folder_out(link: Path) -> None:
    moved = link.parents[4] / "elsewhere"
    link.parent.rename(moved)
    (moved / link.name).unlink()
    np.save(moved / link.name, np.full((1, 800), 66, np.uint8))
    link.parent.symlink_to(moved)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (out, "leads out of the root"),
        (nowhere, "leads nowhere"),
        (circle, "lead in a circle"),
        (pipe, "leads to no regular file"),
        (folder_out, "leads out of the root"),
    ],
)
@pytest.mark.parametrize("access", ACCESSES.values(), ids=ACCESSES.keys())
def test_a_link_that_was_changed_since_it_was_found_leads_nowhere_else(
    access: Access, change: Callable[[Path], object], said: str, tmp_path: Path
) -> None:
    files = 1 if access.collective else 3
    hub(tmp_path / "root", files)
    with pytest.raises(ExecutionError, match=said) as raised:
        read(tmp_path / "root", access, files, change)
    assert raised.value.code == "R401"


def test_a_run_reads_a_hub_and_names_it_by_its_links(tmp_path: Path) -> None:
    hub(tmp_path / "root", 5)
    for link in (tmp_path / "root").glob("*/snapshots/*/*"):
        link.rename(link.with_suffix(".safetensors"))
    finder = FileFinder({"data": tmp_path / "root"}, ProgressLine(None))
    block = f'from files "{HUB}/snapshots/*/*.safetensors"'
    lines = f"dataset d {{\n{block}\n}}\ndrop caches\ntrain {{\nread d\nbatch 2 per rank\n}}\n"
    workload = compiled(tmp_path, lines, finder)
    assert workload.datasets[0].format == "raw"
    roots = {"data": tmp_path / "root"}
    run = Session(workload, world(), roots, Options(), ProgressLine(None), sources=finder.sources)
    loop = run_workload(run)[-1].summary
    assert loop.epochs[0].samples == 4


def test_links_that_lead_to_other_files_are_other_data(tmp_path: Path) -> None:
    hub(tmp_path / "root", 2)
    finder = FileFinder({"data": tmp_path / "root", "plain": tmp_path / "plain"}, ProgressLine(None))
    for link in (tmp_path / "root").glob("*/snapshots/*/*"):
        copy = tmp_path / "plain" / link.relative_to(tmp_path / "root")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(link.read_bytes())
    blocks = "".join(
        f'dataset {root} {{\nfrom files "{HUB}/snapshots/*/*"\nformat raw\nroot {root}\n}}\n' for root in finder.roots
    )
    workload = compiled(tmp_path, f"{blocks}train {{\nread data\n}}\ntrain more {{\nread plain\n}}\n", finder)
    run_workload(Session(workload, world(), finder.roots, Options(), ProgressLine(None), sources=finder.sources))
