"""Traces of DFTracer as tables: every event once, at its time, on its file, with its bytes."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dliosim.analyze.read.dftracer.calls import classify_call
from dliosim.analyze.read.open_trace import open_trace
from dliosim.trace.events import KINDS, LAYERS, Events, Trace
from tests.analyze.read.pfw import HOST, event, named, write_trace

US = 1_000

#: Kinds of some calls.
CALLS = {
    "pread": "read",
    "pwrite64": "write",
    "open64": "open",
    "close": "close",
    "__xstat64": "metadata",
    "fork": "other",
}


def rows(events: Events, *columns: str) -> list[tuple[int, ...]]:
    return [tuple(row) for row in zip(*(getattr(events, name).tolist() for name in columns), strict=True)]


def read_lines(place: Path, *documents: dict[str, Any], **form: Any) -> Trace:
    return open_trace([write_trace(place / "a.pfw", documents, **form)])


# Values in order: call, begin and duration in us, file, offset, bytes asked and returned, pid, thread.
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(sorted(CALLS)),
        st.integers(0, 1 << 40),
        st.integers(0, 1 << 30),
        st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=8),
        st.integers(0, 1 << 50),
        st.integers(0, 1 << 31),
        st.integers(-1, 1 << 31),
        st.integers(1, 3),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=30,
)


@given(EVENTS, st.sampled_from(("names", "hashes", "texts", "version 2")), st.integers(0, 4))
def test_what_was_written_is_read(found: list[tuple[Any, ...]], form: str, members: int) -> None:
    version = 2 if form == "version 2" else 1
    documents, hashes = [named("HH", 7, HOST, version)], {}
    for name, begin, duration, file, offset, count, ret, pid, tid in found:
        args: dict[str, Any] = {"hhash": 7, "offset": offset, "count": count, "ret": ret, "pid": pid, "tid": tid}
        if form in ("names", "texts"):
            args["fname"] = file
        else:
            if file not in hashes:
                hashes[file] = f"{len(hashes) + 1:016x}" if version == 2 else (1 << 63) + len(hashes)
                documents.append(named("FH", hashes[file], file, version))
            args["fhash"] = hashes[file]
        document = event(name, begin, duration, version=version, **args)
        if form == "texts":
            document = {**document, **{key: str(document[key]) for key in ("id", "pid", "tid", "ts", "dur")}}
            document["args"].update({key: str(document["args"][key]) for key in ("offset", "count", "ret")})
        documents.append(document)
    with tempfile.TemporaryDirectory() as place:
        trace = open_trace([write_trace(Path(place) / "a.pfw", documents, version, members)])
    events = trace.events
    pids = [process.pid for process in events.processes]
    threads = {pid: sorted({row[8] for row in found if row[7] == pid}) for pid in pids}
    start = min(row[1] for row in found)
    read = sorted(
        (
            events.names[events.name[row]],
            KINDS[events.kind[row]],
            int(events.begin[row]),
            int(events.duration[row]),
            events.files[events.file[row]],
            pids[events.process[row]],
            threads[pids[events.process[row]]][events.thread[row]],
            int(events.asked[row]),
            int(events.moved[row]),
        )
        for row in range(len(events))
    )
    moves = {name: CALLS[name] in ("read", "write") for name in CALLS}
    written = sorted(
        (
            *(name, CALLS[name], (begin - start) * US, duration * US, file, pid, tid),
            *((count, max(ret, 0)) if moves[name] else (-1, -1)),
        )
        for name, begin, duration, file, _, count, ret, pid, tid in found
    )
    assert read == written
    assert trace.incomplete == ()
    assert {process.host for process in events.processes} == {HOST}
    is_move = events.is_kind("read", "write")
    assert sorted(events.offset[is_move].tolist()) == sorted(row[4] for row in found if moves[row[0]])


def test_rows_are_in_order_of_process_and_begin_and_what_encloses_comes_first(tmp_path: Path) -> None:
    events = read_lines(
        tmp_path,
        event("pread", 5, 1, pid=2),
        event("pread", 10, 2, pid=1),
        event("HDF5Reader.open", 10, 9, "reader", pid=1),
        event("pread", 1, 1, pid=1),
    ).events
    assert rows(events, "process", "begin", "duration") == [
        (0, 0, 1 * US),
        (0, 9 * US, 9 * US),
        (0, 9 * US, 2 * US),
        (1, 4 * US, 1 * US),
    ]


def test_every_line_is_counted(tmp_path: Path) -> None:
    documents = [named("FH", 1, "/a"), event("pread", 0, 1), {"ph": "C", "name": "cpu"}, {"ph": 3, "name": "read"}]
    trace = read_lines(tmp_path, *documents)
    assert trace.left_out == {"metadata": 1, "counters": 1, "sums over time": 1}
    assert trace.notes[0] == "1 of 4 lines are events; 1 metadata, 1 counters, 1 sums over time"
    assert any("DFTRACER_ENABLE_AGGREGATION" in sentence for sentence in trace.incomplete)


def test_the_unit_of_version_2_is_used(tmp_path: Path) -> None:
    for unit, ns in (("NS", 1), ("US", 1_000), ("MS", 1_000_000)):
        metric = named("CM", unit, "time_metric", 2)
        first = {**event("pread", 0, 3, version=2), "ts": 5}
        last = {**event("pread", 0, 4, version=2), "ts": 9}
        assert read_lines(tmp_path, metric, first, last, version=2).duration == 8 * ns


def test_times_with_a_fraction_are_kept_to_the_ns(tmp_path: Path) -> None:
    first, last = ({**event("pread", 0, 0), "ts": at, "dur": 0.5} for at in (10.25, 20.0))
    assert rows(read_lines(tmp_path, first, last).events, "begin", "duration") == [(0, 500), (9_750, 500)]


def test_items_of_stdio_are_counted_in_bytes(tmp_path: Path) -> None:
    events = read_lines(tmp_path, event("fread", 0, 1, "STDIO", fname="/a", size=8, count=10, ret=7)).events
    assert rows(events, "asked", "moved") == [(80, 56)]


def test_a_vector_call_does_not_say_how_many_bytes_it_asks_for(tmp_path: Path) -> None:
    events = read_lines(tmp_path, event("readv", 0, 1, fname="/a", count=3, ret=100)).events
    assert rows(events, "asked", "moved") == [(-1, 100)]


def test_a_failed_read_moves_nothing_and_is_said(tmp_path: Path) -> None:
    trace = read_lines(tmp_path, event("pread", 0, 1, fname="/a", count=5, ret=-1))
    assert rows(trace.events, "asked", "moved") == [(5, 0)]
    assert any(note == "calls that failed: 1" for note in trace.notes)


def test_reads_without_sizes_make_a_trace_incomplete(tmp_path: Path) -> None:
    trace = read_lines(tmp_path, event("pread", 0, 1, fname="/a"))
    assert rows(trace.events, "moved") == [(-1,)]
    assert any("DFTRACER_INC_METADATA=1" in sentence for sentence in trace.incomplete)


def test_a_forked_process_uses_the_names_of_its_parent(tmp_path: Path) -> None:
    parent = write_trace(tmp_path / "p.pfw", [named("FH", 5, "/data/a"), event("open", 0, 1, pid=1, fhash=5)])
    child = write_trace(tmp_path / "q.pfw", [event("pread", 2, 1, pid=2, fhash=5, ret=4, count=4)])
    trace = open_trace([parent, child])
    assert trace.events.files == ("/data/a",)
    assert trace.incomplete == ()


def test_the_same_hash_in_two_files_may_stand_for_two_names(tmp_path: Path) -> None:
    """Version 1.0.5 has 16 bits of hash."""
    paths = [
        write_trace(tmp_path / f"{name}.pfw", [named("FH", 5, name), event("open", 0, 1, pid=pid, fhash=5)])
        for pid, name in enumerate("ab")
    ]
    events = open_trace(paths).events
    assert [events.files[number] for number in events.file] == ["a", "b"]


def test_a_hash_that_nothing_names_is_said(tmp_path: Path) -> None:
    trace = read_lines(tmp_path, event("open", 0, 1, fhash=99), event("open", 0, 1, fhash=0))
    assert trace.events.files == ("(file 99)",)
    assert trace.events.file.tolist() == [0, -1]
    assert any(sentence == "events on files that no line names: 1" for sentence in trace.incomplete)


def test_a_folder_is_one_job_and_ranks_are_those_of_the_names(tmp_path: Path) -> None:
    for rank in (1, 0):
        write_trace(tmp_path / f"trace-{rank}-of-2.pfw.gz", [event("pread", rank, 1, pid=50 - rank)], members=2)
    events = open_trace([tmp_path]).events
    assert [(process.rank, process.pid) for process in events.processes] == [(0, 50), (1, 49)]


def test_workers_have_the_rank_of_the_process_that_started_them(tmp_path: Path) -> None:
    rank = write_trace(tmp_path / "trace-5-of-8-4ef0-app.pfw", [event("pread", 0, 1, pid=50)])
    starts = [event("start", 0, 0, "dftracer", pid=pid, ppid=ppid) for pid, ppid in ((51, 50), (52, 51), (60, 1))]
    workers = [write_trace(tmp_path / f"{one['pid']}.pfw", [one]) for one in starts]
    later = write_trace(tmp_path / "later.pfw", [event("pread", 9, 1, pid=51)])
    processes = open_trace([*workers, rank, later]).events.processes
    assert [(process.rank, process.pid) for process in processes] == [(5, 50), (5, 51), (5, 52), (-1, 60)]


def test_ranks_whose_processes_have_the_same_id_are_two(tmp_path: Path) -> None:
    """Each rank has a container of its own, whose first process is 1."""
    one, other = (write_trace(tmp_path / f"trace-{rank}-of-2.pfw", [event("read", 0, 1, pid=1)]) for rank in (0, 1))
    worker = [event("start", 0, 0, "dftracer", pid=2, ppid=1), event("read", 0, 1, pid=2)]
    write_trace(tmp_path / "trace-1-of-2-5f-spawn.pfw", worker)
    trace = open_trace([one, other, tmp_path / "trace-1-of-2-5f-spawn.pfw"])
    assert [(each.rank, each.pid) for each in trace.events.processes] == [(0, 1), (1, 1), (1, 2)]


def test_processes_of_hosts_whose_names_are_missing_are_of_different_ones(tmp_path: Path) -> None:
    paths = [write_trace(tmp_path / f"{number}.pfw", [event("read", 0, 1, pid=1, hhash=number)]) for number in (7, 8)]
    processes = open_trace(paths).events.processes
    assert [each.host for each in processes] == ["(host 7)", "(host 8)"]


def test_a_process_of_another_node_is_no_parent(tmp_path: Path) -> None:
    rank = write_trace(tmp_path / "trace-5-of-8.pfw", [event("pread", 0, 1, pid=50, hostname="node1")])
    start = event("start", 0, 0, "dftracer", pid=51, ppid=50, hostname="node2")
    processes = open_trace([rank, write_trace(tmp_path / "a.pfw", [start])]).events.processes
    assert [process.rank for process in processes] == [5, -1]


def test_processes_that_are_each_others_parents_have_no_rank(tmp_path: Path) -> None:
    starts = [event("start", 0, 0, "dftracer", pid=pid, ppid=ppid) for pid, ppid in ((1, 2), (2, 1))]
    assert [process.rank for process in read_lines(tmp_path, *starts).events.processes] == [-1, -1]


def test_a_trace_that_was_compressed_later_counts_once(tmp_path: Path) -> None:
    write_trace(tmp_path / "a.pfw", [event("pread", 0, 1)])
    write_trace(tmp_path / "a.pfw.gz", [event("pread", 0, 1)], members=1)
    assert len(open_trace([tmp_path]).events) == 1
    assert len(open_trace([tmp_path / "a.pfw", tmp_path / "." / "a.pfw"]).events) == 1


@pytest.mark.parametrize(
    ("category", "name", "kind", "layer"),
    [
        ("POSIX", "__lxstat", "metadata", "posix"),
        ("STDIO", "fwrite", "write", "stdio"),
        ("POSIX", "fdatasync", "fsync", "posix"),
        ("reader", "HDF5Reader.get_sample", "load", "reader"),
        ("reader", "FormatReader.preprocess", "preprocess", "reader"),
        ("data_loader", "loop.iter", "data wait", "application"),
        ("data_loader", "loop.yield", "other", "application"),
        ("dataloader", "fetch.iter", "data wait", "application"),
        ("data_loader", "TorchDataset.__getitem__", "load", "loader"),
        ("ai_framework", "TorchFramework.compute", "compute", "application"),
        ("ai_framework", "TorchFramework.trace_object", "other", "application"),
        ("compute", "backward", "compute", "application"),
        ("checkpoint", "PyTorchCheckpointing.save_checkpoint", "save", "checkpoint"),
        ("checkpoint", "PyTorchCheckpointing.load_checkpoint", "restore", "checkpoint"),
        ("checkpoint", "PyTorchCheckpointing.save_state", "other", "checkpoint"),
        ("dlio_benchmark", "DLIOBenchmark._train", "epoch", "application"),
        ("MPI", "MPI_File_read_at_all", "read", "mpi-io collective"),
        ("MPI", "MPI_File_write_at", "write", "mpi-io"),
        ("comm", "all_reduce", "sync", "application"),
        ("mine", "read", "other", "application"),
    ],
)
def test_names_have_kinds_and_layers(category: str, name: str, kind: str, layer: str) -> None:
    number, place = classify_call(category, name)
    assert (KINDS[number], LAYERS[place]) == (kind, layer)


def test_epochs_and_steps_follow_the_epochs_of_the_process(tmp_path: Path) -> None:
    """DLIO names the epoch of a computation 0, and does not record the last wait of an epoch."""
    documents = []
    for at in (0, 100):
        documents += [event("DLIOBenchmark._train", at, 90, "dlio_benchmark", epoch="7")]
        documents += [event("loop.iter", at + 10, 5, "data_loader", step="9")]
        documents += [event("TorchFramework.compute", at + begin, 5, "ai_framework", epoch="0") for begin in (20, 40)]
        documents += [event("pread", at + 11, 1, fname="/a", epoch="train")]
    documents += [event("pread", 95, 1, fname="/a")]
    events = read_lines(tmp_path, *documents).events
    of = {name: number for number, name in enumerate(events.names)}
    found = rows(events, "name", "epoch", "step")
    assert [row[1:] for row in found if row[0] == of["TorchFramework.compute"]] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert [row[1:] for row in found if row[0] == of["loop.iter"]] == [(1, 1), (2, 1)]
    assert [row[1:] for row in found if row[0] == of["pread"]] == [(1, -1), (-1, -1), (2, -1)]


def test_computations_that_are_not_one_a_step_have_no_step(tmp_path: Path) -> None:
    documents = [event("epoch.block", 0, 90, "pipeline"), event("fetch.iter", 1, 1, "dataloader")]
    documents += [event("forward", begin, 1, "compute") for begin in (10, 20, 30)]
    events = read_lines(tmp_path, *documents).events
    assert events.step[events.is_kind("compute")].tolist() == [-1, -1, -1]
    assert events.step[events.is_kind("data wait")].tolist() == [1]


def test_processes_without_epochs_keep_the_numbers_of_their_events(tmp_path: Path) -> None:
    documents = [event("_train", 0, 90, "dlio_benchmark", pid=1), event("pread", 5, 1, pid=2, epoch=3, step=4)]
    events = read_lines(tmp_path, *documents).events
    assert rows(events, "process", "epoch", "step") == [(0, 1, -1), (1, 3, 4)]


def offsets(place: Path, *calls: tuple[Any, ...]) -> list[int]:
    """The offsets of reads, from calls of (name, args) in order of time."""
    documents = [event(name, at, 1, **{"fname": "/a", **args}) for at, (name, args) in enumerate(calls)]
    events = read_lines(place, *documents).events
    found: list[int] = events.offset[events.is_kind("read", "write")].tolist()
    return found


OPEN, CLOSE = ("open", {"ret": 3, "flags": 0}), ("close", {"ret": 0})
READ = ("read", {"ret": 10, "count": 10})


def test_reads_are_at_the_position_of_the_file(tmp_path: Path) -> None:
    seek = ("lseek", {"ret": 100, "offset": 100})
    assert offsets(tmp_path, OPEN, READ, READ, seek, READ, CLOSE, OPEN, READ) == [0, 10, 100, 0]


def test_a_read_with_an_offset_does_not_move_the_position(tmp_path: Path) -> None:
    assert offsets(tmp_path, OPEN, READ, ("pread", {"ret": 5, "count": 5, "offset": 50}), READ) == [0, 50, 10]


@pytest.mark.parametrize(
    "calls",
    [
        (READ,),  # opened before the trace began
        (OPEN, CLOSE, READ),
        (OPEN, OPEN, READ),  # of two descriptors it may be either
        (OPEN, OPEN, CLOSE, READ),
        (("open", {"ret": 3, "flags": 0o2001}), ("write", {"ret": 10, "count": 10})),
        (("open", {"ret": -1, "flags": 0}), READ),
        (OPEN, ("lseek", {"offset": 5}), READ),
    ],
)
def test_a_position_that_is_not_certain_is_not_claimed(tmp_path: Path, calls: tuple[tuple[Any, ...], ...]) -> None:
    assert offsets(tmp_path, *calls)[-1] == -1


#: Calls in order: their names, the file of each, and what each returns.
FOLLOWED = st.tuples(st.sampled_from(("open", "close", "read", "seek")), st.integers(0, 1), st.integers(0, 9))


@given(st.lists(FOLLOWED, max_size=40))
def test_positions_are_those_of_a_process_that_is_followed_call_by_call(calls: list[tuple[str, int, int]]) -> None:
    expected, handles, position = [], {0: 0, 1: 0}, {0: -1, 1: -1}
    documents = []
    for at, (what, file, number) in enumerate([("read", 0, 1), *calls]):
        args: dict[str, Any] = {"fname": f"/{file}", "ret": number}
        if what == "open":
            handles[file] += 1
            position[file] = 0 if handles[file] == 1 else -1
        elif what == "close":
            handles[file] -= 1
            position[file] = -1
        elif what == "seek":
            position[file] = number if handles[file] == 1 else -1
        else:
            expected.append(position[file] if handles[file] == 1 else -1)
            position[file] += number if expected[-1] >= 0 else 0
        documents.append(event({"seek": "lseek"}.get(what, what), at, 0, **args))
    with tempfile.TemporaryDirectory() as place:
        events = read_lines(Path(place), *documents).events
    assert events.offset[np.isin(events.kind, KINDS.index("read"))].tolist() == expected


def test_functions_of_training_without_a_call_on_a_file_are_incomplete(tmp_path: Path) -> None:
    """A program whose functions were traced, without the library that is preloaded."""
    functions = [event("forward", 0, 5, "compute"), event("fetch.iter", 5, 5, "dataloader")]
    assert any("LD_PRELOAD" in one for one in open_trace([write_trace(tmp_path / "a.pfw", functions)]).incomplete)
    with_calls = write_trace(tmp_path / "b.pfw", [*functions, event("read", 1, 1, ret=5)])
    assert open_trace([with_calls]).incomplete == ()


def test_copies_of_events_that_forked_workers_wrote_again_are_dropped_and_counted(tmp_path: Path) -> None:
    started = event("start", 0, 0, "dftracer")
    parent = [started, event("compute", 0, 5, "ai_framework"), event("pread", 5, 0, fname="/a", ret=1)]
    others = [{**parent[2], "args": {"fname": "/a", "ret": 1, "index": 2}}, event("pread", 9, 1, tid=101)]
    write_trace(tmp_path / "a.pfw", [*parent, others[0], *parent, others[1], *parent])
    write_trace(tmp_path / "b.pfw", [*parent, event("pread", 9, 1, pid=101)])
    trace = open_trace([tmp_path])
    assert sorted(trace.events.names[number] for number in trace.events.name) == ["compute", *["pread"] * 4, "start"]
    assert trace.left_out["copies"] == 9
    assert any("9 events are exact copies" in note for note in trace.notes)


def test_where_a_process_has_the_id_0_ids_are_ranks_and_threads_are_processes(tmp_path: Path) -> None:
    rows = [event("pread", 0, 1, pid=pid, tid=tid) for pid, tid in ((0, 900), (0, 901), (1, 800))]
    events = open_trace([write_trace(tmp_path / "a.pfw", rows)]).events
    assert [(one.rank, one.pid) for one in events.processes] == [(0, 900), (0, 901), (1, 800)]
    assert (events.process.tolist(), events.thread.tolist()) == ([0, 1, 2], [0, 0, 0])
