"""Facts of a run that `dliosim audit` judges: the speed of the network, and where results are."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dliosim.commands.job import environment
from dliosim.execute.node.environment import Mount
from dliosim.measure.results.machine import OTHER_MOUNT, FileSystem


@pytest.mark.parametrize(
    ("output", "said"),
    [("/scratch/me/results", "the file system of the data"), ("/home/me/results", OTHER_MOUNT), (".", OTHER_MOUNT)],
)
def test_results_are_on_a_file_system_of_the_data_or_on_another(
    output: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_mount(path: Path) -> Mount:
        return Mount("ext4", "/scratch" if path.is_relative_to("/scratch") else "/", "/dev/sda1", "rw")

    monkeypatch.setattr(environment, "find_mount", find_mount)
    session = cast(Any, SimpleNamespace(roots={"data": Path("/scratch/data"), "fast": Path("/scratch")}))
    assert environment._describe_results(session, Path(output)) == said


@pytest.mark.parametrize(
    ("kind", "speed", "said"),
    [("lustre", 200_000, [("network links", "200000 Mb/s")]), ("nfs4", 0, []), ("ext4", 200_000, [])],
)
def test_the_speed_of_the_network_is_recorded_where_data_come_over_it(
    kind: str, speed: int, said: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "link_speed", lambda: speed)
    assert list(environment._describe_network([FileSystem("data", "/data", kind)])) == said


@pytest.mark.parametrize(
    ("link", "source", "disk"), [("", "", "dliosim-data"), ("memory", "", ""), ("disk", "*.npz", "")]
)
def test_data_in_memory_may_move_to_the_disk_of_the_default_directory_if_a_run_makes_them_there(
    link: str, source: str, disk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_mount(path: Path) -> Mount:
        return Mount("tmpfs" if path.resolve().name == "memory" else "ext4", "/", "none", "rw")

    monkeypatch.chdir(tmp_path)
    if link:
        (tmp_path / "dliosim-data").symlink_to(tmp_path / link)
    monkeypatch.setattr(environment, "find_mount", find_mount)
    dataset = cast(Any, SimpleNamespace(source=source))
    assert environment.find_disk([dataset]) == disk
