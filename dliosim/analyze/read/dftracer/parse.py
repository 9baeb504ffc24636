"""Lines of DFTracer as columns: a block at a time in one call of the JSON parser, or in halves if that fails."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from dliosim.analyze.arrays import Bools, Ints
from dliosim.analyze.read.dftracer.calls import ITEM_CALLS, VECTOR_CALLS, classify_call, plain_call
from dliosim.analyze.read.dftracer.lines import FileFaults
from dliosim.boundedjson import refuse_constant
from dliosim.trace.events import UNKNOWN, kind_number

Document = dict[str, Any]
T = TypeVar("T")
R = TypeVar("R")

#: Phases of events: version 1 has Chrome's letters, version 2 numbers.
_COMPLETE: Final = ("X", 1)
_METADATA: Final = ("M", 4)
_OTHER_PHASES: Final = {"C": "counters", 2: "counters", "A": "sums over time", 3: "sums over time"}

#: Times are from 0 to this, in ns: the year 2116. The sum of two such fits int64.
_LAST_TIME: Final = (1 << 62) - 1
#: Offsets and sizes are below this.
_MOST_BYTES: Final = 1 << 60
#: Key of an object by which it has the hash of its line.
_LINE: Final = ""
#: `ret` of a call that has none.
_NO_RESULT: Final = -(1 << 63)

_OPEN, _READ, _WRITE, _SEEK = (kind_number(kind) for kind in ("open", "read", "write", "seek"))
_O_APPEND: Final = 0o2000

#: ns of the units that version 2 may use; version 1 has microseconds.
UNITS: Final = {"NS": 1, "US": 1_000, "MS": 1_000_000, "SEC": 1_000_000_000}


class Numbering(dict[Hashable, int]):
    """Numbers from 0 for values, in the order in which they are first asked for."""

    def __missing__(self, value: Hashable) -> int:
        self[value] = number = len(self)
        return number


class Calls(Numbering):
    """Numbers of calls by (category, name), with what `classify_call` says about each."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: list[int] = []  #: number of the kind of each
        self.layers: list[int] = []  #: number of the layer of each
        self.of_vectors: list[bool] = []  #: true for calls whose `count` is no number of bytes
        self.of_items: list[bool] = []  #: true for calls that count items of `size` bytes

    def __missing__(self, value: Hashable) -> int:
        category, name = value if isinstance(value, tuple) else (None, None)
        if type(name) is not str or type(category) is not str:
            raise _LineError("no name")
        kind, layer = classify_call(category, name)
        self.kinds.append(kind)
        self.layers.append(layer)
        self.of_vectors.append(plain_call(name) in VECTOR_CALLS)
        self.of_items.append(plain_call(name) in ITEM_CALLS)
        return super().__missing__(value)


@dataclass(slots=True)
class Tables:
    """Values that events name by numbers; shared by all files of a job."""

    calls: Calls = field(default_factory=Calls)  #: (category, name)
    processes: Numbering = field(default_factory=Numbering)  #: (number of the trace file, hash of host, host, pid)
    files: Numbering = field(default_factory=Numbering)  #: (number of the trace file, hash), or (None, path)


class Exported:
    """Metadata of an export of dliosim: its ranks and threads, which DFTracer's events lack, and the job.

    Values of other types and ranges are passed over.
    """

    def __init__(self, args: dict[str, Any]) -> None:
        #: True for the trace of a run of dliosim
        self.is_own = args.get("value") == "dliosim"
        #: length of the job, ns
        self.duration = _natural(args.get("duration"), 0)
        #: command line of the job
        self.command = "".join(_texts([args.get("command")]))
        #: sentences about what is missing, and about what to know
        self.incomplete, self.notes = _texts(args.get("incomplete")), _texts(args.get("notes"))
        #: rank, and id, of each process by its number in the file
        self.processes: dict[int, tuple[int, int]] = {}
        self._threads: dict[tuple[int, int], int] = {}

    def add_name(self, kind: str, document: dict[str, Any], args: dict[str, Any]) -> None:
        """Note a line that names a process or a lane of it."""
        number, lane = _natural(document.get("pid"), -1), _natural(document.get("tid"), -1)
        if kind == "process_name":
            self.processes[number] = _natural(args.get("rank"), -1), _natural(args.get("process"), -1)
        else:
            self._threads[number, lane] = _natural(args.get("thread"), 0)

    def thread_of(self, process: Any, lane: Any) -> int:
        """Return the thread whose events are in a lane: several, if calls of one were under way together."""
        return self._threads.get((process, lane), 0)


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(each for each in values if type(each) is str) if type(values) is list else ()


def _natural(value: Any, other: int) -> int:
    return value if type(value) is int and 0 <= value <= _LAST_TIME else other


@dataclass(slots=True)
class FileReading:
    """Findings in one trace file, next to its events."""

    number: int  #: of the trace file in the job
    path: Path  #: the trace file
    faults: FileFaults = field(default_factory=FileFaults)  #: what cannot be read of it
    ns: int = 1_000  #: ns of its unit of time
    documents: int = 0  #: lines that are JSON objects
    phases: Counter[str] = field(default_factory=Counter)  #: lines that are no complete events, by what they are
    unreadable: Counter[str] = field(default_factory=Counter)  #: lines that cannot be read, by the reason
    example: str = ""  #: start of the first line that cannot be read
    names: dict[tuple[str, Hashable], str] = field(default_factory=dict)  #: names by (FH, HH or SH, hash)
    clashes: int = 0  #: hashes that were given another name later; version 1.0.5 has 16 bits of hash
    starts: set[int] = field(default_factory=set)  #: hashes of the lines with which DFTracer began a process
    command: int | str | None = None  #: hash of the first process's command line
    parents: dict[int, int] = field(default_factory=dict)  #: pid of the parent by pid
    events_at_end: int = 0  #: events that DFTracer says it wrote, summed over processes
    ends: int = 0  #: events with which DFTracer ended a process
    exported: Exported | None = None  #: what an export of dliosim says of itself; None for DFTracer's own


class _LineError(ValueError):
    """A line that is no event, with the reason for users."""


def parse_lines(lines: Sequence[bytes], reading: FileReading, tables: Tables) -> Iterator[dict[str, NDArray[Any]]]:
    """Yield columns of the complete events in lines; all other lines are counted in `reading`."""
    refuse = partial(_refuse, reading)
    texts = [text for line in lines if (text := line.strip(b" \t\r,")) and text not in (b"[", b"]")]
    for documents in _halve_on_error(_parse_json, texts, refuse):
        reading.documents += len(documents)
        events = [document for document in documents if document.get("ph") in _COMPLETE]
        if len(events) < len(documents):
            for document in documents:
                if document.get("ph") not in _COMPLETE:
                    _note_other(document, reading)
        yield from _halve_on_error(lambda some: _columns(some, reading, tables), events, refuse)


def _halve_on_error(
    work: Callable[[Sequence[T]], R], items: Sequence[T], refuse: Callable[[T, str], None]
) -> Iterator[R]:
    """Yield the work on all items, or on both halves if it fails; single items that fail are refused."""
    if not items:
        return
    try:
        result = work(items)
    except (ValueError, TypeError, OverflowError, KeyError, AttributeError, RecursionError) as error:
        if len(items) == 1:
            refuse(items[0], str(error) if isinstance(error, _LineError) else "a value of a wrong type or range")
            return
        half = len(items) // 2
        yield from _halve_on_error(work, items[:half], refuse)
        yield from _halve_on_error(work, items[half:], refuse)
    else:
        yield result


def _refuse(reading: FileReading, example: bytes | Document, why: str) -> None:
    reading.unreadable[why] += 1
    text = example[:80].decode(errors="replace") if isinstance(example, bytes) else str(example)[:80]
    reading.example = reading.example or text


def _parse_json(texts: Sequence[bytes]) -> list[Document]:
    """Return the objects of lines: one call for all is four times as fast as one each."""
    # Names of files are bytes: those that are no UTF-8 become surrogates, as everywhere in Python.
    whole = b"[" + b",".join(texts) + b"]"
    try:
        documents = json.loads(whole.decode(errors="surrogateescape"), parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        raise _LineError("not JSON") from None
    if len(documents) != len(texts) or not all(type(document) is dict for document in documents):
        raise _LineError("not an object of JSON")
    for document, text in zip(documents, texts, strict=True):
        document[_LINE] = hash(text)
    return documents  # type: ignore[no-any-return]


def _note_other(document: Document, reading: FileReading) -> None:
    """Count a line that is no complete event, and keep what names hashes and units."""
    phase = document.get("ph")
    if phase not in _METADATA:
        other = _OTHER_PHASES.get(phase) if isinstance(phase, (str, int)) else None
        if phase is None:
            _refuse(reading, document, "no phase")
        else:
            reading.phases[other or "other phases"] += 1
        return
    reading.phases["metadata"] += 1
    kind, args = document.get("name"), document.get("args")
    if not isinstance(kind, str) or not isinstance(args, dict):
        return
    name, value = args.get("name"), args.get("value")
    if kind == "CM" and name == "time_metric":
        reading.ns = UNITS.get(str(value), reading.ns)
    elif kind == "CM" and name == "dliosim":
        reading.exported = Exported(args)
    elif kind in ("process_name", "thread_name") and reading.exported is not None:
        reading.exported.add_name(kind, document, args)
    elif kind in ("FH", "HH", "SH") and isinstance(name, str) and isinstance(value, (int, str)):
        reading.clashes += reading.names.setdefault((kind, value), name) != name


def _columns(events: Sequence[Document], reading: FileReading, tables: Tables) -> dict[str, NDArray[Any]]:
    """Return the columns of complete events; raises the errors of wrong types and ranges, at any of them."""
    no_args: Document = {}
    args = [found if type(found := event.get("args")) is dict else no_args for event in events]
    number = reading.number
    pairs = zip(events, args, strict=True)
    processes = [(number, own.get("hhash"), own.get("hostname"), event.get("pid")) for event, own in pairs]
    begin, duration = (_times([event.get(key) for event in events], reading.ns) for key in ("ts", "dur"))
    call = _numbers(tables.calls, [(event.get("cat", ""), event.get("name")) for event in events])
    kind = np.array(tables.calls.kinds, np.int8)[call]
    result = _whole([one.get("ret", _NO_RESULT) for one in args], _NO_RESULT)
    count, offset, size = (_whole([one.get(key, other) for one in args], -_MOST_BYTES) for key, other in _SIZES)
    item = np.where(np.array(tables.calls.of_items)[call], size, 1)
    if (np.abs(result, where=result != _NO_RESULT, out=np.zeros_like(result)) * item.astype(float) > _MOST_BYTES).any():
        raise _LineError("a size out of range")
    is_transfer = (kind == _READ) | (kind == _WRITE)
    counts_bytes = is_transfer & ~np.array(tables.calls.of_vectors)[call] & (count >= 0)
    moves = is_transfer & (result != _NO_RESULT)
    has_place = (is_transfer & (offset >= 0)) | ((kind == _SEEK) & (result >= 0))
    columns: dict[str, NDArray[Any]] = {
        "call": call,
        "process": _numbers(tables.processes, processes),
        "thread": _whole(
            [event.get("tid", 0) for event in events]
            if reading.exported is None
            else [reading.exported.thread_of(event.get("pid"), event.get("tid", 0)) for event in events],
            0,
        ),
        "begin": begin,
        "duration": duration,
        "file": _numbers(tables.files, [_file(number, one) for one in args]),
        "offset": np.where(has_place, np.where(kind == _SEEK, result, offset), UNKNOWN),
        "asked": np.where(counts_bytes, count * item, UNKNOWN),
        "moved": np.where(moves, np.maximum(result, 0) * item, UNKNOWN),
        "epoch": _ordinals([one.get("epoch", UNKNOWN) for one in args]),
        "step": _ordinals([one.get("step", UNKNOWN) for one in args]),
        "failed": (result < 0) & (result != _NO_RESULT),
        "appends": _appends(kind, args),
        "line": np.array([event[_LINE] for event in events], np.int64),
    }
    _note_own(events, args, reading)
    return columns


#: Arguments of calls, with what stands for none.
_SIZES: Final = (("count", UNKNOWN), ("offset", UNKNOWN), ("size", 1))


def _file(number: int, args: Document) -> tuple[Hashable, ...]:
    if "fhash" in args:
        return number, args["fhash"]
    return None, args.get("fname", "")


def _note_own(events: Sequence[Document], args: Sequence[Document], reading: FileReading) -> None:
    """Keep what DFTracer records about itself: the begin and the end of a process."""
    for event, own in zip(events, args, strict=True):
        if event.get("cat") == "dftracer":
            if event.get("name") == "start":
                reading.starts.add(event[_LINE])
                command = own.get("cmd_hash")
                if reading.command is None and isinstance(command, (int, str)):
                    reading.command = command
                pid, parent = event.get("pid"), own.get("ppid")
                if type(pid) is int and type(parent) is int:
                    reading.parents[pid] = parent
            elif event.get("name") == "end":
                reading.ends += 1
                written = own.get("num_events", 0)
                reading.events_at_end += written if type(written) is int else 0


def _appends(kind: NDArray[np.int8], args: Sequence[Document]) -> Bools:
    """Return which events open a file for appending; (n,)."""
    appends = np.zeros(len(kind), bool)
    for row in np.flatnonzero(kind == _OPEN).tolist():
        flags, mode = args[row].get("flags", 0), args[row].get("mode", "")
        appends[row] = bool(type(flags) is int and flags & _O_APPEND) or (type(mode) is str and "a" in mode)
    return appends


def _numbers(numbering: Numbering, values: list[tuple[Any, ...]]) -> NDArray[np.int32]:
    return np.array([numbering[value] for value in values], np.int32)


def _whole(values: list[Any], least: int) -> Ints:
    """Return whole numbers, which version 1 may write as texts; raises if one is none, or too small or large."""
    try:
        numbers = np.array(array("q", values), np.int64)
    except TypeError:
        numbers = np.array(array("q", map(int, values)), np.int64)
    if numbers.size and (numbers.min() < least or numbers.max() > _MOST_BYTES):
        raise _LineError("a number out of range")
    return numbers


def _times(values: list[Any], ns: int) -> Ints:
    """Return times in ns, of whole numbers, numbers and texts."""
    try:
        times = array("q", values)
        least, most = min(times), max(times)
    except TypeError:
        exact = [round(one * ns) if type(one) is float else int(one) * ns for one in values]
        times, least, most, ns = array("q", exact), min(exact), max(exact), 1
    if least < 0 or most * ns > _LAST_TIME:
        raise _LineError("a time out of range")
    return np.array(times, np.int64) * ns


def _ordinals(values: list[Any]) -> Ints:
    """Return numbers of epochs or steps; `UNKNOWN` for what is none, such as `train`."""
    try:
        numbers = array("q", values)
    except (TypeError, OverflowError):
        numbers = array("q", (min(max(whole_or_unknown(value), UNKNOWN), 1 << 31) for value in values))
    ordinals = np.array(numbers, np.int64)
    ordinals[(ordinals < 0) | (ordinals >= 1 << 31)] = UNKNOWN
    return ordinals


def whole_or_unknown(value: Any) -> int:
    """Return a whole number, or a text of one; `UNKNOWN` for what is none."""
    try:
        return int(value)
    except (ValueError, TypeError, OverflowError):
        return UNKNOWN
