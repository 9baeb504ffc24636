"""A trace for Perfetto, in the form of DFTracer's version 1: an event a line, ranks as processes, and counters.

`dliosim analyze` reads it again: kinds and layers that category and name would not say are the category themselves.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dliosim.analyze.arrays import Ints, split_blocks, split_processes, spread_amounts
from dliosim.analyze.export.tables import TextOutput, encode_text, open_text, rank_of
from dliosim.analyze.read.dftracer.calls import VECTOR_CALLS, kind_of_call, plain_call
from dliosim.errors import ExecutionError
from dliosim.readable import size
from dliosim.trace.events import KINDS, LAYERS, UNKNOWN, Events, Trace, kind_number

#: Kinds below this are operations on files.
_OPERATIONS: Final = kind_number("compute")
_SPANS, _IO, _SYNC, _OTHERS = range(4)
_MAIN: Final = ("steps", "I/O", "sync")
#: Threads from here on save in the background, in traces of dliosim.
_BACKGROUND: Final = 1000


#: Name and thread of each lane of a process.
Names: TypeAlias = dict[int, tuple[str, int]]


def assign_lanes(events: Events, has_readers: bool) -> tuple[Ints, Names]:
    """Return the lane of each event of a process, (n,), and all lanes; events are in order of begin, the longer first.

    Threads are called readers if `has_readers` is true, as in a run of dliosim.
    """
    threads = np.unique(np.append(events.thread, 0))
    main = np.where(events.kind < _OPERATIONS, _IO, np.where(events.is_kind("sync"), _SYNC, _SPANS))
    group = np.where(events.thread == threads[0], main, _OTHERS - 1 + np.searchsorted(threads, events.thread))
    names = {number: (name, int(threads[0])) for number, name in enumerate(_MAIN)}
    names |= {
        _OTHERS + number: (_name_thread(thread, has_readers), thread)
        for number, thread in enumerate(threads[1:].tolist())
    }
    # An operation is not within another one of its layer: both are under way, and both are to be seen.
    layer = np.where(events.kind < _OPERATIONS, events.layer, -1)
    lane = group.astype(np.int64)
    following = len(names)
    for number in tuple(names):
        rows = np.flatnonzero(group == number)
        crowded = rows[_overlaps(events.begin[rows], events.end[rows])]
        columns = (each[crowded].tolist() for each in (events.begin, events.end, layer))
        extra = np.array(_stack_events(zip(*columns, strict=True)), np.int64)
        lane[crowded] = np.where(extra > 0, following - 1 + extra, number)
        name, thread = names[number]
        for more in range(int(extra.max(initial=0))):
            names[following] = f"{name}, {more + 2} under way", thread
            following += 1
    return lane, names


def _name_thread(thread: int, has_readers: bool) -> str:
    if not has_readers:
        return f"thread {thread}"
    return f"reader {thread}" if thread < _BACKGROUND else f"background {thread - _BACKGROUND}"


def _overlaps(begin: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which events, in order of begin, are under way together with another one; (n,)."""
    latest = np.maximum.accumulate(end)
    is_joined = np.zeros(len(begin) + 1, np.bool_)
    is_joined[1:-1] = begin[1:] < latest[:-1]
    return is_joined[:-1] | is_joined[1:]


def _stack_events(events: Iterable[tuple[int, int, int]]) -> list[int]:
    """Return the lane of each event (begin, end, layer): the first that is free, or whose last event is around it."""
    stacks: list[list[tuple[int, int]]] = []
    lanes = []
    for begin, end, layer in events:
        lane = 0
        for stack in stacks:
            while stack and stack[-1][0] <= begin:
                stack.pop()
            if not stack or (end <= stack[-1][0] and (layer < 0 or layer != stack[-1][1])):
                break
            lane += 1
        else:
            stack = []
            stacks.append(stack)
        stack.append((end, layer))
        lanes.append(lane)
    return lanes


#: Bytes of text that a browser's Perfetto has room for, nearly.
_MOST_IN_BROWSER: Final = 1_800_000_000
#: Numbers of a process and its lanes. Perfetto takes a lane 0 for the main thread of its process, and lanes of several
#: processes that have a number in common may become one: so no number is 0, and none is used twice.
_LANES: Final = 10_000
#: Values of the counters: of each rank at most, and of all ranks.
_MOST_BINS, _MOST_COUNTERS = 500, 100_000
#: Events that are lists of Python's numbers at a time.
_BLOCK: Final = 1 << 13
#: Values of an event in its `args`, in the order of the columns.
_ARGS: Final = ("offset", "count", "ret", "epoch", "step")


def write_perfetto(trace: Trace, path: str) -> list[str]:
    """Write a trace; return notes for its reader. Raises ExecutionError, also if lanes run out."""
    events = trace.events
    with open_text(path) as out:
        out.write("[\n")
        _write_documents(out, _describe_job(trace))
        identity = 0
        for number, rows in enumerate(split_processes(events)):
            own = events.select(rows)
            own = own.select(np.lexsort((-own.duration, own.begin)))
            lane, names = assign_lanes(own, trace.source == "dliosim")
            if len(names) > _LANES:
                raise ExecutionError(f"cannot export: a process has {len(names)} threads and calls at once")
            _write_documents(out, _describe_process(events, number, np.unique(lane).tolist(), names))
            _write_documents(out, _list_events(own, number, lane, identity))
            identity += len(own)
        _write_documents(out, _count_bandwidth(trace))
        out.write("]\n")
    return _warn_of_size(events, out.size)


def category_of(kind: str, layer: str, name: str) -> str:
    """Return the category by which readers know the kind and the layer of an event: DFTracer's if it has one."""
    if layer in ("posix", "stdio") and kind_of_call(name) == kind:
        return layer.upper()
    return f"{layer}: {kind}"


def _write_documents(out: TextOutput, documents: Iterator[dict[str, Any]]) -> None:
    encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
    for document in documents:
        out.write(encode(document) + "\n")


def _describe_job(trace: Trace) -> Iterator[dict[str, Any]]:
    about = {"cat": "dftracer", "pid": _LANES, "tid": _LANES, "ph": "M"}
    named = {"name": "dliosim", "value": trace.source, "duration": trace.duration, "command": trace.command}
    sentences = {"incomplete": trace.incomplete, "notes": trace.notes}
    yield {"name": "CM", **about, "args": named | sentences}
    for host in dict.fromkeys(process.host for process in trace.events.processes):
        yield {"name": "HH", **about, "args": {"name": host, "value": _hash(host)}}


def _describe_process(events: Events, number: int, lanes: Sequence[int], names: Names) -> Iterator[dict[str, Any]]:
    process, pid = events.processes[number], _process_number(number)
    shown = f"rank {process.rank}" if process.rank != UNKNOWN else f"process {process.pid}"
    about = {"cat": "dftracer", "pid": pid, "tid": pid, "ph": "M"}
    args = {"name": f"{shown} {process.host}".strip(), "rank": process.rank, "process": process.pid}
    yield {"name": "process_name", **about, "args": args}
    yield {"name": "process_sort_index", **about, "args": {"sort_index": rank_of(events, number)}}
    for lane in lanes:
        name, thread = names[lane]
        yield {"name": "thread_name", **about, "tid": pid + lane, "args": {"name": name, "thread": thread}}
        yield {"name": "thread_sort_index", **about, "tid": pid + lane, "args": {"sort_index": lane}}


def _list_events(events: Events, number: int, lane: Ints, identity: int) -> Iterator[dict[str, Any]]:
    """Yield the events of a process; their ids count from `identity`."""
    pid, host = _process_number(number), _hash(events.processes[number].host)
    seeks = events.kind == kind_number("seek")
    offset = np.where(seeks, UNKNOWN, events.offset)
    # DFTracer's count of these is of buffers.
    vectors = [place for place, name in enumerate(events.names) if plain_call(name) in VECTOR_CALLS]
    asked = np.where(np.isin(events.name, vectors), UNKNOWN, events.asked)
    moved = np.where(seeks, events.offset, events.moved)
    words = events.name, events.kind, events.layer, events.file
    columns = (*words, lane, events.begin, events.duration, offset, asked, moved, events.epoch, events.step)
    for rows in split_blocks(len(events), _BLOCK):
        lines = zip(*(each[rows].tolist() for each in columns), strict=True)
        for place, (name, kind, layer, file, lane_, begin, duration, *values) in enumerate(
            lines, rows.start + identity
        ):
            call = events.names[name]
            args = {"hhash": host, "fname": events.files[file]} if file != UNKNOWN else {"hhash": host}
            args |= {arg: value for arg, value in zip(_ARGS, values, strict=True) if value != UNKNOWN}
            yield {
                "id": place,
                "name": call,
                "cat": category_of(KINDS[kind], LAYERS[layer], call),
                "pid": pid,
                "tid": pid + lane_,
                "ts": begin / 1000,
                "dur": duration / 1000,
                "ph": "X",
                "args": args,
            }


def _count_bandwidth(trace: Trace) -> Iterator[dict[str, Any]]:
    """Yield the MiB/s that each rank reads and writes, by POSIX and by what takes its place, over time."""
    events, ranks = trace.events, len(trace.events.processes)
    bins = max(1, min(_MOST_BINS, _MOST_COUNTERS // max(ranks, 1)))
    width = max(trace.duration, 1) / bins
    rates = []
    for kind in "read", "write":
        rows = np.flatnonzero(events.is_kind(kind) & (events.moved > 0))
        begin, end, process = events.begin[rows], events.end[rows], events.process[rows].astype(np.int64)
        bytes_ = spread_amounts(begin, end, events.moved[rows], process, (ranks, bins), trace.duration)
        rates.append(np.round(bytes_ / (width * 1e-9) / (1 << 20), 2))
    for number in range(ranks):
        pid = _process_number(number)
        about = {"name": "MiB/s", "cat": "bandwidth", "pid": pid, "tid": pid, "ph": "C"}
        before = (0.0, 0.0)
        for place, both in enumerate((*zip(*(each[number].tolist() for each in rates), strict=True), (0.0, 0.0))):
            if both != before:
                args = {"read": both[0], "write": both[1]}
                yield {**about, "ts": round(place * width / 1000, 3), "args": args}
            before = both


def _process_number(number: int) -> int:
    """Return the number of a process, which its first lane has, too: as of a main thread, they are the same."""
    return (number + 1) * _LANES


def _hash(host: str) -> str:
    return f"{zlib.crc32(encode_text(host)):08x}"


def _warn_of_size(events: Events, text: int) -> list[str]:
    if text <= _MOST_IN_BROWSER:
        return []
    ranks = len(events.processes)
    some, steps = (max(1, many * _MOST_IN_BROWSER // text) for many in (ranks, int(events.step.max())))
    cut = f"ranks 0 to {some - 1}" if ranks > some else f"steps 1 to {steps}"
    return [
        f"{size(text, 2)} of text are more than Perfetto has room for in a browser (about 2 GB)"
        f'\n  = help: add --part "{cut}"'
    ]
