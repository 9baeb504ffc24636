"""Commands that take loops over one data set refuse others in words; the list of reads has the numbers of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from dliosim.cli import main

PATTERN = """dlio 1
workload pairs
dataset images {
    samples  40
    size     10 kB
    path     "images"
}
dataset labels {
    samples  40
    size     100 B
    layout   2 files
    path     "labels"
}
prepare images
prepare labels
train {
    read     images, labels
    batch    4 per rank
    compute  1 ms
}
"""


@pytest.fixture
def pattern(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("pairs.dlio").write_text(PATTERN)
    return "pairs.dlio"


def test_predict_refuses_several_data_sets(pattern: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", pattern, "--storage", "nvme", "--ranks", "2"]) == 2
    assert "train: reads of several data sets are not predicted" in capsys.readouterr().err


def test_predict_refuses_copies_on_nodes(pattern: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(pattern).write_text(
        PATTERN.replace("images, labels", "images").replace("train {", "stage images to local\ntrain {")
    )
    assert main(["predict", pattern, "--storage", "nvme", "--ranks", "2"]) == 2
    said = "`stage images to local`: a storage description covers shared storage only; it has no node-local root"
    assert said in capsys.readouterr().err


def test_size_refuses_several_data_sets(pattern: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", pattern, "--ranks", "2", "--memory", "1 GB"]) == 2
    assert "data sets `images, labels`: a loop reads them together" in capsys.readouterr().err


def test_compare_advises_what_can_vary_where_reads_are_of_several(
    pattern: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", pattern, "--vary", "api=posix,mpi-independent"]) == 2
    assert "--vary train.readers=0,2`" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["compare", pattern])
    assert "--vary train.readers=0,2`" in capsys.readouterr().err


def test_the_list_of_reads_numbers_the_samples_of_each_data_set(
    pattern: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", pattern, "--ranks", "2", "--csv", "--rank", "1"]) == 0
    rows = [line.split(",") for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[1] for row in rows[::2]] == [row[1] for row in rows[1::2]]
    assert {row[2].split("/")[0] for row in rows[::2]} == {"images"}
    assert {row[2].split("/")[0] for row in rows[1::2]} == {"labels"}
    assert [row[1] for row in rows[:8:2]] == ["4", "5", "6", "7"]


def test_what_is_prepared_counts_for_each_data_set(pattern: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(pattern).write_text(PATTERN.replace("prepare labels\n", ""))
    main(["check", pattern])
    assert "labels" in capsys.readouterr().out
