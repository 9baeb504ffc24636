"""Loops that run in this process, without I/O: what is shown of them, and what their compute uses."""

from __future__ import annotations

import gc
import io
import re
import time
from itertools import groupby
from pathlib import Path

from dliosim.execute.phases import run_workload
from dliosim.execute.session import Options, Session
from dliosim.language.compile import compile_pattern
from dliosim.measure.records import EpochRecord
from dliosim.model import Job
from dliosim.report.progress import Progress
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
    run_workload(Session(workload, world, {"data": directory}, Options(null=True), Progress(terminal, 0, 0)))


def test_epochs_of_an_evaluation_count_from_1_in_each_of_its_runs(tmp_path: Path) -> None:
    terminal = Terminal()
    evaluation = "evaluate every 1 epochs {\nread d\nepochs 2\n}"
    run_alone(tmp_path, f"train {{\nread d\nepochs 2\n{evaluation}\n}}\n", terminal)
    shown = [label for label, _ in groupby(re.findall(r"\r(\w+, epoch \d of \d)", terminal.getvalue()))]
    evaluated = ["evaluate, epoch 1 of 2", "evaluate, epoch 2 of 2"]
    assert shown == ["train, epoch 1 of 2", *evaluated, "train, epoch 2 of 2", *evaluated]


def test_the_records_of_epochs_that_are_over_take_no_memory(tmp_path: Path) -> None:
    class Counting(Terminal):
        def write(self, text: str) -> int:
            alive.append(sum(isinstance(each, EpochRecord) for each in gc.get_objects()))
            return len(text)

    alive: list[int] = []
    run_alone(tmp_path, "train {\nread d\nepochs 5\n}\n", Counting())
    assert 1 <= max(alive) <= 2


def test_busy_compute_uses_the_core_as_long_as_it_was_told(tmp_path: Path) -> None:
    def used(compute: str) -> int:
        before = time.thread_time_ns()
        run_alone(tmp_path, f"train {{\nread d\ncompute {compute}\n}}\n", Terminal())
        return time.thread_time_ns() - before

    # Four steps of 100 ms, of which others may have the core for a while.
    assert used("100 ms busy") - used("100 ms") > 100_000_000
