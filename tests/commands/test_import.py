"""Overrides of DLIO's keys: anywhere in the line of `import`, and of commands that take a workload file."""

from __future__ import annotations

from pathlib import Path

import pytest

from dliosim.cli import main
from dliosim.commands.command_line.options import parse_values
from dliosim.commands.command_line.parser import Misuse, parse_words
from dliosim.commands.command_line.suggestions import describe_misuse
from dliosim.language.compile import compile_pattern
from dliosim.model import Job, Loop

WORKLOAD = """\
dataset: {num_files_train: 64, record_length: 2048, format: npz, data_folder: data}
reader: {batch_size: 4}
train: {epochs: 2}
"""


@pytest.mark.parametrize(
    "line",
    [
        "import w.yaml --dlio main ++train.epochs=7 ~metric.au",
        "import w.yaml ++train.epochs=7 --dlio main ~metric.au",
        "import ++train.epochs=7 --dlio main w.yaml ~metric.au",
        "import --dlio main w.yaml ++train.epochs=7 ~metric.au",
    ],
)
def test_overrides_stand_anywhere(line: str) -> None:
    parsed = parse_words(line.split())
    assert (parsed.file, parsed.dlio, parsed.override) == ("w.yaml", "main", ["++train.epochs=7", "~metric.au"])


def test_an_override_without_plus_may_follow_an_option() -> None:
    words = ["import", "w.yaml", "--as-run", "workload.train.epochs=7"]
    assert parse_words(words).override == ["workload.train.epochs=7"]


def test_what_to_type_instead_keeps_overrides() -> None:
    words = ["import", "w.yaml", "--dlo", "main", "++workload.train.epochs=7"]
    with pytest.raises(Misuse) as error:
        parse_words(words)
    said = describe_misuse(words, str(error.value))
    assert said.endswith("write `dliosim import w.yaml --dlio main ++workload.train.epochs=7`")


@pytest.mark.parametrize("command", ["run", "plan --ranks 4", "check", "compare --vary readers=0,4", "explain"])
def test_commands_that_take_a_workload_file_take_overrides(command: str) -> None:
    words = [*command.split(), "w.yaml", "++workload.train.epochs=7", "workload.reader.batch_size=4", "-D", "a=1"]
    parsed = parse_words(words)
    assert parsed.override == ["++workload.train.epochs=7", "workload.reader.batch_size=4"]
    assert parse_values(parsed) == [("++workload.train.epochs", "7"), ("++workload.reader.batch_size", "4"), ("a", "1")]


def test_keys_reach_the_pattern_and_are_no_settings_of_it(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(WORKLOAD)
    given = [("++workload.train.epochs", "7"), ("~workload.reader.batch_size", ""), ("train.batch", "2 per rank")]
    workload, _ = compile_pattern(path, given, Job(2))
    loop = workload.verbs[-1]
    assert isinstance(loop, Loop) and (loop.epochs, loop.batch) == (7, 2)
    assert workload.overrides == (("train.batch", "2 per rank"),)
    assert "epochs      7" in workload.pattern and "reader.batch_size" not in workload.pattern


def test_a_mistake_shows_the_pattern_as_such_and_how_to_write_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w.yaml").write_text(WORKLOAD)
    assert main(["check", "w.yaml", "++workload.dataset.num_files_train=3"]) == 2
    said = capsys.readouterr().err
    assert "--> w.yaml as a pattern:" in said
    line = "dliosim import w.yaml ++workload.dataset.num_files_train=3 -o w.dlio"
    assert f"`{line}` writes this pattern" in said
    assert main(line.split()[1:]) == 0
    assert "samples     3" in Path("w.dlio").read_text()


def test_a_mistake_of_the_command_line_shows_the_file_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w.yaml").write_text(WORKLOAD)
    assert main(["check", "w.yaml", "-D", "ranks=3"]) == 2
    assert capsys.readouterr().err.endswith("as `mpiexec -n 3 dliosim run w.yaml`\n")


def test_check_names_a_workload_file_that_becomes_no_pattern_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.yaml").write_text(WORKLOAD.replace("npz", "zzz"))
    Path("w.yaml").write_text(WORKLOAD)
    assert main(["check", "bad.yaml", "w.yaml"]) == 2
    said = capsys.readouterr()
    assert "error: bad.yaml: dataset.format: zzz" in said.err
    assert said.out.startswith("w.yaml: ok")


def test_keys_of_dlio_are_refused_for_a_pattern_with_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w.yaml").write_text(WORKLOAD)
    assert main(["import", "w.yaml", "-o", "w.dlio"]) == 0
    keys = ["++workload.dataset.record_length=1000", "++workload.dataset.record_length_stdev=0"]
    assert main(["check", "w.dlio", *keys]) == 2
    assert "= help: `dliosim explain w.dlio` lists what -D may set" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["run", "w.dlio", *keys])
    assert capsys.readouterr().err.endswith('write `dliosim run w.dlio -D train_data.size="1000 B"`\n')
    assert main(["check", "w.dlio", "-D", "train_data.size=1000 B"]) == 0


@pytest.mark.parametrize("name", ["reader.batch_size", "workload.reader.batch_size", "data_reader.batch_size"])
def test_a_key_that_is_given_by_define_is_answered_by_an_override(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "w.yaml").write_text(WORKLOAD)
    assert main(["check", str(tmp_path / "w.yaml"), "-D", f"{name}=2"]) == 2
    assert "= help: write `++reader.batch_size=2`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "mended"),
    [
        ("plan w.yaml reader.batch_size=4", "plan w.yaml ++reader.batch_size=4 --ranks 8"),
        (
            "plan w.yaml --ranks 4 reader.batch_size=4 train.epochs=1",
            "plan w.yaml --ranks 4 ++reader.batch_size=4 ++train.epochs=1",
        ),
        ("run w.yaml train.readers=0", "run w.yaml -D train.readers=0"),
        ("run w.yaml workload=unet3d", "run w.yaml"),
    ],
)
def test_a_key_without_marks_is_answered_by_an_override(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, mended: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w.yaml").write_text(WORKLOAD)
    with pytest.raises(Misuse) as error:
        parse_words(given.split())
    assert describe_misuse(given.split(), str(error.value)).endswith(f"write `dliosim {mended}`")


def test_check_answers_a_key_without_marks_by_what_the_file_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "w.yaml").write_text(WORKLOAD)
    assert main(["check", str(tmp_path / "w.yaml"), "reader.batch_size=4"]) == 2
    assert "= help: write `++reader.batch_size=4` for a key of a workload file" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["check", "default", "reader.batch_size=4"])
    assert '= help: write `dliosim check default -D train.batch="4 per rank"`' in capsys.readouterr().err


def test_an_override_without_a_value_is_refused_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "w.yaml").write_text(WORKLOAD)
    assert main(["check", str(tmp_path / "w.yaml"), "++workload.train.epochs"]) == 2
    assert "expected an override such as ++workload.train.epochs=2" in capsys.readouterr().err


@pytest.mark.parametrize("given", ["w", "workload=w", "workload=w.yaml"])
@pytest.mark.parametrize("command", ["import", "check"])
def test_a_name_without_its_ending_and_one_of_hydra_are_answered_by_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, given: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w.yaml").write_text(WORKLOAD)
    assert main([command, given]) == 2
    assert "w.yaml`" in capsys.readouterr().err.partition("= help: write `")[2]


def test_a_workload_of_hydra_without_a_file_is_answered_by_the_form_of_its_path(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for command in ("import", "check"):
        assert main([command, "workload=no_such"]) == 2
        assert "FOLDER/NAME.yaml`" in capsys.readouterr().err


def test_files_to_read_that_are_elsewhere_are_in_the_next_line_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w.yaml").write_text(WORKLOAD)
    assert main(["import", "w.yaml", "--from-files", "-o", "w.dlio"]) == 0
    said = capsys.readouterr().err
    assert "warning: there is no file ./data/train/*.npz now" in said
    assert said.endswith("next: dliosim plan w.dlio --ranks 4 --dir .\n")


def test_a_misspelt_key_of_an_override_is_an_error_with_the_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "w.yaml").write_text(WORKLOAD)
    assert main(["check", str(tmp_path / "w.yaml"), "++workload.dataset.num_files_trian=4"]) == 2
    assert "write `++workload.dataset.num_files_train=4`" in capsys.readouterr().err
