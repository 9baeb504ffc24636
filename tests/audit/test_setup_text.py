"""The paragraph on the set-up: each number is that of the results, and what is unknown is named so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dliosim.audit.verdict import describe_setup
from dliosim.errors import UsageError
from dliosim.report.reader.load import load_results
from tests.audit.sample import Content, load_runs, phase, repetitions
from tests.audit.test_rules import null_of
from tests.pictures.sample import write_comparison


def text_of(place: Path, runs: list[Content]) -> str:
    return " ".join(describe_setup(load_runs(place, runs)).split())


def test_the_paragraph_has_machine_storage_data_access_and_figures(tmp_path: Path) -> None:
    runs = repetitions(3)
    runs[1]["answer"][0]["storage_utilization"]["mean"] = 0.9
    text = text_of(tmp_path, runs)
    machine, written = runs[0]["environment"], phase(runs[0], "prepare")["files"]["bytes_moved"]
    for said in (
        f"digest {runs[0]['digest']}",
        "1 rank and 1 node: 1 rank on 2 cores of a node with 25.3 GB of memory",
        "Linux 6.1.0 x86_64",
        "Python 3.11.7, MPICH 4.1.3, MPI-IO unknown.",
        "Root data was on ext4 (mount options rw,relatime; striping unknown).",
        f"Data set images had 800 samples in 1 file (shared file), {written / 1e6:.2f} MB, in format raw.",
        "train read by posix (cache off, past the page cache; 1 reader a rank, 2 batches ahead).",
        "epochs 1 to 3 of 3; source of the bytes: device.",
        "goal 50 %",
        "save state ran 1 time, 20.0 MB by posix, fsync on.",
        "restore state ran 1 time, 20.0 MB by posix.",
        "The job ran 3 times, first at 2026-11-28T15:28:00+00:00.",
        "Their figure of train had a standard deviation of",
    ):
        assert said in text
    assert machine["whole_memory_per_node"] == 25276510208
    assert text.count("unknown") == 4


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
    phase(run, "prepare")["files"].update(bytes_moved=0)
    text = text_of(tmp_path, [run])
    assert "an unknown amount of memory" in text and "kernel unknown" in text and "unknown versions" in text
    assert "bytes unknown, as an earlier run wrote them" in text


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
