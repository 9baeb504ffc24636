"""Whole runs in this process that decode and preprocess: what of it is counted as what, and what prepare says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dliosim.execute.backends.library_reader import library_read_note
from dliosim.execute.datasets.prepare import size_note
from dliosim.execute.phases.context import Options, Phase, Session
from dliosim.execute.run.workload_runner import run_workload
from dliosim.language.compile import compile_pattern
from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.figures.summary import RANK_COLUMNS
from dliosim.model import Access, Job
from dliosim.report.progress.progress_line import ProgressLine
from tests.execute.alone import world_of_one

DATASET = """dlio 1
workload alone
dataset d {
    samples  12
    size     %s
    format   %s
    path     "d"
}
prepare d
"""
LOOP = "train {\nread d\nbatch 4 per rank\nepochs 2\n%s\n}\n"
DECODING = "decode on\npreprocess 2 ms"


def run_alone(directory: Path, form: str, loop: str, size: str = "64 kB") -> list[Phase]:
    """Prepare a data set of twelve samples and run a loop over it, as the only rank."""
    pattern = directory / "alone.dlio"
    pattern.write_text(DATASET % (size, form) + LOOP % loop)
    workload, _ = compile_pattern(pattern, [], Job(1))
    world = world_of_one()
    return run_workload(Session(workload, world, {"data": directory}, Options(), ProgressLine(None)))


def epochs_of(phases: list[Phase]) -> tuple[EpochSummary, ...]:
    return phases[-1].summary.epochs


@pytest.mark.parametrize("form", ["raw", "npy"])
def test_a_step_that_reads_its_data_itself_decodes_them_as_a_part_of_the_wall_time(tmp_path: Path, form: str) -> None:
    phases = run_alone(tmp_path, form, DECODING)
    for epoch in epochs_of(phases):
        decode, preprocess = epoch.decode_seconds.mean, epoch.preprocess_seconds.mean
        assert decode > 0
        # Twelve samples of 2 ms each, in three steps; sleeping never ends early.
        assert preprocess >= 0.024
        assert epoch.processing_seconds.mean >= decode + preprocess
    rows = phases[-1].rank_rows
    assert rows is not None
    column = dict(zip(RANK_COLUMNS, rows[0].T, strict=True))
    parts = ("data_wait", "compute", "sync_wait", "arrival_wait", "checkpoint", "processing", "tool")
    assert (sum(column[f"{part}_ns"] for part in parts) == column["wall_ns"]).all()


def test_with_readers_decoding_is_none_of_the_steps(tmp_path: Path) -> None:
    phases = run_alone(tmp_path, "npy", f"{DECODING}\nreaders 2")
    assert phases[-1].summary.readers == 2
    for epoch in epochs_of(phases):
        assert epoch.processing_seconds.max == 0
        assert epoch.preprocess_seconds.mean >= 0.024
        assert epoch.bound_by is not None and epoch.bound_by.decode == 0


def test_without_decoding_there_is_no_time_of_it(tmp_path: Path) -> None:
    for epoch in epochs_of(run_alone(tmp_path, "npy", "readers 1")):
        assert (epoch.decode_seconds.max, epoch.preprocess_seconds.max, epoch.processing_seconds.max) == (0, 0, 0)


@pytest.mark.parametrize(
    ("form", "size", "said"),
    [
        ("npy", "100 B", True),
        ("npy", "64 kB", False),
        ("raw\nalign 4096 B", "uniform(100 B, 200 B)", True),
        ("raw", "uniform(100 B, 200 B)", False),
    ],
)
def test_prepare_says_what_its_files_took_where_that_is_not_their_contents(
    tmp_path: Path, form: str, size: str, said: bool
) -> None:
    (prepared, _) = run_alone(tmp_path, form, "", size)
    notes = [note for note in prepared.summary.notes if note.startswith("contents of ")]
    assert bool(notes) == said
    (manifest,) = tmp_path.glob("d/*/manifest.json")
    files = sum(one.stat().st_size for one in manifest.parent.iterdir() if one != manifest)
    assert not said or size_note(json.loads(manifest.read_text())["bytes"], files) == ""
    if form == "npy" and said:
        assert notes == [size_note(1200, files)]


@pytest.mark.parametrize(
    ("contents", "files", "note"),
    [
        (10**9, 512 * 10**6, "contents of 1.000 GB took 512.0 MB in files (1.95 : 1)"),
        (1000, 1250, "contents of 1.000 kB took 1.250 kB in files (0.800 : 1)"),
        (1000, 1010, ""),
        (1000, 990, ""),
        (1000, 989, "contents of 1.000 kB took 989 B in files (1.01 : 1)"),
    ],
)
def test_sizes_are_worth_a_word_from_one_per_cent_on(contents: int, files: int, note: str) -> None:
    assert size_note(contents, files) == note


def test_what_a_library_reads_is_said_to_be_what_the_kernel_counted() -> None:
    library = Access(through="library")
    assert "moved is all that these processes read by read calls" in library_read_note(library, counted=True)
    assert "moved is contents of samples" in library_read_note(library, counted=False)
    assert library_read_note(Access(), counted=True) == ""
