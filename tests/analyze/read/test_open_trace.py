"""Traces are recognised by content; what is none is refused with what to do."""

from __future__ import annotations

import gzip
import importlib.util
import io
import os
import shutil
import tarfile
from pathlib import Path

import pytest

from dliosim.analyze.read.open_trace import group_jobs, open_trace
from dliosim.errors import DliosimError, TraceError, UsageError
from tests.analyze.read.pfw import event, line


def refusal(*paths: Path) -> DliosimError:
    with pytest.raises(DliosimError) as caught:
        open_trace(paths)
    return caught.value


def test_a_trace_needs_no_name(tmp_path: Path) -> None:
    path = tmp_path / "anything"
    path.write_bytes(gzip.compress(line(event("pread", 0, 1)) + b"\n"))
    assert open_trace([path]).source == "DFTracer"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"hello", "begins with 'hello'"),
        (b"PAR1....", "Parquet"),
        (b"PK\x03\x04", "unzip"),
        (b"\x1f\x8bnothing", "cannot be inflated"),
        (b'{"traceEvents": []}', "one event a line"),
        (b"\x1b[2Jred", "is no trace"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "a.pfw"
    path.write_bytes(content)
    error = refusal(path)
    assert said in str(error)
    assert isinstance(error, TraceError)
    assert error.exit_code == 1
    assert "= help: " in str(error)
    assert "\x1b" not in str(error)


def test_an_archive_is_refused_with_the_line_that_unpacks_it(tmp_path: Path) -> None:
    path = tmp_path / "traces.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("a.pfw"), io.BytesIO())
    assert f"tar -C traces -xf {path}" in str(refusal(path))


def test_a_pipe_is_refused_and_nothing_waits(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "no plain file" in str(refusal(tmp_path / "pipe"))


def test_a_missing_file_is_a_mistake_of_the_command_line(tmp_path: Path) -> None:
    error = refusal(tmp_path / "absent")
    assert isinstance(error, UsageError)
    assert "No such file" in str(error)


def test_folders_say_what_they_lack(tmp_path: Path) -> None:
    assert "no trace that dliosim can read" in str(refusal(tmp_path))
    (tmp_path / "a.darshan").write_bytes(b"x")
    assert "a.darshan cannot be read" in str(refusal(tmp_path))
    (tmp_path / "a.pfw").write_bytes(b"x")
    assert f"dliosim analyze {tmp_path}/*.darshan" in str(refusal(tmp_path))
    (tmp_path / "results.json").write_bytes(b"{}")
    assert "run it again with --trace" in str(refusal(tmp_path))


def test_a_damaged_trace_of_dliosim_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "trace.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    for path in (tmp_path, tmp_path / "trace.h5"):
        error = refusal(path)
        assert error.exit_code == 1
        assert str(error).count("error: ") == 1


@pytest.mark.parametrize(("name", "said"), [("ret", "bytes add up"), ("count", "asked for add up")])
def test_sums_that_no_number_holds_are_refused(tmp_path: Path, name: str, said: str) -> None:
    args = {name: 1 << 60}
    path = tmp_path / "a.pfw"
    path.write_bytes(b"\n".join(line(event("pread", 0, 1, **args)) for _ in range(3)) + b"\n")
    assert open_trace([path]).events.kind.size == 3
    path.write_bytes(b"\n".join(line(event("pread", 0, 1, **args)) for _ in range(4)) + b"\n")
    assert said in str(refusal(path))


def test_times_that_no_number_holds_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.pfw"
    path.write_bytes(b"\n".join(line(event("pread", 0, 4_000_000_000_000_000)) for _ in range(2)) + b"\n")
    assert "times add up" in str(refusal(path))


def test_only_files_of_dftracer_are_one_job(tmp_path: Path) -> None:
    (tmp_path / "a.pfw").write_bytes(line(event("pread", 0, 1)) + b"\n")
    (tmp_path / "b").write_bytes(b"hello")
    assert f"{tmp_path / 'b'} is no file of DFTracer" in str(refusal(tmp_path / "a.pfw", tmp_path / "b"))


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A folder with logs of PyDarshan: a process twice, which ran at the same time, another job, and one cut log."""
    if (found := importlib.util.find_spec("darshan")) is None or found.origin is None:
        pytest.skip("PyDarshan is not installed")
    examples = Path(found.origin).parent / "examples"
    (single,) = (examples / "darshan-graph").glob("pq_app_read_id71317*")
    for name, source in (("c", single), ("a", single), ("b", examples / "example_logs" / "ior_hdf5_example.darshan")):
        shutil.copy(source, tmp_path / f"{name}.darshan")
    (tmp_path / "0.darshan").write_bytes(single.read_bytes()[:100])
    return tmp_path


def test_a_folder_of_logs_has_the_jobs_of_its_logs(logs: Path) -> None:
    paths = {name: logs / f"{name}.darshan" for name in "0abc"}
    together = (paths["a"], paths["c"])
    assert group_jobs([logs]) == [(paths["0"],), together, (paths["b"],)]
    assert group_jobs([paths["c"], paths["b"], paths["a"]]) == [(paths["c"], paths["a"]), (paths["b"],)]
    assert "4 Darshan logs of 3 jobs" in str(refusal(logs))
    one, whole = open_trace([paths["a"]]), open_trace(together)
    assert len(whole.events.processes) == 2
    assert whole.counters[0].counts["OPENS"].sum() == 2 * one.counters[0].counts["OPENS"].sum()
    # Two programs of several ranks are two jobs, whatever their ids.
    shutil.copy(paths["b"], logs / "d.darshan")
    assert group_jobs([paths["b"], logs / "d.darshan"]) == [(paths["b"],), (logs / "d.darshan",)]
