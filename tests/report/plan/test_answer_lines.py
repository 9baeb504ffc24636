"""The first lines of `dliosim plan`, of patterns as users write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dliosim.language.compile import compile_pattern
from dliosim.model import Job, Workload
from dliosim.plan.forecast.forecast import forecast
from dliosim.plan.forecast.interval_forecast import FailureModel, forecast_risks
from dliosim.plan.forecast.needs import UNLIMITED, StorageRates
from dliosim.report.plan.answer_lines import plan_lines

PATTERNS = Path(__file__).parents[3] / "patterns"


def lines(
    name: str,
    ranks: int = 4,
    nodes: int = 1,
    memory: float = 16e9,
    storage: StorageRates = UNLIMITED,
    loss: float = 0.05,
    **overrides: str,
) -> dict[str, str]:
    """The first lines of a shipped pattern by their names, the title as `title`; a row of several lines as one."""
    given = [(key.replace("__", "."), value) for key, value in overrides.items()]
    workload = compile_pattern(PATTERNS / f"{name}.dlio", given, Job(ranks, nodes))[0]
    text = plan_lines(workload, forecast(workload), memory, storage=storage, loss=loss)
    title, *rows = text.splitlines()
    found = {"title": title}
    for row in rows:
        name = row[:9].strip()
        if name:
            found[name] = row[9:]
        else:
            found[list(found)[-1]] += f" {row[9:]}"
    return found


@pytest.mark.parametrize(
    ("scale", "failures", "text"),
    [
        ("1", FailureModel(14_400.0), "state: 29 min (13 % lost) at 1 GB/s, 9.4 min (4.0 % lost) at 10 GB/s,"),
        ("1", FailureModel(14_400.0, save_time=30.0), "state: 15 min (6.5 % lost)"),
        ("10000", FailureModel(14_400.0), "state, all 112.4 GB of 8 ranks: 29 min (13 % lost) at 1 GB/s, 9.4 min"),
    ],
)
def test_how_often_to_save_is_there_where_jobs_fail(scale: str, failures: FailureModel, text: str) -> None:
    workload = compile_pattern(PATTERNS / "llama3_8b.dlio", [("scale", scale)], Job(8))[0]
    found = forecast(workload)
    rows = plan_lines(workload, found, 16e9, list(forecast_risks(workload, found, failures))).splitlines()
    assert f"INTERVAL {text}" in rows
    assert not any("--mtbf" in row for row in rows)


@pytest.mark.parametrize("path", sorted(PATTERNS.glob("*.dlio")), ids=lambda path: path.stem)
def test_every_pattern_has_at_most_eight_lines_that_are_not_cut(path: Path) -> None:
    found = lines(path.stem, 16, 2)
    assert 2 <= len(found) <= 8
    assert not [text for text in found.values() if text.endswith("...")]


def test_memory_that_a_node_does_not_have_comes_first_with_the_nodes_that_have_it() -> None:
    found = lines("checkpoint_async", 8, memory=25e9, scale="1")
    assert list(found)[1] == "ROOM"
    needed, cure = (
        "save state needs 110 GB per node (buffers of background saves), a node has 25 GB",
        "`--nodes 8` has room",
    )
    assert found["ROOM"] == f"none: {needed}; {cure}, or give a node's `--memory`"
    assert "ROOM" not in lines("checkpoint_async", 8, 8, 25e9, scale="1")
    alone = lines("checkpoint_async", 2, memory=25e9, scale="1")
    assert alone["ROOM"].startswith("none: save state needs 110 GB per node")
    assert "ROOM" not in lines("checkpoint_async", 8, memory=0, scale="1")


def test_a_pattern_that_does_no_io_needs_no_room() -> None:
    workload = Workload("w", "", 1, Job(4), (), (), ())
    assert plan_lines(workload, forecast(workload), 1e6).startswith("w")


def test_checkpoints_that_no_storage_holds_are_said_with_what_holds_them() -> None:
    kept = {
        "files": "64",
        "model__keep": "all",
        "train__epochs": "1000000000",
        "train__checkpoint": "model every 1 step",
    }
    found = lines("cosmoflow", **kept)
    assert found["HOLDS"].startswith("model: ") and found["HOLDS"].endswith(": too much to store (-D model.keep=1)")
    assert "HOLDS" not in lines("cosmoflow", **{**kept, "model__keep": "1"})


def test_a_loop_with_readers_needs_its_bytes_in_its_compute_by_the_goal() -> None:
    """Steps of 2.83 MB in 3.5 ms at 70 %, saves of 100 MB every 2 epochs of 16 steps."""
    found = lines("cosmoflow", files="64", scale="1")
    assert found["title"] == "cosmoflow  4 ranks on 1 node of 16 GB"
    assert found["NEEDS"] == "train: ~2.3 GB/s for 4 accelerators (h100) at 70 %, ~560 MB/s each; ~800 opens/s"
    assert found["DATA"] == "180.8 MB per epoch for all ranks, 45.19 MB per rank; 5 epochs"
    assert found["MEMORY"] == (
        "an epoch reads ~180 MB per node; the page cache has room for 16 GB: "
        "all of epochs 2 to 5 may come from memory, not from storage"
    )
    assert found["SAVES"] == "model: 100.0 MB every 112 ms of compute: ~17 GB/s for 5 % of the time"
    assert "READING" not in found and "SCALE" not in found


def test_a_storage_that_is_given_says_what_is_reached_and_what_limits_it() -> None:
    found = lines("cosmoflow", 4096, 512, storage=StorageRates(500e9, 1e6), scale="1")
    assert found["REACH"] == "train: accelerators busy 15 % at most (goal 70 %), limited by 500 GB/s"
    found = lines("cosmoflow", 4096, 512, storage=StorageRates(5e12, 1e5), scale="1")
    assert found["REACH"] == "train: accelerators busy 8.5 % at most (goal 70 %), limited by 100_000 opens/s"
    found = lines("cosmoflow", storage=StorageRates(500e9, 1e6))
    assert found["REACH"] == "train: 500 GB/s and 1_000_000 opens/s do not limit the accelerators"
    assert "REACH" not in lines("cosmoflow")
    assert lines("inference", storage=StorageRates(1e12))["REACH"] == "infer: 1.0 TB/s keep up with all requests"


def test_saves_take_the_share_that_is_given_and_their_time_at_a_rate() -> None:
    found = lines("cosmoflow", files="64", scale="1", storage=StorageRates(1e9), loss=0.02)
    assert found["SAVES"] == "model: 100.0 MB every 112 ms of compute: ~44 GB/s for 2 % of the time; 100 ms at 1.0 GB/s"


def test_figures_of_less_than_is_published_say_so_and_need_no_rate_of_saves() -> None:
    found = lines("cosmoflow")
    assert found["SCALE"] == "scale=800 shrinks the published workload; -D scale=1 plans all of it"
    assert found["SAVES"] == "model: 100.0 MB every 1.1 s of compute; -D scale=1 gives the rate"
    assert "SCALE" in lines("prepare_imagenet") and "SCALE" not in lines("llama3_8b")


@pytest.mark.parametrize(("memory", "shown"), [(512e9, "512 GB"), (16e9, "16 GB"), (1.5e12, "1.5 TB")])
def test_the_memory_of_a_node_is_shown_as_it_is_typed(memory: float, shown: str) -> None:
    assert lines("cosmoflow", memory=memory)["title"] == f"cosmoflow  4 ranks on 1 node of {shown}"


def test_the_accelerator_is_named_whose_compute_it_is() -> None:
    assert "4 accelerators (a100) at" in lines("cosmoflow", accelerator="a100")["NEEDS"]
    assert "4 accelerators at" in lines("cosmoflow", compute="3 ms")["NEEDS"]


def test_a_scale_that_divides_nothing_published_is_a_name_like_others(tmp_path: Path) -> None:
    pattern = tmp_path / "mine.dlio"
    head = 'dlio 1\nworkload w ""\nparam scale = 4 "more"\n'
    pattern.write_text(head + 'dataset d { samples $scale\n size 1 kB\n path "d" }\nprepare d\n')
    assert compile_pattern(pattern, [], Job(1))[0].scale == 1


def test_without_readers_steps_wait_for_ten_times_the_rate() -> None:
    found = lines("resnet50_shared")
    assert found["NEEDS"].startswith("main: ~740 MB/s for 4 accelerators (h100) at 90 %")
    assert found["READING"] == "~7.4 GB/s while steps wait, because no `readers` read ahead"


def test_the_goal_is_that_of_the_pattern() -> None:
    assert "at 85 %" in lines("retinanet")["NEEDS"]


def test_what_memory_has_depends_on_the_node_and_the_access() -> None:
    needed = forecast(compile_pattern(PATTERNS / "cosmoflow.dlio", [], Job(4))[0]).node_bytes
    small = lines("cosmoflow", memory=needed + 464e6)
    assert small["MEMORY"].endswith("room for 460 MB: at most 25 % of epochs 2 to 5 can be in memory")
    tiny = lines("cosmoflow", memory=needed + 1e6)["MEMORY"]
    assert tiny.endswith(": almost nothing of epochs 2 to 5 comes from memory")
    assert (
        "~1.9 GB per node, read once: nothing"
        in lines("cosmoflow", train__epochs="1", train__checkpoint="off")["MEMORY"]
    )
    many = lines("cosmoflow", 64, 8)
    assert many["MEMORY"].partition(": ")[2] == "at most 41 % of epoch 5 can be in memory: the rest is new to the node"
    assert "`cache off`" in lines("inference")["MEMORY"]


def test_requests_are_kept_up_with() -> None:
    assert lines("inference")["NEEDS"] == "infer: ~20 MB/s to keep up with requests, 6.5 ms to read each"


def test_without_loops_saves_restores_and_prepares_are_there() -> None:
    assert set(lines("llama3_8b")) - {"then"} == {"title", "SAVES", "RESTORE"}
    assert lines("llama3_8b")["SAVES"].startswith("state: 5.618 MB each: only ")
    assert lines("prepare_imagenet")["PREPARE"].startswith("one: ")
