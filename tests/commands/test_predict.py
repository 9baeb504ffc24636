"""`dliosim predict` and `dliosim plan --storage`, as they are typed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim import PATTERNS
from dliosim.cli import main
from dliosim.commands.predict import MOST_RANKS, find_most_ranks
from dliosim.language.compile import compile_storage, describes_storage
from dliosim.measure.results.run_summary import Spread
from dliosim.model import Job
from dliosim.plan.predict.prediction import Prediction
from dliosim.report.files.results import write_results
from tests.report import sample

SLOW = "dlio 1\nstorage slow {\n servers 4 of 1 GB/s\n latency 200 us\n}\n"
FAST = "dlio 1\nstorage fast {\n servers 4 of 1000 GB/s\n}\n"

COLLECTIVE = ["cosmoflow", "-D", "layout=shared file", "-D", "api=mpi-collective", "-D", "train.readers=1"]


@pytest.fixture
def slow(tmp_path: Path) -> str:
    path = tmp_path / "slow.dlio"
    path.write_text(SLOW)
    return str(path)


def test_the_rate_of_the_servers_decides(slow: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "cosmoflow", "--ranks", "64", "--storage", slow, "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["predicted"]
    reached = 4e9 / (64 * 2.83e6) * 3.5e-3  # steps per second x compute
    # Files are on random servers: the fullest of the four makes all wait.
    assert 0.9 * reached < one["storage_utilization"]["mean"] <= reached
    assert (one["ranks"], one["nodes"], one["limited_by"]) == (64, 8, "servers")
    assert 0.9 * 4e9 < one["bytes_per_second"] <= 4e9


def test_the_range_has_what_is_uncertain(slow: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["predict", "cosmoflow", "--ranks", "64", "--storage", slow, "--json"]
    assert main([*words, "-D", "slow.uncertain=servers 20 %"]) == 0
    busy = json.loads(capsys.readouterr().out)["predicted"][0]["storage_utilization"]
    assert main(words) == 0
    exact = json.loads(capsys.readouterr().out)["predicted"][0]["storage_utilization"]
    assert (busy["low"] / exact["mean"], busy["high"] / exact["mean"]) == pytest.approx((0.8, 1.2), abs=0.1)
    assert main([*words[:-1], "-D", "slow.uncertain=servers 20 %"]) == 0
    assert "both ends of all that is `uncertain`" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("pattern", ["cosmoflow", "llama3_8b"])
def test_values_that_may_be_far_off_are_named(pattern: str, slow: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["predict", pattern, "--ranks", "8", "--storage", slow, "-D"]
    assert main([*words, "slow.uncertain=servers 40 %, latency 9 %"]) == 0
    out = capsys.readouterr().out
    assert "\nUNSURE   may be far off: `servers` 40 %; measure them again\n" in out
    assert "\nLIMIT " in out
    assert main([*words, "slow.uncertain=servers 30 %"]) == 0
    assert "UNSURE" not in capsys.readouterr().out


@pytest.mark.parametrize("command", ["plan", "predict"])
def test_rank_0_of_a_launcher_answers_alone(
    command: str, slow: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = {}
    for rank in "0", "1":
        monkeypatch.setenv("PMI_RANK", rank)
        assert main([command, "cosmoflow", "--ranks", "4", "--storage", slow]) == 0
        said[rank] = capsys.readouterr()
    assert "4 ranks on 1 node" in said["0"].out
    assert (said["1"].out, said["1"].err) == ("", "")


def test_files_that_exist_are_described_first(slow: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.dlio").write_text('dlio 1\nworkload w\ndataset d {\n from files "*.h5"\n}\ntrain {\n read d\n}\n')
    assert main(["predict", str(tmp_path / "p.dlio"), "--ranks", "4", "--storage", slow]) == 2
    assert "describe them: `dliosim new mine --from FILES --generated`" in capsys.readouterr().err


def test_what_a_varied_setting_takes_is_shown(slow: str, capsys: pytest.CaptureFixture[str]) -> None:
    vary = "layout=shared file,foo"
    assert main(["predict", "cosmoflow", "--ranks", "4", "--storage", slow, "--vary", vary]) == 2
    err = capsys.readouterr().err
    assert "it is written as `layout file per sample`, `layout 8 files`" in err
    assert "floor" not in err


def test_what_a_save_does_besides_and_is_not_predicted_is_named(
    slow: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.dlio").write_text(
        'dlio 1\nworkload w\ncheckpoint c {\n part state 1 MB per rank\n path "c"\n partner 1 rank\n}\nsave c\n'
    )
    assert main(["predict", str(tmp_path / "p.dlio"), "--ranks", "4", "--storage", slow]) == 0
    assert "other jobs, copies of partners left out" in capsys.readouterr().out


def test_a_storage_that_is_fast_enough_feeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "fast.dlio").write_text(FAST)
    assert main(["predict", "cosmoflow", "--ranks", "8", "--storage", str(tmp_path / "fast.dlio")]) == 0
    out = capsys.readouterr().out
    assert "ANSWER   would feed: train busy 100 %" in out
    assert "PREDICTED" in out.splitlines()[0]


def test_several_numbers_of_ranks_have_a_table_and_the_greatest_that_is_fed(
    slow: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", "cosmoflow", "--ranks", "2,4,64", "--per-node", "4", "--storage", slow]) == 0
    out = capsys.readouterr().out
    assert "64 on 16" in out
    assert "goal 70 %, reached by 4 ranks" in out


def test_ranks_fill_a_node_before_the_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "narrow.dlio").write_text("dlio 1\nstorage narrow {\n servers 9 of 100 GB/s\n client 4 GB/s\n}\n")
    storage = str(tmp_path / "narrow.dlio")
    assert main(["predict", "cosmoflow", "--ranks", "4,8,9,12", "--storage", storage, "--json"]) == 0
    four, *others = [one["storage_utilization"]["mean"] for one in json.loads(capsys.readouterr().out)["predicted"]]
    assert four == pytest.approx(1.0, abs=0.01)
    assert others == pytest.approx([4e9 * 3.5e-3 / (8 * 2.83e6)] * 3, abs=0.04)


def test_numbers_with_a_comma_for_thousands_are_refused(slow: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["predict", "cosmoflow", "--ranks", "4,096", "--storage", slow])
    assert "write 4_096 for one number" in capsys.readouterr().err


def test_without_ranks_the_most_that_are_fed_are_searched(slow: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "cosmoflow", "--storage", slow]) == 0
    out = capsys.readouterr().out
    assert "ANSWER   would feed 4 ranks but not 6: train busy" in out
    assert main(["predict", "cosmoflow", "--storage", slow, "--json"]) == 0
    tried = json.loads(capsys.readouterr().out)["predicted"]
    assert [one["ranks"] for one in tried] == [1, 2, 4, 5, 6, 8]
    assert all((one["storage_utilization"]["low"] >= one["goal"]) == (one["ranks"] <= 4) for one in tried)


def test_a_goal_that_one_rank_does_not_reach(slow: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["predict", "cosmoflow", "--storage", slow, "--until", "utilization 99.9 %", "-D", "train.readers=0"]) == 0
    )
    assert "ANSWER   would not even feed 1 rank: train busy" in capsys.readouterr().out


@given(st.integers(0, 200_000))
def test_a_search_comes_within_two_per_cent_of_the_most_ranks(most: int) -> None:
    def predict(ranks: int) -> tuple[Job, Prediction]:
        busy = 0.9 if ranks <= most else 0.8
        return Job(ranks), SimpleNamespace(lowest=busy, is_read_ahead=False)  # type: ignore[return-value]

    found, has_ended = find_most_ranks(predict, 0.85)
    assert has_ended == (most >= MOST_RANKS)
    tried = {job.ranks: one.lowest for job, one in found}
    reached = max((ranks for ranks, busy in tried.items() if busy == 0.9), default=0)
    assert min(most, MOST_RANKS) / 1.02 - 1 <= reached <= min(most, MOST_RANKS)
    assert len(tried) <= 24


@pytest.mark.parametrize(
    ("samples", "batch", "fed"),
    [
        (400, "4 per rank", 16),
        (480, "48 total", 24),
    ],  # all steps would be read ahead; ranks divide a batch
)
def test_a_search_says_that_the_data_end_before_the_storage(
    samples: int, batch: str, fed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fast.dlio").write_text(FAST)
    (tmp_path / "few.dlio").write_text(
        f'dlio 1\nworkload few "few samples"\ndataset d {{\n samples {samples}\n size 1 MB\n path "d"\n}}\n'
        f"train {{\n read d\n batch {batch}\n epochs 1\n compute 5 ms\n readers 1\n prefetch 4 batches\n}}\n"
    )
    assert main(["predict", str(tmp_path / "few.dlio"), "--storage", str(tmp_path / "fast.dlio")]) == 0
    assert f"would feed at least {fed} rank" in capsys.readouterr().out


def test_its_lines_fit_80_columns(slow: str, capsys: pytest.CaptureFixture[str]) -> None:
    for pattern in ("cosmoflow", "unet3d", "resnet50"):
        assert main(["predict", pattern, "--ranks", "4,16", "--storage", slow]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= 80
        assert lines.index("") <= 8


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["inference", "--ranks", "4"], "requests is not predicted"),
        (
            [
                "cosmoflow",
                "--ranks",
                "4",
                "-D",
                "layout=shared file",
                "-D",
                "api=mpi-collective",
                "-D",
                "train.readers=1",
            ],
            "collective",
        ),
        (["cosmoflow", "--ranks", "4", "--loop", "x"], "loops that do: train"),
        (["llama3_8b"], "saves and restores are predicted for --ranks N"),
        (["llama3_8b", "--ranks", "8", "--vary", "rounds=1,2"], "--vary: no loop reads"),
    ],
)
def test_what_cannot_be_told_is_refused(
    words: list[str], said: str, slow: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", *words, "--storage", slow]) == 2
    assert said in capsys.readouterr().err


def test_settings_of_the_storage_are_given_by_its_name(slow: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "cosmoflow", "--ranks", "64", "--storage", slow, "-D", "train.readers=2"]
    assert main([*words, "-D", "slow.servers=8 of 1 GB/s"]) == 0
    assert "limited by 8.0 GB/s" in capsys.readouterr().out
    assert main(["check", slow, "cosmoflow"]) == 0
    assert "ok (storage slow)" in capsys.readouterr().out


def test_a_plan_takes_the_rates_of_the_file(slow: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "cosmoflow", "--ranks", "64", "--storage", slow]) == 0
    assert "REACH    train: accelerators busy 7.7 % at most (goal 70 %), limited by 4.0 GB/s" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["plan", "cosmoflow", "--ranks", "64", "--storage", slow, "--bandwidth", "1 GB/s"])
    assert "--storage: the file has the rates" in capsys.readouterr().err


def test_other_loops_and_what_is_behind_the_limit_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "slow.dlio").write_text(SLOW)
    (tmp_path / "two.dlio").write_text(
        'dlio 1\nworkload two "two loops"\ndataset d {\n samples 64 * $ranks\n size 1 MB\n path "d"\n}\n'
        "train first {\n read d\n batch 1 per rank\n compute 200 us\n readers 4\n prefetch 2 batches\n}\n"
        "train second {\n read d\n batch 1 per rank\n}\n"
    )
    command = ["predict", str(tmp_path / "two.dlio"), "--storage", str(tmp_path / "slow.dlio")]
    assert main([*command, "--ranks", "1"]) == 0
    out = capsys.readouterr().out
    assert "ALSO     not predicted: second; --loop NAME chooses" in out
    assert "WHY      the requests of a rank, 2 at a time (`prefetch`), take" in out
    assert main([*command, "--ranks", "1", "--loop", "second"]) == 0
    assert "ANSWER   not asked: second has no compute" in capsys.readouterr().out
    assert main([*command, "--loop", "second"]) == 2
    assert "give --ranks, for its rate" in capsys.readouterr().err


def test_a_storage_without_an_end_feeds_at_least_the_most_that_are_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dliosim.commands.predict.MOST_RANKS", 4)
    (tmp_path / "fast.dlio").write_text(FAST)
    assert main(["predict", "cosmoflow", "--storage", str(tmp_path / "fast.dlio")]) == 0
    assert "ANSWER   would feed at least 4 ranks: train busy 100 %" in capsys.readouterr().out


def test_storages_that_come_with_it_are_taken_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "predict",
        "unet3d",
        "-D",
        "accelerator=b200",
        "-D",
        "scale=1",
        "--ranks",
        "16",
        "--per-node",
        "1",
        "--json",
    ]
    assert main([*words, "--storage", "amlfs", "-D", "amlfs.servers=8 of 12.5 GB/s"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["predicted"]
    assert 0.94 < one["storage_utilization"]["mean"] < 0.98
    assert main([*words, "--storage", "nosuch"]) == 2
    assert "shipped descriptions: 3fs, amlfs, leonardo, miyabi, nvme, shaheen3" in capsys.readouterr().err


def test_storages_that_come_with_it_have_the_names_of_their_files() -> None:
    files = [path for path in (PATTERNS / "profiles").glob("*.dlio") if describes_storage(path)]
    names = {path.stem: compile_storage(path, []).storage.name for path in files}
    assert {stem: name.lstrip("_") for stem, name in names.items()} == {stem: stem for stem in names}
    assert "3fs" in names


@pytest.fixture
def results(tmp_path: Path) -> str:
    """Results of cosmoflow on 4 ranks and one node, on which storage alone would keep accelerators busy 60 %."""
    busy = Spread(0.6, 0.55, 0.65)
    run = sample.run(name="cosmoflow", ranks=4, nodes=1)
    answers = tuple(replace(one, storage_utilization=busy) for one in run.answers)
    write_results(tmp_path, replace(run, answers=answers), [], [])
    return str(tmp_path)


def test_results_are_shown_next_to_the_prediction_of_their_ranks(
    slow: str, results: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["predict", "cosmoflow", "--storage", slow, "--measured", results]
    assert main([*command, "--ranks", "8", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["predicted"]
    assert [(one["ranks"], one["nodes"]) for one in shown] == [(4, 1), (8, 1)]
    assert [one["measured"] for one in shown] == [{"mean": 0.6, "low": 0.55, "high": 0.65}, None]
    assert main(command) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "55 % to 65 %" in out
    assert "1 run next to it" in out


@pytest.mark.parametrize("value", ["train.readers=3", "files=80"])
def test_results_with_other_values_are_counted(
    value: str, slow: str, results: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["predict", "cosmoflow", "--storage", slow, "--measured", results, "-D"]
    assert main([*command, value]) == 0
    assert "1 run next to it, 1 with other -D;" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("pattern", "more", "said"),
    [
        ("unet3d", [], "no results of `dliosim run unet3d`"),
        ("cosmoflow", ["--picture", "ladder.pdf"], "name a file that ends in .png or .svg"),
    ],
)
def test_results_of_another_pattern_and_other_pictures_are_refused(
    pattern: str, more: list[str], said: str, slow: str, results: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", pattern, "--storage", slow, "--measured", results, *more]) == 2
    assert said in capsys.readouterr().err


def test_results_out_of_memory_are_counted(slow: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = sample.run(name="cosmoflow", ranks=4, nodes=1)
    answers = tuple(replace(one, storage_utilization=Spread(0.9, 0.9, 0.9), from_storage=False) for one in run.answers)
    write_results(tmp_path, replace(run, answers=answers), [], [])
    assert main(["predict", "cosmoflow", "--storage", slow, "--measured", str(tmp_path), "-D", "files=64"]) == 0
    assert "1 run next to it, 1 with other -D, 1 not from storage;" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("words", [["llama3_8b"], ["cosmoflow", "--vary", "readers=1,2"]])
def test_a_picture_is_of_numbers_of_ranks(words: list[str], slow: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", *words, "--ranks", "8", "--storage", slow, "--picture", "a.png"]) == 2
    assert "leave them out" in capsys.readouterr().err


def test_the_ladder_is_drawn(slow: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "ladder.svg"
    assert main(["predict", "cosmoflow", "--ranks", "1,4", "--storage", slow, "--picture", str(place)]) == 0
    assert "predicted on slow" in place.read_text()
    assert "ANSWER" in capsys.readouterr().out


def test_saves_have_a_row_for_each_number_of_ranks(slow: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["predict", "cosmoflow", "--ranks", "4,8", "--storage", slow]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "save model by 4" in out and "save model by 8" in out
    assert main([*command, "--json"]) == 0
    for one in json.loads(capsys.readouterr().out)["predicted"]:
        (save,) = one["saves"]
        assert (save["kind"], save["bytes"], save["limited_by"]) == ("save", 100e6, "rank")
        assert save["seconds"] == pytest.approx(100e6 / 1e9, rel=0.1)
        assert save["between_seconds"] == pytest.approx(5 * one["epoch_seconds"] / save["times"])


def test_a_workload_that_only_saves_has_its_saves(slow: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["predict", "llama3_8b", "--ranks", "8", "--storage", slow]
    assert main(command) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "SAVES state: 11.2 MB (1/10000 of the bytes of llama3_8b) in" in out
    assert "restore state by 8" in out
    assert main([*command, "--json"]) == 0
    assert [one["kind"] for one in json.loads(capsys.readouterr().out)["predicted"]] == ["save", "restore"]


def test_variants_have_a_row_each_and_the_best_is_named(slow: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["predict", "cosmoflow", "--ranks", "4", "--storage", slow, "--vary", "prefetch=2 batches,8 batches"]
    assert main([*command, "--vary", "readers=1,4", "--json"]) == 0
    rows = {one["variant"]: one["storage_utilization"] for one in json.loads(capsys.readouterr().out)["predicted"]}
    assert len(rows) == 4
    assert rows["prefetch=8 batches, readers=4"]["low"] > rows["prefetch=2 batches, readers=1"]["high"]
    assert main(command) == 0
    assert "ANSWER   prefetch=8 batches is best: train busy" in capsys.readouterr().out
    assert main([*command[:2], *command[4:]]) == 2
    assert "write `--ranks N`" in capsys.readouterr().err


@pytest.mark.parametrize(("sizes", "is_said"), [("4 KiB to 64 KiB", True), ("4 KiB to 1 MiB", False)])
def test_calls_far_from_those_that_were_measured_are_said(
    sizes: str, is_said: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here.dlio").write_text(SLOW.replace("latency", f"measured {sizes}\n latency"))
    assert main(["predict", "cosmoflow", "--ranks", "4", "--storage", str(tmp_path / "here.dlio")]) == 0
    assert ("BEYOND   calls of 2.8 MB: slow was measured" in capsys.readouterr().out) is is_said


FLUSHED = """dlio 1
workload flushed "a loop that saves every second"
param background = on
dataset d {
    samples  1_000_000
    size     100 kB
    path     "d"
}
checkpoint c {
    part     state 400 MB total
    transfer 4 MiB
    async    $background
    path     "c"
}
train t {
    read     d
    shuffle  samples globally each epoch
    compute  10 ms
    steps    400
    checkpoint c every 100 steps
}
restore c
"""


def test_a_save_in_the_background_slows_reads_and_they_slow_it(
    slow: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "flushed.dlio").write_text(FLUSHED)
    command = ["predict", str(tmp_path / "flushed.dlio"), "--ranks", "4", "--storage", slow, "--json"]
    command += ["-D", "slow.servers=4 of 100 MB/s"]
    found = []
    for background in "on", "off":
        assert main([*command, "-D", f"background={background}"]) == 0
        (one,) = json.loads(capsys.readouterr().out)["predicted"]
        found.append(one)
    flushed, blocking = found
    # A call of the save holds a server for 42 ms, of a second and more of each 100 steps.
    assert flushed["limited_by"] == "saves" and blocking["limited_by"] != "saves"
    assert flushed["step_seconds"] > 1.3 * blocking["step_seconds"]
    (save, restore), (alone, other) = flushed["saves"], blocking["saves"]
    assert alone["seconds"] < save["seconds"] < 1.3 * alone["seconds"]
    assert restore == other
