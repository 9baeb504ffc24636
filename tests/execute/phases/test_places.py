"""The file system of data is that of their own folder, which may be mounted below the root."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dliosim.execute.phases.context import Options, Session
from dliosim.measure.results.machine import MEMORY_KINDS, Environment, FileSystem
from dliosim.model import Job, Workload
from dliosim.report.progress.progress_line import ProgressLine
from tests.execute.alone import world_of_one


def session(root: Path) -> Session:
    workload = Workload("w", "", 1, Job(1), (), (), ())
    return Session(workload, world_of_one(), {"data": root}, Options(), ProgressLine(None))


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="nothing is mounted at /dev/shm")
def test_data_on_a_mount_below_the_root_have_a_place_of_its_name() -> None:
    below = session(Path("/dev"))
    assert below.place_name("data", Path("/dev/shm/not-there/train")) == "data at /dev/shm"
    assert below.place_directory("data", Path("/dev/shm/not-there/train")) == Path("/dev/shm")
    assert below.place_name("data", Path("/dev/not-there")) == "data"


def test_data_on_the_file_system_of_the_root_have_its_name(tmp_path: Path) -> None:
    assert session(tmp_path).place_name("data", tmp_path / "not-there" / "file") == "data"
    assert session(tmp_path / "gone").place_name("data", tmp_path / "gone" / "file") == "data"


def test_the_kind_of_a_place_below_a_root_is_that_of_its_mount() -> None:
    places = (FileSystem("data at /d/m", "/d/m", "tmpfs"), FileSystem("data", "/d", "ext4"))
    machine = Environment("MPI", 1, 1, 1, 0.0, file_systems=places)
    assert machine.is_stored_on("data at /d/m", MEMORY_KINDS)
    assert not machine.is_stored_on("data", MEMORY_KINDS)
