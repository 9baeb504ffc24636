"""The command line without MPI: options that go together, and those that do not."""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dliosim.cli import main
from dliosim.commands.command_line.options import parse_used_roots
from dliosim.errors import UsageError
from dliosim.language.compile import compile_pattern
from dliosim.measure.rank.records import pack_arrivals, unpack_arrivals
from dliosim.model import Job

GOOD = """dlio 1
workload example
dataset d {
    samples  64
    size     1 MB
    path     "d"
}
prepare d
"""


@pytest.fixture
def pattern(tmp_path: Path) -> Path:
    path = tmp_path / "good.dlio"
    path.write_text(GOOD)
    return path


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["run", "x.dlio", "--null", "--verify"], "--null and --verify: a run without I/O has nothing to check"),
        (
            ["run", "x.dlio", "--null", "--with-null"],
            "--null and --with-null: a run without I/O has nothing to comp",
        ),
        (["plan", "x.dlio", "--ranks", "4", "--rank", "0"], "--rank chooses what --csv lists, and there is no --csv"),
        (["plan", "x.dlio", "--ranks", "4", "--epoch", "1"], "--epoch chooses what --csv lists"),
        (["plan", "x.dlio", "--ranks", "4", "--csv", "--epoch", "0"], "`--epoch 0`: must be at least 1"),
        (["plan", "x.dlio", "--ranks", "4", "--loop", "t"], "--loop chooses what --csv lists"),
        (["plan", "x.dlio", "--rank", "4"], "`dliosim plan` needs --ranks"),
        (["plan", "x.dlio", "--ranks", "4", "--save-time", "3 s"], "--save-time goes with --mtbf"),
        (["plan", "x.dlio", "--ranks", "4", "--save-time", "1 s"], "--save-time goes with --mtbf"),
        (["plan", "x.dlio", "--ranks", "4", "--csv", "--opens", "9/s"], "--opens is for the answer of a plan"),
        (["run", "x.dlio", "--restart-time", "3 s"], "--restart-time goes with --mtbf"),
        (["plan", "x.dlio", "--ranks", "4", "--csv", "--mtbf", "4 h"], "--mtbf has a table of its own"),
        (["run", "x.dlio", "--stall-report", "often"], "`--stall-report often`: 'often' is not a time"),
        (["run", "x.dlio", "--stall-timeout", "0 s"], "`--stall-timeout 0 s`: '0 s' is out of range: above 0"),
        (
            ["compare", "x.dlio", "--vary", "api=posix", "--stall-timeout", "3"],
            "`--stall-timeout 3`: '3' is not a",
        ),
        (["run", "x.dlio", "--mtbf", "4"], "`--mtbf 4`: '4' is not a time such as 10 ms"),
        (["run", "x.dlio", "--mtbf", "4 GB"], "`--mtbf 4 GB`: '4 GB' is not a time such as 10 ms"),
        (["run", "x.dlio", "--mtbf", "0 s"], "`--mtbf 0 s`: '0 s' is out of range: above 0"),
        (["run", "x.dlio", "--mtbf=-1 s"], "`--mtbf -1 s`: '-1 s' is out of range"),
        (["run", "x.dlio", "--mtbf", "9" * 30 + " h"], "is out of range: above 0, below 1e+18"),
        (
            ["plan", "x.dlio", "--ranks", "4", "--mtbf", "4 h", "--bandwidth", "3 GB"],
            "`--bandwidth 3 GB`: '3 GB' is not a rate such as 10 GB/s",
        ),
        (["plan", "x.dlio", "--ranks", "4", "--opens", "3"], "'3' is not a number of opens per second such as 1_000"),
        (["plan", "x.dlio", "--ranks", "4", "--opens", "0/s"], "`--opens 0/s`: '0/s' is out of range: above 0"),
        (["plan", "x.dlio", "--ranks", "4", "--loss", "2"], "`--loss 2`: '2' is not a ratio such as 2 %"),
        (["plan", "x.dlio", "--ranks", "4", "--loss", "100 %"], "is out of range: above 0 %, below 100 %"),
        (["plan", "x.dlio", "--ranks", "4", "--json", "--csv"], "--json and --csv: one prints an answer for scripts"),
        (["run", "x.dlio", "--nul"], "`dliosim run` has no option `--nul`"),
        (["check", "x.dlio", "--rank", "4"], "`dliosim check` has no option `--rank`"),
    ],
)
def test_options_that_do_not_go_together_or_are_cut_short_are_wrong_usage(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as found:
        main(arguments)
    assert found.value.code == 2
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize(
    ("environ", "speaks"),
    [
        ({}, True),
        ({"PMI_RANK": "0"}, True),
        ({"PMI_RANK": "3"}, False),
        ({"PMIX_RANK": "3"}, False),
        ({"OMPI_COMM_WORLD_RANK": "3"}, False),
        ({"SLURM_PROCID": "3"}, False),
        ({"PMI_RANK": "0", "SLURM_PROCID": "3"}, True),
        ({"PMI_RANK": "", "SLURM_PROCID": "3"}, False),
    ],
    ids=["alone", "first", "hydra", "prrte", "open mpi", "srun", "mpiexec inside srun", "empty"],
)
def test_wrong_usage_is_said_by_the_launchers_first_process_alone(
    environ: dict[str, str], speaks: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as found:
        main(["run", "x.dlio", "--nul"])
    assert found.value.code == 2
    assert ("has no option `--nul`" in capsys.readouterr().err) == speaks


@pytest.mark.parametrize("command", ["check", "plan", "explain"])
def test_a_job_has_a_rank_on_every_node(command: str, pattern: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, str(pattern), "--ranks", "4", "--nodes", "5"]) == 2
    said = "error: --nodes 5: every node has a rank, and there are 4 (--ranks)\n"
    said += "  = help: write `--nodes 4`, or `--ranks 5`\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("command", ["check", "plan", "explain"])
def test_a_job_has_no_more_ranks_than_a_record_can_distinguish(
    command: str, pattern: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    most = 4_194_304
    assert unpack_arrivals(np.array([pack_arrivals(5, most - 1, 3)]))[0] == most - 1
    assert main(["check", str(pattern), "--ranks", str(most)]) == 0
    for ranks in (most + 1, 999_999_999_999):
        with pytest.raises(SystemExit) as found:
            main([command, str(pattern), "--ranks", str(ranks)])
        assert found.value.code == 2
        assert "`: must be at most 4_194_304" in capsys.readouterr().err


def test_an_epoch_that_there_is_not_cannot_be_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "loop.dlio"
    path.write_text(GOOD + "train {\n    read d\n    epochs 5\n}\n")
    assert main(["plan", str(path), "--ranks", "4", "--csv", "--epoch", "6"]) == 2
    assert capsys.readouterr().err == "error: there is no epoch 6: `train` has 5\n"


@pytest.mark.parametrize(("rank", "times"), [(None, 1), ("0", 1), ("1", 0)])
def test_without_an_mpi_library_a_run_says_once_what_to_install(pattern: Path, rank: str | None, times: int) -> None:
    environment = {**os.environ, "MPI4PY_LIBMPI": "/nowhere/libmpi.so", "PYTHONPATH": str(Path(__file__).parents[2])}
    if rank is not None:
        environment["PMI_RANK"] = rank
    command = [sys.executable, "-m", "dliosim.cli", "run", str(pattern)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=pattern.parent)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.count("error: no MPI library found: ") == times
    assert done.stderr.count("  = help: pip install '.[mpich]'") == times


def test_a_root_that_nothing_is_on_is_refused(pattern: Path) -> None:
    pattern.write_text(GOOD.replace("path ", "root fast\n    path "))
    workload, _ = compile_pattern(pattern, [], Job(4))
    given = argparse.Namespace(dir="there", root=["fast=/x"])
    assert parse_used_roots(given, [workload])["fast"] == Path("/x")
    given.root.append("slow=/y")
    with pytest.raises(UsageError, match=r"--root slow=/y: nothing .* is on `root slow`; roots here: fast"):
        parse_used_roots(given, [workload])


def test_a_root_to_which_a_checkpoint_is_drained_is_one_of_the_pattern(pattern: Path) -> None:
    pattern.write_text(f'{GOOD}checkpoint c {{\n part w 1 MB total\n drain to slow\n path "c"\n}}\nsave c\n')
    workload, _ = compile_pattern(pattern, [], Job(4))
    assert parse_used_roots(argparse.Namespace(dir="there", root=["slow=/y"]), [workload])["slow"] == Path("/y")


@pytest.mark.parametrize(
    ("words", "help_line"),
    [
        (["explain", "E999"], "codes are E001, "),
        (["verify", "nosuch"], "write `dliosim verify DIR`, with the --dir of a run"),
    ],
)
def test_a_wrong_value_is_answered_by_what_to_give(
    words: list[str], help_line: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert help_line in capfd.readouterr().err.partition("= help: ")[2]


@pytest.mark.parametrize(
    ("line", "help_line"),
    [
        ("run made", "it has results: write `dliosim report made`"),
        ("check .", "name a pattern in it, as `good.dlio`"),
        ("analyze good.dlio", "record a run of it first: mpiexec -n 4 dliosim run good.dlio --trace"),
        ("import w.yaml w.dlio", "write `-o w.dlio`"),
        ("verify good.dlio", "write `dliosim verify dliosim-data`"),
    ],
)
def test_a_file_in_a_wrong_place_is_answered_by_what_takes_it(
    line: str, help_line: str, pattern: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(pattern.parent)
    Path("made").mkdir()
    Path("dliosim-data").mkdir()
    Path("made/results.json").write_text("{}")
    Path("w.yaml").write_text("dataset:\n  num_files_train: 4\n")
    with contextlib.suppress(SystemExit):
        assert main(line.split()) in (1, 2)
    assert help_line in capfd.readouterr().err.partition("= help: ")[2]
