"""The output of a run while it runs, and modules that ranks do not load."""

from __future__ import annotations

import os
import pty
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.mpi.jobs import CLI, DATASET, PREPARE, TRAIN, Place
from tests.mpi.launch import ROOT, run_ranks, running, start_ranks

LONG = TRAIN.replace("epochs   2", "compute  300 ms")


def shown(place: Place, ranks: int) -> tuple[int, str, str]:
    """Exit status and standard output of a run, and what a terminal was sent that is its standard error."""
    ours, theirs = pty.openpty()
    try:
        with running(start_ranks(ranks, *place.arguments(), cwd=place.directory, terminal=theirs)) as job:
            done = job.finish(30)
        os.set_blocking(ours, False)
        try:
            text = os.read(ours, 1 << 16).decode()
        except BlockingIOError:
            text = ""
        return done.returncode, done.stdout, text
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize("ranks", [0, 1])
def test_a_long_phase_shows_on_a_terminal_how_far_it_is(tmp_path: Path, ranks: int) -> None:
    place = Place(tmp_path)
    place.write(DATASET, PREPARE, LONG)
    status, out, terminal = shown(place, ranks)
    assert status == 0, out
    assert re.search(r"\rtrain: .* on rank 0, step [4-9] of 10, .* left", terminal), repr(terminal)
    assert terminal.rstrip().endswith("\x1b[K")
    assert "step 4 of 10" not in out


def test_a_short_run_shows_nothing_on_a_terminal(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, PREPARE)
    status, out, terminal = shown(place, 1)
    assert (status, terminal) == (0, ""), out


def test_where_there_is_no_terminal_nothing_is_shown(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET, PREPARE, LONG)
    done = place.run(1)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\r" not in done.stdout


#: Modules that only rank 0 needs, with the modules below them: the parser of the command line, the language, reports.
FOR_RANK_0 = {
    "argparse", "gettext", "shutil", "dliosim.commands.command_line.parser",
    "dliosim.commands.command_line.command_table", "dliosim.execute.run.capacity_check",
    "lark", "h5py", "tabulate", "importlib.metadata", "concurrent", "logging", "statistics", "tempfile", "email",
    "dliosim.language", "dliosim.execute.datasets.discovery", "dliosim.commands.run_results",
    "dliosim.commands.job.environment", "dliosim.report.files.results", "dliosim.report.run.screen",
    "dliosim.measure.figures.epoch_summaries", "dliosim.measure.figures.declaration",
    "dliosim.measure.answers.answer", "dliosim.measure.results.run_summary",
}  # fmt: skip

#: Modules that this workload does not need on any rank but the first: CRCs of tfrecord come without their package.
UNUSED = {
    "_hashlib", "crc32c", "decimal", "socket", "subprocess", "dliosim.execute.checkpoints.restore",
    "dliosim.execute.backends.io_uring", "dliosim.execute.backends.mpiio_reader",
}  # fmt: skip


def loaded_modules(words: Sequence[str], ranks: int, cwd: Path) -> list[set[str]]:
    """The modules that each rank of a run has loaded by its end, and the packages that they are in."""
    done = run_ranks(ranks, "-m", "tests.mpi.imports_program", *words, env={"PYTHONPATH": str(ROOT)}, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return [set(line.split()) for line in re.findall(r"^loaded by \d: (.*)$", done.stdout, re.MULTILINE)]


def test_ranks_other_than_0_load_neither_parser_nor_writers_nor_reports(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(DATASET.replace("header   100 B", "format tfrecord"), PREPARE, TRAIN)
    first, *others = loaded_modules(place.command(), 3, tmp_path)
    assert first >= FOR_RANK_0 - {"tabulate"}
    assert [rank & (FOR_RANK_0 | UNUSED) for rank in others] == [set(), set()]
    words = ["compare", *place.arguments()[len(CLI) + 1 :], "--vary", "api=posix,mpi-independent", "--repeat", "1"]
    place.output.joinpath("results.json").unlink()
    first, other = loaded_modules(words, 2, tmp_path)
    assert "dliosim.language" in first and not other & {"lark", "h5py", "tabulate", "dliosim.language"}
