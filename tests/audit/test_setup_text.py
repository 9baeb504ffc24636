"""The paragraph on the set-up: each number is that of the results, and what is unknown is named so."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dliosim.audit.setup_text import describe_setup
from dliosim.errors import UsageError
from dliosim.report.reader.load import load_results
from tests.audit.sample import Content, load_runs, phase, repetitions
from tests.audit.test_rules import null_of
from tests.pictures.sample import write_comparison


def text_of(place: Path, runs: list[Content]) -> str:
    place.mkdir(exist_ok=True)
    return " ".join(describe_setup(load_runs(place, runs)).split())


def test_the_paragraph_has_machine_storage_data_access_and_figures(tmp_path: Path) -> None:
    runs = repetitions(3)
    runs[1]["answer"][0]["storage_utilization"]["mean"] = 0.9
    text = text_of(tmp_path, runs)
    for said in (
        f"workload clean (digest {runs[0]['digest']}; settings as in the pattern) with 1 rank on 1 node, 3 times,",
        "first at 2026-11-28T15:28:00+00:00.",
        "A node had 25.3 GB of memory and 2 cores for 1 rank",
        "Linux 6.1.0 x86_64",
        "Python 3.11.7, MPICH 4.1.3, MPI-IO unknown.",
        "Root data was on ext4 (mount options rw,relatime; striping unknown).",
        "Data set images had 800 samples of 100 KiB in 1 file (shared file), 81.9 MB, in format raw.",
        "train ran 3 epochs of 81.9 MB with batch 20 per rank, ",
        "shuffle samples globally each epoch",
        "compute 30 ms",
        "readers 1",
        "cache off",
        "(past the page cache). Figures are those of epochs 1 to 3 (source of the bytes: device).",
        "Storage-limited utilization was 96.1 % (mean of 3, from 90.0 % to 99.1 %); the goal was 50 %.",
        "save state moved 20.0 MB by posix, fsync on, in ",
        "restore state moved 20.0 MB by posix, caches dropped before, in ",
    ):
        assert said in text
    assert text.count("unknown") == 4


def test_a_figure_of_runs_is_their_mean_and_of_one_run_has_its_interval(tmp_path: Path) -> None:
    runs = repetitions(2)
    for one in phase(runs[1], "train")["epochs"]:
        one.update(loop_seconds=2 * one["loop_seconds"])
    one_run = re.search(r"It read ([\d.]+) MB/s\.", text_of(tmp_path / "1", runs[:1]))
    mean = re.search(r"It read ([\d.]+) MB/s \(mean of 2, from ([\d.]+) MB/s", text_of(tmp_path / "2", runs))
    assert one_run and mean and float(mean[1]) == pytest.approx(0.75 * float(one_run[1]), rel=0.01)
    assert "% (95 % interval " in text_of(tmp_path / "3", runs[:1])


def test_what_was_no_storage_is_said(tmp_path: Path) -> None:
    modelled, verified, memory, partial = repetitions(4)
    modelled.update(modelled="small")
    verified.update(verify=True)
    memory["environment"]["file_systems"][0].update(kind="tmpfs")
    memory["answer"][0].update(source="memory", reasons=[{"kind": "memory_file_system", "values": {}}])
    partial.update(partial={"signal": "", "verbs_done": 1, "verbs": 5, "loops": []}, answer=[])
    found = [text_of(tmp_path / str(number), [run]) for number, run in enumerate((modelled, verified, memory, partial))]
    assert found[0].startswith("No file was read or written") and "Root data" not in found[0]
    assert "compared what they read (--verify)" in found[1]
    assert "on tmpfs, in memory" in found[2] and "source of the bytes: memory" in found[2]
    assert found[3].startswith("The run was interrupted") and "utilization" not in found[3]


def test_settings_of_dlio_are_named_with_its_file(tmp_path: Path) -> None:
    [run] = repetitions(1)
    run["arguments"] = ["run", "w/unet3d.yaml", "++workload.train.epochs=3"]
    assert "imported from unet3d.yaml (digest" in (text := text_of(tmp_path, [run]))
    assert "settings ++workload.train.epochs=3)" in text


def test_a_save_of_a_part_and_a_warm_restore_are_named(tmp_path: Path) -> None:
    [run] = repetitions(1)
    phase(run, "save").update(part_of="scale 200", whole_times=200.0, whole_ranks=8)
    run["phases"] = [one for one in run["phases"] if one["kind"] != "drop caches"]
    text = text_of(tmp_path, [run])
    assert "1/200 of a checkpoint of 8 ranks (scale 200)" in text
    assert "caches not dropped before" in text


def test_runs_on_machines_that_differ_are_named(tmp_path: Path) -> None:
    runs = repetitions(2)
    runs[1]["environment"]["cores_per_node"] = 64
    assert text_of(tmp_path, runs).startswith("Machines, libraries or mounts of the runs differ")


def test_only_whole_runs_count_next_to_others(tmp_path: Path) -> None:
    runs = repetitions(3)
    runs[0].update(partial={"signal": "", "verbs_done": 1, "verbs": 5, "loops": []}, answer=[])
    text = text_of(tmp_path, [*runs, runs[1]])
    assert ", 2 times, first at 2026-11-28T15:28:01" in text and "interrupted" not in text


def other_digest(run: Content) -> None:
    run["digest"] = "0" * 16


def other_file(run: Content) -> None:
    run["pattern"] = 'dlio 1\nuse "/etc/hostname"\n'


@pytest.mark.parametrize("change", [other_digest, other_file])
def test_data_of_another_pattern_than_the_one_that_ran_are_unknown(
    change: Callable[[Content], None], tmp_path: Path
) -> None:
    [run] = repetitions(1)
    change(run)
    text = text_of(tmp_path, [run])
    assert "layout of the data are unknown" in text and "Data set images" not in text


def test_unknown_values_are_named(tmp_path: Path) -> None:
    [run] = repetitions(1)
    run["environment"].update(whole_memory_per_node=0, details={})
    text = text_of(tmp_path, [run])
    assert "an unknown amount of memory" in text and "kernel unknown" in text and "unknown versions" in text


def test_results_of_several_jobs_are_refused(tmp_path: Path) -> None:
    runs = repetitions(2)
    runs[1]["ranks"] = 2
    with pytest.raises(UsageError, match="repetitions"):
        text_of(tmp_path, runs)


def test_a_run_without_io_and_a_comparison_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="with I/O"):
        text_of(tmp_path, [null_of(repetitions(1)[0])])
    write_comparison(tmp_path / "compare")
    with pytest.raises(UsageError, match="with I/O"):
        describe_setup(load_results([str(tmp_path / "compare")], with_arrays=False))
