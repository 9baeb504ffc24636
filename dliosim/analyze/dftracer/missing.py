"""Sentences about what is missing from a job's traces, found in the traces themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dliosim.analyze.dftracer.lines import MAX_LINE, FileFaults
from dliosim.analyze.dftracer.parse import FileReading
from dliosim.readable import count, printable
from dliosim.trace.events import KINDS, Events, layer_number

#: Operations on files.
_OPERATIONS = KINDS[: KINDS.index("compute")]


def no_events(place: Path, readings: Sequence[FileReading], faults: Sequence[FileFaults]) -> str:
    """Return the message about traces without a single event."""
    lines = sum(reading.documents for reading in readings)
    found = [f"lines without an event: {lines:,}"] if lines else []
    unreadable = _unreadable(readings, faults)
    found += [f"lines that cannot be read: {many:,} ({why})" for why, many in unreadable.most_common(3)]
    if any(fault.damaged or fault.cut for fault in faults):
        found.append("data that are cut or damaged")
    content = "; ".join(found) if found else "nothing: the process was killed before it wrote, or is still running"
    return f"{place} has no event of DFTracer; it has {content}"


def list_missing(
    paths: Sequence[Path],
    readings: Sequence[FileReading],
    faults: Sequence[FileFaults],
    events: Events,
    without_name: int,
    copies: int,
) -> tuple[dict[str, int], tuple[str, ...], tuple[str, ...]]:
    """Return lines that are no events by what they are, and sentences: what is missing, and what else to know.

    `without_name` is the number of events on files that no line names, `copies` that of events that were dropped.
    """
    phases = sum((reading.phases for reading in readings), Counter[str]())
    unreadable = _unreadable(readings, faults)
    cut = [path for path, fault in zip(paths, faults, strict=True) if fault.cut]
    left_out = {**phases, "unreadable": sum(unreadable.values()), "cut": len(cut), "copies": copies}
    left_out = {what: many for what, many in left_out.items() if many}
    damaged = [path for path, fault in zip(paths, faults, strict=True) if fault.damaged]
    endless = [path for path, one in zip(paths, readings, strict=True) if len(one.starts) > one.ends]
    lost = sum(max(one.events_at_end - one.documents, 0) for one in readings)
    sizeless = int((events.is_kind("read", "write") & _is_system(events) & (events.moved < 0)).sum())
    sums = phases["sums over time"]
    is_training = events.is_kind("compute", "data wait", "epoch", "load").any()
    lacks_calls = is_training and not events.is_kind(*_OPERATIONS).any() and not any(one.exported for one in readings)
    example = next((one.example for one in readings if one.example), "")
    sentences = (
        (cut, f"the last line of {_files(cut)} is cut: the process was killed or is still running"),
        (damaged, f"{_files(damaged)} cannot be inflated to the end: what follows the damage is missing"),
        (endless, f"{_files(endless)} has no end event: the process was killed or is still running"),
        (lost, f"lines lost: {lost:,}; DFTracer wrote more than are here"),
        (
            unreadable,
            f"lines that cannot be read: {sum(unreadable.values()):,} ({_reasons(unreadable)}); "
            f"the first begins with {printable(example)}",
        ),
        (sizeless, f"reads and writes without a size: {sizeless:,}; run the job with DFTRACER_INC_METADATA=1"),
        (without_name, f"events on files that no line names: {without_name:,}"),
        (
            lacks_calls,
            "no call on a file was recorded; run the job with LD_PRELOAD=libdftracer_preload.so, and with "
            "DFTRACER_DATA_DIR=all where its paths are relative",
        ),
        (sums, f"lines that are sums over time: {sums:,}; run the job without DFTRACER_ENABLE_AGGREGATION"),
    )
    incomplete = tuple(sentence for is_so, sentence in sentences if is_so)
    return left_out, incomplete, _notes(paths, readings, events, left_out)


def _notes(
    paths: Sequence[Path], readings: Sequence[FileReading], events: Events, left_out: dict[str, int]
) -> tuple[str, ...]:
    lines = len(events) + sum(left_out.values())
    others = ", ".join(f"{many:,} {what}" for what, many in left_out.items())
    notes = [f"{len(events):,} of {lines:,} lines are events" + (f"; {others}" if others else "")]
    if copies := left_out.get("copies"):
        notes.append(
            f"{copies:,} events are exact copies of others and were dropped: forked workers wrote their parent's "
            "buffer again"
        )
    empty = [path for path, one in zip(paths, readings, strict=True) if not one.documents and not one.unreadable]
    if empty:
        notes.append(f"{_files(empty)} has no line: its process was killed or became another program before it wrote")
    hosts = {process.host for process in events.processes} - {""}
    if len(hosts) > 1:
        notes.append(f"the clocks of {len(hosts)} nodes are taken to be the same")
    if clashes := sum(one.clashes for one in readings):
        notes.append(f"{count(clashes, 'hash', 'hashes')} of files stand for two names: files may be mixed up")
    maps = [number for number, name in enumerate(events.names) if name.startswith("mmap")]
    if maps and np.isin(events.name, maps).any():
        notes.append("files were mapped to memory: no trace has what is read or written through a map")
    return tuple(notes)


def _is_system(events: Events) -> NDArray[np.bool_]:
    return np.isin(events.layer, (layer_number("posix"), layer_number("stdio")))


def _unreadable(readings: Sequence[FileReading], faults: Sequence[FileFaults]) -> Counter[str]:
    unreadable = sum((reading.unreadable for reading in readings), Counter[str]())
    unreadable[f"longer than {MAX_LINE:,} bytes"] = sum(fault.long_lines for fault in faults)
    return +unreadable


def _reasons(unreadable: Counter[str]) -> str:
    return ", ".join(f"{many:,} {why}" for why, many in unreadable.most_common(4))


def _files(paths: Sequence[Path]) -> str:
    """Return the name of the first file, and the number of the others."""
    if not paths:
        return ""
    others = f" and {count(len(paths) - 1, 'other file')}" if len(paths) > 1 else ""
    return f"{printable(paths[0].name)}{others}"
