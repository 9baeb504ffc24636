"""Signals that end jobs, or ask for what they have: partial results, one message, the signal's own status."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.mpi.jobs import CHECKPOINT, CLI, DATASET, PREPARE, TRAIN, Place
from tests.mpi.launch import ROOT, Job, running, start_ranks

EVALUATE = "    evaluate every 2 epochs {\n        read d\n        batch 3 per rank\n    }\n}\n"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    write(made, 400)
    return made


def write(place: Place, epochs: int) -> None:
    train = TRAIN.replace("epochs   2", f"compute 10 ms\n    epochs {epochs}").rstrip().removesuffix("}") + EVALUATE
    place.write(DATASET, CHECKPOINT, PREPARE, "save c\n", train, "save c\n")


def content(place: Place, name: str = "results.partial.json") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((place.output / name).read_text())
    return found


def wait_for_epochs(place: Place, job: Job, epochs: int) -> dict[str, Any]:
    """Ask a job for its results, as a batch system would, until they have `epochs` epochs."""
    job.wait_until(lambda: bool(place.files("d/*/manifest.json")))

    def asked() -> bool:
        job.launcher.send_signal(signal.SIGUSR1)
        partial = place.output / "results.partial.json"
        return partial.exists() and any(one["epochs_done"] >= epochs for one in content(place)["partial"]["loops"])

    job.wait_until(asked)
    return content(place)


def epochs_of(results: dict[str, Any]) -> dict[str, list[Any]]:
    return {phase["name"]: phase["epochs"] for phase in results["phases"] if phase["epochs"]}


def test_after_sigusr1_a_run_continues_and_what_it_had_was_right(place: Place) -> None:
    write(place, 12)
    with running(start_ranks(2, *place.arguments(), cwd=place.directory)) as job:
        partial = wait_for_epochs(place, job, 3)
        done = job.finish()
    assert done.returncode == 0, done.stderr
    assert "SIGUSR1: what was finished is in " in done.stderr and "; the run continues" in done.stderr
    whole = content(place, "results.json")
    assert sorted(one.name for one in place.output.iterdir()) == ["ranks.h5", "results.json", "timeline.h5"]
    assert whole["partial"] is None and partial["partial"]["signal"] == "SIGUSR1"
    assert (partial["partial"]["verbs_done"], partial["partial"]["verbs"]) == (2, 4)
    train, evaluation = partial["partial"]["loops"]
    assert (train["epochs"], evaluation["epochs"]) == (12, 6)
    assert [phase["kind"] for phase in partial["phases"]][:3] == ["prepare", "save", "train"]
    assert partial["phases"][:2] == whole["phases"][:2]
    for name, epochs in epochs_of(partial).items():
        assert epochs == epochs_of(whole)[name][: len(epochs)]
    assert {name: partial[name] for name in ("digest", "ranks")} == {name: whole[name] for name in ("digest", "ranks")}


@pytest.mark.not_under("Open MPI", reason="its launcher's status is 1 after a signal, and it drops the message")
@pytest.mark.parametrize(("ranks", "number"), [(0, signal.SIGTERM), (0, signal.SIGINT), (3, signal.SIGTERM)], ids=str)
def test_a_run_that_is_ended_leaves_what_it_had_finished(place: Place, ranks: int, number: signal.Signals) -> None:
    with running(start_ranks(ranks, *place.arguments(), cwd=place.directory)) as job:
        had = wait_for_epochs(place, job, 1)
        os.killpg(job.launcher.pid, number)
        done = job.finish(20)
    assert done.returncode == 128 + number
    said = "interrupted" if number == signal.SIGINT else "ended by SIGTERM"
    assert done.stderr.count(f"{said}: what was finished is in {place.output}/results.partial.json") == 1
    assert "Traceback" not in done.stderr
    assert [one.name for one in place.output.iterdir()] == ["results.partial.json"]
    partial = content(place)
    assert partial["partial"]["signal"] == number.name and len(epochs_of(partial)["train"]) >= 1
    assert epochs_of(partial)["train"][: len(epochs_of(had)["train"])] == epochs_of(had)["train"]
    report = [sys.executable, *CLI, "report", str(place.output)]
    shown = subprocess.run(report, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    epochs = len(epochs_of(partial)["train"])
    assert f"partial results: 2 of 4 verbs, {epochs} of 400 epochs of train" in " ".join(shown.split())


def test_partial_results_that_cannot_be_written_are_reported_and_the_job_ends(place: Place) -> None:
    with running(start_ranks(0, *place.arguments(), cwd=place.directory)) as job:
        job.wait_until(lambda: len(place.files("c/*/*/manifest.json")) > 0)
        place.output.write_text("in the way")
        job.launcher.send_signal(signal.SIGTERM)
        done = job.finish(20)
    assert done.returncode == 143
    assert f"ended by SIGTERM: error: rank 0 could not write the partial results: {place.output}" in done.stderr


@pytest.mark.not_under("Open MPI", reason="its launcher's status is 1 after a signal, and it drops the message")
@pytest.mark.parametrize("ranks", [0, 3])
def test_ctrl_c_while_ranks_start_is_one_line(place: Place, ranks: int) -> None:
    """Signals from the first line of dliosim on: while it imports, is in MPI_Init, reads the pattern."""

    def keep_signals() -> bool:
        found = [Path(f"/proc/{rank}/status").read_text() for rank in job.ranks()]
        caught = [int(text.partition("SigCgt:")[2].split()[0], 16) for text in found]
        return len(caught) == max(ranks, 1) and all(mask >> signal.SIGTERM - 1 & 1 for mask in caught)

    for delay in (0.0, random.uniform(0, 0.5)):
        with running(start_ranks(ranks, *place.arguments(), cwd=place.directory)) as job:
            job.wait_until(keep_signals)
            with pytest.raises(subprocess.TimeoutExpired):
                job.launcher.wait(delay)
            os.killpg(job.launcher.pid, signal.SIGINT)
            done = job.finish(20)
        assert done.returncode == 130, done.stderr
        assert done.stderr.count("interrupted: ") == 1
        assert "Traceback" not in done.stderr
        (place.output / "results.partial.json").unlink(missing_ok=True)


def test_a_launcher_that_ends_all_when_one_fails_hears_of_a_wrong_mpi_nevertheless(place: Place) -> None:
    """Kill the others by SIGTERM as srun does: status 2 and the message, in any order."""
    launcher = place.directory / "srun"
    launcher.write_text(
        "#!/bin/bash\n"
        "for rank in 3 2 1 0; do\n"
        '    SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=$rank "$@" & all="$all $!"\n'
        "done\n"
        "for rank in 0 1 2 3; do\n"
        "    wait -n; status=$?\n"
        "    [ $status -gt ${worst:-0} ] && worst=$status\n"
        "    [ $status -ne 0 ] && kill -TERM $all 2>/dev/null\n"
        "done\n"
        "exit ${worst:-0}\n"
    )
    words = ["bash", str(launcher), sys.executable, *place.arguments()]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PMI", "SLURM_"))}
    done = subprocess.run(words, cwd=ROOT, env=inherited, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.count("error: the launcher started 4 processes") == 1


def test_a_rank_that_alone_is_asked_to_end_says_so_at_last() -> None:
    """Rank 0 has the results, and gets the signal with all ranks: its message comes first, if it comes."""
    program = (
        "import os, signal, time\n"
        "from dliosim.commands.job.signals import handle_signals\n"
        "end = lambda text, status: os._exit(print(text, status, flush=True) or 9)\n"
        "handle_signals(3, print, print, end, lambda: False, None)\n"
        "for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGTERM):\n"
        "    os.kill(os.getpid(), number)\n"
        "time.sleep(20)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (9, "")
    assert done.stdout == "error: rank 3 received SIGTERM, and rank 0 has not ended the job 143\n"


def test_signals_that_come_while_their_handlers_are_set_are_kept() -> None:
    program = (
        "import os, signal\n"
        "from dliosim.commands.job.signals import capture_signals\n"
        "real = signal.signal\n"
        "signal.signal = lambda number, handler: (real(number, handler), os.kill(os.getpid(), number))\n"
        "print(*os.read(capture_signals(), 9))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert done.stdout == f"{signal.SIGINT:d} {signal.SIGTERM:d} {signal.SIGUSR1:d}\n", done.stderr


def test_a_job_ends_once_the_launcher_has_read_what_a_rank_said() -> None:
    """MPICH's launcher forwards a message after the end of the job, and so never, where both wait for it."""
    program = (
        "import os, threading\n"
        "from dliosim.execute.mpi.job_abort import abort, abort_hooks\n"
        "reader, writer = os.pipe()\n"
        "os.dup2(writer, 2)\n"
        "os.write(2, b'why')\n"
        "read = []\n"
        "threading.Timer(0.5, lambda: read.append(os.read(reader, 9))).start()\n"
        "abort_hooks.append(lambda status: print(read, flush=True))\n"
        "abort(3)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (3, "[b'why']\n")


@pytest.mark.parametrize(("failed", "said"), [("this", ""), ("another", "\nended by SIGTERM: saved\n")])
def test_rank_0_is_silent_where_a_rank_has_said_why_it_ends_the_job(failed: str, said: str) -> None:
    """Open MPI's launcher sends SIGTERM to the others then, and the rank that has failed may be gone by that time."""
    program = (
        "import os, signal, subprocess, sys, time\n"
        "from dliosim.commands.job.signals import handle_signals\n"
        "from dliosim.execute.mpi.job_abort import listen_for_end\n"
        "is_ending = listen_for_end('this')\n"
        "rank_1 = f'from dliosim.execute.mpi.job_abort import end_job; end_job({sys.argv[1]!r}, str())'\n"
        "subprocess.run([sys.executable, '-c', rank_1], stderr=subprocess.DEVNULL)\n"
        "handle_signals(0, lambda name: 'saved', os._exit, None, is_ending, None)\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "time.sleep(20)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, failed], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (143, said)


@pytest.mark.parametrize("reported", [True, False], ids=["by the kernel", "by a look"])
def test_a_rank_ends_when_its_launcher_is_killed(reported: bool) -> None:
    """No process of any other launcher than MPICH's would end ranks that compute, or wait for each other."""
    rank = (
        "import os, time\n"
        "from dliosim.commands.job import signals\n"
        "from dliosim.commands.job.launcher import find_launchers\n"
        f"signals._LOOK = 0.1\n{'' if reported else 'del os.pidfd_open'}\n"
        "(launcher,) = find_launchers()\n"
        "signals.handle_signals(1, None, None, None, None, launcher)\n"
        "print('ready', flush=True)\n"
        "time.sleep(30)\n"
        "print('it is still here', flush=True)\n"
    )
    program = (
        "import subprocess, sys\n"
        "open('/proc/self/comm', 'w').write('prterun')\n"
        "subprocess.run(['sh', '-c', '\"$0\" -c \"$1\"; true', sys.executable, sys.argv[1]])\n"
    )
    words = [sys.executable, "-c", program, rank]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == "ready\n"
        launcher.kill()
        assert launcher.stdout.read() == ""  # ends when the rank does, which has it open


def test_a_rank_whose_parent_is_outside_of_its_container_runs_on() -> None:
    """The kernel gives such a process, as `docker exec` starts one, 0 for its parent."""
    program = (
        "import time\n"
        "from dliosim.commands.job import signals\n"
        "signals._LOOK = 0.01\n"
        "signals.handle_signals(1, None, None, None, None, 0)\n"
        "time.sleep(0.5)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=60, check=False).returncode == 0


def test_a_run_that_is_killed_leaves_what_it_had_finished(place: Place) -> None:
    program = "from dliosim.commands.job import setup\nsetup._PAUSE = 0\nfrom dliosim import cli\ncli.main()"
    with running(start_ranks(0, "-c", program, *place.command(), cwd=place.directory)) as job:
        partial = place.output / "results.partial.json"
        job.wait_until(lambda: partial.exists() and len(epochs_of(content(place)).get("train", [])) >= 2)
        job.launcher.kill()
        job.launcher.wait()
    assert [one.name for one in place.output.iterdir()] == ["results.partial.json"]
    found = content(place)
    assert (found["partial"]["signal"], found["partial"]["verbs_done"]) == ("", 2)


def test_a_request_for_results_that_comes_when_the_run_is_over_leaves_its_status() -> None:
    """Signals until the end of the process: the C library raises the signal when Python has ended."""
    program = (
        "import ctypes, os, signal, sys, time\n"
        "from mpi4py import MPI\n"
        "from dliosim.commands.job.mpi_entry import run_job\n"
        "from dliosim.commands.job.setup import PartialResults\n"
        "unfinished = PartialResults('')\n"
        "def action(world):\n"
        "    with unfinished.final_write():\n"
        "        pass\n"
        "    os.kill(os.getpid(), signal.SIGUSR1)\n"
        "    time.sleep(2)\n"
        "    return int(signal.SIGUSR1)\n"
        "library = ctypes.CDLL(None)\n"
        "library.on_exit(getattr(library, 'raise'), None)\n"  # it is given the exit status
        "sys.exit(run_job(MPI.COMM_WORLD, action, unfinished.save))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (signal.SIGUSR1, "\nSIGUSR1: the run was over\n")
