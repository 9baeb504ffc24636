"""`dliosim check --rules`: a case that keeps every rule, a planted breach of each, and what is not known."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final

import pytest

from dliosim import PATTERNS
from dliosim.cli import main
from dliosim.commands.command_line.command_table import COMMANDS
from dliosim.language.compile import compile_pattern
from dliosim.measure.results.machine import OTHER_MOUNT, RESULTS_ON
from dliosim.measure.results.phase import PartialProgress
from dliosim.measure.results.run_summary import RunSummary
from dliosim.mlperf.rules import FIGURES, KINDS, Case, find_changes, judge_rules, read_rules
from dliosim.model import Job
from dliosim.plan.forecast.forecast import forecast
from dliosim.report.files.results import write_partial, write_results
from dliosim.report.reader.bundle import write_bundle
from tests.pictures.sample import write_comparison
from tests.report import sample

GIB = 2**30
VERSIONS = ("mlperf-v2", "mlperf-v3")

#: A model, its data set's size of MLPerf, and settings that the rules allow.
TRAINING = {"scale": "1", "accelerator": "b200", "kits19.samples": "28000", "train.readers": "8"}
SAVING = {"scale": "1", "faster": "1"}


def case(name: str, values: dict[str, str], ranks: int, nodes: int, memory: float | None = 64 * GIB) -> Case:
    path, job = PATTERNS / f"{name}.dlio", Job(ranks, nodes)
    workload = compile_pattern(path, list(values.items()), job)[0]
    base = compile_pattern(path, [one for one in values.items() if one[0] in ("scale", "accelerator")], job)[0]
    return Case(workload, forecast(workload), memory, find_changes(base, workload))


def training(ranks: int = 8, nodes: int = 2, memory: float | None = 64 * GIB, **values: str) -> Case:
    given = {name.replace("_", ".", 1): value for name, value in values.items()}
    return case("unet3d", TRAINING | given, ranks, nodes, memory)


def saving(name: str = "llama3_8b", ranks: int = 8, nodes: int = 1, memory: float = 64 * GIB, **values: str) -> Case:
    given = {key.replace("_", ".", 1): value for key, value in values.items()}
    return case(name, SAVING | given, ranks, nodes, memory or None)


def result(
    place: str, minutes: float = 0, au: float | None = 0.95, share: float = 0.0, **changed: Any
) -> tuple[str, RunSummary]:
    """Results that began after some minutes, and took five."""
    run = sample.run()
    phases = [
        replace(one, epochs=tuple(sample.change(each, dlio_au=au) for each in one.epochs)) if hasattr(one, "epochs")
        else replace(one, resident_share=share)
        for one in run.phases
    ]  # fmt: skip
    began = datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(minutes=minutes)
    return place, replace(run, phases=tuple(phases), **({"started": began.isoformat(), "seconds": 300.0} | changed))


@pytest.fixture
def runs(tmp_path: Path) -> Callable[..., list[tuple[str, RunSummary]]]:
    """Return six runs, a minute between them, whose data are on another file system than their results."""
    machine = replace(sample.run().environment, details=((RESULTS_ON, OTHER_MOUNT),))

    def make(number: int = 6, gap: float = 1, **changed: Any) -> list[tuple[str, RunSummary]]:
        return [result(str(tmp_path), n * (5 + gap), **({"environment": machine} | changed)) for n in range(number)]

    return make


def verdicts(found: Case, version: str) -> dict[str, bool | None]:
    """The verdict on each figure."""
    return {rule["figure"]: verdict for rule, verdict, _ in judge_rules(found, read_rules(version))}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_clean_case_keeps_every_rule(version: str, runs: Callable[..., list[tuple[str, RunSummary]]]) -> None:
    for found in training(), saving():
        kept = verdicts(replace(found, runs=runs()), version)
        assert set(kept.values()) == {True}, kept


#: Cases that break the rule about a figure, by its name.
BREACHES: Final[dict[str, Callable[[], Case]]] = {
    "workload": lambda: case("deepcam", {"scale": "1"}, 8, 2),
    "data": lambda: training(memory=400 * GIB),
    "steps": lambda: training(kits19_samples="27999"),
    "ranks left over": lambda: training(nodes=3),
    "changes": lambda: training(train_batch="6 per rank"),
    "direct I/O": lambda: case("resnet50", {"scale": "1", "main.cache": "off"}, 8, 2),
    "ranks": lambda: saving(ranks=16, nodes=2),
    "ranks a node": lambda: saving(ranks=8, nodes=4),
    "saves": lambda: saving(rounds="2"),
    "fsync": lambda: saving(state_fsync="off"),
    "accelerator": lambda: saving("llama3_70b", state_parallel="tensor 8"),
}

#: Results that break it, with what they are made of.
BREACHES_OF_RUNS: Final[dict[str, dict[str, Any]]] = {
    "AU": {"au": 0.85},
    "runs": {"number": 5},
    "gaps": {"gap": 6},
    "file systems": {"environment": replace(sample.run().environment, details=((RESULTS_ON, "that of the data"),))},
    "cached": {"share": 0.5},
    "saved": {"share": 0.5},
}


@pytest.mark.parametrize(("version", "figure"), [(one, figure) for one in VERSIONS for figure in BREACHES])
def test_a_breach_of_a_pattern_is_found(version: str, figure: str) -> None:
    if figure in {rule["figure"] for rule in read_rules(version)}:
        assert verdicts(BREACHES[figure](), version)[figure] is False


@pytest.mark.parametrize(("version", "figure"), [(one, figure) for one in VERSIONS for figure in BREACHES_OF_RUNS])
def test_a_breach_of_runs_is_found(
    version: str, figure: str, runs: Callable[..., list[tuple[str, RunSummary]]]
) -> None:
    if figure in {rule["figure"] for rule in read_rules(version)}:
        found = saving() if figure in ("cached", "saved") else training()
        assert verdicts(replace(found, runs=runs(**BREACHES_OF_RUNS[figure])), version)[figure] is False


@pytest.mark.parametrize("version", VERSIONS)
def test_each_rule_has_a_figure_a_source_and_a_breach(version: str) -> None:
    for rule in read_rules(version):
        assert rule["figure"] in FIGURES
        assert rule["kind"] in KINDS
        assert rule["figure"] in {**BREACHES, **BREACHES_OF_RUNS}
        assert re.match(r"20\d\d", rule["date"])
        assert re.search(r"@[0-9a-f]{7}\b", rule["source"])
        assert rule["of"] in ("training", "checkpointing")
    checked = next(more for names, more in COMMANDS["check"].options if "--rules" in names)
    assert checked["choices"] == VERSIONS


@pytest.mark.parametrize(
    ("found", "figure"),
    [
        (training(memory=None), "data"),
        (training(), "AU"),
        (training(), "runs"),
        (training(), "file systems"),
        (case("deepcam", {"scale": "1"}, 8, 2), "AU"),
        (saving(memory=0), "saved"),
        (saving(ranks=8, nodes=2), "ranks a node"),  # 4: mlcommons/storage#866
    ],
)
def test_what_is_not_known_is_said(found: Case, figure: str) -> None:
    assert verdicts(found, "mlperf-v3")[figure] is None


def test_the_au_of_runs_that_read_nothing_is_not_known(runs: Callable[..., list[tuple[str, RunSummary]]]) -> None:
    for changed in {"au": None}, {"null": True}, {"modelled": "slow"}:
        assert verdicts(replace(training(), runs=runs(**changed)), "mlperf-v3")["AU"] is None


@pytest.mark.parametrize("started", ["", "yesterday", "0001-01-01"])
def test_gaps_of_runs_without_a_time_are_not_known(started: str) -> None:
    assert verdicts(replace(training(), runs=[result("a", started=started)] * 2), "mlperf-v3")["gaps"] is None


def test_a_name_alone_makes_no_published_workload(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "unet3d.dlio"
    path.write_text((PATTERNS / "unet3d.dlio").read_text() + "\n# mine\n")
    for pattern, word in ((str(path), "unknown"), (str(PATTERNS / "unet3d.dlio"), "kept")):
        main(["check", pattern, "--rules", "mlperf-v3"])
        assert re.search(rf"^{word} +2\.1\.11 ", capsys.readouterr().out, re.MULTILINE)


def test_a_pattern_without_runs_has_no_share_in_memory() -> None:
    assert verdicts(saving(), "mlperf-v2")["cached"] is None


def test_a_bound_of_one_value_is_that_value() -> None:
    judged = judge_rules(saving(rounds="2"), read_rules("mlperf-v3"))
    [why] = [why for rule, _, why in judged if rule["figure"] == "saves"]
    assert "(asked: 10)" in why


def test_the_first_of_several_runs_warms_up(runs: Callable[..., list[tuple[str, RunSummary]]]) -> None:
    cold = [*runs(1, au=0.5), *runs()[1:]]
    assert verdicts(replace(training(), runs=cold), "mlperf-v3")["AU"] is True
    assert verdicts(replace(training(), runs=cold[:1]), "mlperf-v3")["AU"] is False


def test_a_node_that_writes_more_than_its_cache_holds_drops_none(tmp_path: Path) -> None:
    path = tmp_path / "llama3_8b.dlio"
    text = (PATTERNS / "llama3_8b.dlio").read_text().replace("\ndrop caches", "\n#")
    path.write_text(text.replace("profiles/", f"{PATTERNS}/profiles/"))
    for memory, kept in ((32 * GIB, True), (64 * GIB, False)):
        workload = compile_pattern(path, list(SAVING.items()), Job(8))[0]
        found = Case(workload, forecast(workload), memory, {})
        assert verdicts(found, "mlperf-v3")["saved"] is kept


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["unet3d", "--rules", "mlperf-v3"], 1, "broken   3.1.2"),
        (["unet3d", "-D", "scale=1", "-D", "kits19.samples=14000", "--rules", "mlperf-v3", "--memory", "16 GiB"], 0,
         "kept     3.1.2"),
        (["unet3d", "--memory", "16 GiB"], 2, "--memory goes with --rules"),
        (["prepare_imagenet", "--rules", "mlperf-v3"], 2, "it has neither"),
        (["unet3d", "--rules", "mlperf-v9"], 2, "mlperf-v9"),
    ],
)  # fmt: skip
def test_the_exit_status_says_if_a_rule_is_broken(
    words: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        found = main(["check", *words])
    except SystemExit as end:
        found = int(end.code or 0)
    printed = capsys.readouterr()
    assert (found, said in printed.out + printed.err) == (status, True)
    assert ("no submission" in " ".join(printed.out.split())) is (status < 2)


@pytest.mark.parametrize(("key", "changed"), [("reader.read_threads=8", False), ("reader.batch_size=4", True)])
def test_keys_of_dlio_are_changes(key: str, changed: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "unet3d_h100.yaml"
    path.write_text(
        "model: {name: unet3d}\nframework: pytorch\nworkflow: {train: True}\n"
        "dataset: {data_folder: d, format: npz, num_files_train: 168, record_length_bytes: 4096}\n"
        "reader: {data_loader: pytorch, batch_size: 7, read_threads: 4}\ntrain: {epochs: 5, computation_time: 0.323}\n"
    )
    keys = ["++workload.dataset.num_files_train=224000", f"++workload.{key}"]
    assert main(["check", str(path), *keys, "--ranks", "64", "--nodes", "8", "--rules", "mlperf-v2"]) == int(changed)
    assert ("train.batch changed: yes" in " ".join(capsys.readouterr().out.split())) is changed


def test_results_are_checked_with_their_pattern(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pattern = (PATTERNS / "unet3d.dlio").read_text()
    places = [tmp_path / str(n) for n in (2, 1)]  # given in any order
    for place, minutes in zip(places, (6, 0), strict=True):
        place.mkdir()
        run = result("", minutes, name="unet3d", pattern=pattern, overrides=tuple(TRAINING.items()))[1]
        write_results(place, run, [], [])
    assert main(["check", *map(str, places), "--rules", "mlperf-v3", "--memory", "64 GiB"]) == 1
    out = capsys.readouterr().out
    assert "4 ranks on 1 node" in out
    # Of two runs the second one counts.
    assert f"{places[0]}:" in out
    assert f"{places[1]}:" not in out.split("3.3.6")[0]
    assert re.findall(r"^(kept|broken|unknown) +([\d.]+) ", out, re.M)[:4] == [
        ("kept", "2.1.11"), ("kept", "3.1.2"), ("kept", "3.1.2"), ("kept", "3.3.2"),
    ]  # fmt: skip
    assert ("broken", "2.1.17") in re.findall(r"^(kept|broken|unknown) +([\d.]+) ", out, re.M)
    assert main(["check", "unet3d", str(places[0]), "--rules", "mlperf-v3"]) == 2


def test_what_rules_do_not_judge_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pattern = (PATTERNS / "unet3d.dlio").read_text()
    run = result("", name="unet3d", pattern=pattern, overrides=tuple(TRAINING.items()))[1]
    for number, changed in enumerate((run, replace(run, digest="0" * 16)), 1):
        (tmp_path / f"set/run_{number}").mkdir(parents=True)
        write_results(tmp_path / f"set/run_{number}", changed, [], [])
    first, second = str(tmp_path / "set/run_1"), str(tmp_path / "set/run_2")
    progress = PartialProgress("SIGTERM", 1, 2, ())
    (tmp_path / "part").mkdir()
    write_partial(lambda: tmp_path / "part", replace(run, partial=progress))
    write_comparison(tmp_path / "compare")
    for words, said in (
        ([first, second], "digests differ"),
        ([first, "-D", "scale=2"], "take no others"),
        ([str(tmp_path / "set")], "set/run_*/"),
        ([str(tmp_path / "part")], "partial results"),
        ([str(tmp_path / "compare")], "is a comparison"),
        (["unet3d", first], "name one kind alone"),
    ):
        assert main(["check", *words, "--rules", "mlperf-v3"]) == 2
        assert said in capsys.readouterr().err
    write_bundle(tmp_path / "a.zip", [Path(first)])
    assert main(["check", str(tmp_path / "a.zip"), "--rules", "mlperf-v3"]) in (0, 1)


@pytest.mark.parametrize("started", ["0001-01-01T00:00:00", "no time", "9999-12-31T23:59:59"])
def test_a_damaged_start_is_unknown(started: str, runs: Callable[..., list[tuple[str, RunSummary]]]) -> None:
    first, *others = runs()
    damaged = [(first[0], replace(first[1], started=started)), *others]
    assert verdicts(replace(training(), runs=damaged), "mlperf-v3")["gaps"] in (None, False, True)


def test_a_small_run_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run on one rank, of a pattern of the user."""
    path = tmp_path / "unet3d_mine.dlio"
    path.write_text(
        'dlio 1\nworkload unet3d_mine\ndataset d {\n samples 8\n size 4 KiB\n path "d"\n}\nprepare d\n'
        "train {\n read d\n epochs 2\n compute 1 ms\n}\n"
    )
    place, data = tmp_path / "results", tmp_path / "data"
    line = [sys.executable, "-m", "dliosim.cli", "run", str(path), "--dir", str(data), "--output", str(place)]
    subprocess.run(line, check=True, capture_output=True, timeout=60)
    assert main(["check", str(place), "--rules", "mlperf-v3"]) == 1
    found = re.findall(r"^(kept|broken|unknown) +([\d.]+) ", capsys.readouterr().out, re.M)
    # AU (3.3.2) of so short a run is that of the machine.
    assert [number for verdict, number in found if verdict == "broken" and number != "3.3.2"] == [
        "3.1.2", "3.1.2", "3.4.2",
    ]  # fmt: skip
