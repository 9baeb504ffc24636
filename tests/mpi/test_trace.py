"""A run that is recorded: all of its operations, on any number of ranks, by every way to read and write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from dliosim.analyze.read.open_trace import open_trace
from dliosim.cli import main
from dliosim.trace.columns import CALL_COLUMNS, CHUNK_ROWS
from dliosim.trace.events import UNKNOWN, Events, Trace
from dliosim.trace.file import read_trace
from tests.analyze.export.exports import complete_events, find_crossing, read_documents
from tests.examples import ALL, in_turn
from tests.mpi.waiting import run_command, run_main

PATTERN = """\
dlio 1
workload recorded

dataset data {
    samples 23
    size    5 kB
    layout  shared file
    align   4 KiB
    path    "data"
}
checkpoint model {
    part weights 100 kB total
    path "model"
}
prepare data afresh
train loop {
    read       data
    epochs     2
    batch      2 per rank
    last batch keep
    SETTINGS
    checkpoint model every 2 steps
}
restore model
"""

LIBRARY = """\
dlio 1
workload hdf
dataset data {
    samples 6
    size    4 kB
    format  hdf5
    layout  2 files
    path    "data"
}
prepare data
train loop {
    read    data
    through library
}
"""

FOUR_LOOPS = """\
dlio 1
workload four_ways
dataset data {
    samples 23
    size    5 kB
    layout  shared file
    path    "data"
}
checkpoint model {
    part weights 100 kB total
    path "model"
    async on
}
prepare data
train plain {
    read  data
    batch 2 per rank
    checkpoint model every 2 steps
}
train read_ahead {
    read    data
    batch   2 per rank
    readers 2
}
train queued {
    read   data
    batch  4 per rank
    engine queued depth 4
}
train together {
    read  data
    batch 2 per rank
    api   mpi-collective
}
"""

WAYS = {
    "posix": "api posix",
    "readers": "api posix\n    readers 2",
    "by sample": "api posix\n    readers 2 by sample",
    "direct": "api posix\n    cache off",
    "mapped": "api posix\n    engine mmap",
    "queued": "api posix\n    engine queued depth 4",
    "independent": "api mpi-independent",
    "collective": "api mpi-collective",
    "one reader a node": "api posix\n    scatter by node",
}


def run(ranks: int, place: Path, settings: str, *options: str) -> Trace:
    """Run the pattern under --trace, with these settings of its loop; return the trace."""
    pattern = place / "recorded.dlio"
    pattern.write_text(PATTERN.replace("SETTINGS", settings))
    places = ["--dir", str(place / "data"), "--output", str(place / "out")]
    done = run_command(ranks, ["run", str(pattern), *places, *(options or ["--trace"])], place)
    assert done.returncode == 0, done.stderr
    return read_trace(place / "out" / "trace.h5")


def reads_of_epoch(events: Events, epoch: int) -> Events:
    return events.select(events.is_kind("read") & (events.epoch == epoch))


@pytest.mark.parametrize(
    ("way", "ranks"),
    [
        *in_turn([*WAYS], [3, 2]),
        *((way, 1) for way in (WAYS if ALL else ("posix",))),
        *((way, 5) for way in ("readers", "collective")),
    ],
)
def test_each_epoch_has_the_reads_of_all_samples(way: str, ranks: int, tmp_path: Path) -> None:
    trace = run(ranks, tmp_path, WAYS[way])
    events = trace.events
    assert trace.incomplete == ()
    for epoch in 1, 2:
        own = reads_of_epoch(events, epoch)
        assert (own.step >= 1).sum() == len(own.step[own.asked > 0])
        moved = int(own.moved.sum())
        # Calls that are widened to whole pages move what is around samples, too.
        assert moved == 23 * 5000 if way != "direct" else moved >= 23 * 5000
    assert [process.rank for process in events.processes] == list(range(ranks))
    in_checkpoint = np.isin(events.file, [i for i, path in enumerate(events.files) if path.endswith(".ckpt")])
    assert int(events.moved[events.is_kind("write") & ~in_checkpoint].sum()) >= 23 * 5000
    saves = 2 * max(1, -(-23 // (2 * ranks)) // 2)
    assert int(events.moved[events.is_kind("write") & in_checkpoint].sum()) == saves * 100_000
    assert int(events.moved[events.is_kind("read") & in_checkpoint].sum()) == 100_000
    assert (events.begin >= 0).all()
    assert (events.duration >= 0).all()
    assert (events.is_kind("phase")).sum() == 2 * ranks
    assert (events.is_kind("restore")).sum() == ranks
    assert (events.is_kind("epoch")).sum() == 2 * ranks


def test_a_part_of_a_run_is_recorded(tmp_path: Path) -> None:
    trace = run(3, tmp_path, WAYS["posix"], "--trace", "epochs 2, steps 2 to 3, ranks 1 to 2")
    events = trace.events
    own = events.select(events.is_kind("read") & (events.epoch > 0))
    assert (set(own.epoch.tolist()), set(own.step.tolist()), set(own.process.tolist())) == ({2}, {2, 3}, {1, 2})
    assert len(own) == 2 * 2 * 2
    assert trace.settings["loop"]["readers"] == "0"
    assert trace.settings["loop"]["checkpoint"] == "model"


def test_ranks_that_the_job_does_not_have_are_refused_before_it_runs(tmp_path: Path) -> None:
    pattern = tmp_path / "recorded.dlio"
    pattern.write_text(PATTERN.replace("SETTINGS", ""))
    words = ["run", str(pattern), "--dir", str(tmp_path / "data"), "--trace", "ranks 2 to 7"]
    done = run_command(2, words, tmp_path)
    assert done.returncode == 2
    assert "none of its ranks is in this job, which has 2 ranks" in done.stderr
    assert not (tmp_path / "data").exists()


def test_loops_that_run_once_more_without_io_are_in_no_trace(tmp_path: Path) -> None:
    events = run(2, tmp_path, "compute 1 ms", "--trace", "--with-null").events
    assert events.is_kind("epoch").sum() == 2 * 2
    assert events.is_kind("phase").sum() == 2 * 2
    assert sorted(set(events.step[events.is_kind("compute")].tolist())) == [1, 2, 3, 4, 5, 6]
    assert events.is_kind("compute").sum() == 2 * 2 * 6


def test_a_run_says_how_much_it_has_recorded(tmp_path: Path) -> None:
    pattern = tmp_path / "recorded.dlio"
    run(2, tmp_path, WAYS["posix"])
    data, out = str(tmp_path / "data"), str(tmp_path / "again")
    done = run_command(2, ["run", str(pattern), "--dir", data, "--output", out, "--trace"], tmp_path)
    events = read_trace(Path(out) / "trace.h5").events
    calls = int((~events.is_kind("compute", "data wait", "sync", "save", "restore", "phase", "epoch")).sum())
    assert f"trace: recorded {calls} of {calls} operations, " in done.stdout


@pytest.mark.parametrize("is_closed", [False, True])
def test_output_that_takes_no_more_costs_no_trace(is_closed: bool, tmp_path: Path) -> None:
    pattern, out = tmp_path / "recorded.dlio", tmp_path / "out"
    pattern.write_text(PATTERN.replace("SETTINGS", ""))
    program = "import sys; from dliosim.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "run", str(pattern), "--dir", str(tmp_path / "data")]
    command += ["--output", str(out), "--trace"]
    with Path("/dev/full").open("w") as full:
        stdout = subprocess.PIPE if is_closed else full
        job = subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True)
    assert job.stderr is not None
    if job.stdout is not None:
        job.stdout.readline()  # as `head -1` does
        job.stdout.close()
    errors = job.stderr.read()
    assert job.wait(60) == (0 if is_closed else 1)
    assert "a fault in dliosim" not in errors
    assert ("No space left on device" in errors) == (not is_closed)
    assert read_trace(out / "trace.h5").incomplete == ()


def test_a_trace_that_cannot_be_written_leaves_no_part_of_it(tmp_path: Path) -> None:
    pattern = tmp_path / "recorded.dlio"
    run(1, tmp_path, WAYS["posix"])
    out = tmp_path / "again"
    (out / "trace.part" / "kept").mkdir(parents=True)
    words = ["run", str(pattern), "--dir", str(tmp_path / "data"), "--output", str(out), "--trace"]
    done = run_command(2, words, tmp_path)
    assert done.returncode == 1
    assert "trace.part" in done.stderr
    assert (out / "results.json").exists()
    assert not (out / "trace.h5").exists()


def test_reads_by_the_library_are_recorded_as_such(tmp_path: Path) -> None:
    pattern = tmp_path / "hdf5.dlio"
    pattern.write_text(LIBRARY)
    out = tmp_path / "out"
    done = run_command(
        2, ["run", str(pattern), "--dir", str(tmp_path / "data"), "--output", str(out), "--trace"], tmp_path
    )
    assert done.returncode == 0, done.stderr
    events = read_trace(out / "trace.h5").events
    own = events.select(events.is_kind("read"))
    assert {events.names[name] for name in own.name.tolist()} == {"read by the library"}
    assert (len(own), int(own.moved.sum())) == (6, 24_000)
    assert set(own.offset.tolist()) == {UNKNOWN}


def test_decoding_is_a_span_of_the_reader_that_does_it(tmp_path: Path) -> None:
    settings = "readers 2 by batch in turn\n    decode on\n    preprocess 1 ms"
    events = run(3, tmp_path, settings).events
    assert (events.is_kind("decode").sum(), events.is_kind("preprocess").sum()) == (2 * 3 * 4, 2 * 3 * 4)
    own = events.select(events.is_kind("preprocess"))
    assert set(own.thread.tolist()) == {1, 2}
    assert set(own.step.tolist()) == {1, 2, 3, 4}
    reads = reads_of_epoch(events, 1)
    assert set(zip(own.thread.tolist(), own.step.tolist(), strict=True)) == set(
        zip(reads.thread.tolist(), reads.step.tolist(), strict=True)
    )


COMPRESSED = """\
dlio 1
workload packed
dataset data {
    samples  6
    size     4 kB
    format   npz
    compress gzip
    layout   file per sample
    path     "data"
}
checkpoint model {
    part     weights 100 kB total
    drain to slow
    path     "model"
}
prepare data
save model
"""


def test_what_no_log_can_see_is_counted_and_copies_to_another_tier_are_recorded(tmp_path: Path) -> None:
    pattern, out = tmp_path / "packed.dlio", tmp_path / "out"
    pattern.write_text(COMPRESSED)
    roots = ["--dir", str(tmp_path / "data"), "--root", f"slow={tmp_path / 'slow'}"]
    done = run_command(2, ["run", str(pattern), *roots, "--output", str(out), "--trace"], tmp_path)
    assert done.returncode == 0, done.stderr
    trace = read_trace(out / "trace.h5")
    (sentence,) = trace.notes
    missing = int(sentence.split()[0])
    seen = int((~trace.events.is_kind("phase", "save")).sum())
    assert missing >= 6
    assert f"recorded {seen} of {seen + missing} operations" in done.stdout
    copied = [number for number, path in enumerate(trace.events.files) if path.startswith(f"{tmp_path / 'slow'}")]
    assert int(trace.events.moved[trace.events.is_kind("write") & np.isin(trace.events.file, copied)].sum()) == 100_000


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_clocks_of_nodes_are_compared(ranks: int, tmp_path: Path) -> None:
    assert run_main(ranks, "tests.mpi.clock_program", tmp_path) == "clocks agree\n"


def test_the_file_of_a_trace_is_hdf5_that_anyone_reads(tmp_path: Path) -> None:
    run(3, tmp_path, WAYS["posix"])
    with h5py.File(tmp_path / "out" / "trace.h5") as file:
        asked = file["calls/asked"][()]
        assert 5000 in asked
        assert file["calls/asked"].compression == "gzip"
        assert "dliosim run" in file.attrs["command"]


def test_an_export_of_a_run_has_all_its_events_in_lanes_that_nest(tmp_path: Path) -> None:
    pattern, out = tmp_path / "four.dlio", tmp_path / "out"
    pattern.write_text(FOUR_LOOPS)
    places = ["--dir", str(tmp_path / "data"), "--output", str(out)]
    done = run_command(3, ["run", str(pattern), *places, "--trace"], tmp_path)
    assert done.returncode == 0, done.stderr
    export = tmp_path / "out.pfw.gz"
    assert main(["trace", "export", str(out), "-o", str(export)]) == 0
    documents = read_documents(export)
    before, after = read_trace(out / "trace.h5"), open_trace([export])
    assert len(complete_events(documents)) == len(before.events) == len(after.events)
    assert find_crossing(documents) is None
    lanes = {(one["pid"], one["args"]["name"]) for one in documents if one["name"] == "thread_name"}
    assert {((rank + 1) * 10_000, name) for rank in range(3) for name in ("steps", "I/O", "sync")} <= lanes
    # Of two readers the one that is free reads: one of them may read nothing.
    assert all(lanes & {((rank + 1) * 10_000, f"reader {number}") for number in (1, 2)} for rank in range(3))
    assert (after.duration, after.incomplete) == (before.duration, ())
    for column in "begin", "duration", "moved", "kind", "layer", "epoch", "step", "process":
        both = (np.sort(getattr(one.events, column)) for one in (before, after))
        assert np.array_equal(*both), column


@pytest.mark.parametrize(
    ("failing", "what", "message"),
    [
        (0, "spill", "rank 0: write failed on a file without a name"),
        (2, "spill", "rank 2: write failed on a file without a name"),
        (0, "read", "read failed on a file without a name"),
        (2, "read", "rank 2 cannot read what it had set aside"),
        (0, "begin", "write failed on"),
        (0, "write", "write failed on"),
    ],
)
def test_a_trace_of_which_a_part_is_lost_is_an_error_of_all_ranks_and_no_file(
    failing: int, what: str, message: str, tmp_path: Path
) -> None:
    *outcomes, left = run_main(3, "tests.mpi.trace_program", f"{failing}", what, tmp_path).splitlines()
    assert len(outcomes) == 3
    assert all(outcome.startswith("error") and message in outcome for outcome in outcomes)
    assert left == "[]"


def test_a_trace_that_was_set_aside_is_whole(tmp_path: Path) -> None:
    run_main(2, "tests.mpi.trace_program", "-1", "nothing", tmp_path)
    events = read_trace(tmp_path / "trace.h5").events
    for rank in 0, 1:
        draw = np.random.default_rng(rank)
        rows = [draw.integers(0, 20, CHUNK_ROWS) for _ in range(2 + rank) for _ in CALL_COLUMNS]
        offsets = np.concatenate(rows[list(CALL_COLUMNS).index("offset") :: len(CALL_COLUMNS)])
        found = events.select(events.process == rank)
        assert np.array_equal(np.sort(found.offset), np.sort(offsets))


def test_a_trace_ends_at_its_limit_and_says_what_is_beyond(tmp_path: Path) -> None:
    trace = run(2, tmp_path, "api posix\n    transfer 1 B", "--trace", "at most 200 kB")
    assert any("calls were recorded" in sentence for sentence in trace.incomplete)
    assert len(trace.events) > 0
    assert (tmp_path / "out" / "trace.h5").stat().st_size < 300_000
