"""The ranks that are reported to block the others, with processes that share a board and nothing else."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

from dliosim.execute.stalls import kill_stopped
from dliosim.measure.progress.board import ROW_BYTES, Board, BoardRows, stat_fields
from tests.mpi.launch import ROOT

#: Seconds without movement after which these processes report; the culprit must be named within three more.
LIMIT = 1.0


class Ranks:
    """Processes of ranks, what each has said, and where."""

    def __init__(self, folder: Path, nodes: str, end: str, word: str) -> None:
        self.folder = folder
        parts = nodes.split("/")
        for number, part in enumerate(parts):
            (folder / f"node-{number}").write_bytes(bytes(ROW_BYTES * len(part.split(","))))
        self.processes = [
            self._start(rank, nodes, end, word) for rank in range(len(nodes.replace("/", ",").split(",")))
        ]
        self.wait_for(lambda: all(self.said(rank) for rank in range(len(self.processes))))

    def _start(self, rank: int, nodes: str, end: str, word: str) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            "tests.execute.watched_program",
            str(self.folder),
            str(rank),
            nodes,
            str(LIMIT),
        ]
        with (self.folder / f"said-{rank}").open("wb") as out:
            return subprocess.Popen([*command, end, word], stdout=out, stderr=out, cwd=ROOT)

    def said(self, rank: int) -> str:
        return (self.folder / f"said-{rank}").read_text()

    def tell(self, number: signal.Signals, *ranks: int) -> None:
        for rank in ranks:
            self.processes[rank].send_signal(number)

    def wait_for(self, condition, seconds: float = 20) -> float:
        """Wait for something; how long that took."""
        begun = monotonic()
        while not condition():
            assert monotonic() < begun + seconds, [self.said(rank) for rank in range(len(self.processes))]
            sleep(0.02)
        return monotonic() - begun

    def all_wait(self) -> None:
        (self.folder / "wait").touch()


def quiet(said: str) -> float:
    """Return the seconds without movement in the first report."""
    found = re.search(r"nothing has moved for ([\d.]+) s", said)
    assert found is not None
    return float(found[1])


@contextmanager
def ranks(nodes: str, end: str = "off", word: str = "") -> Iterator[Ranks]:
    with tempfile.TemporaryDirectory() as folder:
        made = Ranks(Path(folder), nodes, end, word)
        try:
            yield made
        finally:
            for process in made.processes:
                process.kill()
                process.wait()


def test_the_lowest_rank_that_runs_says_who_is_stopped_and_that_it_continues() -> None:
    with ranks("0,1,2") as job:
        job.tell(signal.SIGSTOP, 0)
        job.all_wait()
        job.wait_for(lambda: "next:" in job.said(1))
        assert quiet(job.said(1)) < LIMIT + 3
        assert "late: rank 0 on host0" in job.said(1) and "stopped by a signal" in job.said(1)
        assert "waiting at a barrier: 2 of 3 ranks (1-2)" in job.said(1)
        assert f"next: on host0: kill -CONT {job.processes[0].pid}" in job.said(1)
        # The rank that has reported is stopped as well: the next one takes over.
        job.tell(signal.SIGSTOP, 1)
        job.wait_for(lambda: "next:" in job.said(2))
        assert "late: rank 0 on host0" in job.said(2)
        assert "rank 1 on host0" in job.said(2)
        job.tell(signal.SIGCONT, 0, 1)
        job.wait_for(lambda: "the job moves again" in job.said(1) + job.said(2))


def test_each_node_names_its_own_late_ranks_and_node_0_says_when_they_are_elsewhere() -> None:
    with ranks("0,1/2,3/4") as job:
        job.tell(signal.SIGSTOP, 2)
        job.all_wait()
        job.wait_for(lambda: "next:" in job.said(0) and "next:" in job.said(3))
        assert "nothing has moved on host0 for " in job.said(0) and "  late: " not in job.said(0)
        assert "waiting at a barrier: 2 of 5 ranks (0-1)" in job.said(0)
        assert "next: ranks on other nodes are late: " in job.said(0)
        assert "late: rank 2 on host1" in job.said(3) and "waiting at a barrier: 1 of 5 ranks (3)" in job.said(3)
        assert [job.said(rank) for rank in (1, 4)] == ["begun\n"] * 2


def test_a_node_that_only_waits_for_others_ends_the_job_after_four_times_the_limit() -> None:
    with ranks("0/1", end=f"{LIMIT}") as job:
        job.tell(signal.SIGSTOP, 1)
        job.all_wait()
        job.wait_for(lambda: "\nended" in job.said(0))
        (*_, last) = re.findall(r"nothing has moved on host0 for ([\d.]+) s", job.said(0))
        assert float(last) >= 4 * LIMIT


def test_it_is_no_stall_to_rest_or_to_have_been_stopped_all_together() -> None:
    with ranks("0,1", word="rest") as resting, ranks("0,1") as paused:
        paused.tell(signal.SIGTSTP, 0, 1)
        sleep(2 * LIMIT)
        paused.tell(signal.SIGCONT, 0, 1)
        sleep(0.3 * LIMIT)
        assert [job.said(rank) for job in (resting, paused) for rank in (0, 1)] == ["begun\n"] * 4


def test_a_stall_that_ends_the_job_kills_who_is_stopped() -> None:
    with ranks("0,1", end=f"{LIMIT}") as job:
        job.tell(signal.SIGSTOP, 1)
        job.all_wait()
        job.wait_for(lambda: "\nended" in job.said(0))
        assert job.processes[1].wait(5) == -signal.SIGKILL


def test_no_process_is_killed_that_is_not_the_one_which_wrote_the_row() -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        other.send_signal(signal.SIGSTOP)
        while stat_fields(other.pid)[:1] != ["T"]:
            sleep(0.01)
        rows = BoardRows(memoryview(bytearray(2 * ROW_BYTES)))
        for row in rows:
            row.introduce(0)
        rows[1].words[0] = other.pid
        kill_stopped(Board(rows, 0, 2))
        assert stat_fields(other.pid)[:1] == ["T"] and os.getpid() == rows[0].process[0]
        rows[1].words[1] = int(stat_fields(other.pid)[19])
        kill_stopped(Board(rows, 0, 2))
        assert other.wait(5) == -signal.SIGKILL
