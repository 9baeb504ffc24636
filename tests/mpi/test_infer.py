"""Runs that are recorded, inferred from their events alone, and run again: the same work."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dliosim.analyze.figures.view import View
from dliosim.analyze.infer.facts import write_lines
from dliosim.analyze.infer.pattern import explain_work, infer_pattern
from dliosim.cli import main
from dliosim.language.compile import compile_pattern
from dliosim.model import Job
from dliosim.plan.forecast.forecast import loops_of
from dliosim.trace.file import read_trace
from tests.mpi.waiting import run_command

PATTERN = """\
dlio 1
workload secret
dataset images {{
    samples 61
    size    {size}
    layout  {layout}
    path    "secret/images"
}}
checkpoint kept {{
    part    weights 100 kB per rank
    path    "secret/kept"
}}
prepare images
train fit {{
    read       images
    epochs     3
    batch      {batch} per rank
    shuffle    samples {shuffle} each epoch
    readers    {readers}
    compute    2 ms
    checkpoint kept every {every}
}}
"""


@pytest.mark.parametrize(
    ("ranks", "size", "layout", "batch", "shuffle", "readers", "every"),
    [
        (1, "5 kB", "shared file", 4, "globally", 0, "5 steps"),
        (2, "20 kB", "file per sample", 3, "within shard", 2, "epoch"),
        (3, "normal(50 kB, 9 kB) clipped to 10 kB and 90 kB", "7 files", 2, "globally", 1, "2 epochs"),
        (5, "4 KiB", "file per sample in 3 folders", 1, "globally", 2, "2 steps"),
    ],
)
def test_the_same_work_by_the_events_alone(
    ranks: int, size: str, layout: str, batch: int, shuffle: str, readers: int, every: str, tmp_path: Path
) -> None:
    (tmp_path / "job.dlio").write_text(
        PATTERN.format(size=size, layout=layout, batch=batch, shuffle=shuffle, readers=readers, every=every)
    )
    run = ["run", "--trace", "--dir", "data", "--output"]
    assert run_command(ranks, [*run, "first", "job.dlio"], tmp_path).returncode == 0
    trace = read_trace(tmp_path / "first" / "trace.h5")
    events = replace(trace.events, names=("",) * len(trace.events.names))
    made = infer_pattern(View(replace(trace, events=events, settings={}, command="")))
    assert "secret" not in write_lines(made.lines)
    (tmp_path / "again.dlio").write_text(write_lines(made.lines).replace("NAME", "again"))
    known, inferred = (compile_pattern(tmp_path / f"{name}.dlio", [], Job(ranks))[0] for name in ("job", "again"))
    assert min(explain_work(made.work, inferred).values()) > 0.97
    assert inferred.datasets[0].samples == pytest.approx(61, abs=61 * 0.02 if "normal" in size else 0)
    assert inferred.datasets[0].layout == known.datasets[0].layout
    (one,), (other,) = loops_of(known.verbs), loops_of(inferred.verbs)
    assert (other.epochs, other.batch, other.access.readers) == (one.epochs, one.batch, one.access.readers)
    assert other.shuffle.samples == ("globally" if ranks == 1 else one.shuffle.samples)
    assert [replace(cadence, checkpoint="kept") for cadence in other.checkpoints] == list(one.checkpoints)
    (kept,), (saved,) = known.checkpoints, inferred.checkpoints
    assert kept.split(ranks).ranks == saved.split(ranks).ranks


def test_the_pattern_of_a_run_does_the_same_when_it_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = PATTERN.format(size="9 kB", layout="file per sample", batch=4, shuffle="globally", readers=2, every="epoch")
    (tmp_path / "job.dlio").write_text(text)
    run = ["run", "--trace", "--dir", "data", "--output"]
    assert run_command(3, [*run, "first", "job.dlio"], tmp_path).returncode == 0
    place = tmp_path / "again.dlio"
    assert main(["new", str(place.with_suffix("")), "--from", str(tmp_path / "first")]) == 0
    assert "next: mpiexec -n 3 dliosim run" in capsys.readouterr().err
    assert run_command(3, [*run, "second", "again.dlio"], tmp_path).returncode == 0
    assert main(["analyze", str(tmp_path / "first"), str(tmp_path / "second"), "--json"]) == 0
    changes = json.loads(capsys.readouterr().out)
    assert {"files", "reads", "bytes of reads", "writes", "bytes of writes", "sequential reads"} <= {*changes["same"]}


def test_runs_on_two_numbers_of_ranks_give_the_plan_of_a_third(tmp_path: Path) -> None:
    text = PATTERN.format(size="9 kB", layout="4 * $ranks files", batch=4, shuffle="globally", readers=2, every="epoch")
    text = text.replace("samples 61", "samples 24 * $ranks").replace("100 kB per rank", "100 kB total")
    (tmp_path / "job.dlio").write_text(text)
    for ranks in 2, 3:
        run = ["run", "--trace", "--dir", f"data{ranks}", "--output", f"on{ranks}", "job.dlio"]
        assert run_command(ranks, run, tmp_path).returncode == 0
    place = tmp_path / "again.dlio"
    traces = [word for ranks in (3, 2) for word in ("--from", str(tmp_path / f"on{ranks}"))]
    assert main(["new", str(place.with_suffix("")), *traces]) == 0
    known, inferred = (compile_pattern(tmp_path / f"{name}.dlio", [], Job(5))[0] for name in ("job", "again"))
    (one,), (other,) = loops_of(known.verbs), loops_of(inferred.verbs)
    for each, same in (known.datasets[0], inferred.datasets[0]), (one, other):
        for name in ("samples", "layout", "size", "epochs", "batch"):
            assert getattr(each, name, None) == getattr(same, name, None), name
    (kept,), (saved,) = known.checkpoints, inferred.checkpoints
    assert [part.size for part in kept.parts] == [part.size for part in saved.parts]


def test_files_that_are_here_say_which_samples_calls_read(tmp_path: Path) -> None:
    text = PATTERN.format(size="3 kB", layout="3 files", batch=6, shuffle="globally", readers=0, every="epoch")
    text = text.replace("    layout", "    format  tfrecord\n    layout").replace(
        "shuffle    samples globally each epoch", ""
    )
    (tmp_path / "job.dlio").write_text(text.replace("samples 61", "samples 96"))
    run = ["run", "--trace", "--dir", "data", "--output", "first", "job.dlio"]
    assert run_command(2, run, tmp_path).returncode == 0
    view = View(read_trace(tmp_path / "first" / "trace.h5"))
    made = infer_pattern(view)
    (tmp_path / "again.dlio").write_text(write_lines(made.lines).replace("NAME", "again"))
    workload = compile_pattern(tmp_path / "again.dlio", [], Job(2))[0]
    (data,), (loop,) = workload.datasets, loops_of(workload.verbs)
    assert (data.format, data.samples, data.constant_size, data.layout.files) == ("tfrecord", 96, 3000, 3)
    assert (loop.batch, loop.epochs) == (6, 3)
    shutil.rmtree(tmp_path / "data")
    assert "files that end with .tfrecord may have several each" in write_lines(infer_pattern(View(view.trace)).lines)
