"""The speed of a node's network links, from trees like that of /sys/class."""

from __future__ import annotations

from pathlib import Path

import pytest

from dliosim.execute.node.environment import link_speed


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("cards", "ports", "speed"),
    [
        ({}, [], 0),
        ({"eth0": "25000\n"}, [], 25_000),
        ({"eth0": "25000\n", "eth1": "25000\n"}, [], 50_000),
        ({"eth0": "-1\n"}, [], 0),
        ({"eth0": ""}, ["fast"], 0),
        ({"eth0": "1000\n"}, ["200 Gb/sec (4X HDR)\n", "200 Gb/sec (4X HDR)\n"], 400_000),
        ({"eth0": "100000\n", "eth1": "100000\n"}, ["100 Gb/sec (4X EDR)\n"], 200_000),
    ],
)
def test_links_add_up_and_a_card_of_both_kinds_counts_once(
    cards: dict[str, str], ports: list[str], speed: int, tmp_path: Path
) -> None:
    for name, text in cards.items():
        write(tmp_path / f"net/{name}/speed", text)
        (tmp_path / f"net/{name}/device").mkdir()
    for number, text in enumerate(ports):
        write(tmp_path / f"infiniband/mlx5_{number}/ports/1/rate", text)
    write(tmp_path / "net/docker0/speed", "10000\n")
    assert link_speed(tmp_path) == speed


@pytest.mark.parametrize(("carrier", "speed"), [("1\n", 0), ("0\n", 25_000)])
def test_a_link_whose_speed_is_unknown_makes_the_sum_unknown(carrier: str, speed: int, tmp_path: Path) -> None:
    for name, text in {"eth0": "25000\n", "eth1": "-1\n"}.items():
        write(tmp_path / f"net/{name}/speed", text)
        (tmp_path / f"net/{name}/device").mkdir()
    write(tmp_path / "net/eth1/carrier", carrier)
    assert link_speed(tmp_path) == speed
