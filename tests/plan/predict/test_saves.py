"""Saves and restores on described storages, by closed forms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dliosim.errors import UsageError
from dliosim.language.compile import compile_pattern
from dliosim.model import Job, Servers, StorageModel, Stripe
from dliosim.plan.forecast.forecast import forecast
from dliosim.plan.predict.saves import SavePrediction, predict_saves

PATTERN = """dlio 1
workload saving "64 MB of each rank, in calls of 4 MiB"
checkpoint state {
    part     state 64 MiB per rank
    transfer 4 MiB
    path     "state"
    %s
}
repeat 3 {
    save state
}
restore state
"""
STORAGE = StorageModel("s", Servers(4, 1 << 30))
RANK = 64 << 20


def predict(
    directory: Path, storage: StorageModel, ranks: int = 8, node_ranks: int = 8, line: str = ""
) -> list[SavePrediction]:
    (directory / "saving.dlio").write_text(PATTERN % line)
    workload = compile_pattern(directory / "saving.dlio", [], Job(ranks, -(-ranks // node_ranks)))[0]
    return list(predict_saves(workload, forecast(workload), storage, node_ranks))


def test_servers_write_and_read_at_their_own_rates(tmp_path: Path) -> None:
    save, restore = predict(tmp_path, replace(STORAGE, writes=float(1 << 29)))
    assert (save.kind, save.times, save.bytes, save.limit) == ("save", 3, 8 * RANK, "servers")
    assert save.seconds == pytest.approx(8 * RANK / (4 << 29))
    assert (restore.kind, restore.times, restore.limit) == ("restore", 1, "servers")
    assert restore.seconds == pytest.approx(8 * RANK / (4 << 30))


def test_the_range_of_a_save_has_the_interval_of_what_limits_it(tmp_path: Path) -> None:
    save, _ = predict(tmp_path, replace(STORAGE, uncertain=(("servers", 0.2),)))
    assert save.at_ends == pytest.approx((save.seconds / 0.8, save.seconds / 1.2))
    save, _ = predict(tmp_path, STORAGE)
    assert save.at_ends == ()


@pytest.mark.parametrize(("ranks", "fullest"), [(1, 1), (3, 1), (5, 2), (9, 3)])
def test_the_server_with_most_files_decides(ranks: int, fullest: int, tmp_path: Path) -> None:
    save, _ = predict(tmp_path, STORAGE, ranks)
    assert save.seconds == pytest.approx(fullest * RANK / (1 << 30))
    wide, _ = predict(tmp_path, replace(STORAGE, stripe=Stripe(1 << 20, 4)), ranks)
    assert wide.seconds == pytest.approx(ranks * RANK / (4 << 30))


def test_a_file_that_all_ranks_share_is_on_one_server_unless_it_is_striped(tmp_path: Path) -> None:
    save, restore = predict(tmp_path, STORAGE, line="writers all ranks into shared file")
    assert (save.seconds, restore.seconds) == pytest.approx((8 * RANK / (1 << 30),) * 2)
    wide = replace(STORAGE, stripe=Stripe(1 << 20, 4))
    save, _ = predict(tmp_path, wide, line="writers all ranks into shared file")
    assert save.seconds == pytest.approx(8 * RANK / (4 << 30))


def test_the_fullest_node_decides_where_its_client_is_slow(tmp_path: Path) -> None:
    save, _ = predict(tmp_path, replace(STORAGE, client=float(1 << 29)), ranks=5, node_ranks=4)
    assert save.limit == "client"
    assert save.seconds == pytest.approx(4 * RANK / (1 << 29))


def test_a_rank_waits_for_each_of_its_calls(tmp_path: Path) -> None:
    save, _ = predict(tmp_path, replace(STORAGE, latency=1.0, tail=3.0), ranks=1)
    assert save.limit == "rank"
    assert save.seconds == pytest.approx((16 + 1) * 1.5 + RANK / (1 << 30))


def test_opens_are_those_of_all_ranks(tmp_path: Path) -> None:
    save, _ = predict(tmp_path, replace(STORAGE, metadata=2.0))
    assert (save.limit, save.seconds) == ("opens", pytest.approx(8 / 2))


def test_a_save_in_the_background_is_marked(tmp_path: Path) -> None:
    save, restore = predict(tmp_path, STORAGE, line="async on")
    assert save.in_background and not restore.in_background


@pytest.mark.parametrize(("most", "seconds"), [(1, 4.0), (2, 4.0), (4, 2.0), (8, 1.0), (9, 1.0)])
def test_writers_that_take_turns_keep_the_clients_of_fewer_nodes_busy(
    tmp_path: Path, most: int, seconds: float
) -> None:
    # 2 ranks of each of 4 nodes; one rank alone has the client of its node to itself.
    storage = replace(STORAGE, client=float(2 * RANK))
    save, restore = predict(tmp_path, storage, 8, 2, f"at most {most} writers at a time")
    assert save.seconds == pytest.approx(seconds)
    assert restore.seconds == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("line", "reason"), [("through mmap", "mapped pages"), ("read ahead whole file", "page cache")]
)
def test_what_needs_a_page_cache_is_refused(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "saving.dlio"
    path.write_text(PATTERN % "" + f"restore state {{\n    {line}\n}}\n")
    workload = compile_pattern(path, [], Job(2, 1))[0]
    with pytest.raises(UsageError, match=reason):
        list(predict_saves(workload, forecast(workload), STORAGE, 2))
