"""Loops that run in this process: what is shown of them, what their compute uses, and what of a step is whose."""

from __future__ import annotations

import gc
import io
import os
import re
import time
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.execute.batches.decode_preprocess import EpochCalls
from dliosim.execute.loop.loop_runner import collect_interval
from dliosim.execute.node.environment import Mount
from dliosim.execute.phases import residency
from dliosim.execute.phases.context import Options, Session
from dliosim.execute.run.workload_runner import run_workload
from dliosim.language.compile import compile_pattern
from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.rank.records import EpochRecord
from dliosim.measure.rank.step_times import StepAccount
from dliosim.measure.results.phase import LoopPhase
from dliosim.measure.results.run_summary import FilePhase
from dliosim.model import Job
from dliosim.report.progress.progress_line import ProgressLine
from tests.execute.alone import world_of_one

DATASET = """dlio 1
workload alone
dataset d {
    samples  4
    size     1 kB
    path     "d"
}
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run_alone(directory: Path, loop: str, terminal: Terminal) -> None:
    """Run a loop over four samples as the only rank, with every step shown."""
    pattern = directory / "alone.dlio"
    pattern.write_text(DATASET + loop)
    workload, _ = compile_pattern(pattern, [], Job(1))
    world = world_of_one()
    run_workload(Session(workload, world, {"data": directory}, Options(null=True), ProgressLine(terminal, 0, 0)))


def test_epochs_of_an_evaluation_count_from_1_in_each_of_its_runs(tmp_path: Path) -> None:
    terminal = Terminal()
    evaluation = "evaluate every 1 epochs {\nread d\nepochs 2\n}"
    run_alone(tmp_path, f"train {{\nread d\nepochs 2\n{evaluation}\n}}\n", terminal)
    shown = [label for label, _ in groupby(re.findall(r"\r([\w/ ]+, epoch \d of \d)", terminal.getvalue()))]
    evaluated = ["evaluate without I/O, epoch 1 of 2", "evaluate without I/O, epoch 2 of 2"]
    assert shown == ["train without I/O, epoch 1 of 2", *evaluated, "train without I/O, epoch 2 of 2", *evaluated]


def test_the_records_of_epochs_that_are_over_take_no_memory(tmp_path: Path) -> None:
    class Counting(Terminal):
        def write(self, text: str) -> int:
            alive.append(sum(type(each) in (EpochRecord, StepAccount) for each in gc.get_objects()))
            return len(text)

    alive: list[int] = []
    run_alone(tmp_path, "train {\nread d\nepochs 5\n}\n", Counting())
    assert 1 <= max(alive) <= 2


def test_busy_compute_uses_the_core_as_long_as_asked(tmp_path: Path) -> None:
    def used(compute: str) -> int:
        before = time.thread_time_ns()
        run_alone(tmp_path, f"train {{\nread d\ncompute {compute}\n}}\n", Terminal())
        return time.thread_time_ns() - before

    # Four steps of 100 ms; other processes may have the core for a part of them.
    assert used("100 ms busy") - used("100 ms") > 100_000_000


@pytest.mark.parametrize("readers", [0, 1])
@pytest.mark.parametrize("blamed", ["storage", "tool"])
def test_what_delays_a_step_is_blamed_on_storage_only_if_it_is_in_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blamed: str, readers: int
) -> None:
    pattern = tmp_path / "delayed.dlio"
    loop = f"readers {readers}" + ("\nprefetch 1 batches" if readers else "")
    pattern.write_text(f"{DATASET}prepare d\ntrain {{\nread d\n{loop}\n}}\n")
    workload, _ = compile_pattern(pattern, [], Job(1))

    def late(made: Callable[..., object]) -> Callable[..., object]:
        def delayed(*arguments: object) -> object:
            time.sleep(0.05)
            return made(*arguments)

        return delayed

    target, name = (os, "preadv") if blamed == "storage" else (EpochCalls, "step_rounds")
    monkeypatch.setattr(target, name, late(getattr(target, name)))
    session = Session(workload, world_of_one(), {"data": tmp_path}, Options(), ProgressLine(None))
    epochs = [one for phase in run_workload(session) for one in getattr(phase.summary, "epochs", ())]
    [epoch] = epochs
    assert isinstance(epoch, EpochSummary) and epoch.bound_by is not None and epoch.steps == 4
    parts = {"storage": epoch.data_wait_seconds.mean, "tool": epoch.tool_seconds.mean}
    # Four delays of 50 ms, but for the first where it is ahead of the clock.
    assert parts.pop(blamed) > max(0.15, *parts.values())
    assert getattr(epoch.bound_by, blamed) >= 0.75


@pytest.mark.parametrize(
    ("counts", "note"),
    [(True, ""), (False, "the kernel does not count"), (None, "it could not be found whether the kernel counts")],
)
def test_bytes_from_a_device_are_known_only_where_the_kernel_counts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts: bool | None, note: str
) -> None:
    monkeypatch.setattr(residency, "counts_reads", lambda path: counts)
    monkeypatch.setattr(residency, "find_mount", lambda path: Mount("fuse", "/", "", ""))
    pattern = tmp_path / "counted.dlio"
    checkpoint = 'checkpoint c {\npart w 1 kB total\npath "c"\n}\n'
    pattern.write_text(f"{DATASET}{checkpoint}prepare d\nsave c\ntrain {{\nread d\n}}\nrestore c\n")
    workload, _ = compile_pattern(pattern, [], Job(1))
    session = Session(workload, world_of_one(), {"data": tmp_path}, Options(), ProgressLine(None))
    phases = {phase.summary.kind: phase.summary for phase in run_workload(session)}
    train, restore = phases["train"], phases["restore"]
    assert isinstance(train, LoopPhase) and isinstance(restore, FilePhase)
    for summary, notes in ((train.epochs[0], train.notes), (restore.verb, restore.notes)):
        assert (summary.device_bytes is not None) == (counts is True)
        assert [one for one in notes if one.startswith("bytes from the device unknown: ")] == (
            [f"bytes from the device unknown: {note} what is read from this file system"] if note else []
        )


@given(batch=st.integers(1, 100_000), calls=st.integers(0, 1 << 40), steps=st.integers(0, 1 << 20))
def test_calls_are_collected_before_they_are_many(batch: int, calls: int, steps: int) -> None:
    interval = collect_interval(batch, calls, steps)
    assert interval >= 1
    assert interval == 1 or interval * max(batch, calls / max(steps, 1)) <= 16384


def test_samples_of_many_calls_are_collected_more_often() -> None:
    assert [collect_interval(4, calls, 100) for calls in (400, 40_000, 10_000_000)] == [4096, 40, 1]
