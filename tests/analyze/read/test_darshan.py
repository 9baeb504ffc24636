"""Logs of Darshan as tables: counters of files, operations of DXT, and what the log has not seen."""

from __future__ import annotations

import importlib.util
import io
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.analyze.figures.counters import add_counters
from dliosim.analyze.figures.job import measure_figures
from dliosim.analyze.figures.view import View
from dliosim.analyze.read.darshan.counters import LogTrace
from dliosim.analyze.read.darshan.job import make_trace
from dliosim.analyze.read.darshan.log import Frame, read_frames, write_frame
from dliosim.analyze.read.open_trace import open_trace
from dliosim.errors import TraceError, UsageError
from dliosim.trace.events import KINDS, LAYERS

S = 1_000_000_000
LOG = Path("a.darshan")

#: Counters of POSIX in these tests.
COUNTS = ("POSIX_OPENS", "POSIX_READS", "POSIX_WRITES", "POSIX_STATS", "POSIX_BYTES_READ", "POSIX_RENAMED_FROM")


def job(**changes: Any) -> Frame:
    fields = {
        "id": 7,
        "begin": 100.0,
        "ranks": 4,
        "seconds": 10.0,
        "version": "3.41",
        "command": "app",
        "modules": {"POSIX": False},
    }
    return Frame("job", {**fields, **changes}, {})


def names(*paths: str) -> Frame:
    """Names of files, whose ids are 1 and so on."""
    return Frame("names", {str(number): path for number, path in enumerate(paths, 1)}, {})


def counters(*rows: tuple[int, int, dict[str, int]]) -> Frame:
    """Counters of POSIX: id, rank and what is not 0."""
    values = [[found.get(name.removeprefix("POSIX_"), 0) for name in COUNTS] for _, _, found in rows]
    arrays = {
        "ids": np.array([row[0] for row in rows], np.uint64),
        "ranks": np.array([row[1] for row in rows], np.int64),
        "counts": np.array(values, np.int64),
        "seconds": np.full((len(rows), 1), 1.5),
    }
    return Frame("counters", {"module": "POSIX", "counts": list(COUNTS), "seconds": ["POSIX_F_READ_TIME"]}, arrays)


def timed(seconds: float, **counts: int) -> Frame:
    """Counters of POSIX of one file and rank, with its time of reads."""
    frame = counters((1, 0, counts))
    return Frame(frame.kind, frame.fields, {**frame.arrays, "seconds": np.array([[seconds]])})


def operations(
    number: int, rank: int, writes: int, *rows: tuple[float, float, int, int], module: str = "DXT_POSIX"
) -> Frame:
    """Operations of one file and rank, writes first: begin and end in s, offset, length."""
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    arrays = {
        "start_time": columns[0].astype(float),
        "end_time": columns[1].astype(float),
        "offset": columns[2].astype(np.int64),
        "length": columns[3].astype(np.int64),
    }
    about = {"module": module, "id": str(number), "rank": rank, "host": "n1", "writes": writes}
    return Frame("operations", about, arrays)


END = Frame("end", {}, {})


def trace(*frames: Frame, **about: Any) -> LogTrace:
    return make_trace([job(**about), *frames], LOG)


def test_operations_are_events_in_order_of_rank_and_begin() -> None:
    found = trace(
        names("/a", "/b"),
        operations(2, 1, 1, (3.0, 3.5, 0, 7), (1.0, 2.0, 100, 8)),
        operations(1, 0, 0, (4.0, 4.25, 5, 9)),
        operations(1, 0, 0, (4.0, 5.0, 5, 9), module="DXT_MPIIO"),
    )
    events = found.events
    assert [
        (events.processes[events.process[row]].rank, KINDS[events.kind[row]], LAYERS[events.layer[row]])
        for row in range(len(events))
    ] == [(0, "read", "mpi-io"), (0, "read", "posix"), (1, "read", "posix"), (1, "write", "posix")]
    assert events.begin.tolist() == [4 * S, 4 * S, 1 * S, 3 * S]
    assert events.duration.tolist() == [S, S // 4, S, S // 2]
    assert [events.files[number] for number in events.file] == ["/a", "/a", "/b", "/b"]
    assert (events.offset.tolist(), events.moved.tolist()) == ([5, 5, 100, 0], [9, 9, 8, 7])
    assert (found.source, found.duration) == ("Darshan DXT", 10 * S)
    assert [process.host for process in events.processes] == ["n1", "n1", "", ""]


def test_counters_are_tables_without_events() -> None:
    found = trace(names("/a"), counters((1, -1, {"OPENS": 4}), (9, 3, {"READS": 2, "BYTES_READ": 64})))
    (table,) = found.counters
    assert (table.module, table.rank.tolist()) == ("POSIX", [-1, 3])
    assert [table.files[number] for number in table.file] == ["/a", f"(file {9:016x})"]
    assert (table.counts["OPENS"].tolist(), table.counts["BYTES_READ"].tolist()) == ([4, 0], [0, 64])
    assert table.seconds["F_READ_TIME"].tolist() == [1.5, 1.5]
    assert (found.source, len(found.events), len(found.events.processes)) == ("Darshan counters", 0, 4)
    assert any("DXT_ENABLE_IO_TRACE=1" in note for note in found.notes)


def test_pieces_of_a_module_are_one_table() -> None:
    (table,) = trace(names("/a", "/b"), counters((1, 0, {"OPENS": 1})), counters((2, 1, {"OPENS": 2}))).counters
    assert [(table.files[number], opens) for number, opens in zip(table.file, table.counts["OPENS"], strict=True)] == [
        ("/a", 1),
        ("/b", 2),
    ]


def test_logs_of_one_job_are_its_ranks_and_its_workers_on_one_clock() -> None:
    found = make_trace(
        [
            *(job(ranks=2), names("/a"), counters((1, -1, {"READS": 4, "BYTES_READ": 8})), END),
            *(job(ranks=1, begin=104.0), names("/a"), counters((1, -1, {"READS": 2, "BYTES_READ": 100}))),
            *(operations(1, 0, 0, (1.0, 2.0, 0, 100)), END),
            *(job(ranks=1, begin=99.0, seconds=14.0), names("/a"), operations(1, 0, 0, (2.0, 3.0, 0, 7)), END),
        ],
        LOG,
    )
    assert [one.rank for one in found.events.processes] == [0, 1, -1, -1]
    assert (found.events.process.tolist(), found.events.begin.tolist()) == ([2, 3], [6 * S, 2 * S])
    assert found.duration == 15 * S
    assert "3 logs of job 7, which ran at the same time" in found.notes
    figures = add_counters(View(found), measure_figures(View(found)))
    assert [one.read for one in figures.ranks] == [4, 4, 100, 0]  # a worker has no part of what the ranks share
    assert (figures.job.ranks, figures.job.processes) == (2, 4)


def test_logs_of_single_processes_alone_have_no_ranks() -> None:
    found = make_trace([job(ranks=1), END, job(ranks=1), END], LOG)
    assert [one.rank for one in found.events.processes] == [-1, -1]


@pytest.mark.parametrize(
    "row",
    [(2.0, 1.0, 0, 1), (-1.0, 1.0, 0, 1), (float("nan"), 1.0, 0, 1), (1.0, float("inf"), 0, 1), (1.0, 2.0, -1, 1)],
)
def test_impossible_operations_are_counted_and_said(row: tuple[float, float, int, int]) -> None:
    found = trace(names("/a"), operations(1, 0, 0, (1.0, 2.0, 0, 1), row))
    assert len(found.events) == 1
    assert found.left_out == {"unreadable": 1}
    assert any("1 operation of DXT have impossible" in sentence for sentence in found.incomplete)


@pytest.mark.parametrize("about", [{"ranks": 0}, {"ranks": 1 << 40}, {"seconds": -1.0}, {"seconds": float("nan")}])
def test_an_impossible_job_is_refused(about: dict[str, Any]) -> None:
    with pytest.raises(TraceError, match=r"a\.darshan is damaged"):
        trace(**about)


def test_a_rank_that_the_job_does_not_have_is_refused() -> None:
    for frame in (counters((1, 4, {})), operations(1, 4, 0, (1.0, 2.0, 0, 1))):
        with pytest.raises(TraceError, match="of rank 4 in a job of 4"):
            trace(frame)


def test_modules_that_are_not_complete_are_said() -> None:
    found = trace(modules={"POSIX": True, "STDIO": False, "HEATMAP": False})
    assert any("the counters of POSIX are not complete" in sentence for sentence in found.incomplete)
    assert "also in the log, and not used: HEATMAP" in found.notes


@pytest.mark.parametrize(("moved", "is_said"), [(99, False), (101, True)])
def test_bytes_that_may_be_counted_by_posix_and_by_dfs_are_said(moved: int, is_said: bool) -> None:
    posix = counters((1, 0, {"BYTES_READ": moved}))
    dfs = Frame(
        posix.kind, {"module": "DFS", "counts": ["DFS_BYTES_READ"], "seconds": []},
        {**posix.arrays, "counts": np.array([[1000]]), "seconds": np.zeros((1, 0))},
    )  # fmt: skip
    assert any("libpil4dfs" in each for each in trace(names("/a"), posix, dfs).incomplete) == is_said


def test_operations_that_dxt_lacks_are_said() -> None:
    rows = operations(1, 0, 0, (1.0, 2.0, 0, 1))
    assert trace(names("/a"), counters((1, 0, {"READS": 1})), rows).incomplete == ()
    (sentence,) = trace(names("/a"), counters((1, 0, {"READS": 2, "WRITES": 1})), rows).incomplete
    assert sentence == "DXT has 1 of the 3 reads and writes that POSIX counts: its memory was full"


PYTHON = (1, -1, {"OPENS": 4, "READS": 8, "BYTES_READ": 900})
LOOKED_AT = (2, -1, {"STATS": 4})
OTHER = (3, -1, {"OPENS": 1, "READS": 1, "BYTES_READ": 101})
PATHS = ("/lib/os.pyc", "/data/img_7_of_168.npz", "/etc/hosts")


def test_a_job_that_looked_at_samples_and_read_none_is_incomplete() -> None:
    """Reads of forked workers are in no log of an MPI job, and such a log looks like this one."""
    (sentence,) = trace(names(*PATHS), counters(PYTHON, LOOKED_AT), command="dlio read_threads=4").incomplete
    for part in ("img_7_of_168.npz was looked at 4 times and never read", "168", "900 B", "read_threads=4", "#872"):
        assert part in sentence


@pytest.mark.parametrize(
    ("rows", "command", "is_said"),
    [
        ((PYTHON, LOOKED_AT), "app", True),
        ((LOOKED_AT,), "app", False),  # nothing was read at all, and nothing points to workers
        ((LOOKED_AT,), "app num_workers=2", True),
        ((PYTHON, OTHER, LOOKED_AT), "app", False),  # 10.1 % of the bytes are not Python's
        ((PYTHON, OTHER, LOOKED_AT), "app --num_workers 8", True),
        ((PYTHON, OTHER, LOOKED_AT), "app num_workers=0", False),
        ((PYTHON, (2, 0, {"OPENS": 1, "READS": 1, "BYTES_READ": 5})), "app num_workers=2", False),
        ((PYTHON, (2, 0, {"OPENS": 1, "WRITES": 1})), "app num_workers=2", False),
        ((PYTHON,), "app num_workers=2", False),  # no file of samples was looked at
    ],
)
def test_other_jobs_are_not(rows: tuple[Any, ...], command: str, is_said: bool) -> None:
    found = trace(names(*PATHS), counters(*rows), command=command)
    assert bool(found.incomplete) == is_said


def test_workers_that_may_have_read_more_are_noted() -> None:
    read = (2, 0, {"OPENS": 1, "READS": 1, "BYTES_READ": 5})
    notes = trace(names(*PATHS), counters(PYTHON, read), command="app num_workers=2").notes
    assert any("num_workers=2" in note for note in notes)


@given(st.lists(st.tuples(st.text(max_size=5), st.lists(st.integers(-(1 << 63), (1 << 63) - 1)))), st.data())
def test_frames_are_read_as_written_and_cut_ones_are_found(
    found: list[tuple[str, list[int]]], data: st.DataObject
) -> None:
    out, ends = io.BytesIO(), [0]
    for kind, numbers in found:
        write_frame(out, kind, {"text": kind}, {"one": np.array(numbers, np.int64), "two": np.array([[0.5]])})
        ends.append(out.tell())
    length = data.draw(st.integers(0, ends[-1]))
    for cut in (ends[-1], length):
        frames: list[Frame] = []
        try:
            frames.extend(read_frames(io.BytesIO(out.getvalue()[:cut])))
        except ValueError:
            assert cut not in ends
        else:
            assert cut in ends
            assert [(frame.kind, frame.arrays["one"].tolist()) for frame in frames] == found[: ends.index(cut)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The first bytes of a log, which another program would read on."""
    path = tmp_path / "a.darshan"
    path.write_bytes(b"3.41\0\0\0\0" + (6567223).to_bytes(8, "little") + bytes(100))
    return path


def test_without_pydarshan_it_says_what_to_install(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "darshan", None)
    with pytest.raises(UsageError, match=r"pip install '\.\[darshan\]'"):
        open_trace([log])


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "PyDarshan crashed on it: SIGSEGV"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGALRM)", "took longer than"),
        ("bytearray(1 << 40)", "GiB of memory"),
        ("import os; os._exit(0)", "ended with 0"),
        ("raise ValueError('a\\x1b[2J fault')", "a\ufffd[2J fault"),
        ("raise AttributeError('counters')", "PyDarshan 3.5 or later is needed"),
        ("print('Error: from C', flush=True); raise ValueError('later')", "from C"),
    ],
)
def test_whatever_happens_to_the_reading_process_is_one_message(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, said: str
) -> None:
    backend = tmp_path / "fake" / "darshan" / "backend"
    backend.mkdir(parents=True)
    for place in (backend.parent, backend):
        (place / "__init__.py").write_text("")
    (backend / "cffi_backend.py").write_text(f"import sys\n{code}\n")
    monkeypatch.syspath_prepend(str(tmp_path / "fake"))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'fake'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with pytest.raises(TraceError) as caught:
        open_trace([log])
    assert f"{log} cannot be read: " in str(caught.value)
    assert said in str(caught.value)
    assert caught.value.exit_code == 1


@pytest.fixture(scope="module")
def example() -> Path:
    """A log of IOR with DXT that comes with PyDarshan."""
    if (found := importlib.util.find_spec("darshan")) is None or found.origin is None:
        pytest.skip("PyDarshan is not installed")
    return Path(found.origin).parent / "examples" / "example_logs" / "ior_hdf5_example.darshan"


def test_the_operations_of_a_real_log_add_up_to_its_counters(example: Path) -> None:
    found = open_trace([example])
    table = {one.module: one for one in found.counters}
    for layer, module in (("posix", "POSIX"), ("mpi-io", "MPI-IO")):
        for kind, counter in (("read", "BYTES_READ"), ("write", "BYTES_WRITTEN")):
            rows = (found.events.layer == LAYERS.index(layer)) & found.events.is_kind(kind)
            assert found.events.moved[rows].sum() == table[module].counts[counter].sum() > 0
    assert found.incomplete == ()


def test_the_stripe_counts_of_a_real_log_are_read(example: Path) -> None:
    (layouts,) = (one for one in open_trace([example]).counters if one.module == "LUSTRE")
    assert layouts.counts["STRIPE_COUNT"].tolist() == [1]


@pytest.mark.parametrize("share", [0.02, 0.7])
def test_a_cut_log_is_one_message(example: Path, tmp_path: Path, share: float) -> None:
    path, data = tmp_path / "cut.darshan", example.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(TraceError) as caught:
        open_trace([path])
    assert str(caught.value).count("error: ") == 1
    assert caught.value.exit_code == 1


@pytest.mark.parametrize("seconds", [-2662.7, float("nan"), float("inf")])
def test_a_time_that_is_none_counts_nothing_and_is_said(seconds: float) -> None:
    """Logs of Darshan 3.1 have negative times of STDERR."""
    trace = make_trace([job(), names("/data/a"), timed(seconds, READS=1)], LOG)
    found = add_counters(View(trace), measure_figures(View(trace)))
    assert [one.io for one in found.ranks] == [0.0] * 4
    assert any("negative or no number: 1;" in note for note in found.job.notes)


def test_counters_beyond_64_bits_are_damage() -> None:
    rows = [(1, rank, {"BYTES_READ": (1 << 63) - 1}) for rank in (0, 1)]
    with pytest.raises(TraceError, match="BYTES_READ adds up to more than 4 EiB"):
        make_trace([job(), names("/data/a"), counters(*rows)], LOG)
    # An id is no sum.
    assert make_trace([job(), names("/data/a"), counters((1, 0, {"RENAMED_FROM": (1 << 63) - 1}))], LOG).counters


def test_a_log_that_is_cut_before_its_modules_is_no_job_that_reads_nothing(example: Path, tmp_path: Path) -> None:
    """PyDarshan finds no record behind the end of a file, and says nothing."""
    log = tmp_path / "cut.darshan"
    content = example.read_bytes()
    for size in (1_198, 1_204, 1_232, 1_236, len(content) - 1):
        log.write_bytes(content[:size])
        with pytest.raises(TraceError):
            open_trace([log])
