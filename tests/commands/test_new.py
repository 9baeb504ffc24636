"""`dliosim new`: a pattern to begin with, that is right as it stands and never in the place of another file."""

from __future__ import annotations

import shlex
from pathlib import Path

import h5py
import numpy as np
import pytest

from dliosim.cli import main
from dliosim.commands.command_line.pattern_files import list_names
from dliosim.formats.unsupported import cure_names
from dliosim.language.compile import compile_pattern
from dliosim.model import Job


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("ranks", [1, 2, 3, 512])
def test_the_template_is_a_pattern_without_a_warning(ranks: int) -> None:
    assert main(["new", "mine"]) == 0
    workload, warnings = compile_pattern(Path("mine.dlio"), [], Job(ranks))
    assert (workload.name, warnings) == ("mine", ())
    assert workload.datasets[0].path == "mine/images"


@pytest.mark.parametrize("choice", ["8 files", "shared file", "100 files in 10 folders"])
def test_what_its_comments_offer_is_accepted(choice: str) -> None:
    assert main(["new", "mine"]) == 0
    assert choice in Path("mine.dlio").read_text()
    compile_pattern(Path("mine.dlio"), [("images.layout", choice)], Job(4))


@pytest.mark.parametrize("name", list_names())
def test_any_pattern_of_dliosim_is_copied_under_another_name(name: str) -> None:
    assert main(["new", "mine", "--from", name]) == 0
    assert compile_pattern(Path("mine.dlio"), [], Job(4))[0].name == "mine"
    assert "# small:" not in Path("mine.dlio").read_text()


@pytest.mark.parametrize(
    ("given", "file", "workload"),
    [("mine.dlio", "mine.dlio", "mine"), ("my-own", "my-own.dlio", "my_own"), ("3d", "3d.dlio", "_3d")],
)
def test_any_name_of_a_file_gives_a_name_of_a_workload(
    given: str, file: str, workload: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", given]) == 0
    assert compile_pattern(Path(file), [], Job(2))[0].name == workload
    assert capsys.readouterr().err.startswith(f"wrote {file}; next: dliosim check {file}\n")


def test_no_file_is_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.dlio").write_text("kept")
    assert main(["new", "mine"]) == 1
    assert Path("mine.dlio").read_text() == "kept"
    said = capsys.readouterr().err
    assert "it is there already" in said
    words = shlex.split(said.partition("write `")[2].partition("`")[0])
    assert main(words[1:]) == 0


@pytest.mark.parametrize("given", ["data", "data/train.bin"])
def test_data_in_the_place_of_a_pattern_are_named_in_one(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("data").mkdir()
    Path("data/train.bin").write_bytes(b"\xff" * 300_000)
    assert main(["check", given]) == 2
    (new,) = capsys.readouterr().err.partition("= help: ")[2].split("`")[1::2]
    assert main(shlex.split(new)[1:]) == 0
    check = capsys.readouterr().err.partition("next: ")[2].splitlines()[0]
    small = ["--ranks", "1", "-D", "train.batch=1 per rank", "-D", "data.format=raw"]
    assert main([*shlex.split(check)[1:], *small]) == 0


@pytest.mark.parametrize("name", ["plain.npy", "two words.npy", "odd[1]*.npy", 'a"quote.npy', "\u00e9t\u00e9.npy"])
def test_a_pattern_is_made_of_a_file_of_any_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("my data").mkdir()
    np.save(Path("my data", name), np.zeros((8, 100), np.float32))
    assert main(["new", "mine", "--from", str(Path("my data", name))]) == 0
    check = capsys.readouterr().err.partition("next: ")[2].splitlines()[0]
    assert main([*shlex.split(check)[1:], "--ranks", "1", "-D", "train.batch=1 per rank"]) == 0


@pytest.mark.parametrize("file", ["n01/a.npy", "n01/more/b.npy", 'n01/a.b"c', "plain", "x.b\u00e9$", "x.b*c"])
def test_a_pattern_is_made_of_a_folder_of_any_files(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("d", file).parent.mkdir(parents=True)
    with Path("d", file).open("wb") as made:
        np.save(made, np.zeros((8, 100), np.float32))
    assert main(["new", "mine", "--from", "d"]) == 0
    check = capsys.readouterr().err.partition("next: ")[2].splitlines()[0]
    assert main([*shlex.split(check)[1:], "--ranks", "1", "-D", "train.batch=1 per rank"]) == 0


@pytest.mark.parametrize("given", ["d/a.h5", "d/a.npz", "d"])
def test_all_arrays_of_files_are_named_where_there_are_several(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("d").mkdir()
    if given.endswith("npz"):
        np.savez("d/a.npz", image=np.zeros((8, 8)), label=np.zeros(8))
    else:
        with h5py.File("d/a.h5", "w") as made:
            made["image"], made["label"] = np.zeros((8, 8)), np.zeros(8)
    assert main(["new", "mine", "--from", given]) == 0
    assert '    datasets "image", "label"\n' in Path("mine.dlio").read_text()
    check = capsys.readouterr().err.partition("next: ")[2].splitlines()[0]
    assert main([*shlex.split(check)[1:], "--ranks", "1", "-D", "train.batch=1 per rank"]) == 0


def test_names_that_a_line_cannot_have_are_left_to_the_user() -> None:
    assert (
        cure_names(["a/b c", "d-1"]) == '\n  = help: write `datasets "a/b c", "d-1"`, or some of them, in the data set'
    )
    assert cure_names([]) == cure_names(['a"']) == cure_names(["$a"]) == cure_names(["a"] * 9) == ""


def test_a_folder_without_files_makes_no_pattern(capsys: pytest.CaptureFixture[str]) -> None:
    Path("d/more").mkdir(parents=True)
    assert main(["new", "mine", "--from", "d"]) == 2
    assert "no files in d, nor in folders below" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["mine", "--from", "d/a", "d/b"], ["--from", "d/a", "d/b", "d/c", "mine"]])
def test_names_that_a_shell_has_written_out_become_their_folder(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("d").mkdir()
    for name in "abc":
        Path("d", name).touch()
    with pytest.raises(SystemExit, match="2"):
        main(["new", *words])
    said = capsys.readouterr().err
    assert said.startswith("error: `--from` takes one file or one folder, not ")
    assert main(shlex.split(said.partition("write `")[2].partition("`")[0])[1:]) == 0
    then = capsys.readouterr().err.splitlines()[1]
    assert then.lstrip() == "then, with your step time: mpiexec -n 2 dliosim run mine.dlio --dir d -D 'compute=20 ms'"


def test_files_that_are_not_there_make_a_command_wrong() -> None:
    Path("a.npy").touch()
    assert main(["new", "mine", "--from", "a.npy"]) == 0
    assert [main([command, "mine.dlio", "--dir", "none", "--ranks", "1"]) for command in ("check", "plan")] == [2, 2]


@pytest.mark.parametrize(("name", "offered"), [("a.h5", True), ("a.npy", False)])
def test_files_of_hdf5_are_compared_with_h5py(name: str, offered: bool, capsys: pytest.CaptureFixture[str]) -> None:
    Path(name).touch()
    assert main(["new", "mine", "--from", name]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 + offered
    assert ("dliosim compare mine.dlio --dir . --vary through=direct,library" in lines[-1]) == offered


def test_a_folder_without_files_has_no_data_to_name(capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty").mkdir()
    assert main(["check", "empty"]) == 2
    assert "help" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["a/b"], 1, "No such file or directory"),
        ([""], 2, "write `dliosim new mine`"),
        ([".dlio"], 2, "write `dliosim new mine`"),
        (["mine", "--from", "cosmflow"], 2, "did you mean `cosmoflow`?"),
        (["mine", "--from", "profiles/llama3"], 2, "there is no such file, folder or shipped pattern"),
        (["mine", "--from", "d/u.yaml"], 2, "help: `dliosim import d/u.yaml -o mine.dlio` makes a pattern"),
        (["mine", "--from", ""], 2, "--from is empty"),
        (["mine", "--from", "cosmoflow", "--keep-names"], 2, "cosmoflow is no trace"),
        (["mine.yaml"], 2, "help: write `dliosim new mine`; `dliosim import mine.yaml -o mine.dlio` makes"),
    ],
)
def test_what_cannot_be_written_is_said(
    words: list[str], status: int, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", *words]) == status
    assert said in capsys.readouterr().err
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("files", "given", "status", "said"),
    [
        (["d/a.pfw", "d/b.pfw"], "d", 1, "d has no event of DFTracer"),
        (["d/a.pfw.gz"], "d/a.pfw.gz", 1, "no event of DFTracer"),
        (["d/x.darshan"], "d/x.darshan", 1, "no event"),
        (["d/results.json"], "d", 2, "write `dliosim report d`"),
        (["d/results.json", "d/trace.h5"], "d", 1, "cannot be read as a trace of dliosim"),
    ],
)
def test_logs_of_a_job_are_read_as_such_and_results_are_no_data(
    files: list[str], given: str, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in files:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text("[\n")
    assert main(["new", "mine", "--from", given]) == status
    assert said in capsys.readouterr().err
    assert not Path("mine.dlio").exists()


def test_files_of_which_no_format_is_known_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("notes.txt").write_text("a")
    assert main(["new", "mine", "--from", "notes.txt"]) == 0
    assert "no format has the ending `.txt`: each file is a sample of raw bytes" in capsys.readouterr().err


def test_files_that_are_left_out_and_archives_that_are_compressed_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("d").mkdir()
    for name in ("a.tar", "b.tar", "c.tar.gz"):
        Path("d", name).touch()
    assert main(["new", "mine", "--from", "d"]) == 0
    assert "note: left out (not `*.tar`): c.tar.gz\n" in capsys.readouterr().err
    assert main(["new", "other", "--from", "d/c.tar.gz"]) == 0
    assert "note: c.tar.gz is a compressed archive, read as one sample" in capsys.readouterr().err


@pytest.mark.parametrize("ranks", ["1", "4", "7"])
def test_any_number_of_samples_makes_a_pattern_that_is_right(ranks: str) -> None:
    Path("d").mkdir()
    Path("d/a.img").write_bytes(bytes(99))
    assert main(["new", "mine", "--from", "d"]) == 0
    assert main(["check", "mine.dlio", "--dir", "d", "--ranks", ranks]) == 0


@pytest.mark.parametrize(("name", "goals"), [("a.h5", 0), ("a.npy", 1)])
def test_a_pattern_without_computations_next_has_no_goal(name: str, goals: int) -> None:
    Path(name).touch()
    assert main(["new", "mine", "--from", name]) == 0
    assert Path("mine.dlio").read_text().count("expect ") == goals
