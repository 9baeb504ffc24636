"""What the progress line calls the epochs of loops inside loops."""

from __future__ import annotations

import io
import re
from itertools import groupby
from pathlib import Path

from mpi4py import MPI

from dliosim.execute.environment import node_cores
from dliosim.execute.phases import run_workload
from dliosim.execute.session import Options, Session
from dliosim.execute.world import make_world
from dliosim.language.compile import compile_pattern
from dliosim.model import Job
from dliosim.report.progress import Progress

PATTERN = """dlio 1
workload nested
dataset d {
    samples  4
    size     1 kB
    path     "d"
}
train {
    read     d
    epochs   2
    evaluate every 1 epochs {
        read     d
        epochs   2
    }
}
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_epochs_of_an_evaluation_count_from_1_in_each_of_its_runs(tmp_path: Path) -> None:
    (tmp_path / "nested.dlio").write_text(PATTERN)
    workload, _ = compile_pattern(tmp_path / "nested.dlio", [], Job(1))
    terminal = Terminal()
    world = make_world(MPI.COMM_SELF, node_cores, "nobody else")
    run_workload(Session(workload, world, {"data": tmp_path}, Options(null=True), Progress(terminal, 0, 0)))
    shown = [label for label, _ in groupby(re.findall(r"\r(\w+, epoch \d of \d)", terminal.getvalue()))]
    evaluated = ["evaluate, epoch 1 of 2", "evaluate, epoch 2 of 2"]
    assert shown == ["train, epoch 1 of 2", *evaluated, "train, epoch 2 of 2", *evaluated]
