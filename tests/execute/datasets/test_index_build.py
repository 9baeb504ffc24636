"""Files whose indexes hold the places of samples: read, read again, damaged, or missing."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from mpi4py import MPI

from dliosim.errors import ExecutionError
from dliosim.execute.mpi.shared_memory import SharedMemory
from dliosim.execute.phases.context import Options, Phase, Session
from dliosim.execute.run.workload_runner import run_workload
from dliosim.model import (
    Access,
    Compression,
    Dataset,
    Engine,
    Job,
    Layout,
    Loop,
    Prepare,
    Shuffle,
    Verb,
    Workload,
    constant,
)
from dliosim.report.progress.progress_line import ProgressLine
from tests.execute.alone import world_of_one

DATA = Dataset(
    "d", 3, 12, constant(900), Layout("files", 3), "d", format="npz", compress=Compression("gzip"), compressible=2.0
)
LOOP = Loop("train", "l", "d", Access(), batch=2, shuffle=Shuffle("globally"))


def session(directory: Path, *verbs: Verb, dataset: Dataset = DATA, null: bool = False) -> Session:
    workload = Workload("w", "", 3, Job(1), (dataset,), (), verbs)
    world = world_of_one()
    return Session(workload, world, {"data": directory}, Options(null=null), ProgressLine(None))


def run(directory: Path, *verbs: Verb, dataset: Dataset = DATA, null: bool = False) -> list[Phase]:
    return run_workload(session(directory, *verbs, dataset=dataset, null=null))


def empty(path: Path) -> None:
    os.truncate(path, 0)


def linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def directory_there(path: Path) -> None:
    path.unlink()
    path.mkdir()


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("through", ["direct", "library"])
@pytest.mark.parametrize("damage", [empty, Path.unlink, linked, directory_there, pipe])
def test_what_is_no_file_of_the_format_is_said_to_be_damage(
    damage: Callable[[Path], None], through: str, tmp_path: Path
) -> None:
    plain = replace(DATA, compress=None, format="npy")  # its samples have their places: only a library looks
    dataset = plain if through == "library" else DATA
    run(tmp_path, Prepare("d", Access()), dataset=dataset)
    path = tmp_path / "d" / dataset.digest() / dataset.file_name(1)
    damage(path)
    loop = replace(LOOP, access=Access(through="library" if through == "library" else "direct"))
    with pytest.raises(ExecutionError, match=str(path)) as caught:
        run(tmp_path, loop, dataset=dataset)
    assert caught.value.code == "R401"
    assert "R401" not in caught.value.message, "an error is given once"


def test_without_io_there_need_be_no_files(tmp_path: Path) -> None:
    without = run(tmp_path, LOOP, null=True)[0].summary.epochs
    run(tmp_path, Prepare("d", Access()))
    (found,) = (phase.summary.epochs for phase in run(tmp_path, LOOP))
    assert [epoch.order_hash for epoch in without] == [epoch.order_hash for epoch in found]


def test_a_file_with_too_few_samples_is_named_though_all_hold_enough_together(tmp_path: Path) -> None:
    run(tmp_path, Prepare("d", Access()))
    directory = tmp_path / "d" / DATA.digest()
    others = replace(DATA, name="o", samples=7, path="o", layout=Layout("files", 2))  # 4 samples and 3, or 3 and 4
    run(tmp_path, Prepare("o", Access()), dataset=others)
    made = [tmp_path / "o" / others.digest() / others.file_name(file) for file in range(2)]
    few = min(made, key=lambda path: path.stat().st_size)
    few.rename(directory / DATA.file_name(1))
    more = replace(DATA, name="m", samples=5, path="m", layout=Layout("shared file", 1))
    run(tmp_path, Prepare("m", Access()), dataset=more)
    (tmp_path / "m" / more.digest() / more.file_name(0)).rename(directory / DATA.file_name(2))
    with pytest.raises(
        ExecutionError, match=f"{DATA.file_name(1)} holds 3 samples, not 4; .prepare d afresh."
    ) as caught:
        run(tmp_path, LOOP)
    assert caught.value.code == "R401"


def test_indexes_of_data_written_afresh_take_the_place_of_those_before(tmp_path: Path) -> None:
    again = session(tmp_path, Prepare("d", Access(), afresh=True))
    run_workload(again)
    before = shared_mappings()
    run_workload(again)
    assert shared_mappings() == before > 0


@pytest.mark.parametrize("how", ["memory of a file", "a window of MPI"])
def test_memory_is_shared_whatever_python_was_built_for(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)  # as where Python was built for a C library before 2.27
    if how == "a window of MPI":
        monkeypatch.setattr("dliosim.execute.mpi.shared_memory.make_memory_file", lambda size: -1)
    memory, before = SharedMemory(MPI.COMM_SELF, 4096), shared_mappings()
    assert bytes(memory.view) == bytes(4096)
    memory.view[:] = b"x" * 4096
    assert bytes(memory.view) == b"x" * 4096
    memory.close()
    del memory
    assert shared_mappings() == before - (how == "memory of a file")


def shared_mappings() -> int:
    """Return the number of mappings of memory that this process shares with others of its node."""
    gc.collect()
    return Path("/proc/self/maps").read_text().count("memfd:dliosim")


@pytest.mark.parametrize("engine", ["preadv", "queued", "mmap"])
@pytest.mark.parametrize("scatter", [False, True])
def test_a_sample_of_several_ranges_opens_its_file_once(engine: Engine, scatter: bool, tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    dataset = replace(DATA, format="hdf5", compress=None, compressible=1.0, parts=3)
    access = Access(open="each sample", engine=engine, depth=4 if engine == "queued" else 0, scatter=scatter)
    run(tmp_path, Prepare("d", Access()), dataset=dataset)
    ((epoch,),) = (phase.summary.epochs for phase in run(tmp_path, replace(LOOP, access=access), dataset=dataset))
    assert epoch.samples == dataset.samples
    assert epoch.opens == dataset.samples
    assert epoch.calls == dataset.samples * (1 if engine == "mmap" else 3)
