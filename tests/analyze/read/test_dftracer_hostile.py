"""Traces of DFTracer that are cut, damaged or made to harm: counted and said, or refused with one message."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from dliosim.analyze.read.dftracer.lines import MAX_LINE
from dliosim.analyze.read.open_trace import open_trace
from dliosim.errors import TraceError
from tests.analyze.read.pfw import event, line, named, write_trace

GOOD, SECOND, THIRD = (line(event("pread", 0, 1, fname="/a", ret=4, count=4)) for _ in range(3))


def write(place: Path, *lines: bytes) -> Path:
    path = place / "a.pfw"
    path.write_bytes(b"\n".join([b"[", *lines, b""]))
    return path


def bad(**changes: Any) -> bytes:
    """A line of an event with some values replaced."""
    document = event("pread", 0, 1, fname="/a", ret=4, count=4)
    args = {**document["args"], **changes.pop("args", {})}
    return json.dumps({**document, **changes, "args": args}).encode()


@pytest.mark.parametrize(
    "text",
    [
        bad(dur=-1),
        bad(ts=-5),
        bad(ts=1 << 63),
        bad(dur=1 << 62),
        bad(ts=float("nan")),
        bad(ts=float("inf")),
        bad(ts=[1]),
        bad(ts=None),
        bad(name=None),
        bad(name=["pread"]),
        bad(tid="x"),
        bad(ph=None),
        bad(args={"ret": 1 << 63}),
        bad(args={"ret": 1 << 70}),
        bad(args={"offset": float("nan")}),
        bad(args={"offset": -1 << 62}),
        bad(args={"hhash": {}}),
        bad(args={"fname": []}),
        b'{"ph":"X"}',
        b"[1,2]",
        b"7",
        b'"pread"',
        b"not JSON",
        b'{"a":1}}',
        b'{"a":1},{"b":2}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"ts":' + b"9" * 5_000 + b"}",
        b"\x00\xff\xfe",
    ],
    ids=lambda text: text[:40].decode(errors="replace") + str(len(text)),
)
def test_a_line_that_is_no_event_is_counted_and_the_others_are_read(tmp_path: Path, text: bytes) -> None:
    trace = open_trace([write(tmp_path, GOOD, SECOND, text, THIRD)])
    assert len(trace.events) == 3
    assert trace.left_out["unreadable"] == 1
    assert sum("lines that cannot be read: 1 (" in sentence for sentence in trace.incomplete) == 1


def test_a_start_without_a_command_that_can_be_one_is_a_start(tmp_path: Path) -> None:
    for command in ([], {}, None, 1.5, "absent"):
        trace = open_trace([write(tmp_path, line(event("start", 0, 0, "dftracer", cmd_hash=command)))])
        assert (len(trace.events), trace.command) == (1, "")


def test_two_lines_that_are_one_object_together_are_two_bad_lines(tmp_path: Path) -> None:
    half = GOOD.index(b',"cat"')
    trace = open_trace([write(tmp_path, GOOD, SECOND[:half], SECOND[half + 1 :])])
    assert len(trace.events) == 1
    assert trace.left_out["unreadable"] == 2


def test_names_that_are_no_utf8_are_names(tmp_path: Path) -> None:
    events = open_trace([write(tmp_path, GOOD.replace(b"/a", b"/\xff"), GOOD.replace(b"/a", b"/\xfe"))]).events
    assert len(events.files) == 2


def test_a_cut_last_line_is_said_and_is_no_bad_line(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD, SECOND)
    path.write_bytes(path.read_bytes()[:-20])
    trace = open_trace([path])
    assert len(trace.events) == 1
    assert trace.left_out == {"cut": 1}
    assert trace.incomplete == ("the last line of a.pfw is cut: the process was killed or is still running",)


def test_a_last_line_without_newline_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.pfw").write_bytes(GOOD + b"\n" + SECOND)
    trace = open_trace([tmp_path / "a.pfw"])
    assert (len(trace.events), trace.incomplete) == (2, ())


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_cut_gzip_member_gives_what_is_before_the_cut(tmp_path: Path, share: float) -> None:
    lines = [line(event("pread", number * 7919 % 1000, number, fname=f"/{number}")) for number in range(200)]
    data = b"".join(gzip.compress(b"\n".join(lines[at : at + 100]) + b"\n") for at in (0, 100))
    path = tmp_path / "a.pfw.gz"
    path.write_bytes(data[: int(len(data) * share)])
    trace = open_trace([path])
    assert 0 < len(trace.events) < 200
    assert sum("is cut" in sentence for sentence in trace.incomplete) == 1


def test_a_damaged_gzip_member_gives_what_is_before_the_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.pfw.gz"
    path.write_bytes(gzip.compress(GOOD + b"\n") + b"\x1f\x8b\x08 damaged beyond repair")
    trace = open_trace([path])
    assert len(trace.events) == 1
    assert any("cannot be inflated" in sentence for sentence in trace.incomplete)


def test_zeros_after_the_last_gzip_member_are_padding(tmp_path: Path) -> None:
    path = tmp_path / "a.pfw.gz"
    path.write_bytes(gzip.compress(GOOD + b"\n") + bytes(512))
    assert open_trace([path]).incomplete == ()


def test_a_gzip_bomb_of_one_line_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.pfw.gz"
    path.write_bytes(gzip.compress(GOOD + b"\n{" + b" " * (64 << 20) + b"}\n" + SECOND + b"\n"))
    tracemalloc.start()
    try:
        trace = open_trace([path])
        assert tracemalloc.get_traced_memory()[1] < 16 * MAX_LINE
    finally:
        tracemalloc.stop()
    assert len(trace.events) == 2
    assert trace.left_out["unreadable"] == 1


@pytest.mark.parametrize("length", [MAX_LINE - 1, MAX_LINE, MAX_LINE + 1, 2 * MAX_LINE])
def test_the_limit_of_a_line_does_not_depend_on_where_it_is(tmp_path: Path, length: int) -> None:
    for before in (0, 1000):
        long = GOOD[:-1] + b" " * (length - len(GOOD)) + b"}"
        short = [GOOD.replace(b'"id":', b'"id":%d' % (number + 10)) for number in range(before + 2)]
        trace = open_trace([write(tmp_path, *short[1:], long, short[0])])
        assert len(trace.events) == before + 2 + (length <= MAX_LINE)


def test_a_file_without_an_event_is_refused(tmp_path: Path) -> None:
    for lines in ((), (line(named("FH", 1, "/a")),), (b"nonsense",) * 3):
        with pytest.raises(TraceError, match="has no event of DFTracer"):
            open_trace([write(tmp_path, *lines)])


def test_a_file_of_nonsense_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"is no trace of DFTracer: .*not JSON"):
        open_trace([write(tmp_path, *[b"nonsense"] * 30_000)])


def test_a_killed_process_is_said(tmp_path: Path) -> None:
    start = event("start", 0, 0, "dftracer")
    end = event("end", 9, 0, "dftracer", num_events=1)
    whole = write_trace(tmp_path / "whole.pfw", [start, end])
    assert open_trace([whole]).incomplete == ()
    killed = write_trace(tmp_path / "killed.pfw", [{**start, "pid": 2}])
    assert open_trace([whole, killed]).incomplete == (
        "killed.pfw has no end event: the process was killed or is still running",
    )


def test_lines_that_were_lost_are_said(tmp_path: Path) -> None:
    end = event("end", 9, 0, "dftracer", num_events=10)
    trace = open_trace([write_trace(tmp_path / "a.pfw", [event("pread", 0, 1, ret=1), end])])
    assert any("lines lost: 8;" in sentence for sentence in trace.incomplete)


def test_an_empty_file_of_a_job_is_noted(tmp_path: Path) -> None:
    write_trace(tmp_path / "a.pfw", [event("pread", 0, 1, ret=1)])
    (tmp_path / "b.pfw.gz").write_bytes(b"")
    trace = open_trace([tmp_path])
    assert any("b.pfw.gz has no line" in note for note in trace.notes)
