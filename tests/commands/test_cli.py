"""The commands that need no MPI: what they say, and how they end."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.cli import main
from dliosim.commands.command_line.command_table import COMMANDS

ROOT = Path(__file__).parents[2]
PATTERN = """dlio 1
workload tiny "a test"
param batch = 4 "samples of a step"
dataset d {
    samples  41
    size     uniform(3000 B, 9000 B)
    layout   shared file
    path     "d"
}
prepare d
train {
    read     d
    batch    $batch per rank
    epochs   2
    shuffle  samples globally each epoch
}
"""


@pytest.fixture
def pattern(tmp_path: Path) -> str:
    """A pattern file that is right."""
    path = tmp_path / "tiny.dlio"
    path.write_text(PATTERN)
    return str(path)


@pytest.fixture
def wrong(tmp_path: Path) -> str:
    """A pattern with an unknown word."""
    path = tmp_path / "wrong.dlio"
    path.write_text(PATTERN.replace("layout ", "lajout "))
    return str(path)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ([], ["mpiexec -n 4 dliosim run", "check", "plan", "explain", "Exit status: 0 done", *COMMANDS]),
        (["run"], ["--dir", "--root", "--output", "--null", "--with-null", "--verify", "-D NAME=VALUE"]),
        (["check"], ["--ranks N", "--nodes M", "-D NAME=VALUE"]),
        (["plan"], ["--ranks N", "--csv", "--rank R", "--epoch E", "--loop NAME"]),
        (["explain"], ["CODE|PATTERN", "--ranks N"]),
    ],
)
def test_help_names_every_option(command: list[str], words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert [word for word in words if word not in out] == []


@pytest.mark.parametrize("arguments", [[], ["dance"], ["plan", "x.dlio"], ["check"], ["check", "x", "--ranks", "0"]])
def test_wrong_usage_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert re.search(r"^error: .*\n  = help: ", capsys.readouterr().err)


def test_check_says_ok_and_ends_with_0(pattern: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", pattern, "--ranks", "3"]) == 0
    assert capsys.readouterr().out.startswith(f"{pattern}: ok (tiny, digest ")


def test_check_notes_what_is_read_and_not_prepared_before(pattern: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", pattern]) == 0
    assert "note: " not in capsys.readouterr().out
    lines = PATTERN.replace("prepare d\n", "")
    note = "  note: `train` reads `d`, which this pattern does not prepare before\n"
    for text in (lines, lines + "prepare d\n", lines.replace("train {", "repeat 2 {\ntrain {") + "}\n"):
        Path(pattern).write_text(text)
        assert main(["check", pattern]) == 0
        assert capsys.readouterr().out.endswith(note)
    Path(pattern).write_text(PATTERN.replace("    epochs   2", "    evaluate every 1 epoch {\n        read d\n    }"))
    assert main(["check", pattern, "--ranks", "1"]) == 0
    found = capsys.readouterr().out
    assert "note: " not in found
    assert found.endswith(" on 1 rank)\n")


def test_check_notes_the_roots_that_a_run_needs(pattern: str, capsys: pytest.CaptureFixture[str]) -> None:
    note = "  note: a run needs a place for `root local`: add --root local=DIR\n"
    for more, needs in ("stage d to local\n", True), ("stage d to local {\n    copy off\n}\n", False):
        Path(pattern).write_text(PATTERN.replace("prepare d\n", f"prepare d\n{more}"))
        assert main(["check", pattern]) == 0
        assert capsys.readouterr().out.endswith(note) == needs
        assert main(["check", pattern, "--root", "local=/local/scratch"]) == 0
        assert "note: " not in capsys.readouterr().out


def test_check_of_several_names_each_and_ends_with_2_if_one_is_wrong(
    pattern: str, wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", wrong, pattern]) == 2
    found = capsys.readouterr()
    assert found.out.startswith(f"{pattern}: ok")
    assert "lajout" in found.err
    assert "write `layout " in found.err


def test_check_of_what_is_not_there_or_not_so_ends_with_2(pattern: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"{pattern}.gone"]) == 2
    assert main(["check", pattern, "-D", "bacth=4"]) == 2
    assert main(["check", pattern, "-D", "batch"]) == 2
    errors = capsys.readouterr().err
    assert "error[E104]" in errors
    assert "-D batch: expected NAME=VALUE" in errors


@given(
    arguments=st.sampled_from(
        [
            ["check", "?"], ["check", "?.dlio"], ["plan", "?", "--ranks", "2"], ["explain", "?"], ["report", "?"],
            ["?"], ["check", "x.dlio", "?"], ["check", "--?", "x"], ["plan", "x.dlio", "--ranks", "?"],
            ["check", "PATTERN", "-D", "?=3"], ["check", "PATTERN", "-D", "batch=?"], ["check", "PATTERN", "-D", "?"],
            ["check", "PATTERN", "--root", "?=x"], ["check", "PATTERN", "--root", "?"],
            ["check", "PATTERN", "--dir", "?"],
            ["plan", "PATTERN", "--ranks", "2", "--csv", "--loop", "?"], ["report", "x", "--html", "?"],
            ["report", "x", "--png", "?"], ["plan", "PATTERN", "--ranks", "2", "--mtbf", "?"],
        ]
    ),
    harm=st.text("a\x1b\x07\x9b\r\x00\u202e[]2J;", min_size=1, max_size=9),
)  # fmt: skip
def test_nothing_that_was_given_steers_the_terminal(arguments: list[str], harm: str) -> None:
    out = io.StringIO()
    with TemporaryDirectory() as made, redirect_stdout(out), redirect_stderr(out), suppress(SystemExit):
        path = Path(made, "tiny.dlio")
        path.write_text(PATTERN)
        main([one.replace("?", harm).replace("PATTERN", str(path)) for one in arguments])
    assert all(letter.isprintable() or letter == "\n" for letter in out.getvalue()), out.getvalue()


def test_what_is_printed_of_a_pattern_is_printable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a\x1b[2J.dlio"
    path.write_text(PATTERN)
    for command in (["check"], ["plan", "--ranks", "2"], ["explain"]):
        assert main([*command, str(path)]) == 0
        assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("command", [["report"], ["check"], ["plan", "--ranks", "2"], ["explain"]])
def test_a_name_that_is_too_long_cannot_be_read(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "x" * 300]) == 2
    assert ("is not a code" if command == ["explain"] else "File name too long") in capsys.readouterr().err


def test_explain_of_a_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "E204"]) == 0
    assert "E204" in capsys.readouterr().out
    assert main(["explain", "E999"]) == 2
    assert "E999" in capsys.readouterr().err


def test_explain_of_a_pattern_says_where_values_come_from(pattern: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", pattern, "-D", "batch=8"]) == 0
    out = capsys.readouterr().out
    assert "41" in out
    assert "# param batch = 8  " in out
    assert "<command line>" in out
    assert "# default" in out


def test_explain_takes_a_pattern_of_any_name(
    pattern: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("tiny.txt", "E204"):
        Path(name).write_text(Path(pattern).read_text())
    assert main(["explain", "tiny.txt"]) == 0
    assert "# tiny.txt:7" in capsys.readouterr().out
    assert main(["explain", "E204"]) == 0
    assert capsys.readouterr().out.startswith("E204: ")
    assert main(["explain", "none.txt"]) == 2
    assert "`none.txt` is not a code" in capsys.readouterr().err


def test_plan_gives_tables(pattern: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", pattern, "--ranks", "2"]) == 0
    out = capsys.readouterr().out
    assert "tiny" in out
    assert "train" in out


def test_plan_gives_the_reads_of_a_rank(pattern: str, capsys: pytest.CaptureFixture[str]) -> None:
    def rows(*options: str) -> list[str]:
        assert main(["plan", pattern, "--ranks", "2", "--csv", *options]) == 0
        return [line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]

    first, other, later = rows(), rows("--rank", "1"), rows("--epoch", "2", "--loop", "train")
    assert first[0].split(",") == ["step", "sample", "file", "offset", "length"]
    assert len(first) == len(other) == len(later) == 1 + 5 * 4
    assert len({*first[1:], *other[1:]}) == 40
    assert first != later
    assert first == rows("--epoch", "1")
    assert main(["plan", pattern, "--ranks", "2", "--csv", "--rank", "2"]) == 2
    assert "ranks count from 0" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["check"], ["plan", "--ranks", "4"], ["explain"]], ids=str)
def test_looking_at_a_pattern_needs_no_mpi(command: list[str], pattern: str) -> None:
    code = "import sys\nfrom dliosim.cli import main\nstatus = main(sys.argv[1:])\n"
    code += "sys.exit('mpi4py' in sys.modules or 'h5py' in sys.modules or status)"
    arguments = [command[0], pattern, *command[1:]]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_reader_that_closes_the_pipe_has_seen_enough(pattern: str) -> None:
    command = [sys.executable, "-m", "dliosim.cli", "plan", pattern, "--ranks", "2", "--csv"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()


@pytest.mark.parametrize("command", [["explain", "E204"], ["check"], ["plan", "--ranks", "2"]])
def test_output_that_cannot_be_written_is_an_error_and_no_traceback(command: list[str], pattern: str) -> None:
    given = command if "E204" in command else [*command, pattern]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "dliosim.cli", *given], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True
        )
    error = "error: standard output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, error)


def test_who_stops_reading_early_is_no_error(pattern: str) -> None:
    command = [sys.executable, "-m", "dliosim.cli", "explain", pattern]
    started = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert started.stdout is not None and started.stderr is not None
    started.stdout.close()
    assert (started.stderr.read(), started.wait()) == (b"", 0)


@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        ("late wake-ups", "longer than asked"),
        ("storage-limited utilization", "storage that needs no time"),
        ("--mtbf", "between failures"),
    ],
)
def test_words_of_the_first_lines_are_explained(capsys: pytest.CaptureFixture[str], word: str, meaning: str) -> None:
    assert main(["explain", "--", word]) == 0
    assert meaning in capsys.readouterr().out


@pytest.mark.parametrize(
    ("closed", "arguments", "status"),
    [
        (">&-", ["run", "{pattern}", "--null", "--output", "results"], 0),
        (">&-", ["plan", "{pattern}", "--ranks", "2"], 0),
        (">&-", ["--version"], 0),
        (">&-", ["check", "{wrong}"], 2),
        ("<&- >&- 2>&-", ["run", "{pattern}", "--null", "--output", "results"], 0),
        ("2>&-", ["check", "{wrong}"], 2),
    ],
)
def test_closed_streams_are_as_those_that_nobody_reads(
    tmp_path: Path, pattern: str, wrong: str, closed: str, arguments: list[str], status: int
) -> None:
    words = [word.format(pattern=pattern, wrong=wrong) for word in arguments]
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "dliosim.cli", *words]
    done = subprocess.run(shell, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == status, done.stderr
    assert done.stdout == "" and "Traceback" not in done.stderr and "fault in dliosim" not in done.stderr
    assert (tmp_path / "results" / "results.json").is_file() == ("results" in arguments)


def test_a_path_that_the_locale_cannot_write_is_named_with_the_locale(tmp_path: Path) -> None:
    path = tmp_path / "places.dlio"
    path.write_text(PATTERN.replace('path     "d"', 'path     "ünï"').replace("a test", "größe"), "utf-8")
    settings = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ends = []
    for change in ({}, {"LC_ALL": "C.UTF-8"}):
        command = [sys.executable, "-m", "dliosim.cli", "explain", str(path)]
        done = subprocess.run(command, env=os.environ | settings | change, capture_output=True, check=False)
        ends.append((done.returncode, done.stdout.decode("utf-8").splitlines()[1:2], done.stderr.decode("ascii")))
    (refused, _, message), (done_well, title, nothing) = ends
    assert refused == 2 and message.startswith('error[E208]: a path that this locale cannot write: "\\xfcn\\xef"')
    assert "the encoding of the locale `POSIX`" in message and "`export LC_ALL=C.UTF-8`" in message
    assert (done_well, title, nothing) == (0, ['workload tiny "größe"'], "")
