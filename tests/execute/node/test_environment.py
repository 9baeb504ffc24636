"""The launcher's word against MPI's, and what the machine says of itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from mpi4py import MPI

from dliosim.errors import UsageError
from dliosim.execute.mpi.world import node_cores
from dliosim.execute.node.environment import (
    Mount,
    check_launcher,
    find_mount,
    free_bytes,
    mpi_io,
    mpi_library,
)


def test_a_launcher_of_another_mpi_is_found_and_the_way_out_is_named() -> None:
    with pytest.raises(UsageError, match=r"started 4 processes.*a job of 1.*(?s:.)*'\.\[mpich\]'"):
        check_launcher(4, 1, "MPICH 4.1.3")
    check_launcher(4, 4, "MPICH 4.1.3")
    check_launcher(None, 1, "MPICH 4.1.3")


def test_the_library_is_named_on_one_line() -> None:
    assert "\n" not in mpi_library()
    assert any(character.isdigit() for character in mpi_library())


def test_romio_is_known_by_its_hints() -> None:
    assert mpi_io({"romio_filesystem_type": "UFS: any"}, {}) == "ROMIO, UFS: any"
    assert mpi_io({"romio_cb_read": "automatic"}, {}) == "ROMIO"


def test_the_cores_of_a_node_are_those_of_all_its_ranks() -> None:
    assert node_cores(MPI.COMM_SELF) >= 1


def test_a_path_is_on_its_nearest_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro\n"
        "30 22 0:25 / /scratch rw,nosuid - lustre 10.0.0.1@o2ib:/fs rw,flock,lazystatfs\n"
        "31 30 0:26 / /scratch/a\\040b rw - tmpfs tmpfs rw,size=1g\n"
    )
    monkeypatch.setattr(Path, "read_text", lambda self: lines)
    assert find_mount(Path("/home/x")).kind == "ext4"
    assert find_mount(Path("/scratching")).mount_point == "/"
    assert find_mount(Path("/scratch/d/e")) == Mount(
        "lustre", "/scratch", "10.0.0.1@o2ib:/fs", "rw,nosuid,flock,lazystatfs"
    )
    memory = find_mount(Path("/scratch/a b/c"))
    assert (memory.kind, memory.is_memory_backed) == ("tmpfs", True)


def test_free_space_is_what_a_user_may_take(tmp_path: Path) -> None:
    assert free_bytes(tmp_path) > 0
