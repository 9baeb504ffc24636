"""`dliosim analyze` from its command line: one trace, two, several, a page, and what cannot be read."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

import h5py
import pytest

from dliosim.cli import main

HOSTILE = '<script>alert("x")</script> & \x1b[31m'


def line(name: str, category: str, begin: int, duration: int, **args: object) -> str:
    about = {"name": name, "cat": category, "pid": 7, "tid": 7, "ts": 1000 + begin, "dur": duration, "ph": "X"}
    return json.dumps(about | {"args": args})


def write_trace(folder: Path, read_time: int = 400, path: str = "/data/a.npz", reads: int = 3) -> Path:
    """A trace of DFTracer: reads of 1 MB, and a compute that none of them is next to; times in us."""
    folder.mkdir(parents=True)
    lines = [
        json.dumps({"name": "FH", "cat": "dftracer", "pid": 7, "ph": "M", "args": {"name": path, "value": 5}}),
        *(
            line("pread", "POSIX", at * 1000, read_time, fhash=5, ret=10**6, count=10**6, offset=at * 10**6)
            for at in range(reads)
        ),
        line("compute", "ai_framework", 50_000, 900),
    ]
    (folder / "trace-0-of-1.pfw").write_text("\n".join(["[", *lines, ""]))
    return folder


def test_a_folder_is_a_job_and_a_screen_says_what_to_try(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(write_trace(tmp_path / "job"))]) == 0
    shown = capsys.readouterr().out
    assert "unoverlapped-io: 100 %" in shown
    assert "TRY read ahead" in shown


def test_json_is_a_line_for_scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "--json", str(write_trace(tmp_path / "job"))]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["access"]["read"]["bytes"] == 3 * 10**6
    assert content["epochs"] is None


def test_two_jobs_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [str(write_trace(tmp_path / name, time)) for name, time in (("before", 900), ("after", 300))]
    assert main(["analyze", *jobs]) == 0
    shown = capsys.readouterr().out
    assert "From before to after" in shown
    assert "-1.80 ms" in shown


def test_of_several_jobs_one_that_cannot_be_read_is_left_out_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [str(write_trace(tmp_path / name)) for name in ("a", "b")]
    (tmp_path / "c.darshan").write_bytes(b"nonsense")
    assert main(["analyze", *jobs, str(tmp_path / "c.darshan")]) == 0
    shown = capsys.readouterr()
    assert [row.split()[0] for row in shown.out.splitlines()[-2:]] == ["a", "b"]
    assert "left out: error: " in shown.err and "c.darshan" in shown.err


def test_files_of_dftracer_on_one_line_are_one_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [write_trace(tmp_path / name, time) / "trace-0-of-1.pfw" for name, time in (("a", 400), ("b", 300))]
    assert main(["analyze", "--json", *map(str, jobs)]) == 0
    assert json.loads(capsys.readouterr().out)["access"]["read"]["count"] == 6


def test_an_insight_is_explained_without_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "--explain", "read-again"]) == 0
    assert "Drishti P09" in capsys.readouterr().out
    assert main(["analyze", "--explain", "read-agian"]) == 2
    assert "--explain read-again" in capsys.readouterr().err


def test_a_page_is_complete_in_itself_and_hostile_names_are_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    job = write_trace(tmp_path / "<b>job\x1b", path=f"/data/{HOSTILE}/a.<i>\x1b")
    assert main(["analyze", str(job), "--html", str(tmp_path / "page.html")]) == 0
    text = (tmp_path / "page.html").read_text()
    assert "<b>job" not in text and "<script" not in text and "<i>" not in text and "\x1b" not in text
    assert escape("<b>job") in text and escape(".<i>") in text
    for title in ("What each rank did", "Bandwidth of all ranks", "Bandwidth of each rank", "Sizes of calls"):
        assert title in text
    assert "unoverlapped-io" in text.split("Time</h2>")[0]
    assert main(["analyze", str(job), "--html", str(tmp_path / "again.html")]) == 0
    assert (tmp_path / "again.html").read_text() == text
    assert "unoverlapped-io" in capsys.readouterr().out


def test_hdf5_of_another_program_is_named_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with h5py.File(tmp_path / "part0.h5", "w") as made:
        made["x"] = [1]
    assert main(["analyze", str(tmp_path / "part0.h5")]) == 1
    said = capsys.readouterr().err
    assert "it is an HDF5 file of another program\n  = help: dliosim new mine --from " in said


def test_a_page_never_overwrites_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = write_trace(tmp_path / "job") / "trace-0-of-1.pfw"
    before = job.read_bytes()
    assert main(["analyze", str(job), "--html", str(job)]) == 2
    assert job.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        (["analyze"], "dliosim analyze my-results"),
        (["analyze", "--json", "--full", "x"], "dliosim analyze --json x"),
        (["drishti", "x.darshan"], "dliosim analyze x.darshan"),
        (["analyse", "x"], "dliosim analyze x"),
    ],
)
def test_a_mistake_ends_with_a_line_to_type(words: list[str], cure: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert f"write `{cure}`" in capsys.readouterr().err
