"""The memory of a node, and of control groups as the kernel shows them."""

from __future__ import annotations

import os
from pathlib import Path

from dliosim.execute.node.memory import available_memory, cgroup_limit, cgroup_memory, whole_memory


def test_memory_is_some_and_no_more_is_available_than_there_is() -> None:
    found, whole = available_memory(), whole_memory()
    assert found is not None and whole is not None
    assert 1 << 20 < found <= whole <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


UNIFIED = ("memory.max", "memory.current", "inactive_file")
VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def make_group(directory: Path, names: tuple[str, str, str], limit: object, used: int, cached: int) -> None:
    """A control group as the kernel shows it."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / names[0]).write_text(f"{limit}\n")
    (directory / names[1]).write_text(f"{used}\n")
    active = names[2].replace("in", "")
    stat = f"anon 5\n{names[2]} {cached - cached // 3}\n{active} {cached // 3}\nfile 9\n"
    (directory / "memory.stat").write_text(stat)


def test_a_batch_system_limits_the_job_and_not_its_task(tmp_path: Path) -> None:
    job = tmp_path / "system.slice" / "slurmstepd.scope" / "job_7"
    make_group(job / "step_0" / "user" / "task_3", UNIFIED, "max", 10, 1)
    make_group(job / "step_0" / "user", UNIFIED, "max", 20, 1)
    make_group(job / "step_0", UNIFIED, 6000, 1000, 200)
    make_group(job, UNIFIED, 5000, 1100, 300)
    own = "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_3\n"
    assert cgroup_memory(own, tmp_path) == 5000 - 1100 + 300
    assert cgroup_limit(own, tmp_path) == 5000
    assert cgroup_memory("0::/system.slice\n", tmp_path) is None
    assert cgroup_limit("0::/system.slice\n", tmp_path) is None


def test_the_groups_of_version_1_are_heard_where_they_hold_memory(tmp_path: Path) -> None:
    groups = "9:name=systemd:/a\n4:cpu,memory:/slurm/job_7\n2:memory_of_something:/b\n0::/\n"
    make_group(tmp_path / "memory" / "slurm" / "job_7", VERSION_1, 2**63 - 4096, 900, 0)
    make_group(tmp_path / "memory" / "slurm", VERSION_1, 8000, 900, 100)
    make_group(tmp_path / "a", UNIFIED, 1, 0, 0)
    assert cgroup_memory(groups, tmp_path) == 8000 - 900 + 100
    assert cgroup_limit(groups, tmp_path) == 8000


def test_a_container_sees_its_own_group_as_the_root(tmp_path: Path) -> None:
    make_group(tmp_path / "memory", VERSION_1, 3000, 4000, 0)
    assert cgroup_memory("4:memory:/docker/0123\n", tmp_path) == 0


def test_without_control_groups_nothing_limits(tmp_path: Path) -> None:
    assert cgroup_memory("", tmp_path) is None
    assert cgroup_memory("0::/\n", tmp_path) is None
